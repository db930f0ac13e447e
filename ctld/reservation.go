package ctld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/ctld/events"
	"gbatch/ctld/resv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
	"gbatch/internal/trail"
	"gbatch/internal/userdb"
)

// reservation.go answers requests about reservations and carries them out. Package resv makes reservations.

// reservations lists the reservations that the caller may see.
func (c *Controller) reservations(_ context.Context, who *caller,
	_ *proto.Empty) (*proto.ReservationsReply, error) {
	v := c.machine.View()
	sees := c.sees(v, who)
	out := &proto.ReservationsReply{Now: c.now()}
	v.Reservations(func(r *model.Reservation) bool {
		if !sees.reservation(r) {
			return true
		}
		size := sizeOf(v, r)
		r = r.At(out.Now)
		out.List, out.CPUs, out.Sizes = append(out.List, r), append(out.CPUs, size.CPUs), append(out.Sizes, size)
		return true
	})
	return out, nil
}

// wholeNodes gives, by node, the reservation that has the whole node at a moment; of several, one with MAINT comes
// first.
func wholeNodes(v *state.View, now model.Time) map[string]*model.Reservation {
	out := map[string]*model.Reservation{}
	v.Reservations(func(r *model.Reservation) bool {
		if r = r.At(now); r.Start > now || now >= r.End {
			return true
		}
		for i, name := range r.Nodes {
			if r.Part(i) == nil && (out[name] == nil || r.Flags&model.ResvMaint != 0) {
				out[name] = r
			}
		}
		return true
	})
	return out
}

// sizeOf counts what a reservation takes of its nodes.
func sizeOf(v *state.View, r *model.Reservation) (size proto.ResvSize) {
	for i, name := range r.Nodes {
		d := v.NodeDef(name)
		if d == nil {
			continue
		}
		part, cpus, text := r.Part(i), int64(d.CPUs), []string(nil)
		if part != nil {
			cpus = int64(part.CPUs)
		}
		size.CPUs += cpus
		size.Cores += cpus / int64(max(1, d.ThreadsPerCore))
		for k, g := range d.Gres {
			n := int64(g.Count)
			if part != nil {
				n = 0
				if k < len(part.Gres) {
					n = int64(part.Gres[k])
				}
			}
			size.Gres = model.AddTRES(size.Gres, model.GresTRES(g.Name, ""), n)
			if n > 0 {
				text = append(text, strings.Replace(fmt.Sprintf("%s:%s:%d", g.Name, g.Type, n), "::", ":", 1))
			}
		}
		if part != nil {
			size.PartGres = append(size.PartGres, strings.Join(text, ","))
		}
	}
	return size
}

// resvFacts are the inputs for making reservations on this host, with its time zone, groups and users.
func (c *Controller) resvFacts(ctx context.Context, v *state.View) resv.Facts {
	group := func(name string) (uint32, error) {
		gid, err := c.people.GroupNamed(ctx, name)
		if errors.Is(err, userdb.ErrUnknown) {
			err = errors.New("the controller's host has no such group")
		}
		return gid, err
	}
	return resv.Facts{View: v, Now: c.now(), Zone: time.Local, Group: group, User: func(name string) error {
		if _, err := c.people.Named(ctx, name); errors.Is(err, userdb.ErrUnknown) {
			return refuse(proto.CodeUser, "%s is unknown on controller %s: getent passwd finds no such user", name,
				c.opts.Name)
		}
		return nil
	}}
}

