package state

import (
	"slices"

	"gbatch/internal/model"
)

// applyConfig replaces the configuration in one step. Nodes keep what runs on them; a node that has left keeps its
// record until its last job has ended.
func (s *State) applyConfig(at model.Time, c *SetConfig) Result {
	s.cfg = c.Config
	if s.instance == 0 {
		s.instance = c.Instance
	}
	s.parts = make(map[string]*model.Partition, len(c.Config.Partitions))
	for _, p := range c.Config.Partitions {
		s.parts[p.Name] = p
	}
	defined := make(map[string]bool, len(c.Config.Nodes))
	for _, def := range c.Config.Nodes {
		defined[def.Name] = true
		n := model.Node{Def: def, BusyAt: at}
		if old, ok := s.nodes.Get(def.Name); ok {
			n = *old
			n.Def = def
		}
		s.nodes.Set(def.Name, &n)
	}
	for _, name := range s.nodes.Keys() {
		n, ok := s.nodes.Get(name)
		if !ok || defined[name] {
			continue
		}
		if len(n.Jobs) == 0 {
			s.nodes.Delete(name)
			continue
		}
		gone := *n
		gone.Admin, gone.Reason, gone.ReasonBy, gone.ReasonAt = model.NodeDrain, "not in the configuration any more", "gbatch", at
		s.nodes.Set(name, &gone)
	}
	s.plan()
	return Result{Changed: true}
}

// applyJoin registers a node's daemon. Attempts that had started there and that it doesn't know any more are lost.
func (s *State) applyJoin(at model.Time, c *Join) Result {
	old, ok := s.nodes.Get(c.Node)
	if !ok {
		return Result{Refusal: NoSuchNode}
	}
	rebooted := old.BootID != "" && old.BootID != c.BootID
	n := *old
	n.Link, n.LinkAt = model.LinkUp, at
	n.BootID, n.BootAt, n.UpSince = c.BootID, c.BootAt, c.UpSince
	n.Version, n.OS, n.Arch = c.Version, c.OS, c.Arch
	switch {
	case c.Problem != "":
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeDrain, c.Problem, "gbatch", at
	case n.Admin == model.NodeDown && n.ReasonBy == "gbatch" && s.cfg.Params.ReturnToService > 0:
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeUp, "", "", 0
	}
	s.nodes.Set(c.Node, &n)
	for _, id := range slices.Clone(n.Jobs) {
		j, ok := s.jobs.Get(id)
		if !ok || j.Run == nil {
			continue
		}
		batch := j.Run.Alloc.Nodes[0].Node == c.Node
		known := slices.ContainsFunc(c.Known, func(r Report) bool { return r.Job == j.ID && r.Attempt == j.Attempt })
		switch {
		case rebooted:
			s.nodeFailed(j, at)
		case !batch || known:
		case j.State == model.Completing && j.Run.Launched == 0: // it was ended before it was launched
			s.ended(j, at, at, model.Exit{})
		case j.Run.Launched != 0 && j.State == model.Completing:
			s.ended(j, at, at, model.Exit{Unknown: true, Text: "the node lost the job's exit status"})
		case j.Run.Launched != 0:
			s.nodeFailed(j, at)
		}
	}
	s.plan()
	return Result{Changed: true}
}

// nodeFailed ends a job whose node is gone, or puts it back into the queue. A job that was being cancelled stays so.
func (s *State) nodeFailed(j *model.Job, at model.Time) {
	exit := model.Exit{Unknown: true, Text: "its node failed"}
	if j.State == model.Completing {
		s.ended(j, at, at, exit)
		return
	}
	s.finish(j, at, at, model.NodeFail, model.ReasonNodeDown, exit, 0, j.Spec.Requeue, model.NotHeld)
}

// applyLost marks silent nodes. Their jobs are taken for dead; the node's resources are not given out before it has
// registered again.
func (s *State) applyLost(at model.Time, c *Lost) Result {
	res := Result{}
	for _, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok || old.Link != model.LinkUp {
			continue
		}
		n := *old
		n.Link, n.LinkAt = model.LinkLost, at
		if n.Reason == "" {
			n.Reason, n.ReasonBy, n.ReasonAt = "Not responding", "gbatch", at
		}
		s.nodes.Set(name, &n)
		res.Changed = true
		for _, id := range slices.Clone(n.Jobs) {
			if j, ok := s.jobs.Get(id); ok && j.Run != nil {
				s.nodeFailed(j, at)
			}
		}
	}
	s.plan()
	return res
}

func (s *State) applyNodeEdit(at model.Time, c *NodeEdit) Result {
	res := Result{Each: make([]Refusal, len(c.Nodes))}
	for i, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok {
			res.Each[i] = NoSuchNode
			continue
		}
		n := *old
		if !c.Keep {
			n.Admin = c.Admin
		}
		if n.Admin == model.NodeUp {
			n.Reason, n.ReasonBy, n.ReasonAt = "", "", 0
		} else if c.Reason != "" {
			n.Reason, n.ReasonBy, n.ReasonAt = c.Reason, c.By, at
		}
		s.nodes.Set(name, &n)
		res.Changed = true
		if n.Admin == model.NodeDown && old.Admin != model.NodeDown {
			for _, id := range slices.Clone(n.Jobs) {
				if j, ok := s.jobs.Get(id); ok && j.Run != nil && j.State != model.Completing {
					s.stopRunning(j, at, model.StopNodeFail, 0)
				}
			}
		}
	}
	s.plan()
	return res
}
