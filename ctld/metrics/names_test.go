package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gbatch/ctld/metrics"
)

// The words of Slurm's states in names of metrics.
const (
	jobWords = "bootfail,cancelled,completed,completing,configuring,cpus_alloc,deadline,expediting,failed,fed_requeued," +
		"finished,gpus_alloc,hold,memory_alloc,node_failed,nodes_alloc,outofmemory,pending,powerup_node,preempted," +
		"requeued,resizing,revoked,running,signaling,stageout,started,suspended,timeout"
	nodeWords = "alloc,blocked,cloud,down,drain,drained,draining,dyn_future,dyn_normal,external,fail,future,idle," +
		"invalid_reg,maint,mixed,planned,power_down,power_up,powered_down,powering_down,powering_up,reboot_issued,resv," +
		"unknown"
)

// TestNamesOfOthers: each name by which boards ask is served where they ask for it: those of Slurm's
// metrics/openmetrics (25.11; of GPUs 26.05), of the exporters of vpenso and rivosinc, of soperator's and of the
// product's sources.
func TestNamesOfOthers(t *testing.T) {
	src := source(cluster(t, 4, 10))
	src.JobSeries = 10
	src.FairShares = func() map[string]float64 { return map[string]float64{"physics": 0.25} }
	for _, x := range []struct{ path, prefix, names string }{
		{"/jobs", "slurm_jobs_", jobWords}, {"/jobs", "", "slurm_jobs"},
		{"/jobs-users-accts", "slurm_user_jobs_", jobWords}, {"/jobs-users-accts", "slurm_account_jobs_", jobWords},
		{"/jobs-users-accts", "", "slurm_user_jobs,slurm_account_jobs"},
		{"/nodes", "slurm_nodes_", nodeWords + ",completing,noresp,reboot_req"}, {"/nodes", "", "slurm_nodes"},
		{"/nodes", "slurm_node_", "cpus,cpus_alloc,cpus_effective,cpus_idle,gpus,gpus_alloc,memory_alloc_bytes," +
			"memory_effective_bytes,memory_free_bytes,memory_bytes"},
		{"/partitions", "slurm_partition_jobs_", jobWords + ",max_job_nodes,max_job_nodes_nohold,min_job_nodes," +
			"min_job_nodes_nohold,wait_part_node_limit"},
		{"/partitions", "slurm_partition_nodes_", nodeWords + ",cg,cpus_efctv,cpus_idle,cpus_alloc,mem_alloc,mem_avail," +
			"mem_free,mem_tot,no_resp,reboot_requested"},
		{"/partitions", "slurm_partition_", "jobs,cpus,gpus,nodes"}, {"/partitions", "", "slurm_partitions"},
		{"/scheduler", "slurm_", "agent_cnt,agent_queue_size,agent_thread_cnt,bf_depth_mean,bf_mean_cycle," +
			"bf_mean_table_sz,bf_queue_len_mean,bf_try_depth_mean,backfilled_het_jobs,backfilled_jobs,bf_active," +
			"bf_cycle_cnt,bf_cycle_last,bf_cycle_max,bf_cycle_tot,bf_depth_tot,bf_depth_try_tot,bf_last_depth," +
			"bf_last_depth_try,bf_queue_len,bf_queue_len_tot,bf_table_size,bf_table_size_tot,bf_when_last_cycle," +
			"sdiag_jobs_canceled,sdiag_jobs_completed,sdiag_jobs_failed,sdiag_jobs_pending,sdiag_jobs_running," +
			"sdiag_jobs_started,sdiag_jobs_submitted,sdiag_job_states_ts,last_backfilled_jobs,sdiag_latency," +
			"schedule_cycle_cnt,schedule_cycle_depth,schedule_cycle_last,schedule_cycle_max,schedule_cycle_tot," +
			"schedule_queue_len,sched_exit_end,sched_exit_max_depth,sched_exit_max_job_start,sched_exit_lic," +
			"sched_exit_rpc_cnt,sched_exit_timeout,bf_exit_end,bf_exit_max_job_start,bf_exit_max_job_test," +
			"bf_exit_state_changed,bf_exit_table_limit,bf_exit_timeout,sched_mean_cycle,sched_mean_depth_cycle," +
			"server_thread_cnt,slurmdbd_queue_size,last_proc_req_start,sched_stats_timestamp"},
		{"", "slurm_cpus_", "alloc,idle,other,total"}, {"", "slurm_gpus_", "alloc,idle,other,total,utilization"},
		{"", "slurm_nodes_", "alloc,comp,down,drain,err,fail,idle,maint,mix,resv"},
		{"", "slurm_node_", "cpu_alloc,cpu_idle,cpu_other,cpu_total,mem_alloc,mem_total"},
		{"", "slurm_queue_", "pending,pending_dependency,running,suspended,cancelled,completing,completed,configuring," +
			"failed,timeout,preempted,node_fail"},
		{"", "slurm_account_", "jobs_pending,jobs_running,cpus_running,jobs_suspended,fairshare"},
		{"", "slurm_user_", "jobs_pending,jobs_running,cpus_running,jobs_suspended"},
		{"", "slurm_partition_", "cpus_allocated,cpus_idle,cpus_other,cpus_total"},
		{"", "slurm_scheduler_", "threads,queue_size,dbd_queue_size,last_cycle,mean_cycle,cycle_per_minute," +
			"backfill_last_cycle,backfill_mean_cycle,backfill_depth_mean,backfilled_jobs_since_cycle_total," +
			"backfilled_jobs_since_start_total,backfilled_heterogeneous_total"},
		{"", "slurm_", "pending_reason_total,account_job_state_total,partition_job_state_total,node_count_per_state," +
			"lic_total,lic_used,lic_free"},
		{"", "slurm_controller_rpc_", "calls_total,duration_seconds_total,user_calls_total,user_duration_seconds_total"},
		{"", "slurm_node_", "info,partition,job,cpus_total,cpus_allocated,memory_total_bytes,memory_allocated_bytes"},
		{"", "slurm_job_", "info,cpus,memory_bytes,duration_seconds"},
		{"", "slurm_controller_", "server_thread_count"},
		{"", "scheduler_", "queue_size,queue_wait_seconds_bucket,queue_wait_seconds_count,schedule_total," +
			"schedule_failures"},
		{"", "", "task_submitted_total,task_scheduled_total,quota_online_used,agent_count,compute_pool_usage"},
	} {
		got := read(t, scrape(t, src, "/metrics"+x.path, plainText), false)
		for name := range strings.SplitSeq(x.names, ",") {
			if name = x.prefix + name; !got.names[name] {
				t.Errorf("/metrics%s has no %s", x.path, name)
			}
		}
	}
	got := read(t, scrape(t, src, "/metrics", plainText), false).series
	for series, want := range map[string]float64{`slurm_account_fairshare{account="physics"}`: 0.25,
		`slurm_node_cpu_alloc{node="n0000",status="mixed"}`: 8, `slurm_node_cpu_idle{node="n0000",status="mixed"}`: 120,
		`slurm_node_mem_total{node="n0000",status="mixed"}`:               500_000,
		`slurm_partition_job_state_total{partition="p",state="PENDING"}`:  6,
		`slurm_account_job_state_total{account="acct00",state="RUNNING"}`: 1,
		`slurm_node_count_per_state{state="mixed"}`:                       4} {
		if v, is := got[series]; !is || v != want {
			t.Errorf("%s is %v (%v), not %v", series, v, is, want)
		}
	}
}

// TestStatus: a scrape of each path in each format is answered with 200 by a server, and in that format.
func TestStatus(t *testing.T) {
	src := source(cluster(t, 4, 10))
	s := httptest.NewServer(metrics.Handler(func(*http.Request) metrics.Source { return src }))
	defer s.Close()
	for _, path := range []string{"", "/", "/jobs", "/nodes", "/partitions", "/jobs-users-accts", "/scheduler"} {
		for accept, kind := range map[string]string{"": "text/plain", plainText: "text/plain", "*/*": "text/plain",
			openMetrics: "application/openmetrics-text",
			"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": "application/vnd" +
				".google.protobuf"} {
			r, err := http.NewRequest(http.MethodGet, s.URL+"/metrics"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if accept != "" {
				r.Header.Set("Accept", accept)
			}
			got, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = got.Body.Close() // its length is not asked for
			if got.StatusCode != http.StatusOK || !strings.HasPrefix(got.Header.Get("Content-Type"), kind) {
				t.Errorf("/metrics%s as %q: %d %s", path, accept, got.StatusCode, got.Header.Get("Content-Type"))
			}
		}
	}
}
