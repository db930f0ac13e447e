package dbd

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// testPrices are those of the worked figures, and of CPUs from a day on.
var testPrices = &price.Table{MinS: 60, Discounts: []price.Discount{{Hours: 100, Keep: 900_000}, {Hours: 500,
	Keep: 800_000}, {Hours: 1000, Keep: 700_000}},
	Lines: []price.Line{{Rates: []price.Rate{{TRES: "gres/gpu", Micro: 2_000_000, Per: 1}}},
		{From: int64(t0/1000) + 2*86400, Rates: []price.Rate{{TRES: "cpu", Micro: 10_000, Per: 1}}}}}

// The lines are what each record costs by itself, summed: of runs that began in the window and have ended, whenever.
func TestBillsAgreeWithRecords(t *testing.T) {
	d, _ := openTestAt(t, t.TempDir(), t0+90*day)
	r := rand.New(rand.NewPCG(5, 6))
	var batch []*model.Record
	for i := range 600 {
		x := rec(uint64(i+1), model.JobID(i+1), user(uint32(1000+i%5)))
		x.Account = []string{"a", "b", "c"}[r.IntN(3)]
		x.Submit = t0 + model.Time(r.Int64N(int64(40*day)))
		x.Start = x.Submit + model.Time(r.Int64N(int64(day)))
		x.End = x.Start + model.Time(r.Int64N(int64(30*day)))
		x.AllocCPUs, x.AllocGres = int32(1+r.IntN(8)), []model.GresCount{{Name: "gpu", Type: "a100", Count: int64(r.IntN(9))}}
		switch {
		case i%20 == 0:
			x.State, x.End = model.Running, 0
		case i%20 == 1:
			x.State, x.Start = model.Cancelled, 0
		case i%20 == 2:
			x.SuspendMS = r.Int64N(int64(x.End-x.Start) + 1)
		}
		batch = append(batch, x)
	}
	mustPut(t, d, uint64(len(batch)), batch...)
	for range 30 {
		rq := proto.ReportRequest{What: proto.ReportBills, Start: t0 + model.Time(r.Int64N(int64(20*day)))/1000*1000}
		rq.End = rq.Start + model.Time(1+r.Int64N(int64(30*day)))/1000*1000
		if r.IntN(2) == 0 {
			rq.Accounts = []string{"a", "c"}
		}
		sums, running := price.NewSums(testPrices), int64(0)
		for _, x := range batch {
			at := x.Start.Seconds()
			if x.Start == 0 || at < rq.Start.Seconds() || at >= rq.End.Seconds() ||
				len(rq.Accounts) > 0 && !slices.Contains(rq.Accounts, x.Account) {
				continue
			}
			if s := x.Session(); s != nil {
				sums.Add(x.Account, "", s)
			} else {
				running++
			}
		}
		got := reportOf(t, d, rq)
		if want := sums.Bills(); !slices.Equal(got.Bills, want) || got.Running != running {
			t.Fatalf("%+v gives %d running and\n%+v\nand not %d and\n%+v", rq, got.Running, got.Bills, running, want)
		}
	}
}

// A lean record has the fields of the whole one that make its session.
func TestLeanRecord(t *testing.T) {
	full := &model.Record{Seq: 1, Cluster: "c", Job: 5, Name: "n", User: "ann", Account: "a", QOS: "q", Partition: "p",
		Submit: 1, Eligible: 2, Start: 3000, End: 500_000, Nodes: "n[1-2]", NumNodes: 2, ReqCPUs: 7, AllocCPUs: 8,
		ReqMemMiB: 9, AllocMemMiB: 10, ReqGres: []model.GresCount{{Name: "x", Count: 1}},
		AllocGres: []model.GresCount{{Name: "gpu", Type: "h100", Count: 4}}, WorkDir: "/w", Comment: "c", Constraints: "ib",
		Why: "w", Reservation: "r", SuspendMS: 4000, FailedNode: "n1",
		Asked: &model.Asked{Billed: 3, Held: []model.LicenseCount{{Name: "l", Count: 2}}}, Exit: model.Exit{Code: 3}}
	data, err := wire.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	lean := leanRecord{names: true}
	if err := wire.Unmarshal(data, &lean); err != nil {
		t.Fatal(err)
	}
	if got, want := lean.Session(), full.Session(); !reflect.DeepEqual(got, want) {
		t.Errorf("the session is %+v, want %+v", got, want)
	}
	full.Unbegun = true
	if data, err = wire.Marshal(full); err != nil {
		t.Fatal(err)
	}
	never := leanRecord{}
	if err := wire.Unmarshal(data, &never); err != nil || never.Session() != nil || full.Session() != nil {
		t.Errorf("a run that never began has the sessions %+v and %+v (%v)", never.Session(), full.Session(), err)
	}
	if lean.Cluster != "c" || lean.User != "ann" || lean.Account != "a" || lean.QOS != "q" || lean.Partition != "p" ||
		lean.Reservation != "r" {
		t.Errorf("the record is %+v", lean.Record)
	}
}

// BenchmarkBills sums up a month of 200,000 runs of 26 accounts. The metric is CPU time for a million of them: on a
// busy machine the wall clock says little.
func BenchmarkBills(b *testing.B) {
	d, _ := openTestAt(b, b.TempDir(), t0+40*day)
	const jobs = 200_000
	from := t0 / day * day
	var batch []*model.Record
	for i := range jobs {
		r := rec(uint64(i+1), model.JobID(i+1), user(uint32(1000+i%300)))
		r.Account = string(rune('a' + i%26))
		r.Submit = from + model.Time(i)*(12*day/jobs)
		r.Eligible, r.Start = r.Submit, r.Submit+model.Time(i%97)*second
		r.End = r.Start + model.Time(1+i%6000)*second
		if batch = append(batch, r); len(batch) == 4000 || i == jobs-1 {
			mustPut(b, d, uint64(i+1), batch...)
			batch = batch[:0]
		}
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := cpu()
	for b.Loop() {
		reportOf(b, d, proto.ReportRequest{What: proto.ReportBills, Start: from, End: from + 31*day})
	}
	b.ReportMetric((cpu()-begin).Seconds()/float64(b.N)*1_000_000/jobs, "cpu-s/million")
}
