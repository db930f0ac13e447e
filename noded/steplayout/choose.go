package steplayout

import (
	"errors"
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// choose.go picks the step's nodes among those that it may have: nodes without other steps first, then those with
// enough left, in the job's order. A node where the step does not fit is left out as long as there are others, so the
// steps of a job use all its nodes.

// nodeError is an error about one of the chosen nodes, or about all of them, of which this one has least.
type nodeError struct {
	place int // in the list of chosen nodes
	err   error
}

func (e *nodeError) Error() string { return e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

func notHere(place int, err error) error { return &nodeError{place, err} }

// at is an error about a chosen node that begins with Slurm's text.
func at(place int, format string, a ...any) error { return notHere(place, inSlurmsWords(format, a...)) }

// busyAt says what other steps hold on a chosen node.
func busyAt(place int, format string, a ...any) error {
	return notHere(place, &BusyError{fmt.Sprintf(format, a...)})
}

// choose places the step's tasks on most of the nodes.
func choose(j *Job, held []Holding, parent []proto.StepNode, nodes []int, most, tasks int,
	need *proto.StepNeed) ([]proto.StepNode, error) {
	if need.Pack && need.Dist <= proto.DistBlock && need.TasksPerNode == 0 {
		most = packed(j, nodes, most, tasks, need)
	}
	free := j.freeCPUs(held)
	candidates := slices.Clone(nodes)
	if alone := !need.Overlap && len(parent) == 0; alone && most < len(nodes) {
		candidates = fitting(j, free, candidates, most, need)
	}
	var failed error
	for {
		pick := slices.Sorted(slices.Values(candidates[:most]))
		out, err := place(j, held, parent, pick, free, tasks, need)
		if err == nil {
			return out, nil
		}
		var busy *BusyError
		if failed == nil || errors.As(err, &busy) && !errors.As(failed, &busy) {
			failed = err // the first one, but to wait is better than to fail
		}
		var where *nodeError
		if !errors.As(err, &where) || len(candidates) == most {
			if errors.As(failed, &where) {
				return nil, where.err
			}
			return nil, failed
		}
		candidates = slices.DeleteFunc(candidates, func(n int) bool { return n == pick[where.place] })
	}
}

// packed gives the least number of nodes, of at most most, that hold the tasks if each is filled before the next.
func packed(j *Job, nodes []int, most, tasks int, need *proto.StepNeed) int {
	room := 0
	for k, n := range nodes[:most] {
		if room += j.Alloc.Nodes[n].CPUs.Count() / int(max(need.CPUsPerTask, 1)); room >= tasks {
			return max(k+1, int(need.MinNodes))
		}
	}
	return most
}

// freeCPUs gives for each node of the job the CPUs that no step holds.
func (j *Job) freeCPUs(held []Holding) []model.Bits {
	out := make([]model.Bits, len(j.Alloc.Nodes))
	for i := range out {
		out[i] = j.Alloc.Nodes[i].CPUs
	}
	for i := range held {
		for k := range held[i].Nodes {
			if n := &held[i].Nodes[k]; int(n.Index) < len(out) {
				out[n.Index] = out[n.Index].Minus(n.CPUs)
			}
		}
	}
	return out
}

// fitting puts idle nodes first and leaves out those without the CPUs for one task, if there are enough others. One
// stays: where no idle node can ever run the step, it waits for that.
func fitting(j *Job, free []model.Bits, nodes []int, most int, need *proto.StepNeed) []int {
	var idle, part, full []int
	for _, n := range nodes {
		all, left := j.Alloc.Nodes[n].CPUs.Count(), free[n].Count()
		switch {
		case left == all:
			idle = append(idle, n)
		case need.Exact && left >= int(max(need.CPUsPerTask, 1)):
			part = append(part, n)
		default:
			full = append(full, n)
		}
	}
	out := slices.Concat(idle, part)
	return append(out, full[:min(len(full), max(1, most-len(out)))]...)
}

// place gives the tasks of the step their part of the chosen nodes.
func place(j *Job, held []Holding, parent []proto.StepNode, nodes []int, free []model.Bits, tasks int,
	need *proto.StepNeed) ([]proto.StepNode, error) {
	all, left := make([]int, len(nodes)), make([]int, len(nodes))
	for i, n := range nodes {
		all[i], left[i] = j.Alloc.Nodes[n].CPUs.Count(), free[n].Count()
	}
	perTask := int(max(need.CPUsPerTask, 1))
	sizes := all
	if need.Exact && !need.Overlap && len(parent) == 0 && need.TasksPerNode == 0 && sum(left) < sum(all) {
		sizes = left // the tasks go where there is room
	}
	ranks, err := spread(j, nodes, sizes, tasks, perTask, need)
	if err != nil && sum(sizes) < sum(all) { // they have to wait for what others hold
		ranks, err = spread(j, nodes, all, tasks, perTask, need)
	}
	if err != nil {
		return nil, err
	}
	out := make([]proto.StepNode, len(nodes))
	for i, n := range nodes {
		out[i] = proto.StepNode{Node: j.Alloc.Nodes[n].Node, Index: int32(n), Ranks: ranks[i]}
	}
	for _, part := range []func(*Job, []Holding, []proto.StepNode, []proto.StepNode, *proto.StepNeed) error{placeGres,
		placeCPUs, placeMemory} {
		if err := part(j, held, parent, out, need); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// least gives the place of the smallest number.
func least(list []int) int { return slices.Index(list, slices.Min(list)) }

// poorest gives the place of the node that has least of a resource.
func poorest(j *Job, out []proto.StepNode, g model.GresReq) int {
	have := make([]int, len(out))
	for i := range out {
		have[i] = int(gresOf(j, &out[i], g))
	}
	return least(have)
}

// gresOf counts what the job has of a resource on a node.
func gresOf(j *Job, n *proto.StepNode, g model.GresReq) int32 {
	have := 0
	for _, a := range j.Alloc.Nodes[n.Index].Gres {
		if a.Name == g.Name && model.TypeFits(g.Name, g.Type, a.Type) {
			have += a.Index.Count()
		}
	}
	return int32(have)
}

// FirstNode places a step with one task on the job's first node, with all that the job has there. It takes nothing from
// other steps.
func FirstNode(j *Job) []proto.StepNode {
	n := &j.Alloc.Nodes[0]
	return []proto.StepNode{{Node: n.Node, CPUs: n.CPUs, MemMiB: n.MemMiB, Gres: n.Gres, Ranks: []int32{0}}}
}

// OneOnEach places a step with a task on each node of the job, or of the parent, which takes nothing from other steps.
func OneOnEach(j *Job, parent []proto.StepNode) (nodes []proto.StepNode) {
	for i := range j.Alloc.Nodes {
		n := &j.Alloc.Nodes[i]
		if len(parent) > 0 && inherited(parent, int32(i)) == nil {
			continue
		}
		nodes = append(nodes, proto.StepNode{Node: n.Node, Index: int32(i), CPUs: n.CPUs, Ranks: []int32{int32(len(nodes))}})
	}
	return nodes
}
