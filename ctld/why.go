package ctld

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// why explains jobs from a View: planning goes on beside it. An explanation costs a planning pass, so there is one at a
// time.
func (c *Controller) why(_ context.Context, who *proto.Caller, rq *proto.WhyRequest) (*proto.WhyReply, error) {
	c.explaining.Lock()
	defer c.explaining.Unlock()
	v := c.machine.View()
	if err := checkRefs(v, rq.Jobs); err != nil {
		return nil, err
	}
	sees := c.sees(v, who)
	now := c.now()
	policy, _ := c.policy(v, now, &c.whyRules)
	out := &proto.WhyReply{Now: now}
	seen := map[model.JobID]bool{}
	explain := func(found []*model.Job, whole bool) {
		var list []*model.Explanation
		for _, j := range found {
			switch {
			case seen[j.ID], whole && len(found) > 1 && j.State.Finished():
				continue // of a whole array: what is still to come
			case len(out.List)+len(list) >= proto.MaxWhy && (j.State == model.Pending || !whole):
				out.Left++
				continue
			}
			seen[j.ID] = true
			list = append(list, c.explain(v, now, policy, j))
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
		return out, nil
	}
	for _, ref := range rq.Jobs {
		found := sees.only(resolve(v, ref))
		if len(found) == 0 {
			return nil, refuse(proto.CodeInvalidJob, "%d", ref.Job)
		}
		explain(found, ref.Task == model.NoTask)
	}
	return out, nil
}

// explain explains one job, and of a job that stands behind others how the priorities of both come about.
func (c *Controller) explain(v *state.View, now model.Time, policy sched.Policy, j *model.Job) *model.Explanation {
	x := sched.Explain(v, now, policy, j.ID)
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
	list := []factorPair{{"age", f.Age, g.Age}, {"fair share", f.FairShare, g.FairShare}, {"job size", f.JobSize, g.JobSize}, {"association", f.Assoc, g.Assoc},
		{"partition", f.Partition, g.Partition}, {"QOS", f.QOS, g.QOS}, {"nice", -float64(f.Nice), -float64(g.Nice)}, {"site", float64(f.Site), float64(g.Site)}}
	slices.SortStableFunc(list, func(a, b factorPair) int { return cmp.Compare(b.b-b.a, a.b-a.a) })
	var said []string
	for _, p := range list[:2] {
		if p.b > p.a {
			said = append(said, fmt.Sprintf("%s gives it %.0f and the other %.0f", p.name, p.a, p.b))
		}
		if p.name == "fair share" && p.b > p.a {
			said[len(said)-1] += fmt.Sprintf(" (what account %s has used counts against it: gshare -A %s)", j.Spec.Account, j.Spec.Account)
		}
	}
	if len(said) > 0 {
		text += ": " + strings.Join(said, ", ")
	}
	return text + "; gprio -l has all factors"
}

// jobName gives a job's number as people know it.
func jobName(j *model.Job) string {
	if j.ArrayID != 0 && j.Task != model.NoTask {
		return fmt.Sprintf("%d_%d", j.ArrayID, j.Task)
	}
	return fmt.Sprint(j.ID)
}

// inOne puts tasks of an array of which the same is to be said into one paragraph. Of those that run it is how many, and where.
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

// sameWhy reports whether the same is said of two tasks that wait.
func sameWhy(a, b *model.Explanation) bool {
	return a.Text == b.Text && a.Start == b.Start && reflect.DeepEqual(a.Causes, b.Causes) && reflect.DeepEqual(a.Changes, b.Changes)
}
