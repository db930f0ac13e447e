package noded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/certs"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/userdb"
	"gbatch/internal/wall"
	"gbatch/noded/allocfile"
	"gbatch/noded/asuser"
	"gbatch/noded/box"
	"gbatch/noded/container"
	"gbatch/noded/fence"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/greshelper"
	"gbatch/noded/hardware"
	"gbatch/noded/image"
	"gbatch/noded/layers"
	"gbatch/noded/oci"
	"gbatch/noded/pool"
	"gbatch/noded/relay"
	"gbatch/noded/scripts"
	"gbatch/noded/shares"
	"gbatch/noded/shim"
	"gbatch/noded/stepx11"
)

// Noded is one node's daemon. Make one with New, run it with Run, and Close it.
type Noded struct {
	opts    Options
	log     *slog.Logger
	now     func() time.Time
	upSince model.Time
	root    bool
	uid     int
	nice    int

	machine   hardware.Machine
	inv       *hardware.Inventory
	scripts   *scripts.Store
	allocs    *allocfile.Store
	shows     *stepx11.Store    // steps' displays
	helpers   *greshelper.Store // programs beside jobs with remote GPUs
	helping   atomic.Uint32     // how many have been asked
	env       jobenv.Node       // Cluster and Hidden are filled in for each job
	envs      envStore
	names     *relay.Names
	people    *userdb.DB
	system    *slurmUser
	groups    *groups
	boxes     *container.Store          // jobs' own directories; nil: they share the node's
	images    *image.Cache              // of containers; nil: noImages says why there are none
	bundles   oci.Dirs                  // of steps in containers of OCI runtimes
	layers    layers.Bound              // of what users' containers write
	rooms     atomic.Pointer[box.Store] // containers of images; nil before the first
	roomsAt   string                    // their directory
	opening   sync.Mutex                // of rooms
	noImages  error
	gpus      *gpuwatch.Watch
	cutting   sync.Mutex       // while GPUs are divided
	gpuHealth *gpuwatch.Health // nil: no GPUs to watch
	alive     atomic.Int64     // number of known attempts
	// spoolBroken is why the spool can't be written; nil: it can.
	spoolBroken atomic.Pointer[string]
	sampler     *sampler
	oom         oomLog

	troubles gpuwatch.Troubles

	ctl      *relay.Controllers
	creds    *pki.Credentials
	relay    *relay.Relay
	records  *relay.Records
	listener net.Listener
	stepLn   net.Listener // of commands that ask for steps
	peers    *peers
	own      *shares.Shares
	peerLn   *pki.Listener   // of other nodes' daemons; nil on login hosts
	ctx      context.Context // of Run

	inbox   *inbox
	out     *outbox
	loop    *loop
	link    *link
	fence   *fence.Keeper // of gshim's lease
	workers *pool.Pool    // launches and ends, as many as there are CPUs
	stops   *pool.Pool    // signals and whatever may have to wait
	chills  *pool.Pool    // attempts that are being suspended or resumed
	imports *pool.Pool    // what waits for images
	tellers *asuser.Places
	stats   chan struct{} // a slot per question about running jobs
	migs    chan struct{} // likewise per order to divide GPUs
	tails   chan struct{} // likewise per question about a job's output

	def        atomic.Pointer[welcomed]
	rules      atomic.Pointer[model.NodeRules] // nil until a leader has sent some
	ownRules   *model.NodeRules                // the rules of this host's file
	health     *health
	beat       chan struct{} // a heartbeat is due at once
	paced      chan struct{} // holds one: the rules have changed
	instance   atomic.Uint64
	registered atomic.Bool

	closing sync.Once
	closed  error
}

