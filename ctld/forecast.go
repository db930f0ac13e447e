package ctld

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gbatch/ctld/peaks"
	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/sched"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// The forecast is gqueue --start's data: when and where the first jobs of the queue will start if all jobs run to their
// limits and no new job is submitted. It makes a reservation for each of them (conservative backfill), whatever the
// real policy does, and its plans are never carried out. Two more plans, in which jobs run as long as their users' jobs
// did lately, give the range in which a job is likely to start.

// forecastDepth is how many pending jobs a forecast covers, the same as Slurm's default of bf_max_job_test.
const forecastDepth = 500

// forecastRest bounds the cost: after a forecast that took a time, the next one waits at least that many times as long,
// so forecasts take a tenth of one CPU.
const forecastRest = 10

// forecastAgain is after how long a forecast is made again although no fact has changed: jobs have outlived guesses.
const forecastAgain = 30 * time.Second

// forecast keeps expected starts up to date, at most bf_interval behind.
func (c *Controller) forecast(ctx context.Context) {
	defer c.expected.Store(nil)
	defer c.places.Store(nil)
	defer c.lately.Store(nil)
	defer c.backlog.Store(nil)
	planner, past := sched.NewPlanner(), policy.NewPast()
	gen, last := uint64(0), time.Time{}
	for ctx.Err() == nil {
		v := c.machine.View()
		begin := time.Now()
		if v.Gen() != gen || c.recalled.Load() != nil || begin.Sub(last) > forecastAgain {
			gen, last = v.Gen(), begin
			now := c.now()
			if list := c.recalled.Swap(nil); list != nil {
				past.Recall(*list)
			}
			past.Refresh(v, now)
			known := past.Frozen()
			c.lately.Store(known)
			found, places := map[model.JobID]*model.Expect{}, map[model.JobID]int32{}
			if v.Pending() > 0 {
				pol, _ := c.policy(v, now, c.own.orderThen, nil)
				planner.Plan(v, now, forecastPolicy(pol, nil))
				planner.Expectations(func(id model.JobID, e *model.Expect) { found[id] = e })
				planner.Positions(func(id model.JobID, place int32) {
					if first, ok := places[id]; !ok || place < first {
						places[id] = place
					}
				})
				if known.Knows() {
					likely(planner, v, now, pol, known, found)
				}
			}
			c.backlog.Store(&backlog{at: now, list: backlogs(v, now, known)})
			c.expected.Store(&found)
			c.places.Store(&places)
		}
		most := time.Duration(max(1, v.Config().Params.Backfill.IntervalS)) * time.Second
		pause(ctx, min(most, max(time.Second, forecastRest*time.Since(begin))))
	}
}

// forecastPolicy gives the policy of a forecast in which jobs run as long as predict says; nil: to their limits.
func forecastPolicy(pol sched.Policy, predict sched.Predict) sched.Policy {
	pol.Predict = predict
	bf := &pol.Backfill
	bf.On, bf.Reserve, bf.WindowS, bf.MinAgeS, bf.MinPriority = true, -1, 0, 0, 0
	bf.MaxTest, bf.MaxStart, bf.MaxArrayResv = forecastDepth, 0, 1
	return pol
}

// likely adds to expectations the ranges in which jobs are likely to start.
func likely(planner *sched.Planner, v *state.View, now model.Time, pol sched.Policy, past *policy.Past,
	found map[model.JobID]*model.Expect) {
	var at [2]map[model.JobID]model.Time
	for i, predict := range [...]sched.Predict{past.Early(), past.Late()} {
		times := map[model.JobID]model.Time{}
		plan := planner.Plan(v, now, forecastPolicy(pol, predict))
		for k := range plan.Starts {
			times[plan.Starts[k].Job] = now
		}
		planner.Expectations(func(id model.JobID, e *model.Expect) { times[id] = e.Start })
		at[i] = times
	}
	for id, early := range at[0] {
		late, ok := at[1][id]
		if !ok {
			continue
		}
		e := found[id]
		if e == nil { // jobs without a time limit hold what it needs
			e = &model.Expect{}
			found[id] = e
		}
		e.Early, e.Late = span(early, late, e.Start)
	}
}

// backlog is what waited for room at a moment.
type backlog struct {
	at   model.Time
	list []proto.DiagBacklog
}

// backlogNow gives what waits for room: as many jobs as at the last forecast, the oldest older by now.
func (c *Controller) backlogNow() []proto.DiagBacklog {
	b := c.backlog.Load()
	if b == nil {
		return nil
	}
	list := slices.Clone(b.list)
	for i := range list {
		list[i].OldestS += max(0, int64(c.now()-b.at)/1000)
	}
	return list
}

