package noded

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/wire/wiretest"
	"gbatch/noded/check"
	"gbatch/noded/pool"
	"gbatch/noded/shares"
	"gbatch/noded/steplayout"
)

// fuzz_test.go sends gnoded what each role may send about jobs and steps: a user with a job, the daemon of a job's
// first node, and a controller. Nothing may panic, also where the daemon would go on, and no input may cost more
// memory and CPU time than its size allows.

// fuzzed is a node for fuzz targets: job 1 runs here, and job 2 runs on n0 and here. Nothing of a step is made.
type fuzzed struct {
	*loop
	wiretest.Meter
}

func newFuzzed(f *testing.F) *fuzzed {
	z := &fuzzed{loop: testLoop(f)}
	z.log = z.Log()
	z.n.log = z.log
	over, cancel := context.WithCancel(context.Background())
	cancel() // the pools' tasks are dropped
	for _, p := range []**pool.Pool{&z.n.workers, &z.n.stops, &z.n.chills, &z.n.imports} {
		*p = pool.New(over, 1, z.log)
	}
	return z
}

// begin puts the jobs into their places.
func (z *fuzzed) begin() {
	z.attempts = map[proto.Attempt]*attempt{}
	z.gone, z.spool.mem = newRecent(16), newMemory()
	z.spool.buf, z.reports, z.early, z.late = nil, nil, nil, nil
	z.n.inbox.take()
	spec := &model.Spec{Name: "j", UID: 1000, GID: 1000, User: "u", WorkDir: "/", Host: "l1"}
	gpus := []model.GresAlloc{{Name: model.GPUName, Index: model.UpTo(2)}}
	here := model.NodeAlloc{Node: "n1", CPUs: model.UpTo(4), MemMiB: 100, Tasks: 4, Gres: gpus}
	for id, nodes := range map[model.JobID][]model.NodeAlloc{1: {here, {Node: "n2", CPUs: model.UpTo(2)}},
		2: {{Node: "n0", CPUs: model.UpTo(1)}, here}} {
		l := &proto.Launch{Job: id, Attempt: 1, Task: model.NoTask, Spec: spec, Alloc: &model.Alloc{Nodes: nodes},
			Node: int32(id) - 1}
		a := &attempt{key: proto.Attempt{Job: id, Attempt: 1}, phase: running,
			rec: &launched{Job: id, Attempt: 1, UID: 1000, Order: l, Ordered: true}}
		z.attempts[a.key] = a
		z.spool.mem.fold(recLaunch, a.rec)
	}
}

// drain carries out what has been posted, and does without effects what a worker would do for each step.
func (z *fuzzed) drain(t *testing.T) {
	for list := z.n.inbox.take(); len(list) > 0; list = z.n.inbox.take() {
		if err := z.batch(list); err != nil {
			t.Fatalf("the daemon ends: %v", err)
		}
	}
	for _, a := range z.attempts {
		for _, s := range a.steps {
			z.plan(s)
			z.setStepDeadline(s, 0)
			for _, timer := range [...]stepTimer{timerLimit, timerLonely, timerDrain} {
				s.stopTimer(timer)
			}
		}
		a.stopTimers()
	}
}

// plan is makeStep without its effects.
func (z *fuzzed) plan(s *step) {
	if s.here < 0 || s.req == nil {
		return
	}
	part := &s.rec.Nodes[s.here]
	shape := steplayout.Shape{Sockets: 2, Cores: 2, Threads: 2, NUMA: map[int]int{0: 0, 1: 0, 2: 1, 3: 1}}
	cpus, _ := steplayout.BindCPUs(&shape, part, &s.req.Bind, &s.req.Need)
	near := func(g int) model.Bits { return model.UpTo(g + 1) }
	gpus, _ := steplayout.BindGPUs(part, &s.req.Bind, cpus, near, true)
	e := z.n.env
	base := e.StepBase(s.job.rec.Order, s.rec.ID, s.rec.Nodes, s.here, s.req, nil)
	for local, rank := range part.Ranks[:min(len(part.Ranks), 64)] {
		view := jobenv.TaskView{Rank: int(rank), Local: local}
		if local < len(cpus) {
			view.CPUs = cpus[local]
		}
		if local < len(gpus) {
			view.GPUs = gpus[local]
		}
		_ = e.StepTask(base, part, &s.req.Bind, &view)
		_, _ = bindMemory(&shape, &s.req.Bind, local, steplayout.Members(view.CPUs)) // an error is an answer too
		for _, m := range s.req.Multi {
			if m.Ranks.Has(rank) {
				_ = rankArgs(m.Argv, int(rank), m.Ranks)
			}
		}
	}
}

// feed is a connection of which the other side has sent all that it will.
type feed struct {
	net.Conn
	r io.Reader
}

