package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// say.go has grun's messages about its step's tasks, in srun's words, because tools match them.

// sayLaunch says where the step is and what runs where, for --verbose.
func (t *talk) sayLaunch() {
	if t.verbose == 0 {
		return
	}
	if t.rq.Receive != nil {
		t.saySending()
		return
	}
	nodes, cpus := t.ofJob()
	if count, err := hostlist.Expand(nodes); err == nil && nodes != "" {
		t.tell("jobid %d: nodes(%d):`%s', cpu counts: %s", t.rq.Job, len(count), nodes, cpus)
	}
	for i := range t.layout {
		n := &t.layout[i]
		ranks := make([]int, len(n.Ranks))
		for k, r := range n.Ranks {
			ranks[k] = int(t.het.First() + r)
		}
		list := rankRanges(ranks)
		if len(ranks) > 1 {
			list = "[" + list + "]"
		}
		t.tell("launching StepId=%s on host %s, %d tasks: %s", t.stepID(), n.Node, len(ranks), list)
	}
}

// ofJob gives the job's nodes, and the CPUs that it has on each as srun writes them: 4(x2),2(x1). Both are "" for a job
// that this process knows only by its number.
func (t *talk) ofJob() (nodes, cpus string) {
	if t.place == nil && t.OwnJob() == t.job {
		return t.Getenv("SLURM_JOB_NODELIST"), timesOne(t.Getenv("SLURM_JOB_CPUS_PER_NODE"))
	} else if t.place == nil {
		return "", ""
	}
	a := t.place.Run.Alloc
	return hostlist.CompressInOrder(a.NodeNames()),
		timesOne(allocate.CPUsPerNode(a))
}

// timesOne adds (x1) to counts of single nodes.
func timesOne(counts string) string {
	words := strings.Split(counts, ",")
	for i, w := range words {
		if !strings.Contains(w, "(") {
			words[i] = w + "(x1)"
		}
	}
	return strings.Join(words, ",")
}

// sayStarted says that all tasks of a node run, for --verbose.
func (t *talk) sayStarted(node string) {
	if t.verbose == 0 || t.rq.Receive != nil {
		return
	}
	tasks := 0
	for i := range t.tasks {
		if s := &t.tasks[i]; s.node == node {
			if !s.started && !s.ended {
				return
			}
			tasks++
		}
	}
	t.tell("Node %s, %d tasks started", node, tasks)
}

// stepID names the step as Slurm does: 12.0, or 12+1.0 where the command has steps in other components.
func (t *talk) stepID() string {
	if t.het != nil || t.rq.Job != t.leads {
		return fmt.Sprintf("%d+%d.%s", t.leads, t.rq.Job-t.leads, proto.StepText(t.id))
	}
	return proto.StepID(t.rq.Job, t.id)
}

// tell prints a line about the step.
func (t *talk) tell(format string, a ...any) {
	fmt.Fprintf(t.Stderr, "%s: %s\n", t.Program, fmt.Sprintf(format, a...))
}

// tellExits prints the ends of failed tasks, equal ones in one line.
func (t *talk) tellExits() {
	exits := t.exits
	t.exits = nil
	type group struct {
		node, text string
		ranks      []int
	}
	var groups []*group
	for _, ev := range exits {
		what := exitText(ev)
		if ev.Text != "" {
			fmt.Fprintln(t.Stderr, ev.Text)
		}
		if t.rq.Receive != nil { // the node has said why
			continue
		}
		if what == "" && t.verbose == 0 {
			continue
		}
		what = cmp.Or(what, "Completed")
		if t.verbose > 0 {
			t.tell("Received task exit notification for 1 task of StepId=%s (status=0x%04x).", t.stepID(),
				ev.Code<<8|ev.Signal)
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.node == ev.Node && g.text == what })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{node: ev.Node, text: what})
		}
		groups[i].ranks = append(groups[i].ranks, int(t.het.First()+ev.Task))
	}
	for _, g := range groups {
		word := "task"
		if len(g.ranks) > 1 {
			word = "tasks"
		}
		slices.Sort(g.ranks)
		if g.text == "Completed" {
			fmt.Fprintf(t.Stderr, "%s: %s: %s %s: Completed\n", t.Program, g.node, word, rankRanges(g.ranks))
			continue
		}
		if again := g.text == t.toldEnd && getopt.Truth(t.Getenv("SLURM_SRUN_REDUCE_TASK_EXIT_MSG")); !again {
			t.Errorf("%s: %s %s: %s", g.node, word, rankRanges(g.ranks), g.text)
		}
		t.toldEnd = g.text
	}
}

// abortSlack is what srun adds to KillWait, seconds.
const abortSlack = 2

// sayAborted says that the step is being ended.
func (t *talk) sayAborted() {
	said := t.steps.saidAborted
	if t.steps.saidAborted = true; t.quiet || said {
		return
	}
	fmt.Fprintf(t.Stderr, "%s: Job step aborted: Waiting up to %d seconds for job step to finish.\n", t.Program,
		cmp.Or(t.killWaitS, 30)+abortSlack)
}

// exitText says how a task ended; "" for a success.
func exitText(ev *proto.StepEvent) string {
	switch {
	case ev.Signal != 0:
		what := signalText(unix.Signal(ev.Signal))
		if ev.Core {
			what += " (core dumped)"
		}
		return what
	case ev.Code != 0:
		return fmt.Sprintf("Exited with exit code %d", ev.Code)
	}
	return ""
}

// signalText is strsignal(3).
func signalText(s unix.Signal) string {
	switch s {
	case unix.SIGALRM:
		return "Alarm clock"
	case unix.SIGHUP:
		return "Hangup"
	}
	text := s.String()
	if text == "" || strings.HasPrefix(text, "signal ") {
		return fmt.Sprintf("Unknown signal %d", int(s))
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// rankRanges writes ascending numbers: 0-3,7.
func rankRanges(ranks []int) string {
	var b model.Bits
	for _, r := range ranks {
		b = b.With(r)
	}
	return b.String()
}

// tellTasks prints the states of the tasks.
func (t *talk) tellTasks() {
	var running, failed, exited []int
	for i, s := range t.tasks {
		r := int(t.het.First()) + i
		switch {
		case !s.ended:
			running = append(running, r)
		case s.bad:
			failed = append(failed, r)
		default:
			exited = append(exited, r)
		}
	}
	for _, l := range []struct {
		ranks []int
		what  string
	}{{running, "running"}, {failed, "exited abnormally"}, {exited, "exited"}} {
		if len(l.ranks) > 0 {
			word := "task"
			if len(l.ranks) > 1 {
				word = "tasks"
			}
			fmt.Fprintf(t.Stderr, "%s: StepId=%s %s %s: %s\n", t.Program, t.stepID(), word, rankRanges(l.ranks), l.what)
		}
	}
}

// sayTerminating says that grun ends the step.
func (t *talk) sayTerminating() {
	if !t.quiet {
		fmt.Fprintf(t.Stderr, "%s: Terminating StepId=%s\n", t.Program, t.stepID())
	}
}
