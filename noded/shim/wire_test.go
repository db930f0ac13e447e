package shim

import (
	"bytes"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"gbatch/internal/version"
)

func sampleLaunch() Launch {
	return Launch{Key: Key{JobID: math.MaxUint32, Attempt: 3, Step: -5}, Path: "/bin/sh",
		Argv: []string{"sh", "-c", "true"}, Env: []string{"A=1", "B="}, Dir: "/tmp",
		UID: 1000, GID: 1001, Groups: []uint32{4, 0, math.MaxUint32}, Umask: 0o777, Stdin: "in", Stdout: "/out",
		Stderr: "/out", Append: true,
		Limits: []Limit{{7, 1024, Unlimited, true}, {0, 0, 0, false}}, Mounts: "/m",
		Cgroup: Cgroup{V1: []string{"/a", "/b"}, V2: "/c"}, Nice: -20, CPUs: []int{0, 127}, Terminal: true,
		AsRoot: true, Confined: true}
}

func sampleEvents() []Event {
	at := time.Unix(1700000000, 123456789)
	return []Event{
		{Kind: Launched, Key: Key{JobID: 1, Step: -5}, PID: 77, Started: at, StartTicks: 12345,
			Notes: []string{"one", "two"}},
		{Kind: LaunchFailed, Key: Key{JobID: 2, Attempt: 1, Step: 0}, Text: "could not", Stage: StageStdout, Errno: 13,
			Ended: at},
		{Kind: Exited, Key: Key{JobID: 3}, PID: math.MaxInt32, Started: at, StartTicks: math.MaxUint64, Code: 255,
			UserCPU: time.Second, SysCPU: 1, MaxRSSKB: 1 << 40, ReadB: 512, WriteB: 1 << 50, Faults: 3, Ended: at},
		{Kind: Exited, Key: Key{JobID: 4}, PID: 9, Signal: 9, Core: true, Unknown: true, Text: "why"},
		{Kind: Orphaned, Key: Key{JobID: 5}},
	}
}

func sampleOrders() []order {
	return []order{
		{kind: kindLaunch, seq: 1, launch: sampleLaunch()},
		{kind: kindLaunch, launch: Launch{Argv: []string{"/bin/true"}}},
		{kind: kindSignal, seq: math.MaxUint64, key: Key{JobID: 1, Attempt: 2, Step: math.MinInt32}, sig: 64, scope: Tree},
		{kind: kindAck, seq: 2, keys: []Key{{JobID: 1}, {JobID: 2, Step: math.MaxInt32}}},
		{kind: kindUpgrade, seq: 3, path: "/usr/sbin/gshim"},
		{kind: kindLease, seq: 6, lease: Lease{Until: time.Hour, Heard: time.Minute, Ask: time.Second,
			Verdict: []string{"/usr/sbin/gnoded", "a b"}}}, {kind: kindLease},
		{kind: kindList, seq: 4}, {kind: kindPing}, {kind: kindShutdown, seq: 5},
	}
}

func sampleReplies() []reply {
	return []reply{
		{kind: kindHello, info: Info{Protocol: Protocol, Version: version.Version, PID: 1, Started: time.Unix(5, 6),
			Upgrades: 7}},
		{kind: kindEvents, seq: 9, events: sampleEvents()},
		{kind: kindEvents},
		{kind: kindDone, seq: 3, n: 4, err: "no"},
	}
}

func payload(fill func(*encoder)) []byte { return frame(nil, fill)[frameHead:] }

func TestOrdersAndRepliesRoundTrip(t *testing.T) {
	for _, o := range sampleOrders() {
		got, err := decodeOrder(payload(o.encode))
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, o)
		}
	}
	for _, r := range sampleReplies() {
		got, err := decodeReply(payload(r.encode))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, r)
		}
	}
}

