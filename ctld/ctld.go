package ctld

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/ctld/arrivals"
	"gbatch/ctld/deadletter"
	"gbatch/ctld/events"
	"gbatch/ctld/hook"
	"gbatch/ctld/issue"
	"gbatch/ctld/jobevents"
	"gbatch/ctld/lease"
	"gbatch/ctld/metrics"
	"gbatch/ctld/peaks"
	"gbatch/ctld/present"
	"gbatch/ctld/rest"
	"gbatch/ctld/token"
	"gbatch/internal/certs"
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/sched/demand"
	"gbatch/internal/sched/policy"
	"gbatch/internal/store"
	"gbatch/internal/userdb"
)

// Controller is one gctld.
type Controller struct {
	opts      Options
	log       *slog.Logger
	machine   *machine
	store     *store.Store
	nodes     *nodeSet
	idle      idleWatch // of GPUs
	reports   chan nodeReports
	people    *userdb.DB
	hook      hook.Runner // of JobSubmitProgram
	jobEvents *jobevents.Teller
	host      string // this one
	dbds      []*dbd // the accounting daemon, and then its copy

	toLead, toLeadSlow link // to the leader: for requests that are answered at once, and for requests that wait

	clocks *clocks
	bootAt model.Time

	port   *pki.Listener
	creds  *pki.Credentials
	issuer *issue.Issuer
	socket net.Listener

	leading    atomic.Bool
	filesTaken atomic.Bool               // since this process leads
	lost       atomic.Pointer[time.Time] // since when no controller leads, as far as this one knows; nil: one does
	door       door
	lease      *lease.Lease
	roll       present.Roll // of the commands that have allocations
	words      present.Words
	inside     atomic.Int64 // requests that are being answered or passed on, without those that wait by design
	waiting    atomic.Int64
	prio       priorities
	switches   switchPaths
	passes     passMarks
	certs      certLook
	refusals   *oncePer // of daemons that are not in the configuration
	turned     turnedAway
	alerted    atomic.Pointer[[]proto.Alerted] // what AlertProgram was told of and is not over
	counts     counts
	tries      tries
	readers    readers
	room       share.Room // for answers of the leader that may break off
	budget     share.Budget
	pace       *share.Pace
	tokens     token.Checker
	record     atomic.Pointer[issue.Record] // what was revoked, as this controller's file has it
	recording  sync.Mutex                   // one writes that file at a time
	waits      metrics.Waits
	web        *rest.Server   // nil: HTTP is off
	feed       *events.Feed   // of events, for web
	dead       deadletter.Box // records that gdbd does not take

	beginning sync.Mutex      // an era
	reserving chan struct{}   // holds one while a reservation is changed
	editing   chan struct{}   // holds one while specifications of jobs are changed
	changing  chan struct{}   // likewise, for the controllers
	life      context.Context // ends with Run; nil before

	expected atomic.Pointer[map[model.JobID]*model.Expect] // of the leader's last forecast
	peaks    *peaks.Peaks                                  // of GPU memory, for --gpu-mem=auto
	lately   atomic.Pointer[policy.Past]                   // how long jobs really ran, as of that forecast
	backlog  atomic.Pointer[backlog]                       // as of that forecast
	recalled atomic.Pointer[[]policy.Old]                  // of before this controller led, for the next forecast
	// likewise: jobs' places in the queue, the best of all their partitions
	places atomic.Pointer[map[model.JobID]int32]

	arrivals arrivals.Queue             // of nodes that may come (State=FUTURE)
	rereads  sync.Mutex                 // one reads the configuration files at a time; before defining
	defining sync.Mutex                 // definitions of partitions and nodes are changed one after the other
	own      ownRules                   // the planning goroutine refreshes them
	asked    atomic.Pointer[demand.Mix] // what jobs ask for, as of the last pass; nil: too few have asked

	closeOnce sync.Once
	closeErr  error
}

