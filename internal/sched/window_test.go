package sched

import (
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Nothing starts on a node that is closed for it before its planned end, whatever the policy.
func TestNothingStartsIntoAReservation(t *testing.T) {
	starts, inside := 0, 0
	for seed := range 60 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 17))}
		c := w.cluster(t)
		for i := range 1 + w.n(3) {
			r := &model.Reservation{Name: string(rune('a' + i)), Start: c.now.Add(int64(w.n(900))), Users: []string{"u"}, Flags: pick(w, 0, model.ResvMaint, model.ResvFlex, model.ResvDaily)}
			r.End = r.Start.Add(int64(1 + w.n(2000)))
			for _, d := range c.cfg.Nodes {
				if w.chance(40) {
					r.Nodes = append(r.Nodes, d.Name)
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
					sp.Reservation = pick(w, "a", "b")
				}
				c.apply(&state.Submit{Spec: sp})
			}
			v := c.st.View()
			plan := p.Plan(v, c.now, pol)
			for i := range plan.Starts {
				s := &plan.Starts[i]
				starts++
				own := v.Job(s.Job).Spec.Reservation
				end := c.now.Add(s.LimitS)
				for k := range s.Alloc.Nodes {
					name, mine := s.Alloc.Nodes[k].Node, false
					v.Reservations(func(r *model.Reservation) bool {
						has := false
						for _, n := range r.Nodes {
							has = has || n == name
						}
						for _, o := range r.Occurrences() {
							switch {
							case r.Name == own:
								mine = mine || has && (r.Flags&model.ResvFlex != 0 || o[0] <= c.now && end <= o[1])
							case has && o[0] < end && c.now < o[1]:
								t.Errorf("seed %d: %s runs into reservation %s, %d to %d (now is %d)", seed, startLine(s), r.Name, o[0], o[1], c.now)
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
			c.apply(&state.Starts{Plan: plan})
			c.now = c.now.Add(int64(w.n(400)))
			c.apply(&state.Tick{})
		}
	}
	if starts < 200 || inside < 20 {
		t.Errorf("only %d starts, %d inside reservations", starts, inside)
	}
}
