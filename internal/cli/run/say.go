package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// say.go has grun's messages about its step's tasks, in srun's words, because tools match them.

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
		if what == "" && t.verbose == 0 {
			continue
		}
		what = cmp.Or(what, "Completed")
		i := slices.IndexFunc(groups, func(g *group) bool { return g.node == ev.Node && g.text == what })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{node: ev.Node, text: what})
		}
		groups[i].ranks = append(groups[i].ranks, int(ev.Task))
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
		if !t.quiet || g.text != "" {
			t.Errorf("%s: %s %s: %s", g.node, word, rankRanges(g.ranks), g.text)
		}
	}
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
	var running, exited []int
	for r, s := range t.tasks {
		if s.ended {
			exited = append(exited, r)
		} else {
			running = append(running, r)
		}
	}
	for _, l := range []struct {
		ranks []int
		what  string
	}{{running, "running"}, {exited, "exited"}} {
		if len(l.ranks) > 0 {
			word := "task"
			if len(l.ranks) > 1 {
				word = "tasks"
			}
			fmt.Fprintf(t.Stderr, "%s: StepId=%d.%d %s %s: %s\n", t.Program, t.rq.Job, t.id, word, rankRanges(l.ranks), l.what)
		}
	}
}