// New validates the options, binds the port and the socket, and opens the log.
func New(o Options) (_ *Controller, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = o.Name
	}
	c := &Controller{opts: o, log: o.Logger, machine: newMachine(), nodes: newNodeSet(), idle: newIdleWatch(),
		reports: make(chan nodeReports, reportQueue), clocks: newClocks(), bootAt: hostTime(),
		reserving: make(chan struct{}, 1), editing: make(chan struct{}, 1), changing: make(chan struct{}, 1),
		readers: newReaders(), refusals: newOncePer(), pace: newPace(), dbds: dbdsOf(&o),
		peaks: peaks.New()}
	c.loadRecord()
	c.jobEvents = &jobevents.Teller{Facts: c.machine, Run: c.runJobEvent, Log: o.Logger}
	c.dead.Dir = filepath.Join(o.Dir, "refused-records")
	c.counts.since.Store(int64(c.bootAt))
	c.lease = lease.New()
	c.people, c.host = userdb.New(), host
	if o.People != nil {
		c.people = o.People
	}
	defer func() {
		if err != nil {
			_ = c.Close() // the first error is reported
		}
	}()
	if c.creds, err = pki.Load(o.PKI, pki.RoleCtld, o.Name); err != nil {
		return nil, err
	}
	c.issuer = c.newIssuer()
	addr := c.addrOf(o.Name)
	c.port, err = pki.ListenSoon(pki.PortPatience, addr, c.creds, o.Logger,
		pki.Accept{Proto: pki.ProtoRaft, Roles: []string{pki.RoleCtld}}, pki.Accept{Proto: pki.ProtoRPC},
		pki.Accept{Proto: pki.ProtoJoin})
	if err != nil {
		return nil, fmt.Errorf("controller %s can't use its address %s: %w; is another gctld running there? SlurmctldHost= "+
			"and SlurmctldPort= in gbatch.conf set the address", o.Name, addr, err)
	}
	c.settle(c.port.Addr().String())
	if o.Socket != "" {
		if c.socket, err = server.ListenUnix(o.Socket, 0o666); err != nil {
			return nil, err
		}
	}
	c.openHTTP()
	c.loadTime()
	c.machine.stamped = c.clocks.time.Applied
	peersOfFile := c.opts.Peers
	peers := make([]store.Peer, len(o.Peers))
	for i, p := range c.opts.Peers {
		peers[i] = store.Peer{ID: p.Name, Addr: p.Addr}
	}
	layer := &raftLayer{Listener: c.port.Proto(pki.ProtoRaft), client: c.creds, log: o.Logger}
	inFile := func(name string) bool {
		return slices.ContainsFunc(peersOfFile, func(p Peer) bool { return p.Name == name })
	}
	layer.known.Store(&inFile)
	c.store, err = store.Open(store.Options{ID: o.Name, Dir: o.Dir, Peers: peers,
		BeginFile: filepath.Join(o.Dir, conf.BeginFile),
		Layer:     layer,
		Machine:   c.machine, Logger: o.Logger, Broken: o.Broken, Wrote: c.waits.Wrote, HeartbeatTimeout: o.HeartbeatTimeout,
		ElectionTimeout: o.ElectionTimeout})
	if err != nil {
		return nil, err
	}
	known := func(name string) bool { return inFile(name) || c.isMember(name) }
	layer.known.Store(&known)
	return c, nil
}

func (c *Controller) addrOf(name string) string {
	for _, p := range c.members() {
		if p.Name == name {
			return p.Addr
		}
	}
	return ""
}

// settle replaces port 0 in this controller's address by the port that it got; a cluster with a single controller
// needs no fixed port.
func (c *Controller) settle(bound string) {
	peers := append([]Peer(nil), c.opts.Peers...)
	for i := range peers {
		if _, port, err := net.SplitHostPort(peers[i].Addr); err == nil && port == "0" && peers[i].Name == c.opts.Name {
			peers[i].Addr = bound
		}
	}
	c.opts.Peers = peers
}

// Joining reports whether this controller began without state and is still getting it from the others.
func (c *Controller) Joining() bool { return c.store.Joining() }

// Addr gives the address of the controller's TLS port.
func (c *Controller) Addr() string { return c.addrOf(c.opts.Name) }

// raftLayer carries raft's connections over the controllers' shared TLS port.
type raftLayer struct {
	net.Listener
	client *pki.Credentials
	log    *slog.Logger
	known  atomic.Pointer[func(name string) bool] // whether that is a controller of this cluster
}

// Accept takes connections of controllers that belong to the cluster.
func (l *raftLayer) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := pki.PeerOfConn(nc)
		if _, name, _ := peer.Daemon(); err == nil && (*l.known.Load())(name) {
			return nc, nil
		}
		l.log.Warn("a controller that is none of this cluster was refused", "peer", peer.String(), "from",
			nc.RemoteAddr().String(), "err", err)
		_ = nc.Close() // it is told nothing
	}
}

// Dial connects to another controller.
func (l *raftLayer) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return pki.Dial(ctx, addr, pki.ProtoRaft, l.client, pki.RoleCtld)
}

