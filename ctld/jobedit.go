package ctld

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// editing is one command in the making.
type editing struct {
	c        *Controller
	v        *state.View
	sees     *sight // of who asks; nil: what it sets is judged as a submission's
	operator bool   // an operator asks
	j        *model.Job
	found    []*model.Job // all records of its target
	sp       *model.Spec  // the new one
	out      *state.Edit
	all      []model.KV // everything that the command sets

	specChanged bool
	replace     bool          // what it asks for has changed: it is placed anew
	timed       bool          // its times have changed
	labels      []state.Field // what has changed of its specification that may change while it runs
}

// editable are the keys that gcontrol update job sets, by how they are shown and the words for each in small letters.
// What a waiting job needs of nodes is in jobneeds.go.
var editable = []struct {
	shown string
	words []string
	set   func(*editing, model.KV) error
}{
	{"TimeLimit", []string{"timelimit"}, (*editing).timeLimit},
	{"TimeMin", []string{"timemin", "mintime"}, (*editing).timeMin},
	{"Deadline", []string{"deadline"}, (*editing).deadline},
	{"Priority", []string{"priority"}, (*editing).priority},
	{"Nice", []string{"nice"}, (*editing).nice},
	{"SiteFactor", []string{"sitefactor"}, (*editing).siteFactor},
	{"StartTime", []string{"starttime", "begintime", "eligibletime"}, (*editing).begin},
	{"ArrayTaskThrottle", []string{"arraytaskthrottle"}, (*editing).throttle},
	{"Dependency", []string{"dependency"}, (*editing).dependency},
	{"Partition", []string{"partition", "partitionname"}, (*editing).partition},
	{"Reservation", []string{"reservation", "reservationname"}, (*editing).reservation},
	{"Account", []string{"account"}, (*editing).account},
	{"QOS", []string{"qos"}, (*editing).qos},
	{"NumNodes", []string{"numnodes", "minnodes", "reqnodes"}, (*editing).nodes},
	{"ReqNodeList", []string{"reqnodelist", "nodelist"}, (*editing).nodeList},
	{"ExcNodeList", []string{"excnodelist"}, (*editing).excludedNodes},
	{shown: needKeys}, // editNeeds has them
	{"JobName", []string{"jobname", "name"}, (*editing).name},
	{"Comment", []string{"comment"}, (*editing).comment},
	{"WCKey", []string{"wckey"}, (*editing).wckey},
	{"AdminComment", []string{"admincomment"}, (*editing).adminComment},
	{"MailType", []string{"mailtype"}, (*editing).mail},
	{"MailUser", []string{"mailuser"}, (*editing).mail},
	{"Requeue", []string{"requeue"}, (*editing).requeue},
	{"Reboot", []string{"reboot"}, (*editing).reboot},
	{"StdIn", []string{"stdin"}, (*editing).file},
	{"StdOut", []string{"stdout"}, (*editing).file},
	{"StdErr", []string{"stderr"}, (*editing).file},
	{"WorkDir", []string{"workdir"}, (*editing).file},
}

// edit turns gcontrol's key=value settings into one command for one job.
func (c *Controller) edit(v *state.View, who *caller, t model.JobRef, w wanted) (*state.Edit, error) {
	found := resolve(v, t)
	if len(found) == 0 {
		return nil, refuse(proto.CodeInvalidJob, "%d", t.Job)
	}
	j := found[0]
	sp := *j.Spec
	if who.via != nil {
		sp.Via = who.via
	}
	ed := &editing{c: c, v: v, sees: c.sees(v, who), j: j, found: found, sp: &sp, all: w.set,
		out: &state.Edit{Targets: []model.JobRef{t}, Spec: &sp}}
	for i, kv := range w.set {
		ed.operator = c.operator(who) || w.ranked && i >= w.own
		if err := ed.set(kv); err != nil {
			return nil, err
		}
		if len(kv.Value) > proto.MaxFieldBytes {
			return nil, ed.bad(kv, "longer than %d bytes", proto.MaxFieldBytes)
		}
	}
	return ed.out, ed.settle()
}

// meaningless says of Slurm's words why there is nothing to set.
var meaningless = map[string]string{
	"delayboot":       "nodes are not booted for jobs; leave it out",
	"burstbuffer":     "there is no burst buffer; leave it out",
	"clusters":        "there is one cluster; leave it out",
	"clusterfeatures": "there is one cluster; leave it out",
	"corespec":        "cores are kept from jobs by the node's CoreSpecCount=; leave it out",
	"threadspec":      "CPUs are kept from jobs by the node's CpuSpecList=; leave it out",
}

