package clustertext

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// This file owns the statistics of the leader, as sdiag shows them.

func mean(sum, n int64) int64 { return sum / max(1, n) }

// MeanUS is how long requests of a kind, or of a user, took, microseconds.
func MeanUS(c *proto.DiagRPC) int64 { return mean(c.SumUS, c.Count) }

// StatisticsText gives them in sdiag's layout, which exporters read with regular expressions. Lines about
// means are there only where there is something to divide by, as in sdiag.
func StatisticsText(r *proto.DiagReply) string {
	var text strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&text, format, a...) }
	at := moment
	rule := "*******************************************************\n"
	p("%ssdiag output at %s\nData since      %s\n%s", rule, at(r.Now), at(r.Since), rule)
	p("Server thread count:  %d\nAgent queue size:     %d\nAgent count:          0\nAgent thread count:   0\n"+
		"DBD Agent queue size: %d\n\n", r.Threads, r.AgentQueue, r.DbdQueue)
	p("Jobs submitted: %d\nJobs started:   %d\nJobs completed: %d\nJobs canceled:  %d\nJobs failed:    %d\n\n",
		r.Submitted, r.Started, r.Completed, r.Canceled, r.Failed)
	p("Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n", at(r.Now), r.Pending, r.Running)
	m := &r.Main
	p("Main schedule statistics (microseconds):\n\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n", m.LastUS,
		m.MaxUS, m.Count)
	if m.Count > 0 {
		p("\tMean cycle:   %d\n\tMean depth cycle:  %d\n", mean(m.SumUS, m.Count), mean(m.DepthSum, m.Count))
	}
	if minutes := int64(r.Now-r.Since) / 60000; minutes > 0 {
		p("\tCycles per minute: %d\n", m.Count/minutes)
	}
	p("\tLast queue length: %d\n\n", m.QueueLast)
	b := &r.Backfill
	p("Backfilling stats\n\tTotal backfilled jobs (since last slurm start): %d\n"+
		"\tTotal backfilled jobs (since last stats cycle start): %d\n", r.BackfilledAll, r.Backfilled)
	p("\tTotal backfilled heterogeneous job components: 0\n\tTotal cycles: %d\n", b.Count)
	if b.At > 0 {
		p("\tLast cycle when: %s\n", at(b.At))
	} else {
		p("\tLast cycle when: N/A\n")
	}
	p("\tLast cycle: %d\n\tMax cycle:  %d\n", b.LastUS, b.MaxUS)
	if b.Count > 0 {
		p("\tMean cycle: %d\n", mean(b.SumUS, b.Count))
	}
	p("\tLast depth cycle: %d\n\tLast depth cycle (try sched): %d\n", b.DepthLast, r.TryDepthLast)
	if b.Count > 0 {
		p("\tDepth Mean: %d\n\tDepth Mean (try depth): %d\n", mean(b.DepthSum, b.Count), mean(r.TryDepthSum, b.Count))
	}
	p("\tLast queue length: %d\n", b.QueueLast)
	if b.Count > 0 {
		p("\tQueue length mean: %d\n", mean(b.QueueSum, b.Count))
	}
	p("\tLast table size: %d\n", r.TableLast)
	if b.Count > 0 {
		p("\tMean table size: %d\n", mean(r.TableSum, b.Count))
	}
	p("\nReplicated log\n\tQueue length: %d\n", r.RaftQueue)
	for _, kv := range r.Counters {
		p("\t%s: %s\n", kv.Key, kv.Value)
	}
	for i, b := range r.Backlogs {
		if i == 0 {
			p("\nBacklog\n")
		}
		p("\t%s: %d waiting for room, the oldest for %s; %s of work for the whole partition\n", b.Partition, b.Jobs,
			walltime.Elapsed(b.OldestS), walltime.Elapsed(b.WorkS))
	}
	p("\nRemote Procedure Call statistics by message type\n")
	for _, c := range r.ByType {
		p("\t%-40s%s\n", c.Name, counted(&c))
	}
	p("\nRemote Procedure Call statistics by user\n")
	for _, c := range r.ByUser {
		p("\t%-16s(%8d) count:%-6d ave_time:%-6d total_time:%d\n", c.Name, c.ID, c.Count, mean(c.SumUS, c.Count), c.SumUS)
	}
	for i, c := range slices.DeleteFunc(slices.Clone(r.ByUser), func(c proto.DiagRPC) bool { return c.Slowed == 0 }) {
		if i == 0 {
			p("\nUsers who list too often and wait for it (QueryRateLimit)\n")
		}
		p("\t%-16s(%8d) count:%-6d total_wait_ms:%d\n", c.Name, c.ID, c.Slowed, c.SlowedMS)
	}
	p("\nPending RPC statistics\n\tNo pending RPCs\n")
	return text.String()
}

