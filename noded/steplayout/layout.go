package steplayout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// layout.go decides a step's part of its job: its nodes, the number of tasks on each, CPUs, memory and GPUs. It is a
// function of the job, of its other steps' resources, and of the request, without state. The rules are srun's: without
// --exact a step takes all CPUs of its nodes, and always all generic resources of the job unless it names some. If a
// step has to wait, the answer names the steps and the resources that they hold.

// Job is a layout's input about a job.
type Job struct {
	ID    model.JobID
	Spec  *model.Spec
	Alloc *model.Alloc
}

// onlyAsks reports whether a job has asked for a resource and holds none of it: one that is not used up (no_consume).
// A step may ask for it too, and holds none either.
func (j *Job) onlyAsks(g model.GresReq) bool {
	is := func(name, typ string) bool { return name == g.Name && (g.Type == "" || typ == "" || typ == g.Type) }
	for i := range j.Alloc.Nodes {
		if slices.ContainsFunc(j.Alloc.Nodes[i].Gres, func(a model.GresAlloc) bool { return a.Name == g.Name }) {
			return false
		}
	}
	return slices.ContainsFunc(j.Spec.Gres, func(r model.GresReq) bool { return is(r.Name, r.Type) })
}

// Holding is the resources of one running step that it does not share.
type Holding struct {
	ID    int32
	Nodes []proto.StepNode
}

// BusyError means that a request fits the job, but not the part that other steps leave free.
type BusyError struct{ Text string }

func (e *BusyError) Error() string { return e.Text }

// Layout places a step. A *BusyError says for which resources it has to wait; any other error means that it never fits.
func Layout(j *Job, held []Holding, parent []proto.StepNode, need *proto.StepNeed) ([]proto.StepNode, error) {
	nodes, err := stepNodes(j, need)
	if err != nil {
		return nil, err
	}
	if len(need.Nodes)+len(need.Ranks) == 0 { // within another step: on its nodes
		if inside := slices.DeleteFunc(slices.Clone(nodes),
			func(n int) bool { return inherited(parent, int32(n)) == nil }); len(inside) > 0 {
			nodes = inside
		}
	}
	tasks, err := stepTasks(j, need, nodes)
	if err != nil {
		return nil, err
	}
	most, err := narrow(nodes, tasks, need)
	if err != nil {
		return nil, err
	}
	return choose(j, held, parent, nodes, most, tasks, need)
}

// stepNodes gives the nodes of the job that the step may use, in the job's order.
func stepNodes(j *Job, need *proto.StepNeed) ([]int, error) {
	wanted := need.Nodes
	if len(need.Ranks) > 0 {
		wanted = need.Ranks
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(j.Alloc.Nodes, func(n model.NodeAlloc) bool { return n.Node == name }) {
			return nil, inSlurmsWords("Requested node configuration is not available: node %s is not one of job %d's (%s)",
				name, j.ID, strings.Join(j.Alloc.NodeNames(), ","))
		}
	}
	var out []int
	for i := range j.Alloc.Nodes {
		name := j.Alloc.Nodes[i].Node
		if len(wanted) > 0 && !slices.Contains(wanted, name) || slices.Contains(need.NotNodes, name) {
			continue
		}
		out = append(out, i)
	}
	if len(out) == 0 {
		return nil, inSlurmsWords("Requested node configuration is not available: --exclude leaves no node of the job")
	}
	if int(need.MinNodes) > len(out) {
		return nil, inSlurmsWords(
			"Requested node configuration is not available: --nodes=%d, and the step can have %d of job %d's", need.MinNodes,
			len(out), j.ID)
	}
	return out, nil
}

