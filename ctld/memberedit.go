package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/store"
)

// memberedit.go adds, removes and replaces controllers while the cluster runs. What would lose the majority is refused.

const (
	startsWithin = 5 * time.Second  // a new one has to answer by then
	memberAnswer = 60 * time.Second // a command waits so long for the new one's vote
)

// editControllers adds a controller, removes one, or replaces one by another. It looks at what is there and does what
// is missing, so it may be repeated, also by the next leader.
func (c *Controller) editControllers(ctx context.Context, who *caller,
	rq *proto.EditControllersRequest) (*proto.EditControllersReply, error) {
	if rq.Add != "" && rq.Add == rq.Remove {
		return nil, refuse(proto.CodeBadRequest, "%s can't replace itself. For another address, change its SlurmctldHost "+
			"line on all hosts, restart its gctld and give gcontrol controllers add %[1]s; with a new disk it only has to be "+
			"started (gbatch-ha(7))", rq.Add)
	}
	if rq.Add == "" && rq.Remove == "" {
		return nil, refuse(proto.CodeBadRequest, "name a controller to add, or one to remove")
	}
	select {
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, memberAnswer)
	defer cancel()
	c.hearAll(ctx)
	reply := &proto.EditControllersReply{}
	switch member := c.isMember(rq.Remove); {
	case rq.Remove == "", rq.Add != "" && !member:
	case !member && c.removalBegun(who, rq):
		// An earlier try removed it, and its answer was lost with a leader.
		reply.Said = append(reply.Said, fmt.Sprintf("%s is not a controller any more: %s are", rq.Remove,
			strings.Join(namesOf(c.members()), ", ")))
	default:
		if err := c.mayRemove(ctx, rq.Remove, rq.Add); err != nil {
			return nil, err
		}
	}
	if rq.Add != "" {
		votes, err := c.addController(ctx, who, rq, reply)
		if err != nil || !votes {
			return reply, err
		}
	}
	if rq.Remove != "" && c.isMember(rq.Remove) {
		if err := c.removeController(ctx, who, rq, reply); err != nil {
			return nil, err
		}
	}
	if text := c.fileDiffers(); text != "" {
		reply.Said = append(reply.Said, text)
	}
	return reply, nil
}

func (c *Controller) isMember(name string) bool {
	return slices.ContainsFunc(c.members(), func(p Peer) bool { return p.Name == name })
}

// removalKey is the key under which the state remembers that a request has begun to remove a controller.
func removalKey(who *caller, rq *proto.EditControllersRequest) string {
	return requestKey(who.UID, rq.RequestID)
}

// removalBegun reports whether an earlier try of the request has begun to remove its controller.
func (c *Controller) removalBegun(who *caller, rq *proto.EditControllersRequest) bool {
	key := removalKey(who, rq)
	return key != "" && c.machine.View().Answer(key) != nil
}

// beginRemoval notes in the log that the request removes its controller.
func (c *Controller) beginRemoval(ctx context.Context, who *caller, rq *proto.EditControllersRequest) error {
	key := removalKey(who, rq)
	if key == "" {
		return nil
	}
	_, err := c.propose(ctx, &state.Once{Key: key, Step: state.OnceBegin}) // an earlier try may have noted it
	var lost *lostError
	if errors.As(err, &lost) {
		return errMoved // nothing was removed, noted or not
	}
	return err
}

// memberError makes an error of the store into one for a request that may be repeated.
func memberError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrLeadershipLost), errors.Is(err, store.ErrClosed):
		return errMoved
	}
	return refuse(proto.CodeBusy, "%v; gcontrol controllers shows how far it is", err)
}

