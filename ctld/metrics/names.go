package metrics

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// jobStates are Slurm's words for states of jobs, in metrics' names, and gbatch's states that they count.
var jobStates = []struct {
	name   string
	states []model.JobState // none: gbatch has no such state
}{
	{"bootfail", []model.JobState{model.BootFail}}, {"cancelled", []model.JobState{model.Cancelled}},
	{"completed", []model.JobState{model.Completed}}, {"completing", []model.JobState{model.Completing}},
	{"configuring", []model.JobState{model.Configuring}}, {"deadline", []model.JobState{model.Deadline}},
	{"expediting", nil}, {"failed", []model.JobState{model.Failed}}, {"fed_requeued", nil},
	{"finished", []model.JobState{model.BootFail, model.Cancelled, model.Completed, model.Deadline, model.Failed,
		model.NodeFail, model.OutOfMemory, model.Preempted, model.Timeout}},
	{"node_failed", []model.JobState{model.NodeFail}}, {"outofmemory", []model.JobState{model.OutOfMemory}},
	{"pending", []model.JobState{model.Pending}}, {"powerup_node", nil}, {"preempted", []model.JobState{model.Preempted}},
	{"requeued", nil}, {"resizing", nil}, {"revoked", nil},
	{"running", []model.JobState{model.Running, model.Configuring, model.Completing}}, {"signaling", nil}, {"stageout",
		nil},
	{"started", []model.JobState{model.Running, model.Configuring, model.Completing, model.Suspended}},
	{"suspended", []model.JobState{model.Suspended}}, {"timeout", []model.JobState{model.Timeout}},
}

// nodeStates are Slurm's words for states of nodes in metrics' names; the last column is the word in the names of
// partitions' metrics where that differs.
var nodeStates = [][2]string{{"alloc"}, {"blocked"}, {"completing", "cg"}, {"cloud"}, {"down"}, {"drain"}, {"drained"},
	{"draining"}, {"dyn_future"}, {"dyn_normal"}, {"external"}, {"fail"}, {"future"}, {"idle"}, {"invalid_reg"},
	{"maint"},
	{"mixed"}, {"noresp", "no_resp"}, {"planned"}, {"power_down"}, {"power_up"}, {"powered_down"}, {"powering_down"},
	{"powering_up"}, {"reboot_issued"}, {"reboot_req", "reboot_requested"}, {"resv"}, {"unknown"}}

