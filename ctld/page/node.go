package page

import (
	"cmp"
	"fmt"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/walltime"
)

// node.go shows one node: its state and why, its GPUs, its jobs and what was measured.

// nodeView is the view.
type nodeView struct {
	Name, State, Class string
	Why, By            string
	Since              model.Time
	Facts              []pair
	GPUList            []gpuOf
	Jobs               []*jobLine
	JobsWhy            string
	More               bool
	Charts, EachGPU    []*chart
	Show               string
	May                bool // take it out of service, and back
	Down               bool
}

// oneNode shows a node.
func oneNode(q *request) (any, error) {
	name := q.rest
	if name == "" || strings.ContainsAny(name, "[,/ ") {
		return nil, rpc.Errorf(proto.CodeInvalidJob, "%s is no name of a node", cmp.Or(name, "Nothing"))
	}
	v := &nodeView{Name: name, May: q.operates()}
	q.name = "Node " + name
	known := false
	for _, n := range q.p.o.Cluster.Facts().Config().Nodes {
		known = known || n.Name == name
	}
	if !known {
		return nil, rpc.Errorf(proto.CodeInvalidJob, "There is no node %s.", name)
	}
	if err := q.nodes([]string{name}, func(i *proto.NodeInfo) { v.fill(q, i) }); err != nil {
		return nil, err
	}
	list, rules, more, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{Nodes: []string{name},
		States: liveStates()}}, maxRows, nil)
	if err != nil {
		v.JobsWhy = sentence(env.Text(err))
	}
	v.More = more
	for _, j := range list {
		v.Jobs = append(v.Jobs, q.line(j, rules))
	}
	from := q.now - proto.HistoryFineFor*1000
	rq := &proto.HistoryRequest{Of: proto.HistoryNode, Names: []string{name}, Start: from, StepS: stepOfSpan(from, q.now)}
	for _, x := range q.past(rq) {
		v.Charts = append(v.Charts, q.ofNode(&x, from)...)
	}
	if len(v.GPUList) > 0 && len(v.Charts) > 0 {
		rq = &proto.HistoryRequest{Of: proto.HistoryGPU, Names: []string{name + "/"}, Start: from, StepS: rq.StepS}
		for _, x := range q.past(rq) {
			if len(v.EachGPU) == maxRows {
				break
			}
			if c := draw(&x, "gpu_util", "GPU "+strings.TrimPrefix(x.Name, name+"/"), 100,
				frame{firstOf(&x, from, q.now), q.now, q.now, len(v.EachGPU) < fullCharts}); c != nil {
				v.EachGPU = append(v.EachGPU, c)
			}
		}
	}
	return v, nil
}

// liveStates are those of jobs that hold something.
func liveStates() (out []model.JobState) {
	for _, s := range model.JobStates() {
		if s.HasResources() {
			out = append(out, s)
		}
	}
	return out
}

func (v *nodeView) fill(q *request, i *proto.NodeInfo) {
	n := i.Node
	v.State, v.Class = jobtext.NodeStateText(i), "good"
	v.Why, v.By, v.Since = cmp.Or(n.Reason, n.Problem), n.ReasonBy, n.ReasonAt
	switch {
	case !n.Usable() || n.Problem != "":
		v.Class, v.Down = "bad", true
	case len(n.Jobs) > 0:
		v.Class = "runs"
	}
	add := func(name, value string) {
		if value != "" {
			v.Facts = append(v.Facts, pair{name, value})
		}
	}
	add("Partitions", strings.Join(i.Partitions, ", "))
	add("CPUs", fmt.Sprintf("%d of %d held", n.UsedCPUs.Count(), n.Def.JobCPUCount()))
	if i.LoadMilli >= 0 {
		add("Load", fmt.Sprintf("%.2f", float64(i.LoadMilli)/1000))
	}
	if all := n.Def.JobMemMiB(); all > 0 {
		add("Memory", walltime.FormatRounded(n.UsedMem)+" of "+walltime.FormatRounded(all)+" held")
	}
	if i.FreeMemMiB >= 0 {
		add("Free memory", walltime.FormatRounded(i.FreeMemMiB))
	}
	add("Reservation", i.Resv)
	add("Version", n.Version)
	add("System", n.OS)
	if n.BootAt > 0 {
		add("Booted", clock(n.BootAt, q.now))
	}
	rows := jobtext.GPURows(i)
	for k := range rows {
		v.GPUList = append(v.GPUList, gpuLine(i, &rows[k]))
	}
	for _, note := range i.Notes {
		add("Note", note)
	}
	v.Show = strings.TrimSpace(jobtext.ShowNode(i, &jobtext.Times{Now: q.at.Now}, true).Text(false))
}

// ofNode draws what was measured of a node.
func (q *request) ofNode(x *proto.HistorySeries, from model.Time) (list []*chart) {
	var def *model.NodeDef
	for _, n := range q.p.o.Cluster.Facts().Config().Nodes {
		if n.Name == x.Name {
			def = n
		}
	}
	if def == nil {
		return nil
	}
	gpus := int64(0)
	for i := range def.Gres {
		if def.Gres[i].Name == model.GPUName {
			gpus += int64(def.Gres[i].Count)
		}
	}
	for _, f := range []struct {
		field, name string
		top         int64
	}{{"gpus", "GPUs that jobs hold", gpus}, {"gpu_util", "Use of held GPUs", 100},
		{"cpus", "CPUs that jobs hold", int64(def.CPUs)}, {"cpu_load", "Load", 0}, {"mem", "Memory in use", def.MemMiB},
		{"power", "Power of its GPUs", 0}} {
		if gpus == 0 && (strings.HasPrefix(f.field, "gpu") || f.field == "power") {
			continue
		}
		if c := draw(x, f.field, f.name, f.top, frame{firstOf(x, from, q.now), q.now, q.now, true}); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// gpuLine is a line of a list of GPUs.
func gpuLine(i *proto.NodeInfo, row *jobtext.GPURow) gpuOf {
	l := row.Look()
	g := gpuOf{GPULook: l, Part: sharedText(i.Node, l.Index)}
	if g.Part != "" {
		g.Job = "" // several may hold it
	}
	if l.Util >= 0 {
		g.Use = barOf(int64(l.Util), 100, "")
		if l.Util < model.IdleGPUPct && l.Job != "" {
			g.Use.Class = "low"
		}
	}
	if l.UsedMiB >= 0 && l.AllMiB > 0 {
		g.Mem = barOf(l.UsedMiB, l.AllMiB, walltime.FormatRounded(l.UsedMiB)+" of "+walltime.FormatRounded(l.AllMiB))
	}
	return g
}
