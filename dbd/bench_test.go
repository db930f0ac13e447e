package dbd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// fill puts jobs that began at from, one every gap, each some minutes long, in batches of 1000; it gives the next
// sequence.
func fill(t testing.TB, d *db, seq uint64, jobs int, from, gap model.Time) uint64 {
	t.Helper()
	var batch []*model.Record
	for i := range jobs {
		r := rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)))
		r.Submit = from + model.Time(i)*gap
		r.Eligible = r.Submit
		r.Start = r.Submit + model.Time(i%97)*second
		r.End = r.Start + model.Time(1+i%600)*second
		if i%20 == 0 {
			failed(r)
		}
		batch = append(batch, r)
		seq++
		if len(batch) == 1000 || i == jobs-1 {
			mustPut(t, d, seq-1, batch...)
			batch = batch[:0]
		}
	}
	return seq
}

func BenchmarkIngest1000(b *testing.B) { benchmarkIngest(b, 1000) }
func BenchmarkIngest100(b *testing.B)  { benchmarkIngest(b, 100) }
func BenchmarkIngest1(b *testing.B)    { benchmarkIngest(b, 1) }

// benchmarkIngest measures final records that the database has not seen, per record.
func benchmarkIngest(b *testing.B, batch int) {
	d, _ := openTest(b, b.TempDir())
	records := make([]*model.Record, batch)
	seq := uint64(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for i := range records {
			records[i] = rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)), later(model.Time(seq)*second))
			seq++
		}
		mustPut(b, d, seq-1, records...)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkLives measures whole jobs as the controller sends them: pending, running, ended.
func BenchmarkLives(b *testing.B) {
	d, _ := openTest(b, b.TempDir())
	const batch = 300
	seq, job := uint64(1), model.JobID(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for _, phase := range []change{waiting, running, func(*model.Record) {}} {
			records := make([]*model.Record, batch)
			for i := range records {
				id := job + model.JobID(i)
				records[i] = rec(seq, id, user(uint32(1000+id*7919%300)), later(model.Time(id)*second), phase)
				seq++
			}
			mustPut(b, d, seq-1, records...)
		}
		job += batch
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkQuery asks a database of 11 days with 40,000 jobs each.
func BenchmarkQuery(b *testing.B) {
	d, _ := openTest(b, b.TempDir())
	const perDay = 40000
	start := t0 - 5*day
	fill(b, d, 1, 11*perDay, start, day/perDay)
	at := start + 5*day
	for _, c := range []struct {
		name string
		req  proto.AcctRequest
		want [2]int
	}{
		{"day", proto.AcctRequest{Start: at, End: at + day - 1}, [2]int{39000, 41000}},
		{"day-account", proto.AcctRequest{Start: at, End: at + day - 1, Accounts: []string{"chem"}}, [2]int{0, 0}},
		{"day-failed", proto.AcctRequest{Start: at, End: at + day - 1, States: []model.JobState{model.Failed}},
			[2]int{1900, 2100}},
		{"user-day", proto.AcctRequest{Start: at, End: at + day - 1, Users: []uint32{1005}}, [2]int{120, 150}},
		{"user-all", proto.AcctRequest{Users: []uint32{1005}}, [2]int{1400, 1500}},
		{"job", proto.AcctRequest{Jobs: []model.JobRef{{Job: 200000, Task: model.NoTask}}}, [2]int{1, 1}},
		{"running-now", proto.AcctRequest{Start: t0 + 30*day, End: t0 + 30*day, States: []model.JobState{model.Running}},
			[2]int{0, 0}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				n, bytes := 0, 0
				err := d.query(b.Context(), &c.req, func(records [][]byte) error {
					n += len(records)
					for _, r := range records {
						bytes += len(r)
					}
					return nil
				})
				if err != nil || n < c.want[0] || n > c.want[1] {
					b.Fatalf("%d records, %v", n, err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	d, stop := openTest(b, dir)
	fill(b, d, 1, 200000, t0, second)
	stop()
	var check time.Duration
	for b.Loop() {
		at := time.Now()
		if _, err := checkFile(d.path); err != nil {
			b.Fatal(err)
		}
		check += time.Since(at)
		d, err := openDB(dir, testLog(b), time.Now)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(check.Milliseconds())/float64(b.N), "check-ms/op")
}

// BenchmarkDaemonPut is one controller that ships batches of 1000 over TLS.
func BenchmarkDaemonPut(b *testing.B) {
	d := startDaemon(b, nil)
	m := mustDial(b, d.Addr(), d.pki)
	records := make([]*model.Record, 1000)
	seq := uint64(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += len(records) {
		for i := range records {
			records[i] = rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)), later(model.Time(seq)*second))
			seq++
		}
		if _, err := call(b.Context(), m, &proto.Put{Cluster: "c", Records: records}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkDaemonDay is a day of 40,000 jobs over TLS, decoded by the client.
func BenchmarkDaemonDay(b *testing.B) {
	d := startDaemon(b, nil)
	m := mustDial(b, d.Addr(), d.pki)
	const jobs = 40000
	fill(b, d.db, 1, jobs, t0, day/jobs)
	for b.Loop() {
		records, _, err := stream(b.Context(), m, &proto.AcctRequest{Start: t0})
		if err != nil || len(records) != jobs {
			b.Fatal(len(records), err)
		}
	}
}

// BenchmarkBackup saves, verifies, restores and compacts a month of a million jobs, through a gdbd that runs where one
// may. The metric is the time in that of cp.
func BenchmarkBackup(b *testing.B) {
	d := startDaemon(b, nil)
	const jobs = 1_000_000
	fill(b, d.db, 1, jobs, t0-10*day, 20*day/jobs)
	dir := b.TempDir()
	clock := func(f func() error) time.Duration {
		b.Helper()
		begin := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	size, err := sizeOf(d.db.path)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			var cp, took time.Duration
			for b.Loop() {
				cp += clock(func() error {
					_ = os.Remove(filepath.Join(dir, "cp")) // of the round before
					return exec.Command("sh", "-c", "cp "+d.db.path+" "+dir+"/cp && sync "+dir+"/cp").Run()
				})
				took += clock(f)
			}
			b.ReportMetric(float64(took)/float64(cp), "cp")
			b.ReportMetric(float64(cp.Milliseconds())/float64(b.N), "cp-ms")
			b.ReportMetric(float64(size>>20), "MiB")
		})
	}
	path, a := filepath.Join(dir, "backup"), adminOf(d)
	run("save", func() error {
		_ = os.Remove(path) // of the round before
		h, err := a.Save(b.Context(), path)
		if err == nil && h.Jobs != jobs {
			err = fmt.Errorf("%d records", h.Jobs)
		}
		return err
	})
	run("verify", func() error { _, err := VerifyBackup(path, nil); return err })
	if err := d.stop(); err != nil {
		b.Fatal(err)
	}
	a.Dir, a.Addr = filepath.Join(dir, "db"), ""
	run("restore", func() error {
		_ = os.RemoveAll(a.Dir) // of the round before
		_, err := a.Restore(path)
		return err
	})
	run("compact", func() error { _, err := a.Compact(); return err })
}
