package noded

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gbatch/internal/proto"
)

// waits.go says what attempts on this node wait for: their phase, their steps' phases, and the remaining processes.
// gcontrol doctor and gqueue --why show it for jobs that take long to end.

// waitsSteps is how many steps of an attempt are named.
const waitsSteps = 4

// msgWaits asks the loop for the phases of attempts.
type msgWaits struct {
	keys  []proto.Attempt
	reply chan []proto.Finding
}

// tellWaits answers for attempts in the order of the question; the answer for an attempt that is not here is empty.
func (n *Noded) tellWaits(keys []proto.Attempt) []proto.Finding {
	reply := make(chan []proto.Finding, 1)
	n.inbox.post(msgWaits{keys, reply})
	select {
	case list := <-reply:
		for i := range list {
			if pids := n.groups.survivors(keys[i]); len(pids) > 0 { // read here: the loop waits for no file
				list[i].Text += "; processes " + describeProcesses(pids)
			}
		}
		return list
	case <-time.After(stepListWait): // gnoded ends
		return nil
	}
}

func (l *loop) tellWaits(keys []proto.Attempt) []proto.Finding {
	out := make([]proto.Finding, 0, len(keys))
	for _, key := range keys {
		text := "nothing of it is known here"
		if a := l.attempts[key]; a != nil {
			text = a.waitsFor(l.now())
		}
		out = append(out, proto.Finding{About: fmt.Sprintf("job %d", key.Job), Grade: proto.GradeNote, Text: text})
	}
	return out
}

// waitsFor gives the phases of an attempt and its steps.
func (a *attempt) waitsFor(now time.Time) string {
	text := "phase " + a.phase.String()
	if !a.killed.IsZero() {
		text += fmt.Sprintf(", SIGKILL was first sent %s ago", now.Sub(a.killed).Round(time.Second))
	}
	if !a.cleared.IsZero() {
		text += fmt.Sprintf(", it is being cleared away for %s", now.Sub(a.cleared).Round(time.Second))
	}
	var steps []string
	for _, id := range slices.Sorted(maps.Keys(a.steps)) {
		if len(steps) == waitsSteps {
			steps = append(steps, fmt.Sprintf("and %d more", len(a.steps)-waitsSteps))
			break
		}
		steps = append(steps, fmt.Sprintf("step %d is %v", id, a.steps[id].phase))
	}
	if len(steps) > 0 {
		text += "; " + strings.Join(steps, ", ")
	}
	return text
}
