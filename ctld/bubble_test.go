package ctld

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/ctld/clock"
	"gbatch/ctld/jobevents"
	"gbatch/ctld/lease"
	"gbatch/ctld/peaks"
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/share"
	"gbatch/internal/store"
)

// These tests run three controllers with raft, their real loops and their real sessions with nodes in a bubble of fake
// time, and a login host's relay (bubblerelay_test.go). Real: everything of this package but its sockets and the
// comparison of clocks, the relay, and package store with raft's own transport and log in memory. Modelled: the nodes.
// A seed chooses the faults; the order of goroutines is the runtime's, so a seed does not replay exactly. What must
// replay is in internal/faultsim.

const bubbleConf = `ClusterName=bubble
SlurmctldHost=c1
SlurmctldHost=c2
SlurmctldHost=c3
SlurmdTimeout=20
ReturnToService=1
NodeHeartbeatInterval=2
KillWait=1
GresTypes=gpu
NodeName=n[1-3] CPUs=8 Gres=gpu:4
PartitionName=p Nodes=ALL Default=YES
`

// bubble is the cluster, and the ledger of what its nodes really run.
type bubble struct {
	t    *testing.T
	net  *store.MemNet
	ctls []*Controller

	mu    sync.Mutex
	runs  map[proto.Attempt]int
	alive map[model.JobID]uint32
	gpus  map[string]model.JobID
}

func newBubble(t *testing.T, path string) *bubble {
	b := &bubble{t: t, net: store.NewMemNet(), runs: map[proto.Attempt]int{}, alive: map[model.JobID]uint32{},
		gpus: map[string]model.JobID{}}
	peers := []store.Peer{{ID: "c1", Addr: "c1"}, {ID: "c2", Addr: "c2"}, {ID: "c3", Addr: "c3"}}
	for _, p := range peers {
		c := &Controller{log: slog.New(slog.DiscardHandler), machine: newMachine(), nodes: newNodeSet(), people: someUsers(),
			idle: newIdleWatch(), reports: make(chan nodeReports, reportQueue), clocks: newClocks(),
			reserving: make(chan struct{}, 1), editing: make(chan struct{}, 1), changing: make(chan struct{}, 1),
			readers: newReaders(), refusals: newOncePer(), pace: share.NewPace(1e9), peaks: peaks.New(), host: p.ID,
			bootAt: hostTime(), life: context.Background()}
		begun := time.Now()
		c.clocks.time = clock.New(func() model.Time { return model.Time(time.Now().UnixMilli()) },
			func() time.Duration { return time.Since(begun) + time.Minute })
		c.lease = lease.New()
		load := func() (*conf.Config, []conf.Problem) { return conf.LoadFile(path) }
		c.opts = Options{Name: p.ID, Logger: c.log, Load: load}
		for _, q := range peers {
			c.opts.Peers = append(c.opts.Peers, Peer{q.ID, q.Addr})
		}
		c.issuer = c.newIssuer()
		c.jobEvents = &jobevents.Teller{Facts: c.machine, Run: c.runJobEvent, Log: c.log}
		c.machine.stamped = c.clocks.time.Applied
		var err error
		if c.store, err = store.Open(store.Options{ID: p.ID, Peers: peers, Begin: true, Net: b.net,
			Machine: c.machine}); err != nil {
			t.Fatal(err)
		}
		b.ctls = append(b.ctls, c)
	}
	return b
}

// leader gives a controller that says that it leads.
func (b *bubble) leader() *Controller {
	for _, c := range b.ctls {
		if c.leading.Load() && c.store.IsLeader() {
			return c
		}
	}
	return nil
}

// bubbleNode is the model of a node: it obeys no older leader, keeps its reports until they are acknowledged, and ends
// its jobs when nobody has acknowledged it for so long that it may be given up.
type bubbleNode struct {
	b     *bubble
	name  string
	away  time.Time // cut off until then; mu guards all
	mu    sync.Mutex
	epoch uint64
	known map[proto.Attempt]*bubbleJob
	gone  map[proto.Attempt]bool
	seq   uint64
	conn  *rpc.Conn
	sure  time.Time
}

