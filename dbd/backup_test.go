package dbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/dbd/backup"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
)

// adminOf gives the administrator of a daemon.
func adminOf(d *daemonInTest) *Admin {
	return &Admin{Dir: filepath.Dir(d.db.path), Addr: d.Addr(), PKI: d.pki, Cluster: "c"}
}

// TestBackupWhileRecordsArrive: a backup of a running gdbd has every record up to one number and none after it, and is
// the database again when it is restored.
func TestBackupWhileRecordsArrive(t *testing.T) {
	d := startDaemon(t, func(o *Options) { o.Cluster = "c" })
	m := mustDial(t, d.Addr(), d.pki)
	var stop, acked sync.WaitGroup
	ending := make(chan struct{})
	acked.Add(20)
	stop.Go(func() {
		for n := uint64(0); ; n += 50 {
			select {
			case <-ending:
				return
			default:
			}
			p := &proto.Put{Cluster: "c", Acked: n}
			for i := n + 1; i <= n+50; i++ {
				p.Records = append(p.Records, rec(i, model.JobID(i)))
			}
			if seq, err := call(t.Context(), m, p); err != nil || seq != n+50 {
				t.Errorf("%d, %v", seq, err)
				return
			}
			if n < 20*50 {
				acked.Done()
			}
		}
	})
	acked.Wait()
	for i := range 5 {
		path := filepath.Join(t.TempDir(), "b")
		h, err := adminOf(d).Save(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if h.Jobs < 1000 || len(h.Series) != 1 || h.Series[0].Seq != uint64(h.Jobs) || h.Cluster != "c" {
			t.Fatalf("%d: %+v", i, h)
		}
		dir := filepath.Join(t.TempDir(), "restored")
		r, err := RestoreBackup(path, dir, "c", time.Now(), nil)
		if err != nil || r.Kept != "" {
			t.Fatal(r, err)
		}
		back, end := openTest(t, dir)
		found := ask(t, back, &proto.AcctRequest{Duplicates: true})
		for k, r := range found {
			if r.Seq != uint64(k+1) {
				t.Fatalf("record %d has the number %d", k+1, r.Seq)
			}
		}
		if len(found) != int(h.Jobs) {
			t.Errorf("%d records, not %d", len(found), h.Jobs)
		}
		sane(t, back)
		end()
	}
	close(ending)
	stop.Wait()
	if _, err := adminOf(d).Save(t.Context(), filepath.Join(filepath.Dir(d.db.path), fileName)); err == nil {
		t.Error("a file was overwritten")
	}
	reply, err := adminOf(d).State(t.Context())
	if err != nil || len(reply.Series) != 1 || reply.Series[0].Seq < 1000 || len(reply.Notes) > 0 {
		t.Errorf("%+v, %v", reply, err)
	}
	if err := adminOf(d).BeginEmpty(t.Context()); err == nil || !strings.Contains(err.Error(), "no need to") {
		t.Error(err)
	}
}

// saved makes a database with n records and a backup of it.
func saved(t *testing.T, n uint64) (dir, path string) {
	t.Helper()
	dir, path = t.TempDir(), filepath.Join(t.TempDir(), "backup")
	d, stop := openTest(t, dir)
	for i := uint64(1); i <= n; i++ {
		mustPut(t, d, i, rec(i, model.JobID(i), task(1, int32(i))))
	}
	stop()
	if _, err := (&Admin{Dir: dir, Cluster: "c"}).Save(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// TestBackupDamaged: a backup with a changed byte anywhere, or cut off, or with more bytes, is refused, and the
// database stays as it was.
func TestBackupDamaged(t *testing.T) {
	dir, path := saved(t, 30)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	random := newRand(t)
	try := func(what string, bad []byte) {
		t.Helper()
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged *backup.DamagedError
		if _, err := VerifyBackup(path, nil); !errors.As(err, &damaged) {
			t.Errorf("%s: verified: %v", what, err)
		}
		if _, err := RestoreBackup(path, dir, "c", time.Now(), nil); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
	for range 100 {
		bad := bytes.Clone(good)
		bad[random.IntN(len(bad))] ^= 1 << random.IntN(8)
		try("a flipped bit", bad)
	}
	for range 20 {
		try("cut off", good[:random.IntN(len(good))])
	}
	try("longer", append(bytes.Clone(good), 0))
	try("empty", nil)
	after, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database has changed (%v)", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 { // the database and its lock
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := VerifyBackup(path, nil); err != nil || h.Jobs != 30 {
		t.Error(h, err)
	}
}

// TestBackupOfAnUnsoundDatabase: a backup whose checksum is right, of a database that is not, is refused.
func TestBackupOfAnUnsoundDatabase(t *testing.T) {
	dir, path := saved(t, 30)
	file := filepath.Join(dir, fileName)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("/home/ann/project/train.sh"), []byte("/home/ann/project/Train.sh"))
	f, err := backup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Header
	_ = f.Close() // it was only read
	var out bytes.Buffer
	w, err := backup.NewWriter(&out, &h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data[:h.Bytes]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyBackup(path, nil); err == nil || !strings.Contains(err.Error(), "job's record is wrong") {
		t.Error(err)
	}
}

// TestRestoreRefusals: no restore under a running gdbd, none of another cluster; what was there is kept.
func TestRestoreRefusals(t *testing.T) {
	dir, path := saved(t, 3)
	d, stop := openTest(t, dir)
	mustPut(t, d, 4, rec(4, 4))
	a := &Admin{Dir: dir, Cluster: "c"}
	for what, f := range map[string]func() error{
		"restore": func() error { _, err := a.Restore(path); return err },
		"compact": func() error { _, err := a.Compact(); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("%s of a running gdbd: %v", what, err)
		}
	}
	stop()
	a.Cluster = "other"
	if _, err := a.Restore(path); err == nil || !strings.Contains(err.Error(), "is a backup of cluster c") {
		t.Error(err)
	}
	a.Cluster = "c"
	r, err := a.Restore(path)
	if err != nil {
		t.Fatal(err)
	}
	d, stop = openTest(t, dir)
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 2.1:CD 3.1:CD")
	stop()
	if err := os.Rename(r.Kept, r.Path); err != nil {
		t.Fatal(err)
	}
	d, _ = openTest(t, dir)
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 2.1:CD 3.1:CD 4.1:CD")
}

// TestCompact: what remains is the same, in less room.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTest(t, dir)
	var batch []*model.Record
	for i := uint64(1); i <= 4000; i++ {
		batch = append(batch, rec(i, model.JobID(i)))
	}
	mustPut(t, d, 4000, batch...)
	batch = nil
	for i := uint64(4001); i <= 7900; i++ {
		batch = append(batch, rec(i, model.JobID(i-4000), purged))
	}
	mustPut(t, d, 7900, batch...)
	want := names(ask(t, d, &proto.AcctRequest{}))
	stop()
	c, err := (&Admin{Dir: dir}).Compact()
	if err != nil {
		t.Fatal(err)
	}
	if c.After > c.Before/4 {
		t.Errorf("%+v", c)
	}
	d, _ = openTest(t, dir)
	wantNames(t, d, &proto.AcctRequest{}, want)
	mustPut(t, d, 7901, rec(7901, 9000))
}

// TestLostDatabase: gdbd with nothing of a cluster that is not new refuses its records and all questions until it is
// told to begin empty, once; a new cluster needs no word.
func TestLostDatabase(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	d := startDaemon(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), nil))
	})
	m := mustDial(t, d.Addr(), d.pki)
	put := func(instance, acked, dropped uint64, records ...*model.Record) (uint64, error) {
		return call(t.Context(), m, &proto.Put{Cluster: "c", Instance: instance, Acked: acked, Dropped: dropped,
			Records: records})
	}
	if _, _, err := stream(t.Context(), m, &proto.AcctRequest{}); err == nil ||
		!strings.Contains(err.Error(), "no controller has said yet whether the cluster is new") {
		t.Errorf("before any controller has asked: %v", err)
	}
	if seq, err := put(1, 0, 0, rec(1, 1)); err != nil || seq != 1 {
		t.Fatal(seq, err)
	}
	for range 3 {
		_, err := put(2, 90, 60)
		if err == nil || !strings.Contains(err.Error(), "gbatch backup begin-empty") ||
			!strings.Contains(err.Error(), "gbatch backup restore") || !strings.Contains(err.Error(), "from number 61 on") {
			t.Fatal(err)
		}
		if _, err := put(2, 90, 60, rec(91, 7)); err == nil {
			t.Fatal("a record was taken")
		}
	}
	if _, _, err := stream(t.Context(), m, &proto.AcctRequest{}); err == nil ||
		!strings.Contains(err.Error(), "which is not new") {
		t.Error(err)
	}
	mu.Lock()
	if n := strings.Count(log.String(), "accounting records are refused"); n != 1 {
		t.Errorf("said %d times in the log", n)
	}
	mu.Unlock()
	if err := adminOf(d).BeginEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seq, err := put(2, 90, 60); err != nil || seq != 0 {
		t.Fatal(seq, err)
	}
	if seq, err := put(2, 90, 60, rec(61, 7), rec(91, 8)); err != nil || seq != 91 {
		t.Fatal(seq, err)
	}
	if _, _, err := stream(t.Context(), m, &proto.AcctRequest{}); err != nil {
		t.Error(err)
	}
	body, err := proto.Encode(&proto.Put{Cluster: "c", Instance: 2, Acked: 91, Dropped: 60})
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Call(t.Context(), proto.KindPut, body)
	var reply proto.PutReply
	if err := errors.Join(err, proto.Decode(f.Body, &reply)); err != nil {
		t.Fatal(err)
	}
	if len(reply.Notes) != 1 || !strings.Contains(reply.Notes[0], "(numbers 1 to 60) are missing for good") {
		t.Errorf("%q", reply.Notes)
	}
	if _, err := put(3, 5, 0); err == nil {
		t.Error("it begins empty a second time")
	}
}

