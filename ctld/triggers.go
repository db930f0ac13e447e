package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/ctld/events"
	"gbatch/ctld/program"
	"gbatch/ctld/trigger"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/trail"
	"gbatch/internal/trust"
	"gbatch/internal/userdb"
)

// triggers.go is about triggers: who may set, see and clear them, and how the daemons are that some are about. Package
// trigger runs their programs.
//
// A trigger's program runs on a controller, as the user who set it. So by default only root and SlurmUser have
// triggers, and where gctld is not root's only the user that it runs as: it can become no other one.

// runTriggers runs the programs of triggers while this controller leads.
func (c *Controller) runTriggers(ctx context.Context) {
	began := time.Now()
	k := &trigger.Keeper{View: c.machine.View, Changed: c.machine.Changed, Now: c.now, Propose: c.propose,
		As: c.triggerUser, Look: func(v *state.View) *model.Daemons { return c.daemons(v, began) },
		Env: []string{program.Path}, Log: c.log}
	if path := os.Getenv("SLURM_CONF"); path != "" {
		k.Env = append(k.Env, "SLURM_CONF="+path)
	}
	if path := os.Getenv("GBATCH_CONF"); path != "" {
		k.Env = append(k.Env, "GBATCH_CONF="+path)
	}
	k.Run(ctx)
}

// hasTriggers reports whether a user may have triggers whose programs this process runs, with a sentence if not. Root
// and SlurmUser always may.
func (c *Controller) hasTriggers(v *state.View, uid uint32) error {
	return c.hasTriggersOf(v, uid, uint32(os.Geteuid()))
}

// hasTriggersOf is hasTriggers of a process of the user self.
func (c *Controller) hasTriggersOf(v *state.View, uid, self uint32) error {
	switch {
	case self != 0 && uid != self:
		return fmt.Errorf("gctld on %s runs as %s and can run programs as nobody else: triggers are set by %[2]s",
			c.opts.Name, c.people.Name(context.Background(), self))
	case uid != 0 && uid != c.opts.UID && uid != self && !v.Config().Params.UserTriggers:
		return errors.New("triggers are set by root and SlurmUser only, or, with SlurmctldParameters=allow_user_triggers " +
			"in gbatch.conf, by everybody for their own jobs; gsubmit --mail-type tells of your jobs")
	}
	return nil
}

// triggerUser says how this process becomes the user who set a trigger.
func (c *Controller) triggerUser(ctx context.Context, v *state.View, t *model.Trigger) (trigger.As, error) {
	if err := c.hasTriggers(v, t.UID); err != nil {
		return trigger.As{}, fmt.Errorf("%w: %w", trigger.ErrNever, err)
	}
	u, err := c.people.User(ctx, t.UID)
	switch {
	case errors.Is(err, userdb.ErrUnknown):
		return trigger.As{}, fmt.Errorf("%w: controller %s knows no user %d", trigger.ErrNever, c.opts.Name, t.UID)
	case err != nil:
		return trigger.As{}, err
	}
	as := trigger.As{Name: u.Name, Home: u.Home, As: program.As{UID: u.UID, GID: u.GID,
		Groups: notRoots(u.UID, u.Groups), Change: int(t.UID) != os.Geteuid()}}
	if slices.Contains(as.Groups, t.GID) {
		as.GID = t.GID
	}
	if err := model.CheckIDs(as.UID, as.GID, as.Groups, as.UID == 0); err != nil || u.UID != t.UID {
		return trigger.As{}, fmt.Errorf("%w: %w", trigger.ErrNever, cmp.Or(err, errors.New("that is another user")))
	}
	return as, nil
}

// setTrigger sets a trigger.
func (c *Controller) setTrigger(ctx context.Context, who *caller, rq *proto.SetTriggerRequest) error {
	v := c.machine.View()
	if err := c.hasTriggers(v, who.UID); err != nil {
		return refuse(proto.CodeAccess, "%v", err)
	}
	t := &model.Trigger{UID: who.UID, GID: who.GID, Of: rq.Of, Job: rq.Job, Nodes: rq.Nodes, Events: rq.Events,
		OffsetS: rq.OffsetS, Perm: rq.Perm, Program: strings.Join(strings.Fields(rq.Program), " "), Via: who.via}
	if err := c.checkTrigger(v, who, t); err != nil {
		return err
	}
	cmd := &state.Triggers{Op: state.SetTrigger, Set: t}
	if t.AboutDaemons() {
		cmd.Seen = c.daemons(v, time.Now())
	}
	deed := c.by(who).One(trail.TriggerSet, trail.Trigger, triggerName(t), t.Program)
	if j := v.Job(t.Job); j != nil {
		deed[0].Job, deed[0].Owner = j.ID, j.Spec.UID
	}
	res, err := c.change(events.With(ctx, deed), &proto.Empty{}, nil, cmd)
	if err != nil {
		return err
	}
	switch res.Refusal {
	case state.NameTaken:
		return refuse(proto.CodeTriggerTaken, "")
	case state.NoSuchJob:
		return refuse(proto.CodeInvalidJob, "")
	case state.AlreadyDone:
		return refuse(proto.CodeAlreadyDone, "")
	case state.Full:
		return refuse(proto.CodePolicy, "there are too many triggers: a user may have %d, and all users together %d",
			state.MaxTriggersEach, state.MaxTriggersUsers)
	}
	return nil
}

