package sim

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// bar draws a replay's progress on a terminal.
type bar struct {
	w     io.Writer // nil: nothing is drawn
	label string
	begun time.Time
	drawn time.Time
	width int
}

// Looks of the bar.
const (
	barCells = 30
	barEvery = 100 * time.Millisecond
)

func newBar(w io.Writer, label string) *bar { return &bar{w: w, label: label, begun: time.Now()} }

// show draws that done of all jobs have ended.
func (b *bar) show(done, all int) {
	now := time.Now()
	if b.w == nil || all == 0 || now.Sub(b.drawn) < barEvery {
		return
	}
	b.drawn = now
	full := barCells * done / all
	rate := float64(done) / max(now.Sub(b.begun).Seconds(), 1e-3)
	left := ""
	if done > 0 && rate > 0 {
		left = fmt.Sprintf(", %.0f s left", float64(all-done)/rate)
	}
	line := fmt.Sprintf("%s [%s%s] %3d %%  %s of %s jobs%s", b.label, strings.Repeat("#", full),
		strings.Repeat(".", barCells-full), 100*done/all,
		group(int64(done)), group(int64(all)), left)
	pad := max(0, b.width-len(line))
	b.width = len(line)
	fmt.Fprintf(b.w, "\r%s%s", line, strings.Repeat(" ", pad))
}

// clear removes the bar.
func (b *bar) clear() {
	if b.w != nil && b.width > 0 {
		fmt.Fprintf(b.w, "\r%s\r", strings.Repeat(" ", b.width))
	}
}
