package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// called gives a job's number and name.
func called(ref string, j *model.Job) string {
	if j.Spec.Name == "" {
		return ref
	}
	return ref + " (" + j.Spec.Name + ")"
}

func licensesText(rq *Request) string {
	var out []string
	for _, l := range rq.Licenses {
		out = append(out, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	if rq.AnyLicense {
		return strings.Join(out, " or ")
	}
	return strings.Join(out, ", ")
}

// awayText names nodes with why they take no jobs.
func (x *explainer) awayText(list []string) string {
	return x.nodeList(list, func(name string) string { return name + " (" + x.stateOf(name) + ")" })
}

// outText names what is out of service on nodes, and why.
func (x *explainer) outText(list []string) string {
	return x.nodeList(list, func(name string) string {
		return name + " (" + unitsText(x.v.Node(name).Out) + ")"
	})
}

// unitsText names units that are out of service, those with the same reason together.
func unitsText(out []model.UnitOut) string {
	type why struct{ name, reason string }
	var order []why
	units := map[why][]string{}
	for i := range out {
		o := &out[i]
		if o.Kind == model.OutCleared {
			continue
		}
		w := why{o.Name, o.Reason}
		if units[w] == nil {
			order = append(order, w)
		}
		units[w] = append(units[w], fmt.Sprint(o.Index))
	}
	text := make([]string, 0, len(order))
	for _, w := range order {
		text = append(text, fmt.Sprintf("%s %s: %s", w.name, strings.Join(units[w], ", "), w.reason))
	}
	return strings.Join(text, "; ")
}

func (x *explainer) stateOf(name string) string {
	if !x.sees.node(name) {
		return "not available"
	}
	n := x.v.Node(name)
	if n == nil {
		return "not there"
	}
	text := strings.ToLower(n.StateName())
	if n.Link == model.LinkLost {
		text = "not responding"
	}
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// needText says what a request asks of its nodes; over means that the request would fit on one node, but no node is
// large enough.
func needText(sh *shape, over bool) string {
	rq := &sh.rq
	tasks := sh.tasks
	if !sh.single {
		tasks = rq.PerNode
	}
	var parts []string
	for _, g := range rq.Gres {
		label, n := g.Name, int(g.Count)
		if g.Milli > 0 {
			parts = append(parts, strconv.FormatFloat(float64(g.Milli)/1000, 'f', -1, 64)+" of a GPU")
			continue
		}
		if g.Type != "" {
			label = g.Type
		}
		switch {
		case n == 0:
			continue
		case g.Per == model.PerTask:
			n *= tasks
		case g.Per == model.PerJob && !sh.single:
			label += " in all"
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, label))
	}
	if k := len(rq.OfSocket); k > 0 {
		parts = append(parts, "as many from each of "+countOf(rq.Sockets, "socket", "sockets"))
	}
	for i := range wishes {
		if text := wishes[i].says(rq); text != "" {
			parts = append(parts, text)
		}
	}
	gpus := 0
	if sh.single {
		gpus = rq.JobGPUs()
	}
	cpus := rq.CPUsFor(tasks, gpus)
	parts = append(parts, countOf(cpus, "CPU", "CPUs"))
	if rq.Share > 1 {
		parts = append(parts, fmt.Sprintf("each shared by up to %d jobs", rq.Share))
	}
	switch {
	case rq.ByGPU:
		parts = append(parts, fmt.Sprintf("%d MiB", rq.GPUMemNode+rq.GPUMemTask*int64(tasks)+rq.GPUMemJob*int64(gpus)))
	case rq.MemPerNode == model.WholeMem:
		parts = append(parts, "all memory")
	case rq.MemPerNode > 0:
		parts = append(parts, fmt.Sprintf("%d MiB", rq.MemPerNode))
	case rq.MemPerCPU > 0:
		parts = append(parts, fmt.Sprintf("%d MiB", rq.MemPerCPU*int64(cpus)))
	}
	if rq.Want != nil {
		parts = append(parts, "the features "+rq.Want.String())
	}
	if rq.Exclusive {
		parts = append(parts, "nobody else")
	}
	where := "on one node"
	switch {
	case over:
		where = "over several nodes"
	case !sh.single:
		where = fmt.Sprintf("on each of %d nodes", rq.MinNodes)
		if k := rq.Segment; k > 0 && k < rq.MinNodes {
			where += fmt.Sprintf(", in segments of %d that lie in one block each", k)
		}
	}
	return strings.Join(parts, ", ") + " " + where
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Sight says what the reader of an explanation may see of others (PrivateData). What is hidden is counted, and its
// times are given, since they say when the reader's job starts; it is not named.
type Sight struct {
	Job         func(model.JobID) bool
	Reservation func(name string) bool
	Node        func(name string) bool // nil: all
	Partition   func(name string) bool // nil: all
}

func (s *Sight) node(name string) bool { return s == nil || s.Node == nil || s.Node(name) }

func (s *Sight) partition(name string) bool {
	return s == nil || s.Partition == nil || s.Partition(name)
}

// nodesOf leaves out the nodes that the reader may not see. A job's own request is no secret.
func (s *Sight) nodesOf(sp *model.Spec, list []string) []string {
	return slices.DeleteFunc(list, func(name string) bool { return !s.node(name) && !slices.Contains(sp.ReqNodes, name) })
}

// nodeList names nodes in a sentence, each as say does. Of those that the reader may not see there is the number.
func (x *explainer) nodeList(list []string, say func(name string) string) string {
	var out []string
	shown := 0
	for _, name := range list {
		if !x.sees.node(name) {
			continue
		}
		if shown++; shown <= maxNamed {
			out = append(out, say(name))
		}
	}
	switch {
	case shown == 0:
		return countOf(len(list), "node", "nodes")
	case len(list) > len(out):
		out = append(out, fmt.Sprintf("%d more", len(list)-len(out)))
	}
	return strings.Join(out, ", ")
}

// nodeNames lists nodes, the first few of many.
func (x *explainer) nodeNames(list []string) string {
	if seen := slices.DeleteFunc(slices.Clone(list), func(n string) bool { return !x.sees.node(n) }); len(seen) > 0 {
		return names(seen)
	}
	return countOf(len(list), "node", "nodes")
}

// on says on which node something is.
func (x *explainer) on(name string) string {
	if !x.sees.node(name) {
		return ""
	}
	return " on " + name
}

func (s *Sight) job(id model.JobID) bool { return s == nil || s.Job(id) }

// reservationText names a reservation.
func (x *explainer) reservationText(name string) string {
	if x.sees != nil && !x.sees.Reservation(name) {
		return "a reservation"
	}
	return "reservation " + name
}

// number gives a job's number as users know it.
func (x *explainer) number(id model.JobID) string {
	switch j := x.v.Job(id); {
	case j == nil:
	case j.ArrayID != 0 && j.Task != model.NoTask:
		return fmt.Sprintf("%d_%d", j.ArrayID, j.Task)
	case j.Het != nil:
		return j.Het.Name()
	}
	return fmt.Sprint(id)
}

// job names one job.
func (x *explainer) job(id model.JobID) string {
	if !x.sees.job(id) {
		return "another user's job"
	}
	return "job " + x.number(id)
}

// jobList names jobs, the first ones of all.
func (x *explainer) jobList(ids []model.JobID, all int) string {
	var out []string
	for _, id := range ids {
		if x.sees.job(id) {
			out = append(out, x.number(id))
		}
	}
	hidden := len(ids) - len(out)
	switch {
	case len(out) == 0 && all == 1:
		return "another user's job"
	case len(out) == 0 && hidden > 0:
		return fmt.Sprintf("%d jobs, those of other users among them", all)
	}
	text := strings.Join(out, ", ")
	if all > len(out) {
		text += fmt.Sprintf(" and %d more", all-len(out))
	}
	if all == 1 {
		return "job " + text
	}
	return "jobs " + text
}

func limitText(s int64) string { return walltime.Limit(s, s >= model.Unlimited) }

func most(n int32) string {
	if n == 0 {
		return "any number"
	}
	return fmt.Sprint(n)
}

// asleep says why a job is suspended and when it goes on.
func (x *explainer) asleep() string {
	j := x.j
	text := fmt.Sprintf("It has been suspended since %s on %s", at(j.Run.SleepAt), names(j.Run.Alloc.NodeNames()))
	switch j.Run.Sleep {
	case model.SleepsByAdmin:
		return text + fmt.Sprintf(", by an operator: gcontrol resume %d lets it go on.", j.ID)
	case model.SleepsInTurn:
		return text + fmt.Sprintf(
			": it shares CPUs and takes turns of %d s with %s (PreemptMode=GANG); it goes on when its turn comes.",
			max(x.v.Config().Params.Preempt.SliceS, minSliceS), x.sharers())
	}
	p := x.p
	p.sync(x.v, x.now, x.pol)
	back, ids := p.backAt(j)
	switch {
	case len(ids) == 0:
		return text + "; its CPUs are free again, and it goes on with the next scheduling pass."
	case back >= x.now.Add(unlimitedS/2):
		text += fmt.Sprintf(": %s its CPUs, without a time limit", x.haveThem(ids))
	default:
		text += fmt.Sprintf(": %s its CPUs, until %s at the latest", x.haveThem(ids), at(back))
	}
	return text + "; it keeps its memory and GPUs, and its time limit stands still meanwhile."
}

func (x *explainer) haveThem(ids []model.JobID) string {
	if len(ids) == 1 {
		return x.jobList(ids, 1) + " has"
	}
	return x.jobList(ids[:min(len(ids), maxNamed)], len(ids)) + " have"
}

// sharers names the jobs that have some of the job's CPUs.
func (x *explainer) sharers() string {
	var ids []model.JobID
	mine := map[string]model.Bits{}
	for i := range x.j.Run.Alloc.Nodes {
		na := &x.j.Run.Alloc.Nodes[i]
		mine[na.Node] = na.CPUs
	}
	x.v.Sharing(func(k *model.Job) bool {
		t := turner{j: k}
		if k.ID != x.j.ID && k.Run != nil && !t.free(mine) {
			ids = append(ids, k.ID)
		}
		return true
	})
	if len(ids) == 0 {
		return "others"
	}
	return x.jobList(ids[:min(len(ids), maxNamed)], len(ids))
}

// mixesText says how many nodes that are not free now run jobs with which this job can't share a node: jobs that share
// CPUs and jobs that don't are never on one node. "" if there are no such nodes.
func (x *explainer) mixesText(sh *shape, nodes []*node) string {
	var found []string
	for _, n := range nodes {
		if n.room.busy && (sh.rq.Share > 1 && n.room.plain > 0 || sh.rq.Share <= 1 && n.room.sharers > 0) {
			found = append(found, n.def.Name)
		}
	}
	switch {
	case len(found) == 0:
		return ""
	case sh.rq.Share > 1:
		return "; it shares its CPUs (OverSubscribe), but not with jobs that don't, which run on " + x.nodeNames(found)
	}
	return "; it shares no CPUs, and can't run with jobs that do (OverSubscribe), which run on " + x.nodeNames(found)
}
