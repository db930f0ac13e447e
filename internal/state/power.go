package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// power.go: nodes are powered down and up. The leader says when, by Powers; each step checks the facts again.
//
// A job that is given a node that is off waits, CONFIGURING, until all its nodes have registered. Until then no node
// has an order for it: so it ends at once if it is to end, and its time begins when its last node registers. So it is
// with a job whose nodes are rebooted for it (--reboot); node.go has reboots.

// reasonNoResume is a node's reason when it did not come up: Slurm's words.
const reasonNoResume = "ResumeTimeout reached"

// PowerOp is what a Powers command does. The numbers are stored: append only.
type PowerOp uint8

// The operations.
const (
	AskPower     PowerOp = iota + 1 // an operator's: Want
	BeginDown                       // the node has no job, and is switched off
	BeginUp                         // a job or an operator wants the node, and it is switched on
	PowerTold                       // the program of the step has run: Want says which, if it is PowerUp or PowerDown
	FinishDown                      // SuspendTimeout is over
	GiveUpResume                    // ResumeTimeout is over
	ResumeFailed                    // ResumeFailProgram has run
)

// Powers changes nodes' power.
type Powers struct {
	Nodes []string
	Op    PowerOp
	Want  model.PowerWant
	By    string
}

func (x *Powers) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Int(c, &x.Op)
	wire.Int(c, &x.Want)
	wire.Text(c, &x.By, model.MaxName)
}

func (*Powers) kind() Kind { return KindPower }

// applyPowers has a Refusal for each node: NotPending if the facts have changed since the command was made.
func (s *State) applyPowers(at model.Time, c *Powers) Result {
	res := Result{Each: make([]Refusal, len(c.Nodes))}
	s.now.by = c.By
	defer func() { s.now.by = "" }()
	for i, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok {
			res.Each[i] = NoSuchNode
			continue
		}
		if res.Each[i] = s.power(at, c, name, old); res.Each[i] == OK {
			res.Changed = true
		}
	}
	s.wakeAll(at)
	s.plan()
	return res
}

// power applies a command to one node.
func (s *State) power(at model.Time, c *Powers, name string, old *model.Node) Refusal {
	n, p := *old, model.Power{}
	if old.Power != nil {
		p = *old.Power
	}
	span := s.cfg.PowerSpan(name)
	step := func(to model.PowerStep) { p = model.Power{Step: to, At: at, Want: p.Want, By: p.By} }
	switch c.Op {
	case AskPower:
		return s.askPower(at, c, name, old)
	case BeginDown:
		forced := p.Step == model.PoweringUp && p.Want == model.PowerDownForce
		if len(n.Jobs) > 0 || n.Reboot != nil || p.Step != model.PowerOn && !forced {
			return NotPending
		}
		step(model.PoweringDown)
		s.putOff(&n, p.Want)
		p.Want, p.By = model.PowerAsIs, ""
	case BeginUp:
		if p.Step != model.PoweredDown || !s.WantsPower(&n) {
			return NotPending
		}
		step(model.PoweringUp)
		p.Want, p.By = model.PowerAsIs, ""
	case PowerTold:
		up, down := p.Step == model.PoweringUp, p.Step == model.PoweringDown
		if p.Told || !up && !down || up && c.Want == model.PowerDown || down && c.Want == model.PowerUp {
			return NotPending // the node has gone on meanwhile
		}
		p.Told = true
	case FinishDown:
		if p.Step != model.PoweringDown || at < p.At.Add(span.DownS) {
			return NotPending
		}
		step(model.PoweredDown)
		n.Link, n.LinkAt = model.LinkUnknown, at
	case GiveUpResume:
		if p.Step != model.PoweringUp || at < p.At.Add(span.UpS) {
			return NotPending
		}
		s.notUp(&n, span.UpS, at)
		back, ok := s.nodes.Get(name)
		if !ok && s.now.rules >= rulesLast {
			return OK // it has left the configuration, and that was its last job
		}
		if ok {
			n = *back // its jobs have gone
		}
		force := p.Want == model.PowerDownForce
		step(model.PoweredDown)
		p.Want, p.By, p.Fail = model.PowerAsIs, "", true
		n.Link, n.LinkAt = model.LinkUnknown, at
		if n.Admin == model.NodeUp && !force {
			n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeDown, reasonNoResume, byGbatch, at
		}
	case ResumeFailed:
		if !p.Fail {
			return NotPending
		}
		p.Fail = false
		free := p.Step == model.PoweredDown && len(n.Jobs) == 0 || s.now.rules < rulesLast
		if n.Def.Cloud && s.cfg.Params.Power.IdleAfter && free {
			// What is left of it is removed, and it can be tried again. If a job wants it by now, that is the next try.
			step(model.PoweringDown)
			s.putOff(&n, p.Want)
		}
	default:
		return NotPending
	}
	if p == (model.Power{At: p.At, By: p.By}) {
		n.Power = nil
	} else {
		n.Power = &p
	}
	s.putNode(name, &n)
	return OK
}