// addController makes a controller a member and waits for its vote.
func (c *Controller) addController(ctx context.Context, who *caller, rq *proto.EditControllersRequest,
	reply *proto.EditControllersReply) (votes bool, err error) {
	members := c.store.Members()
	have := slices.IndexFunc(members, func(m store.Member) bool { return m.ID == rq.Add })
	switch {
	case have < 0:
		p, err := c.candidate(ctx, rq, members)
		if err != nil {
			return false, err
		}
		if err := memberError(c.store.AddMember(ctx, *p)); err != nil {
			return false, err
		}
		c.log.Info("a controller was added; it votes when it has the state", "name", p.ID, "addr", p.Addr, "by", who.User)
	case members[have].Voter && c.newAddr(rq, members[have].Addr) != "":
		return true, c.moveController(ctx, who, store.Peer{ID: rq.Add, Addr: c.newAddr(rq, members[have].Addr)}, members,
			reply)
	case members[have].Voter && rq.Remove == "":
		reply.Said = append(reply.Said, rq.Add+" is a controller already, and votes")
		return true, nil
	}
	for {
		for _, p := range c.voters() {
			if p.Name == rq.Add {
				reply.Said = append(reply.Said, fmt.Sprintf("%s votes: %d controllers", rq.Add, len(c.voters())))
				return true, nil
			}
		}
		if !c.leading.Load() {
			return false, errMoved
		}
		pause(ctx, waitPace)
		if ctx.Err() != nil {
			reply.Said = append(reply.Said, rq.Add+" still gets the state; it votes by itself when it has it: see gcontrol "+
				"controllers")
			return false, nil
		}
	}
}

// newAddr gives the address that a controller shall have instead of the one that it has; "": none.
func (c *Controller) newAddr(rq *proto.EditControllersRequest, has string) string {
	cfg, _ := c.loadConfig()
	addr := rq.Addr
	if cfg != nil && addr == "" {
		f, _ := cfg.Controller(rq.Add)
		addr = f.Addr
	} else if _, _, err := net.SplitHostPort(addr); cfg != nil && err != nil {
		addr = net.JoinHostPort(addr, fmt.Sprint(cfg.SlurmctldPort))
	}
	if addr == has {
		return ""
	}
	return addr
}

// moveController gives a controller, which runs at another address by now, that address in the log: the others and the
// nodes reach it there from then on.
func (c *Controller) moveController(ctx context.Context, who *caller, p store.Peer, members []store.Member,
	reply *proto.EditControllersReply) error {
	for _, m := range members {
		if m.Addr == p.Addr {
			return refuse(proto.CodeBadRequest, "controller %s has the address %s; give each its own", m.ID, p.Addr)
		}
	}
	if cfg, _ := c.loadConfig(); cfg != nil {
		if f, ok := cfg.Controller(p.ID); ok && f.Addr != p.Addr {
			return refuse(proto.CodeBadRequest, "gbatch.conf on %s says that %s is at %s, not %s; correct one of them",
				c.opts.Name, p.ID, f.Addr, p.Addr)
		}
	}
	asking, cancel := context.WithTimeout(ctx, startsWithin)
	defer cancel()
	l := &link{}
	defer l.close()
	said, err := c.askMoment(asking, l, p.Addr)
	for ; err != nil && asking.Err() == nil; said, err = c.askMoment(asking, l, p.Addr) {
		pause(asking, memberPace) // it may have been started just now
	}
	switch {
	case err != nil:
		return refuse(proto.CodeBadRequest, "%s does not answer at %s (%v). Change its SlurmctldHost line on its host too, "+
			"restart gctld there, and repeat this", p.ID, p.Addr, err)
	case said.Name != p.ID:
		return refuse(proto.CodeBadRequest, "the controller at %s is %s, not %s", p.Addr, said.Name, p.ID)
	}
	if err := memberError(c.store.Promote(ctx, p)); err != nil {
		return err
	}
	c.log.Info("a controller has another address", "name", p.ID, "addr", p.Addr, "by", who.User)
	reply.Said = append(reply.Said, fmt.Sprintf("%s is at %s: all controllers and nodes are told", p.ID, p.Addr))
	return nil
}

