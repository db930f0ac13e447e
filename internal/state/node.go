package state

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Reasons that the state itself gives a node, and the name that it signs them with.
const (
	byGbatch     = "gbatch"
	byConfig     = "gbatch.conf"
	reasonLeft   = "not in the configuration any more"
	reasonSilent = "Not responding"

	reasonRebooted = "Rebooted"
)

// Texts about a node's failure; they follow its name.
const (
	whyRebooted = "was rebooted while the job was on it"
	whyForgot   = "has lost the job: its daemon came back and knows nothing of it"
)

// applyConfig replaces the configuration in one step. Nodes keep their jobs; a node that has left the configuration
// keeps its record until its last job has ended.
func (s *State) applyConfig(at model.Time, c *SetConfig) Result {
	if c.Config.Params.Priority.HalfLifeS != s.cfg.Params.Priority.HalfLifeS {
		s.refade(at) // with the old half-life
	}
	kills := c.Config.Params.KillInvalidDep && !s.cfg.Params.KillInvalidDep
	ends := map[string]model.Time{}
	for _, name := range s.resvs.Keys() {
		ends[name] = s.resvEnd(name)
	}
	s.setConfig(c.Config)
	for _, name := range s.resvs.Keys() { // by ResvOverRun, which may be another one
		s.moveEnds(name, ends[name])
	}
	if s.now.rules >= rulesBrief {
		s.forgetStrays() // a restored snapshot forgets them too
	}
	s.sumAccounts(at)
	s.recount()
	if s.instance == 0 {
		s.instance = c.Instance
	}
	for _, def := range c.Config.Nodes {
		s.defineNode(def, at)
	}
	for _, name := range s.nodes.Keys() {
		n, ok := s.nodes.Get(name)
		if !ok || s.defs[name] != nil {
			continue
		}
		if len(n.Jobs) == 0 {
			s.dropNode(name)
			continue
		}
		gone := *n
		gone.Admin, gone.Reason, gone.ReasonBy, gone.ReasonAt = model.NodeDrain, reasonLeft, byGbatch, at
		s.putNode(name, &gone)
	}
	s.giveUpRising(at)
	s.stirs.reread = true
	if kills {
		s.killAllNever(at)
	}
	s.plan()
	return Result{Changed: true}
}

// setConfig sets the configuration and its indexes by name.
func (s *State) setConfig(cfg *model.Config) {
	s.cfg = cfg
	if cfg.Params.FirstJob <= MaxJobID { // numbers never go back
		s.nextID = max(s.nextID, cfg.Params.FirstJob)
	}
	parts := make(map[string]*model.Partition, len(cfg.Partitions))
	for _, p := range cfg.Partitions {
		parts[p.Name] = p
	}
	if maps.Equal(overTimes(s.parts), overTimes(parts)) {
		s.parts = parts
	} else { // the running jobs end at other times
		s.eachCut(func(d due) { s.limits.Delete(d) })
		s.parts = parts
		s.eachCut(func(d due) { s.limits.Set(d) })
		if s.capped {
			s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
				s.moveCap(id, j)
				return true
			})
		}
	}
	s.defs = make(map[string]*model.NodeDef, len(cfg.Nodes))
	for _, def := range cfg.Nodes {
		s.defs[def.Name] = def
	}
}

// comesBack reports whether a node that registers without a problem takes jobs again by itself: if gbatch itself took
// it out, for reasons that are gone, or if ReturnToService allows it.
func (s *State) comesBack(n *model.Node) bool {
	rts := s.cfg.Params.ReturnToService
	switch {
	case n.Admin == model.NodeUp:
		return n.ReasonBy == byGbatch
	case n.Admin == model.NodeDown:
		return rts >= 2 || rts == 1 && n.ReasonBy == byGbatch && (n.Reason == reasonSilent || n.Reason == reasonNoResume)
	}
	return n.ReasonBy == byGbatch && n.Problem != "" && n.Reason == n.Problem
}

