package dbd

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/usage"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/trail"
)

// reportOf asks, and gives all parts of the answer as one.
func reportOf(t testing.TB, d *db, rq proto.ReportRequest) *proto.ReportChunk {
	t.Helper()
	all := &proto.ReportChunk{}
	q := &proto.UsageQuery{Report: rq, Prices: testPrices}
	note, err := d.report(t.Context(), q, func(c *proto.ReportChunk) error {
		all.Bills, all.Running = append(all.Bills, c.Bills...), all.Running+c.Running
		all.Rows, all.Uses = append(all.Rows, c.Rows...), append(all.Uses, c.Uses...)
		all.Resvs = append(all.Resvs, c.Resvs...)
		all.Outages, all.Trail = append(all.Outages, c.Outages...), append(all.Trail, c.Trail...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all.Note = note
	return all
}

// naiveUsage sums usage second by second of each record's run, the obvious way.
func naiveUsage(records map[model.JobID]*model.Record, rq *proto.ReportRequest, now int64) map[string]string {
	type sum struct{ cpu, gpu, jobs, started, wait, ended int64 }
	sums := map[string]*sum{}
	for _, r := range records {
		if len(rq.Users) > 0 && !slices.Contains(rq.Users, r.User) ||
			len(rq.Partitions) > 0 && !slices.Contains(rq.Partitions, r.Partition) {
			continue
		}
		from, to := int64(rq.Start)/1000, int64(rq.End)/1000
		key := ""
		if rq.By&proto.ByAccount != 0 {
			key += r.Account + "/"
		}
		if rq.By&proto.ByUser != 0 {
			key += r.User + "/"
		}
		if rq.By&proto.BySize != 0 {
			key += fmt.Sprint(r.AllocCPUs) + "/"
		}
		var s sum
		start, end := int64(r.Start)/1000, int64(r.End)/1000
		if r.End != 0 && from <= end && end < to {
			s.ended++
		}
		if r.Start != 0 {
			stop := end - r.SuspendMS/1000
			if r.End == 0 {
				stop = now
			}
			stop = max(stop, start)
			in := max(0, min(stop, to)-max(start, from))
			s.cpu, s.gpu = in*int64(r.AllocCPUs), in*2
			if start >= from && start < to {
				s.jobs, s.started = 1, 1
				s.wait = start - int64(r.Eligible)/1000
			} else if start < from && stop > from {
				s.jobs = 1
			}
		}
		if s == (sum{}) {
			continue
		}
		if sums[key] == nil {
			sums[key] = &sum{}
		}
		x := sums[key]
		x.cpu, x.gpu, x.jobs, x.started = x.cpu+s.cpu, x.gpu+s.gpu, x.jobs+s.jobs, x.started+s.started
		x.wait, x.ended = x.wait+s.wait, x.ended+s.ended
	}
	out := map[string]string{}
	for k, s := range sums {
		out[k] = fmt.Sprintf("cpu %d gpu %d jobs %d started %d waited %d ended %d", s.cpu, s.gpu, s.jobs, s.started, s.wait,
			s.ended)
	}
	return out
}

// usageText writes rows as naiveUsage does.
func usageText(rows []proto.ReportRow, by proto.ReportBy) map[string]string {
	out := map[string]string{}
	for _, r := range rows {
		key := ""
		if by&proto.ByAccount != 0 {
			key += r.Account + "/"
		}
		if by&proto.ByUser != 0 {
			key += r.User + "/"
		}
		if by&proto.BySize != 0 {
			key += fmt.Sprint(r.CPUs) + "/"
		}
		ended := int64(0)
		for _, n := range r.Ended {
			ended += n
		}
		out[key] = fmt.Sprintf("cpu %d gpu %d jobs %d started %d waited %d ended %d", model.CountTRES(r.TRES, "cpu"),
			model.CountTRES(r.TRES, "gres/gpu"), r.Jobs, r.Started, r.WaitS, ended)
	}
	return out
}

// TestReportsAgreeWithRecords: whatever records came in which order, were replaced, purged, or came before there were
// sums, a report of any window is what the records say.
func TestReportsAgreeWithRecords(t *testing.T) {
	for round := range 4 {
		rng := rand.New(rand.NewPCG(uint64(round), 7))
		dir := t.TempDir()
		now := t0 + 3*day
		d, stop := openTestAt(t, dir, now)
		have := map[model.JobID]*model.Record{}
		seq := uint64(0)
		for step := range 12 {
			var batch []*model.Record
			for range 40 {
				seq++
				id := model.JobID(1 + rng.IntN(200))
				r := rec(seq, id)
				r.Account, r.User = pick(rng, "bio", "chem", "Phys"), pick(rng, "ann", "bob", "eve")
				r.Partition, r.QOS = pick(rng, "cpu", "gpu"), "normal"
				if old := have[id]; old != nil {
					r.Account, r.User, r.Partition = old.Account, old.User, old.Partition
				}
				r.Submit = t0 - model.Time(rng.IntN(60*24*60))*minute
				r.Eligible = r.Submit + model.Time(rng.IntN(100))*second
				r.Start = r.Eligible + model.Time(rng.IntN(3000))*second + model.Time(rng.IntN(1000))
				r.AllocCPUs, r.AllocGres = int32(1+rng.IntN(3)*60), []model.GresCount{{Name: "gpu", Type: "a100", Count: 2}}
				r.End = r.Start + model.Time(rng.IntN(40*3600))*second
				switch rng.IntN(8) {
				case 0:
					r.State, r.End = model.Running, 0
				case 1:
					r.State, r.End, r.Start, r.AllocCPUs = model.Pending, 0, 0, 0
				case 2:
					r.State, r.SuspendMS = model.Completed, int64(rng.IntN(3600))*1000
				case 3:
					r.End += 20 * day
				}
				if r.End > now {
					r.State, r.End = model.Running, 0
				}
				batch = append(batch, r)
				if rng.IntN(15) == 0 {
					purged(r)
					delete(have, id)
				} else {
					copied := *r
					have[id] = &copied
				}
			}
			mustPut(t, d, seq, batch...)
			if step == 5 && round%2 == 1 { // as if all of it had come before there were sums
				if err := d.alter(t.Context(), func(tx *bolt.Tx) error { return tx.DeleteBucket(keyUsage) }); err != nil {
					t.Fatal(err)
				}
				stop()
				d, stop = openTestAt(t, dir, now)
			}
		}
		if round%2 == 1 {
			awaitRolled(t, d)
		}
		for range 60 {
			rq := proto.ReportRequest{What: proto.ReportUsage, By: proto.ReportBy(rng.IntN(32)) &
				(proto.ByAccount | proto.ByUser | proto.BySize)}
			from := t0 - model.Time(rng.IntN(70*24))*hour
			rq.Start, rq.End = from, from+model.Time(1+rng.IntN(40*24))*hour
			if rng.IntN(2) == 0 {
				rq.Start += model.Time(rng.IntN(3600)) * second
				rq.End += model.Time(rng.IntN(3600)) * second
			}
			if rng.IntN(4) == 0 {
				rq.Users = []string{"ann"}
			}
			if rng.IntN(4) == 0 {
				rq.Partitions = []string{"gpu"}
			}
			want := naiveUsage(have, &rq, int64(now)/1000)
			if got := usageText(reportOf(t, d, rq).Rows, rq.By); !maps.Equal(got, want) {
				t.Fatalf("round %d, %+v:\n%v\nwanted\n%v", round, rq, got, want)
			}
			rq.Nodes = []string{"node01"} // all ran there: each record is looked at
			if got := usageText(reportOf(t, d, rq).Rows, rq.By); !maps.Equal(got, want) {
				t.Fatalf("round %d, each record, %+v:\n%v\nwanted\n%v", round, rq, got, want)
			}
		}
		stop()
	}
}

// awaitRolled waits until the sums of an older database are complete.
func awaitRolled(t testing.TB, d *db) {
	t.Helper()
	for {
		done := false
		if err := d.view(func(tx *bolt.Tx) error {
			top := tx.Bucket(keyUsage)
			done = top != nil && len(top.Get(keyMark)) == 0
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the sums are not complete")
		case <-time.After(time.Millisecond):
		}
	}
}

// told makes an entry of the trail.
func told(seq uint64, at model.Time, event, what, name, state string, tres ...model.TRESCount) *model.Record {
	return &model.Record{Seq: seq, Audit: &model.Audit{At: at, Event: event, What: what, Name: name, State: state,
		TRES: tres, By: "root", Text: "why"}}
}

// TestClusterTime: a cluster of two nodes of 4 CPUs over four hours, computed by hand.
func TestClusterTime(t *testing.T) {
	at := t0 / hour * hour
	d, _ := openTestAt(t, t.TempDir(), at+4*hour)
	cpu := func(n int64) model.TRESCount { return model.TRESCount{TRES: "cpu", Count: n} }
	job := func(seq uint64, id model.JobID, eligible, start, end model.Time, cpus int32) *model.Record {
		r := rec(seq, id)
		r.Submit, r.Eligible, r.Start, r.End, r.AllocCPUs, r.ReqCPUs = eligible, eligible, start, end, cpus, cpus
		r.AllocGres, r.ReqGres = nil, nil
		if start == 0 {
			r.State = model.Pending
		}
		return r
	}
	resv := told(7, at+2*hour, trail.Reserved, trail.Reservation, "maint", "", cpu(4))
	resv.Audit.Start, resv.Audit.End, resv.Audit.Nodes, resv.Audit.Maint = at+3*hour, at+4*hour, "n1", true
	mustPut(t, d, 10,
		told(1, at, trail.ClusterSize, trail.Cluster, "c", "", cpu(8)),
		// hour 0: 4 CPUs for 30 minutes; n2 down from 0:15 to 0:45
		job(2, 1, at, at+30*minute, at+60*minute, 4),
		told(3, at+15*minute, trail.NodeDown, trail.Node, "n2", trail.Down, cpu(4)),
		told(4, at+45*minute, trail.NodeUp, trail.Node, "n2", ""),
		// hour 1: all held, another waits: no room for planned time
		job(5, 2, at+1*hour, at+1*hour, at+2*hour, 8),
		job(6, 3, at+1*hour, at+2*hour+30*minute, at+3*hour, 8),
		// hour 3: n1 in maintenance, and down in it from 3:30 on
		resv,
		told(8, at+3*hour+30*minute, trail.NodeDrain, trail.Node, "n1", trail.Drain, cpu(4)),
		told(9, at+3*hour+40*minute, trail.ReservationOver, trail.Reservation, "none", ""),
		// waits since 2:00 and has not started
		job(10, 4, at+3*hour, 0, 0, 2))
	all := reportOf(t, d, proto.ReportRequest{What: proto.ReportCluster, Start: at, End: at + 4*hour})
	var got []string
	for _, u := range all.Uses {
		if u.TRES == "cpu" {
			got = append(got, fmt.Sprintf("total %d alloc %d down %d planned down %d planned %d", u.Total/60, u.Alloc/60,
				u.Down/60, u.PlannedDown/60, u.Planned/60))
		}
	}
	// CPU minutes. total 8*240. alloc 4*30 + 8*60 + 8*30. down 4*30. planned down 4*60. planned: hour 0: 4*30; hour 1:
	// none; hour 2: job 3 for 30 minutes: 8*30; hour 3: job 4: 2*60.
	want := "total 1920 alloc 840 down 120 planned down 240 planned 480"
	if len(got) != 1 || got[0] != want {
		t.Errorf("%q, wanted %q", got, want)
	}
	outages := reportOf(t, d, proto.ReportRequest{What: proto.ReportEvents, Start: at, End: at + 4*hour}).Outages
	var lines []string
	for _, o := range outages {
		from, to := (o.Start-at)/minute, (o.End-min(o.End, at))/minute
		lines = append(lines, fmt.Sprintf("%q %d-%d %s", o.Node, from, to, o.State))
	}
	if got, want := strings.Join(lines, "; "), `"" 0-0 ; "n2" 15-45 DOWN; "n1" 210-0 DRAIN`; got != want {
		t.Errorf("%s, wanted %s", got, want)
	}
}

// TestReservedTime: what a reservation had and what its jobs held, also after it was changed while it ran.
func TestReservedTime(t *testing.T) {
	at := t0 / hour * hour
	d, _ := openTestAt(t, t.TempDir(), at+10*hour)
	set := func(seq uint64, now, from, to model.Time, cpus int64, gone bool) *model.Record {
		r := told(seq, now, trail.Reserved, trail.Reservation, "class", "", model.TRESCount{TRES: "cpu", Count: cpus})
		r.Audit.Start, r.Audit.End, r.Audit.Gone = from, to, gone
		if gone {
			r.Audit.Event = trail.ReservationOver
		}
		return r
	}
	job := rec(4, 1)
	job.Eligible, job.Start, job.End, job.AllocCPUs, job.Reservation = at+hour, at+90*minute, at+4*hour, 2, "class"
	mustPut(t, d, 5, set(1, at, at+hour, at+5*hour, 4, false), set(2, at+2*hour, at+hour, at+5*hour, 8, false),
		set(3, at+3*hour, at+hour, at+5*hour, 8, true), job, set(5, at+3*hour, at+20*hour, at+21*hour, 8, false))
	var got []string
	for _, u := range reportOf(t, d, proto.ReportRequest{What: proto.ReportResvs, Start: at, End: at + 9*hour}).Resvs {
		got = append(got, fmt.Sprintf("%s %d-%d had %d held %d", u.Name, (u.Start-at)/minute, (u.End-at)/minute,
			model.CountTRES(u.TRES, "cpu")/60, model.CountTRES(u.Alloc, "cpu")/60))
	}
	want := []string{"class 60-120 had 240 held 60", "class 120-180 had 480 held 120"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, wanted %q", got, want)
	}
}

// TestTrail: entries are there once, whoever sends them twice, in order, filtered, and are forgotten when they are old.
func TestTrail(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTestAt(t, dir, t0+day)
	entry := func(seq uint64, at model.Time, uid uint32, job model.JobID) *model.Record {
		r := told(seq, at, trail.TaskCancelled, trail.Job, fmt.Sprint(job), "")
		r.Audit.UID, r.Audit.ByUser, r.Audit.Job, r.Audit.Owner = uid, true, job, 1000+uint32(job)
		return r
	}
	batch := []*model.Record{entry(1, t0-90*day, 0, 1), entry(2, t0-hour, 1001, 1), rec(3, 9), entry(4, t0, 0, 2)}
	mustPut(t, d, 4, batch...)
	mustPut(t, d, 4, batch...)
	count := func(rq proto.ReportRequest, only *proto.UsageQuery) (n int) {
		q := &proto.UsageQuery{}
		if only != nil {
			*q = *only
		}
		rq.What = proto.ReportTrail
		q.Report = rq
		_, err := d.report(t.Context(), q, func(c *proto.ReportChunk) error { n += len(c.Trail); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		rq   proto.ReportRequest
		only *proto.UsageQuery
		want int
	}{
		{proto.ReportRequest{}, nil, 3}, {proto.ReportRequest{Job: 1}, nil, 2},
		{proto.ReportRequest{Start: t0 - day}, nil, 2},
		{proto.ReportRequest{End: t0}, nil, 2}, {proto.ReportRequest{Things: []string{trail.Node}}, nil, 0},
		{proto.ReportRequest{}, &proto.UsageQuery{Only: true, UID: 1002}, 1},
		{proto.ReportRequest{}, &proto.UsageQuery{Only: true, UID: 1001}, 2},
	} {
		if n := count(c.rq, c.only); n != c.want {
			t.Errorf("%+v: %d entries, wanted %d", c.rq, n, c.want)
		}
	}
	stop()
	d, err := openDB(dir, testLog(t), func() time.Time { return time.UnixMilli(int64(t0 + day)) })
	if err != nil {
		t.Fatal(err)
	}
	d.keepOther = Keep{TrailS: 30 * 86400}
	startTest(t, d)
	mustPut(t, d, 5, entry(5, t0+hour, 0, 3))
	if n := count(proto.ReportRequest{}, nil); n != 3 {
		t.Errorf("%d entries after the purge, wanted 3", n)
	}
}

// BenchmarkMonthReports asks a month of a million jobs of 300 users, of which 2,000 still run. The metrics are the
// report's own memory at its peak, and its time in that of a scan of a day's records.
func BenchmarkMonthReports(b *testing.B) {
	d, _ := openTestAt(b, b.TempDir(), t0+40*day)
	const jobs = 1_000_000
	from := t0 / day * day
	mustPut(b, d, 1, told(1, from, trail.ClusterSize, trail.Cluster, "c", "",
		model.TRESCount{TRES: "cpu", Count: 100000}))
	var batch []*model.Record
	begin := time.Now()
	for i := range jobs {
		seq := uint64(i + 2)
		r := rec(seq, model.JobID(i+1), user(uint32(1000+i*7919%300)))
		r.User, r.Account = fmt.Sprintf("u%d", i*7919%300), fmt.Sprintf("a%d", i*7919%30)
		r.Submit = from + model.Time(i)*(30*day/jobs)
		r.Eligible, r.Start = r.Submit, r.Submit+model.Time(i%97)*second
		r.End = r.Start + model.Time(1+i%6000)*second
		r.AllocCPUs = int32(1 << (i % 8))
		if i%500 == 0 {
			r.State, r.End = model.Running, 0
		}
		batch = append(batch, r)
		if len(batch) == 4000 || i == jobs-1 {
			mustPut(b, d, seq, batch...)
			batch = batch[:0]
		}
	}
	b.Logf("%d records in %v", jobs, time.Since(begin))
	for _, c := range []struct {
		name string
		rq   proto.ReportRequest
	}{
		{"cluster", proto.ReportRequest{What: proto.ReportCluster}},
		{"account-user", proto.ReportRequest{What: proto.ReportUsage, By: proto.ByAccount | proto.ByUser}},
		{"sizes", proto.ReportRequest{What: proto.ReportUsage, By: proto.ByAccount | proto.BySize}},
		{"odd-window", proto.ReportRequest{What: proto.ReportUsage, By: proto.ByAccount, Start: from + 17*minute,
			End: from + 29*day + 11*minute}},
		{"invoices", proto.ReportRequest{What: proto.ReportBills}},
		{"each-record", proto.ReportRequest{What: proto.ReportUsage, By: proto.ByAccount, GIDs: []uint32{100}}},
	} {
		if c.rq.End == 0 {
			c.rq.Start, c.rq.End = from, from+31*day
		}
		b.Run(c.name, func(b *testing.B) {
			peak := uint64(0)
			for b.Loop() {
				runtime.GC()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				reportOf(b, d, c.rq)
				runtime.ReadMemStats(&after)
				peak = max(peak, after.HeapSys-min(after.HeapSys, before.HeapSys),
					after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
			}
			b.ReportMetric(float64(peak>>20), "peak-MiB")
		})
	}
}

// TestReusedName: what a user used who has another name since is theirs, and what a new user of the old name used in
// the same month, day and hour is the new one's.
func TestReusedName(t *testing.T) {
	month := model.Time(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	at := month + 9*day + 10*hour + 20*minute // in an hour that both have a part of
	d, _ := openTestAt(t, t.TempDir(), month+40*day)
	job := func(seq uint64, id model.JobID, start model.Time) *model.Record {
		r := rec(seq, id)
		r.Submit, r.Eligible, r.Start, r.End, r.AllocCPUs, r.AllocGres = start, start, start, start+10*minute, 1, nil
		return r
	}
	renamed := told(5, at, "modified", trail.Account, "ann", "")
	renamed.Audit.Renamed = "bea"
	mustPut(t, d, 8, job(1, 1, month+day), job(2, 2, at-5*hour), job(3, 3, at-15*minute), renamed,
		job(6, 4, at+5*minute), job(7, 5, at+5*hour), job(8, 6, at+10*day))
	for _, in := range [][2]model.Time{{month, month + 31*day}, {month - 31*day, month + 40*day},
		{month + 1, month + 30*day}, {month, 0}} {
		rq := proto.ReportRequest{What: proto.ReportUsage, By: proto.ByUser, Start: in[0], End: in[1]}
		got := usageText(reportOf(t, d, rq).Rows, rq.By)
		for _, name := range []string{"ann/", "bea/"} {
			if !strings.HasPrefix(got[name], "cpu 1800 gpu 0 jobs 3 ") {
				t.Errorf("%v: %v", in, got)
			}
		}
	}
}

// TestLicensesAndEnergy: licenses count times seconds, energy as it was taken, in a job's hours by their length; rows
// of before they were counted are made anew.
func TestLicensesAndEnergy(t *testing.T) {
	at := t0 / day * day
	dir := t.TempDir()
	d, stop := openTestAt(t, dir, at+2*day)
	r := rec(1, 1)
	r.Submit, r.Eligible, r.Start, r.End = at, at, at+30*minute, at+2*hour
	r.Asked = &model.Asked{Held: []model.LicenseCount{{Name: "matlab", Count: 3}}}
	r.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{{Node: "n1", GPUs: []model.GPUUsage{{EnergyMJ: 900_000_000}}}}}
	running := rec(2, 2, running)
	running.Submit, running.Eligible, running.Start = at, at, at+day
	running.Asked = r.Asked
	mustPut(t, d, 2, r, running)
	purged := rowKey{tableHour, hourOf(int64(at)/1000) - 24*60, 1}.append(nil) // its records are gone
	if err := d.bolt.Update(func(tx *bolt.Tx) error {                          // as an earlier version left it
		u := tx.Bucket(keyUsage)
		return errors.Join(u.Delete(keyForm), u.Bucket(keyRow).ForEach(func(k, _ []byte) error {
			return u.Bucket(keyRow).Put(k, (&usage.Sum{Began: 7}).Append(nil))
		}), u.Bucket(keyRow).Put(purged, (&usage.Sum{Began: 9}).Append(nil)))
	}); err != nil {
		t.Fatal(err)
	}
	stop()
	d, _ = openTestAt(t, dir, at+2*day)
	for {
		form := []byte(nil)
		if err := d.view(func(tx *bolt.Tx) error {
			form = bytes.Clone(tx.Bucket(keyUsage).Get(keyForm))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(form, rowsForm) || t.Context().Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	awaitRolled(t, d)
	if err := d.view(func(tx *bolt.Tx) error {
		if tx.Bucket(keyUsage).Bucket(keyRow).Get(purged) == nil {
			t.Error("the sums of purged records are gone")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		from, to          model.Time
		licenses, energyJ int64
	}{{at, at + day, 3 * 5400, 900_000}, {at, at + hour, 3 * 1800, 300_000},
		{at + hour, at + 90*minute, 3 * 1800, 300_000},
		{at + day, at + day + hour, 3 * 3600, 0}} {
		rows := reportOf(t, d, proto.ReportRequest{What: proto.ReportUsage, Start: x.from, End: x.to}).Rows
		if len(rows) != 1 {
			t.Fatalf("%+v: %v", x, rows)
		}
		got := rows[0].TRES
		n, j := model.CountTRES(got, "license/matlab"), model.CountTRES(got, "energy")
		if n != x.licenses || j != x.energyJ {
			t.Errorf("%+v: %d, %d", x, n, j)
		}
	}
	for _, u := range reportOf(t, d, proto.ReportRequest{What: proto.ReportCluster, Start: at, End: at + day}).Uses {
		if u.TRES == "energy" || u.TRES == "license/matlab" {
			t.Errorf("the cluster's time has %+v", u)
		}
	}
}
