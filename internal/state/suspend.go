package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Suspend suspends or resumes jobs: the jobs that an operator names, and those whose turn has ended or begun.
type Suspend struct {
	Targets []model.JobRef
	Resume  bool
	Turn    model.Turn
}

func (x *Suspend) Wire(c *wire.C) {
	wire.List(c, &x.Targets, model.MaxMany)
	wire.Bool(c, &x.Resume)
	wire.Struct(c, &x.Turn)
}

func (*Suspend) kind() Kind { return KindSuspend }

// applySuspend gives one Refusal per target. A job of the turn that has changed meanwhile stays as it is.
func (s *State) applySuspend(at model.Time, c *Suspend) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	for i := range c.Targets {
		res.Each[i] = s.suspendTarget(at, c.Resume, &c.Targets[i])
		res.Changed = res.Changed || res.Each[i] == OK || res.Each[i] == WillResume
	}
	for _, id := range c.Turn.Sleep {
		if j, ok := s.jobs.Get(id); ok && j.State == model.Running && j.Run.Share > 1 {
			s.suspend(j, at, model.SleepsInTurn)
			res.Changed = true
		}
	}
	for _, id := range c.Turn.Wake {
		if j, ok := s.jobs.Get(id); ok && j.State == model.Suspended && j.Run.Sleep == model.SleepsInTurn {
			res.Changed = s.resume(j, at) == OK || res.Changed
		}
	}
	s.plan()
	return res
}

// suspendTarget suspends or resumes the jobs of a target. For several records it gives an error only if it could change
// none of them.
func (s *State) suspendTarget(at model.Time, resume bool, t *model.JobRef) Refusal {
	worst, good := NoSuchJob, OK
	any := false
	ids, one := s.expand(t, false), (*model.Job)(nil)
	if _, one = s.hetTarget(t); one != nil && one.Follows() {
		return WholeHet
	} else if one != nil {
		ids = s.wholeHet(one.ID)
	}
	for _, id := range ids {
		j, ok := s.jobs.Get(id)
		if !ok {
			continue
		}
		switch r := s.suspendJob(at, resume, j); r {
		case OK, WillResume:
			any, good = true, max(good, r)
		default:
			worst = r
		}
	}
	if any {
		return good
	}
	return worst
}

func (s *State) suspendJob(at model.Time, resume bool, j *model.Job) Refusal {
	switch {
	case j.State == model.Pending:
		return NotPending
	case j.State.Finished() || j.State == model.Completing:
		return AlreadyDone
	case resume && j.State != model.Suspended:
		return NotRunning
	case resume:
		return s.resume(j, at)
	case j.State != model.Running && j.State != model.Suspended:
		return NotRunning
	}
	s.suspend(j, at, model.SleepsByAdmin)
	return OK
}

// suspend stops a job's time and, except in time slicing, gives its CPUs back. A job that is already suspended gets the
// new kind of suspension.
func (s *State) suspend(j *model.Job, at model.Time, why model.SleepKind) {
	n, run := *j, *j.Run
	for i := range run.Alloc.Nodes { // for records from before Run.Share existed
		node, ok := s.nodes.Get(run.Alloc.Nodes[i].Node)
		run.Alone = run.Alone || ok && node.Exclusive == j.ID
	}
	was := run.OffCPUs()
	if run.Sleep == model.Awake {
		s.meter(j, at, 0, -1, run.Alloc.TRES())
		run.SleepAt = at
		run.Turns++
	}
	run.Sleep = why
	n.Run, n.State = &run, model.Suspended
	if run.OffCPUs() && !was {
		s.moveCPUs(&n, true, at)
	}
	s.put(&n)
	s.noteSleep(j, &n)
}

// noteSleep queues the accounting record of a job that was suspended or resumed; turns of time slicing get none. One
// that is suspended while it waits for its turn gets one.
func (s *State) noteSleep(old, j *model.Job) {
	kept := old.Run.Sleep == model.SleepsInTurn && j.Run.Sleep != model.Awake && j.Run.Sleep != model.SleepsInTurn
	if kept && s.now.rules >= rulesBrief || old.Run.Sleep != model.SleepsInTurn && j.Run.Sleep != model.SleepsInTurn {
		s.record(j)
	}
}

// resume resumes a job if its CPUs are free; otherwise the job resumes by itself when they are.
func (s *State) resume(j *model.Job, at model.Time) Refusal {
	n, run := *j, *j.Run
	n.Run = &run
	if run.OffCPUs() {
		if !s.cpusFree(&run) {
			run.Sleep = model.SleepsForRoom
			s.put(&n)
			return WillResume
		}
		s.moveCPUs(&n, false, at)
	}
	s.stir(j, &run, at)
	run.Sleep, n.State = model.Awake, model.Running
	s.put(&n)
	s.noteSleep(j, &n)
	return OK
}

