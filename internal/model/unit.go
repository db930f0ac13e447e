package model

import (
	"cmp"
	"slices"

	"gbatch/internal/wire"
)

// Units of a generic resource that are out of service: new jobs don't get them. One bad GPU takes only itself out, not
// its node.

// OutKind says why a unit is out. The numbers are stored: append only.
type OutKind uint8

// The kinds.
const (
	OutDrained OutKind = iota + 1 // by an operator, until one resumes it
	OutFault                      // by a fault that its node found, until an operator resumes it
	OutInUse                      // by processes outside of jobs, until they are gone
	// in service: a fault that an operator has dealt with, as long as the node still reports it
	OutCleared
	OutSpent // reported by nodes: a fault that lets running jobs go on; the unit is then OutFault
	OutLost  // by a fault that GpuRecoverProgram could not mend, until an operator resumes it
)

// UnitOut is one unit that is out of service, and why.
type UnitOut struct {
	Name   string // of the resource
	Index  int32
	Kind   OutKind
	Reason string
	By     string // who took it out: a user, or gbatch
	At     Time
	Stamp  uint64 // stamp of the latest known fault (UnitTell)
}

func (x *UnitOut) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.Kind)
	wire.Text(c, &x.Reason, MaxText)
	wire.Text(c, &x.By, MaxName)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Stamp)
}

// UnitTell is a node's report on one of its units. Each time a node reports on all its units.
type UnitTell struct {
	Name  string
	Index int32
	Kind  OutKind // OutFault, OutSpent, OutLost or OutInUse
	Text  string
	Stamp uint64 // of a fault: it grows with each new fault of the node
}

func (x *UnitTell) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.Kind)
	wire.Text(c, &x.Text, MaxText)
	wire.Int(c, &x.Stamp)
}

// GPUHeld is how much of a GPU's memory processes outside of jobs hold.
type GPUHeld struct {
	Index  int32
	MemMiB int64 // rounded up to HeldStepMiB
}

func (x *GPUHeld) Wire(c *wire.C) {
	wire.Int(c, &x.Index)
	wire.Int(c, &x.MemMiB)
}

// HeldStepMiB is the step in which nodes report such memory: they don't report smaller changes.
const HeldStepMiB = 512

// GPUTag is a model that a GPU has loaded: a job that asked for it (--prefer=model:NAME) has run there.
type GPUTag struct {
	GPU  int32
	Name string
	At   Time // end of its last use; 0: a job uses it
}

func (x *GPUTag) Wire(c *wire.C) {
	wire.Int(c, &x.GPU)
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.At)
}

// Loaded gives the tags of a node that count at a moment.
func (n *Node) Loaded(now Time, c *GPUCache) []GPUTag {
	var out []GPUTag
	of := int32(0) // how many of the GPU are in out
	for i, t := range n.Tags {
		if i > 0 && n.Tags[i-1].GPU != t.GPU {
			of = 0
		}
		if of < c.Tags && (t.At == 0 || t.At.Add(c.TimeS) > now) {
			out = append(out, t)
			of++
		}
	}
	return out
}

// Warm gives the GPUs of a node that have a model loaded.
func (n *Node) Warm(name string, now Time, c *GPUCache) Bits {
	var out Bits
	if name == "" {
		return nil
	}
	for _, t := range n.Loaded(now, c) {
		if t.Name == name {
			out = out.With(int(t.GPU))
		}
	}
	return out
}

// FullOfModels gives the GPUs of a node that have as many models loaded as are remembered.
func (n *Node) FullOfModels(now Time, c *GPUCache) Bits {
	var out Bits
	gpu, loaded := int32(-1), int32(0)
	for _, t := range n.Loaded(now, c) { // by GPUs
		if t.GPU != gpu {
			gpu, loaded = t.GPU, 0
		}
		if loaded++; loaded >= c.Tags {
			out = out.With(int(t.GPU))
		}
	}
	return out
}