// stepTasks gives the number of tasks on the nodes of.
func stepTasks(j *Job, need *proto.StepNeed, of []int) (int, error) {
	n := int(need.Tasks)
	at := len(of)
	if need.MaxNodes > 0 {
		at = min(at, int(max(need.MinNodes, 1)))
	}
	switch {
	case len(need.Ranks) > 0 && n == 0:
		n = len(need.Ranks)
	case n > 0:
	case need.TasksPerGPU > 0:
		gpus := 0
		for i := range j.Alloc.Nodes[:min(at, len(j.Alloc.Nodes))] {
			gpus += j.Alloc.Nodes[i].Units(model.GPUName).Count()
		}
		for _, g := range need.Gres {
			if g.Name == model.GPUName && g.Per == model.PerJob {
				gpus = int(g.Count)
			} else if g.Name == model.GPUName && g.Per == model.PerNode {
				gpus = int(g.Count) * at
			}
		}
		if n = gpus * int(need.TasksPerGPU); n == 0 {
			return 0, errors.New("--ntasks-per-gpu: the step has no GPUs")
		}
	case need.TasksPerNode > 0:
		n = int(need.TasksPerNode) * at
	case need.Fill:
		for _, node := range of[:at] {
			n += max(j.Alloc.Nodes[node].CPUs.Count()/int(max(need.CPUsPerTask, 1)), 1)
		}
	default:
		n = at
	}
	if n > proto.MaxStepTasks {
		return 0, fmt.Errorf("a step of %d tasks: at most %d", n, proto.MaxStepTasks)
	}
	if len(need.Ranks) > 0 && n != len(need.Ranks) {
		return 0, fmt.Errorf("--distribution=arbitrary: the list of hosts has %d entries, the step %d tasks",
			len(need.Ranks), n)
	}
	return n, nil
}

// narrow gives the number of nodes that the step wants and can use.
func narrow(nodes []int, tasks int, need *proto.StepNeed) (int, error) {
	most := len(nodes)
	if need.MaxNodes > 0 {
		most = min(most, int(need.MaxNodes))
	}
	if need.TasksPerNode > 0 && need.MinNodes == 0 && len(need.Nodes) == 0 {
		most = min(most, (tasks+int(need.TasksPerNode)-1)/int(need.TasksPerNode))
	}
	if tasks < most {
		if int(need.MinNodes) > tasks {
			return 0, fmt.Errorf("%d tasks can't be on %d nodes", tasks, need.MinNodes)
		}
		most = tasks
	}
	return most, nil
}

// spread gives the ranks of the tasks on each node, whose tasks can use so many CPUs.
func spread(j *Job, nodes, sizes []int, tasks, perTask int, need *proto.StepNeed) ([][]int32, error) {
	out := make([][]int32, len(nodes))
	if len(need.Ranks) > 0 {
		for rank, name := range need.Ranks {
			i := slices.IndexFunc(nodes, func(n int) bool { return j.Alloc.Nodes[n].Node == name })
			if i < 0 {
				return nil, fmt.Errorf("--distribution=arbitrary: task %d is to run on %s, and the step has only %d nodes: "+
					"raise --nodes", rank, name, len(nodes))
			}
			out[i] = append(out[i], int32(rank))
		}
		return out, nil
	}
	room := make([]int, len(nodes))
	total := 0
	for i := range nodes {
		room[i] = sizes[i] / perTask
		if need.Overcommit {
			room[i] = max(room[i], (tasks+len(nodes)-1)/len(nodes))
		}
		if need.TasksPerNode > 0 {
			room[i] = min(room[i], int(need.TasksPerNode))
		}
		total += room[i]
	}
	if total < tasks {
		if need.TasksPerNode > 0 && int(need.TasksPerNode)*len(nodes) < tasks {
			return nil, fmt.Errorf("%d tasks are more than --ntasks-per-node=%d on %d nodes", tasks, need.TasksPerNode,
				len(nodes))
		}
		return nil, at(least(room), "More processors requested than permitted: %d tasks with %d CPUs each, and the step's "+
			"nodes have %d CPUs of job %d; --overcommit lets tasks share CPUs",
			tasks, perTask, sum(sizes), j.ID)
	}
	if fewer := unitsRoom(j, nodes, room, need); sum(fewer) >= tasks { // else placeGres says what is missing
		room = fewer
	}
	counts := make([]int, len(nodes))
	next := int32(0)
	give := func(i, n int) int {
		n = min(n, room[i]-counts[i], tasks-int(next))
		for range n {
			out[i] = append(out[i], next)
			next++
		}
		counts[i] += n
		return n
	}
	switch need.Dist {
	case proto.DistCyclic, proto.DistPlane:
		size := 1
		if need.Dist == proto.DistPlane {
			size = int(max(need.Plane, 1))
		}
		for int(next) < tasks {
			for i := range nodes {
				give(i, size)
			}
		}
	default:
		for i, n := range ask.Blocks(room, tasks, need.Pack) {
			give(i, n)
		}
	}
	return out, nil
}