// set does one word.
func (ed *editing) set(kv model.KV) error {
	word := strings.ToLower(kv.Key)
	for _, f := range editable {
		if slices.Contains(f.words, word) {
			return f.set(ed, kv)
		}
	}
	if why := meaningless[word]; why != "" {
		return refuse(proto.CodeBadRequest, "%s can't be set: %s", kv.Key, why)
	}
	known, err := editNeeds(ed.sp, kv.Key, kv.Value)
	if err != nil {
		return err
	}
	if !known {
		var all []string
		for _, f := range editable {
			all = append(all, f.shown)
		}
		return refuse(proto.CodeBadRequest, "%s can't be set by gcontrol update job; it sets %s", kv.Key,
			strings.Join(all, ", "))
	}
	ed.specChanged, ed.replace = true, true
	return nil
}

// settle holds what has changed against the partitions and the times.
func (ed *editing) settle() error {
	if ed.specChanged {
		if err := refusedAsk(ask.PartsByNode(ed.sp)); err != nil {
			return err
		}
	}
	if ed.specChanged || len(ed.labels) > 0 {
		if err := validNeeds(ed.sp); err != nil {
			return err
		}
	}
	if ed.replace {
		sp := ed.sp
		owner := &caller{Caller: proto.Caller{UID: sp.UID, GID: sp.GID, Groups: sp.Groups, User: sp.User, Group: sp.Group},
			most: model.RightsAdministrator, from: sp.From}
		requeue := sp.Requeue
		if _, err := ed.c.place(ed.v, owner, sp); err != nil {
			return err
		}
		sp.Requeue = requeue
	}
	if ed.timed {
		if err := fitTimes(ed.v, ed.c.now(), ed.sp); err != nil {
			return err
		}
	}
	if ed.specChanged || len(ed.labels) > 0 {
		if err := bounded(ed.sp); err != nil {
			return err
		}
	}
	if ed.specChanged {
		ed.add(state.SetSpec)
	} else {
		for _, f := range ed.labels {
			ed.add(f)
		}
	}
	if len(ed.out.Set) == 0 {
		return refuse(proto.CodeBadRequest,
			"nothing to change: give key=value words after the job, such as TimeLimit=2:00:00")
	}
	return nil
}

func (ed *editing) add(f state.Field) { ed.out.Set = append(ed.out.Set, f) }

// label notes a change of the specification that may come while the job runs.
func (ed *editing) label(f state.Field) {
	if !slices.Contains(ed.labels, f) {
		ed.labels = append(ed.labels, f)
	}
}

// bad refuses a value.
func (ed *editing) bad(kv model.KV, format string, a ...any) error {
	return refuse(proto.CodeBadRequest, "%s=%s: %s", kv.Key, kv.Value, fmt.Sprintf(format, a...))
}

// numberOf reads a whole number.
func (ed *editing) numberOf(kv model.KV, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(kv.Value, 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, ed.bad(kv, "write a whole number from %d to %d", lo, hi)
	}
	return n, nil
}

// timeLimit is TimeLimit: any less, and more for operators and for jobs that wait.
func (ed *editing) timeLimit(kv model.KV) error {
	limit, err := newLimit(ed.j, kv.Value)
	if err != nil {
		return ed.bad(kv, "%v", err)
	}
	old := sched0(ed.j, ed.v)
	if ed.j.State != model.Pending && limit > old && !ed.operator {
		return refuse(proto.CodeAccess, "only an operator can give a running job more time")
	}
	if p := ed.v.Partition(ed.j.Partition()); p != nil && p.MaxTimeS != model.NotSet && limit > p.MaxTimeS &&
		!ed.operator {
		return refuse(proto.CodeTimeLimit, "partition %s allows %s", p.Name, walltime.Elapsed(p.MaxTimeS))
	}
	if m := ed.sp.Extra().TimeMinS; m > limit && ed.j.State == model.Pending {
		withTimeMin(ed.sp, 0) // the least time is the whole limit now
		ed.specChanged = true
	}
	ed.out.LimitS, ed.sp.LimitS = limit, limit
	ed.timed = ed.timed || ed.j.State == model.Pending
	ed.add(state.SetLimit)
	return nil
}

