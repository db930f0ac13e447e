package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// explain_scarce.go finds the resource that a job waits for: what its nodes have too little of, who holds it, and until when.

// scarce is one resource that a request needs more of than is free.
type scarce struct {
	what   string
	need   int64
	free   int64 // of all nodes that are asked together or, each for itself, the most of one
	all    int64 // of all nodes together; 0: each for itself
	memory bool  // MiB
	text   string
	jobs   []model.JobID
	until  model.Time // enough is free then; 0: not known
}

func (c *scarce) amount(n int64) string {
	if c.memory {
		return walltime.FormatMem(n)
	}
	return fmt.Sprint(n)
}

// scarcest names the resource that keeps a request from its nodes, if it is one: of the whole job's, where it is counted for all
// nodes together, otherwise what too few nodes have enough of. at is when enough is there.
func (x *explainer) scarcest(sh *shape, nodes []*node, least []need, want int, last *node, at model.Time) *scarce {
	if c := x.inAll(sh, nodes); c != nil {
		return c
	}
	if sh.single && want > 1 { // over several nodes, in whatever parts
		return nil
	}
	return x.onEach(sh, nodes, least, want, last, at)
}

// entries gives the places of a node's resources of a name and type, as they are counted.
func entries(n *node, name, typ string) (of []int) {
	for i := range n.def.Gres {
		if d := &n.def.Gres[i]; d.Name == name && (typ == "" || strings.EqualFold(d.Type, typ)) {
			of = append(of, i)
		}
	}
	return of
}

func sumOf(list []int, of []int) (n int64) {
	for _, i := range of {
		if i < len(list) {
			n += int64(list[i])
		}
	}
	return n
}

// inAll looks at resources that are counted for the whole job, over several nodes.
func (x *explainer) inAll(sh *shape, nodes []*node) *scarce {
	if sh.single && !sh.spread {
		return nil
	}
	for i := range sh.rq.Gres {
		g := &sh.rq.Gres[i]
		if g.Per != model.PerJob || g.Milli > 0 || g.Count == 0 {
			continue
		}
		c := &scarce{what: g.Name, need: int64(g.Count)}
		if g.Type != "" {
			c.what = g.Type
		}
		var rel []*release
		var gives []int64
		for _, n := range nodes {
			of := entries(n, g.Name, g.Type)
			if divides(n.def, g.Name) {
				return nil // counted by shares
			}
			c.free += sumOf(n.free.gres, of)
			for _, k := range of {
				c.all += int64(n.def.Gres[k].Count)
			}
			for k := range n.rel {
				if r := &n.rel[k]; !r.takes && !r.asleep {
					if has := sumOf(r.gres, of); has > 0 {
						rel, gives = append(rel, r), append(gives, has)
					}
				}
			}
		}
		if c.free >= c.need {
			continue
		}
		c.text = fmt.Sprintf("waits for %s: %d in all, %d of %d free", c.what, c.need, c.free, c.all)
		x.holders(c, rel, gives, c.need-c.free)
		return c
	}
	return nil
}

