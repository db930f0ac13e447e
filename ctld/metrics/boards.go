package metrics

import (
	"maps"
	"slices"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// boards.go has names that are not Slurm's own, by which boards of older exporters and the product's sources ask.

// units counts what nodes have of something, by what is done with it: other is of nodes that take no jobs, and out is
// out of service on nodes that do.
type units struct{ alloc, idle, other, out float64 }

// add counts those of a node; out of them are out of service, and no job has them.
func (u *units) add(all, used, out float64, usable bool) {
	u.alloc += used
	if usable {
		u.idle += all - used - out
		u.out += out
	} else {
		u.other += all - used
	}
}

// boards gives what is asked of nodes.
func (s *scrape) boards(out *sink) {
	var cpus, gpu units
	kinds := map[string]*units{}
	agents := map[string]float64{"online": 0, "offline": 0}
	words := map[string]float64{}
	mixed, completing, wrong := 0.0, 0.0, 0.0
	s.View.Nodes(func(n *model.Node) bool {
		base, drain, silent := jobtext.NodeState(n)
		usable := base != jobtext.NodeDown && !drain && !silent
		word := base.String()
		if drain {
			word += "&drain"
		}
		words[word]++
		s.nodeBoards(out, n, word)
		if base == jobtext.NodeMixed {
			mixed++
		}
		if n.Ending > 0 {
			completing++
		}
		if n.Problem != "" {
			wrong++
		}
		if base == jobtext.NodeDown || silent {
			agents["offline"]++
		} else {
			agents["online"]++
		}
		cpus.add(float64(n.Def.JobCPUCount()), usedCPUs(n), 0, usable)
		all, used, away := gpus(n)
		gpu.add(all, used, away, usable)
		for _, g := range n.Def.Gres {
			if g.Name != "gpu" || all == 0 {
				continue
			}
			u := kinds[g.Type]
			if u == nil {
				u = &units{}
				kinds[g.Type] = u
			}
			part := float64(g.Count) / all // a node has one type, nearly always
			u.add(float64(g.Count), used*part, away*part, usable)
		}
		return true
	})
	for _, x := range []struct {
		name string
		u    *units
	}{{"cpus", &cpus}, {"gpus", &gpu}} {
		other := x.u.other + x.u.out
		total := x.u.alloc + x.u.idle + other
		gauge(out, "slurm_"+x.name+"_alloc", "", nil, x.u.alloc)
		gauge(out, "slurm_"+x.name+"_idle", "", nil, x.u.idle)
		gauge(out, "slurm_"+x.name+"_other", x.name+" of nodes that take no jobs, or out of service", nil, other)
		gauge(out, "slurm_"+x.name+"_total", "", nil, total)
		if x.name == "gpus" {
			gauge(out, "slurm_gpus_utilization", "the part of the GPUs that is allocated, 0 to 1", nil,
				x.u.alloc/max(1, total))
		}
	}
	gauge(out, "slurm_nodes_mix", "", nil, mixed)
	gauge(out, "slurm_nodes_comp", "", nil, completing)
	gauge(out, "slurm_nodes_err", "nodes that have registered with less than they should have", nil, wrong)
	gpuTypes(out, kinds)
	for _, word := range slices.Sorted(maps.Keys(words)) {
		gauge(out, "slurm_node_count_per_state", "nodes by state", []string{"state", word}, words[word])
	}
	for _, status := range []string{"offline", "online"} {
		gauge(out, "agent_count", "nodes by whether they answer", []string{"status", status}, agents[status])
	}
	if d := s.Stats; d != nil {
		gauge(out, "scheduler_queue_size", "pending jobs", nil, float64(d.Pending))
		counter(out, "scheduler_schedule_total", "passes of the planner", nil, float64(d.Main.Count))
		for i := range schedulerBoards {
			x := &schedulerBoards[i]
			gauge(out, "slurm_scheduler_"+x.name, x.help, nil, x.of(d))
		}
		s.userRequests(out)
		for i := range d.ByType {
			r := &d.ByType[i]
			labels := []string{"message_type", r.Name}
			counter(out, "slurm_controller_rpc_calls_total", "requests by type", labels, float64(r.Count))
			counter(out, "slurm_controller_rpc_duration_seconds_total", "time that requests took, by type", labels,
				float64(r.SumUS)/1e6)
		}
	}
	s.used(out)
	s.available(out)
	s.nodeInfos(out)
	s.jobInfos(out)
	s.fairShares(out)
	s.licenses(out)
	done := s.View.Outcomes()
	counter(out, "task_submitted_total", "jobs that were submitted", nil, float64(done.Submitted))
	counter(out, "task_scheduled_total", "jobs that were started", nil, float64(done.Started))
	if s.Waits != nil {
		s.Waits.collect(out)
	}
}

// gpuTypes gives the GPUs of each type.
func gpuTypes(out *sink, kinds map[string]*units) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		u := kinds[kind]
		for _, x := range []struct {
			state string
			v     float64
		}{{"allocated", u.alloc}, {"idle", u.idle}, {"unavailable", u.other}, {"out_of_service", u.out}} {
			gauge(out, "gbatch_gpus", "GPUs by type and what is done with them",
				[]string{"state", x.state, "type", kind}, x.v)
		}
	}
}

