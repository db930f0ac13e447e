package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// whatIf is one change to a cluster's state.
type whatIf struct {
	text  string // as it was written
	apply func(st *state.State, now model.Time) error
}

// WhatIfHelp lists the values of --what-if.
const WhatIfHelp = "scheduler=NAME, add=N:NODE (N more nodes like NODE), drain=NODES, resume=NODES, hold=JOB, " +
	"release=JOB, cancel=JOB, " +
	"priority=JOB:N, timelimit=JOB:TIME, partition=JOB:NAME"

// parseWhatIf reads the changes; scheduler is "" where none of them names one.
func parseWhatIf(list []string) (changes []whatIf, scheduler string, err error) {
	for _, text := range list {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" {
			return nil, "", fmt.Errorf("--what-if %s: KEY=VALUE is wanted: %s", text, WhatIfHelp)
		}
		bad := func(err error) error { return fmt.Errorf("--what-if %s: %w", text, err) }
		c := whatIf{text: text}
		switch key {
		case "scheduler":
			scheduler = value
			continue
		case "add":
			count, like, ok := strings.Cut(value, ":")
			n, err := strconv.Atoi(count)
			if err != nil || !ok || n < 1 || n > maxNodes || like == "" {
				return nil, "", bad(fmt.Errorf("the number of nodes and the node that they are like are wanted, as in add=4:n1"))
			}
			c.apply = func(st *state.State, now model.Time) error { return addNodes(st, now, n, like) }
		case "drain", "resume":
			nodes, err := hostlist.Expand(value)
			if err != nil {
				return nil, "", bad(err)
			}
			admin := model.NodeUp
			if key == "drain" {
				admin = model.NodeDrain
			}
			c.apply = func(st *state.State, now model.Time) error { return editNodes(st, now, nodes, admin) }
		case "hold", "release", "cancel", "priority", "timelimit", "partition":
			if c.apply, err = jobChange(key, value); err != nil {
				return nil, "", bad(err)
			}
		default:
			return nil, "", bad(fmt.Errorf("%s is not known: %s; --conf takes a whole other configuration", key, WhatIfHelp))
		}
		changes = append(changes, c)
	}
	return changes, scheduler, nil
}

// jobChange makes a change to one job.
func jobChange(key, value string) (func(*state.State, model.Time) error, error) {
	jobText, arg, _ := strings.Cut(value, ":")
	n, err := strconv.ParseUint(jobText, 10, 32)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%q is no job number", jobText)
	}
	id := model.JobID(n)
	targets := []model.JobRef{{Job: id, Task: model.NoTask}}
	var body func(j *model.Job) (state.Body, error)
	switch key {
	case "hold":
		body = func(*model.Job) (state.Body, error) {
			return &state.Edit{Targets: targets, Set: []state.Field{state.SetHold}, Hold: model.HeldByAdmin}, nil
		}
	case "release":
		body = func(j *model.Job) (state.Body, error) {
			e := &state.Edit{Targets: targets, Set: []state.Field{state.SetHold}}
			if j.Priority == 0 {
				e.Set, e.Priority = append(e.Set, state.SetPriority), 1
			}
			return e, nil
		}
	case "cancel":
		body = func(*model.Job) (state.Body, error) {
			return &state.Stop{Targets: targets, Event: model.EvCancel}, nil
		}
	case "priority":
		p, err := strconv.ParseUint(arg, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("JOB:PRIORITY is wanted, as in priority=12:1000")
		}
		body = func(*model.Job) (state.Body, error) {
			return &state.Edit{Targets: targets, Set: []state.Field{state.SetPriority}, Priority: uint32(p), Direct: true}, nil
		}
	case "timelimit":
		s, err := ask.ParseLimit(arg)
		if err != nil {
			return nil, fmt.Errorf("JOB:TIME is wanted, as in timelimit=12:4:00:00: %w", err)
		}
		body = func(*model.Job) (state.Body, error) {
			return &state.Edit{Targets: targets, Set: []state.Field{state.SetLimit}, LimitS: s}, nil
		}
	case "partition":
		body = func(j *model.Job) (state.Body, error) {
			sp := *j.Spec
			sp.Partitions = strings.Split(arg, ",")
			return &state.Edit{Targets: targets, Set: []state.Field{state.SetSpec}, Spec: &sp}, nil
		}
	}
	return func(st *state.State, now model.Time) error {
		v := st.View()
		j := v.Job(id)
		if j == nil {
			return fmt.Errorf("--what-if %s=%s: the dump has no job %d", key, value, id)
		}
		if key == "partition" {
			for name := range strings.SplitSeq(arg, ",") {
				if v.Partition(name) == nil {
					return fmt.Errorf("--what-if %s=%s: there is no partition %s", key, value, name)
				}
			}
		}
		b, err := body(j)
		if err != nil {
			return err
		}
		for _, r := range st.Apply(state.Command{At: now, Body: b}).Each {
			if r != state.OK {
				return fmt.Errorf("--what-if %s=%s: job %d: %s", key, value, id, r)
			}
		}
		return nil
	}, nil
}

