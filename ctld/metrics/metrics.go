package metrics

import (
	"cmp"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"gbatch/ctld/pools"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// Source is what a scrape looks at.
type Source struct {
	View  *state.View
	Now   model.Time
	Stats *proto.DiagReply // nil: not known here just now
	Leads bool
	AgeMS int64 // of the facts
	Waits *Waits
	Own   *Own // nil: nothing is known of the daemon itself
	// Readings gives the last readings of a node's GPUs; nil: nobody has them here.
	Readings func(node string) []proto.UnitReading
	// IdleMS gives for how long GPUs of a node have done nothing, by number; nil: nobody has that here.
	IdleMS func(node string) map[int32]int64
	// FairShares gives the mean fair-share factor of each account's users; nil: nobody knows.
	FairShares func() map[string]float64
	// JobSeries is how many of the jobs that run have series of their own, those that began last: 0: none.
	JobSeries int
	// Series bounds how many users, and how many accounts, have series of their own: those with the most jobs. The
	// others are counted together.
	Series int
}

// scrape is one; what is "" for everything.
type scrape struct {
	Source
	what  string
	users bool                // series of users and accounts too: of /metrics/all
	resvs map[string]reserved // nodes in reservations that have begun
}

func (s *scrape) wants(what string) bool { return s.what == "" || s.what == what }

// Gather gives the metrics.
func (s *scrape) Gather() ([]*dto.MetricFamily, error) {
	out := newSink()
	if s.what == "all" {
		s.what, s.users = "", true
	}
	if s.View.Config().Cluster == "" {
		return nil, nil
	}
	if s.wants("nodes") {
		s.nodes(out)
	}
	if s.wants("jobs") || s.wants("partitions") || s.wants("jobs-users-accts") {
		s.jobs(out)
	}
	if s.wants("scheduler") && s.Stats != nil {
		for i := range scheduler {
			gauge(out, "slurm_"+scheduler[i].name, "", nil, float64(scheduler[i].of(s.Stats)))
		}
	}
	if s.what == "" {
		s.boards(out)
		leads := 0.0
		if s.Leads {
			leads = 1
		}
		gauge(out, "gbatch_controller_leads", "1: this controller leads", nil, leads)
		gauge(out, "gbatch_facts_age_seconds", "how old what this controller knows is", nil, float64(s.AgeMS)/1000)
		gauge(out, "gbatch_accounting_queue", "records that gdbd does not have yet", nil, float64(s.View.OutboxLen()))
		s.daemon(out)
	}
	return out.sorted(), nil
}

// nodeWords counts nodes by the words of their states.
type nodeWords map[string]float64

// count counts a node. A node that has registered with less than it should have is what Slurm calls INVALID_REG, and
// older versions ERROR.
func (s *scrape) count(to nodeWords, n *model.Node) {
	base, drain, silent := jobtext.NodeState(n)
	word := "unknown"
	switch base {
	case jobtext.NodeDown:
		word = "down"
	case jobtext.NodeIdle:
		word = "idle"
	case jobtext.NodeAllocated:
		word = "alloc"
	case jobtext.NodeMixed:
		word = "mixed"
	}
	to[word]++
	flag := func(word string, is bool) {
		if is {
			to[word]++
		}
	}
	flag("drain", drain)
	flag("draining", drain && len(n.Jobs) > 0)
	flag("drained", drain && len(n.Jobs) == 0)
	flag("fail", n.Failing)
	flag("noresp", silent)
	flag("completing", n.Ending > 0)
	flag("invalid_reg", n.Problem != "")
	flag("reboot_issued", n.Rebooting())
	flag("reboot_req", n.Reboot != nil && !n.Rebooting())
	if p := n.Power; p != nil {
		flag("power_down", p.Want.Down())
		flag("power_up", p.Want == model.PowerUp)
		flag("powering_down", p.Step == model.PoweringDown)
		flag("powered_down", p.Step == model.PoweredDown)
		flag("powering_up", p.Step == model.PoweringUp)
	}
	flag("cloud", n.Def.Cloud)
	flag("external", n.Def.External)
	r := s.reserved(n.Def.Name)
	flag("maint", r.maint)
	flag("resv", r.name != "" && !r.maint)
}

// reserved is the reservation that a node is in; one for maintenance comes first.
type reserved struct {
	name  string
	maint bool
}

// reserved gives the reservation that a node is in now, if it is in one.
func (s *scrape) reserved(node string) reserved {
	if s.resvs == nil {
		s.resvs = map[string]reserved{}
		s.View.Reservations(func(r *model.Reservation) bool {
			now := r.Start <= s.Now && s.Now < r.End && len(r.Parts) == 0
			maint := r.Flags&model.ResvMaint != 0
			for _, n := range r.Nodes {
				if have := s.resvs[n]; now && (have.name == "" || maint && !have.maint) {
					s.resvs[n] = reserved{r.Name, maint}
				}
			}
			return true
		})
	}
	return s.resvs[node]
}

// gpus counts a node's GPUs, those that jobs have, and those of the others that are out of service.
func gpus(n *model.Node) (all, used, out float64) {
	for _, g := range n.Def.Gres {
		if g.Name == "gpu" {
			all += float64(g.Count)
		}
	}
	taken := n.HeldGPUs()
	return all, float64(taken.Count()), float64(n.OutOf(model.GPUName).Minus(taken).Count())
}

func usedCPUs(n *model.Node) float64 {
	if n.Exclusive != 0 {
		return float64(n.Def.JobCPUCount())
	}
	return float64(n.UsedCPUs.Count())
}

const mib = 1 << 20

// nodeSeries are slurm_node_NAME.
var nodeSeries = [...]string{"cpus", "cpus_alloc", "cpus_effective", "cpus_idle", "gpus", "gpus_alloc", "memory_bytes",
	"memory_alloc_bytes", "memory_effective_bytes", "memory_free_bytes"}

func (s *scrape) nodes(out *sink) {
	states := nodeWords{}
	all := 0.0
	var each [len(nodeSeries)]*dto.MetricFamily
	for i, name := range nodeSeries {
		each[i] = out.family("slurm_node_"+name, "", dto.MetricType_GAUGE)
	}
	s.View.Nodes(func(n *model.Node) bool {
		all++
		s.count(states, n)
		label := []string{"node", n.Def.Name}
		cpus, used := float64(n.Def.JobCPUCount()), usedCPUs(n)
		g, gUsed, _ := gpus(n)
		memory, taken := float64(n.Def.MemMiB)*mib, float64(n.UsedMem)*mib
		for i, v := range [len(nodeSeries)]float64{float64(n.Def.CPUs), used, cpus, cpus - used, g, gUsed, memory, taken,
			memory, max(0, memory-taken)} {
			out.add(each[i], label, v)
		}
		return true
	})
	gauge(out, "slurm_nodes", "nodes", nil, all)
	for _, w := range nodeStates {
		gauge(out, "slurm_nodes_"+w[0], "", nil, states[w[0]])
	}
}

// stateCount is more than there are states of jobs.
const stateCount = 32

// tally counts jobs: of the cluster, a partition, a user or an account.
type tally struct {
	all, hold, cpus, gpus, memory, nodes float64
	states                               [stateCount]float64
	most, least, mostFree, leastFree     float64 // nodes that pending jobs ask for; Free: that are not held
}

func (t *tally) add(j *model.Job) {
	n := 1.0
	if j.IsArray() && j.State == model.Pending {
		n = float64(j.Tasks.Count())
	}
	t.all += n
	t.states[min(j.State, stateCount-1)] += n
	if j.State == model.Pending {
		held := j.Hold != model.NotHeld
		asks := float64(max(1, j.Spec.MinNodes))
		span(&t.most, &t.least, asks)
		if held {
			t.hold += n
		} else {
			span(&t.mostFree, &t.leastFree, asks)
		}
	}
	if j.Run == nil || j.Run.Alloc == nil || j.State.Finished() {
		return
	}
	t.nodes += float64(len(j.Run.Alloc.Nodes))
	for i := range j.Run.Alloc.Nodes {
		a := &j.Run.Alloc.Nodes[i]
		t.cpus += float64(a.CPUs.Count())
		t.memory += float64(a.MemMiB) * mib
		t.gpus += float64(a.GPUMicros()) / model.GPU
	}
}

func span(most, least *float64, v float64) {
	*most = max(*most, v)
	if *least == 0 || v < *least {
		*least = v
	}
}

// give gives a tally's metrics; prefix is slurm_jobs, slurm_user_jobs ...
func (t *tally) give(out *sink, prefix string, labels []string, but ...string) {
	gauge(out, prefix, "", labels, t.all)
	for _, s := range jobStates {
		if slices.Contains(but, s.name) {
			continue
		}
		v := 0.0
		for _, state := range s.states {
			v += t.states[state]
		}
		gauge(out, prefix+"_"+s.name, "", labels, v)
	}
	for _, x := range []struct {
		name string
		v    float64
	}{{"cpus_alloc", t.cpus}, {"gpus_alloc", t.gpus}, {"hold", t.hold}, {"memory_alloc", t.memory}, {"nodes_alloc",
		t.nodes}} {
		gauge(out, prefix+"_"+x.name, "", labels, x.v)
	}
}

// tallies count jobs by a name. Neighbours in the queue are often of the same.
type tallies struct {
	of   map[string]*tally
	last *tally
	name string
}

func (t *tallies) get(name string) *tally {
	if t.last != nil && t.name == name {
		return t.last
	}
	x := t.of[name]
	if x == nil {
		if t.of == nil {
			t.of = map[string]*tally{}
		}
		x = &tally{}
		t.of[name] = x
	}
	t.last, t.name = x, name
	return x
}

// others is the name under which what has no series of its own is counted. No user or account has such a name.
const others = "(others)"

// most gives the names with the most jobs, in order of name, and sums up the others.
func (t *tallies) most(n int) (names []string) {
	for name := range t.of {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) <= n {
		return names
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(t.of[b].all, t.of[a].all) })
	rest := &tally{}
	for _, name := range names[n:] {
		rest.sum(t.of[name])
	}
	names = names[:n:n]
	slices.Sort(names)
	if n > 0 {
		t.of[others] = rest
		names = append(names, others)
	}
	return names
}