type bubbleJob struct {
	gpus []string
	over bool
	end  *proto.Report
}

const bubbleLease = 17 * time.Second // SlurmdTimeout less a margin

// run keeps the node registered until ctx ends.
func (n *bubbleNode) run(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 300*time.Millisecond) {
		n.mu.Lock()
		cut := time.Now().Before(n.away)
		n.mu.Unlock()
		if c := n.b.leader(); c != nil && !cut {
			n.session(ctx, c)
		}
	}
}

func (n *bubbleNode) hello() *proto.Hello {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &proto.Hello{Node: n.name, BootID: "b", Now: model.Time(time.Now().UnixMilli()), LeaseS: 20,
		Hw: proto.Hardware{Virtual: true, Gres: []model.GresDef{{Name: "gpu", Count: 4}}}}
	for k := range n.known {
		h.Known = append(h.Known, k)
	}
	return h
}

func (n *bubbleNode) session(parent context.Context, c *Controller) {
	near, far := net.Pipe()
	var served sync.WaitGroup
	defer served.Wait()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer near.Close()
	served.Go(func() {
		defer far.Close()
		conn, err := rpc.Accept(far, rpc.ConnOptions{Name: n.name})
		if err != nil {
			return
		}
		_ = c.hello(ctx, n.name, n.name+":1", n.hello(), func(w *proto.Welcome) (*rpc.Conn, error) {
			body, err := proto.Encode(w)
			if err != nil {
				return nil, err
			}
			return conn, conn.WriteFrame(proto.KindWelcome, 0, 0, body)
		}) // the node sees its connection end
	})
	conn := rpc.Client(near, rpc.ConnOptions{Name: c.opts.Name})
	defer conn.Close()
	if conn.Handshake() != nil {
		return
	}
	served.Go(func() { n.beat(ctx, conn) })
	for {
		var f rpc.Frame
		if conn.SetReadDeadline(time.Now().Add(3*time.Second)) != nil || conn.ReadFrame(&f) != nil {
			return
		}
		n.mu.Lock()
		cut := time.Now().Before(n.away)
		n.mu.Unlock()
		if cut {
			return
		}
		n.take(&f, conn)
	}
}

// beat sends heartbeats and all reports, once a second.
func (n *bubbleNode) beat(ctx context.Context, conn *rpc.Conn) {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		n.mu.Lock()
		if n.conn != conn { // not welcome yet
			n.mu.Unlock()
			continue
		}
		now := model.Time(time.Now().UnixMilli())
		m := &proto.Reports{Now: now}
		for _, j := range n.known {
			if j.end != nil {
				m.Reports = append(m.Reports, j.end)
			}
		}
		n.mu.Unlock()
		body, err := proto.Encode(&proto.Heartbeat{Now: now, LeaseS: 20})
		if err == nil {
			err = conn.WriteFrame(proto.KindHeartbeat, 0, 0, body)
		}
		if err == nil && len(m.Reports) > 0 {
			if body, err = proto.Encode(m); err == nil {
				err = conn.WriteFrame(proto.KindReports, 0, 0, body)
			}
		}
		if err != nil {
			return
		}
	}
}

