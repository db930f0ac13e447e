package sched

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// id reads a job's number.
func (c *cluster) id(text string) model.JobID {
	n, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatalf("%s: %v", c.at, err)
	}
	return model.JobID(n)
}

// why prints an explanation; moments as seconds since the transcript began.
func (c *cluster) why(say func(string, ...any), w words) {
	pol := Policy{}
	if len(w.plain) > 1 {
		pol.Backfill = Backfill{On: true, Reserve: 1}
	}
	v := c.st.View()
	x := Explain(v, c.now, pol, c.id(w.plain[0]))
	if x == nil {
		say("no such job")
		return
	}
	c.hides(pol, x)
	stamp := regexp.MustCompile(`<t:(\d+)>`)
	text := func(s string) string {
		return stamp.ReplaceAllStringFunc(s, func(m string) string {
			ms, err := strconv.ParseInt(stamp.FindStringSubmatch(m)[1], 10, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return fmt.Sprintf("+%d", (model.Time(ms)-epoch)/1000)
		})
	}
	for _, p := range x.Places {
		say("place %s: %d of %d ahead", p.Partition, p.Ahead, p.Queue)
	}
	for _, cause := range x.Causes {
		part := ""
		if cause.Partition != "" {
			part = " " + cause.Partition
		}
		say("cause %s%s: %s", cause.Reason, part, text(cause.Text))
	}
	if x.Start != 0 {
		say("start +%d on %s", (x.Start-epoch)/1000, strings.Join(x.Nodes, ","))
	}
	say("%s", text(x.Text))
	for _, ch := range x.Changes {
		when := fmt.Sprintf("+%d", (ch.Start-epoch)/1000)
		if ch.Now {
			when = "now"
		}
		say("with %s: %s in %s on %s", ch.Option, when, ch.Partition, strings.Join(ch.Nodes, ","))
	}
}

// others finds names of jobs and reservations.
var others = regexp.MustCompile(`(?i)\bjobs? \d|reservation \S+ (from|keeps|on) `)

// hides checks that the same explanation names nothing of others to somebody from whom they are hidden.
func (c *cluster) hides(pol Policy, x *model.Explanation) {
	none := func(string) bool { return false }
	sees := &Sight{Job: func(id model.JobID) bool { return id == x.Job }, Reservation: none, Node: none, Partition: none}
	h := ExplainTo(sees, c.st.View(), c.now, pol, x.Job)
	for _, cause := range h.Causes {
		if cause.Reason != model.ReasonDependencyNeverSatisfied && (others.MatchString(cause.Text) || len(cause.Jobs) > 0) {
			c.t.Errorf("%s: the cause names others, though they are hidden: %s %v", c.at, cause.Text, cause.Jobs)
		}
	}
	if h.State == model.Pending && others.MatchString(h.Text) || h.Start != x.Start || len(h.Causes) != len(x.Causes) {
		c.t.Errorf("%s: with others hidden: %+v", c.at, h)
	}
	c.namesNoNodes(h)
}

// oneWord is a node's name that is no word of a sentence.
var oneWord = regexp.MustCompile(`[a-z]+[0-9]+`)

// namesNoNodes: with nodes hidden, an explanation names none but those that the job asks for or has had.
func (c *cluster) namesNoNodes(h *model.Explanation) {
	c.t.Helper()
	v := c.st.View()
	j := v.Job(h.Job)
	if h.State != model.Pending || j.Rush != nil || j.Strikes > 0 {
		return
	}
	shown := func(list []string) bool {
		return slices.ContainsFunc(list, func(n string) bool { return !slices.Contains(j.Spec.ReqNodes, n) })
	}
	bad := shown(h.Nodes)
	texts := []string{h.Text}
	for _, cause := range h.Causes {
		bad = bad || shown(cause.Nodes)
		texts = append(texts, cause.Text)
	}
	for _, w := range h.Changes {
		bad = bad || shown(w.Nodes) || strings.HasPrefix(w.Option, "--partition=")
	}
	v.Nodes(func(n *model.Node) bool {
		named := regexp.MustCompile(`\b` + regexp.QuoteMeta(n.Def.Name) + `\b`)
		if !oneWord.MatchString(n.Def.Name) {
			return true // texts have such words
		}
		for _, text := range texts {
			if named.MatchString(text) && !slices.Contains(j.Spec.ReqNodes, n.Def.Name) {
				bad = true
			}
			if n.Reason != "" && strings.Contains(text, n.Reason) {
				bad = true
			}
		}
		return true
	})
	if bad {
		c.t.Errorf("%s: it names nodes, though they are hidden: %+v", c.at, h)
	}
}

// An explanation says that a job starts now if, and only if, a pass with a reservation for every job starts it.
func TestExplanationsAgreeWithPlans(t *testing.T) {
	checked := 0
	for seed := range 60 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 11))}
		c := w.cluster(t)
		for range 2 {
			for range 6 + w.n(8) {
				c.apply(&state.Submit{Spec: w.spec(c), Priority: uint32(w.n(2))})
			}
			p, v := NewPlanner(), c.st.View()
			plan := p.Plan(v, c.now, Policy{Backfill: Backfill{On: true, Reserve: -1}})
			starts := map[model.JobID]bool{}
			for _, s := range plan.Starts {
				starts[s.Job] = true
			}
			v.Jobs(func(j *model.Job) bool {
				if j.State != model.Pending || p.rounds > 0 {
					return true
				}
				x := Explain(v, c.now, Policy{Backfill: Backfill{On: true, Reserve: -1}}, j.ID)
				// Not for a job in several partitions: the explanation doesn't know its reservation in the first one.
				if now := x.Start == c.now; now != starts[j.ID] && len(j.Spec.Partitions) == 1 {
					t.Errorf("seed %d, job %d: the plan starts it: %v, its explanation: %+v", seed, j.ID, starts[j.ID], x)
				}
				if x.Start != c.now && len(x.Causes) == 0 || x.Text == "" || len(x.Changes) > maxShown {
					t.Errorf("seed %d, job %d: %+v", seed, j.ID, x)
				}
				checked++
				return true
			})
			c.apply(&state.Starts{Plan: plan})
			c.now = c.now.Add(60)
		}
	}
	if checked < 200 {
		t.Errorf("only %d explanations", checked)
	}
}

// TestUnitsText: units that are out for the same reason are named together.
func TestUnitsText(t *testing.T) {
	out := []model.UnitOut{{Name: "gpu", Index: 0, Reason: "fan"}, {Name: "gpu", Index: 1, Reason: "fan"},
		{Name: "gpu", Index: 2, Kind: model.OutCleared}, {Name: "gpu", Index: 3, Reason: "Xid 79"}}
	if got, want := unitsText(out), "gpu 0, 1: fan; gpu 3: Xid 79"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
