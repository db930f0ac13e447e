package ctld

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/hook"
	"gbatch/ctld/program"
	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/userdb"
	"gbatch/internal/walltime"
)

// submithook.go shows submissions and changes of jobs to JobSubmitProgram (package hook) before they are judged, and
// puts what it sets into the request: from there on everything is checked as if the user had written it. It runs in the
// goroutine of the request, before anything is proposed; a request that comes again may be shown again.

const (
	maxHooked  = 1000             // jobs of one change that the program is shown
	hookModify = 30 * time.Second // for all of them
)

// hookSubmit shows a submission to the program. It gives the request with what the program has set, the caller with the
// rights that it is judged with, and what the user is told.
func (c *Controller) hookSubmit(ctx context.Context, v *state.View, who *caller,
	rq *proto.SubmitRequest) (*caller, *proto.SubmitRequest, []string, error) {
	rules := &v.Config().Params.SubmitHook
	if rules.Program == "" || rq.Spec == nil || v.Request(requestKey(who.UID, rq.RequestID)) != 0 {
		return who, rq, nil, nil
	}
	out, by := *rq, *who
	by.ranked = rules.Operator
	out.Rest = slices.Clone(rq.Rest)
	var notes []string
	for i := range 1 + len(rq.Rest) {
		call := c.hookCall(v, who, hook.Submit)
		call.TestOnly, call.Part, call.Env = rq.TestOnly, i, out.Env
		at := &out.Spec
		if i > 0 {
			at = &out.Rest[i-1]
		} else {
			call.Script = rq.Script
		}
		if len(rq.Rest) == 0 {
			call.Part = -1
		}
		if call.Spec = *at; call.Spec == nil {
			return who, rq, nil, nil // it is refused for that
		}
		own := *call.Spec
		notes, call.Spec = append(notes, c.unrank(who, &own)...), &own
		if err := c.mayRank(who, call.Spec); err != nil { // before the program's rights count
			return nil, nil, nil, err
		}
		a, note, err := c.askHook(ctx, rules, call)
		if err != nil {
			return nil, nil, nil, err
		}
		if note != "" {
			notes = append(notes, note)
		}
		if *at, err = c.withHook(v, who, call.Spec, a.Set); err != nil {
			return nil, nil, nil, hookFault(err)
		}
		out.Env = withVariables(out.Env, a.Env)
	}
	return &by, &out, notes, nil
}

// hookFault says that a refusal is about what the program has set.
func hookFault(err error) error {
	var why *rpc.Error
	if errors.As(err, &why) {
		return rpc.Errorf(why.Code, "what JobSubmitProgram has set can't be: %s", why.Text)
	}
	return err
}

// hookCall begins a call about a request of a user.
func (c *Controller) hookCall(v *state.View, who *caller, action string) *hook.Call {
	return &hook.Call{Action: action, Cluster: v.Config().Cluster, User: who.User, UID: who.UID, GID: who.GID,
		Group: who.Group, Groups: who.Groups, Host: who.Host, Operator: c.operator(who), Part: -1,
		Account: defaultAccount(v, who.User)}
}

// askHook asks the program. A refusal is an error; note is for the user. If the program fails, the site's choice
// counts.
func (c *Controller) askHook(ctx context.Context, rules *model.SubmitHook,
	call *hook.Call) (a *hook.Answer, note string, err error) {
	as, err := c.hookUser(ctx, rules)
	var said string
	if err == nil {
		a, said, err = c.hook.Run(ctx, rules, as, call)
	}
	if said != "" {
		c.log.Info("JobSubmitProgram wrote to standard error", "program", rules.Program, "user", call.User, "output", said)
	}
	switch {
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case errors.Is(err, hook.ErrBusy):
		return nil, "", refuse(proto.CodeBusy, "%v", err)
	case err == nil && a.Refuse != "":
		return nil, "", refuse(proto.CodeBadRequest, "%s", a.Refuse)
	case err == nil:
		return a, a.Message, nil
	}
	c.log.Error("JobSubmitProgram failed", "program", rules.Program, "user", call.User, "action", call.Action,
		"err", err, "output", said, "passed", rules.Pass)
	text := fmt.Sprintf("the site's JobSubmitProgram, which looks at each job first, %v", err)
	if rules.Pass {
		return &hook.Answer{}, text + "; this one is taken as it is (JobSubmitFailure=pass)", nil
	}
	return nil, "", refuse(proto.CodeBadRequest, "%s; no job is taken or changed without it. Tell an administrator: "+
		"gctld's log says more", text)
}

