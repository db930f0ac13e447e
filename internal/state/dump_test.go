package state

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// The facts as transcripts show them, line by line.

// clock gives a moment as seconds after the transcript's beginning.
func clock(t model.Time) string {
	if t == 0 {
		return "-"
	}
	return fmt.Sprintf("+%d", int64(t-epoch)/1000)
}

func name(j *model.Job) string {
	switch {
	case j.IsArray() && j.ID == j.ArrayID:
		return fmt.Sprintf("%d_[%s]", j.ArrayID, j.Tasks)
	case j.IsArray():
		return fmt.Sprintf("%d_[%s](%d)", j.ArrayID, j.Tasks, j.ID)
	case j.ArrayID != 0:
		return fmt.Sprintf("%d_%d(%d)", j.ArrayID, j.Task, j.ID)
	}
	return fmt.Sprint(j.ID)
}

func jobLine(j *model.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s %s", name(j), j.State)
	add := func(name string, value any, when bool) {
		if when {
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	add("name", j.Spec.Name, j.Spec.Name != "")
	add("reason", j.Reason, j.Reason != 0)
	add("why", strconv.Quote(j.Why), j.Why != "")
	add("hold", j.Hold, j.Hold != 0)
	add("prio", j.Priority, j.Priority != 100)
	add("eligible", clock(j.Eligible), j.State == model.Pending)
	switch j.Accrue {
	case 0:
	case model.NotAging:
		add("ages", "no", true)
	default:
		add("ages", clock(j.Accrue), true)
	}
	add("begin", clock(j.Begin), j.Begin != 0)
	add("throttle", j.Throttle, j.Throttle != 0)
	add("limit", j.Spec.LimitS, j.Spec.LimitS != 0)
	add("parts", strings.Join(j.Spec.Partitions, ","), len(j.Spec.Partitions) != 1 || j.Spec.Partitions[0] != "p")
	for _, d := range j.Deps {
		text := d.Kind.String()
		if d.Job != 0 {
			text += fmt.Sprintf(":%d", d.Job)
		}
		if d.Task != model.NoTask {
			text += fmt.Sprintf("_%d", d.Task)
		}
		if d.Failed {
			text += "(failed)"
		}
		add("dep", text, true)
	}
	add("attempt", j.Attempt, j.Attempt != 1)
	add("comment", j.Comment, j.Comment != "")
	if r := j.Run; r != nil && r.Turns > 0 {
		fmt.Fprintf(&b, " %s since %s after %d ms", r.Sleep, clock(r.SleepAt), r.SleepMS)
	}
	if r := j.Run; r != nil {
		fmt.Fprintf(&b, " | on")
		for _, n := range r.Alloc.Nodes {
			fmt.Fprintf(&b, " %s:%s", n.Node, n.CPUs)
			for _, g := range n.Gres {
				fmt.Fprintf(&b, "/%s:%s", g.Name, g.Index)
			}
		}
		fmt.Fprintf(&b, " since %s", clock(r.Start))
		add("launched", clock(r.Launched), r.Launched != 0)
		add("until", clock(r.Deadline()), r.Deadline() != 0)
		add("stop", r.Stop, r.Stop != 0)
	}
	if e := j.End; e != nil {
		fmt.Fprintf(&b, " | end %s", clock(e.At))
		add("code", e.Exit.Code, e.Exit.Code != 0)
		add("signal", e.Exit.Signal, e.Exit.Signal != 0)
		add("unknown", e.Exit.Unknown, e.Exit.Unknown)
		add("uid", e.UID, e.UID != 0)
	}
	return b.String()
}

func nodeLine(n *model.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s %s", n.Def.Name, n.BaseState())
	if len(n.Jobs) > 0 {
		fmt.Fprintf(&b, " jobs=%v cpus=%s mem=%d", n.Jobs, n.UsedCPUs, n.UsedMem)
	}
	if len(n.Asleep) > 0 {
		fmt.Fprintf(&b, " asleep=%v", n.Asleep)
	}
	for _, sh := range n.CPUShares {
		fmt.Fprintf(&b, " shared-in-%s=%v", sh.Part, sh.Layers)
	}
	for _, o := range n.Out {
		what := map[model.OutKind]string{model.OutDrained: "drained", model.OutFault: "fault", model.OutInUse: "used",
			model.OutCleared: "cleared", model.OutLost: "lost"}[o.Kind]
		fmt.Fprintf(&b, " %s%d=%s", o.Name, o.Index, what)
		if o.Reason != "" {
			fmt.Fprintf(&b, "(%s by %s)", o.Reason, o.By)
		}
	}
	for _, g := range n.UsedGres {
		fmt.Fprintf(&b, " %s=%s", g.Name, g.Index)
	}
	if n.Exclusive != 0 {
		fmt.Fprintf(&b, " exclusive=%d", n.Exclusive)
	}
	if n.Reason != "" {
		fmt.Fprintf(&b, " reason=%q by %s at %s", n.Reason, n.ReasonBy, clock(n.ReasonAt))
	}
	return b.String()
}

// dumpOf gives everything in a View, line by line.
func dumpOf(v *View) []string {
	var out []string
	v.Nodes(func(n *model.Node) bool { out = append(out, nodeLine(n)); return true })
	v.Jobs(func(j *model.Job) bool { out = append(out, jobLine(j)); return true })
	v.arrays.Scan(func(id model.JobID, a *Array) bool {
		out = append(out, fmt.Sprintf("array %d: %d waiting, %d active, %d done, %d failed, exit %d", id, a.Waiting, a.Active,
			a.Done, a.Failed, a.MaxExit))
		return true
	})
	return out
}
