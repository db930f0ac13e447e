package ctld

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// edit turns gcontrol's key=value settings into one command for one job.
func (c *Controller) edit(v *state.View, who *proto.Caller, t state.Target, set []model.KV) (*state.Edit, error) {
	found := resolve(v, proto.JobRef{Job: t.Job, Task: t.Task, Tasks: t.Tasks})
	if len(found) == 0 {
		return nil, refuse(proto.CodeInvalidJob, "%d", t.Job)
	}
	j := found[0]
	sp := *j.Spec
	e := &state.Edit{Targets: []state.Target{t}, Spec: &sp}
	specChanged, replace, timed := false, false, false
	add := func(f state.Field) { e.Set = append(e.Set, f) }
	for _, kv := range set {
		bad := func(format string, a ...any) error {
			return refuse(proto.CodeBadRequest, "%s=%s: %s", kv.Key, kv.Value, fmt.Sprintf(format, a...))
		}
		number := func(lo, hi int64) (int64, error) {
			n, err := strconv.ParseInt(kv.Value, 10, 64)
			if err != nil || n < lo || n > hi {
				return 0, bad("a whole number from %d to %d is wanted", lo, hi)
			}
			return n, nil
		}
		switch strings.ToLower(kv.Key) {
		case "timelimit":
			limit, err := newLimit(j, kv.Value)
			if err != nil {
				return nil, bad("%v", err)
			}
			old := sched0(j, v)
			if j.State != model.Pending && limit > old && !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "only an operator can give a running job more time")
			}
			if p := v.Partition(j.Partition()); p != nil && p.MaxTimeS != model.NotSet && limit > p.MaxTimeS &&
				!c.operator(who) {
				return nil, refuse(proto.CodeTimeLimit, "partition %s allows %s", p.Name, walltime.Elapsed(p.MaxTimeS))
			}
			if m := sp.Extra().TimeMinS; m > limit && j.State == model.Pending {
				withTimeMin(&sp, 0) // the least time is the whole limit now
				specChanged = true
			}
			e.LimitS, sp.LimitS = limit, limit
			timed = j.State == model.Pending
			add(state.SetLimit)
		case "priority":
			n, err := number(0, maxPriority)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				e.Hold = model.HeldByUser
				add(state.SetHold)
				continue
			}
			if have := c.prio.order(v, c.now()).Of(v, j); int64(have) < n && !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "only an operator can raise a priority (it is %d)", have)
			}
			if j.Hold == model.HeldByAdmin && !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "an administrator holds the job")
			}
			e.Priority, e.Direct = uint32(n), true
			add(state.SetPriority)
			if j.Hold != model.NotHeld { // zero holds a job, as in Slurm, and anything else releases it
				e.Hold = model.NotHeld
				add(state.SetHold)
			}
		case "nice":
			n, err := number(-2147483645, 2147483645)
			if err != nil {
				return nil, err
			}
			if n < int64(sp.Nice) && !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "only an operator can lower the nice value (it is %d)", sp.Nice)
			}
			sp.Nice, specChanged = int32(n), true
			e.Priority = priorityOf(&sp)
			add(state.SetPriority)
		case "sitefactor":
			n, err := number(-2147483645, 2147483645)
			if err != nil {
				return nil, err
			}
			if !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "SiteFactor is for operators")
			}
			e.Site = int32(n)
			add(state.SetSite)
		case "starttime", "begintime", "eligibletime":
			ms, err := strconv.ParseInt(strings.TrimPrefix(kv.Value, "@"), 10, 64)
			if err != nil || !strings.HasPrefix(kv.Value, "@") {
				return nil, bad("not a moment")
			}
			e.Begin = model.Time(ms)
			add(state.SetBegin)
		case "timemin", "mintime":
			s, err := newTimeMin(kv.Value)
			if err != nil {
				return nil, bad("%v", err)
			}
			withTimeMin(&sp, s)
			specChanged, timed = true, true
		case "deadline":
			if !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "only an operator can change a deadline")
			}
			t, ok := momentOf(kv.Value)
			if !ok {
				return nil, bad("not a moment")
			}
			sp.Deadline, specChanged, timed = t, true, true
		case "arraytaskthrottle":
			n, err := number(0, 1<<30)
			if err != nil {
				return nil, err
			}
			e.Throttle = int32(n)
			add(state.SetThrottle)
		case "dependency":
			deps, anyOf, err := model.ParseDeps(kv.Value)
			if err != nil {
				return nil, refuse(proto.CodeDependency, "%v", err)
			}
			for _, d := range deps {
				if d.Job != 0 && v.Job(d.Job) == nil && v.Array(d.Job) == nil {
					return nil, refuse(proto.CodeDependency, "job %d is unknown", d.Job)
				}
				if d.Job == j.ID || d.Job == j.ArrayID && d.Job != 0 {
					return nil, refuse(proto.CodeDependency, "job %d can't wait for itself", j.ID)
				}
			}
			e.Deps = deps
			sp.DepText, sp.DepAny = kv.Value, anyOf
			add(state.SetDeps)
		case "partition":
			sp.Partitions, specChanged, replace = strings.Split(kv.Value, ","), true, true
		case "reservation", "reservationname":
			sp.Reservation, specChanged = kv.Value, true
			if err := mayUse(v, &sp); err != nil {
				return nil, err
			}
		case "account":
			sp.Account, specChanged, replace = kv.Value, true, true
		case "qos":
			sp.QOS, specChanged, replace = kv.Value, true, true
		case "numnodes", "minnodes":
			n, err := number(1, 1<<20)
			if err != nil {
				return nil, err
			}
			sp.MinNodes, sp.MaxNodes, specChanged, replace = int32(n), int32(n), true, true
		case "reqnodelist", "nodelist":
			names, err := hostlist.Expand(kv.Value)
			if err != nil {
				return nil, bad("%v", err)
			}
			sp.ReqNodes, specChanged, replace = names, true, true
		case "excnodelist":
			names, err := hostlist.Expand(kv.Value)
			if err != nil {
				return nil, bad("%v", err)
			}
			sp.ExcNodes, specChanged, replace = names, true, true
		case "jobname", "name":
			sp.Name, specChanged = kv.Value, true
		case "comment":
			sp.Comment, specChanged = kv.Value, true
		case "admincomment":
			if !c.operator(who) {
				return nil, refuse(proto.CodeAccess, "AdminComment is for operators")
			}
			e.Comment = kv.Value
			add(state.SetAdminComment)
		case "mailtype", "mailuser":
			if err := editMail(v, &sp, strings.ToLower(kv.Key), kv.Value); err != nil {
				return nil, bad("%v", err)
			}
			specChanged = true
		case "requeue":
			n, err := number(0, 1)
			if err != nil {
				return nil, err
			}
			sp.Requeue, specChanged = n == 1, true
		default:
			known, err := editNeeds(&sp, kv.Key, kv.Value)
			if err != nil {
				return nil, err
			}
			if !known {
				return nil, refuse(proto.CodeBadRequest, "%s is not a key that gcontrol update job can set; it sets TimeLimit, "+
					"TimeMin, Deadline, Priority, Nice, SiteFactor, StartTime, ArrayTaskThrottle, Dependency, Partition, "+
					"Reservation, Account, QOS, NumNodes, ReqNodeList, ExcNodeList, %s, JobName, Comment, AdminComment, MailType, "+
					"MailUser, Requeue", kv.Key, needKeys)
			}
			specChanged, replace = true, true
		}
		if len(kv.Value) > proto.MaxFieldBytes {
			return nil, bad("longer than %d bytes", proto.MaxFieldBytes)
		}
		if strings.ContainsAny(kv.Value, "\n\r\x00") {
			return nil, refuse(proto.CodeBadRequest, "%s: the value contains a line break or a NUL byte", kv.Key)
		}
	}
	if replace {
		caller := proto.Caller{UID: sp.UID, GID: sp.GID, Groups: sp.Groups, User: sp.User, Group: sp.Group}
		requeue := sp.Requeue
		if _, err := c.place(v, &caller, &sp); err != nil {
			return nil, err
		}
		sp.Requeue = requeue
	}
	if timed {
		if err := fitTimes(v, c.now(), &sp); err != nil {
			return nil, err
		}
	}
	if specChanged {
		add(state.SetSpec)
	}
	if len(e.Set) == 0 {
		return nil, refuse(proto.CodeBadRequest,
			"nothing to change: give key=value words after the job, such as TimeLimit=2:00:00")
	}
	return e, nil
}

// sched0 gives a job's present time limit, seconds.
func sched0(j *model.Job, v *state.View) int64 {
	switch {
	case j.Run != nil:
		return j.Run.LimitS
	case j.Spec.LimitS != model.NotSet:
		return j.Spec.LimitS
	}
	if p := v.Partition(j.Partition()); p != nil && p.DefTimeS != model.NotSet {
		return p.DefTimeS
	}
	return model.Unlimited
}

// newLimit reads TimeLimit=: a limit, or a change of the present one (+30, -10, in minutes or any form).
func newLimit(j *model.Job, text string) (int64, error) {
	sign := int64(0)
	if len(text) > 1 && (text[0] == '+' || text[0] == '-' && text != "-1") {
		sign = 1
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	s, unlimited, err := walltime.ParseLimit(text)
	if err != nil {
		return 0, err
	}
	if unlimited {
		return model.Unlimited, nil
	}
	if sign == 0 {
		return s, nil
	}
	old := j.Spec.LimitS
	if j.Run != nil {
		old = j.Run.LimitS
	}
	if old == model.NotSet || old >= model.Unlimited {
		return 0, fmt.Errorf("the job has no limit of its own to add to or take from; give a whole one")
	}
	return max(60, old+sign*s), nil
}
