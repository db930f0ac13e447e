package fence

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/noded/shim"
)

// An answer from a node that hears a leader decides, with the youngest leader; any other answer keeps the jobs; no
// answer from any other host cuts the node off.
func TestDecide(t *testing.T) {
	const limit, asked = 32 * time.Second, 1000 * time.Second // a margin of 4 s
	ctl := func(s Sign, leads time.Duration) Answer { return Answer{"ctl", true, false, s, leads} }
	far := func(s Sign, leads time.Duration) Answer { return Answer{"far", false, true, s, leads} }
	near := func(s Sign) Answer { return Answer{"near", false, false, s, 0} }
	for name, c := range map[string]struct {
		answers []Answer
		cut     bool
		at      time.Duration
	}{
		"the leader answers":            {[]Answer{ctl(Hears, time.Hour)}, true, 0},
		"it leads for 10 s":             {[]Answer{ctl(Hears, 10*time.Second)}, true, asked + 18*time.Second},
		"it has just begun":             {[]Answer{ctl(Hears, 0), far(Hears, time.Hour)}, true, asked + 28*time.Second},
		"a witness hears it":            {[]Answer{ctl(Silent, 0), far(Hears, time.Hour)}, true, 0},
		"a controller refuses":          {[]Answer{ctl(Alive, 0), far(Silent, 0)}, false, 0},
		"a controller is deaf":          {[]Answer{ctl(Deaf, 0), far(Silent, 0)}, false, 0},
		"a witness is deaf":             {[]Answer{ctl(Silent, 0), far(Silent, 0), far(Deaf, 0)}, false, 0},
		"only a witness's host answers": {[]Answer{ctl(Silent, 0), far(Alive, 0)}, false, 0},
		"isolated":                      {[]Answer{ctl(Silent, 0), ctl(Silent, 0), far(Silent, 0)}, true, 0},
		"no witness on another host":    {[]Answer{ctl(Silent, 0), near(Silent)}, false, 0},
		"one node":                      {[]Answer{ctl(Silent, 0)}, false, 0},
		"nobody to ask":                 {nil, false, 0},
	} {
		if v := Decide(asked, limit, c.answers); v.Cut != c.cut || v.At != c.at || v.Why == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Every kind of peer: no listener, one that accepts and sends nothing, one that does not answer requests, and one that
// answers.
func TestAskOne(t *testing.T) {
	dir := t.TempDir()
	if err := pki.InitCA(dir, "test"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "n2"} {
		if err := pki.Issue(dir, pki.RoleNode, name, []string{"127.0.0.1"}, dir); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := pki.Load(dir, pki.RoleNode, "n1")
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	answering := func(reply *proto.WitnessReply) string {
		scfg, err := pki.Load(dir, pki.RoleNode, "n2")
		if err != nil {
			t.Fatal(err)
		}
		ln, err := pki.Listen("127.0.0.1:0", scfg, log, pki.Accept{Proto: pki.ProtoRPC})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			done <- server.Serve(ctx, ln.Proto(pki.ProtoRPC), func(ctx context.Context, r *server.Request) {
				if reply == nil {
					<-ctx.Done()
					return
				}
				body, err := proto.Encode(reply)
				if err == nil {
					err = r.Reply(body)
				}
				if err != nil {
					t.Error(err)
				}
			}, server.Options{Log: log, Peer: pki.PeerOfConn})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			_ = ln.Close() // as above
		})
		return ln.Addr().String()
	}
	for _, c := range []struct {
		addr  string
		sign  Sign
		leads time.Duration
		wait  time.Duration
	}{
		{gone.Addr().String(), Alive, 0, 5 * time.Second},
		{mute.Addr().String(), Silent, 0, 200 * time.Millisecond},
		{answering(&proto.WitnessReply{Hears: true, LeadsMS: 1500}), Hears, 1500 * time.Millisecond, 5 * time.Second},
		{answering(&proto.WitnessReply{}), Deaf, 0, 5 * time.Second},
		{answering(nil), Alive, 0, time.Second},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.wait)
		if s, leads := askOne(ctx, cfg, whom{addr: c.addr, role: pki.RoleNode}); s != c.sign || leads != c.leads {
			t.Errorf("%s: %d after %v, want %d", c.addr, s, leads, c.sign)
		}
		cancel()
	}
}