// priority is Priority: a number of its own, or 0 to hold the job. A held job has none: it is released first.
func (ed *editing) priority(kv model.KV) error {
	n, err := ed.numberOf(kv, 0, maxPriority)
	if err != nil {
		return err
	}
	if n == 0 {
		if ed.out.Hold = model.HeldByUser; ed.operator {
			ed.out.Hold = model.HeldByAdmin
		}
		ed.add(state.SetHold)
		ed.add(state.SetBegun)
		return nil
	}
	if ed.allHeld() {
		return refuse(proto.CodeHeld, "release it first: gcontrol release %d", ed.j.ID)
	}
	if have := ed.c.prio.order(ed.v, ed.c.now()).Of(ed.v, ed.j); int64(have) < n && !ed.operator {
		return refuse(proto.CodeAccess, "only an operator can raise a priority (it is %d)", have)
	}
	ed.out.Priority, ed.out.Direct = uint32(n), true
	ed.add(state.SetPriority)
	ed.add(state.SetBegun)
	return nil
}

// allHeld reports whether all that waits of the target is held. The others of an array get a priority without those.
func (ed *editing) allHeld() bool {
	return !slices.ContainsFunc(ed.found, func(j *model.Job) bool {
		return j.Hold == model.NotHeld || j.State != model.Pending
	})
}

// nice is Nice: users may lower it to 0, operators further.
func (ed *editing) nice(kv model.KV) error {
	n, err := ed.numberOf(kv, -2147483645, 2147483645)
	if err != nil {
		return err
	}
	if n < min(0, int64(ed.sp.Nice)) && !ed.operator {
		return refuse(proto.CodeAccess, "only an operator can lower the nice value below 0 (it is %d)", ed.sp.Nice)
	}
	ed.sp.Nice = int32(n)
	ed.label(state.SetNice)
	ed.out.Priority = ed.rank()
	ed.add(state.SetPriority)
	ed.add(state.SetBegun)
	return nil
}

// rank gives the job's priority for configurations without weights.
func (ed *editing) rank() uint32 {
	site := ed.j.Site
	if slices.Contains(ed.out.Set, state.SetSite) {
		site = ed.out.Site
	}
	return priorityOf(ed.sp, site)
}

// maxSite bounds a SiteFactor.
const maxSite = 1<<31 - 3

// siteFactor is SiteFactor.
func (ed *editing) siteFactor(kv model.KV) error {
	n, err := ed.numberOf(kv, -maxSite, maxSite)
	if err != nil {
		if n, wrong := strconv.ParseInt(kv.Value, 10, 64); wrong == nil && (n < -maxSite || n > maxSite) {
			return refuse(proto.CodeBadRequest, "SiteFactor value out of range, %d to %d: %s", -maxSite, maxSite, kv.Value)
		}
		return err
	}
	if !ed.operator {
		return refuse(proto.CodeAccess, "SiteFactor is for operators")
	}
	ed.out.Site = int32(n)
	ed.add(state.SetSite)
	if has := slices.Contains(ed.out.Set, state.SetPriority); !ed.out.Direct && (has || !ed.j.Direct) {
		if ed.out.Priority = ed.rank(); !has {
			ed.add(state.SetPriority)
		}
	}
	ed.add(state.SetBegun)
	return nil
}

// begin is StartTime, as a moment.
func (ed *editing) begin(kv model.KV) error {
	t, ok := ask.ParseMoment(kv.Value)
	if !ok {
		return ed.bad(kv, "not a point in time; write now, now+1hour or 2026-07-01T12:00")
	}
	ed.out.Begin = t
	ed.add(state.SetBegin)
	return nil
}

// timeMin is TimeMin.
func (ed *editing) timeMin(kv model.KV) error {
	s := int64(0)
	if kv.Value != "0" { // 0 removes it
		var err error
		if s, err = ask.ParseTimeMin(kv.Value); err != nil {
			return ed.bad(kv, "%v", err)
		}
	}
	withTimeMin(ed.sp, s)
	ed.specChanged, ed.timed = true, true
	return nil
}

// deadline is Deadline, as a moment.
func (ed *editing) deadline(kv model.KV) error {
	if !ed.operator {
		return refuse(proto.CodeAccess, "only an operator can change a deadline")
	}
	t, ok := ask.ParseMoment(kv.Value)
	if !ok {
		return ed.bad(kv, "not a point in time; write now, now+1hour or 2026-07-01T12:00")
	}
	ed.sp.Deadline, ed.specChanged, ed.timed = t, true, true
	return nil
}

// throttle is ArrayTaskThrottle.
func (ed *editing) throttle(kv model.KV) error {
	n, err := ed.numberOf(kv, 0, 1<<30)
	if err != nil {
		return err
	}
	ed.out.Throttle = int32(n)
	ed.add(state.SetThrottle)
	return nil
}