// putOff gives a node that begins to power down the state that it has afterwards.
func (s *State) putOff(n *model.Node, want model.PowerWant) {
	silent := n.Admin == model.NodeUp && n.Link == model.LinkLost // it is powered up when it is needed
	if want == model.PowerDownForce || s.cfg.Params.Power.IdleAfter || silent {
		n.Admin, n.Failing, n.Reason, n.ReasonBy, n.ReasonAt, n.Problem = model.NodeUp, false, "", "", 0, ""
	}
}

// askPower notes what an operator wants of a node.
func (s *State) askPower(at model.Time, c *Powers, name string, old *model.Node) Refusal {
	n, p := *old, model.Power{}
	if old.Power != nil {
		p = *old.Power
	}
	p.By = c.By
	off := p.Step == model.PoweringDown || p.Step == model.PoweredDown
	switch {
	case c.Want == model.PowerUp:
		p.Want = model.PowerAsIs
		if off {
			p.Want = model.PowerUp
		}
	case !c.Want.Down() || c.Want > model.PowerDownForce:
		return NotPending
	case p.Step == model.PoweredDown && c.Want == model.PowerDownForce: // once more, to be sure
		if len(n.Jobs) > 0 {
			s.notUp(&n, 0, at)
			back, ok := s.nodes.Get(name)
			if !ok && s.now.rules >= rulesLast {
				return OK // as in power
			}
			if ok {
				n = *back
			}
		}
		if len(n.Jobs) > 0 {
			return JobsActive
		}
		p = model.Power{Step: model.PoweringDown, At: at, By: c.By}
		s.putOff(&n, c.Want)
	case off:
		p.Want = model.PowerAsIs
	default:
		p.Want = c.Want
	}
	if p.Want == model.PowerAsIs {
		p.By = ""
	}
	n.Power = &p
	if p.Step == model.PowerOn && p.Want == model.PowerAsIs {
		n.Power = nil
	}
	s.putNode(name, &n)
	if p.Want != model.PowerDownForce {
		return OK
	}
	why := "is powered down"
	if c.By != "" {
		why += " by " + c.By
	}
	for _, id := range slices.Clone(n.Jobs) {
		if j, ok := s.jobs.Get(id); ok && j.State.HasResources() && j.State != model.Completing {
			s.stopFor(j, name, why, at)
		}
	}
	return OK
}

// notUp ends, or puts back, the jobs that have waited for a node that does not come up.
func (s *State) notUp(n *model.Node, limitS int64, at model.Time) {
	why := "did not come up"
	if limitS > 0 {
		why += fmt.Sprintf(" within %d s (ResumeTimeout)", limitS)
	}
	s.stopWaiting(n, why, at)
}

