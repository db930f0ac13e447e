package noded

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

// TestAttemptTable holds the table of attempts to its golden file: every pair of phase and event has an effect, and
// each phase has an end.
func TestAttemptTable(t *testing.T) {
	checkTable[phase, happening, act](t, "attemptstates.txt", len(happeningNames), len(actNames), patience[:],
		func(p phase, e happening) attemptCell { return attemptTable[p][e] },
		func(p, next phase) bool { return p >= ending && !(p == epilogue && next == over) })
}

// TestStepTable does the same for steps.
func TestStepTable(t *testing.T) {
	checkTable[stepPhase, stepHappening, stepAct](t, "stepstates.txt", len(stepHappeningNames), len(stepActNames),
		stepPatience[:], func(p stepPhase, e stepHappening) stepCell { return stepTable[p][e] },
		func(p, _ stepPhase) bool { return p >= stepStopping })
}

// TestPartTable does the same for parts of steps.
func TestPartTable(t *testing.T) {
	checkTable[partPhase, partHappening, partAct](t, "partstates.txt", len(partHappeningWords), len(partActWords),
		partEndsBy[:], func(p partPhase, e partHappening) partCell { return partTable[p][e] },
		func(p, _ partPhase) bool { return p == partOver })
	for p := range numPartPhases {
		if next := partTable[p][pevGiveUp].next; next != partOver {
			t.Errorf("a part that is %v is given up, and is %v", p, next)
		}
		if next := partTable[p][pevEnd].next; next == partIdle {
			t.Errorf("a part that is %v is to end, and nobody tells its node", p)
		}
	}
}

// word is what a table is made of.
type word interface {
	~uint8
	fmt.Stringer
}

// checkTable holds a table to its golden file, and looks for holes: act 0 is one. From a phase that is final, nothing
// leads back.
func checkTable[P, E, A word](t *testing.T, file string, happenings, acts int, ends []string,
	at func(P, E) cell[P, A], final func(p, next P) bool) {
	t.Helper()
	var b strings.Builder
	for p := range P(len(ends)) {
		if ends[p] == "" || p.String() == "" {
			t.Errorf("phase %d has no name, or nothing that ends it", p)
		}
		fmt.Fprintf(&b, "%s\n    ends by: %s\n", p, ends[p])
		for e := range E(happenings) {
			c := at(p, e)
			if c.do == 0 || int(c.do) >= acts || int(c.next) >= len(ends) {
				t.Errorf("%v when %v: the table has a hole", p, e)
			}
			if c.next < p && final(p, c.next) {
				t.Errorf("%v when %v goes back to %v", p, e, c.next)
			}
			next, do := "-> "+c.next.String(), c.do.String()
			if c.next == p {
				next = ""
				if do == "-" {
					do = "."
				}
			}
			fmt.Fprintf(&b, "    %s\n", strings.TrimRight(fmt.Sprintf("%-16s %-16s %s", e, next, do), " "))
		}
		b.WriteByte('\n')
	}
	golden.Compare(t, "testdata/"+file, []byte(b.String()))
}

// TestEveryPhaseEnds walks the tables: from every phase that a stop or a kill leads to, deadlines alone lead to the
// end, whatever gshim and the workers do.
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
