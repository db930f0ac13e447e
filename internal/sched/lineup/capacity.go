package lineup

import (
	"math"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// capacity is the order of one partition by guarantees. Jobs of one owner stand in line: each counts with what those
// before it take, so that owners take turns even if a single pass starts many jobs.
type capacity struct {
	v      *state.View
	part   *model.Partition
	rules  model.AskRules
	total  []model.TRESCount // in service; nil: not added up yet
	owners map[string]*owner
	prio   map[model.JobID]uint64 // of the jobs that wait; nil: not made yet
}

// owner is an account or a QOS with a guarantee.
type owner struct {
	guarantee []model.TRESCount
	held      map[string]int64 // with the jobs in line
}

func newCapacity(v *state.View, part *model.Partition) *capacity {
	return &capacity{v: v, part: part, rules: ask.RulesOf(part, &v.Config().Params), owners: map[string]*owner{}}
}

// amount gives how much of a resource is in service.
func (c *capacity) amount(tres string) int64 {
	if c.total == nil {
		for _, name := range c.part.Nodes {
			if n := c.v.Node(name); n != nil && n.Usable() {
				c.total = model.AddNodeTRES(c.total, n.Def)
			}
		}
	}
	n := int64(0)
	for _, t := range c.total {
		if strings.EqualFold(t.TRES, tres) {
			n += t.Count
		}
	}
	return n
}

// capacity gives a partition's order, with all its waiting jobs in line.
func (o *Order) capacity(part *model.Partition) *capacity {
	c := o.caps[part.Name]
	if c == nil {
		c = newCapacity(o.v, part)
		c.prio = map[model.JobID]uint64{}
		o.caps[part.Name] = c
		var jobs []*model.Job
		o.v.Ready(part.Name, func(j *model.Job) bool {
			jobs = append(jobs, j)
			return true
		})
		slices.SortFunc(jobs, func(a, b *model.Job) int { return int(a.ID - b.ID) })
		for _, j := range jobs {
			c.prio[j.ID] = c.queue(j)
		}
	}
	return c
}

func (c *capacity) priority(j *model.Job) uint64 {
	if p, known := c.prio[j.ID]; known {
		return p
	}
	return c.last(j)
}

// last gives the place of a job behind all others of its owner.
func (c *capacity) last(j *model.Job) uint64 {
	return place(c.ratio(c.ownerOf(j.Spec), c.needOf(j)))
}

// queue gives a job's place and puts it in line.
func (c *capacity) queue(j *model.Job) uint64 {
	w, need := c.ownerOf(j.Spec), c.needOf(j)
	p := place(c.ratio(w, need))
	if w != nil {
		n := int64(max(1, j.Tasks.Count()))
		for _, x := range need {
			w.held[strings.ToLower(x.TRES)] += x.Count * n
		}
	}
	return p
}

func (c *capacity) needOf(j *model.Job) []model.TRESCount {
	counts := ask.Of(j.Spec, &c.rules)
	all, _ := counts.Least()
	return all
}

// place makes a priority of a ratio: the higher, the less an owner has. Without a guarantee it is 0.
func place(ratio float64) uint64 {
	if math.IsInf(ratio, 1) {
		return 0
	}
	return 1 + uint64(float64(uint64(1)<<52)/(1+ratio))
}

// ratio gives what an owner would have with more, as a part of its guarantee: the largest of all resources that are
// guaranteed.
func (c *capacity) ratio(w *owner, more []model.TRESCount) float64 {
	if w == nil {
		return math.Inf(1)
	}
	most := 0.0
	for _, g := range w.guarantee {
		if g.Count > 0 {
			n := w.held[strings.ToLower(g.TRES)]
			for _, x := range more {
				if strings.EqualFold(x.TRES, g.TRES) {
					n += x.Count
				}
			}
			most = max(most, float64(n)/float64(g.Count))
		}
	}
	return most
}

// ownerOf gives whose guarantee counts for a job: its account's, or of those above it the nearest, in this partition or
// in all; else its QOS's. nil: there is none.
func (c *capacity) ownerOf(sp *model.Spec) *owner {
	for _, a := range c.v.Govern(sp.Account, "", "", c.part.Name).Chain {
		if len(a.GuaranteedTRES) == 0 {
			continue
		}
		key := "a " + a.Account + " " + a.Partition
		if c.owners[key] == nil {
			t := c.v.Tally(state.OfAccount, a.Account)
			if a.OfPool() {
				t = c.v.Tally(state.OfPool, a.Account, a.Partition)
			}
			c.owners[key] = c.newOwner(a.GuaranteedTRES, t)
		}
		return c.owners[key]
	}
	q := c.v.QOS(sp.QOS)
	if q == nil || len(q.GuaranteedTRES) == 0 {
		return nil
	}
	key := "q " + q.Name
	if c.owners[key] == nil {
		c.owners[key] = c.newOwner(q.GuaranteedTRES, c.v.Tally(state.OfQOS, q.Name))
	}
	return c.owners[key]
}

func (c *capacity) newOwner(limits []model.TRESLimit, held *state.Tally) *owner {
	w := &owner{held: map[string]int64{}}
	for _, l := range limits {
		total := int64(0)
		if l.Percent {
			total = c.amount(l.TRES)
		}
		w.guarantee = append(w.guarantee, model.TRESCount{TRES: l.TRES, Count: l.Of(total)})
	}
	if held != nil {
		for i := range held.TRES {
			w.held[strings.ToLower(held.TRES[i].TRES)] += held.TRES[i].Count
		}
	}
	return w
}