// onEach looks at what each node of several, or the only one, must have.
func (x *explainer) onEach(sh *shape, nodes []*node, least []need, want int, last *node, at model.Time) *scarce {
	where := "on one node"
	if want > 1 {
		where = fmt.Sprintf("on each of %d nodes", want)
	}
	enough := func(c *scarce, has func(n *node) int64) bool {
		c.free = 0
		good := 0
		for _, n := range nodes {
			v := has(n)
			c.free = max(c.free, v)
			if v >= c.need {
				good++
			}
		}
		return good >= want
	}
	var found []*scarce
	said := func(c *scarce, has func(n *node) int64, gives func(r *release) int64) {
		if want > 1 {
			good := 0
			for _, n := range nodes {
				if has(n) >= c.need {
					good++
				}
			}
			c.text = fmt.Sprintf("waits for %s: %s %s, %d of them have that free", c.what, c.amount(c.need), where, good)
		} else {
			c.text = fmt.Sprintf("waits for %s: %s %s, the most free on one is %s", c.what, c.amount(c.need), where, c.amount(max(0, c.free)))
		}
		found = append(found, c)
		if last == nil || at <= x.now || at == forever {
			return
		}
		var rel []*release
		var list []int64
		for k := range last.rel {
			if r := &last.rel[k]; r.at <= at && !r.takes && !r.asleep && gives(r) > 0 {
				rel, list = append(rel, r), append(list, gives(r))
			}
		}
		bare := c.text
		x.holders(c, rel, list, c.need-has(last))
		if c.until != at { // something else keeps the node for longer
			c.text, c.jobs = bare, nil
		}
	}
	var nd *need // of the last node's class, or of any that can have the job
	for _, n := range nodes {
		if k := &least[n.class.at]; !k.never && (nd == nil || n == last) {
			nd = k
		}
	}
	if nd == nil || nd.idle || nd.place > 0 {
		return nil
	}
	if nd.lot == nil {
		for i := range sh.rq.Gres {
			g := &sh.rq.Gres[i]
			per := int64(g.Count)
			switch {
			case g.Milli > 0 || g.Count == 0 || g.Per == model.PerJob && !sh.single:
				continue
			case g.Per == model.PerTask && sh.single:
				per *= int64(sh.tasks)
			case g.Per == model.PerTask:
				per *= int64(sh.rq.PerNode)
			}
			c := &scarce{what: g.Name, need: per}
			if g.Type != "" {
				c.what = g.Type
			}
			has := func(n *node) int64 { return sumOf(n.free.gres, entries(n, g.Name, g.Type)) }
			if !enough(c, has) {
				said(c, has, func(r *release) int64 { return sumOf(r.gres, entries(last, g.Name, g.Type)) })
			}
		}
	}
	c := &scarce{what: "CPUs", need: int64(nd.cpus)}
	if has := func(n *node) int64 { return int64(n.free.cpus) }; !enough(c, has) {
		said(c, has, func(r *release) int64 { return int64(r.cpus) })
	}
	c = &scarce{what: "memory", need: nd.mem, memory: true}
	if has := func(n *node) int64 { return n.free.mem }; nd.mem > 0 && !enough(c, has) {
		said(c, has, func(r *release) int64 { return r.mem })
	}
	for _, c := range found { // the one that is there last
		if c.until == at {
			return c
		}
	}
	if len(found) > 0 {
		return found[0]
	}
	return nil
}

// holders adds the jobs whose ends give what is missing, in the order in which they end; rel is not in it yet.
func (x *explainer) holders(c *scarce, rel []*release, gives []int64, missing int64) {
	order := make([]int, len(rel))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rel[a].at, rel[b].at), cmp.Compare(rel[a].id, rel[b].id))
	})
	type holder struct {
		n  int64
		at model.Time
	}
	sum := map[model.JobID]*holder{} // a job may hold some on several nodes
	left := missing
	for _, i := range order {
		if left <= 0 {
			break
		}
		h := sum[rel[i].id]
		if h == nil {
			h = &holder{at: rel[i].at}
			sum[rel[i].id] = h
			c.jobs = append(c.jobs, rel[i].id)
		}
		h.n += gives[i]
		left -= gives[i]
		c.until = rel[i].at
	}
	if left > 0 {
		c.until = 0
	}
	for k, id := range c.jobs {
		if k == maxNamed {
			c.text += fmt.Sprintf(", and %d more jobs", len(c.jobs)-k)
			break
		}
		sep := "; "
		if k > 0 {
			sep = ", "
		}
		until := " without a time limit"
		if h := sum[id]; h.at < x.now.Add(unlimitedS/2) {
			until = " until " + at(h.at)
		}
		c.text += fmt.Sprintf("%sjob %s has %s%s", sep, x.name(id), c.amount(sum[id].n), until)
	}
	c.jobs = c.jobs[:min(len(c.jobs), maxNamed)]
}
