// Package devcluster starts a whole cluster for tests: controllers, node daemons and the accounting daemon as structs
// in this process, with real raft, TLS, sockets, files and one real gshim process per node, in a temporary directory
// and on free ports. What a test does to it goes through the same doors as in production.
//
// leftovers.go ends what outlives daemons, network.go holds back what goes between a node and the controllers,
// reboot.go does to machines what happens to them, binaries.go finds the programs,
// ports.go gives daemons ports that stay theirs.
//
// It doesn't own a cluster for people: that is internal/up, whose daemons are processes.
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/ctld"
	"gbatch/ctld/rest"
	"gbatch/dbd"
	"gbatch/internal/client"
	"gbatch/internal/conf"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/noded"
)

// Options say what the cluster is like. Zero values mean: one controller, two nodes n1 and n2 with 4 CPUs, 4000 MiB
// and no GPUs, one partition main, and an accounting daemon.
type Options struct {
	Real        bool // nodes are this machine with what it has, not what the configuration says
	Controllers int
	Nodes       int
	CPUs        int
	MemMiB      int
	Gres        string // of each node, such as gpu:a100:4
	GresConf    string // gres.conf; "": there is none
	NodeLine    string // more words for the NodeName line
	Conf        string // more lines for gbatch.conf
	Partitions  string // lines that replace the one PartitionName line
	NoDbd       bool
	Networks    bool          // between each node and the controllers, to be held back (HoldNetwork)
	Samples     time.Duration // between samples for the history; 0: a minute
	HTTP        bool          // controllers serve it, on sockets run/http-NAME
	Fence       bool          // nodes end what runs when they are given up, as in production; with Networks too
}

// Cluster is a running one.
type Cluster struct {
	t        testing.TB
	Options  Options
	Dir      string
	Conf     string            // path of gbatch.conf
	HTTPAddr map[string]string // where controllers serve HTTP over TCP, by name
	shim     string
	ctlds    []string
	daemons  map[string]*daemon
	networks map[string]*network
	mu       sync.Mutex
	joining  map[string]func() bool // of controllers: do they still get their state from the others?
	boots    map[string]string      // of nodes that have been rebooted, what their machine calls its present boot
}

// daemon is one member that can be stopped and started again.
type daemon struct {
	start func(context.Context) (func(context.Context) error, error)
	stop  func() error
}

// startTimeout bounds waiting for the cluster to take jobs.
const startTimeout = 30 * time.Second

// Start makes a cluster and waits until it takes jobs. It is taken down when the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&o.Controllers, 1)
	def(&o.Nodes, 2)
	def(&o.CPUs, 4)
	def(&o.MemMiB, 4000)
	dir, err := os.MkdirTemp("", "gbatch-dev-") // not t.TempDir, which is closed to the other users whose jobs run below
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, Options: o, Dir: dir, daemons: map[string]*daemon{}, networks: map[string]*network{},
		HTTPAddr: map[string]string{},
		joining:  map[string]func() bool{}, boots: map[string]string{}, shim: Shim(t)}
	c.Conf = filepath.Join(c.Dir, "gbatch.conf")
	c.writeConf()
	c.issue()
	for _, name := range c.ctlds {
		state := filepath.Join(c.Dir, "state", name)
		if err := os.MkdirAll(state, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, conf.BeginFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range c.ctlds {
		c.addController(name)
	}
	if !o.NoDbd {
		c.addDbd()
	}
	for i := range o.Nodes {
		c.addNode(fmt.Sprintf("n%d", i+1))
	}
	t.Cleanup(c.close)
	c.WaitReady()
	return c
}

// Log gives a logger whose lines appear in the test's output, and in log/NAME.log of the cluster's directory.
func (c *Cluster) log(name string) *slog.Logger {
	path := filepath.Join(c.Dir, "log", name+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = file.Close() }) // a test's log: nothing depends on its last line
	w := io.MultiWriter(c.t.Output(), file)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})).With("daemon", name)
}