// TestRestoredBackupHasHoles: after a restored backup the records that the controller does not keep any more are named,
// the others are taken once.
func TestRestoredBackupHasHoles(t *testing.T) {
	dir, path := saved(t, 10)
	d, stop := openTest(t, dir)
	stop()
	if _, err := (&Admin{Dir: dir}).Restore(path); err != nil {
		t.Fatal(err)
	}
	d, _ = openTest(t, dir)
	where := func(acked, dropped uint64) proto.PutReply {
		t.Helper()
		r, err := d.position(t.Context(), &proto.Put{Cluster: "c", Acked: acked, Dropped: dropped})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := where(40, 10); r.Seq != 10 || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
	for range 2 {
		if r := where(40, 15); r.Seq != 10 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "(numbers 11 to 15)") {
			t.Errorf("%+v", r)
		}
	}
	var batch []*model.Record
	for i := uint64(16); i <= 40; i++ {
		batch = append(batch, rec(i, model.JobID(i)))
	}
	for range 2 {
		seq, err := d.put(t.Context(), &proto.Put{Cluster: "c", Acked: 40, Dropped: 15, Records: batch})
		if err != nil || seq != 40 {
			t.Fatal(seq, err)
		}
	}
	if n := len(ask(t, d, &proto.AcctRequest{Duplicates: true})); n != 35 {
		t.Errorf("%d records", n)
	}
	if r := where(40, 20); r.Seq != 40 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestHeadPageDamaged: a file whose newer head page is damaged opens without its last transaction, and the log says so.
func TestHeadPageDamaged(t *testing.T) {
	var dir, path string
	var data []byte
	newer := 0
	for alone := false; !alone; { // until nothing else is written meanwhile, such as sums by hour
		dir = t.TempDir()
		d, stop := openTest(t, dir)
		mustPut(t, d, 1, rec(1, 1))
		before := d.txid()
		mustPut(t, d, 2, rec(2, 2))
		newer = d.txid()
		stop()
		path = filepath.Join(dir, fileName)
		var err error
		if data, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		const txidAt = 64 // in a head page
		last := binary.LittleEndian.Uint64(data[newer%2*os.Getpagesize()+txidAt:])
		other := binary.LittleEndian.Uint64(data[(newer+1)%2*os.Getpagesize()+txidAt:])
		alone = newer == before+1 && last == uint64(newer) && other < last
	}
	data[newer%2*os.Getpagesize()+40] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	back, err := openDB(dir, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	startTest(t, back)
	wantNames(t, back, &proto.AcctRequest{}, "1.1:CD")
	if !strings.Contains(log.String(), "one of the two head pages") {
		t.Errorf("the log: %s", &log)
	}
}

// TestRoles: an accounting daemon's certificate gets backups, but brings no records and asks nothing about jobs.
func TestRoles(t *testing.T) {
	d := startDaemon(t, nil)
	m, err := dial(t, d.Addr(), d.pki, pki.RoleDBD)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t.Context(), m, &proto.Put{Cluster: "c"}); err == nil {
		t.Error("records were taken")
	}
	if _, _, err := stream(t.Context(), m, &proto.AcctRequest{}); err == nil {
		t.Error("a question was answered")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestBackupCutOff: a backup that is interrupted, or whose gdbd ends meanwhile, leaves no file, and the next one works.
func TestBackupCutOff(t *testing.T) {
	d := startDaemon(t, nil)
	fill(t, d.db, 1, 30000, t0, second)
	path := filepath.Join(t.TempDir(), "b")
	a := adminOf(d)
	// save waits until the daemon has noticed that the one before was interrupted.
	save := func(ctx context.Context, path string) error {
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the pace of looking
			_, err := a.Save(ctx, path)
			if err == nil || !strings.Contains(err.Error(), "another backup is being made") || time.Now().After(until) {
				return err
			}
		}
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		a.Progress = func(what string, _, _ int64) {
			if what == "saving" {
				cancel()
			}
		}
		if err := save(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
		cancel()
	}
	a.Progress = nil
	if err := save(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	var ended sync.Once
	a.Progress = func(what string, _, _ int64) {
		if what == "saving" {
			ended.Do(func() {
				if err := d.stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err := save(t.Context(), path+"2"); err == nil {
		t.Error("gdbd ended, and the backup is complete")
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestBackupOfASilentDaemon: a gdbd that hangs is given up on.
func TestBackupOfASilentDaemon(t *testing.T) {
	dir := t.TempDir()
	certificates(t, filepath.Join(dir, "pki"))
	addr, gdbd, _ := startProcess(t, dir)
	a := &Admin{Dir: filepath.Join(dir, "db"), Addr: addr, PKI: filepath.Join(dir, "pki")}
	path := filepath.Join(dir, "b")
	if _, err := a.Save(t.Context(), path+"1"); err != nil {
		t.Fatal(err)
	}
	if err := gdbd.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a.silence = 200 * time.Millisecond
	if _, err := a.Save(t.Context(), path); err == nil || !strings.Contains(err.Error(), "has sent nothing for 200ms") {
		t.Error(err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
