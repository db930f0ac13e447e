package state

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// units.go: single units of a node's generic resources go out of service and come back, with the effects on jobs; GPUs
// are shared.

func (*Units) kind() Kind { return KindUnits }

// load notes that a job's GPUs have its model from now on.
func (s *State) load(j *model.Job, at model.Time) {
	name := j.Spec.Model()
	if name == "" {
		return
	}
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		if old, ok := s.nodes.Get(na.Node); ok {
			n := *old
			n.Tags = old.Load(name, na.GPUs(), at, &s.cfg.Params.Cache)
			s.putNode(na.Node, &n)
		}
	}
}

// applyUnits applies a node's report on its units. A job whose unit has a new fault is ended or requeued: a GPU that
// has fallen off the bus doesn't come back to a running job.
func (s *State) applyUnits(at model.Time, c *Units) Result {
	old, ok := s.nodes.Get(c.Node)
	if !ok {
		return Result{Refusal: NoSuchNode}
	}
	next, fresh, changed := model.TellUnits(old.Out, c.Tells, at, byGbatch)
	if !changed && slices.Equal(old.Held, c.Held) {
		return Result{}
	}
	n := *old
	n.Out, n.Held = next, c.Held
	n.Tags = old.Unload(func(gpu int32) bool { // what repairs it takes its memory
		return slices.ContainsFunc(fresh, func(i int) bool { return next[i].Name == model.GPUName && next[i].Index == gpu })
	})
	s.putNode(c.Node, &n)
	for _, i := range fresh {
		s.unitFailed(&n, &next[i], s.brief(textOf(c.Tells, &next[i])), at)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// textOf gives the text of a unit's latest fault.
func textOf(tells []model.UnitTell, o *model.UnitOut) string {
	for i := range tells {
		if t := &tells[i]; (t.Kind == model.OutFault || t.Kind == model.OutLost) && t.Name == o.Name && t.Index == o.Index {
			return t.Text
		}
	}
	return o.Reason
}

// unitFailed ends the jobs that hold a unit, or shares of it.
func (s *State) unitFailed(n *model.Node, o *model.UnitOut, text string, at model.Time) {
	for _, id := range slices.Clone(n.Jobs) {
		j, ok := s.jobs.Get(id)
		if !ok || !j.State.HasResources() || j.State == model.Completing || !holdsUnit(j.Run.Alloc, n.Def.Name, o) {
			continue
		}
		run := *j.Run
		run.FailedNode = n.Def.Name
		run.StopWhy = fmt.Sprintf("%s %d of node %s: %s", o.Name, o.Index, n.Def.Name, text)
		with := *j
		with.Run = &run
		s.stopRunning(&with, at, model.StopUnitFault, 0)
	}
}

func holdsUnit(a *model.Alloc, node string, o *model.UnitOut) bool {
	for i := range a.Nodes {
		if a.Nodes[i].Node != node {
			continue
		}
		for k := range a.Nodes[i].Gres {
			g := &a.Nodes[i].Gres[k]
			if g.Share != nil && o.Name == model.GPUName && g.Share.GPU == o.Index || g.Share == nil && g.Name == o.Name &&
				g.Index.Has(int(o.Index)) {
				return true
			}
		}
	}
	return false
}

// editUnits applies an operator's change of a node's units.
func (s *State) editUnits(at model.Time, c *NodeEdit, name string, old *model.Node) Refusal {
	tags := len(c.Loaded)+len(c.Gone) > 0
	if c.Keep && !tags {
		return OK // a reason alone changes nothing
	}
	for _, u := range c.Units {
		if u < 0 || !hasGres(old.Def, model.GresAlloc{Name: c.Gres,
			Index: model.UpTo(int(u) + 1).Minus(model.UpTo(int(u)))}) {
			return NotFits
		}
	}
	n := *old
	if tags {
		var gpus model.Bits
		for _, u := range c.Units {
			gpus = gpus.With(int(u))
		}
		n.Tags = old.Tag(c.Loaded, c.Gone, gpus, at, &s.cfg.Params.Cache)
		s.putNode(name, &n)
		return OK
	}
	if c.Gres == model.GPUName {
		n.Tags = old.Unload(func(gpu int32) bool { return slices.Contains(c.Units, gpu) })
	}
	n.Out = model.EditUnits(old.Out, c.Gres, c.Units, c.Admin != model.NodeUp, c.Reason, c.By, at)
	s.putNode(name, &n)
	return OK
}

// knownUnits drops the entries of units that the node's new definition doesn't have.
func knownUnits(out []model.UnitOut, def *model.NodeDef) []model.UnitOut {
	gone := func(o model.UnitOut) bool {
		for i := range def.Gres {
			if d := &def.Gres[i]; d.Name == o.Name && o.Index >= d.First && o.Index < d.First+d.Count {
				return false
			}
		}
		return true
	}
	if !slices.ContainsFunc(out, gone) {
		return out
	}
	return slices.DeleteFunc(slices.Clone(out), gone)
}

// Shared GPUs: a GPU is held whole, or in units of one sharing resource, and it has the memory that its jobs ask for.

// shareable checks that an allocation's GPUs, whole or shared, are compatible with what is in use. The caller has
// already checked that no unit is given twice.
func (s *State) shareable(n *model.Node, na *model.NodeAlloc) bool {
	shares := false
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Share != nil {
			shares = true
			continue
		}
		if model.IsShare(g.Name) && divided(n.Def, g.Name) {
			return false // its GPU is not known
		}
		if g.Name != model.GPUName {
			continue
		}
		for k := range n.Shared {
			if g.Index.Has(int(n.Shared[k].GPU)) {
				return false
			}
		}
	}
	if !shares {
		return true
	}
	whole := n.Used(model.GPUName)
	after := model.AddShared(n.Shared, na.Gres, 1)
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Name == model.GPUName && g.Share == nil {
			whole = whole.Or(g.Index)
		}
	}
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Share == nil {
			continue
		}
		gpu := g.Share.GPU
		d := n.Def.Sharing(g.Name, gpu)
		if d == nil || whole.Has(int(gpu)) || g.Share.MemMiB < 0 || n.OutOf(model.GPUName).Has(int(gpu)) {
			return false
		}
		first, count := d.Units(gpu)
		if g.Index.Empty() || !model.UpTo(int(first+count)).Minus(model.UpTo(int(first))).Contains(g.Index) {
			return false
		}
		for k := range after {
			x := &after[k]
			switch {
			case x.GPU != gpu && d.OneSharing && x.Name == g.Name:
				return false
			case x.GPU != gpu:
			case x.Name != g.Name, x.Count > count:
				return false
			case g.Share.MemMiB > 0 && x.MemMiB > s.shareMem(n.Def, gpu):
				return false
			}
		}
	}
	return true
}