// applyJoin registers a node's daemon. Attempts that had started there but that the daemon doesn't know any more are
// lost. A registration that is older than the last one, and came late, knows less than the node does: it is refused.
func (s *State) applyJoin(at model.Time, c *Join) Result {
	old, ok := s.nodes.Get(c.Node)
	if !ok {
		return Result{Refusal: NoSuchNode}
	}
	if c.Uptime != 0 && c.Uptime < old.Uptime && c.BootID == old.BootID {
		return Result{Refusal: Outdated}
	}
	rebooted := old.BootID != "" && c.BootID != "" && old.BootID != c.BootID
	n := *old
	n.Link, n.LinkAt = model.LinkUp, at
	n.BootID, n.BootAt, n.UpSince, n.Uptime = c.BootID, c.BootAt, c.UpSince, c.Uptime
	n.Version, n.OS, n.Arch = c.Version, c.OS, c.Arch
	rose := old.Rises() // its jobs have waited for it

	if n.Rebooting() && (rebooted || n.Def.Virtual && c.UpSince >= n.Reboot.At) { // a virtual one's daemon starts anew
		rose = rose || n.Awaited()
		rebootOver(&n, at)
	}
	if rebooted {
		n.Tags = nil
	}
	cameUp(&n)
	// keep the same Def for the same hardware: the scheduler compares its address
	if def := s.defs[c.Node]; def != nil && !reflect.DeepEqual(n.Found, c.Gres) {
		n.Tags = nil // its GPUs are others now
		n.Found, n.Def = c.Gres, def.WithFound(c.Gres)
	}
	switch {
	case c.Problem != "":
		silent := n.Admin == model.NodeDown && n.Reason == reasonSilent // until an operator resumes it
		if n.Admin == model.NodeUp || n.ReasonBy == byGbatch && n.Reason != c.Problem && !silent {
			n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = max(n.Admin, model.NodeDrain), c.Problem, byGbatch, at
		}
		n.Problem = c.Problem
	case s.comesBack(&n):
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt, n.Problem = model.NodeUp, "", "", 0, ""
	default:
		n.Problem = ""
	}
	s.putNode(c.Node, &n)
	if rose {
		s.nodesUp(&n, at)
	}
	for _, id := range slices.Clone(n.Jobs) {
		j, ok := s.jobs.Get(id)
		if !ok || !j.State.HasResources() || rose || s.AwaitsPower(j) {
			continue // a job that waits for power has nothing here
		}
		if k := j.Run.LeavingAt(c.Node); k >= 0 && (rebooted || !slices.ContainsFunc(c.Known,
			func(r Report) bool { return r.Job == j.ID && r.Attempt == j.Attempt })) {
			s.left(j, k, at)
			continue
		}
		batch := j.Run.Alloc.Nodes[0].Node == c.Node
		known := slices.ContainsFunc(c.Known, func(r Report) bool { return r.Job == j.ID && r.Attempt == j.Attempt })
		switch {
		case rebooted && !(known && (batch || !j.Run.Busy.Empty())):
			// the node reports the attempts that it still knows: their exits from before the reboot, or that none was
			// seen
			s.nodeFailed(j, c.Node, whyRebooted, at)
		case known:
		case !batch:
			s.partMissing(j, c.Node, at)
		case j.Run.Program != model.NoCtldProgram: // no node has an order for it yet, or all have ended it
		case j.State == model.Completing && j.Run.Launched == 0: // it was ended before it was launched
			s.partEnded(j, at, &Report{Kind: Ended, At: at})
		case j.Run.Launched != 0 && j.State == model.Completing:
			s.partEnded(j, at, &Report{Kind: Ended, At: at,
				Exit: model.Exit{Unknown: true, Text: "the node lost the job's exit status"}})
		case j.Run.Launched != 0:
			s.nodeFailed(j, c.Node, whyForgot, at)
		}
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// applyNodeHealth drains a node that has a problem, and resumes it when the problem is gone, if it was the only reason.
func (s *State) applyNodeHealth(at model.Time, c *NodeHealth) Result {
	old, ok := s.nodes.Get(c.Node)
	if !ok {
		return Result{Refusal: NoSuchNode}
	}
	n := *old
	s.judgeProblem(&n, c.Problem, at)
	s.putNode(c.Node, &n)
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// judgeProblem sets a node's state and reason from the problem that it reports.
func (s *State) judgeProblem(n *model.Node, problem string, at model.Time) {
	switch {
	case problem != "":
		if n.Admin == model.NodeUp || n.ReasonBy == byGbatch && n.Problem != "" && n.Reason == n.Problem {
			n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = max(n.Admin, model.NodeDrain), problem, byGbatch, at
		}
		n.Problem = problem
	case n.Admin == model.NodeDrain && n.ReasonBy == byGbatch && n.Problem != "" && n.Reason == n.Problem:
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt, n.Problem = model.NodeUp, "", "", 0, ""
	default:
		n.Problem = ""
	}
}

// nodeFailed ends a job that has lost a node, or puts it back into the queue. If the node that runs its script is up,
// the script has to be ended first: resources are not given out while processes may still use them. A job that was
// being cancelled becomes CANCELLED.
func (s *State) nodeFailed(j *model.Job, node, why string, at model.Time) {
	if k := j.Run.LeavingAt(node); k >= 0 {
		s.left(j, k, at)
		return
	}
	if j.Run.Program == model.CtldEpilog && s.now.rules >= rulesBrief {
		return // no node has anything of it: it ends with the program
	}
	if s.goesOn(j, node, why, at) {
		return
	}
	exit := model.Exit{Unknown: true, Text: "node " + node + " " + why}
	if !j.Run.Busy.Empty() {
		if j = s.partFailed(j, node, why, exit, at); j == nil {
			return
		}
		if j.State == model.Completing && s.now.rules >= rulesLast {
			s.lastGone(j, at, model.End{At: at, Exit: exit})
			return
		}
	}
	batch := j.Run.Alloc.Nodes[0].Node
	if n, ok := s.nodes.Get(batch); ok && batch != node && n.Link == model.LinkUp {
		if j.State != model.Completing {
			s.stopFor(j, node, why, at)
		}
		return
	}
	epilog := s.now.rules >= rulesBrief && j.Run.Program == model.NoCtldProgram && s.closing(j)
	if j.State == model.Completing {
		if epilog {
			s.lastGone(s.overAt(j, at, exit), at, model.End{At: at, Exit: exit})
			return
		}
		if j.Run.Over != nil {
			exit = j.Run.Over.Exit // the script had ended before
		}
		s.ended(j, at, at, exit)
		return
	}
	n, run := *j, *j.Run
	run.FailedNode = node
	n.Run = &run
	s.rememberCut(&n, why, model.End{At: at, Exit: exit})
	if epilog {
		s.stopFor(j, node, why, at)
		if j, ok := s.jobs.Get(j.ID); ok && j.State == model.Completing && j.Run.Program == model.NoCtldProgram {
			s.lastGone(s.overAt(j, at, exit), at, model.End{At: at, Exit: exit})
		}
		return
	}
	s.finish(&n, at, at, model.NodeFail, model.ReasonNodeDown, exit, 0, j.Spec.Requeue, model.NotHeld)
}

// overAt keeps a job's end, unless its script had ended before, for when EpilogSlurmctld has run.
func (s *State) overAt(j *model.Job, at model.Time, exit model.Exit) *model.Job {
	if j.Run.Over != nil {
		return j
	}
	return s.change(j, func(run *model.Run) {
		s.sleptUntil(j, run, at, at)
		run.Over = &model.End{At: at, Exit: exit}
		s.stopMeter(j, run, at)
	})
}

// whySilent is the text for a node that was silent for SlurmdTimeout.
func (s *State) whySilent() string {
	if t := s.cfg.Params.NodeTimeoutS; t > 0 {
		return fmt.Sprintf("did not answer for %d s (SlurmdTimeout)", t)
	}
	return "does not answer"
}

// stopFor ends a running job because of one of its nodes.
func (s *State) stopFor(j *model.Job, node, why string, at model.Time) {
	n, run := *j, *j.Run
	run.FailedNode, run.StopWhy = node, "node "+node+" "+why
	n.Run = &run
	s.stopRunning(&n, at, model.StopNodeFail, 0)
}

// applyLost marks silent nodes. Their jobs are given up; a node's resources are not given out before it has registered
// again.
func (s *State) applyLost(at model.Time, c *Lost) Result {
	res := Result{}
	for _, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok || old.Link != model.LinkUp || old.Rebooting() {
			continue // a node that reboots runs no job, and GiveUpReboot ends the wait for it
		}
		n := *old
		n.Link, n.LinkAt = model.LinkLost, at
		if n.PowerStep() == model.PoweringDown { // as it should
			n.Link = model.LinkUnknown
			s.putNode(name, &n)
			res.Changed = true
			continue
		}
		if n.Admin == model.NodeUp {
			n.Reason, n.ReasonBy, n.ReasonAt = reasonSilent, byGbatch, at
			if s.cfg.Params.ReturnToService == 0 {
				n.Admin = model.NodeDown // stays so until an operator resumes it
			}
		}
		s.putNode(name, &n)
		res.Changed = true
		for _, id := range slices.Clone(n.Jobs) {
			if j, ok := s.jobs.Get(id); ok && j.State.HasResources() {
				s.nodeFailed(j, name, s.whySilent(), at)
			}
		}
	}
	s.wakeAll(at)
	s.plan()
	return res
}

// setDown is the text for jobs on a node that an operator has set DOWN.
func (s *State) setDown(c *NodeEdit) string {
	text := "was set DOWN"
	if c.By != "" {
		text += " by " + c.By
	}
	if c.Reason != "" {
		text += ": " + s.brief(c.Reason)
	}
	return text
}

// downGraceS is the time, beyond KillWait, in which a node that is down has to end the jobs that it was told to end,
// seconds.
const downGraceS = 5

// overdue reports whether a COMPLETING job should have ended by now: its end was ordered more than KillWait and
// downGraceS ago.
func (s *State) overdue(j *model.Job, at model.Time) bool {
	return at >= overdueAt(j, s.cfg.Params.KillWaitS)
}

func overdueAt(j *model.Job, killWaitS int64) model.Time {
	since := j.Run.StopAt
	if j.Run.Over != nil {
		since = max(since, j.Run.Over.At)
	}
	wait := max(killWaitS, j.Run.GraceS) + downGraceS
	return since + model.Time(wait*1000)
}

// Overdue lists nodes that are down and have overdue jobs: setting them DOWN once more gives those jobs up.
func (v *View) Overdue(now model.Time) []string {
	var out []string
	v.Nodes(func(n *model.Node) bool {
		if n.Admin == model.NodeDown &&
			slices.ContainsFunc(n.Jobs, func(id model.JobID) bool { return v.OverdueOn(id, n.Def.Name, now) }) {
			out = append(out, n.Def.Name)
		}
		return true
	})
	return out
}

// OverdueOn reports whether a job waits for its end on a node for longer than a node that is down gets.
func (v *View) OverdueOn(id model.JobID, node string, now model.Time) bool {
	j := v.Job(id)
	if j != nil && j.Run != nil && j.State.HasResources() {
		if k := j.Run.LeavingAt(node); k >= 0 {
			return now >= leaveDue(&j.Run.Leaving[k], v.Config().Params.KillWaitS)
		}
	}
	if j == nil || j.State != model.Completing || now < overdueAt(j, v.Config().Params.KillWaitS) {
		return false
	}
	k := j.Run.Alloc.Place(node)
	return k >= 0 && (j.Run.Busy.Has(k) || k == 0 && j.Run.Busy.Empty() && j.Run.Program == model.NoCtldProgram)
}

func (s *State) applyNodeEdit(at model.Time, c *NodeEdit) Result {
	res := Result{Each: make([]Refusal, len(c.Nodes))}
	s.now.by = c.By
	defer func() { s.now.by = "" }()
	for i, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok {
			res.Each[i] = NoSuchNode
			continue
		}
		if c.Gres != "" {
			res.Each[i] = s.editUnits(at, c, name, old)
			res.Changed = res.Changed || res.Each[i] == OK
			continue
		}
		n := *old
		if !c.Keep {
			n.Admin, n.Failing, n.ResumeAt = c.Admin, c.Failing, 0
			if c.ResumeS > 0 && n.Admin != model.NodeUp {
				n.ResumeAt = at.Add(c.ResumeS)
			}
			if n.Admin == model.NodeUp {
				n.Strikes = nil // an operator has dealt with the node
				resumed(&n, at)
			}
		}
		switch {
		case c.Reason != "":
			n.Reason, n.ReasonBy, n.ReasonAt = c.Reason, c.By, at
		case !c.Keep && n.Admin == model.NodeUp:
			n.Reason, n.ReasonBy, n.ReasonAt = "", "", 0
		}
		if c.Comment != nil {
			n.Comment = c.Comment.Text
		}
		if c.Extra != nil {
			n.Extra = c.Extra.Text
		}
		s.putNode(name, &n)
		res.Changed = true
		if n.Admin != model.NodeDown {
			continue
		}
		for _, id := range slices.Clone(n.Jobs) {
			j, ok := s.jobs.Get(id)
			switch {
			case !ok || !j.State.HasResources():
			case j.Run.LeavingAt(name) >= 0:
				if k := j.Run.LeavingAt(name); at >= leaveDue(&j.Run.Leaving[k], s.cfg.Params.KillWaitS) {
					s.left(j, k, at)
				}
			case j.State == model.Completing && s.overdue(j, at): // no report of its end is expected any more
				s.nodeFailed(j, name, s.setDown(c), at)
			case j.State == model.Completing || old.Admin == model.NodeDown || s.goesOn(j, name, s.setDown(c), at):
			default:
				s.stopFor(j, name, s.setDown(c), at)
			}
		}
	}
	s.wakeAll(at)
	s.plan()
	return res
}

// noteResume keeps when a node is to resume by itself.
func (s *State) noteResume(name string, old, n *model.Node) {
	if old != nil && old.ResumeAt != 0 {
		s.resumes.Delete(resume{old.ResumeAt, name})
	}
	if n != nil && n.ResumeAt != 0 {
		s.resumes.Set(resume{n.ResumeAt, name})
	}
}

// resume is a node that resumes by itself at a moment.
type resume struct {
	at   model.Time
	name string
}

func resumeLess(a, b resume) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.name < b.name
}

