package state

import (
	"bytes"
	"fmt"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// The outbox keeps accounting events until gdbd has them: the job's record at that moment, under a growing sequence
// number. The next event of the same attempt replaces one that is not acknowledged, because each event is a complete
// record: a job that starts and ends while gdbd is away costs one entry. Ended steps have events of their own, which
// are never replaced; a step that is reported twice gives two events and one record.

// record queues j's present record for accounting.
func (s *State) record(j *model.Job) {
	if seq, ok := s.outSeq.Get(j.ID); ok {
		if old, ok := s.outbox.Get(seq); ok && old.Attempt == j.Attempt && sizeOf(old) == sizeOf(j) {
			s.outbox.Delete(seq)
		}
	}
	s.outbox.Set(s.nextSeq, j)
	s.outSeq.Set(j.ID, s.nextSeq)
	s.nextSeq++
	s.boundOutbox()
}

// sizeOf counts the sizes of a run before its present one: each has a record of its own.
func sizeOf(j *model.Job) uint32 {
	if j.Run == nil {
		return 0
	}
	return j.Run.Sizes
}

// queueRecord queues the record of an attempt that is not the job's last one.
func (s *State) queueRecord(j *model.Job) {
	s.outbox.Set(s.nextSeq, j)
	s.nextSeq++
	s.boundOutbox()
}

// stepEnded queues the record of a step. Its job may have ended or started again by then, because a node that was away
// reports late.
func (s *State) stepEnded(j *model.Job, r *Report) bool {
	if r.Step == nil || r.Attempt == 0 || r.Attempt > j.Attempt || j.IsArray() {
		return false
	}
	if r.Attempt != j.Attempt {
		n := *j
		n.Attempt = r.Attempt
		j = &n
	} else if x := &r.Step.Exit; r.Step.ID >= 0 && !x.Unknown {
		j = s.derive(j, x.Status())
	}
	s.outbox.Set(s.nextSeq, j)
	s.outSteps.Set(s.nextSeq, r.Step)
	s.detail.steps += stepWeight(r.Step)
	s.nextSeq++
	s.boundOutbox()
	return true
}

// derive notes that a step of j ended with a status: a job's derived exit code is the highest of them.
func (s *State) derive(j *model.Job, status int32) *model.Job {
	n := *j
	switch {
	case j.Run != nil && j.State.HasResources() && status > j.Run.Worst:
		run := *j.Run
		run.Worst, n.Run = status, &run
		s.put(&n)
	case j.End != nil && status > j.End.Exit.Worst:
		end := *j.End
		end.Exit.Worst, n.End = status, &end
		s.put(&n)
		s.record(&n)
	default:
		return j
	}
	return &n
}

// hadStep reports whether a step's node is the first one of the attempt: it has all of the step. An earlier attempt's
// nodes are known if the attempt was given up with one of them; of others all steps are reported before the end.
func (s *State) hadStep(j *model.Job, r *Report) bool {
	if r.Attempt != j.Attempt {
		was, ok := s.givenUp.Get(lastAttempt{attemptKey: attemptKey{r.Job, r.Attempt}})
		if !ok {
			return false
		}
		j = was.job
	}
	return j.Run != nil && r.Node != "" && placeOf(j, r) == 0
}

// boundOutbox discards events when more wait than MaxDBDMsgs: entries of the trail beyond their share, then ends of
// steps, then records of jobs, each time the oldest. So no user's changes and no user's steps push out the ends of
// jobs. Of an unfinished job nothing is lost with them: its end is an event with all of its record. The trail and the
// ends of steps are bounded in bytes too: one of them can have a million.
func (s *State) boundOutbox() {
	most := s.cfg.Params.Ship.MaxWaiting
	apart := s.now.rules >= rulesBrief
	for apart && s.detail.trail > maxTrailBytes {
		seq, _, _ := s.outTrail.Min()
		s.discard(seq)
	}
	for apart && s.detail.steps > maxStepBytes {
		seq, _, _ := s.outSteps.Min()
		s.discard(seq)
	}
	for most > 0 && int64(s.outbox.Len()) > most {
		seq, _, _ := s.outbox.Min()
		switch {
		case apart && int64(s.outTrail.Len()) > most/trailShare:
			seq, _, _ = s.outTrail.Min()
		case apart && s.outSteps.Len() > 0:
			seq, _, _ = s.outSteps.Min()
		}
		s.discard(seq)
	}
}

// Bounds of what waits, beside MaxDBDMsgs. They never change, as Apply keeps them: with other ones replicas differ.
const (
	trailShare    = 4 // of MaxDBDMsgs: what the trail's entries have for certain, and no more when it is used up
	maxTrailBytes = 64 << 20
	maxStepBytes  = 256 << 20
)

// detail is how much the trail's entries and the ends of steps that wait weigh. It is derived.
type detail struct{ trail, steps int64 }

// Weights are about the bytes of what is kept. Decisions of Apply rest on them, so they never change, and leave out
// what is appended to the records: a decision can't depend on the version that makes it, as it would with the length of
// what this version writes. Under new rules they may.

// weight gives that of an accounting event.
func (e *Event) weight() int64 {
	switch {
	case e.Step != nil:
		return stepWeight(e.Step) + jobWeight(e.Job)
	case e.Audit != nil:
		return trailWeight(e.Audit)
	}
	return jobWeight(e.Job)
}

// trailWeight gives that of an entry of the trail.
func trailWeight(a *model.Audit) int64 {
	n := 200 + len(a.Name) + len(a.Text) + len(a.Nodes) + 50*len(a.TRES)
	if a.Noted != nil {
		for i := range a.Noted.Set {
			n += len(a.Noted.Set[i].Key) + len(a.Noted.Set[i].Value)
		}
	}
	return int64(n)
}

// stepWeight gives that of a step.
func stepWeight(x *model.Step) int64 {
	n := 200 + len(x.Name) + len(x.Submit) + len(x.Container) + len(x.Exit.Text) + 50*len(x.Gres)
	for _, name := range x.Nodes {
		n += 16 + len(name)
	}
	return int64(n + useWeight(x.Exit.Use))
}

func useWeight(u *model.Usage) (n int) {
	if u == nil {
		return 0
	}
	for i := range u.Nodes {
		n += 150 + len(u.Nodes[i].Node) + 150*len(u.Nodes[i].GPUs)
	}
	return n
}

// jobWeight gives that of a job's record.
func jobWeight(j *model.Job) int64 {
	n := 40 + len(j.Why) + len(j.Comment) + 12*len(j.Tasks) + 12*len(j.Deps) + textsWeight(j.Avoid)
	if j.Spec != nil {
		n += specWeight(j.Spec)
	}
	if r := j.Run; r != nil {
		n += 60 + len(r.Partition) + len(r.StopWhy) + len(r.Fault) + len(r.FailedNode) + len(r.Resv) + 12*len(r.Spent)
		if r.Alloc != nil {
			for i := range r.Alloc.Nodes {
				n += partWeight(&r.Alloc.Nodes[i])
			}
		}
		for i := range r.Leaving {
			n += 16 + partWeight(&r.Leaving[i].Part)
		}
		for i := range r.Licenses {
			n += 8 + len(r.Licenses[i].Name)
		}
	}
	if e := j.End; e != nil {
		n += 20 + len(e.Exit.Text) + useWeight(e.Exit.Use)
	}
	return int64(n)
}

func partWeight(x *model.NodeAlloc) int {
	n := 16 + len(x.Node) + 9*len(x.CPUs)
	for i := range x.Gres {
		n += 24 + len(x.Gres[i].Name) + len(x.Gres[i].Type)
	}
	return n
}

func specWeight(sp *model.Spec) int {
	n := 80 + 5*len(sp.Groups) + 20*len(sp.Limits) + 30*len(sp.Gres) + 12*len(sp.Deps) + 12*len(sp.Tasklist)
	for _, list := range [...][]string{sp.Partitions, sp.Args, sp.ReqNodes, sp.ExcNodes, {sp.Name, sp.User, sp.Group,
		sp.Account, sp.QOS, sp.Comment, sp.Script, sp.Env, sp.Command, sp.Submit, sp.WorkDir, sp.StdIn, sp.StdOut,
		sp.StdErr, sp.Host, sp.Features, sp.DepText, sp.ArrayText, sp.Reservation, sp.WCKey}} {
		n += textsWeight(list)
	}
	if m := sp.More; m != nil {
		n += 40 + len(m.Prefer) + 30*len(m.Licenses) + 30*len(m.GresToo) + 30*len(m.GPUsPerSocket)
	}
	return n
}

func textsWeight(list []string) (n int) {
	for _, text := range list {
		n += 2 + len(text)
	}
	return n
}

// discard takes out an event that gdbd never gets.
func (s *State) discard(seq uint64) {
	j, _ := s.outbox.Get(seq)
	oldest, _, _ := s.outbox.Min()
	if _, step := s.outSteps.Get(seq); step || j.End != nil {
		s.shipped.discarded++
	}
	s.takeOut(seq, j)
	if seq == oldest || s.now.rules < rulesBrief { // else those before it can still be sent
		s.shipped.gone = max(s.shipped.gone, seq)
	}
}

func (s *State) takeOut(seq uint64, j *model.Job) {
	s.outbox.Delete(seq)
	if x, ok := s.outSteps.Delete(seq); ok {
		s.detail.steps -= stepWeight(x)
	}
	if a, ok := s.outTrail.Delete(seq); ok {
		s.detail.trail -= trailWeight(a)
	}
	if cur, ok := s.outSeq.Get(j.ID); ok && cur == seq {
		s.outSeq.Delete(j.ID)
	}
}

func (s *State) applyTrim(at model.Time, c *Trim) Result {
	res, k := Result{}, &s.shipped
	if last := min(c.Seq, s.nextSeq-1); c.Acked && last > k.acked {
		if k.acked == 0 { // what came before was acknowledged when nothing was kept
			k.gone = max(k.gone, min(c.From, last))
		}
		k.acked, res.Changed = last, true
	}
	for {
		seq, j, ok := s.outbox.Min()
		if !ok || seq > c.Seq {
			break
		}
		e := Event{Seq: seq, Job: j}
		e.Step, _ = s.outSteps.Get(seq)
		e.Audit, _ = s.outTrail.Get(seq)
		if c.Acked && (c.Keep <= 0 || k.keep(at, c, &e, s.now.rules) != nil) {
			k.gone = max(k.gone, seq)
		}
		s.takeOut(seq, j)
		res.Changed = true
	}
	if c.Acked {
		k.drop(at, c)
	}
	return res
}

// Accounting events that gdbd has acknowledged are kept for a while: a gdbd that was restored from a backup gets them
// again. They are kept as bytes, in packs of many, so that they cost little memory and snapshots copy them as they are.

// A pack takes no more events when it weighs so many bytes, or is that old, or is that part of what may be kept: whole
// packs are dropped.
const (
	packBytes = 64 << 10
	packAgeS  = 600
	packParts = 16
)

// pack has events in order. It is immutable, except that its bytes may be continued by the next version of it.
type pack struct {
	First, Last uint64 // numbers of its events; there can be gaps
	Events      int64
	Begun, At   model.Time // when its first and last event were acknowledged
	Data        []byte     // snapEvents, one after the other
	Weight      int64      // of its events; in snapshots of before it is 0, and their bytes count
}

func (x *pack) Wire(c *wire.C) {
	wire.Int(c, &x.First)
	wire.Int(c, &x.Last)
	wire.Int(c, &x.Events)
	wire.Int(c, &x.Begun)
	wire.Int(c, &x.At)
	wire.Bytes(c, &x.Data, model.MaxFile)
	wire.Int(c, &x.Weight)
}

// shipped is what is known of events that left the outbox.
type shipped struct {
	acked uint64 // the last event that a gdbd has acknowledged
	// the last event that is neither in the outbox nor kept, though a gdbd has had it or should have; one that was
	// discarded while older ones waited is only in discarded
	gone      uint64
	discarded uint64 // ends of jobs and steps that gdbd never got, because too many waited

	packs  *btree.Map[uint64, *pack] // by First
	events int64                     // in all packs
	bytes  int64                     // that they weigh
}

func newShipped() shipped { return shipped{packs: new(btree.Map[uint64, *pack])} }

// keep adds an acknowledged event. What it weighs decides what is dropped and when, not the bytes that this version
// makes of it.
func (k *shipped) keep(at model.Time, c *Trim, e *Event, rules uint8) error {
	seq := e.Seq
	_, p, ok := k.packs.Max()
	if !ok || p.Weight >= min(packBytes, c.KeepBytes/packParts) || p.Events >= max(c.Keep/packParts, 1) ||
		p.Begun.Add(min(packAgeS, c.KeepS)) < at {
		p = &pack{First: seq, Begun: at}
	}
	kept := snapEvent{Seq: seq, Job: e.Job.ID, Step: e.Step, Audit: e.Audit}
	if e.Audit == nil {
		kept.Record = &snapJob{Job: e.Job}
	}
	data, err := wire.Append(p.Data, &kept)
	if err != nil {
		return err
	}
	weight := e.weight()
	if rules < rulesWeighed {
		weight = int64(len(data) - len(p.Data))
	}
	k.packs.Set(p.First, &pack{p.First, seq, p.Events + 1, p.Begun, at, data, p.Weight + weight})
	k.events++
	k.bytes += weight
	return nil
}

// drop removes the oldest packs until the bounds are kept.
func (k *shipped) drop(at model.Time, c *Trim) {
	for {
		first, p, ok := k.packs.Min()
		if !ok || k.events <= c.Keep && k.bytes <= c.KeepBytes && p.At.Add(c.KeepS) >= at {
			return
		}
		k.packs.Delete(first)
		k.events -= p.Events
		k.bytes -= p.Weight
		k.gone = max(k.gone, p.Last)
	}
}

// check compares the sums, and the packs with each other.
func (k *shipped) check(next uint64) (err error) {
	events, size, last := int64(0), int64(0), uint64(0)
	k.packs.Scan(func(first uint64, p *pack) bool {
		if p.First != first || p.First <= last || p.Last < p.First || p.Last >= next || p.Events <= 0 {
			err = fmt.Errorf("kept accounting events %d to %d stand at %d, after %d; the next is %d", p.First, p.Last, first,
				last, next)
		}
		events, size, last = events+p.Events, size+p.Weight, p.Last
		return err == nil
	})
	switch {
	case err != nil:
		return err
	case events != k.events || size != k.bytes:
		return fmt.Errorf("%d accounting events of %d bytes are kept, and counted as %d of %d", events, size, k.events,
			k.bytes)
	case k.gone >= next || k.acked >= next:
		return fmt.Errorf("accounting events %d were dropped and %d acknowledged, and the next is %d", k.gone, k.acked, next)
	}
	return nil
}

// scan calls f for the kept events after a number, in order, until it returns false.
func (k *shipped) scan(after uint64, f func(e Event) bool) error {
	from := after
	k.packs.Descend(after, func(first uint64, _ *pack) bool { // the pack that has it begins at or before it
		from = first
		return false
	})
	more := true
	var err error
	k.packs.Ascend(from, func(_ uint64, p *pack) bool {
		if p.Last <= after {
			return true
		}
		d := wire.NewReader(bytes.NewReader(p.Data))
		for range p.Events {
			var x snapEvent
			if err = d.Read(&x); err != nil {
				return false
			}
			e := Event{Seq: x.Seq, Job: noJob, Step: x.Step, Audit: x.Audit}
			switch {
			case x.Audit != nil:
			case x.Record == nil || x.Record.Job == nil || x.Record.Job.Spec == nil:
				err = fmt.Errorf("accounting event %d is empty", x.Seq)
				return false
			default:
				e.Job = x.Record.Job
			}
			if x.Seq <= after {
				continue
			}
			if more = f(e); !more {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("reading kept accounting records: %w", err)
	}
	return nil
}

// snapShipped is the part of shipped that stands in a snapshot's head; the packs follow at its end.
type snapShipped struct {
	Acked, Gone, Discarded uint64
	Packs                  uint64
}

func (x *snapShipped) Wire(c *wire.C) {
	wire.Int(c, &x.Acked)
	wire.Int(c, &x.Gone)
	wire.Int(c, &x.Discarded)
	wire.Int(c, &x.Packs)
}

// pack reads one.
func (in *restorer) pack() error {
	x := new(pack)
	if err := in.d.Read(x); err != nil {
		return err
	}
	if x.Weight == 0 {
		x.Weight = int64(len(x.Data))
	}
	k := &in.n.shipped
	k.packs.Set(x.First, x)
	k.events += x.Events
	k.bytes += x.Weight
	return nil
}

// Records calls f for accounting events after a number, in order, until it returns false: the kept ones, then those
// that wait.
func (v *View) Records(after uint64, f func(e Event) bool) error {
	more := true
	if after < v.shipped.acked {
		err := v.shipped.scan(after, func(e Event) bool {
			more = f(e)
			return more
		})
		if err != nil {
			return err
		}
	}
	if more {
		v.Outbox(after, f)
	}
	return nil
}

// Shipped is what is known of accounting events that left the outbox.
type Shipped struct {
	Acked     uint64 // the last one that a gdbd has acknowledged; 0: none ever
	Dropped   uint64 // the last one of these that can't be sent again
	Discarded uint64 // ends of jobs and steps that gdbd never gets: more than MaxDBDMsgs waited for it
	Kept      int64  // acknowledged ones that can be sent again
	KeptBytes int64  // about
}

// Shipped gives what is known of accounting events that left the outbox.
func (v *View) Shipped() Shipped {
	k := &v.shipped
	return Shipped{k.acked, min(k.gone, k.acked), k.discarded, k.events, k.bytes}
}
