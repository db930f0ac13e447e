package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/state"
)

// priorities keeps the order in which jobs are planned and shown. It is derived from the facts and never replicated: a
// new leader computes its own.
//
// Shares, usage and ages are read again every PriorityCalcPeriod, and when accounts or the configuration have changed.
// A job that becomes eligible in between gets its priority at once, from the last order.
type priorities struct {
	mu   sync.Mutex // one goroutine computes, the others wait for the result
	last atomic.Pointer[multifactor.Order]
}

// order gives the order as of now, computed again if it is due. The result is for one goroutine.
func (p *priorities) order(v *state.View, now model.Time) *multifactor.Order {
	if o := p.last.Load(); o != nil && !due(o, v, now) {
		return o.Reader()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.last.Load()
	if o == nil || due(o, v, now) {
		o = multifactor.New(v, now, o)
		p.last.Store(o)
	}
	return o.Reader()
}

// due reports whether an order must be made anew.
func due(o *multifactor.Order, v *state.View, now model.Time) bool {
	return !o.Made(v) || now >= o.At().Add(calcPeriodS(v))
}

// calcPeriodS gives PriorityCalcPeriod, at least a second.
func calcPeriodS(v *state.View) int64 { return max(1, v.Config().Params.Priority.CalcPeriodS) }

// priorityNow gives the priority that users see: what a job has now, or had when it started.
func (c *Controller) priorityNow(v *state.View, o *multifactor.Order, j *model.Job) uint32 {
	switch {
	case j.State == model.Pending && (v.Config().Params.Priority.Default() || ordersItself(v, j)):
		best := uint32(0)
		for _, name := range j.Spec.Partitions {
			if p := v.Partition(name); p != nil {
				best = max(best, c.priorityIn(v, o, j, p))
			}
		}
		return best
	case !j.State.Finished() && (j.Run == nil || !v.Config().Params.Priority.Default()):
		return o.Of(v, j)
	case j.Run == nil && j.Hold != model.NotHeld:
		return 0
	case j.Run == nil && !v.Config().Params.Priority.Default(): // it was cancelled while it waited
		return o.Of(v, j)
	case j.Run != nil && j.Run.Priority != 0:
		return j.Run.Priority
	}
	return j.Priority
}

// ordersItself reports whether a partition of a job has a QueuePolicy.
func ordersItself(v *state.View, j *model.Job) bool {
	return slices.ContainsFunc(j.Spec.Partitions, func(name string) bool {
		p := v.Partition(name)
		return p != nil && p.Order != model.OrderDefault
	})
}

// priorityIn gives a pending job's priority in one partition: from its factors or, by default, from the score of
// package sched/policy.
func (c *Controller) priorityIn(v *state.View, o *multifactor.Order, j *model.Job, p *model.Partition) uint32 {
	if p.Order != model.OrderDefault && j.Hold == model.NotHeld {
		return lineup.Shown(v, o, o.Tree().Factor, j, p)
	}
	if v.Config().Params.Priority.Default() && j.Hold == model.NotHeld {
		if n, ok := c.own.shown(j, p, c.now()); ok {
			return n
		}
	}
	return uint32(o.Priority(j, p))
}

// resetUsage resets usage if a period of PriorityUsageResetPeriod has begun since the last reset.
func (c *Controller) resetUsage(ctx context.Context) {
	began := time.Now()
	reset := func(at time.Time) bool {
		_, err := c.propose(ctx,
			&state.Accounts{Edits: []model.AcctEdit{
				{Op: model.ResetUsage, Assoc: &model.Association{Account: model.RootAccount}}}})
		if err != nil && ctx.Err() == nil {
			c.log.Warn("usage could not be reset (PriorityUsageResetPeriod)", "period", at, "err", err)
		}
		return err == nil
	}
	var cfg *model.Config
	for {
		v := c.machine.View()
		period := v.Config().Params.Priority.ResetPeriod
		if v.Config() != cfg {
			cfg = v.Config()
			if period == "NOW" { // at startup and at each reconfiguration, as in Slurm
				reset(time.Now())
			}
		}
		since := began // a cluster without a reset so far counts from the start of this leader
		if at := v.ResetAt(); at != 0 {
			since = time.UnixMilli(int64(at))
		}
		if b := periodBegin(period, time.Now()); b.After(since) && reset(b) {
			c.log.Info("usage was reset", "period", period, "since", b)
		}
		timer := time.NewTimer(time.Minute)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// periodBegin gives the beginning of the present period, in local time; zero for no period.
func periodBegin(period string, now time.Time) time.Time {
	y, m, d := now.Date()
	switch period {
	case "DAILY":
	case "WEEKLY": // weeks begin on Sunday, as in Slurm
		d -= int(now.Weekday())
	case "MONTHLY":
		d = 1
	case "QUARTERLY":
		m, d = (m-1)/3*3+1, 1
	case "YEARLY":
		m, d = 1, 1
	default:
		return time.Time{}
	}
	return time.Date(y, m, d, 0, 0, 0, 0, now.Location())
}

// top puts a pending job ahead of all jobs of the same user, account, QOS and single partition, with nice values as
// Slurm documents it, in one log entry under key. The other jobs together lose what the job gains, so that the user as
// a whole gains nothing.
func (c *Controller) top(ctx context.Context, key string, who *caller, t model.JobRef) (proto.Code, string,
	error) {
	v := c.machine.View()
	found := resolve(v, t)
	if len(found) == 0 {
		return proto.CodeInvalidJob, proto.Text(proto.CodeInvalidJob), nil
	}
	j := leaderOf(v, found[0])
	switch {
	case !c.operator(who) && !v.Config().Params.UserTop:
		return proto.CodeAccess,
			proto.Text(proto.CodeAccess) +
				": top is for operators (SchedulerParameters=enable_user_top lets users put their own jobs first)", nil
	case j.State != model.Pending:
		return proto.CodeNotPending, proto.Text(proto.CodeNotPending), nil
	case j.Hold != model.NotHeld:
		return proto.CodeBadRequest, "the job is held: release it first", nil
	case len(j.Spec.Partitions) != 1:
		return proto.CodeBadRequest, "the job waits for several partitions: top orders the queue of one; set one with " +
			"gcontrol update JobId=N Partition=P", nil
	case ordersItself(v, j):
		return proto.CodeBadRequest, fmt.Sprintf("partition %s orders its jobs itself (QueuePolicy): top has no effect there",
			j.Spec.Partitions[0]), nil
	case v.Config().Params.Priority.Default():
		return proto.CodeBadRequest, "top moves jobs by nice values, which count in multifactor priorities: set " +
				"PriorityType and weights in gbatch.conf, or give the job a priority by hand: gcontrol update JobId=N Priority=P",
			nil
	case j.Direct:
		return proto.CodeBadRequest,
			"the job's priority was set by hand, so nice values don't move it: use gcontrol update JobId=N Priority=P", nil
	}
	order := c.prio.order(v, c.now())
	mine := int64(order.Of(v, j))
	type peer struct {
		job  *model.Job
		prio int64
	}
	var others []peer
	v.JobsOf(j.Spec.UID, state.Waits, func(o *model.Job) bool { // those too that wait for another job, or for a time
		if o.ID != j.ID && !o.Direct && o.Hold == model.NotHeld && o.Spec.Account == j.Spec.Account &&
			o.Spec.QOS == j.Spec.QOS && slices.Equal(o.Spec.Partitions, j.Spec.Partitions) {
			others = append(others, peer{o, int64(order.Of(v, o))})
		}
		return true
	})
	if len(others) == 0 {
		return 0, "", nil // it is the first already
	}
	slices.SortStableFunc(others, func(a, b peer) int { return cmp.Compare(b.prio, a.prio) })
	others = others[:min(len(others), maxTopPeers)]
	n := int64(len(others))
	// together with the loss of each other job, enough to pass the best one
	gain := ((max(mine, others[0].prio)-mine+1)*n + n) / (n + 1)
	edits := []state.Body{renice(j, -gain)}
	for _, o := range others {
		edits = append(edits, renice(o.job, (gain+n-1)/n))
	}
	_, err := c.changes(ctx, key, &proto.Empty{}, nil, edits)
	return 0, "", err
}

// maxTopPeers bounds the jobs that one top changes.
const maxTopPeers = 1000

// renice gives the command that changes a pending job's nice value.
func renice(j *model.Job, by int64) *state.Edit {
	sp := *j.Spec
	sp.Nice = int32(min(max(int64(sp.Nice)+by, -2147483645), 2147483645))
	return &state.Edit{Targets: []model.JobRef{j.Ref()}, Spec: &sp,
		Set: []state.Field{state.SetSpec, state.SetPriority}, Priority: priorityOf(&sp, j.Site)}
}

// prios sends the factors of pending jobs' priorities, one line for each of a job's partitions. Held jobs have no
// priority and are left out.
func (c *Controller) prios(_ context.Context, who *caller, rq *proto.PrioRequest, send stream) error {
	v := c.machine.View()
	if err := checkRefs(v, rq.Filter.Jobs); err != nil {
		return err
	}
	now := c.now()
	order, sees := c.prio.order(v, now), c.sees(v, who)
	chunk := &proto.PrioChunk{Weights: v.Config().Params.Priority}
	var err error
	give := func(j *model.Job) bool {
		if j.State != model.Pending || j.Hold != model.NotHeld || len(j.Deps) > 0 || j.Begin > now ||
			!sees.job(j.Spec) || !picked(&rq.Filter, j) {
			return true
		}
		for _, name := range j.Spec.Partitions {
			p := v.Partition(name)
			if p == nil || len(rq.Filter.Partitions) > 0 && !hasName(rq.Filter.Partitions, name) {
				continue
			}
			f := order.Factors(j, p)
			switch prio := &v.Config().Params.Priority; {
			case p.Order != model.OrderDefault && (p.Order != model.OrderPriority || !prio.Weighted()):
				f = multifactor.Factors{Priority: c.priorityIn(v, order, j, p)} // it has no factors
			case prio.Default():
				f.Priority = c.priorityIn(v, order, j, p)
			}
			chunk.Rows = append(chunk.Rows,
				proto.PrioRow{Job: j.Ref().Job, JobText: jobText(j), User: j.Spec.User, UID: j.Spec.UID, Account: j.Spec.Account,
					QOSName: j.Spec.QOS, PartName: name, Priority: f.Priority, Site: f.Site, Nice: f.Nice, Age: f.Age, AgeN: f.AgeN,
					Assoc:  f.Assoc,
					AssocN: f.AssocN, FairShare: f.FairShare, FairN: f.FairShareN, JobSize: f.JobSize, SizeN: f.JobSizeN,
					Partition: f.Partition,
					PartN:     f.PartitionN, QOS: f.QOS, QOSN: f.QOSN, TRES: f.TRES, TRESN: f.TRESN})
			if len(chunk.Rows) == proto.ChunkJobs {
				err = send(chunk)
				chunk.Rows = chunk.Rows[:0]
			}
		}
		return err == nil
	}
	if len(rq.Filter.Jobs) > 0 {
		for _, ref := range rq.Filter.Jobs {
			for _, j := range resolve(v, ref) {
				give(j)
			}
		}
	} else {
		v.Jobs(give)
	}
	if err == nil && len(chunk.Rows) > 0 {
		err = send(chunk)
	}
	return err
}

// jobText writes a job's number as users do: the array's number with its task or tasks.
func jobText(j *model.Job) string {
	ref := j.Ref()
	switch {
	case j.IsArray():
		return itoa(int32(ref.Job)) + "_[" + j.Tasks.String() + "]"
	case ref.Task != model.NoTask:
		return itoa(int32(ref.Job)) + "_" + itoa(ref.Task)
	}
	return itoa(int32(ref.Job))
}
