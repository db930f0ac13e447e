package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/trust"
	"gbatch/noded/check"
	"gbatch/noded/relay"
	"gbatch/noded/shares"
	"gbatch/noded/shim"
)

// peers.go is the port on which nodes' daemons answer each other, about steps only: the manager of a job's steps asks
// the job's other nodes for their parts, and the daemon of a command's host passes the command's request on to the
// manager. Both sides identify themselves by certificate. The leader gives a node's address when it is needed.

const (
	protoPeer = "gbatch-peer"
	peerFirst = 10 * time.Second // for the first message of a connection
	peerBeat  = 30 * time.Second // TCP keepalive
	// maxPeerRequest is the size of another node's question whether a controller is heard, bytes: it has no content.
	maxPeerRequest = 4 << 10

	maxWitnessed   = 256             // questions at once whether a controller is heard
	maxWitnessedOf = 8               // of them, of one node
	witnessWait    = 4 * time.Second // for a heartbeat to be acknowledged
)

// peers knows where other nodes answer.
type peers struct {
	relay *relay.Relay
	tls   *pki.Credentials
	name  string

	mu    sync.Mutex
	known map[string]string // addresses, as far as known; one that is outdated leads nowhere, or to another node
}

// maxKnownPeers bounds the addresses that are kept.
const maxKnownPeers = 1 << 16

// knownWait is how long a known address is tried before the controller is asked for the present one.
const knownWait = 3 * time.Second

// errNoAddress says that no controller has told a node's address.
var errNoAddress = errors.New("the controller does not say where it is")

// learn keeps the addresses that come with a job.
func (p *peers) learn(l *proto.Launch) {
	if p == nil || l.Alloc == nil {
		return
	}
	for i, addr := range l.Addrs[:min(len(l.Addrs), len(l.Alloc.Nodes))] {
		p.know(l.Alloc.Nodes[i].Node, addr)
	}
}

func (p *peers) know(node, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr == "" || p.known[node] == addr {
		return
	}
	if p.known == nil || len(p.known) >= maxKnownPeers {
		p.known = map[string]string{}
	}
	p.known[node] = addr
}

// dial connects to another node's daemon: at the known address, or else at the one that the controller says. So steps
// of a running job begin while no controller answers.
func (p *peers) dial(ctx context.Context, node string) (net.Conn, error) {
	p.mu.Lock()
	addr := p.known[node]
	p.mu.Unlock()
	if addr != "" {
		soon, cancel := context.WithTimeout(ctx, knownWait)
		nc, err := p.dialAt(soon, node, addr)
		cancel()
		if err == nil {
			return nc, nil
		}
	}
	addr, err := p.ask(ctx, node)
	if err != nil {
		return nil, err
	}
	p.know(node, addr)
	return p.dialAt(ctx, node, addr)
}

