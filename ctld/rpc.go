package ctld

import (
	"context"
	"errors"
	"strconv"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/trust"
	"gbatch/internal/wire"
)

type message = proto.Message

// local serves the unix socket: users whose identity the kernel gives.
func (c *Controller) local(ctx context.Context, r *server.Request) {
	u, ok := r.Peer.User()
	if !ok || trust.May(trust.Administrator, r.Kind) == trust.Refused && r.Kind >= proto.KindForward {
		c.end(r, nil, refuse(proto.CodeBadRequest, "this socket takes requests of users only"))
		return
	}
	who := c.kernelSays(ctx, &u)
	if r.Kind == proto.KindAttend {
		c.attend(ctx, r, who)
		return
	}
	if err := server.TooOld(r); err != nil {
		c.end(r, nil, err)
		return
	}
	c.answer(ctx, r, who)
}

// answer serves a request of a user whom this controller knows by itself: here if it can, and else by the leader.
func (c *Controller) answer(ctx context.Context, r *server.Request, who *caller) {
	defer c.enter(r.Kind, r.Body)()
	if r.Kind == proto.KindStale {
		c.serveStale(ctx, r, who, r.Body)
		return
	}
	if answeredAnywhere(r.Kind) && (r.Kind != proto.KindAcct || c.machine.View().Config().Cluster != "") {
		c.serve(ctx, r, who, r.Kind, r.Body, false)
		return
	}
	if !c.leads(ctx) && c.forward(ctx, r, who) {
		return
	}
	if c.serve(ctx, r, who, r.Kind, r.Body, true) || c.forward(ctx, r, who) {
		return
	}
	c.end(r, nil, c.notLeading()) // it moves to and fro
}

// enter counts a request until it is answered.
func (c *Controller) enter(kind uint16, body []byte) (leave func()) {
	if row := proto.RequestIn(kind, body); row.WaitS > 0 {
		return func() {}
	}
	c.inside.Add(1)
	return func() { c.inside.Add(-1) }
}

// remote serves the TLS port: other daemons, with role and name from their certificates.
func (c *Controller) remote(ctx context.Context, r *server.Request) {
	role, name, ok := r.Peer.Daemon()
	var strange error
	if r.Kind != proto.KindMoment && r.Kind != proto.KindPing { // a controller learns so that it was removed
		strange = c.strange(role, name, r.Remote())
	}
	switch {
	case !ok:
		c.end(r, nil, refuse(proto.CodeAccess, ""))
	case strange != nil:
		c.end(r, nil, strange)
	case !trust.Asks(trust.OfRole(role), r.Kind):
		c.end(r, nil, refuse(proto.CodeAccess, "a daemon with role %s can't ask this (kind %d)", role, r.Kind))
	case r.Kind == proto.KindPing:
		if !c.leadsAfterElection(ctx) {
			c.end(r, nil, c.notLeading())
			return
		}
		// Who asks wants to know only this, and at once: the state of the other controllers takes time.
		pong := &proto.PingReply{Leader: c.opts.Name, Term: c.store.Term(), Version: c.opts.Version, Now: c.now()}
		for _, p := range c.voters() {
			pong.Controllers = append(pong.Controllers, proto.ControllerInfo{Name: p.Name, Addr: p.Addr})
		}
		c.end(r, pong, nil)
	case r.Kind == proto.KindWitness:
		c.end(r, c.witness(ctx), nil)
	case r.Kind == proto.KindMoment:
		c.end(r, c.moment(ctx), nil)
	case r.Kind == proto.KindRenew:
		c.renewFor(ctx, r, role, name)
	case r.Kind == proto.KindSign:
		c.signFor(r)
	case r.Kind == proto.KindRevoked:
		c.end(r, c.issuer.Revoked(), nil)
	case r.Kind == proto.KindHello:
		c.registerNode(ctx, r, name)
	case r.Kind == proto.KindForward:
		c.forwarded(ctx, r, role, name)
	default:
		c.end(r, nil, refuse(proto.CodeAccess, "a controller doesn't answer this (kind %d)", r.Kind))
	}
}

// witness says whether this controller leads, or hears the one that does, as a majority sees it now.
func (c *Controller) witness(ctx context.Context) *proto.WitnessReply {
	if c.leading.Load() {
		if c.store.VerifyLeader(ctx) != nil {
			return &proto.WitnessReply{}
		}
		return &proto.WitnessReply{Hears: true, LeadsMS: c.nodes.leadsMS(time.Now())}
	}
	reply := &proto.WitnessReply{}
	id, addr := c.store.Leader()
	if addr == "" || id == c.opts.Name {
		return reply
	}
	dial := func() (*rpc.Mux, error) { return c.dialTLS(context.Background(), addr, pki.RoleCtld) }
	if m, err := c.toLead.to(ctx, addr, dial); err == nil {
		f, err := m.Call(ctx, proto.KindWitness, nil)
		if err != nil || proto.Decode(f.Body, reply) != nil {
			return &proto.WitnessReply{}
		}
	}
	return reply
}

