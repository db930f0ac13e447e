package pools

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched/headroom"
	"gbatch/internal/state"
)

// Of sums up all partitions at a moment. shown says which accounts the reader may see; the others have no quotas.
//
// It looks at each node, and at each unfinished job once.
func Of(v *state.View, now model.Time, shown func(account string) bool) []proto.Pool {
	parts := v.Config().Partitions
	out := make([]proto.Pool, len(parts))
	at := make(map[string]*proto.Pool, len(parts))
	nodes := nodeSums(v, now)
	total := make(map[string][]model.TRESCount, len(parts)) // what takes jobs: percentages are of it
	for i, p := range parts {
		pool := &out[i]
		pool.Name, at[p.Name] = p.Name, pool
		for _, name := range p.Nodes {
			if n := nodes[name]; n != nil {
				pool.TRES = n.addTo(pool.TRES)
				if n.takesJobs {
					total[p.Name] = model.AddNodeTRES(total[p.Name], n.def)
				}
			}
		}
	}
	for i, p := range parts {
		if p.Order != model.OrderDefault {
			out[i].Order = p.Order.String()
		}
		keepBack(&out[i], headroom.Of(v, p))
	}
	quotas := map[[2]string][]int{} // account and partition -> where its quotas stand
	v.Associations(func(a *model.Association) bool {
		if pool := at[a.Partition]; pool != nil && a.OfPool() && shown(a.Account) {
			key := [2]string{a.Account, a.Partition}
			for _, q := range quotasOf(a, total[a.Partition]) {
				quotas[key] = append(quotas[key], len(pool.Quotas))
				pool.Quotas = append(pool.Quotas, q)
			}
		}
		return true
	})
	count(v, at, quotas)
	return out
}

// keepBack counts a partition's headroom: what of the free part is not for every job counts as reserved. Of one type
// of GPU a job may have as much as of all types together.
func keepBack(pool *proto.Pool, r *headroom.Room) {
	if r == nil {
		return
	}
	for i := range pool.TRES {
		t := &pool.TRES[i]
		if t.TRES == r.TRES() {
			t.Headroom = r.Keep
		}
		if t.TRES == r.TRES() || strings.HasPrefix(t.TRES, r.TRES()+":") {
			t.Kept = t.Free() - max(0, min(t.Free(), r.Left()))
			t.Reserved += t.Kept
		}
	}
}

// quotasOf gives what an account's association for a partition says, by resource.
func quotasOf(a *model.Association, total []model.TRESCount) []proto.PoolQuota {
	var out []proto.PoolQuota
	find := func(tres string) *proto.PoolQuota {
		for i := range out {
			if out[i].TRES == tres {
				return &out[i]
			}
		}
		out = append(out, proto.PoolQuota{Account: a.Account, TRES: tres, Limit: -1})
		return &out[len(out)-1]
	}
	of := func(l *model.TRESLimit) int64 {
		for i := range total {
			if strings.EqualFold(total[i].TRES, l.TRES) {
				return l.Of(total[i].Count)
			}
		}
		return l.Of(0)
	}
	for i := range a.GrpTRES {
		find(a.GrpTRES[i].TRES).Limit = of(&a.GrpTRES[i])
	}
	for i := range a.GuaranteedTRES {
		find(a.GuaranteedTRES[i].TRES).Guaranteed = of(&a.GuaranteedTRES[i])
	}
	return out
}

// count adds the unfinished jobs: to their partition, and to the quotas of their account and of those above it.
func count(v *state.View, at map[string]*proto.Pool, quotas map[[2]string][]int) {
	v.Jobs(func(j *model.Job) bool {
		if j.State.Finished() {
			return true
		}
		part := j.Partition()
		pool := at[part]
		if pool == nil {
			return true
		}
		runs, tasks := j.State.HasResources(), int64(1)
		if j.IsArray() {
			tasks = int64(j.Tasks.Count())
		}
		if runs {
			pool.Running++
		} else {
			pool.Pending += tasks
		}
		if len(quotas) == 0 {
			return true
		}
		var held []model.TRESCount
		for account := j.Spec.Account; account != ""; {
			for _, i := range quotas[[2]string{account, part}] {
				q := &pool.Quotas[i]
				if !runs {
					q.Pending += tasks
					continue
				}
				if held == nil {
					held = model.AddTRES(j.Run.Alloc.TRES(), "billing", j.Run.Billing())
				}
				for _, c := range held {
					if strings.EqualFold(c.TRES, q.TRES) {
						q.Used += c.Count
					}
				}
			}
			a := v.Account(account)
			if a == nil {
				break
			}
			account = a.Parent
		}
		return true
	})
}