// sum adds what another has counted.
func (t *tally) sum(o *tally) {
	t.all, t.hold, t.cpus, t.gpus = t.all+o.all, t.hold+o.hold, t.cpus+o.cpus, t.gpus+o.gpus
	t.memory, t.nodes = t.memory+o.memory, t.nodes+o.nodes
	for i := range t.states {
		t.states[i] += o.states[i]
	}
}

func (s *scrape) jobs(out *sink) {
	var all tally
	var users, accounts, parts tallies
	var reasons [256]float64
	online := 0.0
	longest := map[string]float64{}
	s.View.Jobs(func(j *model.Job) bool {
		all.add(j)
		users.get(j.Spec.User).add(j)
		accounts.get(j.Spec.Account).add(j)
		if j.Run != nil {
			parts.get(j.Run.Partition).add(j)
			if !j.State.Finished() && j.Run.Alloc != nil && pools.ClassOf(s.View, j) == pools.Online {
				online += float64(j.Run.Alloc.GPUMicros()) / model.GPU
			}
		} else {
			for _, p := range j.Spec.Partitions {
				parts.get(p).add(j)
			}
		}
		if j.State == model.Pending {
			reasons[uint8(j.ReasonAt(s.Now))] += float64(max(1, j.Tasks.Count()))
			if j.Reason == model.ReasonResources || j.Reason == model.ReasonPriority {
				waits := max(0, float64(s.Now-max(j.Eligible, j.Submit))/1000)
				for _, p := range j.Spec.Partitions {
					if waits > longest[p] {
						longest[p] = waits
					}
				}
			}
		}
		return true
	})
	if s.wants("jobs") {
		all.give(out, "slurm_jobs", nil)
		if s.what == "" {
			s.queueBoards(out, &all, reasons[uint8(model.ReasonDependency)], &users, &accounts)
			gauge(out, "quota_online_used", "GPUs that jobs of high priority hold", nil, online)
			for why, n := range reasons {
				if n > 0 {
					gauge(out, "gbatch_jobs_pending", "pending jobs by what holds them",
						[]string{"reason", model.Reason(why).String()}, n)
					gauge(out, "slurm_pending_reason_total", "pending jobs by what holds them",
						[]string{"reason", model.Reason(why).String()}, n)
				}
			}
			for _, p := range s.View.Config().Partitions {
				parts.get(p.Name).byState(out, "slurm_partition_job_state_total", "partition", p.Name)
				gauge(out, "gbatch_job_longest_wait_seconds", "for how long the oldest job waits that only resources and jobs "+
					"before it hold", []string{"partition", p.Name}, longest[p.Name])
			}
			s.quotas(out, &accounts)
		}
	}
	if s.users || s.what == "jobs-users-accts" { // as many series as there are users: only where they are asked for
		var there []string // what boards have under the same names, with the label user or account
		if s.users {
			there = []string{"pending", "running", "suspended"}
		}
		for _, name := range users.most(s.Series) {
			users.of[name].give(out, "slurm_user_jobs", []string{"username", name}, there...)
		}
		for _, name := range accounts.most(s.Series) {
			accounts.of[name].give(out, "slurm_account_jobs", []string{"account", name}, there...)
		}
	}
	if s.wants("partitions") {
		s.partitions(out, &parts)
	}
}

