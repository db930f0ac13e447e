package up

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// dbdMember gives the running gdbd with a name.
func dbdMember(t *testing.T, dir, name string) (process, string) {
	t.Helper()
	for _, d := range status(t, dir).Daemons {
		if d.Role == RoleAccounting && d.Name == name {
			p, ok := processOf(d.PID)
			if !ok {
				t.Fatalf("%s does not run", name)
			}
			return p, d.Addresses[0]
		}
	}
	t.Fatalf("no gdbd %s", name)
	return process{}, ""
}

// signalDbd sends a signal to one gdbd.
func signalDbd(t *testing.T, dir, name string, sig syscall.Signal) {
	t.Helper()
	p, _ := dbdMember(t, dir, name)
	if err := p.signal(sig); err != nil {
		t.Fatal(err)
	}
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		gone([]process{p}, nodePatience)
	}
}

// acctKey is what a record is of.
type acctKey struct {
	job     model.JobID
	attempt uint32
	step    string
}

// recordsAt asks one gdbd for all that it has, as a controller does.
func recordsAt(t *testing.T, dir, addr string) (map[acctKey]*model.Record, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cfg, err := pki.Load(layout(dir).pki(), pki.RoleCtld, "ctl1")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, cfg, pki.RoleDBD)
	if err != nil {
		return nil, err
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: addr}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }() // the answer is there
	body, err := proto.Encode(&proto.AcctRequest{Duplicates: true, Steps: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[acctKey]*model.Record{}
	err = m.Stream(ctx, proto.KindQuery, body, func(f *rpc.Frame) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(f.Body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			k := acctKey{job: r.Job, attempt: uint32(r.Attempt)}
			if r.Step != nil {
				k.step = fmt.Sprint(r.Step.ID)
			}
			if out[k] != nil {
				t.Errorf("two records of %v at %s", k, addr)
			}
			out[k] = r
		}
		return nil
	})
	return out, err
}

// untilSame waits until both gdbds have the same records, and gives their number.
func untilSame(t *testing.T, dir string) (n int) {
	t.Helper()
	_, first := dbdMember(t, dir, dbdName)
	_, second := dbdMember(t, dir, dbdCopyName)
	until(t, "both gdbds have the same records", func() bool {
		a, err := recordsAt(t, dir, first)
		if err != nil {
			return false
		}
		b, err := recordsAt(t, dir, second)
		n = len(a)
		return err == nil && maps.EqualFunc(a, b, func(x, y *model.Record) bool { return reflect.DeepEqual(x, y) })
	})
	return n
}

// TestCopyOfGdbdUnderLoad: gdbd is killed and stopped under load. gacct goes on with its copy's records and says so, no
// record is lost or there twice at either when both are back, and the first one answers only when it has all.
func TestCopyOfGdbdUnderLoad(t *testing.T) {
	t.Parallel()
	dir, ran := filepath.Join(t.TempDir(), "copy"), filepath.Join(t.TempDir(), "ran")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 8, MemMiB: 8000, Gdbds: 2})
	book := newSoakBook(ran)
	var submitters sync.WaitGroup
	ending := make(chan struct{})
	end := sync.OnceFunc(func() { close(ending); submitters.Wait() })
	defer end()
	var last atomic.Uint32 // job
	submitters.Go(func() {
		for {
			select {
			case <-ending:
				return
			default:
			}
			id := soakSubmit(t, c, noteRun(ran))
			book.ack(t, id)
			last.Store(uint32(id))
			time.Sleep(20 * time.Millisecond) // a cluster with load, not a full one
		}
	})
	more := func(n int) {
		t.Helper()
		from := book.count()
		until(t, fmt.Sprintf("%d more jobs are submitted", n), func() bool { return book.count() >= from+n })
	}
	ways := []string{onlySocket(t, c, "noded-n1.sock"), onlySocket(t, c, "ctld-ctl1.sock")}
	// answered waits until gacct knows the job submitted last, through a node and through a controller, and gives what it
	// said beside it.
	answered := func() (said string) {
		t.Helper()
		id := model.JobID(last.Load())
		for _, way := range ways {
			until(t, fmt.Sprintf("gacct has job %d", id), func() bool {
				out, errs, err := commandAs(t, c, 0, way, "gacct", "-nXj", fmt.Sprint(id), "-o", "jobid")
				said += errs
				return err == nil && strings.TrimSpace(out) == fmt.Sprint(id)
			})
		}
		return said
	}
	const byCopy = "these records are its copy's, dbd2"
	more(20)
	until(t, "the first answers", func() bool { return answered() == "" }) // it may have begun after its copy

	signalDbd(t, dir, dbdName, syscall.SIGKILL)
	more(20)
	if said := answered(); strings.Count(said, byCopy) < 2 {
		t.Errorf("with gdbd killed gacct says %q", said)
	}
	var r *proto.PingReply
	defer func() {
		if t.Failed() && r != nil {
			t.Logf("ping said last: %d wait, %+v", r.Outbox, r.Dbds)
		}
	}()
	until(t, "ping says that gdbd is down and lacks records, and nothing waits", func() bool {
		r = pingOf(t, c)
		return len(r.Dbds) == 2 && !r.Dbds[0].Up && r.Dbds[0].Behind > 0 && r.Dbds[1].Up && r.Outbox < 20
	})
	startDbd(t, dir)
	more(10)
	until(t, "the first answers again", func() bool { return answered() == "" })

	signalDbd(t, dir, dbdName, syscall.SIGSTOP)
	more(20)
	if said := answered(); strings.Count(said, byCopy) < 2 {
		t.Errorf("with gdbd stopped gacct says %q", said)
	}
	signalDbd(t, dir, dbdName, syscall.SIGCONT)
	_, first := dbdMember(t, dir, dbdName)
	id := model.JobID(last.Load())
	until(t, "the first one answers", func() bool {
		has, err := recordsAt(t, dir, first)
		if err != nil {
			return false
		}
		for k := range has {
			if k.job == id {
				return true
			}
		}
		t.Errorf("gdbd, which was stopped, answers without job %d", id)
		return true
	})

	signalDbd(t, dir, dbdCopyName, syscall.SIGKILL) // the copy's turn
	more(20)
	startDbd(t, dir)
	end()
	until(t, "the first answers", func() bool { return answered() == "" })
	book.check(t, c)
	if n := untilSame(t, dir); n < book.count() {
		t.Errorf("%d records of %d jobs", n, book.count())
	}
	if r := pingOf(t, c); len(r.DbdNotes)+len(r.Dbds[1].Notes) > 0 {
		t.Errorf("%q, %q", r.DbdNotes, r.Dbds[1].Notes)
	}
}