// keepReservations updates reservations when time passes or nodes change. It looks whenever something has changed, at
// its own pace, and proposes what is missing.
func (c *Controller) keepReservations(ctx context.Context) {
	pace := pacer{gap: time.Second}
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		c.machine.View().Reservations(func(r *model.Reservation) bool {
			if resv.Kept(c.resvFacts(ctx, c.machine.View()), r) != nil {
				if err := c.keepReservation(ctx, r.Name); err != nil && ctx.Err() == nil {
					c.log.Warn("a reservation could not be updated; it is tried again", "reservation", r.Name, "err", err)
				}
			}
			return ctx.Err() == nil
		})
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// keepReservation updates one while nobody else changes it.
func (c *Controller) keepReservation(ctx context.Context, name string) error {
	select {
	case c.reserving <- struct{}{}:
		defer func() { <-c.reserving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	v := c.machine.View()
	r := v.Reservation(name)
	if r == nil {
		return nil
	}
	n := resv.Kept(c.resvFacts(ctx, v), r)
	if n == nil {
		return nil
	}
	_, err := c.propose(ctx, &state.Reserve{Op: state.KeepResv, Resv: n})
	return err
}

// reserveTries is how often a reservation is made anew because others have changed reservations meanwhile.
const reserveTries = 32

// reserve creates, changes and removes reservations, for operators. A reservation is made from the present ones. If
// these have changed before it is in the log, what the state then refuses is made anew. Only what is made from facts
// that are still true is refused.
func (c *Controller) reserve(ctx context.Context, who *caller,
	rq *proto.ReserveRequest) (*proto.ReserveReply, error) {
	select { // one at a time: a change replaces the whole reservation
	case c.reserving <- struct{}{}:
		defer func() { <-c.reserving }()
	case <-ctx.Done():
		return nil, errSlow
	}
	for n := 1; ; n++ {
		v := c.machine.View()
		cmd, err := c.reservation(ctx, v, rq)
		if err != nil {
			return nil, err
		}
		reply := &proto.ReserveReply{Name: cmd.Resv.Name}
		text := map[proto.ResvAction]string{proto.CreateReservation: "create", proto.UpdateReservation: "update",
			proto.DeleteReservation: "delete"}[rq.Action]
		told := events.With(ctx, c.by(who).One(trail.ResvChanged, trail.Reservation, cmd.Resv.Name,
			strings.TrimSpace(text+" "+settings(rq.Set))))
		res, err := c.change(told, reply, nil, cmd)
		if err != nil {
			return nil, err
		}
		if res.Refusal == state.OK {
			return reply, nil
		}
		if now := c.machine.View(); n == reserveTries || now.ResvGen() == v.ResvGen() && now.Config() == v.Config() {
			return nil, c.notReserved(now, cmd, res.Refusal)
		}
	}
}

// reservation makes the command for a change of reservations.
func (c *Controller) reservation(ctx context.Context, v *state.View,
	rq *proto.ReserveRequest) (*state.Reserve, error) {
	cmd := &state.Reserve{}
	var err error
	switch rq.Action {
	case proto.DeleteReservation:
		cmd.Op, cmd.Resv = state.DropResv, &model.Reservation{Name: rq.Name}
	case proto.UpdateReservation:
		old := v.Reservation(rq.Name)
		if old == nil {
			return nil, refuse(proto.CodeReservation, "%s", rq.Name)
		}
		cmd.Op = state.UpdateResv
		cmd.Resv, err = resv.Update(c.resvFacts(ctx, v), old, rq.Set)
	case proto.CreateReservation:
		cmd.Op = state.CreateResv
		cmd.Resv, err = resv.Create(c.resvFacts(ctx, v), rq.Name, rq.Set)
	default:
		return nil, refuse(proto.CodeBadRequest, "an unknown change of reservations (%d)", rq.Action)
	}
	var no *resv.Refusal
	if errors.As(err, &no) {
		return nil, refuse(no.Code, "%s", no.Detail)
	}
	taken := cmd.Op == state.CreateResv && err == nil && v.Reservation(cmd.Resv.Name) != nil // the state says so
	if err == nil && cmd.Op != state.DropResv && !taken && v.OverlapsEver(cmd.Resv) != nil {
		return nil, c.notReserved(v, cmd, state.Overlapping)
	}
	return cmd, err
}

// notReserved says why the state refuses a reservation.
func (c *Controller) notReserved(v *state.View, cmd *state.Reserve, why state.Refusal) error {
	switch why {
	case state.InUse:
		return refuse(proto.CodeResvName, "%s", cmd.Resv.Name)
	case state.Full:
		return refuse(proto.CodeReservation, "there are %d already, which is the limit; remove one that is over",
			state.MaxReservations)
	case state.NoSuchReservation:
		return refuse(proto.CodeReservation, "%s", cmd.Resv.Name)
	case state.JobsActive:
		return refuse(proto.CodeResvBusy, "jobs run in %s; cancel them first", cmd.Resv.Name)
	case state.Overlapping:
		other := "another one"
		if o := v.OverlapsEver(cmd.Resv); o != nil {
			other = o.Name
		}
		return refuse(proto.CodeResvOverlap, "%s; Flags=OVERLAP or MAINT lets both be", other)
	}
	return refuse(proto.CodeInvalidNode, "the configuration has just changed; try again")
}

// maxReservationNames bounds a job's list of alternative reservations.
const maxReservationNames = 16

// mayUse gives the reason why a job can't use its reservations.
func mayUse(v *state.View, sp *model.Spec) error {
	names := sp.ReservationNames()
	if len(names) > maxReservationNames {
		return refuse(proto.CodeReservation, "%d reservations are named, the limit is %d", len(names), maxReservationNames)
	}
	for i, name := range names {
		r := v.Reservation(name)
		switch {
		case r == nil || slices.Contains(names[:i], name):
			return refuse(proto.CodeReservation, "%s; gcontrol show reservation lists them", name)
		case !r.Admits(sp):
			return refuse(proto.CodeResvAccess, "%s is for users %s, groups %s, accounts %s", r.Name, orAny(r.Users),
				orAny(r.Groups), orAny(r.Accounts))
		}
	}
	return nil
}

// beyond says why a job's reservations have too little for it in a partition, even when nothing else is in them.
func beyond(v *state.View, sp *model.Spec, p *model.Partition) error {
	if sched.Within(v, sp, p) {
		return nil
	}
	names, alone := sp.ReservationNames(), "--exclusive"
	if !sp.Exclusive {
		alone = "partition " + p.Name + " (OverSubscribe=EXCLUSIVE)"
	}
	most, text := 0, []string(nil)
	for _, name := range names {
		r, whole := v.Reservation(name), 0
		for i, node := range r.Nodes {
			if r.Part(i) == nil && slices.Contains(p.Nodes, node) {
				whole++
			}
		}
		most = max(most, whole)
		text = append(text, fmt.Sprintf("%s has %d nodes, %d of them whole and in partition %s", name, len(r.Nodes), whole,
			p.Name))
	}
	switch least := int(sched.Resolve(sp, p, &v.Config().Params).MinNodes); {
	case !sp.Exclusive && !p.Exclusive() || most >= least:
		return refuse(proto.CodeReservation, "the job asks for more than its reservation has: %s; "+
			"gcontrol show reservation %s lists its CPUs, memory and generic resources; ask for less, or have it enlarged",
			strings.Join(text, ", "), names[0])
	case most == 0:
		return refuse(proto.CodeReservation, "%s has parts of nodes only, and %s wants all CPUs of a node: "+
			"leave it out, or ask for a reservation of whole nodes", strings.Join(names, ","), alone)
	default:
		return refuse(proto.CodeReservation, "%s, and %s wants all CPUs of %d nodes: ask for fewer nodes, "+
			"leave it out, or ask for a reservation of whole nodes", strings.Join(text, ", "), alone, least)
	}
}

func orAny(names []string) string {
	if len(names) == 0 {
		return "any"
	}
	return strings.Join(names, ",")
}