// scheduler are the leader's statistics.
var scheduler = []struct {
	name string
	of   func(d *proto.DiagReply) int64
}{
	{"agent_cnt", zero}, {"agent_queue_size", func(d *proto.DiagReply) int64 { return d.AgentQueue }},
	{"agent_thread_cnt", zero},
	{"bf_depth_mean", func(d *proto.DiagReply) int64 { return mean(d.Backfill.DepthSum, d.Backfill.Count) }},
	{"bf_mean_cycle", func(d *proto.DiagReply) int64 { return mean(d.Backfill.SumUS, d.Backfill.Count) }},
	{"bf_mean_table_sz", func(d *proto.DiagReply) int64 { return mean(d.TableSum, d.Backfill.Count) }},
	{"bf_queue_len_mean", func(d *proto.DiagReply) int64 { return mean(d.Backfill.QueueSum, d.Backfill.Count) }},
	{"bf_try_depth_mean", func(d *proto.DiagReply) int64 { return mean(d.TryDepthSum, d.Backfill.Count) }},
	{"backfilled_het_jobs", zero}, {"backfilled_jobs", func(d *proto.DiagReply) int64 { return d.BackfilledAll }},
	{"bf_active", zero}, {"bf_cycle_cnt", func(d *proto.DiagReply) int64 { return d.Backfill.Count }},
	{"bf_cycle_last", func(d *proto.DiagReply) int64 { return d.Backfill.LastUS }},
	{"bf_cycle_max", func(d *proto.DiagReply) int64 { return d.Backfill.MaxUS }},
	{"bf_cycle_tot", func(d *proto.DiagReply) int64 { return d.Backfill.SumUS }},
	{"bf_depth_tot", func(d *proto.DiagReply) int64 { return d.Backfill.DepthSum }},
	{"bf_depth_try_tot", func(d *proto.DiagReply) int64 { return d.TryDepthSum }},
	{"bf_last_depth", func(d *proto.DiagReply) int64 { return d.Backfill.DepthLast }},
	{"bf_last_depth_try", func(d *proto.DiagReply) int64 { return d.TryDepthLast }},
	{"bf_queue_len", func(d *proto.DiagReply) int64 { return d.Backfill.QueueLast }},
	{"bf_queue_len_tot", func(d *proto.DiagReply) int64 { return d.Backfill.QueueSum }},
	{"bf_table_size", func(d *proto.DiagReply) int64 { return d.TableLast }},
	{"bf_table_size_tot", func(d *proto.DiagReply) int64 { return d.TableSum }},
	{"bf_when_last_cycle", func(d *proto.DiagReply) int64 { return d.Backfill.At.Seconds() }},
	{"sdiag_jobs_canceled", func(d *proto.DiagReply) int64 { return d.Canceled }},
	{"sdiag_jobs_completed", func(d *proto.DiagReply) int64 { return d.Completed }},
	{"sdiag_jobs_failed", func(d *proto.DiagReply) int64 { return d.Failed }},
	{"sdiag_jobs_pending", func(d *proto.DiagReply) int64 { return d.Pending }},
	{"sdiag_jobs_running", func(d *proto.DiagReply) int64 { return d.Running }},
	{"sdiag_jobs_started", func(d *proto.DiagReply) int64 { return d.Started }},
	{"sdiag_jobs_submitted", func(d *proto.DiagReply) int64 { return d.Submitted }},
	{"sdiag_job_states_ts", func(d *proto.DiagReply) int64 { return d.Now.Seconds() }},
	{"last_backfilled_jobs", func(d *proto.DiagReply) int64 { return d.Backfilled }}, {"sdiag_latency", zero},
	{"schedule_cycle_cnt", func(d *proto.DiagReply) int64 { return d.Main.Count }},
	{"schedule_cycle_depth", func(d *proto.DiagReply) int64 { return d.Main.DepthSum }},
	{"schedule_cycle_last", func(d *proto.DiagReply) int64 { return d.Main.LastUS }},
	{"schedule_cycle_max", func(d *proto.DiagReply) int64 { return d.Main.MaxUS }},
	{"schedule_cycle_tot", func(d *proto.DiagReply) int64 { return d.Main.SumUS }},
	{"schedule_queue_len", func(d *proto.DiagReply) int64 { return d.Main.QueueLast }},
	{"sched_exit_end", zero}, {"sched_exit_max_depth", zero}, {"sched_exit_max_job_start", zero}, {"sched_exit_lic",
		zero},
	{"sched_exit_rpc_cnt", zero}, {"sched_exit_timeout", zero}, {"bf_exit_end", zero}, {"bf_exit_max_job_start", zero},
	{"bf_exit_max_job_test", zero}, {"bf_exit_state_changed", zero}, {"bf_exit_table_limit", zero}, {"bf_exit_timeout",
		zero},
	{"sched_mean_cycle", func(d *proto.DiagReply) int64 { return mean(d.Main.SumUS, d.Main.Count) }},
	{"sched_mean_depth_cycle", func(d *proto.DiagReply) int64 { return mean(d.Main.DepthSum, d.Main.Count) }},
	{"server_thread_cnt", func(d *proto.DiagReply) int64 { return d.Threads }},
	{"slurmdbd_queue_size", func(d *proto.DiagReply) int64 { return d.DbdQueue }},
	{"last_proc_req_start", func(d *proto.DiagReply) int64 { return d.Since.Seconds() }},
	{"sched_stats_timestamp", func(d *proto.DiagReply) int64 { return d.Now.Seconds() }},
}

func zero(*proto.DiagReply) int64 { return 0 }

func mean(sum, n int64) int64 { return sum / max(1, n) }