func (n *bubbleNode) take(f *rpc.Frame, conn *rpc.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch f.Kind {
	case proto.KindWelcome:
		var w proto.Welcome
		if proto.Decode(f.Body, &w) != nil || w.Epoch < n.epoch {
			return
		}
		n.epoch, n.conn, n.sure = w.Epoch, conn, time.Now()
		for _, k := range w.Forget {
			n.finish(k, false)
			delete(n.known, k)
			n.gone[k] = true
		}
	case proto.KindReportAck:
		var a proto.ReportAck
		if proto.Decode(f.Body, &a) != nil {
			return
		}
		for k, j := range n.known {
			for _, seq := range a.Seqs {
				if j.end != nil && j.end.Seq == seq {
					delete(n.known, k)
					n.gone[k] = true
				}
			}
		}
	case proto.KindOrders:
		var o proto.Orders
		if proto.Decode(f.Body, &o) != nil || o.Epoch < n.epoch || n.conn != conn {
			return
		}
		if o.Sure != 0 {
			n.sure = time.UnixMilli(int64(o.Sure))
		}
		for _, l := range o.Launch {
			n.launch(l)
		}
		for _, st := range o.Stop {
			n.finish(proto.Attempt{Job: st.Job, Attempt: st.Attempt}, true)
		}
	}
}

func (n *bubbleNode) launch(l *proto.Launch) {
	k := proto.Attempt{Job: l.Job, Attempt: l.Attempt}
	if n.known[k] != nil || n.gone[k] {
		return
	}
	j := &bubbleJob{}
	units := l.Alloc.Nodes[l.Node].Units("gpu")
	n.b.mu.Lock()
	n.b.runs[k]++
	if n.b.runs[k] > 1 {
		n.b.t.Errorf("job %d attempt %d is started twice", k.Job, k.Attempt)
	}
	if other, ok := n.b.alive[k.Job]; ok {
		n.b.t.Errorf("job %d attempt %d starts while attempt %d runs", k.Job, k.Attempt, other)
	}
	n.b.alive[k.Job] = k.Attempt
	for i := range 4 {
		if name := fmt.Sprint(n.name, ".", i); units.Has(i) {
			if other, ok := n.b.gpus[name]; ok {
				n.b.t.Errorf("GPU %s is given to job %d while job %d uses it", name, k.Job, other)
			}
			n.b.gpus[name] = k.Job
			j.gpus = append(j.gpus, name)
		}
	}
	n.b.mu.Unlock()
	n.known[k] = j
	time.AfterFunc(time.Duration(1+int(l.Job)%8)*time.Second, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.finish(k, false)
	})
}

// finish ends an attempt, if it runs, and reports its end. Callers hold mu.
func (n *bubbleNode) finish(k proto.Attempt, stop bool) {
	j := n.known[k]
	if j == nil && stop && !n.gone[k] {
		j = &bubbleJob{over: true}
		n.known[k] = j
	}
	if j == nil || j.end != nil {
		return
	}
	if !j.over {
		j.over = true
		n.b.mu.Lock()
		delete(n.b.alive, k.Job)
		for _, g := range j.gpus {
			delete(n.b.gpus, g)
		}
		n.b.mu.Unlock()
	}
	n.seq++
	j.end = &proto.Report{Seq: n.seq, Kind: proto.ReportEnded, Job: k.Job, Attempt: k.Attempt,
		At: model.Time(time.Now().UnixMilli())}
}

// watch ends what runs when the lease has ended.
func (n *bubbleNode) watch(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		n.mu.Lock()
		if time.Since(n.sure) > bubbleLease {
			for k, j := range n.known {
				if !j.over {
					n.finish(k, false)
					j.end.Exit = model.Exit{Unknown: true, CutOff: true}
				}
			}
		}
		n.mu.Unlock()
	}
}

// Three controllers lose each other, and nodes and a login host lose them, by a seed. No job is lost, none runs twice
// at once or twice at one attempt, no GPU has two, each submission makes one job, and in the end all replicas are
// equal.
func TestBubble(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gbatch.conf")
	if err := os.WriteFile(path, []byte(bubbleConf), 0o600); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(32) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newBubble(t, path).live(seed) })
		})
	}
}

