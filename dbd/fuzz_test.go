package dbd

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/trust"
	"gbatch/internal/wire/wiretest"
)

// fuzz_test.go sends gdbd what each role may send: controllers and other accounting daemons, and login hosts and nodes,
// which pass on users' questions. Nothing may panic, every request has an answer, no input may cost more memory and CPU
// time than its size allows, and nobody sees a job that is hidden from them.

const fuzzAnswer = 20 * time.Second // for an answer

// fuzzMessages has a request of each kind.
var fuzzMessages = map[uint16]proto.Message{
	proto.KindPut: &proto.Put{}, proto.KindQuery: &proto.AcctRequest{}, proto.KindUsage: &proto.UsageQuery{},
	proto.KindSamples: &proto.Samples{}, proto.KindPast: &proto.HistoryQuery{}, proto.KindAsked: &proto.Asked{},
	proto.KindSight: &proto.Sight{}, proto.KindDbd: &proto.Empty{}, proto.KindPing: &proto.Empty{},
	proto.KindBackup: &proto.Empty{}, proto.KindBeginEmpty: &proto.Empty{},
}

var fuzzKinds = []uint16{proto.KindPut, proto.KindQuery, proto.KindUsage, proto.KindSamples, proto.KindPast,
	proto.KindPut, proto.KindQuery, proto.KindUsage, proto.KindSamples, proto.KindPast,
	proto.KindSight, proto.KindDbd, proto.KindPing, proto.KindBackup, proto.KindAsked,
	proto.KindBeginEmpty}

var fuzzTexts = []string{"", "n1", "n[1-3]", "p", "c", "ann", "lab", "root", "gpu", "gres/gpu:1", "1", "2", "normal",
	"train", "cluster", "user", "top", "hourly", "2026-11", "\x1b[31m", "é\xff", "a|b\nc", strings.Repeat("x", 4000)}

// TestFuzzedKinds: no kind of request is left out.
func TestFuzzedKinds(t *testing.T) {
	for kind := range uint16(200) {
		if trust.Asks(trust.Controller, kind) && proto.RequestOf(kind).At == proto.AtDaemon && fuzzMessages[kind] == nil {
			switch kind {
			case proto.KindForward, proto.KindWitness, proto.KindMoment, proto.KindRenew, proto.KindSign, proto.KindRevoked,
				proto.KindJoin, proto.KindTime: // of other daemons
			default:
				t.Errorf("fuzzMessages lacks kind %d (%s)", kind, proto.RequestOf(kind).Name)
			}
		}
	}
}

type fuzzed struct {
	*Daemon
	wiretest.Meter
}

func newFuzzed(f *testing.F) *fuzzed {
	z := &fuzzed{}
	z.Daemon = startDaemon(f, func(o *Options) { o.Logger = z.Log() }).Daemon
	mustPut(f, z.db, 3, rec(1, 1), rec(2, 2, running), rec(3, 3, waiting))
	z.db.sight.Store(&proto.Sight{HidesJobs: true})
	return z
}

// ask hands a request over and gives its answers.
func (z *fuzzed) ask(t *testing.T, kind uint16, body []byte, role string, h server.Handler, each func(part []byte)) {
	ctx, cancel := context.WithTimeout(t.Context(), fuzzAnswer)
	defer cancel()
	if kind == proto.KindAsked { // it waits until somebody asks
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
	}
	answered := false
	take := func(flags uint16, part []byte) error {
		answered = answered || flags&rpc.FlagMore == 0
		if flags&rpc.FlagError == 0 {
			each(part)
		}
		return nil
	}
	h(ctx, server.Direct(ctx, kind, body, rpc.DaemonPeer(role, "acct"), z.opts.Logger, take))
	if !answered {
		t.Errorf("request kind %d got no answer", kind)
	}
	if kind != proto.KindAsked && ctx.Err() != nil {
		t.Errorf("request kind %d took %v", kind, fuzzAnswer)
	}
}

// input sends an input's requests: those of controllers, or of users through a login host or a node.
func (z *fuzzed) input(t *testing.T, b []byte, users bool) {
	in := wiretest.Filler{Bytes: b, Texts: fuzzTexts}
	how := in.Next()
	for range 1 + how>>1%4 {
		kind := fuzzKinds[int(in.Next())%len(fuzzKinds)]
		if users {
			kind = proto.KindQuery
		}
		body := in.Bytes
		if how&1 == 0 {
			m := reflect.New(reflect.TypeOf(fuzzMessages[kind]).Elem()).Interface().(proto.Message)
			in.Fill(m)
			if p, ok := m.(*proto.Put); ok {
				p.Acked, p.Dropped = 0, 0 // a daemon that has lost records answers no further questions
				if in.Next()&3 != 0 {
					p.Cluster, p.Instance, p.Eras = "fuzzed", 7, nil
				}
				for i, r := range p.Records {
					if r == nil {
						r = rec(0, model.JobID(10+i))
						p.Records[i] = r
					}
					r.Seq = uint64(in.Next())
				}
			}
			var err error
			if body, err = proto.Encode(m); err != nil {
				continue // over a bound: the writer refuses it
			}
		}
		if !users {
			z.ask(t, kind, body, pki.RoleCtld, z.handle, func([]byte) {})
			continue
		}
		who := proto.Caller{UID: []uint32{1001, 0, model.NoID, 900}[in.Next()%4], User: in.Text()}
		f, err := proto.Encode(&proto.Forward{Kind: proto.KindAcct, Body: body, Caller: who})
		if err != nil {
			continue
		}
		role := []string{pki.RoleLogin, pki.RoleNode}[in.Next()%2]
		z.ask(t, proto.KindForward, f, role, z.handleUser, func(part []byte) {
			var chunk proto.RecordsChunk
			if err := proto.Decode(part, &chunk); err != nil {
				t.Errorf("an answer can't be read: %v", err)
			}
			for _, r := range chunk.Records {
				t.Errorf("uid %d sees job %d of uid %d by a %s", who.UID, r.Job, r.UID, role)
			}
		})
	}
}

func fuzzRole(f *testing.F, users bool) {
	z := newFuzzed(f)
	f.Add([]byte{0})
	for i := range byte(len(fuzzKinds)) {
		for _, fill := range []byte{0, 1, 7} {
			b := bytes.Repeat([]byte{fill}, 300)
			for k := range b {
				b[k] += byte(k) * fill * i
			}
			b[0], b[1] = fill&2, i
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { z.Measure(t, len(b), func() { z.input(t, b, users) }) })
}

// FuzzController: a controller or another accounting daemon.
func FuzzController(f *testing.F) { fuzzRole(f, false) }

// FuzzUsers: users, for whom login hosts and nodes ask.
func FuzzUsers(f *testing.F) { fuzzRole(f, true) }