// Tag gives a node's tags after somebody has said that GPUs have models loaded, or have them no more. What a job uses
// stays in use.
func (n *Node) Tag(loaded, gone []string, gpus Bits, now Time, c *GPUCache) []GPUTag {
	list := slices.DeleteFunc(slices.Clone(n.Tags), func(t GPUTag) bool {
		return gpus.Has(int(t.GPU)) && slices.Contains(gone, t.Name)
	})
	for _, name := range loaded {
		idle := gpus
		for _, t := range list {
			if t.Name == name && t.At == 0 {
				idle = idle.Minus(UpTo(int(t.GPU) + 1).Minus(UpTo(int(t.GPU))))
			}
		}
		next := &Node{Tags: (&Node{Tags: list}).Load(name, idle, now, c)}
		list = next.LeaveLoaded(name, idle, now)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// Load gives a node's tags after jobs have begun to use a model on GPUs. The model that was used least recently makes
// room.
func (n *Node) Load(name string, gpus Bits, now Time, c *GPUCache) []GPUTag {
	list := slices.DeleteFunc(slices.Clone(n.Tags), func(t GPUTag) bool { return t.Name == name && gpus.Has(int(t.GPU)) })
	gpus.Each(func(u int) bool {
		list = append(list, GPUTag{GPU: int32(u), Name: name})
		return true
	})
	return (&Node{Tags: latestFirst(list)}).Loaded(now, c)
}

// LeaveLoaded gives a node's tags after a job's use of a model on GPUs has ended. Those that are gone stay gone.
func (n *Node) LeaveLoaded(name string, gpus Bits, now Time) []GPUTag {
	list := slices.Clone(n.Tags)
	for i := range list {
		if t := &list[i]; t.Name == name && gpus.Has(int(t.GPU)) {
			t.At = now
		}
	}
	return latestFirst(list)
}

func latestFirst(list []GPUTag) []GPUTag {
	slices.SortStableFunc(list, func(a, b GPUTag) int {
		switch {
		case a.GPU != b.GPU:
			return cmp.Compare(a.GPU, b.GPU)
		case a.At == 0 || b.At == 0:
			return cmp.Compare(a.At, b.At)
		}
		return cmp.Compare(b.At, a.At)
	})
	return list
}

// Unload gives a node's tags without those of some GPUs.
func (n *Node) Unload(gone func(gpu int32) bool) []GPUTag {
	if !slices.ContainsFunc(n.Tags, func(t GPUTag) bool { return gone(t.GPU) }) {
		return n.Tags
	}
	list := slices.DeleteFunc(slices.Clone(n.Tags), func(t GPUTag) bool { return gone(t.GPU) })
	if len(list) == 0 {
		return nil
	}
	return list
}

// MaxUnitTells bounds a node's report on its units.
const MaxUnitTells = 1024

// OutOf gives the units of a resource that new jobs don't get. The shares of a GPU are out with it.
func (n *Node) OutOf(gres string) Bits {
	if len(n.Out) == 0 {
		return nil
	}
	var out Bits
	mark := func(i int) {
		out = out.Or(UpTo(i + 1).Minus(UpTo(i)))
	}
	for i := range n.Out {
		o := &n.Out[i]
		if o.Kind == OutCleared {
			continue
		}
		if o.Name == gres {
			mark(int(o.Index))
		}
		if o.Name != GPUName || n.Def == nil {
			continue
		}
		for k := range n.Def.Gres {
			d := &n.Def.Gres[k]
			if d.Name != gres {
				continue
			}
			at := int(d.First)
			for _, s := range d.Over {
				if s.GPU == o.Index {
					for u := range int(s.Count) {
						mark(at + u)
					}
				}
				at += int(s.Count)
			}
		}
	}
	return out
}

// TellUnits gives a node's units that are out after a report on all its units, and the indices of new faults in that
// list. Units that an operator has drained stay out. A fault stays until an operator has dealt with it, even if the
// node does not report it any more; use by foreign processes ends when the node no longer reports it. If the list
// differs from out it is a new one; otherwise changed is false.
func TellUnits(out []UnitOut, tells []UnitTell, at Time, by string) (next []UnitOut, fresh []int, changed bool) {
	type told struct{ fault, use *UnitTell }
	said, order := make(map[unitKey]told, len(tells)), make([]unitKey, 0, len(out)+len(tells))
	known := make(map[unitKey]UnitOut, len(out))
	for _, o := range out {
		key := unitKey{o.Name, o.Index}
		known[key] = o
		order = append(order, key)
	}
	for i := range tells {
		t := &tells[i]
		key := unitKey{t.Name, t.Index}
		x, again := said[key]
		if _, ok := known[key]; !ok && !again {
			order = append(order, key)
		}
		if t.Kind == OutFault || t.Kind == OutSpent || t.Kind == OutLost {
			x.fault = t
		} else {
			x.use = t
		}
		said[key] = x
	}
	for _, key := range order {
		o, was := known[key]
		n, t := o, said[key]
		news := t.fault != nil && t.fault.Stamp > o.Stamp
		if news {
			n.Stamp = t.fault.Stamp
		}
		switch {
		case o.Kind == OutFault && t.fault != nil && t.fault.Kind == OutLost:
			n.Kind, n.Reason = OutLost, t.fault.Text
		case o.Kind == OutDrained, o.Kind == OutFault, o.Kind == OutLost:
		case news:
			n = UnitOut{key.name, key.index, OutFault, t.fault.Text, by, at, t.fault.Stamp}
			if t.fault.Kind == OutLost {
				n.Kind = OutLost
			}
		case t.use != nil && (o.Kind != OutInUse || o.Reason != t.use.Text):
			n = UnitOut{key.name, key.index, OutInUse, t.use.Text, by, at, o.Stamp}
		case t.use != nil:
		case t.fault != nil && o.Kind != OutCleared:
			n = UnitOut{key.name, key.index, OutCleared, "", by, at, o.Stamp}
		case t.fault != nil:
		default:
			changed = changed || was
			continue
		}
		if news && t.fault.Kind != OutSpent { // a job may hold it even if it was drained before
			fresh = append(fresh, len(next))
		}
		changed = changed || n != o
		next = append(next, n)
	}
	if !changed {
		return out, nil, false
	}
	return next, fresh, true
}

// EditUnits gives the units that are out after an operator has drained or resumed some.
func EditUnits(out []UnitOut, name string, units []int32, drain bool, reason, by string, at Time) []UnitOut {
	next := slices.Clone(out)
	for _, index := range units {
		k := slices.IndexFunc(next, func(o UnitOut) bool { return o.Name == name && o.Index == index })
		switch {
		case drain && k < 0:
			next = append(next, UnitOut{Name: name, Index: index, Kind: OutDrained, Reason: reason, By: by, At: at})
		case drain:
			next[k].Kind, next[k].Reason, next[k].By, next[k].At = OutDrained, reason, by, at
		case k < 0 || next[k].Kind == OutInUse: // it ends when the node no longer reports it
		case next[k].Stamp != 0:
			next[k].Kind, next[k].Reason, next[k].By, next[k].At = OutCleared, "", by, at
		default:
			next = slices.Delete(next, k, k+1)
		}
	}
	if len(next) == 0 {
		return nil
	}
	return next
}

type unitKey struct {
	name  string
	index int32
}