// New checks the options, opens the spool and listens on the local socket. Nothing runs yet.
func New(o Options) (n *Noded, err error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("gnoded: %w", err)
	}
	n = &Noded{opts: o, log: o.Logger.With("node", o.Name), now: time.Now, machine: hardware.Machine{Root: "/"},
		names: relay.NewNames(), people: o.People, system: newSlurmUser(o.Config),
		root: os.Geteuid() == 0, uid: os.Geteuid(),
		beat: make(chan struct{}, 1), paced: make(chan struct{}, 1), inbox: &inbox{wake: make(chan struct{}, 1)},
		out: newOutbox(), tellers: asuser.NewPlaces(maxTellers, eachTellers), stats: make(chan struct{}, maxStats),
		migs: make(chan struct{}, maxStats), tails: make(chan struct{}, maxStats)}
	n.own = shares.New(shares.Descriptors())
	if n.people == nil {
		n.people = userdb.New()
	}
	n.upSince, n.ownRules = n.hostTime(), rulesOfFile(&n.opts)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("gnoded on node %s: %w", o.Name, err), n.Close())
			n = nil
		}
	}()
	role := pki.RoleNode
	if o.Login {
		role = pki.RoleLogin
	}
	tls, err := pki.Load(o.PKI, role, o.Name)
	if err != nil {
		return n, certs.Explain(context.Background(), err, o.Controllers, o.PKI)
	}
	n.creds = tls
	if o.Spool != "" {
		kept, err := certs.Kept(n.revokedFile())
		if err != nil { // a leader tells it again
			n.log.Warn("what was revoked before this start is unknown until a controller answers", "err", err)
		} else {
			tls.Refuse(certs.Refusing(kept.List))
		}
	}
	n.ctl = relay.NewControllers(o.Controllers, o.named(), tls)
	if o.Spool != "" {
		n.ctl.Keep(filepath.Join(o.Spool, "controllers"), n.log)
	}
	n.relay = relay.New(n.ctl)
	n.records = relay.NewRecords(tls, o.DbdAddr, o.DbdCopy)
	if n.inv, err = hardware.Take(n.machine, n.opts.look()); err != nil {
		return n, err
	}
	if !o.Login {
		if err := n.openJobs(); err != nil {
			return n, err
		}
	}
	n.peers = &peers{relay: n.relay, tls: tls, name: o.Name}
	if n.stepLn, err = server.ListenUnix(filepath.Join(o.SocketDir, proto.StepSocket(o.Name)), 0o666); err != nil {
		return n, err
	}
	if !o.Login {
		if n.peerLn, err = listenPeers(&n.opts, n.creds, n.log); err != nil {
			return n, fmt.Errorf("the port for other nodes: %w", err)
		}
	}
	n.listener, err = server.ListenUnix(filepath.Join(o.SocketDir, "noded-"+o.Name+".sock"), 0o666)
	return n, err
}

// openJobs prepares what a node that runs jobs needs: the spool, cgroups, and the connection to gshim.
func (n *Noded) openJobs() error {
	if err := makeDir(n.opts.Spool, 0o711); err != nil {
		return err
	}
	n.scripts = scripts.New(filepath.Join(n.opts.Spool, "scripts"), n.root)
	if err := makeDir(n.scripts.Dir, 0o711); err != nil {
		return err
	}
	var err error
	if n.allocs, err = allocfile.Open(filepath.Join(n.opts.Spool, "allocations"), n.root); err != nil {
		return err
	}
	if n.shows, err = stepx11.Open(filepath.Join(n.opts.Spool, "displays"), n.root); err != nil {
		return err
	}
	if n.helpers, err = greshelper.Open(filepath.Join(n.opts.Spool, "helpers")); err != nil {
		return err
	}
	if err := makeDir(filepath.Join(n.opts.Spool, "programs"), 0o700); err != nil {
		return err
	}
	n.health = &health{n: n, check: n.ownCheck}
	n.nice = 0
	if !n.root {
		// Only root may go below its own nice value. The system call answers 20 - nice.
		if prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
			n.nice = 20 - prio
		}
	}
	if n.groups, err = openGroups(n); err != nil {
		return err
	}
	if n.boxes, err = openBoxes(&n.opts); err != nil {
		return err
	}
	n.bundles.Base, n.bundles.Empty = filepath.Join(n.opts.Spool, "bundles"), container.Empty
	n.layers.List = n.places
	if c := n.opts.Config; c != nil {
		n.layers.Limit = c.ContainerUserMiB << 20
	}
	if n.noImages = n.openImages(); n.noImages != nil {
		n.log.Warn("jobs with --container-image are refused here", "why", n.noImages)
	}
	n.env = jobenv.Node{Name: n.opts.Name, Controller: n.opts.Controllers[0], Conf: n.opts.ConfigPath,
		User:  n.names.Account,
		Units: hardware.UnitNames(n.opts.Config, n.opts.Name, n.groups.units, n.groups.holdsDevices())}
	n.inv.Hw.Notes = append(n.inv.Hw.Notes, n.limitsOfThisNode()...)
	for _, note := range n.inv.Hw.Notes {
		n.log.Warn("this node lacks something", "note", note)
	}
	n.sampler = newSampler(n)
	n.gpus = gpuwatch.New(n.inv.GPUs, n.gpuEvery(n.ownRules), n.log)
	n.gpus.Subscribe(func(r gpuwatch.Round) { n.sampler.onReadings(r.Readings) })
	n.watchHealth()
	n.gpus.Subscribe(n.troubles.Note)
	sp, err := openSpool(n.opts.Spool, n.log)
	if err != nil {
		return err
	}
	n.loop = &loop{n: n, spool: sp, out: n.out, log: n.log, now: n.now, attempts: map[proto.Attempt]*attempt{},
		gone:    newRecent(maxGone),
		foreign: map[proto.Attempt]bool{}, leftovers: map[proto.Attempt]bool{}, haunting: map[proto.Attempt]bool{}}
	n.link = newLink(shim.Options{Dir: filepath.Join(n.opts.Spool, "gshim"), Binary: n.opts.Shim,
		Wrap: n.opts.Starter.Wrap, Log: n.opts.LogFormat}, n.inbox, n.log)
	n.groups.link = n.link
	n.fence = &fence.Keeper{Node: n.opts.Name, PKI: n.opts.PKI, Controllers: n.ctl.Addrs(), Mine: n.ctl.Mine,
		Spool: n.opts.Spool, Program: n.opts.Verdict, Renew: n.link.renew, Log: n.log}
	return nil
}

