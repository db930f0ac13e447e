package state

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// shipping is a state with one job of a node after the other, each of which has ended.
type shipping struct {
	t  *testing.T
	st *State
	at model.Time
}

func newShipping(t *testing.T, rules model.ShipRules) *shipping {
	s := &shipping{t, New(), epoch}
	s.apply(&SetConfig{Config: &model.Config{Cluster: "c", Params: model.Params{Ship: rules},
		Nodes:      []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}, Instance: 3})
	return s
}

func (s *shipping) apply(b Body) Result {
	s.t.Helper()
	r := s.st.Apply(Command{At: s.at, Body: b})
	if err := s.st.Check(); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// jobs submits jobs and ends them: each is one event.
func (s *shipping) jobs(n int) {
	s.t.Helper()
	for range n {
		id := s.apply(&Submit{RequestID: fmt.Sprint(s.st.nextReq), Spec: &model.Spec{Name: "x", User: "u", WorkDir: "/home/u",
			Tasks: 1, CPUsPerTask: 1, Partitions: []string{"p"}}}).Job
		s.apply(&Stop{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}, Event: model.EvCancel})
	}
}

// events gives the numbers of all events after one.
func (s *shipping) events(after uint64) []uint64 {
	s.t.Helper()
	var out []uint64
	err := s.st.View().Records(after, func(e Event) bool {
		seq, j := e.Seq, e.Job
		if j.ID == 0 || j.Spec.WorkDir != "/home/u" {
			s.t.Errorf("event %d is of job %d, submitted in %q", seq, j.ID, j.Spec.WorkDir)
		}
		out = append(out, seq)
		return true
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// TestAcknowledgedRecordsAreKept: what gdbd has acknowledged can be sent again from any place on, also after a
// snapshot, and within its bounds.
func TestAcknowledgedRecordsAreKept(t *testing.T) {
	s := newShipping(t, model.ShipRules{})
	s.jobs(300)
	all := s.events(0)
	keep := Trim{Acked: true, Keep: 1000, KeepBytes: 1 << 20, KeepS: 3600}
	for _, seq := range all[:250] {
		c := keep
		c.Seq = seq
		s.apply(&c)
	}
	check := func() {
		t.Helper()
		if got := s.events(0); fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("kept and waiting events are %v, want %v", got, all)
		}
		for _, k := range []int{0, 1, 100, 249, 250, 299} {
			if got := s.events(all[k]); fmt.Sprint(got) != fmt.Sprint(all[k+1:]) {
				t.Errorf("after %d: %v", all[k], got)
			}
		}
		if k := s.st.View().Shipped(); k.Acked != all[249] || k.Dropped != 0 || k.Kept != 250 {
			t.Errorf("%+v", k)
		}
	}
	check()
	var b bytes.Buffer
	if err := s.st.Freeze()(&b); err != nil {
		t.Fatal(err)
	}
	view := s.st.View()
	s.st = New()
	if err := s.st.Restore(&b); err != nil {
		t.Fatal(err)
	}
	check()

	c := keep
	c.Seq, c.Keep = all[250], 200
	s.apply(&c)
	k := s.st.View().Shipped()
	got := s.events(0)
	if k.Kept > 200 || k.Kept == 0 || k.Dropped == 0 || got[0] <= k.Dropped || len(got) != int(k.Kept)+49 {
		t.Errorf("with a bound of 200: %+v, %d events from %d", k, len(got), got[0])
	}
	s.at = s.at.Add(2 * 3600)
	c.Seq = all[251]
	s.apply(&c)
	if k := s.st.View().Shipped(); k.Kept != 1 || k.Dropped != all[250] {
		t.Errorf("after two hours: %+v", k)
	}
	if n := view.Shipped(); n.Kept != 250 || n.Dropped != 0 {
		t.Errorf("an old view has changed: %+v", n)
	}
}

// TestRecordsWithoutAccountingAreNotMissed: what was dropped because there was no gdbd is no hole in the records of a
// gdbd that comes later, and what was acknowledged before records were kept is one.
func TestRecordsWithoutAccountingAreNotMissed(t *testing.T) {
	s := newShipping(t, model.ShipRules{})
	s.jobs(3)
	s.apply(&Trim{Seq: s.st.nextSeq - 1})
	if k := s.st.View().Shipped(); k != (Shipped{}) {
		t.Errorf("without accounting: %+v", k)
	}
	s.jobs(1)
	last := s.st.nextSeq - 1
	old := New()
	var b bytes.Buffer
	if err := s.st.Freeze()(&b); err != nil {
		t.Fatal(err)
	}
	if err := old.Restore(&b); err != nil {
		t.Fatal(err)
	}
	s.apply(&Trim{Seq: last, Acked: true, Keep: 10, KeepBytes: 1 << 20, KeepS: 60})
	if k := s.st.View().Shipped(); k.Acked != last || k.Dropped != 0 || k.Kept != 1 {
		t.Errorf("with a new gdbd: %+v", k)
	}
	s.st = old
	s.apply(&Trim{Seq: last, Acked: true, From: last - 1, Keep: 10, KeepBytes: 1 << 20, KeepS: 60})
	if k := s.st.View().Shipped(); k.Acked != last || k.Dropped != last-1 || k.Kept != 1 {
		t.Errorf("with a gdbd that has records from before: %+v", k)
	}
}

// TestOutboxIsBounded: at MaxDBDMsgs the oldest events go and are counted, and not one before.
func TestOutboxIsBounded(t *testing.T) {
	s := newShipping(t, model.ShipRules{MaxWaiting: 20})
	s.jobs(20)
	if v := s.st.View(); v.OutboxLen() != 20 || v.Shipped().Discarded != 0 {
		t.Fatalf("%d wait, %+v", v.OutboxLen(), v.Shipped())
	}
	s.jobs(5)
	if v := s.st.View(); v.OutboxLen() != 20 || v.Shipped().Discarded != 5 {
		t.Errorf("%d wait, %+v", v.OutboxLen(), v.Shipped())
	}
}

// TestEndsOutlastDetails: while gdbd is away, neither one user's changes nor one user's steps push the end of another
// one's job out of the outbox, however many there are; a log of before replays as it was. The trail keeps its share.
func TestEndsOutlastDetails(t *testing.T) {
	const most = 100
	for _, flood := range []string{"trail", "steps", "both", "large entries", "large steps", "before"} {
		s := newSession(t)
		s.cfg.Params.Ship.MaxWaiting = most
		s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}}
		s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
		s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
		s.apply(&Join{Node: "n1", BootID: "b"})
		start := func() model.JobID {
			id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}}}).Job
			s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 6000,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
			s.tell(id, Report{Kind: Started})
			return id
		}
		ended := start()
		s.tell(ended, Report{Kind: Ended})
		runs := start()
		entries := func(n int, text string) *Audits {
			c := &Audits{}
			for range n {
				c.List = append(c.List, &model.Audit{Event: "task_changed", Text: text, UID: 9})
			}
			return c
		}
		step := &model.Step{ID: 1}
		switch flood {
		case "large entries":
			s.apply(entries(most/2, strings.Repeat("x", 1<<20)))
			s.apply(entries(most/2, strings.Repeat("x", 1<<20)))
		case "large steps":
			step.Nodes = slices.Repeat([]string{strings.Repeat("n", 1000)}, 4000)
			for range most {
				s.st.Apply(Command{At: s.now, rules: rulesNow, Body: &Reports{Placed: true, Reports: []Report{{Kind: StepEnded,
					Job: runs, Attempt: 1, Node: "n1", Step: step}}}})
			}
		case "before":
			s.st.Apply(Command{At: s.now, rules: rulesLast, Body: entries(2*most, "comment=x")})
		default:
			for range 10 {
				if flood != "steps" {
					s.apply(entries(most, "comment=x"))
				}
				if flood != "trail" {
					c := &Reports{Placed: true}
					for range most {
						c.Reports = append(c.Reports, Report{Kind: StepEnded, Job: runs, Attempt: 1, Node: "n1", Step: step})
					}
					s.apply(c)
				}
			}
		}
		if err := s.st.Check(); err != nil {
			t.Fatalf("%s: %v", flood, err)
		}
		end, trail, steps := false, 0, 0
		s.st.View().Outbox(0, func(e Event) bool {
			switch {
			case e.Audit != nil:
				trail++
			case e.Step != nil:
				steps++
			case e.Job.ID == ended && e.Job.End != nil:
				end = true
			}
			return true
		})
		left := [2]int{trail, steps}
		if want := map[string][2]int{"both": {most / trailShare, most - most/trailShare - 2},
			"large entries": {63, 0}, "large steps": {trail, 66}}[flood]; end == (flood == "before") ||
			want != [2]int{} && left != want {
			t.Errorf("%s: the end waits: %v; %d entries, %d steps, want %v", flood, end, trail, steps, want)
		}
		if n := s.st.View().OutboxLen(); n > most {
			t.Errorf("%s: %d events wait", flood, n)
		}
		if !strings.HasPrefix(flood, "large") && flood != "before" {
			s.replicas()
		}
	}
}
