package ctld

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// why explains jobs from a View, while planning goes on. An explanation costs a planning pass, so only one is made at a
// time, users in turns. Between them, and while nodes are asked, it holds no place of the gate that lists wait at.
func (c *Controller) why(ctx context.Context, a *call) (message, error) {
	rq := new(proto.WhyRequest)
	if err := a.decode(rq); err != nil {
		return nil, err
	}
	v, now := c.machine.View(), c.now()
	out, err := c.explainAll(ctx, v, now, a, rq)
	if err != nil {
		return nil, err
	}
	c.saysWaits(ctx, v, now, out.List)
	return out, nil
}

// passTurn waits for the turn of one planning pass that a user asks for: the only one at a time, within a place of the
// gate. Without an error the caller calls leave.
func (c *Controller) passTurn(ctx context.Context, payer string) (leave func(), err error) {
	if err := c.readers.passes.Enter(ctx, payer); err != nil {
		return nil, err
	}
	if err := c.readers.gate.Enter(ctx, payer); err != nil {
		c.readers.passes.Leave()
		return nil, err
	}
	return func() {
		c.readers.gate.Leave()
		c.readers.passes.Leave()
	}, nil
}

func (c *Controller) explainAll(ctx context.Context, v *state.View, now model.Time, a *call,
	rq *proto.WhyRequest) (*proto.WhyReply, error) {
	if err := checkRefs(v, rq.Jobs); err != nil {
		return nil, err
	}
	payer, _ := c.payer(a, a.kind)
	var failed error
	inTurn := func(do func()) {
		if failed != nil {
			return
		}
		var leave func()
		if leave, failed = c.passTurn(ctx, payer); failed != nil {
			return
		}
		defer leave()
		begun := time.Now()
		do()
		a.rows += float64(time.Since(begun) / heldPerRow)
	}
	who := a.who
	sees := c.sees(v, who)
	var past *policy.Past
	var rules sched.Policy
	inTurn(func() {
		rules, _ = c.policy(v, now, c.own.orderThen, nil)
		past = c.pastOf(v, now)
	})
	out := &proto.WhyReply{Now: now}
	seen := map[model.JobID]bool{}
	explain := func(found []*model.Job, whole bool) {
		var list []*model.Explanation
		for _, j := range found {
			switch {
			case seen[j.ID], whole && len(found) > 1 && j.Follows(), // it waits as the first component does
				whole && len(found) > 1 && j.State.Finished():
				continue // for a whole array, only its pending tasks are explained
			case len(out.List)+len(list) >= proto.MaxWhy && (j.State == model.Pending || !whole):
				out.Left++
				continue
			}
			seen[j.ID] = true
			inTurn(func() { list = append(list, c.explain(sees, now, rules, past, j)) })
		}
		if whole {
			list = inOne(list)
		}
		out.List = append(out.List, list...)
	}
	if rq.Mine {
		arrays := map[model.JobID][]*model.Job{}
		var order []model.JobID
		v.Jobs(func(j *model.Job) bool {
			if j.State == model.Pending && j.Spec.UID == who.UID {
				key := j.ArrayID
				if key == 0 {
					key = j.ID
				}
				if arrays[key] == nil {
					order = append(order, key)
				}
				arrays[key] = append(arrays[key], j)
			}
			return true
		})
		for _, key := range order {
			explain(arrays[key], true)
		}
		return out, failed
	}
	for _, ref := range rq.Jobs {
		found := sees.only(resolve(v, ref))
		if len(found) == 0 {
			return nil, refuse(proto.CodeInvalidJob, "%d", ref.Job)
		}
		explain(found, ref.Task == model.NoTask)
	}
	return out, failed
}

// explain explains one job, and for a job behind others the priorities of both.
func (c *Controller) explain(sees *sight, now model.Time, policy sched.Policy, past *policy.Past,
	j *model.Job) *model.Explanation {
	v := sees.v
	sure := policy
	sure.Predict = nil // all jobs run to their limits
	x := sched.ExplainTo(sees.ofPlans(), v, now, sure, j.ID)
	x.Early, x.Late = likelyFor(v, now, policy, past, j, x.Start)
	switch part := v.Partition(j.Partition()); {
	case part != nil && part.Order != model.OrderDefault:
		if waitsForRoom(j) {
			x.Text = strings.TrimSpace(x.Text + " " + fmt.Sprintf("In partition %s the order is %s (QueuePolicy=%s).",
				part.Name, lineup.Words(part.Order), part.Order))
		}
	case policy.Predict != nil && !j.Direct && waitsForRoom(j):
		x.Text = strings.TrimSpace(x.Text + " " + c.own.says(sees, now, j, policy.Predict))
	}
	for i := range x.Causes {
		cause := &x.Causes[i]
		if cause.Reason != model.ReasonPriority || len(cause.Jobs) == 0 {
			continue
		}
		if other, part := v.Job(cause.Jobs[0]), v.Partition(cause.Partition); other != nil && part != nil {
			cause.Text += c.ranks(v, now, j, other, part)
		}
	}
	return x
}

