package ctld

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/ctld/clock"
	"gbatch/ctld/jobevents"
	"gbatch/ctld/lease"
	"gbatch/ctld/peaks"
	"gbatch/internal/ask"
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/state"
	"gbatch/internal/store"
	"gbatch/internal/trust"
	"gbatch/internal/wire/wiretest"
)

// fuzz_test.go sends gctld what each role may send: strangers, users on a controller, login hosts, nodes with a
// session, other controllers and gdbd. The controller is whole but for its sockets, and leads with all its loops over a
// log in memory. Nothing may panic, also where the daemon would go on; no request may stay without an answer, and no
// input may cost more memory and CPU time than its size allows; and who has no rights changes nothing of others' jobs
// or of the cluster.

const (
	fuzzWait   = 50 * time.Millisecond // for requests that wait by design
	fuzzAnswer = 20 * time.Second      // for all others
)

const fuzzConf = `ClusterName=fuzzed
SlurmctldHost=c1
SlurmdTimeout=65533
GresTypes=gpu
KillWait=1
QueryRateLimit=0
Licenses=lic:4
ScronParameters=enable
NodeName=n[1-3] CPUs=8 RealMemory=8000 Gres=gpu:4
PartitionName=p Nodes=ALL Default=YES
PartitionName=q Nodes=n3 PriorityTier=2
`

// victim is the user whose jobs nobody here may touch.
const victim = adminUser

// What there is before each input: a running job of plainUser's on n1, one of victim's on n2, and a held one.
const annsJob, victimsJob, victimsHeld = model.JobID(1), model.JobID(2), model.JobID(3)

// userMessages has a request of each kind that a user may send.
var userMessages = map[uint16]message{
	proto.KindPing: &proto.Empty{}, proto.KindSubmit: &proto.SubmitRequest{},
	proto.KindSubmitEach: &proto.SubmitEachRequest{},
	proto.KindCancel:     &proto.CancelRequest{}, proto.KindSignal: &proto.CancelRequest{},
	proto.KindUpdateJob: &proto.UpdateJobRequest{}, proto.KindUpdateNode: &proto.UpdateNodeRequest{},
	proto.KindReserve: &proto.ReserveRequest{}, proto.KindSetDebug: &proto.SetDebugRequest{},
	proto.KindUpdatePartition: &proto.UpdatePartitionRequest{}, proto.KindMIG: &proto.MIGRequest{},
	proto.KindReconfigure: &proto.ReconfigureRequest{}, proto.KindEditAccounts: &proto.EditAccountsRequest{},
	proto.KindDiagReset: &proto.Empty{}, proto.KindTakeover: &proto.TakeoverRequest{},
	proto.KindEditControllers: &proto.EditControllersRequest{}, proto.KindControllers: &proto.Empty{},
	proto.KindPresent: &proto.PresentRequest{},
	proto.KindCrontab: &proto.CrontabRequest{}, proto.KindSetCrontab: &proto.SetCrontabRequest{},
	proto.KindTriggers: &proto.Empty{}, proto.KindSetTrigger: &proto.SetTriggerRequest{},
	proto.KindClearTriggers: &proto.ClearTriggersRequest{},
	proto.KindToken:         &proto.TokenRequest{}, proto.KindEditTokens: &proto.EditTokensRequest{},
	proto.KindEditCerts: &proto.EditCertsRequest{}, proto.KindCerts: &proto.Empty{}, proto.KindJobs: &proto.JobsRequest{},
	proto.KindNodes: &proto.NodesRequest{}, proto.KindPartitions: &proto.Empty{}, proto.KindPools: &proto.Empty{},
	proto.KindConfig: &proto.Empty{}, proto.KindWait: &proto.WaitRequest{}, proto.KindAcct: &proto.AcctRequest{},
	proto.KindReport: &proto.ReportRequest{}, proto.KindHistory: &proto.HistoryRequest{},
	proto.KindShares: &proto.SharesRequest{}, proto.KindDiag: &proto.Empty{}, proto.KindScript: &proto.ScriptRequest{},
	proto.KindDump: &proto.DumpRequest{}, proto.KindAccounts: &proto.AccountsRequest{},
	proto.KindMoney: &proto.MoneyRequest{}, proto.KindEditMoney: &proto.EditMoneyRequest{},
	proto.KindPrio: &proto.PrioRequest{}, proto.KindWhy: &proto.WhyRequest{},
	proto.KindReservations: &proto.Empty{}, proto.KindStat: &proto.StatRequest{}, proto.KindSteps: &proto.StepsRequest{},
	proto.KindDaemon: &proto.DaemonRequest{}, proto.KindTail: &proto.TailRequest{},
	proto.KindPeers: &proto.PeersRequest{}, proto.KindDoctor: &proto.DoctorRequest{}, proto.KindOnce: &proto.Once{},
	proto.KindStale: &proto.Stale{}, proto.KindAttend: &proto.AttendRequest{},
}