// candidate checks a controller that shall become a member: it runs, it is who it should be, and it is empty.
func (c *Controller) candidate(ctx context.Context, rq *proto.EditControllersRequest,
	members []store.Member) (*store.Peer, error) {
	for _, m := range members {
		if !m.Voter {
			return nil, refuse(proto.CodeBusy, "controller %s is being added, and there is one change at a time: wait until it "+
				"votes, or give it up with gcontrol controllers remove %s", m.ID, m.ID)
		}
	}
	if len(members) >= conf.MaxControllers {
		return nil, refuse(proto.CodeBadRequest, "there are %d controllers, and no more make sense: remove one first",
			len(members))
	}
	addr, line := rq.Addr, ""
	cfg, problems := c.loadConfig()
	if cfg != nil {
		if f, ok := cfg.Controller(rq.Add); ok {
			line = f.Addr
		}
		if _, port, err := net.SplitHostPort(addr); addr != "" && (err != nil || port == "") {
			addr = net.JoinHostPort(addr, fmt.Sprint(cfg.SlurmctldPort))
		}
	}
	switch {
	case addr == "" && cfg == nil:
		return nil, refuse(proto.CodeBadRequest, "where is %s? The configuration of %s can't be read: %s; mend it, or give "+
			"the address: gcontrol controllers add %s=HOST:PORT", rq.Add, c.opts.Name, firstProblem(problems), rq.Add)
	case addr == "" && line == "":
		return nil, refuse(proto.CodeBadRequest, "where is %s? Write SlurmctldHost=%s(HOST:PORT) into gbatch.conf on %s, or "+
			"give its address: gcontrol controllers add %s=HOST:PORT", rq.Add, rq.Add, c.opts.Name, rq.Add)
	case addr == "":
		addr = line
	case line != "" && line != addr:
		return nil, refuse(proto.CodeBadRequest, "gbatch.conf on %s says that %s is at %s, not %s; correct one of them",
			c.opts.Name, rq.Add, line, addr)
	}
	for _, m := range members {
		if m.Addr == addr {
			return nil, refuse(proto.CodeBadRequest, "controller %s has the address %s; give each its own", m.ID, addr)
		}
	}
	p := store.Peer{ID: rq.Add, Addr: addr}
	asking, cancel := context.WithTimeout(ctx, startsWithin)
	defer cancel()
	l := &link{}
	defer l.close()
	said, err := c.askMoment(asking, l, addr)
	for ; err != nil && asking.Err() == nil; said, err = c.askMoment(asking, l, addr) {
		pause(asking, memberPace) // it may have been started just now
	}
	var st store.Standing
	if err == nil && said.Name != "" && said.Name != rq.Add {
		return nil, refuse(proto.CodeBadRequest, "the controller at %s is %s, not %s", addr, said.Name, rq.Add)
	}
	if err == nil {
		st, err = c.store.Ask(ctx, p)
	}
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%s does not answer at %s (%v). Start gctld there first; it needs a "+
			"certificate (gbatch cert issue ctld %s) and a gbatch.conf that names all controllers and itself", rq.Add, addr, err,
			rq.Add)
	}
	if !st.Joining || st.LastIndex > 0 {
		return nil, refuse(proto.CodeBadRequest, "%s has state already, of this or another cluster; a new controller begins "+
			"empty. Stop gctld there, keep its StateSaveLocation aside (mv DIR DIR.old), start it, and add it again", rq.Add)
	}
	return &p, nil
}