// dependency is Dependency: all of it anew.
func (ed *editing) dependency(kv model.KV) error {
	deps, anyOf, err := model.ParseDeps(kv.Value)
	if err != nil {
		return refuse(proto.CodeDependency, "%v", err)
	}
	for _, d := range deps {
		if rec := ed.v.JobOrTask(d.Job); d.Job != 0 && (rec == nil || ed.sees != nil && !ed.sees.job(rec.Spec)) {
			return refuse(proto.CodeDependency, "job %d is unknown", d.Job)
		}
		if d.Job == ed.j.ID || d.Job == ed.j.ArrayID && d.Job != 0 {
			return refuse(proto.CodeDependency, "job %d can't wait for itself", ed.j.ID)
		}
	}
	ed.out.Deps = noteArrays(ed.v, deps)
	ed.sp.DepText, ed.sp.DepAny = kv.Value, anyOf
	ed.add(state.SetDeps)
	return nil
}

// partition is Partition: one or several.
func (ed *editing) partition(kv model.KV) error {
	ed.sp.Partitions, ed.specChanged, ed.replace = strings.Split(kv.Value, ","), true, true
	return nil
}

// reservation is Reservation, which the user must be able to use.
func (ed *editing) reservation(kv model.KV) error {
	ed.sp.Reservation, ed.specChanged = kv.Value, true
	return mayUse(ed.v, ed.sp)
}

// account is Account.
func (ed *editing) account(kv model.KV) error {
	ed.sp.Account, ed.specChanged, ed.replace = kv.Value, true, true
	return nil
}

// qos is QOS.
func (ed *editing) qos(kv model.KV) error {
	ed.sp.QOS, ed.specChanged, ed.replace = kv.Value, true, true
	return nil
}

// nodes is NumNodes: a number, or least and most.
func (ed *editing) nodes(kv model.KV) error {
	least, most, err := ask.ParseNodes(kv.Value)
	ed.sp.MinNodes, ed.sp.MaxNodes, ed.specChanged, ed.replace = least, most, true, true
	return refusedAsk(err)
}

// nodeList is ReqNodeList.
func (ed *editing) nodeList(kv model.KV) error {
	names, err := hostlist.Expand(kv.Value)
	if err != nil {
		return ed.bad(kv, "%v", err)
	}
	ed.sp.ReqNodes, ed.specChanged, ed.replace = names, true, true
	return nil
}

// excludedNodes is ExcNodeList.
func (ed *editing) excludedNodes(kv model.KV) error {
	names, err := hostlist.Expand(kv.Value)
	if err != nil {
		return ed.bad(kv, "%v", err)
	}
	ed.sp.ExcNodes, ed.specChanged, ed.replace = names, true, true
	return nil
}

// name is JobName.
func (ed *editing) name(kv model.KV) error {
	ed.sp.Name = kv.Value
	ed.label(state.SetName)
	return nil
}

// comment is Comment.
func (ed *editing) comment(kv model.KV) error {
	ed.sp.Comment = kv.Value
	ed.label(state.SetComment)
	return nil
}

// adminComment is AdminComment.
func (ed *editing) adminComment(kv model.KV) error {
	if !ed.operator {
		return refuse(proto.CodeAccess, "AdminComment is for operators")
	}
	ed.out.Comment = kv.Value
	ed.add(state.SetAdminComment)
	return nil
}

// mail is MailType and MailUser.
func (ed *editing) mail(kv model.KV) error {
	if types, ok := ed.given("mailtype"); ok { // whichever stands first
		if err := editMail(ed.v, ed.sp, "mailtype", types); err != nil {
			return ed.bad(model.KV{Key: "MailType", Value: types}, "%v", err)
		}
	}
	if err := editMail(ed.v, ed.sp, strings.ToLower(kv.Key), kv.Value); err != nil {
		return ed.bad(kv, "%v", err)
	}
	ed.label(state.SetMail)
	return nil
}

// requeue is Requeue: 0 or 1.
func (ed *editing) requeue(kv model.KV) error {
	hurry := strings.EqualFold(kv.Value, "expedite")
	if hurry {
		kv.Value = "1"
	}
	n, err := ed.numberOf(kv, 0, 1)
	if err != nil {
		return err
	}
	if m := ed.sp.Extra(); m.Expedite != hurry {
		m.Expedite = hurry
		ed.sp.More = &m
	}
	ed.sp.Requeue = n == 1
	ed.label(state.SetRequeue)
	return nil
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
		return p.TimeS()
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
	s, err := ask.ParseLimit(text)
	if err != nil || sign == 0 || s >= model.Unlimited {
		return s, err
	}
	old := j.Spec.LimitS
	if j.Run != nil {
		old = j.Run.LimitS
	}
	if old == model.NotSet || old >= model.Unlimited {
		return 0, fmt.Errorf("the job has no limit of its own to change by += or -=; give a whole one")
	}
	return max(60, old+sign*s), nil
}