// Run serves until ctx ends, then gives leadership away and closes everything.
func (c *Controller) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	defer cancel()
	c.life = ctx
	var wg sync.WaitGroup
	errs := make(chan error, 13)
	start := func(what string, f func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(ctx); err != nil && ctx.Err() == nil {
				errs <- fmt.Errorf("%s: %w", what, err)
				cancel()
			}
		}()
	}
	start("clocks", func(ctx context.Context) error { c.keepTime(ctx); return nil })
	start("leader", func(ctx context.Context) error { c.lead(ctx); return nil })
	start("membership", c.watchRemoval)
	start("configuration", c.watchCluster)
	start("links", func(ctx context.Context) error { c.watchLeader(ctx); return nil })
	start("daemons' port", func(ctx context.Context) error {
		return server.Serve(ctx, c.port.Proto(pki.ProtoRPC), c.remote,
			server.Options{Log: c.log, Peer: pki.PeerOfConn, MaxConns: maxNodes, MaxConnsPerPeer: maxPeerConns,
				Budget: &c.budget, MaxRequest: proto.MaxBytes(proto.KindForward), MaxBytes: proto.MaxBytes, Waits: forwardedWaits})
	})
	start("joining hosts", func(ctx context.Context) error {
		return server.Serve(ctx, c.port.Proto(pki.ProtoJoin), c.join, server.Options{Log: c.log, MaxConns: maxJoins,
			MaxConnsPerHost: maxJoinsOfHost, Life: joinLife, MuxRequests: 1, MaxRequest: maxJoinBytes, Idle: joinIdle,
			Peer: func(net.Conn) (rpc.Peer, error) { return rpc.Peer{}, nil }})
	})
	if c.web != nil {
		start("HTTP", c.web.Run)
		start("stream of events", func(ctx context.Context) error { c.feed.Run(ctx); return nil })
		start("key for tokens", func(ctx context.Context) error { c.keepTokenFile(ctx); return nil })
	}
	start("revocations", func(ctx context.Context) error { c.keepRevoked(ctx); return nil })
	start("list of revocations", func(ctx context.Context) error { c.keepRecord(ctx); return nil })
	start("renewal", func(ctx context.Context) error {
		(&certs.Renewer{Creds: c.creds, Log: c.log, Ask: c.renewOwn}).Run(ctx)
		return nil
	})
	if c.socket != nil {
		start("local socket", func(ctx context.Context) error {
			return server.Serve(ctx, c.socket, c.local, server.Options{Log: c.log, Idle: server.LocalIdle, Budget: &c.budget,
				MaxRequest: proto.MaxBytes(proto.KindForward), MaxBytes: proto.MaxBytes, Waits: proto.Waits})
		})
	}
	select {
	case <-parent.Done():
		c.sayGoodbye(ctx)
		cancel()
	case <-ctx.Done():
	}
	closeErr := c.Close()
	wg.Wait()
	select {
	case err := <-errs:
		return errors.Join(err, closeErr)
	default:
		return closeErr
	}
}

// sayGoodbye gives leadership away while requests wait, and then lets them be answered by the next leader.
func (c *Controller) sayGoodbye(ctx context.Context) {
	if !c.store.IsLeader() || len(c.voters()) == 1 {
		return
	}
	look, cancel := context.WithTimeout(ctx, lastLook) // some may have joined, or begun anew, since they were asked last
	c.hearAll(look)
	cancel()
	if err := c.handOver(ctx, c.heir(ctx)); err != nil {
		c.log.Warn("leadership could not be handed over before the end", "err", err)
		return
	}
	for end := time.Now().Add(lastWords); time.Now().Before(end); {
		if c.inside.Load() == 0 && c.nodes.count() == 0 && !c.leading.Load() {
			return
		}
		pause(ctx, waitPace)
	}
}

// Close gives leadership away and releases everything. It is idempotent.
func (c *Controller) Close() error {
	c.closeOnce.Do(func() {
		if c.store != nil {
			c.closeErr = c.store.Close()
		}
		c.readers.same.Close()
		for _, l := range []*link{&c.toLead, &c.toLeadSlow} {
			l.close()
		}
		for _, d := range c.dbds {
			d.link.close()
		}
		if c.socket != nil {
			_ = c.socket.Close() // the server has usually closed it
		}
		if c.web != nil {
			c.web.Close()
		}
		if c.port != nil {
			_ = c.port.Close() // as above
		}
	})
	return c.closeErr
}