// divided reports whether a node has GPUs that a resource shares.
func divided(d *model.NodeDef, name string) bool {
	return slices.ContainsFunc(d.Gres, func(g model.GresDef) bool { return g.Name == name && len(g.Over) > 0 })
}

// shareMem gives the memory of a GPU that jobs may ask for together, MiB.
func (s *State) shareMem(d *model.NodeDef, gpu int32) int64 {
	g := d.GPUDef(gpu)
	if g == nil {
		return 0
	}
	return g.MemMiB - s.cfg.Params.GPUMemMarginMiB
}

// maxGPUOOMs is how often a job is requeued because it ran out of GPU memory.
const maxGPUOOMs = 3

// afterGPUOOM says whether a job that ran out of GPU memory is requeued, and completes the sentence about it.
func (s *State) afterGPUOOM(j *model.Job, text string) (requeue bool, why string) {
	had, most := s.gpuMem(j)
	next := min(model.MoreGPUMem(had), most)
	switch {
	case !j.Spec.Extra().OOMRequeue:
		return false, text
	case had == 0:
		return false, text + "; it is not requeued, because it is not known how much it had: give --gpu-mem"
	case next <= had:
		return false, fmt.Sprintf("%s; it is not requeued, because no GPU of its partitions has more for it than %dM", text,
			had)
	case j.GPUOOMs >= maxGPUOOMs:
		return false, fmt.Sprintf("%s; it was requeued %d times for that", text, j.GPUOOMs)
	}
	return true, fmt.Sprintf("%s; it is requeued with --gpu-mem=%dM", text, next)
}

