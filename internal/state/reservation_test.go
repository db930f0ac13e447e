package state

import (
	"bytes"
	"fmt"
	"testing"

	"gbatch/internal/model"
)

func TestReservations(t *testing.T) {
	s := New()
	apply := func(at model.Time, b Body) Refusal {
		t.Helper()
		res := s.Apply(Command{At: at, Body: b})
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return res.Refusal
	}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4}, {Name: "n2", CPUs: 4}}}
	apply(1000, &SetConfig{Config: cfg})
	resv := func(name string, start, end model.Time, flags model.ResvFlags, nodes ...string) *Reserve {
		return &Reserve{Op: CreateResv,
			Resv: &model.Reservation{Name: name, Start: start, End: end, Flags: flags, Nodes: nodes, Users: []string{"ann"}}}
	}
	const day = 86_400_000
	for _, c := range []struct {
		what string
		cmd  *Reserve
		want Refusal
	}{
		{"first", resv("a", 10_000, 20_000, 0, "n1"), OK},
		{"same name", resv("a", 30_000, 40_000, 0, "n1"), InUse},
		{"overlapping", resv("b", 19_999, 30_000, 0, "n1", "n2"), Overlapping},
		{"behind it", resv("b", 20_000, 30_000, 0, "n1", "n2"), OK},
		{"maintenance beside it", resv("m", 15_000, 25_000, model.ResvMaint, "n1"), OK},
		{"every day", resv("d", 40_000, 50_000, model.ResvDaily, "n2"), OK},
		{"into a later day", resv("e", day+45_000, day+60_000, 0, "n2"), Overlapping},
		{"unknown node", resv("f", 60_000, 70_000, 0, "n9"), NoSuchNode},
		{"change of none", &Reserve{Op: UpdateResv, Resv: resv("x", 1, 2, 0, "n1").Resv}, NoSuchReservation},
		{"end of none", &Reserve{Op: DropResv, Resv: &model.Reservation{Name: "x"}}, NoSuchReservation},
	} {
		if got := apply(1000, c.cmd); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if due := s.View().NextDue(); due != 10_000 {
		t.Errorf("the next moment is %d, want the first beginning", due)
	}
	apply(10_000, &Tick{})
	if r := s.View().Reservation("a"); r == nil || !r.Begun {
		t.Errorf("begun: %+v", r)
	}
	// What was planned for a reservation that has changed since does not start in it.
	apply(10_000, &SetConfig{Config: &model.Config{Cluster: "c", Nodes: cfg.Nodes,
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}}})
	apply(10_000, &Join{Node: "n1", BootID: "b"})
	job := s.Apply(Command{At: 10_000, Body: &Submit{Spec: &model.Spec{Name: "j", User: "ann", Partitions: []string{"p"},
		LimitS: 5, MinNodes: 1}}}).Job
	start := func() Refusal {
		alloc := &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), MemMiB: 1, Tasks: 1}}}
		return s.Apply(Command{At: 10_000, Body: &Starts{Plan: model.Plan{Starts: []model.Start{{Job: job,
			Task: model.NoTask, Partition: "p", LimitS: 5, Alloc: alloc, Resv: "a"}}}}}).Each[0]
	}
	changed := func(flags model.ResvFlags, users ...string) {
		t.Helper()
		c := resv("a", 10_000, 20_000, flags, "n1")
		c.Op, c.Resv.Users = UpdateResv, users
		if r := apply(10_000, c); r != OK {
			t.Fatal(r)
		}
	}
	if r := start(); r != NotFits {
		t.Errorf("a start in a reservation that is not asked for: %s", r)
	}
	if changed(model.ResvMagnetic, "bob"); start() != NotFits {
		t.Error("a start in a reservation that is another's by now")
	}
	if changed(model.ResvMagnetic, "ann"); start() != OK {
		t.Error("no start in a reservation that attracts the job")
	}
	apply(50_000, &Tick{})
	v := s.View()
	if v.Reservation("a") != nil || v.Reservation("b") != nil || v.Reservation("m") != nil {
		t.Error("what is over is still there")
	}
	if d := v.Reservation("d"); d == nil || d.Start != day+40_000 || d.Begun {
		t.Errorf("the next day: %+v", d)
	}
	apply(5*day+45_000, &Tick{}) // days late
	if d := s.View().Reservation("d"); d == nil || d.Start != 5*day+40_000 || !d.Begun {
		t.Errorf("days later: %+v", d)
	}
	var snap bytes.Buffer
	if err := s.Freeze()(&snap); err != nil {
		t.Fatal(err)
	}
	again := New()
	if err := again.Restore(&snap); err != nil {
		t.Fatal(err)
	}
	if d := again.View().Reservation("d"); d == nil || d.Start != 5*day+40_000 || len(d.Users) != 1 {
		t.Errorf("restored: %+v", d)
	}
}

