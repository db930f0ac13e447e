package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// soperator.go has the names of soperator's exporter, as far as the facts of one moment give them. Where a name is
// Slurm's own too, only that one is served: sums over both would count twice.

// truth is the value of a label that says yes or no; that of a flag has none for no.
func truth(is bool) string { return strconv.FormatBool(is) }

func flagged(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// nodeInfos gives slurm_node_info and its kin.
func (s *scrape) nodeInfos(out *sink) {
	s.View.Nodes(func(n *model.Node) bool {
		base, drain, silent := jobtext.NodeState(n)
		resv, power := s.reserved(n.Def.Name), n.Power
		step := n.PowerStep()
		managed := step != model.PowerOn
		lost := base == jobtext.NodeDown || silent || n.Failing || n.Problem != "" || base == jobtext.NodeIdle && drain
		gauge(out, "slurm_node_info", "1 for each node, with what it is", []string{
			"address", n.Def.Addr, "comment", n.Comment, "instance_id", "", "is_unavailable", flagged(lost && !managed),
			"node_name", n.Def.Name, "reason", n.Reason, "reservation_name", resv.name,
			"state_base", strings.ToUpper(base.String()), "state_is_cloud", flagged(n.Def.Cloud),
			"state_is_completing", flagged(n.Ending > 0),
			"state_is_drain", truth(drain), "state_is_fail", flagged(n.Failing), "state_is_invalid", flagged(n.Problem != ""),
			"state_is_maintenance", truth(resv.maint), "state_is_not_responding", flagged(silent),
			"state_is_power_down", flagged(power != nil && power.Want.Down()),
			"state_is_power_up", flagged(power != nil && power.Want == model.PowerUp),
			"state_is_powered_down", flagged(step == model.PoweredDown),
			"state_is_powering_down", flagged(step == model.PoweringDown),
			"state_is_powering_up", flagged(step == model.PoweringUp),
			"state_is_reserved", truth(resv.name != "" && !resv.maint)}, 1)
		label := []string{"node_name", n.Def.Name}
		for _, x := range []struct {
			name, help string
			v          float64
		}{{"cpus_total", "CPUs", float64(n.Def.CPUs)}, {"cpus_allocated", "CPUs that jobs hold", usedCPUs(n)},
			{"memory_total_bytes", "memory", float64(n.Def.MemMiB) * mib},
			{"memory_allocated_bytes", "memory that jobs hold", float64(n.UsedMem) * mib}} {
			gauge(out, "slurm_node_"+x.name, x.help, label, x.v)
		}
		return true
	})
	for _, p := range s.View.Config().Partitions {
		for _, name := range p.Nodes {
			gauge(out, "slurm_node_partition", "1 for each node of a partition",
				[]string{"node_name", name, "partition", p.Name}, 1)
		}
	}
}

// jobInfos gives slurm_job_info and its kin, of the jobs that run, those that began last first.
func (s *scrape) jobInfos(out *sink) {
	if s.JobSeries == 0 {
		return
	}
	var list []*model.Job
	s.View.Jobs(func(j *model.Job) bool {
		if j.Run != nil && j.Run.Alloc != nil && !j.State.Finished() {
			list = append(list, j)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(b.Run.Start, a.Run.Start), cmp.Compare(b.ID, a.ID))
	})
	for _, j := range list[:min(len(list), s.JobSeries)] {
		id := strconv.FormatUint(uint64(j.ID), 10)
		array, task := "", ""
		if j.IsArray() {
			array, task = strconv.FormatUint(uint64(j.ArrayID), 10), strconv.FormatInt(int64(j.Task), 10)
		}
		end := j.Run.Deadline()
		var count tally
		count.add(j)
		gauge(out, "slurm_job_info", "1 for each job that runs, with what it is", []string{
			"array_job_id", array, "array_task_id", task, "end_time", seconds(end), "finished_time", "",
			"job_id", id, "job_name", j.Spec.Name, "job_state", j.State.String(),
			"job_state_reason", model.ReasonNone.String(), "slurm_partition", j.Run.Partition,
			"standard_error", j.Spec.StdErr, "standard_output", j.Spec.StdOut,
			"start_time", seconds(j.Run.Start), "submit_time", seconds(j.Submit), "user_id",
			strconv.FormatUint(uint64(j.Spec.UID), 10), "user_mail", "", "user_name", j.Spec.User}, 1)
		label := []string{"job_id", id}
		gauge(out, "slurm_job_cpus", "CPUs that a job holds", label, count.cpus)
		gauge(out, "slurm_job_memory_bytes", "memory that a job holds", label, count.memory)
		gauge(out, "slurm_job_duration_seconds", "for how long a job runs", label,
			max(0, float64(s.Now-j.Run.Start)/1000))
		for k := range j.Run.Alloc.Nodes {
			gauge(out, "slurm_node_job", "1 for each node of a job",
				[]string{"job_id", id, "node_name", j.Run.Alloc.Nodes[k].Node}, 1)
		}
	}
}

func seconds(t model.Time) string {
	if t == 0 {
		return ""
	}
	return strconv.FormatInt(t.Seconds(), 10)
}

// userRequests gives the requests of each user whom the leader has counted, as many as have series of their own.
func (s *scrape) userRequests(out *sink) {
	d := s.Stats
	gauge(out, "slurm_controller_server_thread_count", "requests that are being answered", nil, float64(d.Threads))
	for i := range d.ByUser[:min(len(d.ByUser), s.Series)] {
		r := &d.ByUser[i]
		labels := []string{"user", r.Name, "user_id", strconv.FormatUint(uint64(r.ID), 10)}
		counter(out, "slurm_controller_rpc_user_calls_total", "requests by user", labels, float64(r.Count))
		counter(out, "slurm_controller_rpc_user_duration_seconds_total", "time that requests took, by user", labels,
			float64(r.SumUS)/1e6)
	}
}