// moment writes a time as the headings of statistics have it.
func moment(t model.Time) string {
	return fmt.Sprintf("%s (%d)", time.UnixMilli(int64(t)).Format("Mon Jan 02 15:04:05 2006"), t.Seconds())
}

// counted gives the columns behind the name of a request.
func counted(c *proto.DiagRPC) string {
	return fmt.Sprintf("(%5d) count:%-6d ave_time:%-6d total_time:%d", c.ID, c.Count, mean(c.SumUS, c.Count), c.SumUS)
}

// ofAccounting are the requests that slurmdbd would answer.
var ofAccounting = []string{"REQUEST_ACCOUNTING", "REQUEST_ACCOUNTS", "REQUEST_HISTORY", "REQUEST_MONEY",
	"REQUEST_REPORT", "REQUEST_UPDATE_ACCOUNTS", "REQUEST_UPDATE_MONEY"}

// AccountingStatisticsText gives the part of them that is about accounting, in the layout of sacctmgr show stats. Sums
// are made as records arrive, so there is no rollup that could have run.
func AccountingStatisticsText(r *proto.DiagReply) string {
	var text strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&text, format, a...) }
	rule := strings.Repeat("*", 67) + "\n"
	p("%ssacctmgr show stats output at %s\nData since                    %s\nAll statistics are in microseconds\n%s", rule,
		moment(r.Now), moment(r.Since), rule)
	p("\nInternal DBD rollup never ran\n\nRemote Procedure Call statistics by message type\n")
	for _, c := range r.ByType {
		if slices.Contains(ofAccounting, c.Name) {
			p("\t%-25s%s\n", c.Name, counted(&c))
		}
	}
	p("\nRemote Procedure Call statistics by user\n")
	for _, c := range r.ByUser {
		p("\t%-20s(%10d) count:%-6d ave_time:%-6d total_time:%d\n", c.Name, c.ID, c.Count, mean(c.SumUS, c.Count), c.SumUS)
	}
	return text.String()
}

// StatisticsJSON is the one object of the statistics.
func StatisticsJSON() []slurmjson.Field[proto.DiagReply] {
	return append(controllerStatistics(), requestStatistics()...)
}