func (s *scrape) partitions(out *sink, parts *tallies) {
	list := s.View.Config().Partitions
	gauge(out, "slurm_partitions", "partitions", nil, float64(len(list)))
	for _, p := range list {
		labels := []string{"partition", p.Name}
		t := parts.get(p.Name)
		t.give(out, "slurm_partition_jobs", labels)
		for _, x := range []struct {
			name string
			v    float64
		}{{"max_job_nodes", t.most}, {"max_job_nodes_nohold", t.mostFree}, {"min_job_nodes", t.least},
			{"min_job_nodes_nohold", t.leastFree}, {"wait_part_node_limit", 0}} {
			gauge(out, "slurm_partition_jobs_"+x.name, "", labels, x.v)
		}
		states := nodeWords{}
		var cpus, used, free, mem, memUsed, g float64
		for _, name := range p.Nodes {
			n := s.View.Node(name)
			if n == nil {
				continue
			}
			s.count(states, n)
			all, _, _ := gpus(n)
			cpus, used, g = cpus+float64(n.Def.JobCPUCount()), used+usedCPUs(n), g+all
			if n.Usable() {
				free += float64(n.Def.JobCPUCount()) - usedCPUs(n)
			}
			mem, memUsed = mem+float64(n.Def.MemMiB)*mib, memUsed+float64(n.UsedMem)*mib
		}
		for _, w := range nodeStates {
			word := w[0]
			if w[1] != "" {
				word = w[1]
			}
			gauge(out, "slurm_partition_nodes_"+word, "", labels, states[w[0]])
		}
		for _, x := range []struct {
			name string
			v    float64
		}{{"nodes_cpus_efctv", cpus}, {"nodes_cpus_idle", cpus - used}, {"nodes_cpus_alloc", used}, {"nodes_mem_alloc",
			memUsed},
			{"nodes_mem_avail", mem}, {"nodes_mem_free", mem - memUsed}, {"nodes_mem_tot", mem}, {"cpus", cpus}, {"gpus", g},
			{"nodes", float64(len(p.Nodes))}, {"cpus_allocated", used}, {"cpus_idle", free}, {"cpus_other", cpus - used - free},
			{"cpus_total", cpus}} {
			gauge(out, "slurm_partition_"+x.name, "", labels, x.v)
		}
	}
}