func (s *State) stopWaiting(n *model.Node, why string, at model.Time) {
	for _, id := range slices.Clone(n.Jobs) {
		if j, ok := s.jobs.Get(id); ok && j.State.HasResources() && j.State != model.Completing {
			s.stopFor(j, n.Def.Name, why, at)
		}
	}
}

// giveUpRising ends, or puts back, the jobs that wait for a node that can't come up by a new configuration.
func (s *State) giveUpRising(at model.Time) {
	if s.rising == 0 || s.now.rules < rulesBrief {
		return
	}
	for _, name := range s.nodes.Keys() {
		switch n, ok := s.nodes.Get(name); {
		case !ok || !n.Awaited():
		case s.defs[name] == nil:
			s.stopWaiting(n, "left the configuration before it came up", at)
		case n.PowerStep() == model.PoweredDown && !s.cfg.Params.Power.On(): // ResumeTimeout ends the wait for one that rises
			s.stopWaiting(n, "can't come up: the configuration has no programs for it any more", at)
		}
	}
	s.wakeAll(at)
}

// cameUp gives what is left of a node's way to power when it registers.
func cameUp(n *model.Node) {
	switch {
	case n.Power == nil || n.Power.Step == model.PoweringDown:
		return // SuspendTimeout ends it
	case n.Power.Want.Down():
		p := *n.Power
		p.Step, p.Told, p.Fail = model.PowerOn, false, false
		n.Power = &p
	default:
		n.Power = nil
	}
}

// resumed takes back what an operator has asked for a node's power before: State=RESUME. A node that is being powered
// down is off if it has gone, and up otherwise.
func resumed(n *model.Node, at model.Time) {
	if n.Power == nil {
		return
	}
	p := *n.Power
	p.Want, p.By = model.PowerAsIs, ""
	n.Power = &p
	switch {
	case p.Step == model.PowerOn, p.Step == model.PoweringDown && n.Link == model.LinkUp:
		n.Power = nil
	case p.Step == model.PoweringDown:
		n.Power = &model.Power{Step: model.PoweredDown, At: at}
		n.Link, n.LinkAt = model.LinkUnknown, at
	}
}

// definePower gives a node its power by the configuration: one in the cloud begins as powered down. Without programs
// no node is off.
func (s *State) definePower(n *model.Node, at model.Time) {
	switch on := s.cfg.Params.Power.On(); {
	case !on && n.Power != nil && len(n.Jobs) == 0:
		n.Power = nil
	case on && n.Def.Cloud && n.Power == nil && n.Link == model.LinkUnknown && len(n.Jobs) == 0:
		n.Power = &model.Power{Step: model.PoweredDown, At: at}
	}
}

// downOnIdle asks that a node without jobs is powered down, if the partition of its last one wants that.
func (s *State) downOnIdle(n *model.Node, part string, at model.Time) {
	p := s.parts[part]
	if len(n.Jobs) == 0 && n.Power == nil && p != nil && p.Power != nil && p.Power.OnIdle && s.cfg.Params.Power.On() {
		n.Power = &model.Power{At: at, Want: model.PowerDown}
	}
}

// AwaitsPower reports whether a job waits for one of its nodes to come up: no node has an order for it.
func (f *facts) AwaitsPower(j *model.Job) bool {
	if f.rising == 0 || j == nil || !j.State.HasResources() {
		return false
	}
	for i := range j.Run.Alloc.Nodes {
		if n, ok := f.nodes.Get(j.Run.Alloc.Nodes[i].Node); ok && n.Awaited() {
			return true
		}
	}
	return false
}

// WantsPower reports whether a node that is off should come up: an operator or a job waits for it.
func (f *facts) WantsPower(n *model.Node) bool {
	return n.Power != nil && n.Power.Want == model.PowerUp || slices.ContainsFunc(n.Jobs, func(id model.JobID) bool {
		j, ok := f.jobs.Get(id)
		return ok && j.State == model.Configuring
	})
}