// TestResvTurns: ResvProlog and ResvEpilog are told of each beginning and end once, in order, also of what began and
// ended while nobody looked, and after a snapshot.
func TestResvTurns(t *testing.T) {
	s := New()
	apply := func(at model.Time, b Body) {
		t.Helper()
		if res := s.Apply(Command{At: at, Body: b}); res.Refusal != OK {
			t.Fatal(res.Refusal)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		got := ""
		for _, r := range s.View().ResvTurns() {
			word := "+"
			if r.Over {
				word = "-"
			}
			got += fmt.Sprintf(" %s%s@%d", word, r.Resv.Name, r.Resv.Start/1000)
		}
		if got != text {
			t.Errorf("turns%s, want%s", got, text)
		}
		for _, r := range s.View().ResvTurns() {
			apply(s.View().ResvTurns()[0].At, &ResvTold{Seqs: []uint64{r.Seq}})
		}
	}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4}}}
	cfg.Params.ResvProlog, cfg.Params.ResvEpilog = "/begins", "/ends"
	apply(1000, &SetConfig{Config: cfg})
	resv := func(op ResvOp, name string, start, end model.Time, flags model.ResvFlags) *Reserve {
		return &Reserve{Op: op, Resv: &model.Reservation{Name: name, Start: start, End: end, Users: []string{"ann"},
			Flags: flags | model.ResvOverlap, Nodes: []string{"n1"}}}
	}
	const day = 86_400_000
	apply(1000, resv(CreateResv, "a", 10_000, 20_000, 0))
	apply(1000, resv(CreateResv, "d", 30_000, 40_000, model.ResvDaily))
	apply(1000, resv(CreateResv, "now", 500, 90_000, 0))
	want(" +now@0")
	apply(2000, resv(UpdateResv, "now", 500, 80_000, 0))
	want("")
	apply(3000, resv(UpdateResv, "now", 70_000, 80_000, 0))
	want(" -now@0")
	apply(3000, &Reserve{Op: DropResv, Resv: &model.Reservation{Name: "now"}})
	want("")
	apply(10_000, &Tick{})
	want(" +a@10")
	apply(20_000, &Tick{})
	want(" -a@10")
	apply(30_000, &Tick{})
	var saved bytes.Buffer
	if err := s.Freeze()(&saved); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	want(" +d@30")
	apply(2*day+35_000, &Tick{})
	want(fmt.Sprintf(" -d@30 +d@%d", 2*day/1000+30))
	apply(2*day+36_000, &Reserve{Op: DropResv, Resv: &model.Reservation{Name: "d"}})
	want(fmt.Sprintf(" -d@%d", 2*day/1000+30))
	apply(3*day, resv(CreateResv, "missed", 3*day+1000, 3*day+2000, 0))
	apply(3*day+5000, &Tick{})
	want(fmt.Sprintf(" +missed@%d -missed@%[1]d", 3*day/1000+1))
	cfg2 := *cfg
	cfg2.Params.ResvProlog = ""
	apply(3*day+5000, &SetConfig{Config: &cfg2})
	apply(3*day+6000, resv(CreateResv, "b", 3*day, 3*day+9000, 0))
	want("")
	apply(3*day+9000, &Tick{})
	want(fmt.Sprintf(" -b@%d", 3*day/1000))
}

// TestRenamedUserOfReservation: who keeps what reservations say hears of it when one of their users gets another name.
func TestRenamedUserOfReservation(t *testing.T) {
	s := New()
	apply := func(b Body) {
		t.Helper()
		if res := s.Apply(Command{At: 1000, Body: b}); res.Refusal != OK {
			t.Fatalf("%T: %s", b, res.Refusal)
		}
	}
	apply(&SetConfig{Config: &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4}}}})
	apply(&Accounts{Edits: acctEdits{{Op: model.PutUser, User: &model.User{Name: "ann"}}}})
	apply(&Reserve{Op: CreateResv, Resv: &model.Reservation{Name: "a", Start: 10_000, End: 20_000, Nodes: []string{"n1"},
		Users: []string{"ann"}}})
	before := s.View().ResvGen()
	apply(&Accounts{Edits: acctEdits{{Op: model.RenameUser, User: &model.User{Name: "ann"}, NewName: "eve"}}})
	if users := s.View().Reservation("a").Users; len(users) != 1 || users[0] != "eve" || s.View().ResvGen() == before {
		t.Errorf("the reservation is for %v, generation %d after %d", users, s.View().ResvGen(), before)
	}
}