// backlogs counts what waits for room in each partition.
func backlogs(v *state.View, now model.Time, past *policy.Past) []proto.DiagBacklog {
	all := map[string]*proto.DiagBacklog{}
	v.Jobs(func(j *model.Job) bool {
		if j.State != model.Pending || len(j.Spec.Partitions) == 0 || !waitsForRoom(j) {
			return true
		}
		part := v.Partition(j.Spec.Partitions[0])
		if part == nil {
			return true
		}
		b := all[part.Name]
		if b == nil {
			b = &proto.DiagBacklog{Partition: part.Name}
			all[part.Name] = b
		}
		n := int64(max(1, j.Tasks.Count()))
		b.Jobs += n
		b.OldestS = max(b.OldestS, int64(now-max(j.Submit, j.Eligible, j.Accrue))/1000)
		b.WorkS += n * past.Work(j, part)
		return true
	})
	out := make([]proto.DiagBacklog, 0, len(all))
	for _, p := range v.Config().Partitions { // in the configuration's order
		if b := all[p.Name]; b != nil {
			b.WorkS /= policy.WorkUnit
			out = append(out, *b)
		}
	}
	return out
}

// span orders the moments of an early and a late plan; neither is later than the sure one, if that is known.
func span(early, late, sure model.Time) (from, to model.Time) {
	from, to = min(early, late), max(early, late)
	if sure != 0 {
		from, to = min(from, sure), min(to, sure)
	}
	return from, to
}

// pastOf gives how long jobs really ran.
func (c *Controller) pastOf(v *state.View, now model.Time) *policy.Past {
	past := c.lately.Load()
	if past == nil { // another controller leads
		past = policy.NewPast()
		past.Refresh(v, now)
	}
	return past
}

// likelyFor gives the range in which one job is likely to start; 0 if that is not known.
func likelyFor(v *state.View, now model.Time, pol sched.Policy, past *policy.Past, j *model.Job,
	sure model.Time) (from, to model.Time) {
	if !past.Knows() || !waitsForRoom(j) || sure == now {
		return 0, 0
	}
	pol.Predict = past.Early()
	early := sched.Soonest(v, now, pol, j)
	pol.Predict = past.Late()
	late := sched.Soonest(v, now, pol, j)
	if early == 0 || late == 0 {
		return 0, 0
	}
	return span(early, late, sure)
}

// A new leader knows nothing of how long users' jobs ran before its time. gdbd does.

const (
	recallEnough  = 5_000   // records with which it is content
	recallMost    = 100_000 // records that it reads of one answer
	recallPatient = 20 * time.Second
	recallPace    = 10 * time.Second // from one attempt to the next
)

// recallSpans are the times before now that it asks about, until it has got enough.
var recallSpans = [...]time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// recallRuns asks gdbd how long users' last jobs ran, once it answers, for the order and the forecast.
func (c *Controller) recallRuns(ctx context.Context) {
	for len(c.dbds) > 0 && ctx.Err() == nil {
		list, used, err := c.lastRuns(ctx)
		if err == nil {
			c.peaks.Recall(used)
			c.own.recall(list)
			c.recalled.Store(&list)
			c.log.Debug("times of earlier jobs are known", "jobs", len(list))
			return
		}
		pause(ctx, recallPace)
	}
}

// errEnough ends an answer of gdbd that is longer than what is read of it.
var errEnough = errors.New("enough")

// lastRuns gives how long jobs ran lately, and what GPU memory they used, the oldest first.
func (c *Controller) lastRuns(ctx context.Context) ([]policy.Old, []peaks.Old, error) {
	type run struct {
		policy.Old
		end  model.Time
		used *peaks.Old
	}
	var runs []run
	for _, span := range recallSpans {
		now := c.now()
		body, err := proto.Encode(&proto.AcctRequest{Start: now - model.Time(span.Milliseconds()), End: now,
			States: []model.JobState{model.Completed, model.Failed, model.Timeout, model.Cancelled, model.OutOfMemory}})
		if err != nil {
			return nil, nil, err
		}
		runs = runs[:0]
		err = c.recordsOf(ctx, body, func(r *model.Record) error {
			if len(runs) >= recallMost {
				return errEnough
			}
			if r.Step == nil && r.Audit == nil && r.TaskText == "" && r.Start != 0 && r.End >= r.Start {
				one := run{Old: policy.Old{UID: r.UID, UsedS: r.ElapsedS(), LimitS: r.LimitS}, end: r.End}
				if u, ok := peaks.OfRecord(c.machine.View(), r); ok {
					one.used = &u
				}
				runs = append(runs, one)
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, nil, err
		}
		if len(runs) >= recallEnough {
			break
		}
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.end, b.end) })
	list := make([]policy.Old, len(runs))
	var used []peaks.Old
	for i := range runs {
		list[i] = runs[i].Old
		if runs[i].used != nil {
			used = append(used, *runs[i].used)
		}
	}
	return list, used, nil
}