// live is one life of the cluster.
func (b *bubble) live(seed uint64) {
	t, dice := b.t, rand.New(rand.NewPCG(seed, 5))
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var nodes []*bubbleNode
	for _, c := range b.ctls {
		all.Go(func() { c.lead(ctx) })
	}
	for i := range 3 {
		n := &bubbleNode{b: b, name: fmt.Sprint("n", i+1), known: map[proto.Attempt]*bubbleJob{},
			gone: map[proto.Attempt]bool{}, sure: time.Now()}
		nodes = append(nodes, n)
		all.Go(func() { n.run(ctx) })
		all.Go(func() { n.watch(ctx) })
	}
	w := b.serveRelay(ctx, &all)
	users := b.newRelayed(w)
	var submissions sync.WaitGroup
	var ids []model.JobID
	for k := range 40 {
		submissions.Go(func() { users.submit(ctx, fmt.Sprint("r", seed, ".", k)) })
		ids = append(ids, b.submit(ctx, fmt.Sprint("s", seed, ".", k), int32(1+dice.IntN(4))))
		time.Sleep(time.Duration(dice.IntN(3000)) * time.Millisecond)
		switch dice.IntN(6) {
		case 0:
			if c := b.leader(); c != nil {
				lasts := time.Duration(1+dice.IntN(20)) * time.Second
				b.net.Isolate(c.opts.Name)
				time.AfterFunc(lasts, func() { b.net.Rejoin(c.opts.Name) })
				w.hold(c.opts.Name, lasts)
			}
		case 1:
			n := nodes[dice.IntN(len(nodes))]
			n.mu.Lock()
			n.away = time.Now().Add(time.Duration(1+dice.IntN(40)) * time.Second)
			n.mu.Unlock()
		case 2: // the login host alone misses a controller
			w.hold(b.ctls[dice.IntN(len(b.ctls))].opts.Name, time.Duration(1+dice.IntN(20))*time.Second)
		}
	}
	submissions.Wait()
	for _, id := range users.ids {
		ids = append(ids, id)
	}
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		done := 0
		if c := b.leader(); c != nil {
			for _, id := range ids {
				if j := c.machine.View().Job(id); j != nil && j.State.Finished() {
					done++
				}
			}
		}
		if done == len(ids) {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d of %d jobs have ended", done, len(ids))
			break
		}
	}
	users.check()
	time.Sleep(30 * time.Second) // followers apply what there is
	var want []byte
	for _, c := range b.ctls {
		var buf bytes.Buffer
		if err := c.machine.Freeze()(&buf); err != nil {
			t.Error(err)
		}
		if err := c.machine.st.Check(); err != nil {
			t.Error(err)
		}
		if want == nil {
			want = buf.Bytes()
		} else if !bytes.Equal(want, buf.Bytes()) {
			t.Errorf("%s differs from c1", c.opts.Name)
		}
	}
	t.Logf("%d attempts ran, term %d", len(b.runs), b.ctls[0].store.Term())
	users.relay.Close()
	stop()
	all.Wait()
	w.pumping.Wait()
	for _, c := range b.ctls {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// submit submits a job at whoever leads, under one id, until it has an answer.
func (b *bubble) submit(ctx context.Context, id string, gpus int32) model.JobID {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		c := b.leader()
		if c == nil || !c.leads(ctx) {
			continue
		}
		rq := &proto.SubmitRequest{RequestID: id, Script: []byte("#!/bin/sh\n"), Spec: &model.Spec{Name: id, UID: 1000,
			User: "u", WorkDir: "/", MinNodes: 1, MaxNodes: 1, LimitS: 600, Requeue: true,
			Gres: []model.GresReq{{Name: "gpu", Count: gpus, Per: model.PerNode}}}}
		if reply, err := c.submit(ctx, &caller{Caller: proto.Caller{UID: 1000, GID: 1000, User: "u"}}, rq); err == nil {
			return reply.Job
		} else if time.Now().After(end.Add(-10 * time.Second)) {
			b.t.Errorf("%s: %v", id, err)
		}
	}
	return 0
}
