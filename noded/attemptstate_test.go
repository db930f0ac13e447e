package noded

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

// TestAttemptTable holds the table of attempts to its golden file: every pair of phase and happening is filled in,
// and each phase says what ends it.
func TestAttemptTable(t *testing.T) {
	for p := range numPhases {
		if patience[p] == "" || phaseNames[p] == "" {
			t.Errorf("phase %d has no name, or nothing that ends it", p)
		}
		for e := range numHappenings {
			c := attemptTable[p][e]
			if c.do == actMissing || c.do >= numActs || c.next >= numPhases {
				t.Errorf("%v when %v: the table has a hole", p, e)
			}
			if c.next < p && p >= ending && !(p == epilogue && c.next == over) {
				t.Errorf("%v when %v goes back to %v", p, e, c.next)
			}
		}
	}
	golden.Compare(t, "testdata/attemptstates.txt", []byte(describeTable(int(numPhases), int(numHappenings),
		func(p int) string { return phase(p).String() }, func(p int) string { return patience[p] },
		func(p, e int) string {
			c := attemptTable[p][e]
			return describeCell(happening(e).String(), c.next.String(), c.do.String(), int(c.next) == p)
		})))
}

// TestStepTable does the same for steps.
func TestStepTable(t *testing.T) {
	for p := range numStepPhases {
		if stepPatience[p] == "" || stepPhaseNames[p] == "" {
			t.Errorf("phase %d has no name, or nothing that ends it", p)
		}
		for e := range numStepHappenings {
			c := stepTable[p][e]
			if c.do == stepMissing || c.do >= numStepActs || c.next >= numStepPhases {
				t.Errorf("%v when %v: the table has a hole", p, e)
			}
			if c.next < p && p >= stepStopping {
				t.Errorf("%v when %v goes back to %v", p, e, c.next)
			}
		}
	}
	golden.Compare(t, "testdata/stepstates.txt", []byte(describeTable(int(numStepPhases), int(numStepHappenings),
		func(p int) string { return stepPhase(p).String() }, func(p int) string { return stepPatience[p] },
		func(p, e int) string {
			c := stepTable[p][e]
			return describeCell(stepHappening(e).String(), c.next.String(), c.do.String(), int(c.next) == p)
		})))
}

// TestEveryPhaseEnds walks the tables: from every phase that a stop or a kill leads to, deadlines and given-up waiting
// alone lead to the end, whatever gshim and the workers do.
func TestEveryPhaseEnds(t *testing.T) {
	for p := range numPhases {
		for _, first := range []happening{evStop, evForget} {
			at := attemptTable[p][first].next
			for range 10 { // of deadlines, each the last that is waited for
				if at == over {
					break
				}
				next := attemptTable[at][evGiveUp].next
				if next == at {
					next = attemptTable[at][evCleared].next // doLeave goes on so
				}
				at = next
			}
			if at != over {
				t.Errorf("%v after %v: deadlines alone end in %v", p, first, at)
			}
		}
	}
	for p := range numStepPhases {
		if p == stepWaiting { // it has nothing: its job's end refuses it
			continue
		}
		for _, first := range []stepHappening{sevStop, sevKill} {
			at := stepTable[p][first].next
			for range 10 {
				at = stepTable[at][sevGiveUp].next
			}
			if at != stepOverHere {
				t.Errorf("a step that is %v, after %v: deadlines alone end in %v", p, first, at)
			}
		}
	}
}

// describeTable writes a state table for people: for each state what ends it, then a line for each happening.
func describeTable(states, happenings int, name, ends func(int) string, line func(s, e int) string) string {
	var b strings.Builder
	for s := range states {
		fmt.Fprintf(&b, "%s\n    ends by: %s\n", name(s), ends(s))
		for e := range happenings {
			fmt.Fprintf(&b, "    %s\n", strings.TrimRight(line(s, e), " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func describeCell(e, next, do string, stays bool) string {
	if stays {
		next = ""
		if do == "-" {
			do = "."
		}
	} else {
		next = "-> " + next
	}
	return fmt.Sprintf("%-16s %-16s %s", e, next, do)
}
