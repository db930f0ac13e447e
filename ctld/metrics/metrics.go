package metrics

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
}

// maxScrapes bounds scrapes at the same time; more are answered 503.
const maxScrapes = 4

// Handler serves the paths below /metrics; look is called once for each scrape.
func Handler(look func(r *http.Request) Source) http.Handler {
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "too many scrapes at the same time", http.StatusServiceUnavailable)
			return
		}
		what := strings.TrimSuffix(r.URL.Path[strings.LastIndex(r.URL.Path, "/metrics"):], "/")
		reg := prometheus.NewRegistry()
		reg.MustRegister(&scrape{look(r), strings.TrimPrefix(strings.TrimPrefix(what, "/metrics"), "/")})
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
	})
}

// scrape is one; what is "" for everything.
type scrape struct {
	Source
	what string
}

// Describe describes nothing: which metrics there are depends on the facts.
func (s *scrape) Describe(chan<- *prometheus.Desc) {}

func (s *scrape) wants(what string) bool { return s.what == "" || s.what == what }

// Collect gives the metrics.
func (s *scrape) Collect(out chan<- prometheus.Metric) {
	if s.View.Config().Cluster == "" {
		return
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
	}
}

// gauge gives one value; labels are names and values in turn.
func gauge(out chan<- prometheus.Metric, name, help string, labels []string, v float64) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, strings.ToValidUTF8(labels[i+1], "?"))
	}
	if help == "" {
		help = strings.ReplaceAll(strings.TrimPrefix(name, "slurm_"), "_", " ")
	}
	m, err := prometheus.NewConstMetric(prometheus.NewDesc(name, help, names, nil), prometheus.GaugeValue, v, values...)
	if err == nil { // else a name is malformed, which a test would see
		out <- m
	}
}

// statesOf gives the words of a node's state.
func (s *scrape) statesOf(n *model.Node) []string {
	base, drain, silent := jobtext.NodeState(n)
	var out []string
	switch base {
	case jobtext.NodeDown:
		out = append(out, "down")
	case jobtext.NodeIdle:
		out = append(out, "idle")
	case jobtext.NodeAllocated:
		out = append(out, "alloc")
	case jobtext.NodeMixed:
		out = append(out, "mixed")
	default:
		out = append(out, "unknown")
	}
	if drain {
		out = append(out, "drain")
		if len(n.Jobs) > 0 {
			out = append(out, "draining")
		} else {
			out = append(out, "drained")
		}
	}
	if silent {
		out = append(out, "noresp")
	}
	if n.Ending > 0 {
		out = append(out, "completing")
	}
	return out
}

func gpus(n *model.Node) (all, used float64) {
	for _, g := range n.Def.Gres {
		if g.Name == "gpu" {
			all += float64(g.Count)
		}
	}
	return all, float64(n.Used("gpu").Count())
}

func usedCPUs(n *model.Node) float64 {
	if n.Exclusive != 0 {
		return float64(n.Def.JobCPUCount())
	}
	return float64(n.UsedCPUs.Count())
}

const mib = 1 << 20

func (s *scrape) nodes(out chan<- prometheus.Metric) {
	states := map[string]float64{}
	all := 0.0
	s.View.Nodes(func(n *model.Node) bool {
		all++
		for _, w := range s.statesOf(n) {
			states[w]++
		}
		label := []string{"node", n.Def.Name}
		cpus, used := float64(n.Def.JobCPUCount()), usedCPUs(n)
		g, gUsed := gpus(n)
		for _, x := range []struct {
			name string
			v    float64
		}{{"cpus", float64(n.Def.CPUs)}, {"cpus_alloc", used}, {"cpus_effective", cpus}, {"cpus_idle", cpus - used},
			{"gpus", g}, {"gpus_alloc", gUsed}, {"memory_alloc_bytes", float64(n.UsedMem) * mib},
			{"memory_effective_bytes", float64(n.Def.MemMiB) * mib}, {"memory_bytes", float64(n.Def.MemMiB) * mib},
			{"memory_free_bytes", float64(max(0, n.Def.MemMiB-n.UsedMem)) * mib}} {
			gauge(out, "slurm_node_"+x.name, "", label, x.v)
		}
		return true
	})
	gauge(out, "slurm_nodes", "nodes", nil, all)
	for _, w := range nodeStates {
		gauge(out, "slurm_nodes_"+w[0], "", nil, states[w[0]])
	}
}

