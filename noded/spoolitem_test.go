package noded

import (
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestTooLargeForTheSpool: a job whose data is too large for the spool is refused with the reason, and the daemon goes
// on with the next one.
func TestTooLargeForTheSpool(t *testing.T) {
	c := newCluster(t)
	big := c.job(1, "true", func(l *proto.Launch) {
		for range 12 {
			l.Spec.Args = append(l.Spec.Args, strings.Repeat("A", 100000))
		}
	})
	if r := c.run(big); r.Kind != proto.ReportLaunchFailed || !strings.Contains(r.Text, "can't keep the job's data") {
		t.Fatalf("a job with 1.2 MB of arguments: %+v", r)
	}
	if r := c.run(c.job(2, "true")); r.Kind != proto.ReportEnded || r.Exit.Code != 0 {
		t.Fatalf("the job after it: %+v", r)
	}
}

// TestLargeReports: a report whose details are too large goes without them, and a large acknowledgement is kept in
// parts.
func TestLargeReports(t *testing.T) {
	l := testLoop(t)
	use := &model.Usage{}
	for range 5000 {
		use.Nodes = append(use.Nodes, model.NodeUsage{Node: strings.Repeat("n", 250)})
	}
	key := proto.Attempt{Job: 7, Attempt: 1}
	must(t, l.report(&proto.Report{Kind: proto.ReportStep, Job: key.Job, Attempt: 1,
		Step: &model.Step{ID: 3, Name: "big", Exit: model.Exit{Code: 9, Use: use}}}))
	must(t, l.report(&proto.Report{Kind: proto.ReportEnded, Job: key.Job, Attempt: 1,
		Exit: model.Exit{Code: 4, Use: use}}))
	if r := l.reports; len(r) != 2 || r[0].Step.Exit.Code != 9 || r[0].Step.ID != 3 || r[1].Exit.Code != 4 {
		t.Fatalf("the reports are %+v", r)
	}
	seqs := make([]uint64, 0, 400000)
	for i := range uint64(cap(seqs)) {
		seqs = append(seqs, i+1<<40)
	}
	must(t, l.onAck(append(seqs, l.reports[0].Seq, l.reports[1].Seq, l.reports[1].Seq)))
	commit(t, l.spool)
	if n := len(l.spool.mem.reports); n != 0 {
		t.Errorf("%d reports are left", n)
	}
}

// TestCompactGrownRecord: a launch to which later records have added is still written when the spool is compacted, and
// read after it.
func TestCompactGrownRecord(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	rec := &launched{Job: 1, Attempt: 1, StdErr: strings.Repeat("e", 900<<10)}
	must(t, s.add(recLaunch, rec, true))
	must(t, s.add(recFinal, &finalRec{Report: &proto.Report{Kind: proto.ReportEnded, Job: 1, Attempt: 1,
		Text: strings.Repeat("t", 800<<10)}}, true))
	s.compactFrom = 1
	for range 10 {
		must(t, s.add(recOpened, &opened{Incarnation: 1, BootID: strings.Repeat("b", 4000)}, true))
		commit(t, s)
	}
	want := s.mem
	must(t, s.close())
	s = openTest(t, dir)
	same(t, &s.mem, &want)
	must(t, s.close())
}
