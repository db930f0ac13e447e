package faultsim

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/wire"
)

// check.go is the ledger of what has really happened, and the invariants.

type ledger struct {
	attempts  map[key]*attemptLog
	latest    map[model.JobID]uint32 // the latest attempt with a process
	alive     map[model.JobID]*process
	users     map[gpu]*process
	epochs    map[int]uint64 // obeyed, by node
	acked     map[model.JobID]string
	submitted map[string]bool // by request: acknowledged
	index     int             // entries that some replica has applied
	timedOut  map[key]bool
	runs      int
}

type gpu struct{ node, index int }

// attemptLog is what is known of one attempt.
type attemptLog struct {
	began   int64 // when it got its resources
	has     bool
	started int64
	ran     bool
	node    string
	gpus    model.Bits
	ended   int64
	exit    model.Exit
	told    bool  // its end, with its exit, is acknowledged to the node
	slow    int64 // for how long a report of its end was on its way
}

func newLedger() ledger {
	return ledger{attempts: map[key]*attemptLog{}, latest: map[model.JobID]uint32{}, alive: map[model.JobID]*process{},
		users: map[gpu]*process{}, epochs: map[int]uint64{}, acked: map[model.JobID]string{}, submitted: map[string]bool{},
		timedOut: map[key]bool{}}
}

func (l *ledger) attempt(k key) *attemptLog {
	a := l.attempts[k]
	if a == nil {
		a = &attemptLog{}
		l.attempts[k] = a
	}
	return a
}

// started is a process that begins: nothing twice, nothing late.
func (l *ledger) started(n *node, p *process) {
	w := n.w
	w.tell("%s starts job %d attempt %d on GPUs %s", n.name, p.k.Job, p.k.Attempt, p.gpus)
	l.runs++
	a := l.attempt(p.k)
	switch other := l.alive[p.k.Job]; {
	case a.ran:
		w.fail("job %d attempt %d is started a second time", p.k.Job, p.k.Attempt)
	case other != nil:
		w.fail("job %d attempt %d starts while attempt %d runs", p.k.Job, p.k.Attempt, other.k.Attempt)
	case l.latest[p.k.Job] > p.k.Attempt:
		w.fail("job %d attempt %d starts after attempt %d", p.k.Job, p.k.Attempt, l.latest[p.k.Job])
	}
	for i := range gpusPerNode {
		if !p.gpus.Has(i) {
			continue
		}
		if other := l.users[gpu{n.id, i}]; other != nil {
			w.fail("GPU %d of %s is given to job %d while job %d uses it", i, n.name, p.k.Job, other.k.Job)
		}
		l.users[gpu{n.id, i}] = p
	}
	a.ran, a.started, a.node, a.gpus = true, w.now, n.name, p.gpus
	l.latest[p.k.Job] = p.k.Attempt
	l.alive[p.k.Job] = p
}

// ended is a process that ends.
func (l *ledger) ended(n *node, p *process) {
	n.w.tell("%s: job %d attempt %d has ended", n.name, p.k.Job, p.k.Attempt)
	a := l.attempt(p.k)
	a.ended, a.exit = n.w.now, p.exit
	if l.alive[p.k.Job] == p {
		delete(l.alive, p.k.Job)
	}
	for i := range gpusPerNode {
		if l.users[gpu{n.id, i}] == p {
			delete(l.users, gpu{n.id, i})
		}
	}
}

// obeys is a node that carries out an order.
func (l *ledger) obeys(n *node, epoch uint64) {
	if epoch < l.epochs[n.id] {
		n.w.fail("%s obeys a leader of term %d after one of term %d", n.name, epoch, l.epochs[n.id])
	}
	l.epochs[n.id] = max(l.epochs[n.id], epoch)
}

// How often what costs much is checked: entries from one time to the next.
const (
	checkEvery   = 8
	compareEvery = 24
)

// checkEntry looks at a replica after each entry.
func (w *World) checkEntry(c *controller) {
	if c.applied%compareEvery == 0 {
		w.log.compare(c, c.applied)
	}
	v := c.st.Peek()
	changes, cursor, ok := v.Changes(c.cursor)
	c.cursor = cursor
	if c.applied <= w.ledger.index {
		return
	}
	w.ledger.index = c.applied
	if c.applied%checkEvery == 0 {
		if err := c.st.Check(); err != nil {
			w.fail("after entry %d: %v", c.applied, err)
			return
		}
	}
	if !ok {
		return
	}
	if w.opts.Story {
		w.tellChanges(v, changes)
	}
	for _, ch := range changes {
		if j := v.Job(ch.Job); j != nil {
			w.checkJob(j)
		}
	}
	w.checkOutbox(v)
}

