package state

import (
	"maps"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// applyEdit changes pending jobs and, as far as a field allows, other jobs.
func (s *State) applyEdit(at model.Time, c *Edit) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	if c.Spec != nil && s.tooLong(c.Spec, c.Most) {
		for i := range res.Each {
			res.Each[i] = TooLong
		}
		return res
	}
	ofArray := !slices.ContainsFunc(c.Set, func(f Field) bool { return f != SetThrottle }) // concerns all its tasks
	// Tasks of an array share a specification, and do so after the change.
	changed := map[*model.Spec]*model.Spec{}
	for i := range c.Targets {
		t := c.Targets[i]
		if ofArray {
			t = model.JobRef{Job: t.Job, Task: model.NoTask}
		}
		res.Each[i] = NoSuchJob
		for _, id := range s.hetEdit(c, &t, s.expand(&t, true)) {
			j, ok := s.jobs.Get(id)
			if !ok {
				continue
			}
			r := s.edit(at, c, j, changed)
			if res.Each[i] != OK {
				res.Each[i] = r
			}
			res.Changed = res.Changed || r == OK
		}
		s.wakeAll(at)
	}
	s.plan()
	return res
}

// mayEdit checks whether all of the command's fields can be changed in a job's present state.
func (s *State) mayEdit(c *Edit, j *model.Job) Refusal {
	for _, f := range c.Set {
		switch f {
		case SetThrottle, SetAdminComment:
			continue
		case SetLimit, SetComment, SetName, SetMail, SetRequeue, SetNice, SetBegun:
			if j.State.Finished() {
				return AlreadyDone
			}
			continue
		case SetBegin:
			if s.now.rules >= rulesOwed && j.State == model.Completing && j.Run.Stop == model.StopRequeue {
				continue
			}
		case SetPriority, SetSite, SetHold:
			if slices.Contains(c.Set, SetBegun) {
				continue
			}
		}
		switch {
		case j.State.Finished():
			return AlreadyDone
		case j.State != model.Pending:
			return NotPending
		}
		if f == SetDeps && (len(c.Deps) > MaxDeps || s.circular(j, c.Deps)) {
			return BadDependency
		}
	}
	return OK
}

func (s *State) edit(at model.Time, c *Edit, j *model.Job, changed map[*model.Spec]*model.Spec) Refusal {
	if r := s.mayEdit(c, j); r != OK {
		return r
	}
	if c.Undue && !undue(j) {
		return NotPending
	}
	n := *j
	if n.Spec = changed[j.Spec]; n.Spec == nil {
		n.Spec = s.editedSpec(c, j.Spec)
		changed[j.Spec] = n.Spec
	}
	if n.Spec.WCKey != j.Spec.WCKey {
		n.WCKeyID = s.noteWCKey(n.Spec)
	}
	for _, f := range c.Set {
		switch f {
		case SetHold:
			if c.Hold != model.HeldByUser || n.Hold != model.HeldByAdmin { // an operator's hold is the stronger one
				n.Hold = c.Hold
			}
			n.Special = n.Special && n.Hold != model.NotHeld
			if n.Hold == model.NotHeld && j.Hold != model.NotHeld && !slices.Contains(c.Set, SetPriority) {
				n.Direct = false // a hold cancels a priority that was set by hand, as in Slurm
			}
		case SetPriority:
			n.Priority, n.Direct = c.Priority, c.Direct
			if n.Run != nil && c.Direct {
				run := *n.Run
				run.Priority = c.Priority
				n.Run = &run
			}
		case SetBegin:
			n.Begin, n.Eligible, n.Undue = c.Begin, 0, false
		case SetLimit:
			if j.Run != nil {
				run := *n.Run
				if run.LimitS = c.LimitS; s.now.rules >= rulesLast {
					run.GivesWay = model.NoStop
				}
				n.Run = &run
			}
		case SetThrottle:
			n.Throttle = c.Throttle
		case SetDeps:
			n.Deps = slices.Clone(c.Deps)
			s.correspond(&n)
		case SetAdminComment:
			n.Comment = c.Comment
		case SetSite:
			n.Site = c.Site
		}
	}
	if n.State.Finished() && n.Throttle != j.Throttle && n.Comment == j.Comment {
		s.put(&n) // accounting needs no new record of it
		return OK
	}
	s.settle(&n, at)
	if j.Spec.Name != n.Spec.Name {
		s.wakeNamesakes(j, at)
	}
	return OK
}