// withGPUMem gives the specification of a job that is requeued because it ran out of GPU memory.
func (s *State) withGPUMem(j *model.Job) *model.Spec {
	had, most := s.gpuMem(j)
	sp, more := *j.Spec, j.Spec.Extra()
	more.GPUMemMiB, more.GPUMemAuto = min(model.MoreGPUMem(had), most), false
	sp.More = &more
	s.internSpec(&sp)
	return &sp
}

// GPUMem gives the memory that each of a job's GPUs has for it, the least of them, MiB; 0: not known. It is known for
// as long as its nodes are.
func (v *View) GPUMem(j *model.Job) int64 {
	had, _ := v.gpuMemOf(j)
	return had
}

func (f *facts) gpuMemOf(j *model.Job) (had int64, shared bool) {
	note := func(mib int64) {
		if mib > 0 && (had == 0 || mib < had) {
			had = mib
		}
	}
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		n, ok := f.nodes.Get(na.Node)
		if !ok {
			continue
		}
		for k := range na.Gres {
			if g := &na.Gres[k]; g.Share != nil {
				shared = true
				note(g.Share.MemMiB)
			} else if g.Name == model.GPUName {
				g.Index.Each(func(u int) bool {
					if d := n.Def.GPUDef(int32(u)); d != nil {
						note(d.MemMiB)
					}
					return true
				})
			}
		}
	}
	return had, shared
}

// gpuMem gives the memory that each of a job's GPUs had for it, the least of them, and the most that it could ask for
// in its partitions, MiB; 0: not known.
func (s *State) gpuMem(j *model.Job) (had, most int64) {
	had, shared := s.gpuMemOf(j)
	if asked := j.Spec.Extra().GPUMemMiB; had == 0 {
		had = asked
	}
	for _, name := range j.Spec.Partitions {
		p := s.parts[name]
		if p == nil {
			continue
		}
		for _, node := range p.Nodes {
			n, ok := s.nodes.Get(node)
			if !ok {
				continue
			}
			for i := range n.Def.Gres {
				d := &n.Def.Gres[i]
				if d.Name == model.GPUName && wantsType(j.Spec, d.Type) && (!shared || divides(n.Def, d)) {
					most = max(most, d.MemMiB-s.cfg.Params.GPUMemMarginMiB)
				}
			}
		}
	}
	return had, most
}

// wantsType reports whether a job may have GPUs of a type.
func wantsType(sp *model.Spec, typ string) bool {
	for i := range sp.Gres {
		if g := &sp.Gres[i]; (g.Name == model.GPUName || model.IsShare(g.Name)) && g.Type != "" {
			return strings.EqualFold(g.Type, typ)
		}
	}
	return !model.IsRemote(model.GPUName, typ)
}

// divides reports whether jobs can share the GPUs of an entry.
func divides(d *model.NodeDef, gpus *model.GresDef) bool {
	return slices.ContainsFunc(d.Gres, func(g model.GresDef) bool {
		return slices.ContainsFunc(g.Over, func(o model.Share) bool {
			return o.GPU >= gpus.First && o.GPU < gpus.First+gpus.Count
		})
	})
}

// checkShared: a node's shared GPUs are exactly those that its jobs hold, and no GPU is both whole and shared, or
// shared by two resources.
func (s *State) checkShared(n *model.Node, shared []model.SharedGPU) error {
	if !slices.Equal(n.Shared, shared) {
		return fmt.Errorf("node %s: books shares %v, its jobs hold %v", n.Def.Name, n.Shared, shared)
	}
	for i := range shared {
		if n.Used(model.GPUName).Has(int(shared[i].GPU)) {
			return fmt.Errorf("node %s: GPU %d is held whole and shared by %s", n.Def.Name, shared[i].GPU, shared[i].Name)
		}
	}
	for _, id := range n.Jobs {
		j, _ := s.jobs.Get(id)
		for k := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[k]
			if na.Node != n.Def.Name {
				continue
			}
			for _, g := range na.Gres {
				if g.Share == nil {
					continue
				}
				if x := n.SharesOf(g.Share.GPU); x == nil || x.Name != g.Name {
					return fmt.Errorf("node %s: GPU %d of job %d is shared by %s and something else", n.Def.Name, g.Share.GPU, id,
						g.Name)
				}
			}
		}
	}
	return nil
}