// triggerName says in the trail what a trigger is about: job 12 fini.
func triggerName(t *model.Trigger) string {
	return fmt.Sprintf("%s %s %s", t.Of, resOf(t), t.Events)
}

// resOf is what a trigger is about, as it is shown: a job's number, a host list, or * for all.
func resOf(t *model.Trigger) string {
	switch {
	case t.Of == model.TriggerJob:
		return strconv.FormatUint(uint64(t.Job), 10)
	case t.Nodes != "":
		return t.Nodes
	}
	return "*"
}

// checkTrigger holds a trigger against what there is, and against its user's rights.
func (c *Controller) checkTrigger(v *state.View, who *caller, t *model.Trigger) error {
	switch {
	case !strings.HasPrefix(t.Program, "/"):
		return refuse(proto.CodeBadRequest, "a trigger's program is a path that begins with /")
	case len(t.Program) > state.MaxTriggerProgram:
		return refuse(proto.CodeBadRequest, "a trigger's program and its arguments have at most %d bytes",
			state.MaxTriggerProgram)
	case plain.Check(t.Program) != nil:
		return refuse(proto.CodeBadRequest, "the program contains a character that would act on screens that show it")
	case t.Of.Events() == 0 || t.Events == 0 || t.Events&^t.Of.Events() != 0 ||
		(t.Of == model.TriggerJob) != (t.Job != 0) || t.Nodes != "" && t.Of != model.TriggerNode:
		return refuse(proto.CodeBadRequest, "a trigger about %s can't have the events %s", t.Of, t.Events)
	case t.OffsetS > state.MaxTriggerOffsetS || t.OffsetS < -state.MaxTriggerOffsetS:
		return refuse(proto.CodeBadRequest, "the offset must be between +/-%d seconds", int64(state.MaxTriggerOffsetS))
	}
	all := trust.May(c.class(who), proto.KindSetTrigger).Covers(false, false)
	if t.Of != model.TriggerJob {
		if !all {
			return refuse(proto.CodeAccess, "triggers about %s are set by operators; users set them for their own jobs", t.Of)
		}
		return c.checkTriggerNodes(v, t)
	}
	j := v.JobOrTask(t.Job)
	sees := c.sees(v, who)
	switch {
	case j == nil:
		return refuse(proto.CodeInvalidJob, "")
	case !all && j.Spec.UID != who.UID:
		code := sees.barred(j)
		return refuse(code, "")
	case t.Events&^model.OnFini&^model.OnTime != 0 && v.Array(t.Job) != nil:
		return refuse(proto.CodeBadRequest, "the tasks of array %d have nodes of their own: set the trigger for a task, by "+
			"the number that gqueue -o %%A shows", t.Job)
	case t.Events&model.OnTime != 0 && v.Array(t.Job) != nil:
		return refuse(proto.CodeBadRequest, "the tasks of array %d have time limits of their own: set the trigger for a "+
			"task, by the number that gqueue -o %%A shows", t.Job)
	}
	return nil
}

func (c *Controller) checkTriggerNodes(v *state.View, t *model.Trigger) error {
	if t.Nodes == "" {
		return nil
	}
	if n, err := hostlist.Count(t.Nodes); err != nil || n > model.MaxList {
		return refuse(proto.CodeInvalidNode, "'%.80s' is no list of nodes", t.Nodes)
	}
	names, err := hostlist.Expand(t.Nodes)
	if err != nil {
		return refuse(proto.CodeInvalidNode, "%v", err)
	}
	for _, name := range names {
		if v.Node(name) == nil {
			return refuse(proto.CodeInvalidNode, "%s", name)
		}
	}
	if t.Nodes = hostlist.Compress(names); len(t.Nodes) > state.MaxTriggerNodes {
		return refuse(proto.CodeInvalidNode, "the list of nodes takes %d bytes, at most %d are possible; without --node "+
			"the trigger is about all", len(t.Nodes), state.MaxTriggerNodes)
	}
	return nil
}

