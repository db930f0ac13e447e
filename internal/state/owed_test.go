package state

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// owed_test.go: what a run owes for fair share and budgets whose end is known late.

// bills gives a cluster with a price, and a way to apply a command by rules of its time.
func bills(t *testing.T, rules uint8) (s *session, by func(Body)) {
	s, _ = manyNodes(t, 1)
	cfg := *s.st.View().Config()
	cfg.Params.Price = price.Table{MinS: 60, Lines: []price.Line{{Rates: []price.Rate{{TRES: "cpu", Micro: 2_000_000,
		Per: 1}}}}}
	s.apply(&SetConfig{Config: &cfg, Instance: 1})
	return s, func(b Body) { s.st.Apply(Command{At: s.now, Body: b, rules: rules}) }
}

// owes says what the account has been charged, without the cluster's other job.
func (s *session) owes() string {
	u := int64(0)
	s.st.View().Usages(func(x *Usage) bool {
		if x.User == "ann" {
			u += x.CPUMS
		}
		return true
	})
	owed := price.Money(0)
	if w := s.st.View().Payer(model.RootAccount); w != nil {
		owed = w.Balance()
	}
	return fmt.Sprintf("%s, %d CPU-s for limits, %d in all", owed,
		s.cpuSeconds(model.RootAccount)-2*int64(s.now-epoch)/1000, u/1000)
}

// TestLateEndOfUnseen: a run whose node falls silent before anybody has heard that it began owes the same, once its
// end is known, as one that was seen to begin: while its other node still ends its part, when it has ended, and when a
// later attempt has begun. By the rules of before it was billed, and not counted, or reduced what others had used.
func TestLateEndOfUnseen(t *testing.T) {
	end := func(rules uint8, nodes []string, requeue, seen, late bool) string {
		s, by := bills(t, rules)
		id := s.apply(&Submit{Spec: &model.Spec{Name: "k", UID: 7, User: "ann", Account: model.RootAccount,
			Partitions: []string{"p"}, Requeue: requeue}}).Job
		by(s.begins(id, "", nodes...))
		report := func(kind ReportKind, node string, at model.Time) {
			by(&Reports{Placed: true, Reports: []Report{{Kind: kind, Job: id, Attempt: 1, At: at, Node: node}}})
		}
		for _, n := range nodes[1:] {
			report(Ready, n, s.now)
		}
		if seen {
			report(Ready, nodes[0], s.now)
			report(Started, nodes[0], s.now)
		}
		s.now += 100_000
		ended := s.now
		s.now += 300_000
		by(&Lost{Nodes: nodes[:1]})
		others := func() {
			for _, n := range nodes[1:] {
				report(Ended, n, s.now)
			}
		}
		if late {
			others()
		}
		s.now += 10_000
		report(Ended, nodes[0], ended)
		if !late {
			others()
		}
		return s.owes()
	}
	for name, c := range map[string]struct {
		nodes         []string
		requeue, late bool
	}{
		"one node":              {[]string{"n4"}, false, false},
		"one node, again":       {[]string{"n4"}, true, false},
		"several, still ending": {[]string{"n4", "n5"}, false, false},
		"several":               {[]string{"n4", "n5"}, false, true},
	} {
		want := end(rulesOwed, c.nodes, c.requeue, true, c.late)
		if cpus := int64(100 * len(c.nodes)); want != fmt.Sprintf("%s, %d CPU-s for limits, %d in all",
			price.Money(-2*cpus*int64(price.One)/3600), cpus, cpus) {
			t.Errorf("%s: seen to begin it owes %s", name, want)
		}
		if got := end(rulesOwed, c.nodes, c.requeue, false, c.late); got != want {
			t.Errorf("%s: not seen to begin it owes %s, want %s", name, got, want)
		}
		if got := end(rulesWeighed, c.nodes, c.requeue, false, c.late); got == want {
			t.Errorf("%s: by the rules of before it owes the same", name)
		}
	}
}

// TestFoundRunOwes: a run that was about to begin in a snapshot, and has ended since, owes what its record says:
// nothing if nothing of it was launched.
func TestFoundRunOwes(t *testing.T) {
	for _, unbegun := range []bool{false, true} {
		for _, state := range []model.JobState{model.Completed, model.Cancelled} {
			for rules, right := range map[uint8]bool{rulesWeighed: !unbegun, rulesOwed: true} {
				s, by := bills(t, rules)
				id := s.apply(&Submit{Spec: &model.Spec{Name: "k", UID: 7, User: "ann", Account: model.RootAccount,
					Partitions: []string{"p"}}}).Job
				by(s.begins(id, "", "n4"))
				begun := s.now
				s.now += 500_000
				by(&NewEra{Number: 1, NextJob: 500, Restored: true, Found: []FoundRun{{Job: id, Attempt: 1, State: state,
					Start: begun, End: begun + 100_000, Unbegun: unbegun}}})
				j := s.job(id)
				if j.State != state || j.Unbegun() != unbegun && right {
					t.Errorf("by rules %d it is %s, unbegun: %v, want %s, %v", rules, j.State, j.Unbegun(), state, unbegun)
				}
				want := "0.00, 0 CPU-s for limits, 0 in all"
				if !unbegun {
					want = "-0.06, 100 CPU-s for limits, 100 in all"
				}
				if got := s.owes(); (got == want) != right {
					t.Errorf("by rules %d, unbegun %v, it owes %s, want %s: %v", rules, unbegun, got, want, right)
				}
			}
		}
	}
}

// TestEndBeforeBeginning: the cluster's time is bent a little while a node is away, so that the end of a short job
// comes out before its beginning: it has ended when it began. An end that is far before it is not believed.
func TestEndBeforeBeginning(t *testing.T) {
	for _, c := range []struct {
		rules  uint8
		before model.Time
		want   model.Time // its run time
	}{{rulesOwed, 3_000, 0}, {rulesOwed, 60_000, 60_000}, {rulesWeighed, 3_000, 60_000}} {
		s, by := bills(t, c.rules)
		id := s.apply(&Submit{Spec: &model.Spec{Name: "k", UID: 7, User: "ann", Account: model.RootAccount,
			Partitions: []string{"p"}}}).Job
		by(s.begins(id, "", "n4"))
		begun := s.now
		by(&Reports{Placed: true, Reports: []Report{{Kind: Started, Job: id, Attempt: 1, At: begun, Node: "n4"}}})
		s.now += 60_000
		by(&Reports{Placed: true, Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, At: begun - c.before, Node: "n4"}}})
		s.want("it ran for", s.job(id).End.At-begun, c.want)
	}
}
