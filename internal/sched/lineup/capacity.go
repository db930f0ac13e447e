package lineup

import (
	"cmp"
	"maps"
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
	waits  map[model.JobID]*waiting // the jobs that wait; nil: not known yet
	cursor state.Cursor             // what of the view's journal is counted
	turn   uint64                   // differs when a job's place has changed
}

// waiting is a job in line.
type waiting struct {
	id    model.JobID
	spec  *model.Spec
	tasks int64
	owner *owner // nil: nobody guarantees it anything
	need  []model.TRESCount
	prio  uint64
	fresh bool // it has no place yet
}

// owner is an account or a QOS with a guarantee.
type owner struct {
	guarantee []model.TRESCount
	tally     func(v *state.View) *state.Tally
	counted   *state.Tally     // what tally gave
	base      map[string]int64 // the same, by resource
	held      map[string]int64 // with the jobs in line
	line      []*waiting       // by number
	stale     bool             // held and the line's places are to be counted again
}

func newCapacity(v *state.View, part *model.Partition) *capacity {
	return &capacity{v: v, part: part, rules: ask.RulesOf(part, &v.Config().Params), owners: map[string]*owner{}}
}

// amount gives how much of a resource is in service.
func (c *capacity) amount(tres string) int64 {
	if c.total == nil {
		c.total = c.inService()
	}
	n := int64(0)
	for _, t := range c.total {
		if strings.EqualFold(t.TRES, tres) {
			n += t.Count
		}
	}
	return n
}

// inService adds up what the nodes have that take jobs.
func (c *capacity) inService() []model.TRESCount {
	out := []model.TRESCount{}
	for _, name := range c.part.Nodes {
		if n := c.v.Node(name); n != nil && n.Usable() {
			out = model.AddNodeTRES(out, n.Def)
		}
	}
	return out
}

// capacity gives a partition's order, with all its waiting jobs in line.
func (o *Order) capacity(part *model.Partition) *capacity {
	c := o.caps[part.Name]
	if c == nil {
		c = newCapacity(o.v, part)
		o.caps[part.Name] = c
	}
	if c.waits == nil || c.v != o.v {
		c.follow(o.v)
	}
	return c
}

// follow brings it to a view: it looks at the jobs that the journal names, and counts again for their owners and for
// those who hold something else now.
func (c *capacity) follow(v *state.View) {
	changes, next, known := v.Changes(c.cursor)
	c.v, c.cursor = v, next
	if c.waits == nil || !known {
		c.build()
		return
	}
	nodes := false
	for _, ch := range changes {
		if ch.Job != 0 {
			c.see(ch.Job)
		} else {
			nodes = true
		}
	}
	if was := c.total; nodes && was != nil {
		if c.total = c.inService(); !slices.Equal(was, c.total) {
			c.build() // guarantees in per cent are other ones now
			return
		}
	}
	if len(c.waits) != v.ReadyLen(c.part.Name) {
		c.build()
		return
	}
	c.count()
}

// build counts everything.
func (c *capacity) build() {
	c.total, c.owners, c.waits = nil, map[string]*owner{}, map[model.JobID]*waiting{}
	c.v.Ready(c.part.Name, func(j *model.Job) bool {
		c.add(j)
		return true
	})
	for _, w := range c.owners {
		slices.SortFunc(w.line, byNumber)
	}
	c.count()
	c.turn = c.v.Gen() + 1
}

func byNumber(a, b *waiting) int { return cmp.Compare(a.id, b.id) }

// add puts a job at the end of its owner's line.
func (c *capacity) add(j *model.Job) *waiting {
	w := &waiting{id: j.ID, spec: j.Spec, tasks: tasksOf(j), owner: c.ownerOf(j.Spec), fresh: true}
	c.waits[j.ID] = w
	if o := w.owner; o != nil {
		w.need = c.needOf(j)
		o.line, o.stale = append(o.line, w), true
	}
	return w
}

func tasksOf(j *model.Job) int64 { return int64(max(1, j.Tasks.Count())) }

// see takes over what has changed of a job.
func (c *capacity) see(id model.JobID) {
	w, j := c.waits[id], c.v.Job(id)
	in := j != nil && c.v.InQueue(c.part.Name, j)
	if w != nil && in && w.spec == j.Spec && w.tasks == tasksOf(j) {
		return
	}
	if w != nil {
		delete(c.waits, id)
		if o := w.owner; o != nil {
			if i, found := slices.BinarySearchFunc(o.line, w, byNumber); found {
				o.line, o.stale = slices.Delete(o.line, i, i+1), true
			}
		}
	}
	if in {
		if w = c.add(j); w.owner != nil && len(w.owner.line) > 1 {
			line := w.owner.line
			i, _ := slices.BinarySearchFunc(line[:len(line)-1], w, byNumber)
			copy(line[i+1:], line[i:len(line)-1])
			line[i] = w
		}
	}
}

// count gives the jobs of owners about whom something has changed their places.
func (c *capacity) count() {
	for _, o := range c.owners {
		if t := o.tally(c.v); t != o.counted || o.base == nil {
			o.counted, o.base, o.stale = t, map[string]int64{}, true
			if t != nil {
				for i := range t.TRES {
					o.base[strings.ToLower(t.TRES[i].TRES)] += t.TRES[i].Count
				}
			}
		}
		if !o.stale {
			continue
		}
		o.stale, o.held = false, maps.Clone(o.base)
		for _, w := range o.line {
			p := place(c.ratio(o, w.need))
			if p != w.prio && !w.fresh {
				c.turn = c.v.Gen() + 1
			}
			w.prio, w.fresh = p, false
			for _, x := range w.need {
				o.held[strings.ToLower(x.TRES)] += x.Count * w.tasks
			}
		}
	}
}

func (c *capacity) priority(j *model.Job) uint64 {
	if w := c.waits[j.ID]; w != nil {
		return w.prio
	}
	return c.last(j)
}

// last gives the place of a job behind all others of its owner.
func (c *capacity) last(j *model.Job) uint64 {
	return place(c.ratio(c.ownerOf(j.Spec), c.needOf(j)))
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
			account, part, pool := a.Account, a.Partition, a.OfPool()
			c.owners[key] = c.newOwner(a.GuaranteedTRES, func(v *state.View) *state.Tally {
				if pool {
					return v.Tally(state.OfPool, account, part)
				}
				return v.Tally(state.OfAccount, account)
			})
		}
		return c.owners[key]
	}
	q := c.v.QOS(sp.QOS)
	if q == nil || len(q.GuaranteedTRES) == 0 {
		return nil
	}
	key := "q " + q.Name
	if c.owners[key] == nil {
		name := q.Name
		c.owners[key] = c.newOwner(q.GuaranteedTRES, func(v *state.View) *state.Tally {
			return v.Tally(state.OfQOS, name)
		})
	}
	return c.owners[key]
}

func (c *capacity) newOwner(limits []model.TRESLimit, tally func(v *state.View) *state.Tally) *owner {
	w := &owner{held: map[string]int64{}, tally: tally, stale: true}
	for _, l := range limits {
		total := int64(0)
		if l.Percent {
			total = c.amount(l.TRES)
		}
		w.guarantee = append(w.guarantee, model.TRESCount{TRES: l.TRES, Count: l.Of(total)})
	}
	if t := tally(c.v); t != nil {
		for i := range t.TRES {
			w.held[strings.ToLower(t.TRES[i].TRES)] += t.TRES[i].Count
		}
	}
	return w
}