// stir lets the time of a suspended job go on; run is a copy of j.Run.
func (s *State) stir(j *model.Job, run *model.Run, at model.Time) {
	if !run.Idles() {
		return
	}
	run.SleepMS, run.SleepAt = run.SleptMS(at), at
	run.Turns++
	s.meter(j, at, 0, 1, run.Alloc.TRES())
}

// sleptUntil ends the suspension of a job that has ended: run, a copy of j.Run, is as it is then. Nothing of it is
// metered any more; an end before the suspension takes back what was metered between.
func (s *State) sleptUntil(j *model.Job, run *model.Run, end, at model.Time) {
	if s.now.rules < rulesBrief {
		s.stir(j, run, at)
		return
	}
	if !j.Run.Idles() {
		return
	}
	run.SleepMS, run.SleepAt = j.Run.SleptMS(end), at
	run.Turns++
	run.Uncounted = true
	s.unmeter(j, max(0, j.Run.SleepAt-max(end, run.SizedAt())), at)
}

// cpusFree reports whether a job that has given its CPUs back can have them again.
func (s *State) cpusFree(run *model.Run) bool {
	for i := range run.Alloc.Nodes {
		na := &run.Alloc.Nodes[i]
		if n, ok := s.nodes.Get(na.Node); !ok || !n.CPUsFor(na.CPUs, run.Partition, run.Share, run.Alone) {
			return false
		}
	}
	return true
}

// moveCPUs takes the CPUs of a job that is suspended, or gives them back to it.
func (s *State) moveCPUs(j *model.Job, away bool, at model.Time) {
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		old, ok := s.nodes.Get(na.Node)
		if !ok {
			continue // the node is gone
		}
		n := *old
		k, asleep := slices.BinarySearch(n.Asleep, j.ID)
		if asleep == away {
			continue
		}
		if away {
			n.Asleep = slices.Insert(slices.Clone(n.Asleep), k, j.ID)
			n.TakeCPUs(j.ID, na.CPUs, j.Run)
		} else {
			n.Asleep = without1(n.Asleep, k)
			n.GiveCPUs(j.ID, na.CPUs, j.Run)
		}
		n.BusyAt = at
		s.putNode(na.Node, &n)
	}
}

// sharedRight checks that no CPU of a node has more jobs than may share it, that jobs that share CPUs and jobs that
// don't are not together, and that the node's records of both are right. It returns the CPUs in use.
func (s *State) sharedRight(n *model.Node, holds map[model.JobID]*model.NodeAlloc) (model.Bits, error) {
	name := n.Def.Name
	var used model.Bits
	var list []model.CPUShare
	var asleep []model.JobID
	most := map[string]int32{}
	plain := 0
	for _, id := range n.Jobs {
		j, _ := s.jobs.Get(id)
		na := holds[id]
		if na == nil {
			return nil, fmt.Errorf("node %s lists job %d, which holds nothing there", name, id)
		}
		if !j.Holds() && j.Run.LeavingAt(name) < 0 {
			asleep = append(asleep, id)
			continue
		}
		if j.Run.Share > 1 {
			list = model.AddShare(list, j.Run.Partition, na.CPUs)
			most[j.Run.Partition] = max(most[j.Run.Partition], j.Run.Share)
		} else {
			plain++
			if na.CPUs.Overlaps(used) {
				return nil, fmt.Errorf("node %s: a CPU of job %d is given twice", name, id)
			}
		}
		used = used.Or(na.CPUs)
	}
	if plain > 0 && len(list) > 0 {
		return nil, fmt.Errorf("node %s has jobs that share CPUs and jobs that don't: %v", name, n.Jobs)
	}
	var before model.Bits
	for _, sh := range list {
		if len(sh.Layers) > int(most[sh.Part]) {
			return nil, fmt.Errorf("node %s: CPU %s is given to %d jobs of partition %s, which allows %d", name,
				sh.Layers[len(sh.Layers)-1], len(sh.Layers), sh.Part, most[sh.Part])
		}
		if sh.Layers[0].Overlaps(before) {
			return nil, fmt.Errorf("node %s: jobs of partition %s and of another share CPUs", name, sh.Part)
		}
		before = before.Or(sh.Layers[0])
	}
	if got, want := fmt.Sprint(n.CPUShares), fmt.Sprint(list); got != want {
		return nil, fmt.Errorf("node %s: books shared CPUs %s, its jobs share %s", name, got, want)
	}
	if !slices.Equal(asleep, n.Asleep) {
		return nil, fmt.Errorf("node %s: books %v as without CPUs, its jobs say %v", name, n.Asleep, asleep)
	}
	return used, nil
}
