package state

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// saved.go goes on from facts that were saved: a restored snapshot, and a dump.

// NewEra makes the facts of a restored snapshot safe to go on from. Numbers of jobs, attempts and records that were
// given after the snapshot was made are not given a second time with another meaning. Where gdbd knows more than the
// snapshot, gdbd is right:
//
//   - A job whose end is on record has ended, and does not run again.
//   - An attempt that ended otherwise, as its job went back to the queue, keeps its record.
//   - A job that waited in the snapshot, and has begun since, waits again; its next run is a restart. If it must not be
//     requeued, it ends: nobody knows how far it came.
//   - A task of an array that waited in the snapshot has the number with which it has begun since, and is such a job.
//   - A heterogeneous job has ended if all of its components have.
//
// A job that was about to begin in the snapshot goes back to the queue: it may have run since, or not. What nodes still
// have of such attempts they end when they register.

// attemptsPerEra is the distance between the attempts of a job in two eras: more than a job has in one.
const attemptsPerEra = 1000

// inNextEra gives the first attempt that was not given before an era.
func inNextEra(attempt uint32) uint32 { return (attempt/attemptsPerEra + 1) * attemptsPerEra }

func (s *State) applyNewEra(at model.Time, c *NewEra) Result {
	number := c.Number
	if n := len(s.eras); n > 0 {
		number = max(number, s.eras[n-1].Number+1)
	}
	era := model.Era{Number: max(number, 1), From: s.nextSeq}
	unknown := s.nextID
	s.nextID = max(s.nextID, min(c.NextJob, MaxJobID))
	if c.Restored {
		era.At, era.Unknown, era.Next = at, unknown, s.nextID
	}
	eras := append(slices.Clone(s.eras), era)
	if len(eras) > model.MaxEras { // gdbd may then be sent more than it lacks, never less
		eras[1].From = min(eras[0].From, eras[1].From)
		eras = eras[1:]
	}
	s.eras = eras
	found := s.foundTasks(c.Found)
	runs := map[attemptKey]*FoundRun{}
	last := map[model.JobID]*FoundRun{}
	for i := range found {
		r := &found[i]
		runs[attemptKey{r.Job, r.Attempt}] = r
		if l := last[r.Job]; l == nil || l.Attempt < r.Attempt {
			last[r.Job] = r
		}
	}
	over := map[model.JobID]bool{}
	for id, l := range last {
		if j, ok := s.jobs.Get(id); ok {
			over[id] = l.Attempt >= j.Attempt && l.endsJob(j)
		}
	}
	for _, id := range s.jobs.Keys() {
		j, ok := s.jobs.Get(id)
		if !ok || j.State.Finished() || j.IsArray() {
			continue
		}
		given := j.Attempt
		if c.Restored && j.State.HasResources() {
			s.foundOut(j, at, runs[attemptKey{id, j.Attempt}])
		}
		if j, ok = s.jobs.Get(id); !ok || j.State != model.Pending {
			continue
		}
		l := last[id]
		if s.overBefore(j, over) {
			s.endedBefore(j, l)
			continue
		}
		n := *j
		if l != nil && l.Attempt >= given {
			given = l.Attempt
			if l.Start != 0 {
				n.Restarts = max(n.Restarts, l.Restarts+1)
			}
		}
		n.Attempt = max(n.Attempt, inNextEra(given))
		s.put(&n)
		s.record(&n)
		if l != nil && l.Start != 0 && l.Attempt >= j.Attempt && !j.Spec.Requeue {
			s.endPending(&n, at, model.NodeFail, model.ReasonNodeDown, 0,
				"it had begun after the snapshot from which the controllers went on, and must not be requeued")
		}
	}
	if c.Restored {
		s.wakeAll(at)
	}
	s.plan()
	return Result{Changed: true}
}

// foundTasks gives tasks that waited in the records of their arrays, and have begun since, records of their own. The
// list that it returns has their numbers.
func (s *State) foundTasks(found []FoundRun) []FoundRun {
	found = slices.Clone(found)
	part := func(whole bool) {
		for i := range found {
			r := &found[i]
			j := s.taskRecord(r.Array, r.Task)
			if r.Array == 0 || j == nil || j.IsArray() && (j.State != model.Pending || (j.ID == r.Job) != whole) {
				continue
			}
			if !j.IsArray() {
				r.Job = j.ID
				continue
			}
			id := r.Job
			if _, taken := s.jobs.Get(id); taken || id == 0 || id >= s.nextID {
				id = s.nextID
				s.nextID++
			}
			el := s.splitAs(j, model.TaskSet{{Lo: r.Task, Hi: r.Task, Step: 1}}, id)
			if el.ID != j.ID && r.Job == j.ID { // gdbd has the task by the number that the other tasks go on with
				rest, _ := s.jobs.Get(j.ID)
				n := *rest
				n.Attempt = max(n.Attempt, inNextEra(r.Attempt))
				s.put(&n)
				s.record(&n)
			}
			s.put(el)
			r.Job = el.ID
		}
	}
	part(false)
	part(true) // the last task that begins has its array's number
	return found
}