// ranks says why one job comes before another: their priorities, and the factors that differ most.
func (c *Controller) ranks(v *state.View, now model.Time, j, other *model.Job, part *model.Partition) string {
	conf := &v.Config().Params.Priority
	if part.Order != model.OrderDefault {
		return fmt.Sprintf("; the order there is %s (QueuePolicy=%s)", lineup.Words(part.Order), part.Order)
	}
	o := c.prio.order(v, now)
	mine, theirs := int64(c.priorityIn(v, o, j, part)), int64(c.priorityIn(v, o, other, part))
	if mine >= theirs {
		return ""
	}
	name := jobName(other)
	text := fmt.Sprintf("; its priority is %d, job %s's %d", mine, name, theirs)
	switch {
	case j.Direct || other.Direct:
		return text + ": one of them was set by an operator or with --priority"
	case conf.Default():
		return text + ": the default order weighs how long a job has waited against how long and how large it is"
	case !conf.Weighted():
		return text
	}
	f, g := o.Factors(j, part), o.Factors(other, part)
	type factorPair struct {
		name string
		a, b float64
	}
	list := []factorPair{{"age", f.Age, g.Age}, {"fair share", f.FairShare, g.FairShare},
		{"job size", f.JobSize, g.JobSize}, {"association", f.Assoc, g.Assoc},
		{"partition", f.Partition, g.Partition}, {"QOS", f.QOS, g.QOS}, {"nice", -float64(f.Nice), -float64(g.Nice)},
		{"site", float64(f.Site), float64(g.Site)}}
	slices.SortStableFunc(list, func(a, b factorPair) int { return cmp.Compare(b.b-b.a, a.b-a.a) })
	var said []string
	for _, p := range list[:2] {
		if p.b > p.a {
			said = append(said, fmt.Sprintf("%s gives it %.0f and the other %.0f", p.name, p.a, p.b))
		}
		if p.name == "fair share" && p.b > p.a && !v.KnownAccount(j.Spec.Account) {
			said[len(said)-1] += fmt.Sprintf(
				" (there is no account %s, so it has no share; gacctmgr show account lists those that exist)", j.Spec.Account)
			continue
		}
		if p.name == "fair share" && p.b > p.a {
			said[len(said)-1] += fmt.Sprintf(" (what account %s has used counts against it: gshare -A %s)", j.Spec.Account,
				j.Spec.Account)
		}
	}
	if len(said) > 0 {
		text += ": " + strings.Join(said, ", ")
	}
	return text + "; gprio -l has all factors"
}

// jobName gives a job's number as users know it.
func jobName(j *model.Job) string {
	if j.ArrayID != 0 && j.Task != model.NoTask {
		return fmt.Sprintf("%d_%d", j.ArrayID, j.Task)
	}
	return fmt.Sprint(j.ID)
}

// inOne merges the tasks of an array with the same explanation into one paragraph. For running tasks it gives their
// number and nodes.
func inOne(list []*model.Explanation) []*model.Explanation {
	var out []*model.Explanation
	nodes := map[*model.Explanation][]string{}
	for _, x := range list {
		k := slices.IndexFunc(out, func(o *model.Explanation) bool {
			return x.ArrayID != 0 && o.ArrayID == x.ArrayID && o.State == x.State && (x.State != model.Pending || sameWhy(o, x))
		})
		if k < 0 {
			one := *x
			out = append(out, &one)
			nodes[&one] = slices.Clone(x.Nodes)
			continue
		}
		o := out[k]
		all := append(tasksOf(o), tasksOf(x)...)
		slices.Sort(all)
		o.Tasks, o.Task, o.Job = model.TaskSetOf(slices.Compact(all)), model.NoTask, o.ArrayID
		if o.State != model.Pending {
			nodes[o] = append(nodes[o], x.Nodes...)
			on := slices.Compact(slices.Sorted(slices.Values(nodes[o])))
			o.Text = fmt.Sprintf("They don't wait: %d tasks are %s, on %s.", len(all), o.State, hostlist.Compress(on))
		}
	}
	return out
}