// TestFrozenEncoding: a new gnoded can ask any old gshim to replace itself, so these three never change.
func TestFrozenEncoding(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(*encoder)
		want string
	}{
		{"hello", (&reply{kind: kindHello,
			info: Info{Protocol: 1, Version: "v", PID: 2, Started: time.Unix(0, 3), Upgrades: 4}}).encode,
			"\x08\x00\x00\x00\x40\x00\x02\x01v\x04\x06\x08"},
		{"upgrade", (&order{kind: kindUpgrade, seq: 5, path: "/x"}).encode, "\x05\x00\x00\x00\x08\x05\x02/x"},
		{"done", (&reply{kind: kindDone, seq: 5, n: 1, err: "e"}).encode, "\x05\x00\x00\x00\x42\x05\x02\x01e"},
	} {
		if got := string(frame(nil, c.fill)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReadFrame(t *testing.T) {
	b := frame(frame(nil, sampleOrders()[4:5][0].encode), (&order{kind: kindPing}).encode)
	r := bytes.NewReader(b)
	for range 2 {
		if _, err := readFrame(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < len(b)-6; n++ {
		if _, err := readFrame(bytes.NewReader(b[:min(n, 8)]), nil); err == nil {
			t.Errorf("%d bytes: no error", n)
		}
	}
}

func FuzzOrder(f *testing.F) {
	for _, o := range sampleOrders() {
		f.Add(payload(o.encode))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOrder(b)
		if err != nil || o.bad != nil {
			return
		}
		again, err := decodeOrder(payload(o.encode))
		if err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("%+v comes back as %+v, %v", o, again, err)
		}
		if o.kind == kindLaunch {
			_ = o.launch.Check() // whatever it says, it must not panic
		}
	})
}

func FuzzReply(f *testing.F) {
	for _, r := range sampleReplies() {
		f.Add(payload(r.encode))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReply(b)
		if err != nil {
			return
		}
		again, err := decodeReply(payload(r.encode))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
	})
}

func sampleJournal() []byte {
	b := []byte(journalMagic)
	k := Key{JobID: 1, Step: -5}
	b = (&record{kind: recBoot, boot: "b"}).encode(b)
	b = (&record{kind: recIntent, key: k, cgroup: Cgroup{V1: []string{"/m"}, V2: "/u"}}).encode(b)
	for _, e := range sampleEvents()[:4] {
		kind := byte(recLaunched)
		if e.Done() {
			kind = recDone
		}
		b = (&record{kind: kind, event: e}).encode(b)
	}
	return (&record{kind: recAcked, keys: []Key{{JobID: 3}}}).encode(b)
}

func FuzzJournal(f *testing.F) {
	whole := sampleJournal()
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte(journalMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		boot, known, good, why := replay(b)
		if good > len(b) || why == nil && good != len(b) {
			t.Fatalf("good %d of %d, %v", good, len(b), why)
		}
		boot2, known2, good2, why2 := replay(b[:good])
		if why2 != nil && good > 0 || boot2 != boot || good2 != good || !reflect.DeepEqual(known, known2) {
			t.Fatalf("the sound part reads differently: %v", why2)
		}
		// What a rewrite keeps is what was known.
		kept := image(boot, known)
		boot3, known3, _, why3 := replay(kept)
		if why3 != nil || boot3 != boot || len(known3) != len(known) {
			t.Fatalf("rewritten: %v, %d of %d", why3, len(known3), len(known))
		}
	})
}

func TestReplay(t *testing.T) {
	whole := sampleJournal()
	boot, known, good, why := replay(whole)
	if boot != "b" || len(known) != 3 || good != len(whole) || why != nil {
		t.Fatalf("%q %+v %d %v", boot, known, good, why)
	}
	if k := known[0]; k.event.Kind != Launched || k.cgroup.V2 != "/u" {
		t.Errorf("%+v", k)
	}
	// Wherever it is torn, what comes before is read and the rest is cut.
	last := -1
	for n := len(journalMagic); n < len(whole); n++ {
		_, known, good, why := replay(whole[:n])
		if good > n || why == nil && good != n || good < last {
			t.Fatalf("torn at %d: good %d, %v", n, good, why)
		}
		last = good
		_ = known
	}
	// A flipped bit is found.
	for n := len(journalMagic); n < len(whole); n++ {
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		if _, _, good, why := replay(b); why == nil || good > n {
			t.Fatalf("bit flipped at %d: good %d, %v", n, good, why)
		}
	}
	// A key that is used again after its Ack is there again, once.
	k := Key{JobID: 3}
	again := (&record{kind: recIntent, key: k}).encode(bytes.Clone(whole))
	if _, known, _, _ := replay(again); len(known) != 4 || known[3].key != k || known[3].event.Kind != 0 {
		t.Errorf("%+v", known)
	}
}

// TestOrderPanics: an order that panics fails alone, with one line in the log, and whoever gave it is told.
func TestOrderPanics(t *testing.T) {
	var said bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&said, nil))}
	var told error
	s.guard(func() { panic("oops") }, func(err error) { told = err })
	if text := said.String(); told == nil || strings.Count(text, "\n") != 1 || !strings.Contains(text, "oops") {
		t.Error(told, text)
	}
}