// editedSpec gives a specification as the command changes it: the same one if it does not.
func (s *State) editedSpec(c *Edit, old *model.Spec) *model.Spec {
	out := old
	if slices.Contains(c.Set, SetSpec) && c.Spec != nil { // first, because the other fields change it further
		sp := *c.Spec
		sp.UID, sp.GID, sp.Groups, sp.User, sp.Group = old.UID, old.GID, old.Groups, old.User, old.Group
		sp.From = old.From
		sp.Script, sp.Env, sp.Tasklist = old.Script, old.Env, old.Tasklist
		sp.Partitions, sp.Gres = slices.Clone(sp.Partitions), slices.Clone(sp.Gres) // the command has other targets
		sp.ReqNodes, sp.ExcNodes = slices.Clone(sp.ReqNodes), slices.Clone(sp.ExcNodes)
		s.internSpec(&sp)
		out = &sp
	}
	for _, f := range c.Set {
		switch {
		case f == SetLimit:
			sp := *out
			sp.LimitS = c.LimitS
			out = &sp
		case f == SetHold && c.Hold == model.NotHeld && s.doubts(out.Via, "") != "":
			sp := *out
			sp.Via = nil // whoever releases it has looked at it
			out = &sp
		case c.Spec == nil:
		case f == SetDeps:
			sp := *out
			sp.DepText, sp.DepAny = c.Spec.DepText, c.Spec.DepAny
			out = &sp
		case f == SetComment, f == SetName, f == SetMail, f == SetRequeue, f == SetNice:
			out = relabelled(out, c.Spec, f)
			s.internSpec(out)
		}
	}
	return out
}

// relabelled gives a copy of a specification with one field of another one that changes nothing of what the job holds.
func relabelled(old, from *model.Spec, f Field) *model.Spec {
	sp, more := *old, from.Extra()
	switch f {
	case SetComment:
		sp.Comment = from.Comment
	case SetName:
		sp.Name = from.Name
	case SetNice:
		sp.Nice = from.Nice
	case SetMail:
		m := sp.Extra()
		m.Mail, sp.More = more.Mail, &m
	case SetRequeue:
		sp.Requeue = from.Requeue
		if m := sp.Extra(); m.Expedite != more.Expedite {
			m.Expedite, sp.More = more.Expedite, &m
		}
	}
	return &sp
}

// settle judges a job with a new specification, dependencies, hold or begin time, publishes it, and queues its record
// for accounting.
func (s *State) settle(j *model.Job, at model.Time) {
	if j.State != model.Pending {
		s.put(j)
		s.record(j)
		return
	}
	if j.IsArray() && hasKind(j.Deps, model.DepAfterCorr) { // tasks whose counterparts have ended are split off first
		j.Eligible, j.Reason = 0, model.ReasonDependency
		s.put(j)
		s.splitCorresponding(j.ID, at)
		left, ok := s.jobs.Get(j.ID)
		if !ok || !left.IsArray() {
			return // the last task took the record with it
		}
		n := *left
		j = &n
	}
	s.judge(j, at)
	s.put(j)
	s.record(j)
	s.killNever(j.ID, at)
}

// circular reports whether j, with these dependencies, would wait for itself, directly or through other jobs. A
// dependency on an unknown job counts too, because no job can wait for it. DependencyParameters=max_depend_depth ends
// the search after that many jobs.
func (s *State) circular(j *model.Job, deps []model.Dep) bool {
	seen := map[model.JobID]bool{}
	var todo []model.JobID
	add := func(deps []model.Dep, known bool) bool {
		for _, d := range deps {
			switch {
			case d.Kind == model.DepSingleton:
			case known && !s.exists(d.Job, d.Task), d.Job == j.ID, d.Job == root(j):
				return false
			case !seen[d.Job]:
				seen[d.Job] = true
				todo = append(todo, d.Job)
			}
		}
		return true
	}
	if !add(deps, true) {
		return true
	}
	for tested := int32(0); len(todo) > 0; tested++ {
		if most := s.cfg.Params.MaxDepDepth; most > 0 && tested == most {
			return false
		}
		id := todo[0]
		todo = todo[1:]
		for _, rec := range s.wholeJob(id) {
			if t, ok := s.jobs.Get(rec); ok && !add(depsOf(t), false) {
				return true
			}
		}
	}
	return false
}

// Define adds, replaces and removes definitions: all of them, or none. A partition keeps its place in the order, a new
// one goes to the end.
type Define struct {
	Parts     []*model.Partition
	DropParts []string
	Nodes     []*model.NodeDef
	DropNodes []string
	Create    bool // none of Parts, Nodes and Future may be there yet

	// Future are nodes that may come. What was a node until now stands in DropNodes too. A definition in Nodes is no
	// longer one that may come.
	Future []*model.NodeDef
}

func (x *Define) Wire(c *wire.C) {
	wire.Ptrs(c, &x.Parts, model.MaxList)
	wire.Texts(c, &x.DropParts, model.MaxList, model.MaxName)
	wire.Ptrs(c, &x.Nodes, model.MaxList)
	wire.Texts(c, &x.DropNodes, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Create)
	wire.Ptrs(c, &x.Future, model.MaxList)
}

func (*Define) kind() Kind { return KindDefine }