// hookUser says whom the program runs as.
func (c *Controller) hookUser(ctx context.Context, rules *model.SubmitHook) (program.As, error) {
	self := uint32(os.Geteuid())
	if rules.User == "" && self != 0 {
		return program.As{}, nil
	}
	name := cmp.Or(rules.User, "nobody")
	u, err := c.people.Named(ctx, name)
	if id, bad := strconv.ParseUint(name, 10, 32); errors.Is(err, userdb.ErrUnknown) && bad == nil {
		u, err = c.people.User(ctx, uint32(id))
	}
	switch {
	case err != nil:
		return program.As{}, fmt.Errorf("can't run as %s (JobSubmitUser): controller %s does not know that user (%w)", name,
			c.opts.Name, err)
	case u.UID == self:
		return program.As{}, nil
	case self != 0:
		return program.As{}, fmt.Errorf("can't run as %s (JobSubmitUser): gctld on %s is not root's", name, c.opts.Name)
	}
	return program.As{UID: u.UID, GID: u.GID, Groups: u.Groups, Change: true}, nil
}

// withHook gives a specification with what the program has set.
func (c *Controller) withHook(v *state.View, who *caller, old *model.Spec, set []model.KV) (*model.Spec, error) {
	if len(set) == 0 {
		return old, nil
	}
	sp := *old
	sp.UID, sp.GID, sp.Groups, sp.User, sp.Group = who.UID, who.GID, who.Groups, who.User, who.Group
	// Whether the user may have it is judged with the rest of the submission.
	ed := &editing{c: c, v: v, operator: true, sp: &sp, out: &state.Edit{}, all: set,
		j: &model.Job{State: model.Pending, Spec: old, Task: model.NoTask}}
	for _, kv := range set {
		if err := ed.submitted(kv); err != nil {
			return nil, err
		}
	}
	for _, f := range ed.out.Set {
		switch f {
		case state.SetBegin:
			sp.Begin = ed.out.Begin
		case state.SetDeps:
			sp.Deps = ed.out.Deps
		case state.SetThrottle:
			sp.Throttle = ed.out.Throttle
		}
	}
	return &sp, refusedAsk(ask.PartsByNode(&sp))
}

// submitted does one word for a job that is being submitted: some mean something else before a job is there.
func (ed *editing) submitted(kv model.KV) error {
	switch kv.Key {
	case hook.GPUMemory:
		mib, err := walltime.ParseMemMiB(kv.Value)
		if err != nil {
			return ed.bad(kv, "%v", err)
		}
		more := ed.sp.Extra()
		more.GPUMemMiB, ed.sp.More = mib, &more
	case hook.Hold:
		ed.sp.HoldReq = kv.Value == "1"
	case "Reservation":
		ed.sp.Reservation = kv.Value
	case "Requeue":
		ed.sp.Requeue, ed.sp.NoRequeue = kv.Value == "1", kv.Value != "1"
	case "Priority":
		n, err := ed.numberOf(kv, 0, maxPriority)
		if err != nil {
			return err
		}
		ed.sp.PrioReq, ed.sp.HoldReq = uint32(n), ed.sp.HoldReq || n == 0
	default:
		return ed.set(kv)
	}
	return nil
}

