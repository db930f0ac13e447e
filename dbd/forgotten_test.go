package dbd

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestRestoredBeforeTheFirstRecord: a database without open records takes those of restored controllers.
func TestRestoredBeforeTheFirstRecord(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	eras := []model.Era{{Number: 60, From: 1, At: t0, Unknown: 1, Next: 500}}
	if _, err := d.put(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Eras: eras,
		Records: []*model.Record{rec(1, 500, attempt(1000))}}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, d, &proto.AcctRequest{}, "500.1000:CD")
}

// TestForgottenRunsEnd: when the controllers go on from a snapshot, the records of jobs and runs that it does not know
// end, and nothing else does.
func TestForgottenRunsEnd(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	put := func(eras []model.Era, records ...*model.Record) {
		t.Helper()
		if _, err := d.put(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Eras: eras, Records: records}); err != nil {
			t.Fatal(err)
		}
	}
	put(nil, rec(3, 1, running), rec(4, 2, running), rec(5, 3, running), rec(6, 70, waiting), rec(7, 71),
		rec(8, 72, running))
	const query = "1.1:R 2.1:R 3.1:R 70.1:PD 71.1:CD 72.1:R"
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, query)

	put([]model.Era{{Number: 50, From: 5}}) // of a version that does not say what it lacks
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, query)

	const at = 1_900_000_000_000
	restored := []model.Era{{Number: 50, From: 5}, {Number: 60, From: 5, At: at, Unknown: 70, Next: 500}}
	put(restored)
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:R 2.1:R 3.1:R 70.1:CA 71.1:CD 72.1:CA")
	put(restored, rec(5, 2, waiting, attempt(1000)), rec(6, 500, running)) // job 2 waited in the snapshot
	put(restored, rec(5, 2, waiting, attempt(1000)), rec(6, 500, running))
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:R 2.1:CA 2.1000:PD 3.1:R 70.1:CA 71.1:CD 72.1:CA 500.1:R")
	put(restored, rec(7, 3, attempt(1))) // what the snapshot has, and its node too, goes on
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:R 2.1:CA 2.1000:PD 3.1:CD 70.1:CA 71.1:CD 72.1:CA 500.1:R")
	for _, r := range ask(t, d, &proto.AcctRequest{Duplicates: true}) {
		if r.State == model.Cancelled && (r.End != at || r.Why == "") {
			t.Errorf("job %d ended at %d (%s)", r.Job, r.End, r.Why)
		}
	}
}
