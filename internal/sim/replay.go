package sim

import (
	"context"
	"fmt"
	"math"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// Events chooses how often the scheduler plans: see the package's doc.
type Events uint8

// The ways.
const (
	Batch  Events = iota // one pass per second
	Single               // one pass per event
)

// Setup is the complete input of a replay.
type Setup struct {
	Work      *Workload
	Machine   *Machine
	Scheduler Scheduler
	Events    Events
	Progress  func(done, all int) // called now and then; may be nil

	ElasticShare float64 // of the jobs on whole nodes, from 0 to 1 (elastic.go)
	Seed         uint64  // which of them
	Segment      int32   // nodes of a segment of those that have as many; 0: they have no segments
}

// NoStart marks a job that the machine can never run.
const NoStart = -1 << 62

// Outcome is the result of a replay.
type Outcome struct {
	Setup
	// of each job, seconds of the workload's clock; NoStart where it can't run. Of those requeued, the last
	Start   []int64
	End     []int64 // of each job that has started
	Refused []Left  // jobs that can't run here, by why
	Passes  int     // planning passes
	Load    []Sample
	Cut     *Preempted  // nil: no job was preempted
	GPU     *GPUUse     // where the machine has GPUs
	Elastic *ElasticUse // where there are elastic jobs

	byGPU bool // units are GPUs
}

// Sample is the machine and its queue from one moment on.
type Sample struct {
	At     int64 // seconds
	Busy   int64 // units in use: GPUs where the machine has any, otherwise processors
	Queued int32
}

// replay is a replay in progress.
type replay struct {
	*Outcome
	st     *state.State
	plan   Planner
	specs  *specs
	base   int64 // Unix seconds of the workload's second 0
	next   int   // first job that has not arrived
	ends   endHeap
	seq    int64
	queued int32
	busy   int64
	last   int64          // second of the last event
	wake   int64          // second at which a promise is due; counts while it is after last
	err    error          // of a pass outside of an event
	gone   []state.Report // scratch
	over   []ending       // scratch
	begun  []int32        // by state's job number: place in Jobs
	swept  int            // jobs that had ended when the state was last swept
	ended  int
	gpu    *gpuMeter
	cut    interruptions

	elastic elastics
}

// defaultEpoch is second 0 of a workload that does not know its own: 2001-09-09, so that no time is 0.
const defaultEpoch = 1_000_000_000

// Replay runs the workload to its last job's end.
func Replay(ctx context.Context, s Setup) (*Outcome, error) {
	r := &replay{Outcome: &Outcome{Setup: s, Start: make([]int64, len(s.Work.Jobs)), End: make([]int64, len(s.Work.Jobs))},
		st: state.New(), specs: newSpecs(s.Machine),
		base: s.Work.Epoch, begun: make([]int32, 1, len(s.Work.Jobs)+1)}
	if r.base <= 0 {
		r.base = defaultEpoch
	}
	for i := range r.Start {
		r.Start[i] = NoStart
	}
	r.specs.segment = s.Segment
	r.plan = s.Scheduler.New()
	r.cut = newInterruptions(s.Machine.Config)
	r.elastic = elastics{share: s.ElasticShare, seed: s.Seed, cpus: s.Machine.eachCPUs(),
		of: map[int32]*stretch{}}
	r.cut.may = r.cut.may || s.ElasticShare > 0 // only jobs that are known to run can be resized
	_, gpus := s.Machine.units()
	r.byGPU = gpus > 0
	first, _ := s.Work.span()
	r.boot(first)
	r.gpu = newGPUMeter(r)
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if r.gpu != nil {
		r.GPU = r.gpu.result()
	}
	r.Elastic = r.elastic.result()
	if r.cut.Preempted != (Preempted{}) {
		r.Cut = &r.cut.Preempted
	}
	return r.Outcome, nil
}

// boot defines the cluster and registers its nodes.
func (r *replay) boot(at int64) {
	c := r.Machine.Config
	r.apply(at, &state.SetConfig{Config: c, Instance: 1})
	accounts := map[string]bool{} // the trace's exist
	var made state.Accounts
	for i := range r.Work.Jobs {
		if a := r.Work.Jobs[i].Account; a != "" && a != model.RootAccount && !accounts[a] {
			accounts[a] = true
			made.Edits = append(made.Edits, model.AcctEdit{Op: model.PutAccount,
				Account: &model.Account{Name: a, Parent: model.RootAccount}})
		}
	}
	r.apply(at, &made)
	for _, d := range c.Nodes {
		r.apply(at, &state.Join{Node: d.Name, BootID: "sim"})
	}
}

func (r *replay) time(at int64) model.Time { return model.Time((r.base + at) * 1000) }

// clock gives a moment's second of the workload, rounded up; for 0 a second before all others.
func (r *replay) clock(t model.Time) int64 {
	if t == 0 {
		return math.MinInt64
	}
	return (int64(t)+999)/1000 - r.base
}

func (r *replay) apply(at int64, b state.Body) state.Result {
	return r.st.Apply(state.Command{At: r.time(at), Body: b})
}

// progressEvery is how many jobs end between two looks at the context and two calls of Progress.
const progressEvery = 512

// run goes from event to event.
func (r *replay) run(ctx context.Context) error {
	jobs := r.Work.Jobs
	told := 0
	for r.more() {
		if r.ended >= told {
			told = r.ended + progressEvery
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.Progress != nil {
				r.Progress(r.ended, len(jobs))
			}
		}
		at := int64(1) << 62
		if r.next < len(jobs) {
			at = jobs[r.next].Submit
		}
		if r.ends.len() > 0 {
			at = min(at, r.ends.min().at)
		}
		if r.wake > r.last {
			at = min(at, r.wake)
		}
		var err error
		r.last = at
		if r.Events == Single {
			err = r.single(at)
		} else {
			err = r.batch(at)
		}
		if err != nil {
			return err
		}
		r.sample(at)
		r.sweep(at)
	}
	switch {
	case r.err != nil:
		return r.err
	case r.queued > 0:
		return fmt.Errorf("the machine is idle and %d jobs wait that it could run: the scheduler starves them (%s)", r.queued,
			r.waiting())
	}
	if r.Progress != nil {
		r.Progress(len(jobs), len(jobs))
	}
	return nil
}

// more reports whether anything is left to happen. If there are no events but pending jobs, another pass may start jobs
// that the limit on starts of one pass has left.
func (r *replay) more() bool {
	if r.next < len(r.Work.Jobs) || r.ends.len() > 0 || r.queued > 0 && r.wake > r.last {
		return true
	}
	if r.queued > 0 && r.err == nil {
		r.err = r.pass(r.last)
	}
	return r.err == nil && (r.ends.len() > 0 || r.queued > 0 && r.wake > r.last)
}

// batch plans once after everything that happens in a second.
func (r *replay) batch(at int64) error {
	r.gone = r.gone[:0]
	for r.ends.len() > 0 && r.ends.min().at == at {
		r.gone = append(r.gone, r.end(r.ends.pop()))
	}
	if len(r.gone) > 0 {
		r.report(at)
	}
	for r.next < len(r.Work.Jobs) && r.Work.Jobs[r.next].Submit == at {
		r.arrive(at)
	}
	return r.pass(at)
}

// single plans after every event: see the package's doc for the order. It omits a pass if nothing has changed since the
// last one, because that pass would change nothing.
func (r *replay) single(at int64) error {
	r.over, r.gone = r.over[:0], r.gone[:0]
	for r.ends.len() > 0 && r.ends.min().at == at {
		e := r.ends.pop()
		if r.over = append(r.over, e); r.isExact(e) {
			r.gone = append(r.gone, r.end(e))
		}
	}
	moved := len(r.gone) > 0
	if moved {
		r.report(at)
	}
	for r.next < len(r.Work.Jobs) && r.Work.Jobs[r.next].Submit == at {
		if !r.arrive(at) {
			continue
		}
		moved = false
		if err := r.pass(at); err != nil {
			return err
		}
	}
	if at == r.wake && len(r.over) == 0 {
		return r.pass(at)
	}
	for _, e := range r.over { // in the order in which they had started
		if !r.isExact(e) {
			moved = true
			r.gone = append(r.gone[:0], r.end(e))
			r.report(at)
		}
		if moved {
			moved = false
			if err := r.pass(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// isExact reports whether a job ends exactly at its time limit.
func (r *replay) isExact(e ending) bool {
	j := &r.Work.Jobs[e.job]
	return j.Run == j.Request
}

// arrive submits the next job; false where the machine can never run it.
func (r *replay) arrive(at int64) bool {
	i := r.next
	r.next++
	sp := r.specs.of(&r.Work.Jobs[i], r.elastic.draw(r.Machine, &r.Work.Jobs[i]))
	if why := r.impossible(sp); why != "" {
		r.refuse(why)
		return false
	}
	res := r.apply(at, &state.Submit{Spec: sp, Priority: 1})
	if res.Refusal != state.OK {
		r.refuse(res.Refusal.String())
		return false
	}
	for int(res.Job) >= len(r.begun) {
		r.begun = append(r.begun, -1)
	}
	r.begun[res.Job] = int32(i)
	r.queued++
	return true
}

func (r *replay) refuse(why string) {
	for i := range r.Refused {
		if r.Refused[i].Why == why {
			r.Refused[i].Jobs++
			return
		}
	}
	r.Refused = append(r.Refused, Left{why, 1})
}

// impossible gives the reason why the machine can never run such a job, or "". It checks equal specifications once.
func (r *replay) impossible(sp *model.Spec) string {
	if why, ok := r.specs.never[sp]; ok {
		return why
	}
	v := r.st.Peek()
	part := v.Partition(sp.Partitions[0])
	text := ""
	if why, _ := sched.Possible(v, sp, part); why != sched.CanRun {
		text = why.String()
	} else if part.MaxTimeS != model.NotSet && sp.LimitS > part.MaxTimeS {
		text = "asks for more time than partition " + part.Name + " gives"
	}
	r.specs.never[sp] = text
	return text
}

// report passes the current ends to the state.
func (r *replay) report(at int64) {
	r.apply(at, &state.Reports{Reports: r.gone})
	r.settle()
}

// end makes the report of a job's end.
func (r *replay) end(e ending) state.Report {
	r.busy -= r.holds(e.job)
	r.elastic.over(e.job, e.at)
	if e.killed {
		r.cut.killed = append(r.cut.killed, e)
	} else {
		r.ended++
		r.End[e.job] = e.at
	}
	return state.Report{Kind: state.Ended, Job: e.id, Attempt: e.attempt, At: r.time(e.at)}
}

// pass plans and applies the plan, and repeats this if suspended jobs have made room.
func (r *replay) pass(at int64) error {
	for range maxRounds {
		if room, err := r.planOnce(at); err != nil || !room {
			return err
		}
	}
	return nil
}

// maxRounds bounds the plans of one pass.
const maxRounds = 1000

func (r *replay) planOnce(at int64) (room bool, err error) {
	r.Passes++
	plan := r.plan.Plan(r.st.Peek(), r.time(at))
	if w, ok := r.plan.(waker); ok {
		r.wake = r.clock(w.Wake())
	}
	plan.Reasons = nil // a replay does not use them
	if plan.Empty() {
		return false, nil
	}
	res := r.apply(at, &state.Starts{Epoch: 1, Plan: plan})
	for i := range plan.Starts {
		s := &plan.Starts[i]
		k := r.begun[s.Job]
		j := &r.Work.Jobs[k]
		if res.Each[i] != state.OK {
			return false, fmt.Errorf("second %d: the state refuses to start job %d of the trace (%s): the scheduler and the "+
				"state disagree", at, j.ID, res.Each[i])
		}
		r.Start[k] = at
		run := j.Run
		if own := r.elastic.draw(r.Machine, j); own > 0 {
			run = r.elastic.began(k, j, own, len(s.Alloc.Nodes), at)
		}
		r.queued--
		r.busy += r.holds(k)
		r.seq++
		r.ends.push(ending{at: at + run, seq: r.seq, job: k, id: s.Job, attempt: r.cut.attempt(s.Job)})
	}
	r.cut.begin(&plan, r.time(at), func(b state.Body) { r.apply(at, b) })
	given := r.resized(&plan, at)
	return r.cut.carryOut(&r.ends, r.st.Peek(), &plan, at, 1, r.use) || given, nil
}

// sample records the load if it has changed.
func (r *replay) sample(at int64) {
	s := Sample{at, r.busy, r.queued}
	if n := len(r.Load); n > 0 && r.Load[n-1].Busy == s.Busy && r.Load[n-1].Queued == s.Queued {
		return
	}
	r.Load = append(r.Load, s)
	if r.gpu != nil {
		r.gpu.look(r, at)
	}
}

// sweepEvery is the number of ended jobs after which the state is swept.
const sweepEvery = 256

// sweep removes ended jobs and accounting events from the state, as time and gdbd would.
func (r *replay) sweep(at int64) {
	if r.ended-r.swept < sweepEvery {
		return
	}
	r.swept = r.ended
	r.apply(at, &state.Trim{Seq: 1<<64 - 1})
	r.apply(at, &state.Tick{})
}

// waiting names some of the pending jobs.
func (r *replay) waiting() string {
	text := ""
	n := 0
	r.st.Peek().Jobs(func(j *model.Job) bool {
		if j.State == model.Pending {
			if n++; n > 5 {
				return false
			}
			text += fmt.Sprintf(" job %d: %s", r.Work.Jobs[r.begun[j.ID]].ID, j.Reason)
		}
		return true
	})
	return text
}