// nodeSum is what one node has.
type nodeSum struct {
	def       *model.NodeDef
	takesJobs bool
	tres      []proto.PoolTRES
}

// nodeSums gives the nodes by name.
func nodeSums(v *state.View, now model.Time) map[string]*nodeSum {
	out := map[string]*nodeSum{}
	v.Nodes(func(n *model.Node) bool {
		s := &nodeSum{def: n.Def, takesJobs: n.Usable()}
		s.put("cpu", int64(n.Def.CPUs), int64(n.UsedCPUs.Count()))
		s.put("mem", n.Def.MemMiB, n.UsedMem)
		for i := range n.Def.Gres {
			g := &n.Def.Gres[i]
			used, away := int64(0), int64(0)
			taken, broken := n.Used(g.Name), n.OutOf(g.Name)
			if g.Name == model.GPUName { // one that jobs share is no whole GPU for others
				taken = n.HeldGPUs()
			}
			for k := int(g.First); k < int(g.First+g.Count); k++ {
				if taken.Has(k) {
					used++
				} else if broken.Has(k) {
					away++
				}
			}
			for _, tres := range []string{model.GresTRES(g.Name, ""), model.GresTRES(g.Name, g.Type)} {
				if t := s.put(tres, int64(g.Count), used); t != nil {
					t.Down += away
				}
				if g.Type == "" {
					break
				}
			}
		}
		if !s.takesJobs {
			s.rest(func(t *proto.PoolTRES) { t.Down += t.Free() })
		}
		out[n.Def.Name] = s
		return true
	})
	v.Reservations(func(r *model.Reservation) bool {
		if r.Active(now) {
			for i, name := range r.Nodes {
				if s := out[name]; s != nil {
					s.reserve(r.Part(i), usedIn(v, r.Name, name))
				}
			}
		}
		return true
	})
	return out
}

// put adds to a resource of the node, and gives it.
func (s *nodeSum) put(tres string, total, used int64) *proto.PoolTRES {
	for i := range s.tres {
		if t := &s.tres[i]; t.TRES == tres {
			t.Total, t.Alloc = t.Total+total, t.Alloc+min(used, total)
			return t
		}
	}
	s.tres = append(s.tres, proto.PoolTRES{TRES: tres, Total: total, Alloc: min(used, total)})
	return &s.tres[len(s.tres)-1]
}

func (s *nodeSum) rest(f func(*proto.PoolTRES)) {
	for i := range s.tres {
		f(&s.tres[i])
	}
}

// usedIn gives what the jobs of a reservation hold on a node.
func usedIn(v *state.View, resv, node string) []model.TRESCount {
	var out []model.TRESCount
	n := v.Node(node)
	if n == nil {
		return nil
	}
	for _, id := range n.Jobs {
		j := v.Job(id)
		if j == nil || j.Run == nil || j.Run.Resv != resv {
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			if j.Run.Alloc.Nodes[i].Node == node {
				one := model.Alloc{Nodes: j.Run.Alloc.Nodes[i : i+1]}
				for _, c := range one.TRES() {
					out = model.AddTRES(out, c.TRES, c.Count)
				}
			}
		}
	}
	return out
}

// reserve counts what a reservation has of the node, all of it or a part, and its jobs, which hold used, don't use.
func (s *nodeSum) reserve(part *model.ResvPart, used []model.TRESCount) {
	if part == nil {
		s.rest(func(t *proto.PoolTRES) { t.Reserved += t.Free() })
		return
	}
	s.rest(func(t *proto.PoolTRES) {
		n := int64(0)
		switch t.TRES {
		case "cpu":
			n = int64(part.CPUs)
		case "mem":
			n = part.MemMiB
		}
		for k := range part.Gres {
			if g := &s.def.Gres[k]; t.TRES == model.GresTRES(g.Name, "") ||
				g.Type != "" && t.TRES == model.GresTRES(g.Name, g.Type) {
				n += int64(part.Gres[k])
			}
		}
		for _, c := range used {
			if c.TRES == t.TRES {
				n -= c.Count
			}
		}
		t.Reserved += max(0, min(n, t.Free()))
	})
}

// addTo adds the node to a partition's sums.
func (s *nodeSum) addTo(list []proto.PoolTRES) []proto.PoolTRES {
	for i := range s.tres {
		t, k := &s.tres[i], 0
		for k < len(list) && list[k].TRES != t.TRES {
			k++
		}
		if k == len(list) {
			list = append(list, proto.PoolTRES{TRES: t.TRES})
		}
		x := &list[k]
		x.Total, x.Alloc, x.Reserved, x.Down = x.Total+t.Total, x.Alloc+t.Alloc, x.Reserved+t.Reserved, x.Down+t.Down
	}
	return list
}