func (c *Cluster) writeConf() {
	o := c.Options
	var b strings.Builder
	fmt.Fprintf(&b, "ClusterName=dev\n")
	for i := range o.Controllers {
		name := fmt.Sprintf("ctl%d", i+1)
		c.ctlds = append(c.ctlds, name)
		fmt.Fprintf(&b, "SlurmctldHost=%s(127.0.0.1:%d)\n", name, FreePort(c.t))
	}
	if !o.NoDbd {
		fmt.Fprintf(&b, "AccountingStorageHost=127.0.0.1\nAccountingStoragePort=%d\n", FreePort(c.t))
	}
	fmt.Fprintf(&b, "StateSaveLocation=%[1]s/state/%%n\nSlurmdSpoolDir=%[1]s/spool/%%n\n"+
		"DbdStateLocation=%[1]s/state/dbd\nLocalSocketDir=%[1]s/run\nPKIDir=%[1]s/pki\n", c.Dir)
	fmt.Fprintf(&b, "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu,shard,mps\n"+
		"AccountingStorageTRES=gres/gpu\n")
	b.WriteString(o.Conf + "\n")
	nodes := "n[1-" + fmt.Sprint(o.Nodes) + "]"
	if o.Nodes == 1 {
		nodes = "n1"
	}
	fmt.Fprintf(&b, "NodeName=%s CPUs=%d RealMemory=%d", nodes, o.CPUs, o.MemMiB)
	if o.Gres != "" {
		fmt.Fprintf(&b, " Gres=%s", o.Gres)
	}
	fmt.Fprintf(&b, " %s\n", o.NodeLine)
	if o.Partitions != "" {
		b.WriteString(o.Partitions + "\n")
	} else {
		fmt.Fprintf(&b, "PartitionName=main Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00\n")
	}
	c.WriteConf(b.String())
	if o.GresConf != "" {
		if err := os.WriteFile(filepath.Join(filepath.Dir(c.Conf), "gres.conf"), []byte(o.GresConf), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
}

// WriteConf replaces gbatch.conf, for tests of reconfigure.
func (c *Cluster) WriteConf(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.Conf, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// ReadConf gives gbatch.conf.
func (c *Cluster) ReadConf() string {
	c.t.Helper()
	data, err := os.ReadFile(c.Conf)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// loadFast loads gbatch.conf for a controller. Jobs that are put back wait only if the test says so.
func (c *Cluster) loadFast() (*conf.Config, []conf.Problem) {
	cfg, problems := conf.LoadFile(c.Conf)
	if cfg == nil {
		return nil, problems
	}
	if _, given := cfg.Scheduler.Param("requeue_delay"); !given {
		cfg.Scheduler.RequeueDelayS = 0
	}
	return cfg, problems
}

func (c *Cluster) load() *conf.Config {
	cfg, problems := conf.LoadFile(c.Conf)
	if conf.HasErrors(problems) {
		c.t.Fatalf("gbatch.conf of the test: %v", problems)
	}
	return cfg
}

func (c *Cluster) issue() {
	dir := filepath.Join(c.Dir, "pki")
	must := func(err error) {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(c.Dir, "run"), 0o755))
	must(os.MkdirAll(filepath.Join(c.Dir, "spool"), 0o755))
	must(pki.InitCA(dir, "dev"))
	hosts := []string{"127.0.0.1", "localhost"}
	for _, name := range c.ctlds {
		must(pki.Issue(dir, pki.RoleCtld, name, hosts, dir))
	}
	must(pki.Issue(dir, pki.RoleDBD, "dbd", hosts, dir))
	for i := range c.Options.Nodes {
		must(pki.Issue(dir, pki.RoleNode, fmt.Sprintf("n%d", i+1), hosts, dir))
	}
}

func (c *Cluster) addController(name string) {
	addr := ""
	if c.Options.HTTP {
		addr = fmt.Sprintf("127.0.0.1:%d", FreePort(c.t))
		c.HTTPAddr[name] = addr
	}
	c.add("ctld-"+name, func(context.Context) (func(context.Context) error, error) {
		cfg := c.load()
		o := ctld.Options{Name: name, Dir: filepath.Join(c.Dir, "state", name), PKI: filepath.Join(c.Dir, "pki"),
			Socket: filepath.Join(c.Dir, "run", "ctld-"+name+".sock"), DbdAddr: cfg.DbdAddr, UID: uint32(os.Getuid()),
			Version: "test", Logger: c.log(name), Load: c.loadFast}
		o.SampleEvery = c.Options.Samples
		if c.Options.HTTP {
			o.HTTP = rest.Config{HTTP: cfg.HTTP, Addr: addr, Socket: filepath.Join(c.Dir, "run", "http-"+name)}
		}
		if c.Options.NoDbd {
			o.DbdAddr = ""
		}
		for _, p := range cfg.Controllers {
			o.Peers = append(o.Peers, ctld.Peer{Name: p.Name, Addr: p.Addr})
		}
		d, err := ctld.New(o)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.joining[name] = d.Joining
		c.mu.Unlock()
		return d.Run, nil
	})
}

func (c *Cluster) addDbd() {
	c.add("dbd", func(context.Context) (func(context.Context) error, error) {
		o := dbd.Options{Name: "dbd", Logger: c.log("dbd")}
		if err := o.Configure(c.load()); err != nil {
			return nil, err
		}
		d, err := dbd.New(o)
		if err != nil {
			return nil, err
		}
		return d.Run, nil
	})
}

func (c *Cluster) addNode(name string) {
	if c.Options.Networks {
		c.networks[name] = newNetwork()
	}
	c.add(name, func(context.Context) (func(context.Context) error, error) {
		o, err := noded.FromConfig(c.load(), noded.Flags{Conf: c.Conf, Name: name, Virtual: !c.Options.Real, Shim: c.shim})
		if err != nil {
			return nil, err
		}
		o.Logger, o.BootID, o.Importer = c.log(name), c.boots[name], self(c.t)
		if c.Options.Fence || c.Options.Networks {
			o.Verdict = program(c.t, "gnoded")
		}
		if n := c.networks[name]; n != nil {
			for i, to := range o.Controllers {
				if o.Controllers[i], err = n.door(to); err != nil {
					return nil, err
				}
			}
		}
		d, err := noded.New(o)
		if err != nil {
			return nil, err
		}
		return d.Run, nil
	})
}

// AddNode starts the daemon of a node that gbatch.conf has been given meanwhile.
func (c *Cluster) AddNode(name string) {
	c.t.Helper()
	dir := filepath.Join(c.Dir, "pki")
	if err := pki.Issue(dir, pki.RoleNode, name, []string{"127.0.0.1", "localhost"}, dir); err != nil {
		c.t.Fatal(err)
	}
	c.addNode(name)
}

func (c *Cluster) add(name string, start func(context.Context) (func(context.Context) error, error)) {
	c.mu.Lock()
	c.daemons[name] = &daemon{start: start}
	c.mu.Unlock()
	c.StartDaemon(name)
}

// StartDaemon starts a stopped member: ctld-ctl1, dbd or a node's name.
func (c *Cluster) StartDaemon(name string) {
	c.t.Helper()
	d := c.daemons[name]
	if d == nil || d.stop != nil {
		c.t.Fatalf("devcluster: %s is no stopped member", name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run, err := d.start(ctx)
	if err != nil {
		cancel()
		c.t.Fatalf("start %s: %v", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	d.stop = func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(startTimeout):
			return errors.New(name + " did not stop")
		}
	}
}

// StopDaemon stops a member in order.
func (c *Cluster) StopDaemon(name string) {
	c.t.Helper()
	d := c.daemons[name]
	if d == nil || d.stop == nil {
		c.t.Fatalf("devcluster: %s is no running member", name)
	}
	if err := d.stop(); err != nil {
		c.t.Errorf("stop %s: %v", name, err)
	}
	d.stop = nil
}

// Controllers names the controllers' daemons.
func (c *Cluster) Controllers() []string {
	out := make([]string, len(c.ctlds))
	for i, n := range c.ctlds {
		out[i] = "ctld-" + n
	}
	return out
}

// Daemons names all members: controllers, dbd, nodes.
func (c *Cluster) Daemons() []string {
	out := c.Controllers()
	if !c.Options.NoDbd {
		out = append(out, "dbd")
	}
	var nodes []string
	for name := range c.daemons {
		if !slices.Contains(out, name) {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return append(out, nodes...)
}

// Client gives a client of the cluster, as this process's user.
func (c *Cluster) Client() *client.Client { return client.New(filepath.Join(c.Dir, "run")) }

// WaitReady waits until a controller leads and every node has registered.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	c.Wait("the cluster to take jobs", func() error {
		cl := c.Client()
		defer cl.Close()
		var p proto.PingReply
		if err := cl.Call(proto.KindPing, &proto.Empty{}, &p); err != nil {
			return err
		}
		if !p.Ready {
			return errors.New("not ready")
		}
		for _, name := range c.ctlds {
			if c.Joining(name) {
				return fmt.Errorf("%s is getting its state", name)
			}
		}
		up := 0
		err := cl.Stream(proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
			var chunk proto.NodesChunk
			if err := proto.Decode(body, &chunk); err != nil {
				return err
			}
			for _, n := range chunk.Nodes {
				if n.Node.Usable() {
					up++
				}
			}
			return nil
		})
		if err == nil && up < c.Options.Nodes {
			err = fmt.Errorf("%d of %d nodes are up", up, c.Options.Nodes)
		}
		return err
	})
}

// Joining reports whether a controller still gets its state from the others.
func (c *Cluster) Joining(name string) bool {
	c.mu.Lock()
	joining := c.joining[name]
	c.mu.Unlock()
	return joining != nil && joining()
}

// Wait waits for a condition: until f returns nil.
func (c *Cluster) Wait(what string, f func() error) {
	c.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited %v for %s: %v", startTimeout, what, err)
		}
		time.Sleep(10 * time.Millisecond) // the pace of looking, not the thing waited for
	}
}

// Env gives the environment with which commands reach this cluster.
func (c *Cluster) Env() []string {
	return append(os.Environ(), "GBATCH_CONF="+c.Conf)
}

func (c *Cluster) close() {
	for _, name := range c.Daemons() { // controllers first: nobody orders new jobs
		if d := c.daemons[name]; d != nil && d.stop != nil {
			c.StopDaemon(name)
		}
	}
	for _, n := range c.networks {
		n.close()
	}
	if err := c.endLeftovers(); err != nil {
		c.t.Errorf("end what is left of the cluster: %v", err)
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		c.t.Errorf("remove the cluster's directory: %v", err)
	}
}