func (c *Controller) registerNode(ctx context.Context, r *server.Request, name string) {
	var h proto.Hello
	if err := proto.DecodeWith(r.Body, &h, wire.Keep); err != nil {
		c.end(r, nil, refuse(proto.CodeBadRequest, "%v", err))
		return
	}
	err := c.hello(ctx, name, r.Remote(), &h, func(w *proto.Welcome) (*rpc.Conn, error) {
		body, err := proto.Encode(w)
		if err != nil {
			return nil, err
		}
		conn, err := r.Hijack()
		if err != nil {
			return nil, err
		}
		return conn, conn.WriteFrame(proto.KindWelcome, 0, 0, body)
	})
	if err != nil {
		c.end(r, nil, err)
	}
}

// forwarded serves a user's request that another daemon accepted, if that daemon may speak for the user.
func (c *Controller) forwarded(ctx context.Context, r *server.Request, role, name string) {
	var f proto.Forward
	if err := proto.DecodeWith(r.Body, &f, wire.Keep); err != nil || f.Kind >= proto.KindForward {
		c.end(r, nil, refuse(proto.CodeBadRequest, "the forwarded request is malformed: %v", err))
		return
	}
	if payer := c.forwardPayer(f.Caller.UID, role, name); payer != "" {
		leave, err := c.budget.Enter(ctx, share.Claim{Payer: payer, Bytes: len(f.Body), Again: true,
			Waits: proto.Waits(f.Kind), Patience: forwardedPatience})
		if err != nil {
			c.end(r, nil, err)
			return
		}
		defer leave()
	}
	defer c.enter(f.Kind, f.Body)()
	if f.Kind != proto.KindStale && !c.leads(ctx) {
		c.end(r, nil, c.notLeading())
		return
	}
	who, err := c.vouched(ctx, &f, role, name)
	if err == nil && who.from != model.FromController {
		who.via = shownBy(r.Peer.Cert(), role, name)
	}
	switch {
	case err != nil:
		c.end(r, nil, err)
	case f.Kind == proto.KindStale:
		c.serveStale(ctx, r, who, f.Body)
	default:
		c.serve(ctx, r, who, f.Kind, f.Body, false)
	}
}

// forwardedPatience is how long a request that another daemon passes on waits for its user's other requests to end.
const forwardedPatience = 5 * time.Second

// forwardedWaits reports whether requests of daemons may be under way for long: what they pass on may.
func forwardedWaits(kind uint16) bool { return kind == proto.KindForward || proto.Waits(kind) }

func (c *Controller) hasJobOn(uid uint32, node string) bool {
	v := c.machine.View()
	n := v.Node(node)
	if n == nil {
		return false
	}
	for _, id := range n.Jobs {
		if j := v.Job(id); j != nil && j.Spec.UID == uid {
			return true
		}
	}
	return false
}

// end sends a request's last answer.
func (c *Controller) end(r *server.Request, m message, err error) {
	var body []byte
	if err == nil {
		body, err = proto.Encode(m)
	}
	if err != nil {
		err = r.Fail(err)
	} else {
		err = r.Reply(body)
	}
	if err != nil {
		c.log.Debug("an answer was not delivered", "peer", r.Peer.String(), "kind", r.Kind, "err", err)
	}
}

// notLeading is the answer of a follower: its text is the leader's address.
func (c *Controller) notLeading() error {
	_, addr := c.store.Leader()
	return rpc.Errorf(proto.CodeNotLeader, "%s", addr)
}

// forward passes a local user's request to the leader. False: this controller leads by now, and answers it.
func (c *Controller) forward(ctx context.Context, r *server.Request, who *caller) bool {
	err := c.toLeader(ctx, who, r.Kind, r.Body, func(f *rpc.Frame) error {
		if f.More() {
			return r.ReplyMore(f.Body)
		}
		return r.Reply(f.Body)
	})
	if errors.Is(err, errHere) {
		return false
	}
	if err != nil {
		c.end(r, nil, err)
	}
	return true
}

func (c *Controller) hostlist(names []string) string { return hostlist.Compress(names) }

func itoa(n int32) string { return strconv.Itoa(int(n)) }