func (s *State) applyDefine(at model.Time, c *Define) Result {
	if r := s.mayDefine(c); r != OK {
		return Result{Refusal: r}
	}
	cfg := *s.cfg
	cfg.Nodes = slices.DeleteFunc(slices.Clone(cfg.Nodes),
		func(n *model.NodeDef) bool { return slices.Contains(c.DropNodes, n.Name) })
	cfg.Partitions = slices.DeleteFunc(slices.Clone(cfg.Partitions),
		func(p *model.Partition) bool { return slices.Contains(c.DropParts, p.Name) })
	for _, def := range c.Nodes {
		if i := slices.IndexFunc(cfg.Nodes, func(n *model.NodeDef) bool { return n.Name == def.Name }); i >= 0 {
			cfg.Nodes[i] = def
		} else {
			cfg.Nodes = append(cfg.Nodes, def)
		}
	}
	cfg.Future = futureAfter(cfg.Future, c, at)
	for _, part := range c.Parts {
		i := slices.IndexFunc(cfg.Partitions, func(p *model.Partition) bool { return p.Name == part.Name })
		if i >= 0 {
			cfg.Partitions[i] = part
		} else {
			cfg.Partitions = append(cfg.Partitions, part)
		}
	}
	s.setConfig(&cfg)
	s.recount()
	for _, def := range c.Nodes {
		s.defineNode(def, at)
	}
	for _, name := range c.DropNodes {
		s.dropNode(name)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// futureAfter gives the nodes that may come after a change.
func futureAfter(old []*model.NodeDef, c *Define, at model.Time) []*model.NodeDef {
	named := func(list []*model.NodeDef, name string) bool {
		return slices.ContainsFunc(list, func(d *model.NodeDef) bool { return d.Name == name })
	}
	out := slices.DeleteFunc(slices.Clone(old), func(d *model.NodeDef) bool {
		return named(c.Nodes, d.Name) || named(c.Future, d.Name) || slices.Contains(c.DropNodes, d.Name)
	})
	for _, def := range c.Future {
		n := *def
		if slices.Contains(c.DropNodes, def.Name) { // its daemon may still run
			n.FutureAt = at
		}
		out = append(out, &n)
	}
	return out
}

// mayDefine refuses definitions that contradict the facts.
func (s *State) mayDefine(c *Define) Refusal {
	defs := maps.Clone(s.defs)
	for _, def := range slices.Concat(c.Nodes, c.Future) {
		if c.Create && (defs[def.Name] != nil || s.cfg.FutureNode(def.Name) != nil) {
			return InUse
		}
	}
	for _, def := range c.Nodes {
		defs[def.Name] = def
	}
	for _, def := range c.Future {
		if defs[def.Name] != nil && !slices.Contains(c.DropNodes, def.Name) {
			return InUse
		}
	}
	for _, name := range c.DropNodes {
		n, ok := s.nodes.Get(name)
		switch {
		case !ok && s.cfg.FutureNode(name) != nil:
			continue
		case !ok || defs[name] == nil:
			return NoSuchNode
		case len(n.Jobs) > 0:
			return JobsActive
		case s.isReserved(name):
			return InUse
		}
		delete(defs, name)
	}
	for _, part := range c.Parts {
		if c.Create && s.parts[part.Name] != nil {
			return InUse
		}
		for _, name := range part.Nodes {
			if defs[name] == nil {
				return NoSuchNode
			}
		}
	}
	for _, name := range c.DropParts {
		switch {
		case s.parts[name] == nil:
			return NoSuchPartition
		case s.inPartition(name):
			return JobsActive
		}
	}
	return OK
}

// inPartition reports whether an unfinished job runs in the partition or asks for it.
func (s *State) inPartition(name string) (found bool) {
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		found = !j.State.Finished() && (slices.Contains(j.Spec.Partitions, name) || j.Run != nil && j.Partition() == name)
		return !found
	})
	return found
}

func (s *State) isReserved(node string) (found bool) {
	s.resvs.Scan(func(_ string, r *model.Reservation) bool {
		found = slices.Contains(r.Nodes, node)
		return !found
	})
	return found
}

// defineNode gives a node its definition, and makes the node if it is new.
func (s *State) defineNode(def *model.NodeDef, at model.Time) {
	n := model.Node{Def: def, BusyAt: at}
	if def.Admin != model.NodeUp {
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = def.Admin, def.Reason, byConfig, at
	}
	if old, ok := s.nodes.Get(def.Name); ok {
		n = *old
		n.Def, n.Out = def.WithFound(n.Found), knownUnits(old.Out, def)
		n.Tags = old.Unload(func(gpu int32) bool { return n.Def.GPUDef(gpu) == nil })
		if n.ReasonBy == byGbatch && n.Reason == reasonLeft {
			n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeUp, "", "", 0
		}
	}
	s.definePower(&n, at)
	s.putNode(def.Name, &n)
}
