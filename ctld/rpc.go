package ctld

import (
	"context"
	"errors"
	"os/user"
	"strconv"
	"sync"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
)

type message = proto.Message

// local serves the unix socket: users whose identity the kernel gives.
func (c *Controller) local(ctx context.Context, r *server.Request) {
	u, ok := r.Peer.User()
	if !ok || r.Kind >= proto.KindForward {
		c.end(r, nil, refuse(proto.CodeBadRequest, "this socket takes requests of users only"))
		return
	}
	who := c.callers.of(u)
	if r.Kind == proto.KindAttend {
		c.attend(ctx, r, &who)
		return
	}
	if !c.leading.Load() {
		c.forward(ctx, r, &who)
		return
	}
	c.serve(ctx, r, &who, r.Kind, r.Body)
}

// remote serves the TLS port: other daemons, whose role and name their certificate gives.
func (c *Controller) remote(ctx context.Context, r *server.Request) {
	role, name, ok := r.Peer.Daemon()
	switch {
	case !ok:
		c.end(r, nil, refuse(proto.CodeAccess, ""))
	case r.Kind == proto.KindPing:
		if !c.leading.Load() {
			c.end(r, nil, c.notLeading())
			return
		}
		c.end(r, c.ping(), nil)
	case r.Kind == proto.KindHello && role == pki.RoleNode:
		c.registerNode(ctx, r, name)
	case r.Kind == proto.KindForward && (role == pki.RoleCtld || role == pki.RoleNode || role == pki.RoleLogin):
		c.forwarded(ctx, r, role, name)
	default:
		c.end(r, nil, refuse(proto.CodeAccess, "a daemon with role %s can't ask this (kind %d)", role, r.Kind))
	}
}