// resumeNodes resumes the nodes whose time has come (ResumeAfter=).
func (s *State) resumeNodes(at model.Time) (changed bool) {
	e := &NodeEdit{Admin: model.NodeUp}
	s.resumes.Scan(func(r resume) bool {
		if r.at > at {
			return false
		}
		e.Nodes = append(e.Nodes, r.name)
		return true
	})
	slices.Sort(e.Nodes) // as they always were
	if len(e.Nodes) > 0 {
		s.applyNodeEdit(at, e)
	}
	return len(e.Nodes) > 0
}

// RebootOp is what a Reboots command does. The numbers are stored: append only.
type RebootOp uint8

// The operations.
const (
	AskReboot    RebootOp = iota + 1
	CancelReboot          // if the node was not told yet
	IssueReboot           // the node has no job, and is told
	GiveUpReboot          // it did not come back, or could not reboot: Reason says which
)

// Reboots changes the reboots of nodes.
type Reboots struct {
	Nodes  []string
	Op     RebootOp
	ASAP   bool
	Next   model.RebootNext
	Reason string
	By     string
}

func (x *Reboots) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Int(c, &x.Op)
	wire.Bool(c, &x.ASAP)
	wire.Int(c, &x.Next)
	wire.Text(c, &x.Reason, model.MaxText)
	wire.Text(c, &x.By, model.MaxName)
}

