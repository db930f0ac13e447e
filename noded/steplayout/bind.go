package steplayout

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// bind.go computes the CPUs and GPUs to which each task of a step is bound on this node, from the step's resources.
// gshim applies the result, and the environment has it.

// Shape is a node's topology: CPU i is a thread of core i/threads, and so on.
type Shape struct {
	Sockets, Cores, Threads int
	NUMA                    map[int]int // memory node by the machine's CPU; nil: unknown
}

func (s *Shape) core(cpu int) int   { return cpu / max(s.Threads, 1) }
func (s *Shape) socket(cpu int) int { return s.core(cpu) / max(s.Cores, 1) }

// BindCPUs gives each local task its CPUs, by the node's numbers; nil if tasks are not bound. notes are sentences for
// the user.
func BindCPUs(s *Shape, part *proto.StepNode, b *proto.StepBind, need *proto.StepNeed) (tasks []model.Bits,
	notes []string) {
	n := len(part.Ranks)
	usable := oneOf(s, part.CPUs, b.OneThread, int(need.ThreadsCore))
	perTask := int(max(need.CPUsPerTask, 1))
	mode := b.CPU
	if mode == proto.BindAuto {
		mode = proto.BindNone
		if n > 0 && n*perTask <= usable.Count() && (need.Exact && n > 1 || n > 1 && n*perTask == usable.Count() ||
			b.OneThread) {
			mode = proto.BindThreads
		} else if b.CPUElse != proto.BindAuto {
			mode = b.CPUElse
		}
	}
	switch mode {
	case proto.BindNone:
		return nil, nil
	case proto.BindMap, proto.BindMask:
		return bindList(part, b, mode)
	case proto.BindRank:
		all := Members(usable)
		if len(all) == 0 {
			return nil, []string{"tasks are not bound to CPUs: the step has none on " + part.Node}
		}
		for i := range n {
			tasks = append(tasks, model.Bits(nil).With(all[i%len(all)]))
		}
		return tasks, nil
	}
	if n*perTask > usable.Count() && (b.CPUDefault || b.CPU == proto.BindAuto) {
		return nil, nil
	}
	if n*perTask > usable.Count() {
		return nil, []string{fmt.Sprintf("tasks are not bound to CPUs: %d of %d CPUs each are more than the step's %d on %s",
			n, perTask, usable.Count(), part.Node)}
	}
	tasks = deal(s, usable, n, perTask, b.Cores, b.Threads)
	for i := range tasks {
		switch mode {
		case proto.BindCores:
			tasks[i] = widen(part.CPUs, tasks[i], s.core)
		case proto.BindSockets, proto.BindLdoms, proto.BindRankLdom:
			tasks[i] = widen(part.CPUs, tasks[i], s.socket)
		}
	}
	return tasks, nil
}

// oneOf keeps the first threads of each core, if not all may be used.
func oneOf(s *Shape, cpus model.Bits, one bool, threads int) model.Bits {
	if one {
		threads = 1
	}
	if threads <= 0 || threads >= s.Threads {
		return cpus
	}
	var out model.Bits
	count := map[int]int{}
	cpus.Each(func(c int) bool {
		if count[s.core(c)]++; count[s.core(c)] <= threads {
			out = out.With(c)
		}
		return true
	})
	return out
}

// deal gives each of n tasks per CPUs: core after core (block), or from one socket after the other (cyclic, srun's
// default). threads is the order of the CPUs within a socket.
func deal(s *Shape, cpus model.Bits, n, per int, how, threads uint8) []model.Bits {
	out := make([]model.Bits, n)
	bySocket := sockets(s, cpus)
	for _, list := range bySocket {
		overCores(s, list, per, threads)
	}
	if how == proto.DistBlock {
		all := slices.Concat(bySocket...)
		for i := range n {
			for _, c := range all[i*per : (i+1)*per] {
				out[i] = out[i].With(c)
			}
		}
		return out
	}
	at := 0
	next := func(i int) { // gives task i a CPU of the socket whose turn it is, or of the next that has one
		for len(bySocket[at%len(bySocket)]) == 0 {
			at++
		}
		k := at % len(bySocket)
		out[i] = out[i].With(bySocket[k][0])
		bySocket[k] = bySocket[k][1:]
	}
	if how == proto.DistFCyclic {
		for range per {
			for i := range n {
				next(i)
				at++
			}
		}
		return out
	}
	for i := range n {
		for tries := 0; tries < len(bySocket) && len(bySocket[at%len(bySocket)]) < per; tries++ {
			at++ // a socket with room for the whole task, if there is one
		}
		for range per {
			next(i)
		}
		at++
	}
	return out
}