// limitsOfThisNode are sentences about what can't be enforced here.
func (n *Noded) limitsOfThisNode() []string {
	var notes []string
	if !n.root {
		notes = append(notes, fmt.Sprintf("gnoded runs without root rights: only jobs of uid %d run here", n.uid))
	}
	notes = append(notes, n.groups.notes()...)
	if closed := closedTo(n.scripts.Dir); n.root && closed != "" {
		notes = append(notes, fmt.Sprintf("%s is closed to other users: jobs of users other than root can't read their "+
			"scripts in %s; open it with chmod o+x, or give another --spool",
			closed, n.scripts.Dir))
	}
	return notes
}

// closedTo gives the first directory above path that other users may not enter, or "".
func closedTo(path string) string {
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&0o001 == 0 {
			return dir
		}
	}
	return ""
}

func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if st, err := os.Stat(path); err == nil && st.Mode().Perm() == mode {
		return nil // also where nothing can be written
	}
	return os.Chmod(path, mode) // whatever the umask
}

// Run serves until ctx ends, then stops everything except the jobs and returns nil. It returns an error if this daemon
// can't go on. It can run once, and releases what New has opened when it returns.
func (n *Noded) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, n.Close()) }()
	n.log.Info("gnoded started", "version", n.opts.Version, "spool", n.opts.Spool, "controllers", n.opts.Controllers,
		"login",
		n.opts.Login)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	part := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
			cancel() // one part that ends takes the others along
		})
	}
	n.ctx = ctx
	steps := &stepServer{inbox: n.inbox, log: n.log, own: n.own, conns: map[*stepConn]bool{}, name: n.opts.Name,
		login: n.opts.Login, peers: n.peers, system: n.system}
	part(func() error { return steps.serve(ctx, n.stepLn) })
	local := &relay.Local{Relay: n.relay, Records: n.records, Names: n.names, Host: n.opts.Host, Log: n.log,
		Conns: n.own.Local}
	part(func() error { return local.Serve(ctx, n.listener) })
	part(func() error {
		(&certs.Renewer{Creds: n.creds, Log: n.log, Ask: certs.AskAt(n.creds, n.ctl.Order)}).Run(ctx)
		return nil
	})
	if n.opts.Login {
		part(func() error { n.relay.Refresh(ctx); return nil })
	}
	if !n.opts.Login {
		n.openPools(ctx)
		if err := n.loop.recover(); err != nil {
			cancel()
			wg.Wait()
			return fmt.Errorf("gnoded on node %s: %w", n.opts.Name, err)
		}
		part(func() error { return n.loop.run(ctx) })
		part(func() error { n.link.run(ctx); return nil })
		part(func() error { n.keepRegistered(ctx); return nil })
		peer := &peerServer{steps: steps, log: n.log}
		part(func() error { return peer.serve(ctx, n.peerLn) })
		part(func() error { return n.serveWitness(ctx, n.peerLn.Proto(pki.ProtoRPC)) })
		part(func() error { n.gpus.Run(ctx); return nil })
		part(func() error { n.sampler.run(ctx); return nil })
		part(func() error { n.groups.site.Run(ctx, n.strayed); return nil })
		part(func() error { n.export(ctx); return nil })
		part(func() error {
			n.layers.Run(ctx, func(list []layers.Over) { n.inbox.post(msgOverfull{list}) })
			return nil
		})
	}
	wg.Wait()
	if !n.opts.Login {
		n.workers.Wait()
		n.imports.Wait()
		n.stops.Wait()
	}
	if failed != nil {
		return fmt.Errorf("gnoded on node %s: %w", n.opts.Name, failed)
	}
	n.log.Info("gnoded ends; jobs go on")
	return nil
}

