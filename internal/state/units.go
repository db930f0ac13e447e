package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// units.go: single units of a node's generic resources go out of service and come back, with the effects on jobs.

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
		s.unitFailed(&n, &next[i], textOf(c.Tells, &next[i]), at)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// textOf gives the text of a unit's latest fault.
func textOf(tells []model.UnitTell, o *model.UnitOut) string {
	for i := range tells {
		if t := &tells[i]; t.Kind == model.OutFault && t.Name == o.Name && t.Index == o.Index {
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
	if c.Keep {
		return OK // a reason alone changes nothing
	}
	for _, u := range c.Units {
		if u < 0 || !hasGres(old.Def, model.GresAlloc{Name: c.Gres,
			Index: model.UpTo(int(u) + 1).Minus(model.UpTo(int(u)))}) {
			return NotFits
		}
	}
	n := *old
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