func (f *feed) Read(p []byte) (int, error)       { return f.r.Read(p) }
func (f *feed) Write(p []byte) (int, error)      { return len(p), nil }
func (f *feed) Close() error                     { return nil }
func (f *feed) SetReadDeadline(time.Time) error  { return nil }
func (f *feed) SetWriteDeadline(time.Time) error { return nil }

// talk feeds bytes to one connection.
func (z *fuzzed) talk(t *testing.T, b []byte, who shares.Owner, read func(*stepServer, *stepConn) error) {
	z.begin()
	own := shares.New(1 << 16)
	s := &stepServer{inbox: z.n.inbox, log: z.log, own: own, conns: map[*stepConn]bool{}, name: "n1", peers: z.n.peers}
	z.Measure(t, len(b), func() {
		c := newStepConn(&feed{r: bytes.NewReader(b)}, own, who)
		c.turns = make(chan struct{}, 1<<16) // the loop runs after it
		s.converse(c, "who", who, func() error { return read(s, c) })
		z.drain(t)
	})
}

// filler makes messages of an input's bytes, and their frames.
type filler struct{ wiretest.Filler }

func newFiller(b []byte) *filler { return &filler{wiretest.Filler{Bytes: b, Texts: fuzzTexts}} }

var fuzzTexts = []string{"", "n1", "n0", "n2", "gpu", "0x3", "1", "/bin/true", "none", "r", "%t%4096j", "\x00", "é\xff",
	strings.Repeat("x", 4000)}

// message fills a message and adds its frame.
func (f *filler) message(dst []byte, kind uint8, m proto.Message, fix func()) []byte {
	f.Fill(m)
	if fix != nil {
		fix()
	}
	b, err := appendFrame(dst, kind, m)
	if err != nil { // over a bound: the writer refuses it
		return dst
	}
	return b
}

// further adds messages that follow a request.
func (f *filler) further(b []byte) []byte {
	for range f.Next() % 4 {
		switch f.Next() % 4 {
		case 0:
			m := &proto.StepFiles{}
			b = f.message(b, proto.StepFrameFiles, m, func() {
				if m.IO != nil && f.Next()&1 == 0 {
					m.IO = nil
				}
			})
		case 1:
			b = f.message(b, proto.StepFrameSignal, &proto.StepSignal{}, nil)
		case 2:
			b = f.message(b, proto.StepFrameForget, &proto.StepSignal{}, nil)
		case 3:
			b = f.message(b, proto.StepFrameWords, &proto.StepWords{}, nil)
		}
	}
	return b
}

// sane makes some of a request's values good, so that it gets beyond the first check.
func (f *filler) sane(rq *proto.StepRequest) {
	bits := f.Next()
	if rq.Job = 1; bits&1 != 0 {
		rq.Argv, rq.Program = []string{"/bin/true"}, "/bin/true"
	}
	rq.Node = ""
	if bits&2 != 0 {
		rq.Need = proto.StepNeed{Tasks: int32(bits % 9), Overlap: true}
	}
	if bits&4 != 0 {
		rq.Bind = proto.StepBind{CPU: bits % 14, GPU: f.Next() % 14, Mem: f.Next() % 14, CPUList: rq.Bind.CPUList,
			GPUList: rq.Bind.GPUList, MemList: rq.Bind.MemList, Cores: f.Next() % 6, GPUCount: int32(f.Next()),
			MemPrefer: bits&8 != 0, OneThread: bits&16 != 0}
	}
	if bits&32 != 0 {
		rq.Multi, rq.Limits, rq.Terminal, rq.Parent, rq.LimitS, rq.OOMKill, rq.PID = nil, nil, nil, -1, 60, 0, 1
	}
}

func addFuzzSeeds(f *testing.F) {
	f.Add([]byte{0})
	for i := range byte(24) {
		b := make([]byte, 400)
		for k := range b {
			b[k] = byte(k)*i + i
		}
		b[0] = 1
		f.Add(b)
	}
}

// FuzzStepUser: a user who has a job here.
func FuzzStepUser(f *testing.F) {
	z := newFuzzed(f)
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0]&1 != 0 {
			in := newFiller(b[1:])
			rq := &proto.StepRequest{}
			if b[0]&6 == 6 {
				b = in.message(nil, proto.StepFrameAdopt, &proto.StepAdopt{}, nil)
			} else {
				b = in.message(nil, proto.StepFrameRequest, rq, func() { in.sane(rq) })
			}
			b = in.further(b)
		}
		z.talk(t, b, shares.Owner{UID: 1000}, func(s *stepServer, c *stepConn) error { return s.read(c, 1000, 1) })
	})
}