func tasksOf(x *model.Explanation) (out []int32) {
	if len(x.Tasks) == 0 {
		return []int32{x.Task}
	}
	x.Tasks.Each(func(t int32) bool {
		out = append(out, t)
		return true
	})
	return out
}

// sameWhy reports whether two pending tasks have the same explanation.
func sameWhy(a, b *model.Explanation) bool {
	return a.Text == b.Text && a.Start == b.Start && reflect.DeepEqual(a.Causes, b.Causes) &&
		reflect.DeepEqual(a.Changes, b.Changes)
}

// The rest of this file explains jobs that take longer to end than KillWait: the nodes that they wait for, and those
// nodes' own answers.

const (
	completingWait  = 2 * time.Second // for a node's answer
	completingNodes = 3               // nodes to ask for one job
	completingJobs  = 16              // jobs to name for one node, or in one answer
)

// stuckOn lists the attempts that a node should have ended.
func stuckOn(v *state.View, n *model.Node, now model.Time) []proto.Attempt {
	var out []proto.Attempt
	for _, id := range n.Jobs {
		if len(out) < completingJobs && v.OverdueOn(id, n.Def.Name, now) {
			out = append(out, proto.Attempt{Job: id, Attempt: v.Job(id).Attempt})
		}
	}
	return out
}

// endingFor is how long a job has been COMPLETING.
func endingFor(j *model.Job, now model.Time) time.Duration {
	since := j.Run.StopAt
	if j.Run.Over != nil {
		since = max(since, j.Run.Over.At)
	}
	return (time.Duration(now-since) * time.Millisecond).Round(time.Second)
}

// askWaits gives a node's answer for each attempt.
func (c *Controller) askWaits(ctx context.Context, node string, list []proto.Attempt) []string {
	ctx, cancel := context.WithTimeout(ctx, completingWait)
	defer cancel()
	out := make([]string, len(list))
	m, err := c.askNode(ctx, node, proto.NodeAsk{Waits: true, Attempts: list})
	for i := range out {
		switch {
		case err != nil:
			out[i] = err.Error()
		case i < len(m.Findings):
			out[i] = m.Findings[i].Text
		default:
			out[i] = "it says nothing"
		}
	}
	return out
}

// nodeEnding names jobs that the node should have ended.
func (c *Controller) nodeEnding(ctx context.Context, f *findings, v *state.View, n *model.Node) {
	now := c.now()
	list := stuckOn(v, n, now)
	if len(list) == 0 {
		return
	}
	for i, text := range c.askWaits(ctx, n.Def.Name, list) {
		f.add("ending", proto.GradeBad, "gcancel -s KILL "+fmt.Sprint(list[i].Job)+"; a node that is set DOWN gives it up",
			"job %d has been COMPLETING for %s and waits for this node: %s", list[i].Job,
			endingFor(v.Job(list[i].Job), now), text)
	}
}

// saysWaits adds what they wait for to explanations of COMPLETING jobs. The nodes are asked together.
func (c *Controller) saysWaits(ctx context.Context, v *state.View, now model.Time, list []*model.Explanation) {
	type waiting struct {
		x     *model.Explanation
		j     *model.Job
		nodes []string
	}
	var jobs []waiting
	asks := map[string][]proto.Attempt{} // by node
	for _, x := range list {
		j := v.Job(x.Job)
		if j == nil || j.State != model.Completing || len(jobs) >= completingJobs {
			continue
		}
		w := waiting{x: x, j: j}
		for _, name := range j.Run.Alloc.NodeNames() {
			if v.OverdueOn(j.ID, name, now) && len(w.nodes) < completingNodes {
				w.nodes = append(w.nodes, name)
				asks[name] = append(asks[name], proto.Attempt{Job: j.ID, Attempt: j.Attempt})
			}
		}
		if len(w.nodes) > 0 {
			jobs = append(jobs, w)
		}
	}
	said := map[string]map[model.JobID]string{} // by node
	var all sync.WaitGroup
	for name, attempts := range asks {
		of := map[model.JobID]string{}
		said[name] = of
		all.Go(func() {
			for i, text := range c.askWaits(ctx, name, attempts) {
				of[attempts[i].Job] = text
			}
		})
	}
	all.Wait()
	for _, w := range jobs {
		var words []string
		for _, name := range w.nodes {
			words = append(words, name+": "+said[name][w.j.ID])
		}
		w.x.Text += fmt.Sprintf(" It has been COMPLETING for %s and waits for %s.", endingFor(w.j, now),
			strings.Join(words, "; "))
	}
}