// controllerStatistics is about jobs and the scheduler.
func controllerStatistics() []slurmjson.Field[proto.DiagReply] {
	type row = proto.DiagReply
	num := func(name string, get func(r *row) int64) slurmjson.Field[row] {
		return slurmjson.Field[row]{Name: name, Int: get}
	}
	return []slurmjson.Field[row]{
		num("parts_packed", func(*row) int64 { return 1 }),
		{Name: "req_time", Time: func(r *row) model.Time { return r.Now }},
		{Name: "req_time_start", Time: func(r *row) model.Time { return r.Since }},
		num("server_thread_count", func(r *row) int64 { return r.Threads }),
		num("agent_queue_size", func(r *row) int64 { return r.AgentQueue }),
		{Name: "agent_count", Type: slurmjson.Integer},
		{Name: "agent_thread_count", Type: slurmjson.Integer},
		num("dbd_agent_queue_size", func(r *row) int64 { return r.DbdQueue }),
		{Name: "gettimeofday_latency", Type: slurmjson.Integer},
		num("schedule_cycle_max", func(r *row) int64 { return r.Main.MaxUS }),
		num("schedule_cycle_last", func(r *row) int64 { return r.Main.LastUS }),
		num("schedule_cycle_sum", func(r *row) int64 { return r.Main.SumUS }),
		num("schedule_cycle_total", func(r *row) int64 { return r.Main.Count }),
		num("schedule_cycle_mean", func(r *row) int64 { return mean(r.Main.SumUS, r.Main.Count) }),
		num("schedule_cycle_mean_depth", func(r *row) int64 { return mean(r.Main.DepthSum, r.Main.Count) }),
		num("schedule_cycle_per_minute", func(r *row) int64 { return r.Main.Count / max(1, int64(r.Now-r.Since)/60000) }),
		num("schedule_cycle_depth", func(r *row) int64 { return r.Main.DepthSum }),
		{Name: "schedule_exit", In: slurmjson.InNew, Fields: []slurmjson.Field[row]{
			num("end_job_queue", func(r *row) int64 { return r.Main.Count }), // every pass looks at the whole queue
			{Name: "default_queue_depth", Type: slurmjson.Integer}, {Name: "max_job_start", Type: slurmjson.Integer},
			{Name: "max_rpc_cnt", Type: slurmjson.Integer}, {Name: "max_sched_time", Type: slurmjson.Integer},
			{Name: "licenses", Type: slurmjson.Integer},
		}},
		num("schedule_queue_length", func(r *row) int64 { return r.Main.QueueLast }),
		num("jobs_submitted", func(r *row) int64 { return r.Submitted }),
		num("jobs_started", func(r *row) int64 { return r.Started }),
		num("jobs_completed", func(r *row) int64 { return r.Completed }),
		num("jobs_canceled", func(r *row) int64 { return r.Canceled }),
		num("jobs_failed", func(r *row) int64 { return r.Failed }),
		num("jobs_pending", func(r *row) int64 { return r.Pending }),
		num("jobs_running", func(r *row) int64 { return r.Running }),
		{Name: "job_states_ts", Time: func(r *row) model.Time { return r.Now }},
		num("bf_backfilled_jobs", func(r *row) int64 { return r.BackfilledAll }),
		num("bf_last_backfilled_jobs", func(r *row) int64 { return r.Backfilled }),
		{Name: "bf_backfilled_het_jobs", Type: slurmjson.Integer},
		num("bf_cycle_counter", func(r *row) int64 { return r.Backfill.Count }),
		num("bf_cycle_mean", func(r *row) int64 { return mean(r.Backfill.SumUS, r.Backfill.Count) }),
		num("bf_depth_mean", func(r *row) int64 { return mean(r.Backfill.DepthSum, r.Backfill.Count) }),
		num("bf_depth_mean_try", func(r *row) int64 { return mean(r.TryDepthSum, r.Backfill.Count) }),
		num("bf_cycle_sum", func(r *row) int64 { return r.Backfill.SumUS }),
		num("bf_cycle_last", func(r *row) int64 { return r.Backfill.LastUS }),
		num("bf_cycle_max", func(r *row) int64 { return r.Backfill.MaxUS }),
		{Name: "bf_exit", In: slurmjson.InNew, Fields: []slurmjson.Field[row]{
			num("end_job_queue", func(r *row) int64 { return r.Backfill.Count }),
			{Name: "bf_max_job_start", Type: slurmjson.Integer}, {Name: "bf_max_job_test", Type: slurmjson.Integer},
			{Name: "bf_max_time", Type: slurmjson.Integer}, {Name: "bf_node_space_size", Type: slurmjson.Integer},
			{Name: "state_changed", Type: slurmjson.Integer},
		}},
		num("bf_depth_sum", func(r *row) int64 { return r.Backfill.DepthSum }),
		num("bf_depth_try_sum", func(r *row) int64 { return r.TryDepthSum }),
		num("bf_last_depth", func(r *row) int64 { return r.Backfill.DepthLast }),
		num("bf_last_depth_try", func(r *row) int64 { return r.TryDepthLast }),
		num("bf_queue_len", func(r *row) int64 { return r.Backfill.QueueLast }),
		num("bf_queue_len_mean", func(r *row) int64 { return mean(r.Backfill.QueueSum, r.Backfill.Count) }),
		num("bf_queue_len_sum", func(r *row) int64 { return r.Backfill.QueueSum }),
		num("bf_table_size", func(r *row) int64 { return r.TableLast }),
		num("bf_table_size_sum", func(r *row) int64 { return r.TableSum }),
		num("bf_table_size_mean", func(r *row) int64 { return mean(r.TableSum, r.Backfill.Count) }),
		{Name: "bf_when_last_cycle", Time: func(r *row) model.Time { return r.Backfill.At }},
		{Name: "bf_active", Type: slurmjson.Boolean},
	}
}