// beginAnew lets the time of a job begin now: it has waited for its nodes, and is not charged for that.
func (s *State) beginAnew(j *model.Job, at model.Time) *model.Job {
	if at <= j.Run.Start || j.Run.Launched != 0 || j.Run.Idles() {
		return j
	}
	s.meter(j, at, at-j.Run.Start, -1, j.Run.Alloc.TRES())
	j = s.change(j, func(run *model.Run) { run.Start = at })
	s.meter(j, at, 0, 1, j.Run.Alloc.TRES())
	return j
}

// nodesUp lets the jobs of a node that has come up begin, if it was the last one that they waited for.
func (s *State) nodesUp(n *model.Node, at model.Time) {
	for _, id := range slices.Clone(n.Jobs) {
		if j, ok := s.jobs.Get(id); ok && j.State == model.Configuring && !s.AwaitsPower(j) {
			s.record(s.beginAnew(j, at))
		}
	}
}

// rebootFor has a job's nodes rebooted before it begins. Those that are off, or on their way up, boot in any case.
func (s *State) rebootFor(j *model.Job, at model.Time) {
	if !j.Spec.Extra().Reboot {
		return
	}
	for i := range j.Run.Alloc.Nodes {
		name := j.Run.Alloc.Nodes[i].Node
		old, ok := s.nodes.Get(name)
		if !ok || old.Rises() {
			continue
		}
		n, r := *old, model.Reboot{By: j.Spec.User}
		if old.Reboot != nil { // an operator has asked for it, too
			r = *old.Reboot
		}
		r.Step, r.At, r.For = model.RebootIssued, at, j.ID
		n.Reboot = &r
		s.putNode(name, &n)
	}
}

// countRising counts a node that is off, on its way up, or rebooted for a job.
func (s *State) countRising(old, n *model.Node) {
	if old != nil && old.Awaited() {
		s.rising--
	}
	if n != nil && n.Awaited() {
		s.rising++
	}
}

// checkPower: a node that is off has no jobs but those that wait for it, and one that is rebooted for a job has that
// one only.
func (s *State) checkPower() (err error) {
	rising := 0
	s.nodes.Scan(func(name string, n *model.Node) bool {
		if n.Awaited() {
			rising++
		}
		if r := n.Reboot; r != nil && r.For != 0 {
			if r.Step != model.RebootIssued || len(n.Jobs) != 1 || n.Jobs[0] != r.For {
				err = fmt.Errorf("node %s is rebooted for job %d (step %d), and has jobs %v", name, r.For, r.Step, n.Jobs)
				return false
			}
		}
		p := n.Power
		switch {
		case p == nil:
			return true
		case p.Step > model.PoweringUp || p.Want > model.PowerDownForce:
			err = fmt.Errorf("node %s has a power step %d and wants %d", name, p.Step, p.Want)
		case p.Step == model.PowerOn && !p.Want.Down():
			err = fmt.Errorf("node %s is on, and has %+v", name, *p)
		case p.Step == model.PoweringDown && len(n.Jobs) > 0:
			err = fmt.Errorf("node %s is powered down under jobs %v", name, n.Jobs)
		case n.Rises() && n.Link == model.LinkUp:
			err = fmt.Errorf("node %s is off, and has registered", name)
		}
		if err != nil || !n.Rises() {
			return err == nil
		}
		for _, id := range n.Jobs {
			j, ok := s.jobs.Get(id)
			if !ok || j.State == model.Configuring || j.State == model.Completing && j.Run.Program != model.NoCtldProgram {
				continue
			}
			err = fmt.Errorf("job %d is %s on node %s, which is off", id, j.State, name)
		}
		return err == nil
	})
	if err == nil && rising != s.rising {
		err = fmt.Errorf("%d nodes are off or rise, %d are counted", rising, s.rising)
	}
	return err
}