// unitsRoom bounds each node's room by the units that the job has there of what each task is to have, as GPUs.
func unitsRoom(j *Job, nodes, room []int, need *proto.StepNeed) []int {
	out := slices.Clone(room)
	for _, g := range need.Gres {
		if g.Per != model.PerTask || g.Count == 0 || j.onlyAsks(g) {
			continue
		}
		for i, n := range nodes {
			have := gresOf(j, &proto.StepNode{Index: int32(n)}, g)
			out[i] = min(out[i], int(have/g.Count))
		}
	}
	return out
}

func sum(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

// free gives the free part of a set on one node of the job, and the step that holds most of it.
func free(all model.Bits, held []Holding, index int32, of func(*proto.StepNode) model.Bits) (left model.Bits,
	holder int32, holds int) {
	left, holder = all, -1
	for i := range held {
		for k := range held[i].Nodes {
			n := &held[i].Nodes[k]
			if n.Index != index {
				continue
			}
			taken := all.And(of(n))
			if c := taken.Count(); c > holds {
				holder, holds = held[i].ID, c
			}
			left = left.Minus(taken)
		}
	}
	return left, holder, holds
}

// inherited gives the parent step's part of a node; nil without a parent.
func inherited(parent []proto.StepNode, index int32) *proto.StepNode {
	for i := range parent {
		if parent[i].Index == index {
			return &parent[i]
		}
	}
	return nil
}

// placeCPUs gives each node's part its CPUs.
func placeCPUs(j *Job, held []Holding, parent, out []proto.StepNode, need *proto.StepNeed) error {
	perTask := int(max(need.CPUsPerTask, 1))
	for i := range out {
		n := &out[i]
		all := j.Alloc.Nodes[n.Index].CPUs
		if p := inherited(parent, n.Index); p != nil {
			all = p.CPUs
		}
		if need.Overlap || len(parent) > 0 {
			n.CPUs = all
			continue
		}
		left, holder, holds := free(all, held, n.Index, func(s *proto.StepNode) model.Bits { return s.CPUs })
		want := all.Count()
		if need.Exact {
			want = len(n.Ranks) * perTask
			if gpus := gresCount(n.Gres, model.GPUName); need.CPUsPerGPU > 0 && gpus > 0 {
				want = max(want, gpus*int(need.CPUsPerGPU))
			}
			if need.Overcommit {
				want = min(want, all.Count())
			}
			if want > all.Count() {
				return at(i, "More processors requested than permitted: the step wants %d CPUs on %s, job %d has %d there",
					want, n.Node, j.ID, all.Count())
			}
		}
		if left.Count() < want {
			way := "use --exact with -c to take only what the step needs, or --overlap to share"
			if need.Exact {
				way = "use --overlap to share them"
			}
			return busyAt(i, "step %d.%d holds %d of %d CPUs on %s; %s", j.ID, holder, holds, all.Count(), n.Node, way)
		}
		n.CPUs = left.First(want)
	}
	return nil
}

// placeMemory counts memory only if a step asks for some: otherwise it shares the job's with all other steps.
func placeMemory(j *Job, held []Holding, _, out []proto.StepNode, need *proto.StepNeed) error {
	for i := range out {
		n := &out[i]
		switch {
		case need.MemPerNode > 0:
			n.MemMiB = need.MemPerNode
		case need.MemPerCPU > 0:
			cpus := int64(n.CPUs.Count())
			if need.CPUsPerTask > 0 {
				cpus = int64(len(n.Ranks)) * int64(need.CPUsPerTask)
			}
			n.MemMiB = need.MemPerCPU * cpus
		case need.MemPerGPU > 0:
			n.MemMiB = need.MemPerGPU * int64(gresCount(n.Gres, model.GPUName))
		}
		all := j.Alloc.Nodes[n.Index].MemMiB
		switch {
		case n.MemMiB == 0 || all == 0:
			continue
		case n.MemMiB > all:
			return at(i, "Memory required by task is not available: the step wants %d MiB on %s, job %d has %d there",
				n.MemMiB, n.Node, j.ID, all)
		case need.Overlap:
			continue
		}
		left, holder, most := all, int32(-1), int64(0)
		for k := range held {
			if h := inherited(held[k].Nodes, n.Index); h != nil && h.MemMiB > 0 {
				left -= h.MemMiB
				if h.MemMiB > most {
					holder, most = held[k].ID, h.MemMiB
				}
			}
		}
		if left < n.MemMiB {
			return busyAt(i,
				"step %d.%d holds %d of %d MiB of memory on %s, the step wants %d; use a smaller --mem, or --overlap to share",
				j.ID, holder, most, all, n.Node, n.MemMiB)
		}
	}
	return nil
}

func gresCount(list []model.GresAlloc, name string) int {
	n := 0
	for i := range list {
		if list[i].Name == name {
			n += list[i].Index.Count()
		}
	}
	return n
}

// placeGres gives each node's part its generic resources: all that the job has there, or those that the step names.
func placeGres(j *Job, held []Holding, parent, out []proto.StepNode, need *proto.StepNeed) error {
	if need.NoGres {
		return nil
	}
	wants, err := gresPerNode(j, out, need)
	if err != nil {
		return err
	}
	for i := range out {
		n := &out[i]
		have := j.Alloc.Nodes[n.Index].Gres
		if p := inherited(parent, n.Index); p != nil {
			have = p.Gres
		}
		if len(need.Gres) == 0 && need.TasksPerGPU == 0 {
			for k := range have {
				if err := takeGres(j, held, parent, n, have[k:k+1], have[k].Name, have[k].Type, have[k].Index.Count(),
					need); err != nil {
					return notHere(i, err)
				}
			}
			continue
		}
		for _, w := range wants[i] {
			if err := takeGres(j, held, parent, n, have, w.Name, w.Type, int(w.Count), need); err != nil {
				return notHere(i, err)
			}
		}
	}
	return nil
}

// gresPerNode turns the step's requests into counts for each of its nodes. Several ways to ask for the same units (for
// each node, task, and in all) don't add up: the largest of what is asked for each node and task counts, and a number
// in all only where nothing else does.
func gresPerNode(j *Job, out []proto.StepNode, need *proto.StepNeed) ([][]model.GresReq, error) {
	wants := make([][]model.GresReq, len(out))
	each, inAll := []model.GresReq(nil), []model.GresReq(nil)
	for _, g := range need.Gres {
		switch {
		case j.onlyAsks(g):
		case g.Count > MaxIndex:
			return nil, inSlurmsWords("Invalid generic resource (gres) specification: the step wants %d of %s: at most %d",
				g.Count, GresName(g.Name, g.Type), MaxIndex)
		case g.Per == model.PerJob:
			inAll = append(inAll, g)
		default:
			each = append(each, g)
		}
	}
	for _, g := range slices.Concat(each, inAll) {
		same := func(w model.GresReq) bool { return w.Name == g.Name && strings.EqualFold(w.Type, g.Type) }
		if g.Per == model.PerJob && slices.ContainsFunc(each, same) {
			continue
		}
		left := g.Count
		for i := range out {
			w := g
			switch g.Per {
			case model.PerTask:
				w.Count = g.Count * int32(len(out[i].Ranks))
			case model.PerJob:
				have := gresOf(j, &out[i], g)
				// Each following node keeps one; this node gets as many as it has of the rest.
				w.Count = min(have, left-int32(len(out)-1-i))
				w.Count = max(w.Count, 0)
				left -= w.Count
			}
			if k := slices.IndexFunc(wants[i], same); k >= 0 {
				wants[i][k].Count = max(wants[i][k].Count, w.Count)
			} else if w.Count > 0 {
				wants[i] = append(wants[i], w)
			}
		}
		if g.Per == model.PerJob && left > 0 {
			return nil, at(poorest(j, out, g),
				"Invalid generic resource (gres) specification: the step wants %d of %s, job %d has %d on the step's nodes",
				g.Count, GresName(g.Name, g.Type), j.ID, g.Count-left)
		}
	}
	isGPU := func(g model.GresReq) bool { return g.Name == model.GPUName }
	if need.TasksPerGPU > 0 && !slices.ContainsFunc(need.Gres, isGPU) {
		for i := range out {
			n := (int32(len(out[i].Ranks)) + need.TasksPerGPU - 1) / need.TasksPerGPU
			wants[i] = append(wants[i], model.GresReq{Name: model.GPUName, Count: n})
		}
	}
	return wants, nil
}

func GresName(name, typ string) string {
	if typ != "" {
		return name + ":" + typ
	}
	return name
}

// takeGres adds count units to n: free ones, smallest indices first.
func takeGres(j *Job, held []Holding, parent []proto.StepNode, n *proto.StepNode, have []model.GresAlloc, name,
	typ string, count int, need *proto.StepNeed) error {
	if count == 0 {
		return nil
	}
	got, total := 0, 0
	var holder int32 = -1
	var holds int
	for k := range have {
		a := &have[k]
		if a.Name != name || !model.TypeFits(name, typ, a.Type) {
			continue
		}
		total += a.Index.Count()
		mine := func(s *proto.StepNode) model.Bits {
			var b model.Bits
			for x := range s.Gres {
				if s.Gres[x].Name == a.Name && s.Gres[x].Type == a.Type {
					b = b.Or(s.Gres[x].Index)
				}
			}
			return b
		}
		left := a.Index.Minus(mine(n))
		if !need.Overlap && len(parent) == 0 {
			var who int32
			var most int
			left, who, most = free(left, held, n.Index, mine)
			if most > holds {
				holder, holds = who, most
			}
		}
		take := min(count-got, left.Count())
		if take > 0 {
			n.Gres = append(n.Gres, model.GresAlloc{Name: a.Name, Type: a.Type, Index: left.First(take), Share: a.Share})
			got += take
		}
	}
	what := GresName(name, typ)
	switch {
	case got == count:
		slices.SortStableFunc(n.Gres, func(a, b model.GresAlloc) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	case total < count:
		return inSlurmsWords(
			"Invalid generic resource (gres) specification: the step wants %d of %s on %s, job %d has %d there", count, what,
			n.Node, j.ID, total)
	}
	shown, way := what, "use --overlap to share them, or --gres=none"
	if name == model.GPUName {
		shown = "GPUs"
		way = "use --overlap, or -G1 in both steps to take only some"
		if len(need.Gres) > 0 || need.TasksPerGPU > 0 {
			way = "use --overlap to share them"
		}
	}
	return &BusyError{fmt.Sprintf("step %d.%d holds %d of %d %s on %s; %s", j.ID, holder, holds, total, shown,
		n.Node, way)}
}

// inSlurmsWords is an error that begins with Slurm's text, for tools that search for it.
func inSlurmsWords(format string, a ...any) error { return fmt.Errorf(format, a...) }