// recordsOf calls f for each record of gdbd's answer.
func (c *Controller) recordsOf(ctx context.Context, body []byte, f func(*model.Record) error) error {
	ctx, cancel := context.WithTimeout(ctx, recallPatient)
	defer cancel()
	return c.query(ctx, proto.KindQuery, body, func(frame []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(frame, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			if err := f(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// expects gives the expectation for a pending job, or nil.
func (c *Controller) expects(j *model.Job) *model.Expect {
	found := c.expected.Load()
	if found == nil || j.State != model.Pending {
		return nil
	}
	return (*found)[j.ID]
}

// idleOf adds to e how long a running job's GPUs have been idle.
func (c *Controller) idleOf(j *model.Job, e *model.Expect) *model.Expect {
	if j.State != model.Running {
		return e
	}
	if s := c.idle.idleFor(j); s > 0 {
		return &model.Expect{IdleS: s} // a running job has no other expectation
	}
	return e
}

// placed gives the expectation for a pending job with its place in its queue, or nil.
func (c *Controller) placed(j *model.Job) *model.Expect {
	e, places := c.expects(j), c.places.Load()
	if places == nil || j.State != model.Pending || (*places)[j.ID] == 0 {
		return e
	}
	with := model.Expect{}
	if e != nil {
		with = *e
	}
	with.Position = (*places)[j.ID]
	return &with
}

// partGives gives lists the defaults of partitions for pending jobs that did not ask for a time limit or for memory.
// Jobs of one partition share one value.
type partGives struct {
	v     *state.View
	parts map[string]*model.Expect
}

// add gives e with the defaults of j's partition, or e itself if there are none. It doesn't change stored values.
func (g *partGives) add(j *model.Job, e *model.Expect) *model.Expect {
	sp := j.Spec
	noMem := sp.MemPerCPU == 0 && sp.MemPerNode == 0
	if j.State != model.Pending && j.Run != nil || len(sp.Partitions) == 0 || sp.LimitS != model.NotSet && !noMem {
		return e
	}
	p := g.of(sp.Partitions[0])
	switch {
	case p == nil:
		return e
	case e != nil:
		with := *e
		with.LimitS, with.MemPerCPU, with.MemPerNode = p.LimitS, p.MemPerCPU, p.MemPerNode
		return &with
	}
	return p
}

func (g *partGives) of(name string) *model.Expect {
	if e, ok := g.parts[name]; ok {
		return e
	}
	if g.parts == nil {
		g.parts = map[string]*model.Expect{}
	}
	p := g.v.Partition(name)
	if p == nil {
		g.parts[name] = nil
		return nil
	}
	e := &model.Expect{LimitS: p.TimeS()}
	rules := ask.RulesOf(p, &g.v.Config().Params)
	e.MemPerCPU, e.MemPerNode = rules.DefMemPerCPU, rules.DefMemPerNode
	g.parts[name] = e
	return e
}

// testOnly answers --test-only: where and when the job would start, behind the pending jobs and beside reservations, as
// gqueue --start would show. If that is not known, it gives the moment at which there would be room if no other job
// were pending.
func (c *Controller) testOnly(ctx context.Context, v *state.View, sp *model.Spec,
	reply *proto.SubmitReply) (*proto.SubmitReply, error) {
	leave, err := c.passTurn(ctx, payerOf(sp.UID))
	if err != nil {
		return nil, err
	}
	defer leave()
	now := c.now()
	policy, _ := c.policy(v, now, c.own.orderThen, nil)
	w, alloc := sched.Forecast(v, now, policy, sp, priorityOf(sp, 0))
	at, p := w.Start, v.Partition(w.Partition)
	if alloc == nil {
		if p, err = opens(v, sp); err != nil {
			return nil, err
		}
		room, where := sched.Estimate(v, now, sp, p)
		if where == nil {
			return nil, refuse(proto.CodeNodeNotAvail,
				"the job could run in partition %s, but nodes that it needs are down, drained or not responding; see ginfo -R",
				p.Name)
		}
		at, alloc = max(at, room), where
	}
	cpus, _, _ := alloc.Totals()
	reply.TestStart, reply.TestPart, reply.TestCPUs = at, p.Name, int32(cpus)
	reply.Job = v.NextJob() // the number that it would get now
	reply.TestNodes = c.hostlist(alloc.NodeNames())
	return reply, nil
}

// opens gives the first of the partitions of a job that could start it, or says why none of them does.
func opens(v *state.View, sp *model.Spec) (*model.Partition, error) {
	var why *rpc.Error
	for _, name := range sp.Partitions {
		p := v.Partition(name)
		err := partLimit(v, sp, p)
		if err == nil && p.State == model.PartDown {
			err = refuse(proto.CodePartitionDown, "partition %s is down", name)
		}
		if err == nil {
			return p, nil
		}
		if !errors.As(err, &why) {
			return nil, err
		}
	}
	return nil, rpc.Errorf(why.Code, "%s: the job would wait until that changes", why.Text)
}