func (c *Controller) registerNode(ctx context.Context, r *server.Request, name string) {
	var h proto.Hello
	if err := proto.Decode(r.Body, &h); err != nil {
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

// forwarded serves a user's request that another daemon accepted, as far as that daemon may speak for the user.
func (c *Controller) forwarded(ctx context.Context, r *server.Request, role, name string) {
	var f proto.Forward
	if err := proto.Decode(r.Body, &f); err != nil || f.Kind >= proto.KindForward {
		c.end(r, nil, refuse(proto.CodeBadRequest, "a malformed request was forwarded (%v)", err))
		return
	}
	if !c.leading.Load() {
		c.end(r, nil, c.notLeading())
		return
	}
	trusted := proto.RequestOf(f.Kind).Effect != proto.Reads // what everybody may read needs no trust
	if role != pki.RoleCtld && f.Caller.UID == 0 && trusted {
		c.end(r, nil, refuse(proto.CodeAccess, "root's commands are taken on controllers only; run it on %s", c.opts.Name))
		return
	}
	if role == pki.RoleNode && trusted && !c.hasJobOn(f.Caller.UID, name) {
		c.end(r, nil, refuse(proto.CodeAccess, "node %s may speak only for users with a job on it; submit from a login node or a controller", name))
		return
	}
	c.serve(ctx, r, &f.Caller, f.Kind, f.Body)
}

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

// serve answers one user's request. It runs on the leader.
func (c *Controller) serve(ctx context.Context, r *server.Request, who *proto.Caller, kind uint16, body []byte) {
	begin := time.Now()
	c.counts.serving.Add(1)
	defer func() {
		c.counts.serving.Add(-1)
		c.counts.served(kind, who, time.Since(begin))
	}()
	ctx, made := withMade(ctx)
	end := func(m message, err error) {
		if err != nil {
			err = answerFor(kind, made.Load(), err)
		}
		c.end(r, m, err)
	}
	decode := func(m message) bool {
		if err := proto.Decode(body, m); err != nil {
			end(nil, refuse(proto.CodeBadRequest, "malformed request: %v", err))
			return false
		}
		return true
	}
	var part []byte // of a streamed answer: a list of 50,000 jobs leaves no garbage behind
	more := func(m message) (err error) {
		if part, err = proto.Append(part[:0], m); err != nil {
			return err
		}
		return r.ReplyMore(part)
	}
	switch kind {
	case proto.KindPing:
		end(c.ping(), nil)
	case proto.KindSubmit:
		if rq := new(proto.SubmitRequest); decode(rq) {
			reply, err := c.submit(ctx, *who, rq)
			end(reply, err)
		}
	case proto.KindSubmitEach:
		if rq := new(proto.SubmitEachRequest); decode(rq) {
			reply, err := c.submitEach(ctx, *who, rq)
			end(reply, err)
		}
	case proto.KindJobs:
		if rq := new(proto.JobsRequest); decode(rq) {
			err := c.jobs(who, rq, more)
			end(&proto.JobsChunk{Now: c.now()}, err)
		}
	case proto.KindNodes:
		if rq := new(proto.NodesRequest); decode(rq) {
			err := c.nodesList(who, rq, more)
			end(&proto.NodesChunk{Now: c.now()}, err)
		}
	case proto.KindPartitions:
		reply, err := c.partitions(who)
		end(reply, err)
	case proto.KindConfig:
		end(c.configReply(who), nil)
	case proto.KindCancel, proto.KindSignal:
		if rq := new(proto.CancelRequest); decode(rq) {
			reply, err := c.cancel(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindUpdateJob:
		if rq := new(proto.UpdateJobRequest); decode(rq) {
			reply, err := c.updateJob(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindUpdateNode:
		if rq := new(proto.UpdateNodeRequest); decode(rq) {
			end(&proto.Empty{}, c.updateNode(ctx, who, rq))
		}
	case proto.KindReconfigure:
		if rq := new(proto.ReconfigureRequest); decode(rq) {
			reply, err := c.reconfigure(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindWait:
		if rq := new(proto.WaitRequest); decode(rq) {
			reply, err := c.wait(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindAcct:
		if rq := new(proto.AcctRequest); decode(rq) {
			err := c.query(ctx, body, c.sees(c.machine.View(), who).records(r.ReplyMore))
			end(&proto.RecordsChunk{}, err)
		}
	case proto.KindShares:
		if rq := new(proto.SharesRequest); decode(rq) {
			end(c.shares(who, rq), nil)
		}
	case proto.KindReservations:
		end(c.reservations(who), nil)
	case proto.KindReserve:
		if rq := new(proto.ReserveRequest); decode(rq) {
			reply, err := c.reserve(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindWhy:
		if rq := new(proto.WhyRequest); decode(rq) {
			reply, err := c.why(who, rq)
			end(reply, err)
		}
	case proto.KindDoctor:
		if rq := new(proto.DoctorRequest); decode(rq) {
			reply, err := c.doctor(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindMIG:
		if rq := new(proto.MIGRequest); decode(rq) {
			reply, err := c.applyMIG(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindStat:
		if rq := new(proto.StatRequest); decode(rq) {
			reply, err := c.stat(ctx, who, rq)
			end(reply, err)
		}
	case proto.KindPeers:
		if rq := new(proto.PeersRequest); decode(rq) {
			end(c.peers(rq), nil)
		}
	case proto.KindSteps:
		if rq := new(proto.StepsRequest); decode(rq) {
			end(&proto.StepsChunk{Now: c.now()}, c.steps(ctx, who, rq, more))
		}
	case proto.KindDiag, proto.KindDiagReset:
		reply, err := c.diag(who, kind == proto.KindDiagReset)
		end(reply, err)
	case proto.KindAccounts:
		end(&proto.AccountsChunk{}, c.accounts(who, more))
	case proto.KindEditAccounts:
		if rq := new(proto.EditAccountsRequest); decode(rq) {
			end(&proto.Empty{}, c.editAccounts(ctx, who, rq))
		}
	case proto.KindPrio:
		if rq := new(proto.PrioRequest); decode(rq) {
			end(&proto.PrioChunk{Weights: c.machine.View().Config().Params.Priority}, c.prios(who, rq, more))
		}
	case proto.KindDump:
		end(&proto.DumpChunk{}, c.dump(ctx, who, more))
	case proto.KindScript:
		if rq := new(proto.ScriptRequest); decode(rq) {
			reply, err := c.script(who, rq)
			end(reply, err)
		}
	default:
		end(nil, refuse(proto.CodeBadRequest, "this controller does not know request kind %d; is the command of a newer version?", kind))
	}
}

// end gives a request its last answer.
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

// notLeading tells a daemon where the leader is: the text is its address.
func (c *Controller) notLeading() error {
	_, addr := c.store.Leader()
	return rpc.Errorf(proto.CodeNotLeader, "%s", addr)
}

// forward passes a local user's request to the leader.
func (c *Controller) forward(ctx context.Context, r *server.Request, who *proto.Caller) {
	err := c.toLeader(ctx, who, r.Kind, r.Body, func(f *rpc.Frame) error {
		if f.More() {
			return r.ReplyMore(f.Body)
		}
		return r.Reply(f.Body)
	})
	if err != nil {
		c.end(r, nil, err)
	}
}

// toLeader asks the controller that leads and gives every answer to each.
func (c *Controller) toLeader(ctx context.Context, who *proto.Caller, kind uint16, body []byte, each func(*rpc.Frame) error) error {
	id, addr := c.store.Leader()
	if addr == "" || id == c.opts.Name {
		return relayError(kind, &rpc.Unsent{Err: errors.New("no controller leads just now")})
	}
	body, err := proto.Encode(&proto.Forward{Caller: *who, Kind: kind, Body: body})
	if err != nil {
		return err
	}
	m, err := c.links.to(ctx, c, addr)
	if err != nil {
		return relayError(kind, &rpc.Unsent{Err: err})
	}
	return relayError(kind, m.Stream(ctx, proto.KindForward, body, each))
}

// links keeps one connection to the controller that leads.
type links struct {
	mu   sync.Mutex
	addr string
	m    *rpc.Mux
}

func (l *links) to(ctx context.Context, c *Controller, addr string) (*rpc.Mux, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m != nil && (l.addr != addr || l.m.Err() != nil) {
		_ = l.m.Close() // it leads nowhere any more
		l.m = nil
	}
	if l.m == nil {
		m, err := c.dialTLS(ctx, addr, pki.RoleCtld)
		if err != nil {
			return nil, err
		}
		l.addr, l.m = addr, m
	}
	return l.m, nil
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m != nil {
		_ = l.m.Close() // shutting down
		l.m = nil
	}
}

func (c *Controller) dialTLS(ctx context.Context, addr, role string) (*rpc.Mux, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.clientTLS, role)
	if err != nil {
		return nil, err
	}
	conn := rpc.Client(nc, rpc.ConnOptions{Name: role + " at " + addr})
	m, err := rpc.NewMux(conn)
	if err != nil {
		_ = conn.Close() // the error says why
		return nil, err
	}
	return m, nil
}

// reachable reports whether another controller answers.
func (c *Controller) reachable(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout/3)
	defer cancel()
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.clientTLS, pki.RoleCtld)
	if err != nil {
		return false
	}
	_ = nc.Close() // only a look
	return true
}

// callers turns what the kernel says of a local process into a Caller. Names are looked up once per uid.
type callers struct {
	host string
	mu   sync.Mutex
	seen map[[2]uint32][2]string
}

const maxCallersSeen = 65536

func (k *callers) of(u rpc.User) proto.Caller {
	key := [2]uint32{u.UID, u.GID}
	k.mu.Lock()
	names, ok := k.seen[key]
	k.mu.Unlock()
	if !ok {
		names = [2]string{strconv.Itoa(int(u.UID)), strconv.Itoa(int(u.GID))}
		if who, err := user.LookupId(names[0]); err == nil {
			names[0] = who.Username
		}
		if g, err := user.LookupGroupId(names[1]); err == nil {
			names[1] = g.Name
		}
		k.mu.Lock()
		if len(k.seen) < maxCallersSeen {
			k.seen[key] = names
		}
		k.mu.Unlock()
	}
	return proto.Caller{UID: u.UID, GID: u.GID, Groups: u.Groups, User: names[0], Group: names[1], Host: k.host}
}

func (c *Controller) hostlist(names []string) string { return hostlist.Compress(names) }

func itoa(n int32) string { return strconv.Itoa(int(n)) }