// tally counts jobs: of the cluster, a partition, a user or an account.
type tally struct {
	all, hold, cpus, gpus, memory, nodes float64
	states                               map[model.JobState]float64
	most, least, mostFree, leastFree     float64 // nodes that pending jobs ask for; Free: that are not held
}

func (t *tally) add(j *model.Job) {
	n := 1.0
	if j.IsArray() && j.State == model.Pending {
		n = float64(j.Tasks.Count())
	}
	if t.states == nil {
		t.states = map[model.JobState]float64{}
	}
	t.all += n
	t.states[j.State] += n
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
		for k := range a.Gres {
			if a.Gres[k].Name == "gpu" {
				t.gpus += float64(a.Gres[k].Index.Count())
			}
		}
	}
}

func span(most, least *float64, v float64) {
	*most = max(*most, v)
	if *least == 0 || v < *least {
		*least = v
	}
}

// give gives a tally's metrics; prefix is slurm_jobs, slurm_user_jobs ...
func (t *tally) give(out chan<- prometheus.Metric, prefix string, labels []string) {
	gauge(out, prefix, "", labels, t.all)
	for _, s := range jobStates {
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

func of(m map[string]*tally, name string) *tally {
	t := m[name]
	if t == nil {
		t = &tally{}
		m[name] = t
	}
	return t
}

func (s *scrape) jobs(out chan<- prometheus.Metric) {
	var all tally
	users, accounts, parts := map[string]*tally{}, map[string]*tally{}, map[string]*tally{}
	reasons := map[string]float64{}
	s.View.Jobs(func(j *model.Job) bool {
		all.add(j)
		of(users, j.Spec.User).add(j)
		of(accounts, j.Spec.Account).add(j)
		if j.Run != nil {
			of(parts, j.Run.Partition).add(j)
		} else {
			for _, p := range j.Spec.Partitions {
				of(parts, p).add(j)
			}
		}
		if j.State == model.Pending {
			reasons[j.Reason.String()]++
		}
		return true
	})
	if s.wants("jobs") {
		all.give(out, "slurm_jobs", nil)
		if s.what == "" {
			queueBoards(out, &all, reasons, users, accounts)
			for why, n := range reasons {
				gauge(out, "gbatch_jobs_pending", "pending jobs by what holds them", []string{"reason", why}, n)
			}
		}
	}
	if s.what == "jobs-users-accts" { // as many series as there are users: only where they are asked for
		for name, t := range users {
			t.give(out, "slurm_user_jobs", []string{"username", name})
		}
		for name, t := range accounts {
			t.give(out, "slurm_account_jobs", []string{"account", name})
		}
	}
	if s.wants("partitions") {
		s.partitions(out, parts)
	}
}

func (s *scrape) partitions(out chan<- prometheus.Metric, parts map[string]*tally) {
	list := s.View.Config().Partitions
	gauge(out, "slurm_partitions", "partitions", nil, float64(len(list)))
	for _, p := range list {
		labels := []string{"partition", p.Name}
		t := of(parts, p.Name)
		t.give(out, "slurm_partition_jobs", labels)
		for _, x := range []struct {
			name string
			v    float64
		}{{"max_job_nodes", t.most}, {"max_job_nodes_nohold", t.mostFree}, {"min_job_nodes", t.least},
			{"min_job_nodes_nohold", t.leastFree}, {"wait_part_node_limit", 0}} {
			gauge(out, "slurm_partition_jobs_"+x.name, "", labels, x.v)
		}
		states := map[string]float64{}
		var cpus, used, mem, memUsed, g float64
		for _, name := range p.Nodes {
			n := s.View.Node(name)
			if n == nil {
				continue
			}
			for _, w := range s.statesOf(n) {
				states[w]++
			}
			all, _ := gpus(n)
			cpus, used, g = cpus+float64(n.Def.JobCPUCount()), used+usedCPUs(n), g+all
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
			{"nodes", float64(len(p.Nodes))}} {
			gauge(out, "slurm_partition_"+x.name, "", labels, x.v)
		}
	}
}