// tellChanges adds to the story what an entry has changed. It is not in the digest.
func (w *World) tellChanges(v *state.View, changes []state.Change) {
	digest := w.digest
	for i, ch := range changes {
		if slices.Contains(changes[:i], ch) {
			continue
		}
		if j := v.Job(ch.Job); j != nil {
			w.tell("  entry %d: job %d attempt %d is %s %s, on %v", w.ledger.index, j.ID, j.Attempt, j.State, j.Reason,
				nodesOf(j))
		}
		if n := v.Node(ch.Node); n != nil {
			w.tell("  entry %d: node %s: link %d, admin %d %s, jobs %v", w.ledger.index, n.Def.Name, n.Link, n.Admin, n.Reason,
				n.Jobs)
		}
	}
	w.digest = digest
}

func nodesOf(j *model.Job) []string {
	if j.Run == nil {
		return nil
	}
	return j.Run.Alloc.NodeNames()
}

// checkJob looks at a job that an entry has changed.
func (w *World) checkJob(j *model.Job) {
	if j.Run == nil || !j.State.HasResources() {
		return
	}
	k := key{Job: j.ID, Attempt: j.Attempt}
	a := w.attemptsOf(k)
	if !a.has {
		a.has, a.began = true, w.now
	}
	if j.Run.Stop == model.StopTimeLimit && !w.ledger.timedOut[k] {
		w.ledger.timedOut[k] = true
		// The entry may come later than its moment; time is bent by at most a tenth for a difference of up to 30 s.
		if had := w.now - a.began; had < j.Run.LimitS*second*9/10-2*second {
			w.fail("job %d is ended for its limit of %d s after %d ms", j.ID, j.Run.LimitS, had)
		}
	}
}

// checkOutbox: nothing has left it that gdbd does not have.
func (w *World) checkOutbox(v *state.View) {
	if last := v.NextRecord() - 1; v.OutboxLen() == 0 && w.gdbd.last < last {
		w.fail("the outbox is empty, gdbd has records up to %d of %d", w.gdbd.last, last)
	}
}

// final compares what was promised with what became of it.
func (w *World) final() {
	want, err := w.ctls[0].snapshot()
	if err != nil {
		w.fail("the last snapshot can't be written: %v", err)
		return
	}
	for _, c := range w.ctls[1:] {
		got, err := c.snapshot()
		if err != nil || string(got) != string(want) {
			w.fail("at the end controllers 0 and %d differ (%v)", c.id, err)
			return
		}
		if err := c.st.Check(); err != nil {
			w.fail("at the end, on controller %d: %v", c.id, err)
			return
		}
	}
	v := w.ctls[0].st.Peek()
	byName := map[string]int{}
	v.Jobs(func(j *model.Job) bool { byName[j.Spec.Name]++; return true })
	for _, id := range sorted(w.ledger.submitted) {
		if n := byName[id]; n > 1 || w.ledger.submitted[id] && n != 1 {
			w.fail("request %s has made %d jobs; acknowledged: %v", id, n, w.ledger.submitted[id])
		}
	}
	for _, c := range w.clients {
		for _, o := range c.jobs {
			w.finalJob(v, o)
		}
	}
	w.finalRecords(v)
}