// licenses gives what jobs hold of them.
func (s *scrape) licenses(out *sink) {
	for _, l := range s.View.Config().Licenses {
		used := float64(s.View.LicensesInUse(l.Name))
		labels := []string{"name", l.Name}
		gauge(out, "slurm_lic_total", "licenses", labels, float64(l.Count))
		gauge(out, "slurm_lic_used", "licenses that jobs hold", labels, used)
		gauge(out, "slurm_lic_free", "licenses that no job holds", labels, max(0, float64(l.Count)-used))
	}
}

// nodeBoards gives what a node has of CPUs and memory, in MiB.
func (s *scrape) nodeBoards(out *sink, n *model.Node, state string) {
	cpus, used, free := float64(n.Def.JobCPUCount()), usedCPUs(n), 0.0
	if n.Usable() {
		free = cpus - used
	}
	labels := []string{"node", n.Def.Name, "status", state}
	for _, x := range []struct {
		name, help string
		v          float64
	}{{"cpu_alloc", "CPUs that jobs hold", used}, {"cpu_idle", "CPUs that jobs can get", free},
		{"cpu_other", "CPUs of a node that takes no jobs", cpus - used - free}, {"cpu_total", "CPUs", cpus},
		{"mem_alloc", "MiB that jobs hold", float64(n.UsedMem)}, {"mem_total", "MiB", float64(n.Def.MemMiB)}} {
		gauge(out, "slurm_node_"+x.name, x.help, labels, x.v)
	}
}

// byState gives the jobs of each state that some are in.
func (t *tally) byState(out *sink, name, label, of string) {
	for state, n := range t.states {
		if n > 0 {
			gauge(out, name, "jobs by state", []string{label, of, "state", model.JobState(state).String()}, n)
		}
	}
}

// fairShares gives the accounts' factors, of at most as many as have series of their own.
func (s *scrape) fairShares(out *sink) {
	if s.FairShares == nil {
		return
	}
	of := s.FairShares()
	names := slices.Sorted(maps.Keys(of))
	for _, name := range names[:min(len(names), s.Series)] {
		gauge(out, "slurm_account_fairshare", "mean fair-share factor of the account's users, 0 to 1",
			[]string{"account", name}, of[name])
	}
}