// ask gives the address that the controller knows.
func (p *peers) ask(ctx context.Context, node string) (string, error) {
	addr := ""
	body, err := proto.Encode(&proto.PeersRequest{Nodes: []string{node}})
	if err != nil {
		return "", err
	}
	err = p.relay.Forward(ctx, &proto.Caller{Host: p.name}, proto.KindPeers, body, func(f *rpc.Frame) error {
		var r proto.PeersReply
		if err := proto.Decode(f.Body, &r); err != nil {
			return err
		}
		if len(r.Addrs) == 1 {
			addr = r.Addrs[0]
		}
		return nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: node %s: %w", errNoAddress, node, err)
	case addr == "":
		return "", fmt.Errorf("the gnoded of node %s is not connected to the controller", node)
	}
	return addr, nil
}

func (p *peers) dialAt(ctx context.Context, node, addr string) (net.Conn, error) {
	nc, err := pki.Dial(ctx, addr, protoPeer, p.tls, pki.RoleNode)
	if err != nil {
		return nil, err
	}
	peer, err := pki.PeerOfConn(nc)
	if _, name, _ := peer.Daemon(); err == nil && name != node {
		err = fmt.Errorf("%s is node %s, not %s", addr, name, node)
	}
	if err == nil {
		err = pki.GiveUpAfter(nc, relay.UserTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return nc, nil
}

// peerHost gives the address to listen on for other nodes: all of this host's, but where every controller is on this
// host's loopback the whole cluster is, and nobody else is let near.
func peerHost(controllers []string) string {
	for _, addr := range controllers {
		host, _, err := net.SplitHostPort(addr)
		if ip := net.ParseIP(host).To4(); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return ""
		}
	}
	return "127.0.0.1" // what loopback connections come from
}

// listenPeers opens the port: the configured one, or any where several nodes of one host can't have the same.
func listenPeers(o *Options, cfg *pki.Credentials, log *slog.Logger) (*pki.Listener, error) {
	port := int64(0)
	if o.Config != nil {
		port = o.Config.SlurmdPort
	}
	accept := []pki.Accept{{Proto: protoPeer, Roles: []string{pki.RoleNode, pki.RoleLogin}},
		{Proto: pki.ProtoRPC, Roles: []string{pki.RoleNode}}}
	host := peerHost(o.Controllers)
	ln, err := pki.Listen(net.JoinHostPort(host, strconv.FormatInt(port, 10)), cfg, log, accept...)
	if errors.Is(err, syscall.EADDRINUSE) && port != 0 {
		log.Warn("SlurmdPort is in use; gnoded uses another port", "port", port)
		ln, err = pki.Listen(net.JoinHostPort(host, "0"), cfg, log, accept...)
	}
	return ln, err
}

// peerPort gives the port's number.
func peerPort(ln *pki.Listener) int32 {
	if ln == nil {
		return 0
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		return int32(a.Port)
	}
	return 0
}

// peerServer takes other nodes' connections.
type peerServer struct {
	steps *stepServer
	log   *slog.Logger
	wg    sync.WaitGroup
}

func (s *peerServer) serve(ctx context.Context, ln *pki.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() }) // ends Accept
	defer stop()
	defer s.wg.Wait()
	in := ln.Proto(protoPeer)
	for {
		nc, err := in.Accept()
		if err != nil {
			return nil // the listener is closed
		}
		s.wg.Go(func() { s.talk(ctx, nc) })
	}
}

// serveWitness answers other nodes that ask whether this one hears a controller: it sends a heartbeat, and waits for
// its acknowledgement.
func (n *Noded) serveWitness(ctx context.Context, ln net.Listener) error {
	slots := make(chan struct{}, maxWitnessed)
	return server.Serve(ctx, ln, func(ctx context.Context, r *server.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			_ = r.Fail(rpc.Errorf(rpc.CodeBusy, "this node is asked too often")) // whoever asks asks others too
			return
		}
		if role, _, _ := r.Peer.Daemon(); r.Kind != proto.KindWitness || !trust.Asks(trust.OfRole(role), r.Kind) {
			_ = r.Fail(rpc.Errorf(proto.CodeBadRequest, "a node does not answer requests of kind %d", r.Kind)) // as above
			return
		}
		ctx, cancel := context.WithTimeout(ctx, witnessWait)
		defer cancel()
		var reply proto.WitnessReply
		since := shim.Uptime()
		n.beatNow()
		if leads, ok := n.fence.Hears(ctx.Done(), since); ok {
			reply = proto.WitnessReply{Hears: true, LeadsMS: leads.Milliseconds()}
		}
		body, err := proto.Encode(&reply)
		if err == nil {
			err = r.Reply(body)
		}
		if err != nil {
			n.log.Debug("the answer to a node that asks for the controllers was not sent", "peer", r.Peer.String(), "err", err)
		}
	}, server.Options{Log: n.log, Peer: pki.PeerOfConn, MaxConns: maxWitnessed, MaxConnsPerPeer: maxWitnessedOf,
		Idle: peerFirst, MaxRequest: maxPeerRequest})
}

// talk is one connection of another node.
func (s *peerServer) talk(ctx context.Context, nc net.Conn) {
	peer, err := pki.PeerOfConn(nc)
	role, name, ok := peer.Daemon()
	if err == nil {
		err = pki.GiveUpAfter(nc, relay.UserTimeout)
	}
	if err != nil || !ok {
		_ = nc.Close() // it is nobody's
		return
	}
	if err := s.steps.own.Peers.Take(name, 1); err != nil {
		s.log.Warn("a connection of another node is closed: there are too many", "peer", name, "err", err)
		_ = nc.Close() // nothing has been said
		return
	}
	defer s.steps.own.Peers.Give(name, 1)
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // ends the reader
	defer stop()
	c := newStepConn(nc, s.steps.own, shares.Owner{Host: name})
	c.from, c.role, c.host = name, role, hostOf(nc.RemoteAddr())
	s.steps.converse(c, "peer", name, func() error { return s.read(c) })
}