// FuzzStepPeer: the daemon of the first node of a job that this node is of, which asks for parts and passes users'
// requests on.
func FuzzStepPeer(f *testing.F) {
	z := newFuzzed(f)
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0]&1 != 0 {
			in := newFiller(b[1:])
			pt, rq := &proto.StepPart{}, &proto.StepRequest{}
			if b[0]&2 != 0 {
				b = in.message(nil, proto.StepFrameDoor, &proto.StepDoor{}, nil)
				b = in.message(b, proto.StepFrameRequest, rq, func() { in.sane(rq) })
			} else {
				b = in.message(nil, proto.StepFramePart, pt, func() {
					pt.Job, pt.Attempt = 2, 1
					if in.Next()&3 != 0 {
						cpus, gres := model.UpTo(int(in.Next()%8)), []model.GresAlloc(nil)
						if in.Next()&1 != 0 {
							gres = []model.GresAlloc{{Name: model.GPUName, Index: model.UpTo(int(in.Next() % 5))}}
						}
						pt.Here, pt.Step = 0, int32(in.Next()%3)
						pt.Nodes = []proto.StepNode{{Node: "n1", Index: 1, CPUs: cpus, Gres: gres,
							Ranks: []int32{0, 1, 5}}}
					}
					if pt.Request != nil {
						in.sane(pt.Request)
					}
				})
			}
			b = in.further(b)
		}
		z.talk(t, b, shares.Owner{Host: "n0"}, func(s *stepServer, c *stepConn) error {
			c.from, c.role = "n0", pki.RoleNode
			return (&peerServer{steps: s, log: z.log}).read(c)
		})
	})
}

// FuzzStepEvents: another node's daemon, about its part of a step that this node manages.
func FuzzStepEvents(f *testing.F) {
	z := newFuzzed(f)
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0]&1 != 0 {
			in := newFiller(b[1:])
			b = nil
			for range 1 + in.Next()%6 {
				ev := &proto.StepEvent{}
				b = in.message(b, proto.StepFrameEvent, ev, func() {
					if in.Next()&3 != 0 {
						ev.Layout, ev.Job, ev.Direct = nil, nil, ""
						ev.Kind = 1 + ev.Kind%8
						ev.Task, ev.Code, ev.Signal, ev.PID, ev.Step = int32(in.Next()%3), int32(in.Next()), 0, 5, 0
					}
				})
			}
		}
		z.begin()
		z.Measure(t, len(b), func() {
			a := z.attempts[proto.Attempt{Job: 1, Attempt: 1}]
			s := &step{job: a, id: 0, phase: stepRunning, here: -1, req: &proto.StepRequest{},
				rec: &placedStep{Job: 1, Attempt: 1, Nodes: []proto.StepNode{{Node: "n2", Index: 1, Ranks: []int32{0, 1}}}}}
			a.steps = map[int32]*step{0: s}
			s.makeParts("n1")
			c := newStepConn(&feed{r: bytes.NewReader(b)}, shares.New(1<<16), shares.Owner{Host: "n2"})
			c.turns = make(chan struct{}, 1<<16) // the loop runs after it
			p := s.parts[0]
			p.phase, p.conn = partTalking, c
			err := z.n.readEvents(p, c)
			z.n.inbox.post(msgPartLost{p: p, c: c, err: err})
			z.drain(t)
		})
	})
}

// FuzzOrders: a controller.
func FuzzOrders(f *testing.F) {
	z := newFuzzed(f)
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, w, ask := &proto.Orders{}, &proto.Welcome{}, &proto.NodeAsk{}
		size := len(b)
		if len(b) > 0 && b[0]&1 != 0 {
			in := newFiller(b[1:])
			for _, m := range []proto.Message{o, w, ask} {
				in.Fill(m)
				body, err := proto.Encode(m)
				if err != nil || proto.Decode(body, m) != nil {
					return
				}
				size += len(body)
			}
		} else if proto.Decode(b, o) != nil && proto.Decode(b, w) != nil && proto.Decode(b, ask) != nil {
			return
		}
		z.begin()
		z.spool.mem.epoch = leaderEpoch{}
		z.n.rules.Store(nil)
		z.Measure(t, size, func() {
			check.Orders(o, z.log)
			check.Ask(ask, z.log)
			o.Health = false // it runs a program
			for _, l := range o.Launch {
				if z.n.mayLaunch(l) == nil {
					_, _, _ = z.n.outputs(l)
				}
			}
			if w.Def != nil {
				z.n.inbox.post(msgWelcome{w, make(chan error, 1)})
			}
			o.Epoch = math.MaxUint64
			z.n.inbox.post(msgOrders{o, make(chan error, 1)})
			z.n.inbox.post(msgStepList{ask, make(chan *proto.NodeAnswer, 1)})
			z.n.inbox.post(msgSignals{ask.Signals, func() {}})
			z.drain(t)
		})
	})
}
