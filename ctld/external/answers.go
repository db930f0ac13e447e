package external

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Nodes gives the names of the nodes without a daemon; nil: there are none.
func Nodes(cfg *model.Config) map[string]bool {
	var out map[string]bool
	for _, d := range cfg.Nodes {
		if d.External {
			if out == nil {
				out = map[string]bool{}
			}
			out[d.Name] = true
		}
	}
	return out
}

// Answers gives what the daemons of these nodes would say now: that they have registered, and their reports on jobs.
// mayBegin says whether a job's script may be launched.
func Answers(v *state.View, nodes map[string]bool, now model.Time,
	mayBegin func(*model.Job) bool) (joins []*state.Join, list []state.Report) {
	if len(nodes) == 0 {
		return nil, nil
	}
	for _, d := range v.Config().Nodes {
		n := v.Node(d.Name)
		if !d.External || n == nil || n.Link == model.LinkUp {
			continue
		}
		join := &state.Join{Node: d.Name}
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil {
				join.Known = append(join.Known, state.Report{Job: j.ID, Attempt: j.Attempt})
			}
		}
		joins = append(joins, join)
	}
	v.Moving(func(j *model.Job) bool {
		if j.Run.Program == model.NoCtldProgram && !v.AwaitsPower(j) {
			list = append(list, reports(j, nodes, now, mayBegin)...)
		}
		return true
	})
	return joins, list
}

// reports gives the reports on a job's parts there.
func reports(j *model.Job, nodes map[string]bool, now model.Time,
	mayBegin func(*model.Job) bool) (out []state.Report) {
	run := j.Run
	say := func(kind state.ReportKind, na *model.NodeAlloc) {
		if nodes[na.Node] {
			out = append(out, state.Report{Kind: kind, Job: j.ID, Attempt: j.Attempt, At: now, Node: na.Node,
				Since: na.Since})
		}
	}
	for i := range run.Leaving {
		say(state.Ended, &run.Leaving[i].Part)
	}
	if j.State == model.Completing {
		if run.Over == nil && (run.Busy.Empty() || run.Busy.Has(0)) {
			say(state.Ended, &run.Alloc.Nodes[0])
		}
		run.Busy.Minus(model.UpTo(1)).Each(func(k int) bool { say(state.Ended, &run.Alloc.Nodes[k]); return true })
		return out
	}
	run.Unready.Each(func(k int) bool { say(state.Ready, &run.Alloc.Nodes[k]); return true })
	if mayBegin(j) {
		say(state.Started, &run.Alloc.Nodes[0])
	}
	return out
}