func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// read takes the first message, which says what the connection is about, and goes on from there.
func (s *peerServer) read(c *stepConn) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(peerFirst)); err != nil {
		return err
	}
	kind, body, paid, err := c.frame(requestLimit)
	if err != nil {
		return c.sayBusy(err)
	}
	switch kind {
	case proto.StepFrameDoor:
		var d proto.StepDoor
		if err := c.decode(body, &d, nil); err != nil {
			return err
		}
		c.release(paid)
		if err := s.steps.mayCome(c.role, d.UID); err != nil {
			c.send(&proto.StepEvent{Kind: proto.StepRefused, Text: "Unable to create step: " + err.Error()})
			return err
		}
		c.door = true
		if err := c.pays(shares.Owner{UID: d.UID, Host: c.from}); err != nil {
			return c.sayBusy(err)
		}
		return s.steps.read(c, d.UID, 0)
	case proto.StepFramePart:
		if c.role != pki.RoleNode {
			return fmt.Errorf("%s is not a node", c.from)
		}
		m := new(proto.StepPart)
		if err := c.decode(body, m, func() int64 { return partWorth(len(body), m) }); err != nil {
			return c.sayBusy(err)
		}
		if err := check.Part(m); err != nil {
			return refuseNow(c, err.Error())
		}
		c.release(paid)
		c.part = true
		s.steps.inbox.post(msgPart{c, m})
		return s.steps.readOn(c)
	}
	return fmt.Errorf("a first message of kind %d", kind)
}

// pass passes the request of a command on this host on to the manager of the job's steps on another node. It forwards
// both directions unchanged.
func (s *stepServer) pass(c *stepConn, uid uint32, rq *proto.StepRequest, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), peerFirst)
	nc, err := s.peers.dial(ctx, rq.Node)
	cancel()
	if err != nil && rq.Had {
		return err // its daemon is away, and the step goes on: the command looks for it again
	}
	if err != nil {
		return refuseNow(c, fmt.Sprintf("Unable to create step for job %d: %v", rq.Job, err))
	}
	defer nc.Close() //nolint:errcheck // both sides have said everything
	first, err := appendFrame(nil, proto.StepFrameDoor, &proto.StepDoor{UID: uid})
	if err != nil {
		return err
	}
	first = appendRaw(first, proto.StepFrameRequest, body)
	if _, err := nc.Write(first); err != nil {
		return err
	}
	s.wg.Go(func() {
		_, _ = io.Copy(c.nc, nc) // whichever side has gone is seen by both copies
		c.close()
	})
	if _, err = io.Copy(nc, c.nc); err == nil && !s.ending.Load() { // the command has gone: its step is to end
		var b []byte
		if b, err = appendFrame(nil, proto.StepFrameSignal, &proto.StepSignal{}); err == nil {
			_, err = nc.Write(b)
		}
	}
	return err
}

const (
	// torchPorts is where the ports of torchMaster begin that can't be looked at from here, and torchSpan their number:
	// below those that kernels give out by themselves.
	torchPorts = 20000
	torchSpan  = 10000
)

// torchMaster chooses the address at which the first task of a step answers the others (grun --launcher=torch). If the
// step begins on another node, whether the port is free there is not known: it is derived from the step's number.
func (n *Noded) torchMaster(s *placedStep) string {
	first, own := s.Nodes[0].Node, n.opts.Name
	n.peers.mu.Lock()
	addr := n.peers.known[first]
	n.peers.mu.Unlock()
	host, _, err := net.SplitHostPort(addr)
	switch {
	case first == own && len(s.Nodes) == 1:
		host = "127.0.0.1"
	case err != nil && first == own:
		host = ownAddress()
	case err != nil:
		host = first
	}
	port := torchPorts + (int(s.Job)*61+int(s.ID))%torchSpan
	if first == own {
		if ln, err := net.Listen("tcp", ":0"); err == nil {
			if a, ok := ln.Addr().(*net.TCPAddr); ok {
				port = a.Port
			}
			_ = ln.Close() // nobody has connected
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// ownAddress gives an address of this host at which others can reach it; 127.0.0.1 where it has no other.
func ownAddress() string {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "" // the variables for it are left out
	}
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return "127.0.0.1"
}