func editNodes(st *state.State, now model.Time, nodes []string, admin model.NodeAdmin) error {
	v := st.View()
	for _, name := range nodes {
		n := v.Node(name)
		if n == nil {
			return fmt.Errorf("--what-if: there is no node %s", name)
		}
		if admin == model.NodeUp && n.Link != model.LinkUp { // as if its daemon were there again
			st.Apply(state.Command{At: now,
				Body: &state.Join{Node: name, BootID: n.BootID, BootAt: n.BootAt, Known: knownOn(v, n)}})
		}
	}
	st.Apply(state.Command{At: now,
		Body: &state.NodeEdit{Nodes: nodes, Admin: admin, Reason: "what if", By: "gbatch sim"}})
	return nil
}

// knownOn lists the attempts on a node, so that none counts as lost.
func knownOn(v *state.View, n *model.Node) []state.Report {
	var out []state.Report
	for _, id := range n.Jobs {
		if j := v.Job(id); j != nil {
			out = append(out, state.Report{Job: id, Attempt: j.Attempt})
		}
	}
	return out
}

// addNodes adds nodes like an existing one, to the same partitions, in state up.
func addNodes(st *state.State, now model.Time, n int, like string) error {
	old := st.View().Config()
	var def *model.NodeDef
	for _, d := range old.Nodes {
		if d.Name == like {
			def = d
		}
	}
	if def == nil {
		return fmt.Errorf("--what-if add=%d:%s: there is no node %s", n, like, like)
	}
	c := *old
	c.Nodes = slices.Clone(old.Nodes)
	var names []string
	for i := range n {
		d := *def
		d.Name, d.Admin, d.Reason = fmt.Sprintf("%s-new%d", like, i+1), model.NodeUp, ""
		if slices.ContainsFunc(c.Nodes, func(o *model.NodeDef) bool { return o.Name == d.Name }) {
			return fmt.Errorf("--what-if add=%d:%s: node %s is there already", n, like, d.Name)
		}
		c.Nodes = append(c.Nodes, &d)
		names = append(names, d.Name)
	}
	c.Partitions = nil
	for _, p := range old.Partitions {
		if slices.Contains(p.Nodes, like) {
			q := *p
			q.Nodes = append(slices.Clone(p.Nodes), names...)
			p = &q
		}
		c.Partitions = append(c.Partitions, p)
	}
	replaceConfig(st, now, &c)
	return nil
}

// replaceConfig gives the cluster another configuration; nodes that are new in it are up.
func replaceConfig(st *state.State, now model.Time, c *model.Config) {
	before := st.View()
	st.Apply(state.Command{At: now, Body: &state.SetConfig{Config: c}})
	for _, d := range c.Nodes {
		if before.Node(d.Name) == nil {
			st.Apply(state.Command{At: now, Body: &state.Join{Node: d.Name, BootID: "sim"}})
		}
	}
}