// requestStatistics is about requests, and what sdiag has no words for.
func requestStatistics() []slurmjson.Field[proto.DiagReply] {
	type row = proto.DiagReply
	rpcs := func(name, kind, id string, byType func(*proto.DiagRPC) bool,
		list func(r *row) []proto.DiagRPC) slurmjson.Field[row] {
		return slurmjson.Slice(name, list, []slurmjson.Field[proto.DiagRPC]{
			{Name: kind, Str: func(c *proto.DiagRPC) string { return c.Name }},
			{Name: id, Int: func(c *proto.DiagRPC) int64 { return int64(c.ID) }},
			{Name: "count", Int: func(c *proto.DiagRPC) int64 { return c.Count }},
			{Name: "total_time", Int: func(c *proto.DiagRPC) int64 { return c.SumUS }},
			{Name: "average_time", Count: MeanUS},
			{Name: "queued", Type: slurmjson.Integer, If: byType}, {Name: "dropped", Type: slurmjson.Integer, If: byType},
			{Name: "cycle_last", Type: slurmjson.Integer, If: byType}, {Name: "cycle_max", Type: slurmjson.Integer,
				If: byType},
		})
	}
	return []slurmjson.Field[row]{
		rpcs("rpcs_by_message_type", "message_type", "type_id", nil, func(r *row) []proto.DiagRPC { return r.ByType }),
		rpcs("rpcs_by_user", "user", "user_id", func(*proto.DiagRPC) bool { return false },
			func(r *row) []proto.DiagRPC { return r.ByUser }),
		{Name: "pending_rpcs", Type: slurmjson.List},
		{Name: "pending_rpcs_by_hostlist", In: slurmjson.InNew, Type: slurmjson.List},
		slurmjson.Slice("gbatch", func(r *row) []model.KV {
			out := append([]model.KV{{Key: "log_queue", Value: strconv.FormatInt(r.RaftQueue, 10)}}, r.Counters...)
			for _, b := range r.Backlogs {
				out = append(out, model.KV{Key: "backlog_jobs_" + b.Partition, Value: strconv.FormatInt(b.Jobs, 10)},
					model.KV{Key: "backlog_oldest_seconds_" + b.Partition, Value: strconv.FormatInt(b.OldestS, 10)},
					model.KV{Key: "backlog_work_seconds_" + b.Partition, Value: strconv.FormatInt(b.WorkS, 10)})
			}
			return out
		}, []slurmjson.Field[model.KV]{
			{Name: "key", Str: func(kv *model.KV) string { return kv.Key }},
			{Name: "value", Str: func(kv *model.KV) string { return kv.Value }},
		}),
	}
}