// triggers lists the triggers that the caller may see: with PrivateData those of others are shown as far as what they
// are about is.
func (c *Controller) triggers(ctx context.Context, who *caller, _ *proto.Empty, send stream) error {
	v := c.machine.View()
	sees := c.sees(v, who)
	chunk := &proto.TriggersChunk{}
	names := map[uint32]string{}
	var err error
	bytes := 0
	v.Triggers(func(t *model.Trigger) bool {
		if !sees.trigger(t) {
			return true
		}
		name, known := names[t.UID]
		if !known {
			name = c.people.Name(ctx, t.UID)
			names[t.UID] = name
		}
		chunk.Triggers = append(chunk.Triggers, proto.TriggerInfo{ID: t.ID, Of: t.Of, Res: resOf(t), Job: t.Job,
			Events: t.Events, OffsetS: t.OffsetS, User: name, UID: t.UID, Perm: t.Perm, Program: t.Program, Off: t.Off})
		bytes += len(t.Nodes) + len(t.Program) + 100
		if len(chunk.Triggers) == proto.ChunkJobs || bytes > proto.ChunkBytes/2 {
			err, bytes = send(chunk), 0
			chunk.Triggers = chunk.Triggers[:0]
		}
		return err == nil
	})
	if err == nil && len(chunk.Triggers) > 0 {
		err = send(chunk)
	}
	return err
}

// trigger reports whether the caller may see a trigger.
func (s *sight) trigger(t *model.Trigger) bool {
	switch {
	case t.UID == s.uid:
		return true
	case s.hides("users"):
		return false
	case t.Of == model.TriggerNode:
		return !s.hides("nodes")
	case t.Of != model.TriggerJob || !s.hides("jobs"):
		return true
	}
	j := s.v.Job(t.Job)
	return j != nil && s.job(j.Spec)
}

// clearTriggers clears triggers: users clear their own, administrators all.
func (c *Controller) clearTriggers(ctx context.Context, who *caller,
	rq *proto.ClearTriggersRequest) (*proto.ClearTriggersReply, error) {
	if rq.ID == 0 && rq.Job == 0 && !rq.OfUser {
		return nil, refuse(proto.CodeBadRequest, "name the triggers to clear by their number, their job or their user")
	}
	v := c.machine.View()
	all := trust.May(c.class(who), proto.KindClearTriggers).Covers(false, false)
	sees := c.sees(v, who)
	reply, denied, cmd := &proto.ClearTriggersReply{}, false, &state.Triggers{Op: state.DropTriggers}
	v.Triggers(func(t *model.Trigger) bool {
		switch {
		case rq.ID != 0 && t.ID != rq.ID, rq.Job != 0 && t.Job != rq.Job, rq.OfUser && t.UID != rq.UID, !sees.trigger(t):
		case !all && t.UID != who.UID, t.UID != who.UID && who.UID != 0 && (t.UID == 0 || t.UID == c.opts.UID):
			denied = true
		default:
			cmd.IDs = append(cmd.IDs, t.ID)
		}
		return true
	})
	var deeds []*model.Audit
	for _, id := range cmd.IDs {
		t := v.Trigger(id)
		deeds = append(deeds, c.by(who).One(trail.TriggerCleared, trail.Trigger, triggerName(t), t.Program)...)
	}
	switch {
	case denied && len(cmd.IDs) == 0:
		return nil, refuse(proto.CodeAccess, "triggers are cleared by the users who set them, and by administrators")
	case len(cmd.IDs) == 0:
		return reply, nil
	}
	reply.IDs = cmd.IDs
	if _, err := c.change(events.With(ctx, deeds), reply, nil, cmd); err != nil {
		return nil, err
	}
	return reply, nil
}

// daemonLostS is how long another controller is silent before it is lost, if AlertParameters doesn't say it.
const daemonLostS = 10

// daemons looks how the daemons are. What it can't know yet is as the facts have it; silence counts from began on.
func (c *Controller) daemons(v *state.View, began time.Time) *model.Daemons {
	d, was, now := &model.Daemons{Leader: c.opts.Name}, v.SeenDaemons(), time.Now()
	if was == nil {
		was = &model.Daemons{}
	}
	lost := time.Duration(cmp.Or(v.Config().Params.Alerts.LostS, daemonLostS)) * time.Second
	for i, p := range c.members() {
		d.Controllers = append(d.Controllers, p.Name)
		if p.Name == c.opts.Name {
			if i == 0 {
				d.PrimarySince = c.bootAt
			}
			continue
		}
		c.clocks.mu.Lock()
		news, known := c.clocks.news[p.Name]
		c.clocks.mu.Unlock()
		heard := began
		if known && news.at.After(began) {
			heard = news.at
		}
		silent := now.Sub(heard) > lost
		if silent || slices.Contains(was.Lost, p.Name) && heard.Equal(began) {
			d.Lost = append(d.Lost, p.Name)
		}
	}
	if len(c.dbds) == 0 {
		return d
	}
	most := v.Config().Params.Ship.MaxWaiting
	if was.Full {
		most = most * calmPct / 100
	}
	d.Full = most > 0 && int64(v.OutboxLen()) >= most
	first := c.dbds[0]
	var why *rpc.Error
	switch says := first.says.Load(); {
	case first.up.Load():
	case says == nil || says.why == nil:
		d.DbdLost, d.DatabaseLost = was.DbdLost, was.DatabaseLost
	case errors.As(says.why, &why):
		d.DatabaseLost = true
	default:
		d.DbdLost = true
	}
	return d
}