// sockets lists a set's CPUs by socket.
func sockets(s *Shape, cpus model.Bits) [][]int {
	var out [][]int
	last := -1
	cpus.Each(func(c int) bool {
		if s.socket(c) != last || out == nil {
			last = s.socket(c)
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
		return true
	})
	return out
}

// overCores orders a socket's CPUs: the threads of a core together (block), or those of a task and then the next core
// (cyclic), or each on another core than the one before (fcyclic).
func overCores(s *Shape, cpus []int, per int, how uint8) {
	if how != proto.DistCyclic && how != proto.DistFCyclic {
		return
	}
	together := 1
	if how == proto.DistCyclic {
		together = per
	}
	slices.SortStableFunc(cpus, func(a, b int) int {
		threads := max(s.Threads, 1)
		return cmp.Or(cmp.Compare(a%threads/together, b%threads/together), cmp.Compare(a, b))
	})
}

// widen gives the CPUs of all that share a core or socket with one of some.
func widen(all, some model.Bits, of func(int) int) model.Bits {
	in := map[int]bool{}
	some.Each(func(c int) bool { in[of(c)] = true; return true })
	var out model.Bits
	all.Each(func(c int) bool {
		if in[of(c)] {
			out = out.With(c)
		}
		return true
	})
	return out
}

func Members(b model.Bits) []int {
	var out []int
	b.Each(func(i int) bool { out = append(out, i); return true })
	return out
}

// bindList binds by a list of CPUs or masks, which begins again if it is shorter than the tasks.
func bindList(part *proto.StepNode, b *proto.StepBind, mode uint8) (tasks []model.Bits, notes []string) {
	for i := range part.Ranks {
		entry := b.CPUList[i%len(b.CPUList)]
		set, err := IndexSet(entry, mode == proto.BindMask)
		if err != nil {
			return nil, []string{"--cpu-bind: " + err.Error()}
		}
		in := set.And(part.CPUs)
		if in.Empty() {
			notes = append(notes,
				fmt.Sprintf("--cpu-bind: the step has none of the CPUs %s on %s; task %d can use all of its %d CPUs", set,
					part.Node, part.Ranks[i], part.CPUs.Count()))
			in = part.CPUs
		}
		tasks = append(tasks, in)
	}
	return tasks, notes
}

const MaxIndex = 8192 // of CPUs, GPUs and memory nodes in lists

// IndexSet reads one entry of a list: an index, or a hexadecimal mask.
func IndexSet(entry string, mask bool) (model.Bits, error) {
	if !mask {
		n, err := strconv.ParseUint(entry, 0, 16)
		if err != nil || n >= MaxIndex {
			return nil, fmt.Errorf("'%s' is no number from 0 to %d", entry, MaxIndex-1)
		}
		return model.Bits(nil).With(int(n)), nil
	}
	digits := strings.TrimPrefix(strings.ToLower(entry), "0x")
	n, ok := new(big.Int).SetString(digits, 16)
	if !ok || n.Sign() <= 0 || n.BitLen() > MaxIndex {
		return nil, fmt.Errorf("'%s' is no hexadecimal mask with a bit set", entry)
	}
	var out model.Bits
	for i := range n.BitLen() {
		if n.Bit(i) == 1 {
			out = out.With(i)
		}
	}
	return out, nil
}

// BindGPUs gives each local task its visible GPUs; nil if every task sees all of the step's. near gives the CPUs near a
// GPU; nil if they are unknown. Lists of --gpu-bind=map_gpu and mask_gpu count within the step's GPUs when relative,
// and name the node's GPUs otherwise.
func BindGPUs(part *proto.StepNode, b *proto.StepBind, cpus []model.Bits, near func(gpu int) model.Bits,
	relative bool) (tasks []model.Bits, notes []string) {
	var all model.Bits
	for i := range part.Gres {
		if part.Gres[i].Name == model.GPUName {
			all = all.Or(part.Gres[i].Index)
		}
	}
	gpus := Members(all)
	known := !slices.ContainsFunc(gpus, func(g int) bool { return near(g).Empty() })
	mode, count := b.GPU, int(max(b.GPUCount, 1))
	switch {
	case mode == proto.BindAuto && b.TasksPerGPU > 0: // as in Slurm
		mode, count = proto.BindSingle, int(b.TasksPerGPU)
	case mode == proto.BindSingle && !known:
		mode = proto.BindPerTask // without knowledge of what is near, blocks of N
	}
	if len(gpus) == 0 || mode == proto.BindAuto || mode == proto.BindNone {
		return nil, nil
	}
	shared := map[int]int{} // with single: tasks on each GPU
	for i := range part.Ranks {
		var own model.Bits
		switch mode {
		case proto.BindClosest, proto.BindSingle:
			mine := part.CPUs
			if i < len(cpus) {
				mine = cpus[i]
			}
			for _, g := range gpus {
				if !known || near(g).Overlaps(mine) {
					own = own.With(g)
				}
			}
			if own.Empty() {
				own = all
			}
			if mode == proto.BindSingle {
				own = leastShared(own, shared, count)
			}
		case proto.BindPerTask:
			for k := range min(count, len(gpus)) {
				own = own.With(gpus[(i*count+k)%len(gpus)])
			}
		case proto.BindMap, proto.BindMask:
			entry := b.GPUList[i%len(b.GPUList)]
			set, err := IndexSet(entry, mode == proto.BindMask)
			if err != nil {
				return nil, []string{"--gpu-bind: " + err.Error()}
			}
			set.Each(func(k int) bool {
				switch {
				case relative && k < len(gpus):
					own = own.With(gpus[k])
				case !relative && all.Has(k):
					own = own.With(k)
				}
				return true
			})
			if own.Empty() {
				notes = append(notes, fmt.Sprintf("--gpu-bind: the step has no GPU %s on %s; task %d sees all of its %d GPUs", set,
					part.Node, part.Ranks[i], len(gpus)))
				own = all
			}
		}
		tasks = append(tasks, own)
	}
	return tasks, notes
}

// leastShared takes the first GPU with fewer than n tasks, or the one with the fewest.
func leastShared(of model.Bits, shared map[int]int, n int) model.Bits {
	best := -1
	of.Each(func(g int) bool {
		if shared[g] < n && (best < 0 || shared[best] >= n) || best < 0 || shared[best] >= n && shared[g] < shared[best] {
			best = g
		}
		return true
	})
	shared[best]++
	return model.Bits(nil).With(best)
}