// schedulerBoards are slurm_scheduler_NAME; times are in microseconds.
var schedulerBoards = []struct {
	name, help string
	of         func(d *proto.DiagReply) float64
}{
	{"threads", "requests that are being answered", func(d *proto.DiagReply) float64 { return float64(d.Threads) }},
	{"queue_size", "orders that wait for a node's connection",
		func(d *proto.DiagReply) float64 { return float64(d.AgentQueue) }},
	{"dbd_queue_size", "records that gdbd does not have yet",
		func(d *proto.DiagReply) float64 { return float64(d.DbdQueue) }},
	{"last_cycle", "microseconds of the last pass", func(d *proto.DiagReply) float64 { return float64(d.Main.LastUS) }},
	{"mean_cycle", "microseconds of a pass, as a mean",
		func(d *proto.DiagReply) float64 { return float64(mean(d.Main.SumUS, d.Main.Count)) }},
	{"cycle_per_minute", "passes per minute",
		func(d *proto.DiagReply) float64 {
			return float64(d.Main.Count) * 60_000 / max(60_000, float64(d.Now-d.Since))
		}},
	{"backfill_last_cycle", "microseconds of the last pass that looked behind the first job that does not fit",
		func(d *proto.DiagReply) float64 { return float64(d.Backfill.LastUS) }},
	{"backfill_mean_cycle", "microseconds of such a pass, as a mean",
		func(d *proto.DiagReply) float64 { return float64(mean(d.Backfill.SumUS, d.Backfill.Count)) }},
	{"backfill_depth_mean", "jobs that such a pass looks at, as a mean",
		func(d *proto.DiagReply) float64 { return float64(mean(d.Backfill.DepthSum, d.Backfill.Count)) }},
	{"backfilled_jobs_since_cycle_total", "jobs that started ahead of their turn, since the counts were reset",
		func(d *proto.DiagReply) float64 { return float64(d.Backfilled) }},
	{"backfilled_jobs_since_start_total", "jobs that started ahead of their turn, since this controller leads",
		func(d *proto.DiagReply) float64 { return float64(d.BackfilledAll) }},
	{"backfilled_heterogeneous_total", "none: parts of such a job start together",
		func(*proto.DiagReply) float64 { return 0 }},
}

// available says of each node whether jobs can get it.
func (s *scrape) available(out *sink) {
	s.View.Nodes(func(n *model.Node) bool {
		v := 0.0
		if base, _, silent := jobtext.NodeState(n); base != jobtext.NodeDown && !silent {
			v = 1
		}
		gauge(out, "gbatch_node_up", "1: the node answers, and is not down", []string{"node", n.Def.Name}, v)
		return true
	})
}

// queueWords are the states of slurm_queue_STATE.
var queueWords = []struct {
	name  string
	state model.JobState
}{{"pending", model.Pending}, {"running", model.Running}, {"suspended", model.Suspended},
	{"cancelled", model.Cancelled},
	{"completing", model.Completing}, {"completed", model.Completed}, {"configuring", model.Configuring},
	{"failed", model.Failed}, {"timeout", model.Timeout}, {"preempted", model.Preempted}, {"node_fail", model.NodeFail}}

// queueBoards gives what is asked of jobs: of all, of accounts and of users who have some.
func (s *scrape) queueBoards(out *sink, all *tally, dependent float64, users, accounts *tallies) {
	for _, w := range queueWords {
		gauge(out, "slurm_queue_"+w.name, "", nil, all.states[w.state])
	}
	gauge(out, "slurm_queue_pending_dependency", "", nil, dependent)
	for _, x := range []struct {
		label string
		of    *tallies
	}{{"account", accounts}, {"user", users}} {
		for _, name := range x.of.most(s.Series) {
			t := x.of.of[name]
			labels := []string{x.label, name}
			gauge(out, "slurm_"+x.label+"_jobs_pending", "", labels, t.states[model.Pending])
			gauge(out, "slurm_"+x.label+"_jobs_running", "", labels, t.states[model.Running])
			gauge(out, "slurm_"+x.label+"_jobs_suspended", "", labels, t.states[model.Suspended])
			gauge(out, "slurm_"+x.label+"_cpus_running", "", labels, t.cpus)
			if x.label == "account" {
				t.byState(out, "slurm_account_job_state_total", "account", name)
				for _, r := range []struct {
					kind string
					v    float64
				}{{"gpu", t.gpus}, {"cpu", t.cpus}, {"memory_bytes", t.memory}} {
					gauge(out, "compute_pool_usage", "Current resource usage",
						[]string{"resource_type", r.kind, "tenant_id", name}, r.v)
				}
			}
		}
	}
}
