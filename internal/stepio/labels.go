package stepio

import (
	"bytes"
	"fmt"
	"strconv"
)

// labels.go puts the number of a task before its lines (--label).

// maxHeldLine is the most of an incomplete line that is held back, bytes.
const maxHeldLine = 64 << 10

// LabelOf is what stands before the lines of a task, whose number is padded to the width of those of all tasks.
func LabelOf(task, all int) string { return fmt.Sprintf("%*d: ", len(strconv.Itoa(all-1)), task) }

// Labeller puts a label before each line of what it takes.
type Labeller struct {
	Label string
	held  []byte // the beginning of a line
}

// Take gives the lines that data completes, and at the end also the rest.
func (l *Labeller) Take(data []byte, end bool) (out []byte) {
	l.held = append(l.held, data...)
	for {
		at := bytes.IndexByte(l.held, '\n')
		if at < 0 && len(l.held) < maxHeldLine && !end {
			return out
		}
		if at < 0 {
			if len(l.held) > 0 {
				out = append(append(append(out, l.Label...), l.held...), '\n')
				l.held = nil
			}
			return out
		}
		out = append(append(out, l.Label...), l.held[:at+1]...)
		l.held = l.held[at+1:]
	}
}