// The silence of a witness shows isolation only if its host is known not to be a controller's; a node that is cut off
// asks no name server for that.
func TestWitnessesElsewhere(t *testing.T) {
	hosts, all := resolve([]string{"127.0.0.1:1", "[::1]:2"})
	if !all || !slices.Contains(hosts, "127.0.0.1") || !slices.Contains(hosts, "::1") {
		t.Errorf("%v %v", hosts, all)
	}
	if _, all := resolve([]string{"127.0.0.1:1", "no such host:2"}); all {
		t.Error("what is no name counts as known")
	}
	f := facts{Controllers: []string{"c1:1"}, Hosts: []string{"c1", "192.0.2.1"}, Resolved: true,
		Witnesses: []proto.Witness{{Node: "n1", Addr: "192.0.2.1:9"}, {Node: "n2", Addr: "192.0.2.2:9"}}}
	if l := f.list(); len(l) != 3 || !l[0].controller || l[1].elsewhere || !l[2].elsewhere {
		t.Errorf("%+v", l)
	}
	f.Resolved = false
	if l := f.list(); l[2].elsewhere {
		t.Errorf("the controller's host is unknown: %+v", l[2])
	}
}

// The lease counts from before the acknowledged heartbeat was sent. Without an acknowledging leader there is none.
func TestKeeper(t *testing.T) {
	var leases []shim.Lease
	k := &Keeper{Node: "n1", PKI: "/pki", Controllers: []string{"c:1"}, Spool: t.TempDir(), Program: "/bin/gnoded",
		Renew: func(l shim.Lease) { leases = append(leases, l) }, Log: slog.New(slog.DiscardHandler)}
	last := func() shim.Lease { return leases[len(leases)-1] }
	k.Welcomed(shim.Uptime(), &proto.Welcome{TimeoutS: 32})
	if last().Until != 0 {
		t.Errorf("a lease under a leader that acknowledges nothing: %+v", last())
	}
	before := shim.Uptime()
	k.Welcomed(before, &proto.Welcome{TimeoutS: 32, Sure: true, LeadsMS: 5000,
		Witnesses: []proto.Witness{{Node: "n2", Addr: "h:2"}}})
	if l := last(); l.Until != before+28*time.Second || l.Heard != before || l.Ask != 5*time.Second ||
		strings.Join(l.Verdict, " ") != "/bin/gnoded "+Word+" "+k.Spool {
		t.Errorf("%+v", l)
	}
	k.Sent(100)
	sent := shim.Uptime()
	k.Sent(200)
	k.Told(&proto.Orders{Sure: 100})
	if l := last(); l.Until > sent+28*time.Second || l.Until < before+28*time.Second {
		t.Errorf("the lease counts from a later heartbeat than the acknowledged one: %+v", l)
	}
	n := len(leases)
	k.Told(&proto.Orders{Sure: 100})
	k.Told(&proto.Orders{Sure: 150})
	k.Told(&proto.Orders{Heard: 200})
	if end := last().Until; len(leases) > n+1 || end > sent+28*time.Second {
		t.Errorf("renewed by nothing: %+v", leases[n:])
	}
	if leads, ok := k.Hears(nil, before); !ok || leads > time.Minute {
		t.Errorf("%v %v", leads, ok)
	}
	stop := make(chan struct{})
	close(stop)
	if _, ok := k.Hears(stop, shim.Uptime()); ok {
		t.Error("it hears what was not acknowledged")
	}
	k.Told(&proto.Orders{Sure: 200, Rules: &model.NodeRules{}, TimeoutS: 0})
	if last().Until != 0 {
		t.Errorf("a lease with SlurmdTimeout=0: %+v", last())
	}
	if got := k.Pace(time.Hour); got != time.Hour {
		t.Error(got)
	}
}

// The program refuses a directory that is not a spool, and does not run with other arguments.
func TestMainProgram(t *testing.T) {
	var out, said bytes.Buffer
	if _, handled := Main([]string{"gnoded", "-C"}, &out, &said); handled {
		t.Error("it takes any arguments")
	}
	if status, handled := Main([]string{"gnoded", Word, t.TempDir()}, &out, &said); !handled || status == 0 ||
		out.Len() > 0 || !strings.Contains(said.String(), factsFile) {
		t.Errorf("%v %q %q", handled, out.String(), said.String())
	}
}