// withVariables changes an environment, NAME=value each ended by a NUL.
func withVariables(env []byte, changes []hook.EnvChange) []byte {
	if len(changes) == 0 {
		return env
	}
	var out []byte
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		name, _, _ := strings.Cut(string(kv), "=")
		if len(kv) > 0 && !slices.ContainsFunc(changes, func(e hook.EnvChange) bool { return e.Name == name }) {
			out = append(append(out, kv...), 0)
		}
	}
	for _, e := range changes {
		if !e.Unset {
			out = append(append(out, e.Name+"="+e.Value...), 0)
		}
	}
	return out
}

// wanted is what is to be set of one job: the first own words are the user's, the others the program's, which count
// with an operator's rights if ranked.
type wanted struct {
	set    []model.KV
	own    int
	ranked bool
}

// hookModify shows the change of each target to the program. A target that the program refuses gets its result.
func (c *Controller) hookModify(ctx context.Context, v *state.View, who *caller, set []model.KV,
	reply *proto.TargetsReply, targets []model.JobRef, at []int) ([]wanted, error) {
	wants := make([]wanted, len(targets))
	for k := range wants {
		wants[k] = wanted{set: set, own: len(set)}
	}
	rules := &v.Config().Params.SubmitHook
	switch {
	case rules.Program == "" || v.Answer(keyOf(ctx)) != nil && keyOf(ctx) != "":
		return wants, nil
	case len(targets) > maxHooked:
		return nil, refuse(proto.CodeBadRequest, "%d jobs: JobSubmitProgram is shown each of them; change at most %d at once",
			len(targets), maxHooked)
	}
	ctx, cancel := context.WithTimeout(ctx, hookModify)
	defer cancel()
	errs, notes := make([]error, len(targets)), make([]string, len(targets))
	next := make(chan int)
	var all sync.WaitGroup
	for range min(max(int(rules.Parallel)/2, 1), len(targets)) {
		all.Go(func() {
			for k := range next {
				wants[k], notes[k], errs[k] = c.hookChange(ctx, v, who, set, targets[k])
			}
		})
	}
	for k := range targets {
		next <- k
	}
	close(next)
	all.Wait()
	for k, err := range errs {
		var why *rpc.Error
		switch {
		case err == nil:
			if r := &reply.Results[at[k]]; r.Code == 0 && notes[k] != "" {
				r.Text = notes[k]
			}
		case len(reply.Results) == 1 || !errors.As(err, &why) && ctx.Err() == nil:
			return nil, err
		case errors.As(err, &why):
			reply.Results[at[k]].Code, reply.Results[at[k]].Text = why.Code, why.Text
		default:
			reply.Results[at[k]].Code, reply.Results[at[k]].Text = proto.CodeBusy,
				fmt.Sprintf("JobSubmitProgram has not come to it within %s; change fewer jobs at once", hookModify)
		}
	}
	return wants, nil
}

// hookChange shows one change to the program.
func (c *Controller) hookChange(ctx context.Context, v *state.View, who *caller, set []model.KV,
	t model.JobRef) (w wanted, note string, err error) {
	w = wanted{set: set, own: len(set)}
	found := resolve(v, t)
	if len(found) == 0 {
		return w, "", nil // it is refused for that
	}
	j, rules := found[0], &v.Config().Params.SubmitHook
	call := c.hookCall(v, who, hook.Modify)
	call.Job, call.JobText, call.Owner, call.Spec, call.Changes = j.ID, jobText(j), j.Spec.User, j.Spec, set
	a, note, err := c.askHook(ctx, rules, call)
	if err != nil || len(a.Set) == 0 {
		return w, note, err
	}
	w.set = slices.DeleteFunc(slices.Clone(set), func(kv model.KV) bool {
		return slices.ContainsFunc(a.Set, func(by model.KV) bool { return hook.SameKey(kv.Key, by.Key) })
	})
	w.own, w.ranked = len(w.set), rules.Operator
	w.set = append(w.set, a.Set...)
	return w, note, nil
}