func (*Reboots) kind() Kind { return KindReboot }

// applyReboots has a Refusal for each node: StillEnding if it is being rebooted, NotPending if there is no reboot to
// cancel.
func (s *State) applyReboots(at model.Time, c *Reboots) Result {
	res := Result{Each: make([]Refusal, len(c.Nodes))}
	for i, name := range c.Nodes {
		old, ok := s.nodes.Get(name)
		if !ok {
			res.Each[i] = NoSuchNode
			continue
		}
		if c.Op == GiveUpReboot && old.Reboot != nil && old.Reboot.For != 0 {
			s.stopWaiting(old, "was to be rebooted for the job: "+c.Reason, at)
			if old, ok = s.nodes.Get(name); !ok { // it had left the configuration, and that was its last job
				res.Changed = true
				continue
			}
		}
		n := *old
		if res.Each[i] = reboot(&n, at, c); res.Each[i] == OK {
			s.putNode(name, &n)
			res.Changed = true
		}
	}
	s.wakeAll(at)
	s.plan()
	return res
}

func reboot(n *model.Node, at model.Time, c *Reboots) Refusal {
	switch {
	case n.Rebooting() && c.Op != GiveUpReboot:
		return StillEnding
	case c.Op == AskReboot:
		n.Reboot = &model.Reboot{Step: model.RebootAsked, At: at, ASAP: c.ASAP, Next: c.Next, Reason: c.Reason, By: c.By}
		if c.Reason != "" {
			n.Reason, n.ReasonBy, n.ReasonAt = c.Reason, c.By, at
		}
	case n.Reboot == nil:
		return NotPending
	case c.Op == CancelReboot:
		if r := n.Reboot; r.Reason != "" && n.Reason == r.Reason && n.Admin == model.NodeUp {
			n.Reason, n.ReasonBy, n.ReasonAt = "", "", 0
		}
		n.Reboot = nil
	case c.Op == IssueReboot:
		if len(n.Jobs) > 0 || n.PowerStep() != model.PowerOn {
			return JobsActive
		}
		r := *n.Reboot
		r.Step, r.At = model.RebootIssued, at
		n.Reboot = &r
	case c.Op == GiveUpReboot:
		n.Reboot = nil
		n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeDown, c.Reason, byGbatch, at
	default:
		return NotPending
	}
	return OK
}

// rebootOver ends the reboot of a node that has registered after it.
func rebootOver(n *model.Node, at model.Time) {
	r := n.Reboot
	n.Reboot = nil
	ours := r.Reason != "" && n.Reason == r.Reason
	switch {
	case r.Next == model.RebootDown:
		n.Admin = model.NodeDown
		if n.Reason == "" {
			n.Reason, n.ReasonBy, n.ReasonAt = reasonRebooted, r.By, at
		}
	case r.Next == model.RebootResume, n.Admin == model.NodeUp && ours:
		n.Admin, n.Failing, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeUp, false, "", "", 0
	}
}
