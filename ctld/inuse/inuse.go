package inuse

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/state"
)

// key names a count of a QOS: as a whole, of an account in it, or of a user in it.
type key struct{ qos, account, user string }

// counter sums up.
type counter struct {
	v    *state.View
	now  model.Time
	tree *multifactor.Tree
	rows []proto.InUse // of the tree's lines
	qos  map[key]*proto.InUse
	on   map[*proto.InUse]map[string]bool // the nodes on which its jobs are
}

// Of counts for all lines of the tree of accounts, in its order, and then for each QOS: as a whole, for each account
// and for each user with unfinished jobs in it. shown says which lines the reader may see.
//
// It looks at each unfinished job once.
func Of(v *state.View, tree *multifactor.Tree, now model.Time, shown func(account, user string) bool) []proto.InUse {
	c := &counter{v: v, now: now, tree: tree, rows: make([]proto.InUse, len(tree.Rows)), qos: map[key]*proto.InUse{},
		on: map[*proto.InUse]map[string]bool{}}
	for i := range tree.Rows {
		r := &tree.Rows[i]
		c.rows[i].Account, c.rows[i].User, c.rows[i].UID, c.rows[i].Partition = r.Account, r.User, r.UID, r.Partition
		c.rows[i].UsageS = r.RawUsage()
		if r.Assoc != nil {
			c.rows[i].ID = r.Assoc.ID
		}
	}
	for i := range tree.Rows {
		if r := &tree.Rows[i]; r.User != "" {
			if u := v.UsageOf(r.Account, r.User, r.Partition); u != nil {
				used := v.UsageAt(u, now)
				for at := i; at >= 0; at = tree.Up(at) {
					addUsage(&c.rows[at], used)
				}
			}
		}
	}
	v.AllQOS(func(q *model.QOS) bool {
		x := c.of(q.Name, "", "")
		x.ID = q.ID
		if u := v.QOSUsage(q.Name); u != nil {
			used := v.UsageAt(u, now)
			addUsage(x, used)
			x.UsageS = used.Bill.Value / 1000
		}
		return true
	})
	v.Jobs(func(j *model.Job) bool {
		if !j.State.Finished() {
			c.count(j)
		}
		return true
	})
	return c.list(shown)
}

func addUsage(x *proto.InUse, u *state.Usage) {
	x.WallS += u.Wall.Value / 1000
	x.Mins = addTRES(x.Mins, Mins(u))
}

// Mins gives what a record of usage has used, times minutes.
func Mins(u *state.Usage) (out []model.TRESCount) {
	for _, t := range u.TRES {
		out = model.AddTRES(out, t.TRES, t.Meter.Value/60_000)
	}
	return model.AddTRES(out, "billing", u.Bill.Value/60_000)
}

// RunMins gives, by row of the tree, what running jobs may still use: resources times the rest of the time limit, in
// minutes.
func RunMins(v *state.View, tree *multifactor.Tree, now model.Time) map[int][]model.TRESCount {
	out := map[int][]model.TRESCount{}
	v.Nodes(func(n *model.Node) bool {
		for _, id := range n.Jobs {
			j := v.Job(id)
			if j == nil || j.Run == nil || j.Run.Alloc.Nodes[0].Node != n.Def.Name { // count it once, at its first node
				continue
			}
			for i := tree.Row(j.Spec.Account, j.Spec.User, j.Run.AssocPart); i >= 0; i = tree.Up(i) {
				out[i] = addTRES(out[i], left(j, now))
			}
		}
		return true
	})
	return out
}

// held gives what a job with resources holds.
func held(j *model.Job) []model.TRESCount {
	return model.AddTRES(j.Run.Alloc.TRES(), "billing", j.Run.Billing())
}

// left gives what a job may still use up to its time limit, times minutes, under the UsageFactor of its charges.
func left(j *model.Job, now model.Time) []model.TRESCount {
	d := j.Run.Deadline()
	if d <= now || j.State == model.Completing {
		return nil
	}
	out := held(j)
	for i := range out {
		out[i].Count = model.Scale(out[i].Count*(int64(d-now)/1000), j.Run.Factor, model.FactorOne) / 60
	}
	return out
}

func addTRES(to, list []model.TRESCount) []model.TRESCount {
	for _, t := range list {
		to = model.AddTRES(to, t.TRES, t.Count)
	}
	return to
}

func (c *counter) of(qos, account, user string) *proto.InUse {
	k := key{qos, account, user}
	x := c.qos[k]
	if x == nil {
		x = &proto.InUse{QOS: qos, Account: account, User: user}
		c.qos[k] = x
	}
	return x
}

// count adds an unfinished job to all that it counts in.
func (c *counter) count(j *model.Job) {
	sp, part := j.Spec, j.Partition()
	one, at := proto.InUse{Submit: state.TasksOf(j), Aging: state.AgingOf(j)}, part
	if j.State.HasResources() {
		one.Jobs, at = 1, j.Run.AssocPart
		one.Held = held(j)
		one.RunMins = left(j, c.now)
	}
	for i := c.tree.Row(sp.Account, sp.User, at); i >= 0; i = c.tree.Up(i) {
		c.add(&c.rows[i], &one, j)
		if c.rows[i].User != "" {
			c.rows[i].UID = sp.UID
		}
	}
	names := []string{sp.QOS}
	if p := c.v.Partition(part); p != nil && p.QOS != "" && p.QOS != sp.QOS {
		names = append(names, p.QOS)
	}
	for _, q := range names {
		if q == "" {
			continue
		}
		c.add(c.of(q, "", ""), &one, j)
		c.add(c.of(q, sp.Account, ""), &one, j)
		user := c.of(q, "", sp.User)
		user.UID = sp.UID
		c.add(user, &one, j)
	}
}

// add adds what a job has; a node on which another one of the same line is counts once.
func (c *counter) add(x, one *proto.InUse, j *model.Job) {
	x.Jobs, x.Submit, x.Aging = x.Jobs+one.Jobs, x.Submit+one.Submit, x.Aging+one.Aging
	x.Held, x.RunMins = addTRES(x.Held, one.Held), addTRES(x.RunMins, one.RunMins)
	if one.Jobs == 0 {
		return
	}
	on, before := c.on[x], 0
	if before = len(on); on == nil {
		on = map[string]bool{}
		c.on[x] = on
	}
	for i := range j.Run.Alloc.Nodes {
		on[j.Run.Alloc.Nodes[i].Node] = true
	}
	x.Held = model.AddTRES(x.Held, "node", int64(len(on)-before-len(j.Run.Alloc.Nodes)))
}

// list gives the tree's lines, and then those of QOS in order of name, accounts before users.
func (c *counter) list(shown func(account, user string) bool) []proto.InUse {
	out := slices.DeleteFunc(c.rows, func(x proto.InUse) bool { return !shown(x.Account, x.User) })
	first := len(out)
	for k, x := range c.qos {
		if k.account == "" && k.user == "" || shown(k.account, k.user) {
			out = append(out, *x)
		}
	}
	slices.SortFunc(out[first:], func(a, b proto.InUse) int {
		return cmp.Or(cmp.Compare(a.QOS, b.QOS), cmp.Compare(a.User, b.User), cmp.Compare(a.Account, b.Account))
	})
	return out
}