func (n *Noded) openPools(ctx context.Context) {
	n.workers, n.stops = pool.New(ctx, pool.Workers(), n.log), pool.New(ctx, maxStops, n.log)
	n.chills, n.imports = pool.New(ctx, maxChills, n.log), pool.New(ctx, maxImports, n.log)
}

func (n *Noded) revokedFile() string { return filepath.Join(n.opts.Spool, "revoked") }

// takeRevoked refuses the certificates that a leader says were revoked, and ends their connections. The next start
// knows them too.
func (n *Noded) takeRevoked(r *proto.Revoked) {
	if r == nil { // an older leader
		return
	}
	if n.opts.Spool != "" {
		if err := certs.Keep(n.revokedFile(), r); err != nil {
			n.log.Warn("what was revoked could not be kept for the next start", "err", err)
		}
	}
	if closed := n.creds.Refuse(certs.Refusing(r.List)); closed > 0 {
		n.log.Warn("connections with revoked certificates were closed", "count", closed)
	}
}

// keepRegistered runs the session with the leader, once gshim has listed what it runs.
func (n *Noded) keepRegistered(ctx context.Context) {
	select {
	case <-n.link.up:
	case <-ctx.Done():
		return
	}
	s := &session{n: n, ctl: n.ctl, log: n.log, refusedPause: refusedRetry}
	s.run(ctx)
}

// ask posts a message and waits until the loop has handled it and its changes are on disk.
func (n *Noded) ask(ctx context.Context, message func(done chan error) any) error {
	done := make(chan error, 1)
	n.inbox.post(message(done))
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beatNow makes the session send a heartbeat at once.
func (n *Noded) beatNow() {
	select {
	case n.beat <- struct{}{}:
	default: // it is about to
	}
}

// Registered reports whether a leader has this node.
func (n *Noded) Registered() bool { return n.registered.Load() }

// Socket is the path of the socket for commands.
func (n *Noded) Socket() string { return n.listener.Addr().String() }

// Close releases what New has opened, if Run has not done so. Jobs go on. It can be called again, and must not be
// called while Run runs.
func (n *Noded) Close() error {
	n.closing.Do(func() {
		var errs []error
		for _, ln := range []net.Listener{n.listener, n.stepLn} {
			if ln != nil {
				errs = append(errs, ln.Close())
			}
		}
		if n.peerLn != nil {
			errs = append(errs, n.peerLn.Close())
		}
		if n.relay != nil {
			n.relay.Close()
			n.records.Close()
		}
		if n.loop != nil {
			errs = append(errs, n.loop.spool.close())
		}
		errs = append(errs, n.oom.close())
		if n.groups != nil {
			errs = append(errs, n.groups.close())
		}
		if n.images != nil {
			n.images.Close()
			if rooms := n.rooms.Load(); rooms != nil {
				errs = append(errs, rooms.Close())
			}
		}
		if n.boxes != nil {
			errs = append(errs, n.boxes.Close())
		}
		n.closed = errors.Join(errs...)
	})
	return n.closed
}

// hostTime gives this host's time, as messages have it.
func (n *Noded) hostTime() model.Time { return model.Time(n.now().Add(wall.Off()).UnixMilli()) }