// mayRemove refuses to remove a controller if those that are left, and a new one, have no majority.
func (c *Controller) mayRemove(ctx context.Context, name, added string) error {
	if !c.isMember(name) {
		return refuse(proto.CodeBadRequest, "'%s' is not a controller of this cluster: it has %s", name,
			strings.Join(namesOf(c.members()), ", "))
	}
	var left, silent []string
	votes := false
	for _, p := range c.voters() {
		if p.Name == name {
			votes = true
			continue
		}
		left = append(left, p.Name)
		if !c.answersNow(ctx, p.Name) { // nobody is removed on the word of one that has just died
			silent = append(silent, p.Name)
		}
	}
	if added != "" && !slices.Contains(left, added) {
		left = append(left, added) // it answers, or is not added
	}
	switch {
	case !votes:
	case len(left) == 0:
		return refuse(proto.CodeBadRequest, "%s is the only controller; to move it: gcontrol controllers replace %s NEW",
			name, name)
	case len(left)-len(silent) < len(left)/2+1:
		return refuse(proto.CodeBadRequest, "without %s, %d of %d controllers would answer, which is no majority: %s not. "+
			"Start it, or replace it first: gcontrol controllers replace %s NEW", name, len(left)-len(silent), len(left),
			strings.Join(silent, ", ")+map[bool]string{true: " does", false: " do"}[len(silent) == 1], silent[0])
	}
	return nil
}

// heirLag is how many entries of the log a controller may lack that should lead next: it gets them first.
const heirLag = 1024

// heir gives the controller that should lead next, of those that can and have nearly all of the log: one of this
// version, so that in an upgrade of one after the other no older one reads what a newer has written, and of these the
// one that began last, so that leadership moves seldom; "": none is known.
func (c *Controller) heir(ctx context.Context) string {
	var can []peerNews
	most := uint64(0)
	for _, p := range c.voters() {
		if p.Name == c.opts.Name {
			continue
		}
		n, ok := c.news(ctx, p.Name)
		if ok && c.answers(ctx, p.Name) && !n.Joins && !n.Stalled {
			n.Name = p.Name // older ones don't say it
			can, most = append(can, n), max(most, n.Index)
		}
	}
	can = slices.DeleteFunc(can, func(n peerNews) bool { return n.Index+heirLag < most })
	if len(can) == 0 {
		return ""
	}
	other := func(n peerNews) int {
		if n.Version != c.opts.Version {
			return 1
		}
		return 0
	}
	return slices.MinFunc(can, func(a, b peerNews) int {
		return cmp.Or(cmp.Compare(other(a), other(b)), cmp.Compare(a.UpMS, b.UpMS))
	}).Name
}

// awaitJoined waits a moment for a controller that is about to get its vote.
func (c *Controller) awaitJoined(ctx context.Context, name string) {
	for end := time.Now().Add(handOverTime); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, memberPace) {
		c.hearAll(ctx)
		if n, ok := c.news(ctx, name); name == "" && c.heir(ctx) != "" || name != "" && (!ok || !n.Joins) {
			return
		}
	}
}

// removeController ends a membership. This controller hands leadership over before its own ends, and the next leader
// goes on with the request.
func (c *Controller) removeController(ctx context.Context, who *caller, rq *proto.EditControllersRequest,
	reply *proto.EditControllersReply) error {
	name := rq.Remove
	if err := c.mayRemove(ctx, name, ""); err != nil {
		return err
	}
	if name == c.opts.Name {
		heir := c.heir(ctx)
		c.log.Info("this controller is to be removed; another one leads", "heir", heir, "by", who.User)
		if err := c.handOver(context.WithoutCancel(ctx), heir); err != nil {
			return refuse(proto.CodeBusy, "%s leads, and could not hand leadership over: %v; try again", name, err)
		}
		return errMoved
	}
	ends := "its gctld ends"
	if !c.answersNow(ctx, name) {
		ends = "its gctld does not answer and has not heard of it: stop it, if it runs"
	}
	if err := c.beginRemoval(ctx, who, rq); err != nil {
		return err
	}
	if err := memberError(c.store.RemoveMember(ctx, name)); err != nil {
		return err
	}
	c.log.Info("a controller was removed", "name", name, "by", who.User)
	left := fmt.Sprintf("%d controllers are", len(c.voters()))
	if len(c.voters()) == 1 {
		left = "1 controller is"
	}
	reply.Said = append(reply.Said, fmt.Sprintf("%s is removed, and %s; %s left", name, ends, left))
	return nil
}
