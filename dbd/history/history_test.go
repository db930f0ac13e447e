package history

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// store opens a store in a directory of the test's, at a time that it moves.
func store(t testing.TB, dir string, now *time.Time) *Store { return storeBelow(t, dir, now, MaxBytes) }

func storeBelow(t testing.TB, dir string, now *time.Time, most int64) *Store {
	t.Helper()
	at := func() time.Time { return *now }
	s, err := openBelow(filepath.Join(dir, FileName), slog.New(slog.DiscardHandler), at, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a second time does nothing
	return s
}

func put(t testing.TB, s *Store, at time.Time, list ...proto.Sample) {
	t.Helper()
	if err := s.Put(&proto.Samples{At: model.Time(at.UnixMilli()), List: list}); err != nil {
		t.Fatal(err)
	}
}

func ask(t testing.TB, s *Store, q proto.HistoryQuery) (list []proto.HistorySeries) {
	t.Helper()
	err := s.Ask(t.Context(), &q, func(r *proto.HistoryReply) error { list = append(list, r.List...); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func cluster(running int64) proto.Sample {
	return proto.Sample{Of: proto.HistoryCluster, Values: []int64{running, 0, 1, 2, -1, 8, 8}}
}

// TestRings: minutes for a day, means of ten minutes for thirty days, over restarts; then they are forgotten.
func TestRings(t *testing.T) {
	start := time.Unix(1_700_000_000, 0).Truncate(24 * time.Hour)
	now, dir := start, t.TempDir()
	s := store(t, dir, &now)
	minutes := int64(0)
	run := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(time.Minute)
			minutes++
			put(t, s, now, cluster(minutes))
		}
	}
	s.bolt.NoSync = true // the test is about what is kept
	run(90 * time.Minute)
	q := proto.HistoryQuery{Ask: proto.HistoryRequest{Of: proto.HistoryCluster, Start: model.Time(start.UnixMilli())}}
	check := func(s *Store, step int64, points int, first, last int64) {
		t.Helper()
		got := ask(t, s, q)
		if len(got) != 1 || got[0].StepS != step || len(got[0].Points) != points {
			t.Fatalf("step %d: %d series, %d points, want %d", step, len(got), len(got[0].Points), points)
		}
		p := got[0].Points
		if p[0].Values[0] != first || p[points-1].Values[0] != last || p[0].Values[4] != -1 {
			t.Errorf("step %d: from %v to %v, want %d to %d", step, p[0].Values, p[points-1].Values, first, last)
		}
		if want := model.Time(now.UnixMilli()); p[points-1].At < want || p[points-1].At > want+model.Time(step*1000) {
			t.Errorf("the last point is of %d, now is %d", p[points-1].At, want)
		}
	}
	check(s, 60, 90, 1, 90)
	q.Ask.StepS = 600
	check(s, 600, 9, 6, 86) // means of 1..10 and of 81..90, rounded
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = store(t, dir, &now) // what was on disk is there
	s.bolt.NoSync = true
	check(s, 600, 9, 6, 86)
	put(t, s, now, cluster(1000)) // sent again, it takes its place
	q.Ask.StepS = 0
	check(s, 60, 90, 1, 1000)

	run(25 * time.Hour)
	q.Ask.Start = model.Time(now.Add(-24 * time.Hour).UnixMilli())
	check(s, 60, 24*60, minutes-24*60+1, minutes)
	q.Ask.Start, q.Ask.StepS = model.Time(start.UnixMilli()), 60
	if got := len(ask(t, s, q)[0].Points); got > 25*60 || got < 24*60 {
		t.Errorf("%d minutes are kept", got)
	}
	for range 32 { // the days after, with an hour each
		now = now.Add(23 * time.Hour)
		run(time.Hour)
	}
	q.Ask.StepS = 3600
	if got := ask(t, s, q)[0].Points; got[0].At < model.Time(now.Add(-32*24*time.Hour).UnixMilli()) || len(got) < 30 {
		t.Errorf("%d points, from %s to %s", len(got), time.UnixMilli(int64(got[0].At)), now)
	}
}

// TestWhoSees: of jobs, and of who has a GPU, a user from whom PrivateData hides others sees their own.
func TestWhoSees(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Hour)
	s := store(t, t.TempDir(), &now)
	put(t, s, now,
		proto.Sample{Of: proto.HistoryJob, Name: "7", Values: []int64{100, 5, 90, -1, -1, 1000}},
		proto.Sample{Of: proto.HistoryGPU, Name: "n1/0", Values: []int64{90, 10, 3000, 50, 7, 1000}},
		proto.Sample{Of: proto.HistoryGPU, Name: "n1/1", Values: []int64{0, 0, 600, 30, -1, -1}},
		proto.Sample{Of: proto.HistoryGPU, Name: "n10/0", Values: []int64{0, 0, 600, 30, -1, -1}})
	for _, c := range []struct {
		ask  proto.HistoryRequest
		uid  uint32
		want string
	}{
		{proto.HistoryRequest{Of: proto.HistoryJob, Names: []string{"7", "8"}}, 1000, "7=[100 5 90 -1 -1]"},
		{proto.HistoryRequest{Of: proto.HistoryJob, Names: []string{"7", "8"}}, 1001, ""},
		{proto.HistoryRequest{Of: proto.HistoryGPU, Names: []string{"n1/"}}, 1000, "n1/0=[90 10 3000 50 7]" +
			"n1/1=[0 0 600 30 -1]"},
		{proto.HistoryRequest{Of: proto.HistoryGPU, Names: []string{"n1/"}}, 1001, "n1/0=[90 10 3000 50 -1]" +
			"n1/1=[0 0 600 30 -1]"},
		{proto.HistoryRequest{Of: proto.HistoryGPU, Job: 7}, 1000, "n1/0=[90 10 3000 50 7]"},
		{proto.HistoryRequest{Of: proto.HistoryGPU, Job: 7}, 1001, ""},
	} {
		got := ""
		for _, x := range ask(t, s, proto.HistoryQuery{Ask: c.ask, Only: true, UID: c.uid}) {
			got += fmt.Sprintf("%s=%v", x.Name, x.Points[0].Values)
		}
		if got != c.want {
			t.Errorf("%+v by %d: %q, want %q", c.ask, c.uid, got, c.want)
		}
	}
}

// TestDamage: a file that is damaged is put aside.
func TestDamage(t *testing.T) {
	now, dir := time.Unix(1_700_000_000, 0), t.TempDir()
	s := store(t, dir, &now)
	put(t, s, now, cluster(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8192; i < len(b); i++ {
		b[i] ^= 0x55
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = store(t, dir, &now)
	put(t, s, now, cluster(2))
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
}

// FuzzRead: no bytes make reading fail or last.
func FuzzRead(f *testing.F) {
	var r run
	r.add(3, []int64{1, -1, 1 << 40})
	r.add(59, []int64{2, 5, -1})
	f.Add(r.bytes)
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		if read(b, func(row) { n++ }); n > len(b) {
			t.Errorf("%d rows of %d bytes", n, len(b))
		}
	})
}

// busyMinute is minute m of a cluster with 8 GPUs a node, and two jobs a node of which half are new each half an hour.
func busyMinute(m, nodes int) (parts []*proto.Samples) {
	noise := func(i, k int) int64 { return int64((i*7919 + m*k*104729) % 101) }
	var list []proto.Sample
	for i := range nodes {
		list = append(list, proto.Sample{Of: proto.HistoryNode, Name: fmt.Sprintf("gpu%04d", i),
			Values: []int64{64, noise(i, 1) * 64, 100_000 + noise(i, 3)*1000, 8, noise(i, 1), noise(i, 2) * 300}})
		for g := range 8 {
			list = append(list, proto.Sample{Of: proto.HistoryGPU, Name: fmt.Sprintf("gpu%04d/%d", i, g),
				Values: []int64{noise(i+g, 1), 20_000 + noise(i+g, 3)*500, noise(i+g, 2) * 70, 40 + noise(i, 2)/5,
					int64(1_000_000 + i), 1000}})
		}
	}
	for i := range 2 * nodes {
		list = append(list, proto.Sample{Of: proto.HistoryJob, Name: fmt.Sprint(1_000_000 + m/30*nodes + i),
			Values: []int64{noise(i, 1) * 64, 100_000 + noise(i, 3)*1000, noise(i, 1), noise(i, 3) * 500,
				noise(i, 2) * 300, 1000}})
	}
	for k := 0; k < len(list); k += proto.MaxSamples {
		parts = append(parts, &proto.Samples{Part: int32(len(parts)), List: list[k:min(k+proto.MaxSamples, len(list))]})
	}
	return parts
}

// filled is the size of the file after some days of a cluster, bytes.
func filled(t *testing.T, nodes, days int) int64 {
	start := time.Unix(1_700_000_000, 0).Truncate(24 * time.Hour)
	now := start
	s := store(t, t.TempDir(), &now)
	s.bolt.NoSync, s.bolt.AllocSize = true, 1<<14 // the test is about size: the file grows by what it needs
	for m := range days * 1440 {
		now = start.Add(time.Duration(m+1) * time.Minute)
		for _, p := range busyMinute(m, nodes) {
			p.At = model.Time(now.UnixMilli())
			if err := s.Put(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestBound: thirty days of 1,000 nodes with 8 GPUs each take less than 2 GiB: by what more nodes and more days take in
// files that are filled. Minutes are kept for a day, so that from the second one on only the means grow.
func TestBound(t *testing.T) {
	const few, many, all, days = 2, 6, 1000, 31
	two, six, long := filled(t, few, 2), filled(t, many, 2), filled(t, many, 4)
	node, day := (six-two)/(many-few), (long-six)/2/many
	total := six + node*(all-many) + day*(days-2)*all
	t.Logf("two days of %d and %d nodes: %d and %d KiB; four days: %d KiB. Two days of a node: %d KiB; each further day: "+
		"%d KiB; %d days of %d nodes: %d MiB", few, many, two>>10, six>>10, long>>10, node>>10, day>>10, days, all, total>>20)
	if node <= 0 || day <= 0 || total >= MaxBytes*7/8 { // from there on the oldest days go
		t.Errorf("%d days of %d nodes take %d MiB", days, all, total>>20)
	}
}

// TestLimit: whatever comes, the file stays below its limit; the oldest days go, and the last hours' minutes stay.
func TestLimit(t *testing.T) {
	start := time.Unix(1_700_000_000, 0).Truncate(24 * time.Hour)
	now := start
	const most = 8 << 20
	s := storeBelow(t, t.TempDir(), &now, most)
	s.bolt.NoSync = true // likewise
	const days = 16
	x, largest := uint64(1), int64(0)
	fill := func() int64 { // values that no encoding makes small
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return int64(x >> 14)
	}
	series := 80
	for ten := range days * 144 {
		if ten == (days-1)*144 {
			series = 800 // at last each hour has a quarter of the limit
		}
		now = start.Add(time.Duration(ten+1) * 10 * time.Minute)
		var list []proto.Sample
		for i := range series {
			list = append(list, proto.Sample{Of: proto.HistoryGPU, Name: fmt.Sprintf("n%04d/0", i),
				Values: []int64{fill(), fill(), fill(), fill(), fill(), fill(), fill(), fill()}})
		}
		put(t, s, now, list...)
		info, err := os.Stat(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if largest = max(largest, info.Size()); info.Size() > most {
			t.Fatalf("after %d hours the file has %d bytes, more than %d", ten/6, info.Size(), most)
		}
		if ten == (days-1)*144-1 {
			got := ask(t, s, proto.HistoryQuery{Ask: proto.HistoryRequest{Of: proto.HistoryGPU, Names: []string{"n0007/0"},
				Start: model.Time(start.UnixMilli()), StepS: proto.HistoryCoarseS}})
			if n := len(got[0].Points); n < 2*144 || n > (days-2)*144 {
				t.Errorf("%d of %d means are left", n, (days-1)*144)
			}
		}
	}
	got := ask(t, s, proto.HistoryQuery{Ask: proto.HistoryRequest{Of: proto.HistoryGPU, Names: []string{"n0007/0"},
		Start: model.Time(now.Add(-24 * time.Hour).UnixMilli()), StepS: minute}})
	if len(got) != 1 || len(got[0].Points) < 6 {
		t.Errorf("of the last day's minutes %+v are left", got)
	}
	t.Logf("the file had %d KiB at most, of %d", largest>>10, most>>10)
}

// BenchmarkMinute is a minute of 1,000 nodes with 8 GPUs each and 2,000 jobs, of which a part ends; the bytes are those
// of a day of minutes and of means, divided by the samples.
func BenchmarkMinute(b *testing.B) {
	now := time.Unix(1_700_000_000, 0).Truncate(24 * time.Hour)
	s := store(b, b.TempDir(), &now)
	samples := 0
	m := 0
	for b.Loop() {
		b.StopTimer()
		now = now.Add(time.Minute)
		m++
		parts := busyMinute(m, 1000)
		for _, p := range parts {
			samples += len(p.List)
		}
		b.StartTimer()
		for _, p := range parts {
			p.At = model.Time(now.UnixMilli())
			if err := s.Put(p); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(samples), "us/sample")
	info, err := os.Stat(s.path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/float64(samples), "filebytes/sample")
}
