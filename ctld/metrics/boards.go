package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// boards.go has names that are not Slurm's own, by which boards of older exporters and the product's sources ask.

// counter is gauge for what only grows.
func counter(out chan<- prometheus.Metric, name, help string, labels []string, v float64) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, strings.ToValidUTF8(labels[i+1], "?"))
	}
	m, err := prometheus.NewConstMetric(prometheus.NewDesc(name, help, names, nil), prometheus.CounterValue, v, values...)
	if err == nil { // else a name is malformed, which a test would see
		out <- m
	}
}

// units counts what nodes have of something, by what is done with it.
type units struct{ alloc, idle, other float64 }

func (u *units) add(all, used float64, usable bool) {
	u.alloc += used
	if usable {
		u.idle += all - used
	} else {
		u.other += all - used
	}
}

// boards gives what is asked of nodes.
func (s *scrape) boards(out chan<- prometheus.Metric) {
	var cpus, gpu units
	kinds := map[string]*units{}
	agents := map[string]float64{"online": 0, "offline": 0}
	mixed, completing := 0.0, 0.0
	s.View.Nodes(func(n *model.Node) bool {
		base, drain, silent := jobtext.NodeState(n)
		usable := base != jobtext.NodeDown && !drain && !silent
		if base == jobtext.NodeMixed {
			mixed++
		}
		if n.Ending > 0 {
			completing++
		}
		if base == jobtext.NodeDown || silent {
			agents["offline"]++
		} else {
			agents["online"]++
		}
		cpus.add(float64(n.Def.JobCPUCount()), usedCPUs(n), usable)
		all, used := gpus(n)
		gpu.add(all, used, usable)
		for _, g := range n.Def.Gres {
			if g.Name != "gpu" || all == 0 {
				continue
			}
			u := kinds[g.Type]
			if u == nil {
				u = &units{}
				kinds[g.Type] = u
			}
			u.add(float64(g.Count), used*float64(g.Count)/all, usable) // a node has one type, nearly always
		}
		return true
	})
	for _, x := range []struct {
		name string
		u    *units
	}{{"cpus", &cpus}, {"gpus", &gpu}} {
		total := x.u.alloc + x.u.idle + x.u.other
		gauge(out, "slurm_"+x.name+"_alloc", "", nil, x.u.alloc)
		gauge(out, "slurm_"+x.name+"_idle", "", nil, x.u.idle)
		gauge(out, "slurm_"+x.name+"_other", x.name+" of nodes that take no jobs", nil, x.u.other)
		gauge(out, "slurm_"+x.name+"_total", "", nil, total)
		if x.name == "gpus" {
			gauge(out, "slurm_gpus_utilization", "the part of the GPUs that is allocated, 0 to 1", nil,
				x.u.alloc/max(1, total))
		}
	}
	gauge(out, "slurm_nodes_mix", "", nil, mixed)
	gauge(out, "slurm_nodes_comp", "", nil, completing)
	gauge(out, "slurm_nodes_err", "", nil, 0)
	for kind, u := range kinds {
		for _, x := range []struct {
			state string
			v     float64
		}{{"allocated", u.alloc}, {"idle", u.idle}, {"unavailable", u.other}} {
			gauge(out, "gbatch_gpus", "GPUs by type and what is done with them",
				[]string{"type", kind, "state", x.state}, x.v)
		}
	}
	for status, n := range agents {
		gauge(out, "agent_count", "nodes by whether they answer", []string{"status", status}, n)
	}
	if d := s.Stats; d != nil {
		gauge(out, "scheduler_queue_size", "pending jobs", nil, float64(d.Pending))
		counter(out, "scheduler_schedule_total", "passes of the planner", nil, float64(d.Main.Count))
		for i := range d.ByType {
			r := &d.ByType[i]
			labels := []string{"message_type", r.Name}
			counter(out, "slurm_controller_rpc_calls_total", "requests by type", labels, float64(r.Count))
			counter(out, "slurm_controller_rpc_duration_seconds_total", "time that requests took, by type", labels,
				float64(r.SumUS)/1e6)
		}
	}
	done := s.View.Outcomes()
	counter(out, "task_submitted_total", "jobs that were submitted", nil, float64(done.Submitted))
	counter(out, "task_scheduled_total", "jobs that were started", nil, float64(done.Started))
	if s.Waits != nil {
		s.Waits.collect(out)
	}
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
func queueBoards(out chan<- prometheus.Metric, all *tally, reasons map[string]float64,
	users, accounts map[string]*tally) {
	for _, w := range queueWords {
		gauge(out, "slurm_queue_"+w.name, "", nil, all.states[w.state])
	}
	gauge(out, "slurm_queue_pending_dependency", "", nil, reasons[model.ReasonDependency.String()])
	for _, x := range []struct {
		label string
		of    map[string]*tally
	}{{"account", accounts}, {"user", users}} {
		for name, t := range x.of {
			labels := []string{x.label, name}
			gauge(out, "slurm_"+x.label+"_jobs_pending", "", labels, t.states[model.Pending])
			gauge(out, "slurm_"+x.label+"_jobs_running", "", labels, t.states[model.Running])
			gauge(out, "slurm_"+x.label+"_jobs_suspended", "", labels, t.states[model.Suspended])
			gauge(out, "slurm_"+x.label+"_cpus_running", "", labels, t.cpus)
			if x.label == "account" {
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
