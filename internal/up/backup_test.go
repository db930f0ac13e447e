package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// backupVerb runs gbatch backup as a person does, and gives what it prints.
func backupVerb(t *testing.T, c *Cluster, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs(t), "gbatch"), append([]string{"backup"}, args...)...)
	cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf)
	out, err := cmd.CombinedOutput()
	t.Logf("gbatch backup %s: %s", strings.Join(args, " "), out)
	return string(out), err
}

func mustBackup(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := backupVerb(t, c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stopDbd ends gdbd; startDbd brings it up again.
func stopDbd(t *testing.T, dir string, sig syscall.Signal) {
	t.Helper()
	for _, d := range status(t, dir).Daemons {
		if p, ok := processOf(d.PID); ok && d.Role == RoleAccounting {
			if err := p.signal(sig); err != nil {
				t.Fatal(err)
			}
			gone([]process{p}, nodePatience)
		}
	}
}

func startDbd(t *testing.T, dir string) {
	t.Helper()
	if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
}

func pingOf(t *testing.T, c *Cluster) *proto.PingReply {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.PingReply
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	return &reply
}

func acctError(c *Cluster) error {
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	return cl.Stream(proto.KindAcct, &proto.AcctRequest{}, func([]byte) error { return nil })
}

// TestBackupUnderLoad: a backup is made while jobs run and records stream in, the database is lost later, the backup is
// put back, and in the end accounting has every job exactly once: the controllers send again what came after the
// backup.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	dir, ran := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "ran")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 8, MemMiB: 8000})
	book := newSoakBook(ran)
	var submitters sync.WaitGroup
	ending := make(chan struct{})
	end := sync.OnceFunc(func() { close(ending); submitters.Wait() })
	defer end()
	for range 2 {
		submitters.Go(func() {
			for {
				select {
				case <-ending:
					return
				default:
				}
				book.ack(t, soakSubmit(t, c, noteRun(ran)))
				time.Sleep(20 * time.Millisecond) // a cluster with load, not a full one
			}
		})
	}
	more := func(n int) {
		t.Helper()
		from := book.count()
		until(t, fmt.Sprintf("%d more jobs are submitted", n), func() bool { return book.count() >= from+n })
	}
	file := filepath.Join(t.TempDir(), "backup")
	more(30)
	if out := mustBackup(t, c, "save", file); !strings.Contains(out, "saved and verified") {
		t.Error(out)
	}
	more(30)
	if out := mustBackup(t, c, "verify", file); !strings.Contains(out, "is whole") {
		t.Error(out)
	}
	if out, err := backupVerb(t, c, "restore", file); err == nil || !strings.Contains(out, "stop it first") {
		t.Errorf("restored under a running gdbd: %v", err)
	}
	stopDbd(t, dir, syscall.SIGKILL)
	acct := filepath.Join(dir, "state", "dbd", "acct.db")
	if err := os.Remove(acct); err != nil {
		t.Fatal(err)
	}
	more(20)
	mustBackup(t, c, "restore", file)
	more(10)
	startDbd(t, dir)
	until(t, "gdbd takes records", func() bool { return pingOf(t, c).DbdUp })
	end()
	book.check(t, c)
	if notes := pingOf(t, c).DbdNotes; len(notes) > 0 {
		t.Errorf("%q", notes)
	}

	// What was put aside can be compacted, and it is the same.
	stopDbd(t, dir, syscall.SIGTERM)
	mustBackup(t, c, "compact")
	mustBackup(t, c, "save", file+"2")
	startDbd(t, dir)
	book.check(t, c)
}

// TestDatabaseMissing: a gdbd whose database is gone says so, takes no records and answers nothing, until it is told
// to begin empty; jobs go on meanwhile. A new cluster needs no word.
func TestDatabaseMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 4, MemMiB: 4000})
	first := submit(t, c, "true\n", nil)
	untilState(t, c, first, model.Completed)
	known := func(id model.JobID) bool {
		found := false
		cl := client.New(filepath.Join(c.Dir, "run"))
		defer cl.Close()
		err := cl.Stream(proto.KindAcct, &proto.AcctRequest{}, func(body []byte) error {
			var chunk proto.RecordsChunk
			err := proto.Decode(body, &chunk)
			for _, r := range chunk.Records {
				found = found || r.Job == id && r.State.Finished()
			}
			return err
		})
		return err == nil && found
	}
	until(t, "the first job is on record", func() bool { return known(first) })
	until(t, "nothing waits", func() bool { return pingOf(t, c).Outbox == 0 })

	stopDbd(t, dir, syscall.SIGTERM)
	if err := os.Remove(filepath.Join(dir, "state", "dbd", "acct.db")); err != nil {
		t.Fatal(err)
	}
	// gbatch up waits for a gdbd that takes records, and says why this one does not.
	done := make(chan error, 1)
	go func() { _, _, err := tryUp(t, Options{Dir: dir}); done <- err }()
	until(t, "ping says why", func() bool { return strings.Contains(pingOf(t, c).DbdWhy, "gbatch backup begin-empty") })
	until(t, "gacct says why", func() bool {
		err := acctError(c)
		return err != nil && strings.Contains(err.Error(), "which is not new") &&
			strings.Contains(err.Error(), "gbatch backup restore FILE")
	})
	second := submit(t, c, "true\n", nil)
	untilState(t, c, second, model.Completed)
	if pingOf(t, c).Outbox == 0 {
		t.Error("its record does not wait")
	}
	mustBackup(t, c, "begin-empty")
	until(t, "both jobs are on record", func() bool { return known(first) && known(second) })
	log, err := os.ReadFile(filepath.Join(dir, "log", "dbd.log"))
	if err != nil || strings.Count(string(log), "accounting records are refused") != 1 ||
		!strings.Contains(string(log), "begins empty, as was asked") {
		t.Errorf("%v; the log of gdbd: %s", err, log)
	}
	select {
	case err := <-done:
		t.Log("gbatch up:", err)
	case <-time.After(time.Minute):
		t.Error("gbatch up does not end")
	}
}
