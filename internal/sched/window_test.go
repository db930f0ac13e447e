package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// No job starts on a node that a reservation closes to it before its planned end, whatever the policy.
func TestNothingStartsIntoAReservation(t *testing.T) {
	starts, inside := 0, 0
	for seed := range 60 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 17))}
		c := w.cluster(t)
		for i := range 1 + w.n(3) {
			r := &model.Reservation{Name: string(rune('a' + i)), Start: c.now.Add(int64(w.n(900))), Users: []string{"u"},
				Flags: pick(w, 0, model.ResvMaint, model.ResvFlex, model.ResvDaily)}
			r.End = r.Start.Add(int64(1 + w.n(2000)))
			for _, d := range c.cfg.Nodes {
				if w.chance(40) {
					r.Nodes = append(r.Nodes, d.Name)
				}
			}
			if w.chance(40) && len(r.Nodes) > 0 {
				for _, name := range r.Nodes {
					def := c.st.View().NodeDef(name)
					part := model.ResvPart{CPUs: int32(1 + w.n(int(def.CPUs))), MemMiB: int64(w.n(2) * w.n(int(def.MemMiB)))}
					for _, g := range def.Gres {
						part.Gres = append(part.Gres, int32(w.n(int(g.Count)+1)))
					}
					r.Parts = append(r.Parts, part)
				}
			}
			if len(r.Nodes) > 0 {
				c.apply(&state.Reserve{Op: state.CreateResv, Resv: r})
			}
		}
		p := NewPlanner()
		pol := Policy{Backfill: Backfill{On: w.chance(70), Reserve: pick(w, 1, 5, -1)}}
		for range 8 {
			for range w.n(8) {
				sp := w.spec(c)
				sp.LimitS = int64(pick(w, 60, 300, 1000, 4000))
				if w.chance(30) {
					sp.Reservation = pick(w, "a", "b", "a,b")
				}
				if w.chance(20) {
					m := sp.Extra()
					m.TimeMinS = int64(1 + w.n(600))
					sp.More = &m
				}
				c.apply(&state.Submit{Spec: sp})
			}
			v := c.st.View()
			plan := p.Plan(v, c.now, pol)
			for i := range plan.Starts {
				s := &plan.Starts[i]
				starts++
				own := s.Resv
				end := c.now.Add(s.LimitS)
				for k := range s.Alloc.Nodes {
					name, mine := s.Alloc.Nodes[k].Node, false
					beside := mayOverlap(v, own, name)
					v.Reservations(func(r *model.Reservation) bool {
						has := false
						for _, n := range r.Nodes {
							has = has || n == name
						}
						for _, o := range r.Occurrences() {
							switch {
							case r.Name == own:
								mine = mine || r.Flags&model.ResvFlex != 0 || has && (o[0] <= c.now && end <= o[1])
							case !beside && has && len(r.Parts) == 0 && o[0] < end && c.now < o[1]:
								t.Errorf("seed %d: %s runs into reservation %s, %d to %d (now is %d)", seed, startLine(s), r.Name, o[0], o[1],
									c.now)
							}
						}
						return true
					})
					if own != "" {
						inside++
						if !mine {
							t.Errorf("seed %d: %s is not inside its reservation %s", seed, startLine(s), own)
						}
					}
				}
			}
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("seed %d: a kept planner: %s\na fresh one: %s", seed, planText(plan), planText(fresh))
			}
			c.apply(&state.Starts{Plan: plan})
			if err := apart(c); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			c.now = c.now.Add(int64(w.n(400)))
			c.apply(&state.Tick{})
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State == model.Completing || j.State.HasResources() && w.chance(20) {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
	}
	if starts < 200 || inside < 20 {
		t.Errorf("only %d starts, %d inside reservations", starts, inside)
	}
}

// mayOverlap reports whether a reservation's jobs may run within other reservations of a node.
func mayOverlap(v *state.View, resv, node string) bool {
	r := v.Reservation(resv)
	return r != nil && r.Flags&(model.ResvMaint|model.ResvOverlap) != 0 && slices.Contains(r.Nodes, node)
}

// apart checks running jobs against the present reservations of parts of nodes: a reservation's jobs have at most its
// part, and all other jobs at most the rest.
func apart(c *cluster) (err error) {
	v := c.st.View()
	v.Reservations(func(r *model.Reservation) bool {
		if r.Start > c.now || c.now >= r.End || r.Flags&model.ResvFlex != 0 {
			return true
		}
		for i, name := range r.Nodes {
			part := r.Part(i)
			if part == nil {
				continue
			}
			n := v.Node(name)
			var inside, beside model.Bits // CPUs of jobs that share them count once
			for _, id := range n.Jobs {
				j := v.Job(id)
				for _, na := range j.Run.Alloc.Nodes {
					switch {
					case na.Node != name:
					case mayOverlap(v, j.Run.Resv, name) && j.Run.Resv != r.Name:
					case j.Run.Resv == r.Name:
						inside = inside.Or(na.CPUs)
					default:
						beside = beside.Or(na.CPUs)
					}
				}
			}
			in, out := inside.Count(), beside.Count()
			if in > int(part.CPUs) || out > int(n.Def.CPUs-part.CPUs) {
				err = fmt.Errorf("reservation %s has %d of %d CPUs of %s: its jobs have %d, others %d", r.Name, part.CPUs,
					n.Def.CPUs, name, in, out)
			}
		}
		return err == nil
	})
	return err
}