// overBefore reports whether a job that waits has ended since the snapshot; over has those whose last attempt was the
// last one for certain. The components of a heterogeneous job end together.
func (s *State) overBefore(j *model.Job, over map[model.JobID]bool) bool {
	if j.Het == nil {
		return over[j.ID]
	}
	for id := j.Het.ID; id <= j.Het.Last(); id++ {
		if o, ok := s.jobs.Get(id); ok && !o.State.Finished() && !over[id] {
			return false
		}
	}
	return true
}

// foundOut gives a job with resources the end that gdbd has of its attempt, if there is one. One that had not begun
// goes back to the queue in any case.
func (s *State) foundOut(j *model.Job, at model.Time, r *FoundRun) {
	switch {
	case r != nil && r.End != 0 && r.State.Finished() && r.State != model.Resizing:
		exit := r.Exit
		if s.now.rules >= rulesOwed && j.Run.Launched == 0 { // it owes what its record says
			if exit.Unknown = exit.Unknown || r.Unbegun; !r.Unbegun {
				j = s.change(j, func(run *model.Run) { run.Launched = max(r.Start, run.Start) })
			}
		}
		s.finish(j, at, max(s.plausible(r.End, j.Run.Start, at, at), j.Run.SizedAt()), r.State, r.Reason, exit, r.UID,
			!r.endsJob(j), model.NotHeld)
	case j.State == model.Configuring && j.Run.Launched == 0:
		s.finish(j, at, at, model.Requeued, model.ReasonNone,
			model.Exit{Text: "the controllers went on from a snapshot in which it was about to begin"}, 0, true,
			model.NotHeld)
	}
}

// endsJob reports whether with this attempt its job has ended for certain: it does not go back to the queue.
func (r *FoundRun) endsJob(j *model.Job) bool {
	if r.End == 0 || j.Recurs() && r.State != model.Cancelled {
		return false
	}
	switch r.State {
	case model.Completed, model.Cancelled, model.Timeout, model.Deadline:
		return true
	case model.OutOfMemory:
		return !j.Spec.Extra().Expedite
	case model.Failed:
		byItself := r.Exit.Unknown || r.Reason == model.ReasonNonZeroExitCode || r.Reason == model.ReasonRaisedSignal
		return byItself && !j.Spec.Extra().Expedite // else its launch has failed, or its GPU's memory was too small
	case model.NodeFail, model.Preempted, model.BootFail:
		return !j.Spec.Requeue
	}
	return false
}

// endedBefore ends a job that waits as gdbd has it. Its record is there, and so it is not sent.
func (s *State) endedBefore(j *model.Job, r *FoundRun) {
	n := *j
	n.State, n.Reason, n.Why, n.Deps, n.Attempt, n.Restarts = r.State, r.Reason, r.Exit.Text, nil, r.Attempt, r.Restarts
	n.End = &model.End{At: r.End, Exit: r.Exit, UID: r.UID}
	s.put(&n)
	s.countArray(n.ArrayID, func(a *Array) {
		a.Waiting--
		s.arrayDone(a, &n, 1)
	})
	s.wake(&n)
}

// nextAttempt gives the attempt that follows j's: one that began before the controllers went on from a snapshot may
// have had others after it.
func (s *State) nextAttempt(j *model.Job) uint32 {
	if n := len(s.eras); n > 0 && j.Run != nil && j.Run.Start < s.eras[n-1].At {
		return inNextEra(j.Attempt)
	}
	return j.Attempt + 1
}

// A dump is what `gcontrol dump state` writes and `gbatch sim --from-state` reads: one line with its format and moment,
// then a snapshot.

const (
	dumpMagic   = "gbatch-state"
	dumpFormat  = 1
	maxDumpLine = 256
)

// WriteDump writes the facts as of now; write comes from Freeze.
func WriteDump(w io.Writer, now model.Time, write func(io.Writer) error) error {
	if _, err := fmt.Fprintf(w, "%s %d %d\n", dumpMagic, dumpFormat, now); err != nil {
		return err
	}
	return write(w)
}

// ReadDump reads what WriteDump wrote.
func ReadDump(r io.Reader) (*State, model.Time, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	line, err := br.ReadSlice('\n')
	f := strings.Fields(string(line[:min(len(line), maxDumpLine)]))
	if err != nil || len(f) != 3 || f[0] != dumpMagic {
		return nil, 0, fmt.Errorf("this is no dump of a cluster's state: gcontrol dump state FILE makes one")
	}
	if f[1] != strconv.Itoa(dumpFormat) {
		return nil, 0, fmt.Errorf("the dump has format %s, this version reads %d: use the gbatch that made it", f[1],
			dumpFormat)
	}
	now, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || now <= 0 {
		return nil, 0, fmt.Errorf("the dump says %q for its time: it is damaged, make a new one", f[2])
	}
	s := New()
	if err := s.Restore(br); err != nil {
		return nil, 0, err
	}
	return s, model.Time(now), nil
}