func sorted(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for s := range m {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func (w *World) finalJob(v *state.View, o *ownJob) {
	j := v.Job(o.id)
	switch {
	case j == nil:
		w.fail("job %d was acknowledged and is gone", o.id)
	case j.Spec.Name != o.name:
		w.fail("job %d is of request %s, acknowledged to %s", o.id, j.Spec.Name, o.name)
	case j.Spec.LimitS < o.least || j.Spec.LimitS > o.most:
		w.fail("job %d has a limit of %d s; by its acknowledged extensions it is %d to %d s", o.id, j.Spec.LimitS, o.least,
			o.most)
	case o.cancelled && j.State != model.Cancelled:
		w.fail("job %d was cancelled, acknowledged, and is %s", o.id, j.State)
	}
}

// finalRecords: each process has a record, and each record says what has run.
func (w *World) finalRecords(v *state.View) {
	keys := make([]key, 0, len(w.ledger.attempts))
	for k := range w.ledger.attempts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, byJob)
	for _, k := range keys {
		a := w.ledger.attempts[k]
		rec, ok := w.gdbd.records[k]
		switch {
		case !ok && (a.ran || a.has):
			w.fail("job %d attempt %d ran (%v), and there is no record of it", k.Job, k.Attempt, a.ran)
		case !ok:
		case !rec.job.State.Finished():
			w.fail("the record of job %d attempt %d says %s for ever", k.Job, k.Attempt, rec.job.State)
		case a.ran && a.told && rec.job.State == model.NodeFail && rec.job.Run != nil && rec.job.Run.Stop == model.NoStop &&
			!givenUpMeanwhile(rec.job, a):
			w.fail("job %d attempt %d ended with %+v, which was acknowledged to its node; its record says NODE_FAIL", k.Job,
				k.Attempt, a.exit)
		case rec.job.State == model.Completed && (!a.ran || a.exit.Code != 0 || a.exit.Signal != 0 || a.exit.Unknown):
			w.fail("the record of job %d attempt %d says COMPLETED; it ran: %v, %+v", k.Job, k.Attempt, a.ran, a.exit)
		case rec.job.State == model.Failed && !rec.job.End.Exit.Unknown && (!a.ran || a.exit.Code != rec.job.End.Exit.Code ||
			a.exit.Signal != rec.job.End.Exit.Signal):
			w.fail("the record of job %d attempt %d says exit %+v; it ran: %v, %+v", k.Job, k.Attempt, rec.job.End.Exit, a.ran,
				a.exit)
		}
		if ok && a.ran {
			w.finalCharge(k, a, rec.job)
		}
	}
	v.Jobs(func(j *model.Job) bool {
		k := key{Job: j.ID, Attempt: j.Attempt}
		rec, ok := w.gdbd.records[k]
		if j.State.Finished() && (!ok || rec.job.State != j.State) {
			w.fail("job %d is %s, its record is missing or another one (%v)", j.ID, j.State, ok)
		}
		return true
	})
}

// misreckoned is how far a record's time may be from the true one, beside what the network has held its report back for
// and a tenth of that time: by so much the cluster's time may be bent.
const misreckoned = 6 * second

// finalCharge: a record names the GPUs that were used, and the time for which they were had.
func (w *World) finalCharge(k key, a *attemptLog, j *model.Job) {
	if j.Run == nil || j.End == nil {
		return
	}
	if na := j.Run.Alloc.Nodes[0]; na.Node != a.node || na.Units(model.GPUName).String() != a.gpus.String() {
		w.fail("the record of job %d attempt %d says GPUs %s of %s; it used %s of %s", k.Job, k.Attempt,
			na.Units(model.GPUName), na.Node, a.gpus, a.node)
	}
	switch j.State {
	case model.Completed, model.Failed, model.Timeout, model.Cancelled:
	default:
		return // it ended with its node, as far as is known
	}
	if a.exit.Unknown || j.End.Exit.Unknown || !a.told {
		return
	}
	had, says := a.ended-a.began, int64(j.End.At-j.Run.Start)
	if off := says - had; max(off, -off) > misreckoned+had/10+a.slow {
		w.fail("the record of job %d attempt %d says %s after %d ms; it had its GPUs for %d ms", k.Job, k.Attempt,
			j.State, says, had)
	}
}

// givenUpMeanwhile says that a job's node was given up when its process had just ended. The moment of its end is known
// as exactly as its report was fast; a report that took longer does not correct the record.
func givenUpMeanwhile(j *model.Job, a *attemptLog) bool {
	const slowest = 12 * second
	return strings.Contains(j.Why, "did not answer") && int64(j.End.At-epoch) < a.ended+slowest
}

// through brings a message through its codec.
func through[T any, P interface {
	*T
	wire.Coder
}](w *World, m P) P {
	body, err := proto.Encode(m)
	out := P(new(T))
	if err == nil {
		err = proto.Decode(body, out)
	}
	if err != nil {
		w.fail("a message can't be sent: %v", err)
	}
	return out
}

// later does something as soon as a condition holds.
func (w *World) later(when func() bool, do func()) {
	if when() {
		do()
		return
	}
	w.after(50, func() { w.later(when, do) })
}
