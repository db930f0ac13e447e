package manage

import (
	"strconv"

	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// printJSON prints the statistics as sdiag --json does: one object under the name statistics. Up to v0.0.40 moments are
// plain numbers, later they have "set" beside them.
func (d *diag) printJSON(r *proto.DiagReply, cluster string) error {
	j := slurmjson.New(d.Stdout, d.json)
	j.Open("", '{')
	j.Open("statistics", '{')
	j.Num("parts_packed", 1)
	j.Time("req_time", r.Now)
	j.Time("req_time_start", r.Since)
	j.Num("server_thread_count", r.Threads)
	j.Num("agent_queue_size", r.AgentQueue)
	j.Num("agent_count", 0)
	j.Num("agent_thread_count", 0)
	j.Num("dbd_agent_queue_size", r.DbdQueue)
	j.Num("gettimeofday_latency", 0)
	m, b := &r.Main, &r.Backfill
	j.Num("schedule_cycle_max", m.MaxUS)
	j.Num("schedule_cycle_last", m.LastUS)
	j.Num("schedule_cycle_sum", m.SumUS)
	j.Num("schedule_cycle_total", m.Count)
	j.Num("schedule_cycle_mean", mean(m.SumUS, m.Count))
	j.Num("schedule_cycle_mean_depth", mean(m.DepthSum, m.Count))
	j.Num("schedule_cycle_per_minute", m.Count/max(1, int64(r.Now-r.Since)/60000))
	j.Num("schedule_cycle_depth", m.DepthSum)
	j.Num("schedule_queue_length", m.QueueLast)
	j.Num("jobs_submitted", r.Submitted)
	j.Num("jobs_started", r.Started)
	j.Num("jobs_completed", r.Completed)
	j.Num("jobs_canceled", r.Canceled)
	j.Num("jobs_failed", r.Failed)
	j.Num("jobs_pending", r.Pending)
	j.Num("jobs_running", r.Running)
	j.Time("job_states_ts", r.Now)
	j.Num("bf_backfilled_jobs", r.BackfilledAll)
	j.Num("bf_last_backfilled_jobs", r.Backfilled)
	j.Num("bf_backfilled_het_jobs", 0)
	j.Num("bf_cycle_counter", b.Count)
	j.Num("bf_cycle_mean", mean(b.SumUS, b.Count))
	j.Num("bf_depth_mean", mean(b.DepthSum, b.Count))
	j.Num("bf_depth_mean_try", mean(r.TryDepthSum, b.Count))
	j.Num("bf_cycle_sum", b.SumUS)
	j.Num("bf_cycle_last", b.LastUS)
	j.Num("bf_cycle_max", b.MaxUS)
	j.Num("bf_depth_sum", b.DepthSum)
	j.Num("bf_depth_try_sum", r.TryDepthSum)
	j.Num("bf_last_depth", b.DepthLast)
	j.Num("bf_last_depth_try", r.TryDepthLast)
	j.Num("bf_queue_len", b.QueueLast)
	j.Num("bf_queue_len_mean", mean(b.QueueSum, b.Count))
	j.Num("bf_queue_len_sum", b.QueueSum)
	j.Num("bf_table_size", r.TableLast)
	j.Num("bf_table_size_sum", r.TableSum)
	j.Num("bf_table_size_mean", mean(r.TableSum, b.Count))
	j.Time("bf_when_last_cycle", b.At)
	j.Bool("bf_active", false)
	rpcs := func(name, kind, id string, list []proto.DiagRPC) {
		j.Open(name, '[')
		for _, c := range list {
			j.Open("", '{')
			j.Str(kind, c.Name)
			j.Num(id, int64(c.ID))
			j.Num("count", c.Count)
			j.Num("total_time", c.SumUS)
			j.Count("average_time", mean(c.SumUS, c.Count))
			j.Close('}')
		}
		j.Close(']')
	}
	rpcs("rpcs_by_message_type", "message_type", "type_id", r.ByType)
	rpcs("rpcs_by_user", "user", "user_id", r.ByUser)
	j.Open("pending_rpcs", '[')
	j.Close(']')
	j.Open("gbatch", '[')
	j.Open("", '{')
	j.Str("key", "log_queue")
	j.Str("value", strconv.FormatInt(r.RaftQueue, 10))
	j.Close('}')
	for _, kv := range r.Counters {
		j.Open("", '{')
		j.Str("key", kv.Key)
		j.Str("value", kv.Value)
		j.Close('}')
	}
	j.Close(']')
	j.Close('}')
	return d.JSONTail(j, cluster, r.Now)
}