// strangerMessages has a request of each kind that a host without a certificate may send.
var strangerMessages = map[uint16]message{proto.KindJoin: &proto.Join{}, proto.KindTime: &proto.Empty{}}

// daemonMessages has a request of each kind that a daemon sends to a controller's port.
var daemonMessages = map[uint16]message{
	proto.KindPing: &proto.Empty{}, proto.KindWitness: &proto.Empty{}, proto.KindMoment: &proto.Empty{},
	proto.KindRenew: &proto.Renew{}, proto.KindSign: &proto.Sign{}, proto.KindRevoked: &proto.Empty{},
	proto.KindHello: &proto.Hello{}, proto.KindForward: &proto.Forward{},
}

var userKinds, daemonKinds = kindsOf(userMessages), kindsOf(daemonMessages)
var strangerKinds = kindsOf(strangerMessages)

func kindsOf(m map[uint16]message) (out []uint16) {
	for kind := range m {
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// TestFuzzedKinds: no kind of request is left out by the fuzz targets.
func TestFuzzedKinds(t *testing.T) {
	for kind := range handlers {
		if userMessages[kind] == nil {
			t.Errorf("userMessages lacks kind %d", kind)
		}
	}
}

var fuzzTexts = slices.Concat([]string{"", "n1", "n2", "n[1-3]", "nothere", "p", "q", "p,q", "ALL", "fact", "sub",
	"conf", "ann", "admin", "coord",
	"root", "gpu", "gpu:2", "gres/gpu:1", "lic:1", "0", "1", "2", "3", "1_1", "1+1", "-1", "+1",
	"-=1", "1-5:2",
	"UNLIMITED", "infinite", "now", "now+1hour", "2036-01-01T00:00:00", "1-00:00:00", "100%", "1G", "/", "/tmp/%j%4096A",
	"afterok:1", "after:2+5,afterany:3", "singleton", "DRAIN", "RESUME", "DOWN", "IDLE", "UP", "YES", "n1:*1", "a=b,c",
	"[a*2&b]|c", "normal", "NodeName", "State", "Reason", "Weight", "Nodes", "MaxTime", "AllowAccounts", "Flags", "Users",
	"StartTime", "EndTime", "Duration", "NodeCnt", "TRES", "\x1b[31m", "é\xff", "a\nb|c", "x\x00", "xxxxxxxxxxxxxxxx",
	strings.Repeat("x", 4000)}, ask.JobKeys)

// fuzzed is the controller.
type fuzzed struct {
	*Controller
	base []byte // what there is before each input
	hash string // of its configuration
	wiretest.Meter
}

func newFuzzed(f *testing.F, change ...func(*Options)) *fuzzed {
	dir := f.TempDir()
	path := filepath.Join(dir, "gbatch.conf")
	if err := os.WriteFile(path, []byte(fuzzConf), 0o600); err != nil {
		f.Fatal(err)
	}
	z := &fuzzed{}
	log := z.Log()
	c := &Controller{log: log, machine: newMachine(), nodes: newNodeSet(), people: someUsers(), host: "c1",
		idle: newIdleWatch(), reports: make(chan nodeReports, reportQueue), clocks: newClocks(), bootAt: hostTime(),
		reserving: make(chan struct{}, 1), editing: make(chan struct{}, 1), changing: make(chan struct{}, 1),
		readers: newReaders(), refusals: newOncePer(), pace: share.NewPace(1e9), peaks: peaks.New(), lease: lease.New()}
	z.Controller = c
	begun := time.Now()
	c.clocks.time = clock.New(hostTime, func() time.Duration { return time.Since(begun) + time.Minute })
	c.opts = Options{Name: "c1", Logger: log, UID: systemUID, PKI: filepath.Join(dir, "pki"), Dir: dir,
		Load: func() (*conf.Config, []conf.Problem) { return conf.LoadFile(path) }, Peers: []Peer{{"c1", "c1"}}}
	for _, do := range change { // before any loop reads them
		do(&c.opts)
	}
	fuzzMust(f, pki.InitCA(c.opts.PKI, "fuzzed"))
	fuzzMust(f, pki.Issue(c.opts.PKI, pki.RoleCtld, "c1", nil, c.opts.PKI))
	var err error
	c.creds, err = pki.Load(c.opts.PKI, pki.RoleCtld, "c1")
	fuzzMust(f, err)
	c.issuer = c.newIssuer()
	c.jobEvents = &jobevents.Teller{Facts: c.machine, Run: c.runJobEvent, Log: log}
	c.machine.stamped = c.clocks.time.Applied
	c.store, err = store.Open(store.Options{ID: "c1", Peers: []store.Peer{{ID: "c1", Addr: "c1"}}, Begin: true,
		Net: store.NewMemNet(), Machine: c.machine})
	fuzzMust(f, err)
	ctx, stop := context.WithCancel(context.Background())
	c.life = ctx
	led := make(chan struct{})
	go func() { defer close(led); c.lead(ctx) }()
	f.Cleanup(func() {
		stop()
		<-led
		fuzzMust(f, c.Close())
	})
	for changed := c.door.wait(); !c.leading.Load(); changed = c.door.wait() {
		<-changed
	}
	z.prepare(f)
	return z
}

func fuzzMust(f *testing.F, err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// prepare makes what there is before each input.
func (z *fuzzed) prepare(f *testing.F) {
	ctx := context.Background()
	bodies := []state.Body{someAccounts()}
	for _, n := range []string{"n1", "n2"} {
		bodies = append(bodies, &state.Join{Node: n, BootID: "b"})
	}
	for _, b := range bodies {
		_, err := z.propose(ctx, b)
		fuzzMust(f, err)
	}
	for i, uid := range []uint32{plainUser, victim, victim} {
		sp := &model.Spec{Name: "j", WorkDir: "/", MinNodes: 1, MaxNodes: 1, LimitS: model.Unlimited, HoldReq: i == 2,
			ReqNodes: []string{[]string{"n1", "n2", "n2"}[i]}}
		who := z.kernelSays(ctx, &rpc.User{UID: uid, GID: uid})
		reply, err := z.submit(ctx, who, &proto.SubmitRequest{RequestID: string(rune('a' + i)), Spec: sp,
			Script: []byte("#!/bin/sh\n")})
		fuzzMust(f, err)
		if reply.Job != model.JobID(i+1) {
			f.Fatal("job", reply.Job)
		}
	}
	for id, node := range map[model.JobID]string{annsJob: "n1", victimsJob: "n2"} {
		for changed := z.machine.Changed(); z.machine.View().Job(id).State != model.Configuring; {
			<-changed
			changed = z.machine.Changed()
		}
		_, err := z.propose(ctx, &state.Reports{Placed: true, Reports: []state.Report{{Kind: state.Started, Job: id,
			Attempt: 1, Node: node, At: z.now()}}})
		fuzzMust(f, err)
	}
	z.hash = z.machine.View().Config().Hash
	var b bytes.Buffer
	fuzzMust(f, z.machine.Freeze()(&b))
	z.base = b.Bytes()
	if text := z.harm(true, "n1", "n2", "n3"); text != "" {
		f.Fatal(text)
	}
}

// harm says what has been changed that nobody without rights may change. Without jobs, victim's jobs may be changed; a
// node that tells bad things of itself is drained.
func (z *fuzzed) harm(jobs bool, nodes ...string) string {
	v := z.machine.View()
	for _, n := range nodes {
		if d := v.Node(n); d == nil || d.Admin != model.NodeUp {
			return "node " + n + " was changed"
		}
	}
	switch u, a := v.User("ann"), v.Account("fact"); {
	case u == nil || u.Admin != 0:
		return "ann's rights were changed"
	case a == nil || !slices.Equal(a.Coordinators, []string{"coord"}):
		return "the coordinators were changed"
	case v.Config().Hash != z.hash:
		return "the configuration was changed"
	case !jobs:
		return ""
	}
	run, held := v.Job(victimsJob), v.Job(victimsHeld)
	switch {
	case run == nil || run.State != model.Running || run.Run.Stop != 0 || run.Spec.UID != victim || run.Attempt != 1:
		return "victim's running job was changed"
	case held == nil || held.State != model.Pending || held.Hold == model.NotHeld || held.Spec.UID != victim:
		return "victim's held job was changed"
	}
	return ""
}

// sender makes an input's requests, and sends them in a role.
type sender struct {
	wiretest.Filler
	z    *fuzzed
	role trust.Caller
	uid  uint32 // of the user who asks, or for whom a daemon does
	raw  bool   // bodies are the input's bytes
}

// body makes the body of a request.
func (s *sender) body(kind uint16, of map[uint16]message, depth int) []byte {
	kindOf := of[kind]
	if s.raw || kindOf == nil {
		n := min(int(s.Next())|int(s.Next())<<8, len(s.Bytes))
		b := slices.Clone(s.Bytes[:n])
		s.Bytes = s.Bytes[n:]
		return b
	}
	m := reflect.New(reflect.TypeOf(kindOf).Elem()).Interface().(message)
	s.Fill(m)
	bits := s.Next()
	switch m := m.(type) {
	case *proto.SubmitRequest:
		s.sane(m, bits)
	case *proto.SubmitEachRequest:
	case *proto.SetTriggerRequest:
		if bits&3 != 0 {
			m.Program = "/bin/" + m.Program
			m.OffsetS %= 1000
		}
		switch bits >> 2 & 7 {
		case 0, 1:
			m.Of, m.Job, m.Nodes, m.Events = model.TriggerJob, annsJob+model.JobID(bits>>5), "", model.OnFini|model.OnDown
		case 2, 3:
			m.Of, m.Job, m.Nodes, m.Events = model.TriggerNode, 0, "n1", model.OnDown|model.OnIdle
		case 4:
			m.Of, m.Job, m.Nodes, m.Events = model.TriggerCtld, 0, "", model.OnPrimaryFails|model.OnBackupLeads
		}
	case *proto.SetCrontabRequest:
		for i := range m.Jobs {
			if rq := &m.Jobs[i]; rq.Spec != nil && bits&3 != 0 {
				s.sane(rq, bits|1)
				rq.Spec.Cron = &model.Cron{Times: "0 * * * *", First: int32(bits % 5), Last: 2}
				m.User, m.Text, m.Remove, rq.Rest, rq.TestOnly = "", []byte("@hourly x\n@hourly y\n"), false, nil, false
			}
		}
	case *proto.Once:
		if m.Kind = s.userKind(); depth < 3 {
			m.Body = s.body(m.Kind, userMessages, depth+1)
		}
		m.ID, m.AtMS = strings.Repeat(string(rune('a'+bits%26)), proto.OnceIDBytes), time.Now().UnixMilli()
	case *proto.Stale:
		if m.Kind = s.userKind(); depth < 3 {
			m.Body = s.body(m.Kind, userMessages, depth+1)
		}
	case *proto.Hello:
		if bits&3 != 0 {
			m.Node, m.Now = "n1", s.z.now()
		}
	case *proto.EditAccountsRequest:
		if bits&3 != 0 {
			m.Gen = s.z.machine.View().AcctGen()
		}
	}
	b, err := proto.Encode(m)
	if err != nil {
		return nil // over a bound: the writer refuses it
	}
	return b
}

// sane makes a submission good enough to get beyond the first checks.
func (s *sender) sane(m *proto.SubmitRequest, bits byte) {
	if m.Spec == nil || bits&1 == 0 {
		return
	}
	m.RequestID, m.Script = "r"+string(rune('a'+bits%26)), []byte("#!/bin/sh\n")
	sp := m.Spec
	sp.Name, sp.WorkDir, sp.StdOut = "j", "/", ""
	if bits&2 != 0 {
		sp.MinNodes, sp.MaxNodes, sp.LimitS = 1, int32(bits%4), 600
	}
	if bits&4 != 0 {
		*sp = model.Spec{Name: "j", WorkDir: "/", MinNodes: 1, MaxNodes: 1, LimitS: int64(bits), Partitions: sp.Partitions,
			Gres: sp.Gres, Deps: sp.Deps, Account: sp.Account, Tasks: sp.Tasks, CPUsPerTask: sp.CPUsPerTask}
	}
}

func (s *sender) userKind() uint16 { return userKinds[int(s.Next())%len(userKinds)] }

// send sends one request.
func (s *sender) send(t *testing.T) {
	daemon := s.role >= trust.LoginHost
	kind, of := s.userKind(), userMessages
	if s.role == trust.Stranger {
		kind, of = strangerKinds[int(s.Next())%len(strangerKinds)], strangerMessages
	}
	if forwarded := s.Next()&7 != 0; daemon && !forwarded {
		kind, of = daemonKinds[int(s.Next())%len(daemonKinds)], daemonMessages
	}
	if s.raw && s.Next()&7 == 0 {
		kind = uint16(s.Next())
	}
	if s.role == trust.Administrator && (kind == proto.KindTakeover || kind == proto.KindEditControllers) {
		return // it would lead no more
	}
	body := s.body(kind, of, 0)
	if len(body) > proto.MaxBytes(kind) {
		return // it is refused before it is read
	}
	if s.role == trust.Stranger {
		s.ask(t, kind, body, rpc.Peer{}, s.z.join)
		return
	}
	if !daemon {
		u := rpc.User{UID: s.uid, GID: s.uid, PID: 1}
		s.ask(t, kind, body, rpc.LocalPeer(u), s.z.local)
		return
	}
	name := map[trust.Caller]string{trust.LoginHost: "lg1", trust.Node: "n1", trust.Controller: "c2",
		trust.Gdbd: "dbd"}[s.role]
	if of[kind] != nil && kind < proto.KindForward || kind == proto.KindForward {
		f := &proto.Forward{Kind: kind, Body: body, Caller: proto.Caller{UID: s.uid, GID: s.uid, User: s.Text()}}
		if s.Next()&7 == 0 {
			f.Caller.GID, f.Caller.Groups = uint32(s.Next()), []uint32{0, 4}
		}
		var err error
		if kind, body, err = proto.KindForward, nil, nil; f.Kind < proto.KindForward {
			if body, err = proto.Encode(f); err != nil {
				return
			}
		}
	}
	role := map[trust.Caller]string{trust.LoginHost: pki.RoleLogin, trust.Node: pki.RoleNode,
		trust.Controller: pki.RoleCtld, trust.Gdbd: pki.RoleDBD}[s.role]
	s.ask(t, kind, body, rpc.DaemonPeer(role, name), s.z.remote)
}

// ask hands a request over and waits for its answer.
func (s *sender) ask(t *testing.T, kind uint16, body []byte, peer rpc.Peer, h server.Handler) {
	patience := fuzzAnswer
	switch { // who is asked is not there, or what is in it may wait
	case proto.RequestIn(kind, body).WaitS > 0, handlers[kind].asks, kind == proto.KindAcct, kind == proto.KindForward,
		kind == proto.KindOnce, kind == proto.KindStale:
		patience = fuzzWait
	}
	ctx, cancel := context.WithTimeout(s.z.life, patience)
	defer cancel()
	answered := false
	r := server.Direct(ctx, kind, body, peer, s.z.log, func(flags uint16, _ []byte) error {
		answered = answered || flags&rpc.FlagMore == 0
		return nil
	})
	h(ctx, r)
	if !answered {
		t.Errorf("request kind %d of a %s got no answer", kind, s.role)
	}
	if patience == fuzzAnswer && ctx.Err() != nil {
		t.Errorf("request kind %d of a %s took %v", kind, s.role, fuzzAnswer)
	}
}

// session is a node's: a good Hello, and frames.
func (s *sender) session(t *testing.T) {
	out := &heapStream{}
	c := rpc.Client(out, rpc.ConnOptions{Name: "n1"})
	for range 1 + s.Next()%6 {
		kind, m := proto.KindHeartbeat, message(&proto.Heartbeat{})
		switch s.Next() % 4 {
		case 0:
			kind, m = proto.KindNodeAnswer, &proto.NodeAnswer{}
		case 1, 2:
			kind, m = proto.KindReports, &proto.Reports{}
		}
		s.Fill(m)
		if r, ok := m.(*proto.Reports); ok && s.Next()&3 != 0 {
			r.Now = s.z.now()
			for i, one := range r.Reports {
				if one == nil {
					one = &proto.Report{}
					r.Reports[i] = one
				}
				one.Job, one.Attempt = model.JobID(1+s.Next()%3), 1
				one.Kind = proto.ReportKind(s.Next() % 12)
			}
		}
		b, err := proto.Encode(m)
		if s.raw {
			b, err = s.body(0, nil, 0), nil
		}
		if err != nil || c.WriteFrame(kind, 0, 0, b) != nil {
			return
		}
	}
	if c.Flush() != nil {
		t.Fatal("a buffer is full")
	}
	h := &proto.Hello{Node: "n1", BootID: "b", Now: s.z.now(), LeaseS: 20,
		Known: []proto.Attempt{{Job: annsJob, Attempt: 1}}, Hw: proto.Hardware{CPUs: 8, MemMiB: 8000,
			Gres: []model.GresDef{{Name: "gpu", Count: 4}}}}
	err := s.z.hello(s.z.life, "n1", "n1:1", h, func(*proto.Welcome) (*rpc.Conn, error) {
		return rpc.Accept(&sentStream{heapStream{Buffer: out.Buffer}}, rpc.ConnOptions{Name: "n1"})
	})
	if err != nil {
		t.Errorf("a good node is refused: %v", err)
	}
}

// sentStream is a connection whose other side has sent all that it will, and reads nothing.
type sentStream struct{ heapStream }

func (*sentStream) Write(p []byte) (int, error) { return len(p), nil }

// heapStream is a connection that keeps what is written.
type heapStream struct {
	bytes.Buffer
	net.Conn
}

func (h *heapStream) Read(p []byte) (int, error)       { return h.Buffer.Read(p) }
func (h *heapStream) Write(p []byte) (int, error)      { return h.Buffer.Write(p) }
func (h *heapStream) Close() error                     { return nil }
func (h *heapStream) SetReadDeadline(time.Time) error  { return nil }
func (h *heapStream) SetWriteDeadline(time.Time) error { return nil }

var _ io.ReadWriteCloser = (*heapStream)(nil)

// input sends an input's requests in a role. Its first byte says how they are made, the second for whom.
func (z *fuzzed) input(t *testing.T, role trust.Caller, b []byte) {
	s := &sender{Filler: wiretest.Filler{Bytes: b, Texts: fuzzTexts}, z: z, role: role}
	how := s.Next()
	s.raw = how&1 != 0
	s.uid = map[trust.Caller]uint32{trust.User: plainUser, trust.Coordinator: coordUser, trust.Operator: operUser,
		trust.Administrator: adminUser}[role]
	if role >= trust.LoginHost {
		s.uid = []uint32{plainUser, plainUser, plainUser, coordUser, victim, 0, systemUID, model.NoID}[s.Next()%8]
	}
	z.bounded(t, len(b), func() {
		for range 1 + how>>1%6 {
			if role == trust.Node && how&64 != 0 {
				s.session(t)
				continue
			}
			s.send(t)
		}
	})
	if role <= trust.User || role == trust.LoginHost || role == trust.Node {
		nodes := []string{"n2", "n3", "n1"}
		if role == trust.Node {
			nodes = nodes[:2]
		}
		theirs := s.uid == victim || s.uid == coordUser && role == trust.LoginHost
		if text := z.harm(!theirs, nodes...); text != "" {
			t.Errorf("%s (by a %s, for uid %d)", text, role, s.uid)
		}
	}
}

// bounded runs f on what there is before each input, and fails the test if it costs more than an input of some bytes
// may, if something has panicked, or if the state is inconsistent after it.
func (z *fuzzed) bounded(t *testing.T, size int, f func()) {
	if err := z.machine.Restore(bytes.NewReader(z.base)); err != nil {
		t.Fatal(err)
	}
	z.Measure(t, size, func() {
		f()
		for len(z.reports) > 0 {
			runtime.Gosched() // the loop that collects them goes on
		}
	})
	if err := z.checkState(); err != nil {
		t.Errorf("the state is inconsistent: %v", err)
	}
	var snapshot bytes.Buffer
	err := z.machine.Freeze()(&snapshot)
	if err == nil {
		err = newMachine().Restore(&snapshot)
	}
	if err != nil {
		t.Errorf("no controller could start from this state: %v", err)
	}
}

func (z *fuzzed) checkState() error {
	z.machine.mu.Lock()
	defer z.machine.mu.Unlock()
	return z.machine.st.Check()
}

// fuzzRole fuzzes one role. The seeds have each kind of request once, with little in it and with much.
func fuzzRole(f *testing.F, role trust.Caller) {
	z := newFuzzed(f)
	f.Add([]byte{0})
	for i := range byte(len(userKinds)) {
		for _, fill := range []byte{0, 1, 7} {
			b := bytes.Repeat([]byte{fill}, 300)
			for k := range b {
				b[k] += byte(k) * fill * i
			}
			b[0], b[1] = fill&2, i
			if role >= trust.LoginHost {
				b[1], b[2] = fill&3, i
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { z.input(t, role, b) })
}

func FuzzStranger(f *testing.F)      { fuzzRole(f, trust.Stranger) }
func FuzzUser(f *testing.F)          { fuzzRole(f, trust.User) }
func FuzzCoordinator(f *testing.F)   { fuzzRole(f, trust.Coordinator) }
func FuzzOperator(f *testing.F)      { fuzzRole(f, trust.Operator) }
func FuzzAdministrator(f *testing.F) { fuzzRole(f, trust.Administrator) }
func FuzzLoginHost(f *testing.F)     { fuzzRole(f, trust.LoginHost) }
func FuzzNode(f *testing.F)          { fuzzRole(f, trust.Node) }
func FuzzController(f *testing.F)    { fuzzRole(f, trust.Controller) }
func FuzzGdbd(f *testing.F)          { fuzzRole(f, trust.Gdbd) }
