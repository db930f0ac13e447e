package cli

import (
	"strconv"

	"gbatch/internal/proto"
)

// printJSON prints the statistics as sdiag --json does: one object under the name statistics. Up to v0.0.40 moments are
// plain numbers, later they have "set" beside them.
func (d *diag) printJSON(r *proto.DiagReply, cluster string) error {
	j := &jsonText{w: d.Stdout, old: d.json < "v0.0.40"}
	j.open("", '{')
	j.open("statistics", '{')
	j.num("parts_packed", 1)
	j.time("req_time", r.Now)
	j.time("req_time_start", r.Since)
	j.num("server_thread_count", r.Threads)
	j.num("agent_queue_size", r.AgentQueue)
	j.num("agent_count", 0)
	j.num("agent_thread_count", 0)
	j.num("dbd_agent_queue_size", r.DbdQueue)
	j.num("gettimeofday_latency", 0)
	m, b := &r.Main, &r.Backfill
	j.num("schedule_cycle_max", m.MaxUS)
	j.num("schedule_cycle_last", m.LastUS)
	j.num("schedule_cycle_sum", m.SumUS)
	j.num("schedule_cycle_total", m.Count)
	j.num("schedule_cycle_mean", mean(m.SumUS, m.Count))
	j.num("schedule_cycle_mean_depth", mean(m.DepthSum, m.Count))
	j.num("schedule_cycle_per_minute", m.Count/max(1, int64(r.Now-r.Since)/60000))
	j.num("schedule_cycle_depth", m.DepthSum)
	j.num("schedule_queue_length", m.QueueLast)
	j.num("jobs_submitted", r.Submitted)
	j.num("jobs_started", r.Started)
	j.num("jobs_completed", r.Completed)
	j.num("jobs_canceled", r.Canceled)
	j.num("jobs_failed", r.Failed)
	j.num("jobs_pending", r.Pending)
	j.num("jobs_running", r.Running)
	j.time("job_states_ts", r.Now)
	j.num("bf_backfilled_jobs", r.BackfilledAll)
	j.num("bf_last_backfilled_jobs", r.Backfilled)
	j.num("bf_backfilled_het_jobs", 0)
	j.num("bf_cycle_counter", b.Count)
	j.num("bf_cycle_mean", mean(b.SumUS, b.Count))
	j.num("bf_depth_mean", mean(b.DepthSum, b.Count))
	j.num("bf_depth_mean_try", mean(r.TryDepthSum, b.Count))
	j.num("bf_cycle_sum", b.SumUS)
	j.num("bf_cycle_last", b.LastUS)
	j.num("bf_cycle_max", b.MaxUS)
	j.num("bf_depth_sum", b.DepthSum)
	j.num("bf_depth_try_sum", r.TryDepthSum)
	j.num("bf_last_depth", b.DepthLast)
	j.num("bf_last_depth_try", r.TryDepthLast)
	j.num("bf_queue_len", b.QueueLast)
	j.num("bf_queue_len_mean", mean(b.QueueSum, b.Count))
	j.num("bf_queue_len_sum", b.QueueSum)
	j.num("bf_table_size", r.TableLast)
	j.num("bf_table_size_sum", r.TableSum)
	j.num("bf_table_size_mean", mean(r.TableSum, b.Count))
	j.time("bf_when_last_cycle", b.At)
	j.bool("bf_active", false)
	rpcs := func(name, kind, id string, list []proto.DiagRPC) {
		j.open(name, '[')
		for _, c := range list {
			j.open("", '{')
			j.str(kind, c.Name)
			j.num(id, int64(c.ID))
			j.num("count", c.Count)
			j.num("total_time", c.SumUS)
			j.count("average_time", mean(c.SumUS, c.Count))
			j.close('}')
		}
		j.close(']')
	}
	rpcs("rpcs_by_message_type", "message_type", "type_id", r.ByType)
	rpcs("rpcs_by_user", "user", "user_id", r.ByUser)
	j.open("pending_rpcs", '[')
	j.close(']')
	j.open("gbatch", '[')
	j.open("", '{')
	j.str("key", "log_queue")
	j.str("value", strconv.FormatInt(r.RaftQueue, 10))
	j.close('}')
	for _, kv := range r.Counters {
		j.open("", '{')
		j.str("key", kv.Key)
		j.str("value", kv.Value)
		j.close('}')
	}
	j.close(']')
	j.close('}')
	return d.jsonTail(j, cluster, r.Now)
}