// TestGdbdIsCopiedWhole: what the controllers don't have any more is copied from the other gdbd, to a copy without
// anything, to a copy that was away for too long, and to a first one that was put back to a backup or lost its disk.
// Nothing is missing afterwards.
func TestGdbdIsCopiedWhole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "whole")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 8, MemMiB: 4000, Gdbds: 2})
	f, err := os.OpenFile(c.Conf, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("DbdResendRecords=2\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	setConfig(t, c)
	file := filepath.Join(t.TempDir(), "backup")
	mustBackup(t, c, "save", file)
	total := 0
	run := func() {
		t.Helper()
		var last model.JobID
		for range 10 {
			last = submit(t, c, "true\n", nil)
			total++
		}
		untilState(t, c, last, model.Completed)
		var out, said string
		var ping *proto.PingReply
		defer func() {
			if t.Failed() {
				t.Logf("of %d jobs gacct has %q, %s; ping said %d, %+v", total, out, said, ping.Outbox, ping.Dbds)
			}
		}()
		until(t, "all is on record", func() bool {
			var err error
			out, said, err = commandAs(t, c, 0, "", "gacct", "-nX", "-o", "state")
			ping = pingOf(t, c)
			return err == nil && strings.Count(out, "COMPLETED") == total && ping.Outbox == 0
		})
	}
	same := func(what string) {
		t.Helper()
		until(t, what+": all are up", func() bool {
			r := pingOf(t, c)
			return r.Dbds[0].Up && r.Dbds[1].Up
		})
		if n := untilSame(t, dir); n < total {
			t.Errorf("%s: %d records of %d jobs", what, n, total)
		}
		if r := pingOf(t, c); len(r.DbdNotes)+len(r.Dbds[1].Notes) > 0 {
			t.Errorf("%s: %q, %q", what, r.DbdNotes, r.Dbds[1].Notes)
		}
	}
	run()
	// With so few records kept, the one that was slower must take a copy already now, before the other one dies.
	same("both at the beginning")
	mustBackup(t, c, "save", filepath.Join(t.TempDir(), "copy"), "--copy")
	for _, x := range []struct {
		what, name string
		while      func(state string)
	}{
		{"a copy that was away for too long", dbdCopyName, func(string) {}},
		{"an empty copy", dbdCopyName, func(state string) {
			if err := os.Remove(filepath.Join(state, "acct.db")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a first one that was put back", dbdName, func(string) { mustBackup(t, c, "restore", file) }},
		{"an empty first one", dbdName, func(state string) {
			if err := os.Remove(filepath.Join(state, "acct.db")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		signalDbd(t, dir, x.name, syscall.SIGKILL)
		x.while(layout(dir).at("state", x.name))
		run()
		startDbd(t, dir)
		same(x.what)
	}
}
