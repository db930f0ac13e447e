package sim

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Measures of the drawing, in SVG units, and its colours, one for each result (Okabe and Ito's, which are distinct for
// colour-blind people).
const (
	plotWide   = 960
	plotLeft   = 70
	plotRight  = 24
	panelHigh  = 170
	panelGap   = 64
	plotTop    = 92
	legendHigh = 18
	plotBins   = 420 // of one result; the lines of several would hide each other
	plotShared = 140
	maxPlotted = 6
)

var plotColours = [maxPlotted]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// Plot draws load and queue over time, and wait and slowdown by size, a panel each, as an SVG that needs nothing else.
// Results after the sixth are left out.
func Plot(w io.Writer, outs []*Outcome, ms []*Metrics, labels []string) error {
	outs = outs[:min(len(outs), maxPlotted)]
	d := &drawing{from: math.MaxInt64, to: math.MinInt64, labels: labels, bins: plotBins}
	if len(outs) > 1 {
		d.bins = plotShared
	}
	for _, o := range outs {
		if n := len(o.Load); n > 0 {
			d.from, d.to = min(d.from, o.Load[0].At), max(d.to, o.Load[n-1].At)
		}
	}
	if d.to <= d.from {
		return fmt.Errorf("nothing to draw: no time passed while the jobs ran")
	}
	d.epoch = outs[0].Work.Epoch
	ms = ms[:len(outs)]
	entries := d.legend(ms)
	rows := entries[len(entries)-1].row + 1
	high := plotTop + rows*legendHigh + 4*panelHigh + 3*panelGap + 64
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui,Segoe `+
		`UI,Helvetica,Arial,sans-serif" font-size="12" fill="#222">`, plotWide, high)
	d.add(`<rect width="%d" height="%d" fill="#fff"/>`, plotWide, high)
	d.text(plotLeft, 30, "start", `font-size="18" font-weight="600"`, strings.TrimSuffix(outs[0].Work.Name, ".gz"))
	d.text(plotLeft, 50, "start", `fill="#555"`, fmt.Sprintf("%s jobs on %s", group(int64(ms[0].Jobs)), ms[0].Machine))
	for i, e := range entries {
		y := float64(62 + e.row*legendHigh)
		d.add(`<rect x="%.1f" y="%.1f" width="11" height="11" rx="2" fill="%s"/>`, e.x, y, plotColours[i])
		d.text(e.x+16, y+10, "start", ``, e.text)
	}

	load, queue := make([][]float64, len(outs)), make([][]float64, len(outs))
	most := 0.0
	for i, o := range outs {
		busy, queued := bins(o.Load, d.from, d.to, d.bins)
		for k := range busy {
			busy[k] /= float64(max(ms[i].Total, 1))
			most = max(most, queued[k])
		}
		load[i], queue[i] = busy, queued
	}
	y := float64(plotTop + rows*legendHigh)
	d.panel(y, "utilization, "+ms[0].Unit+"s in use", 1, []float64{0, .25, .5, .75, 1},
		func(v float64) string { return fmt.Sprintf("%.0f %%", v*100) })
	d.curves(y, 1, load)
	d.times(y)
	y += panelHigh + panelGap
	ticks := roundTicks(most)
	top := ticks[len(ticks)-1]
	d.panel(y, "jobs waiting (longest queue in each interval)", top, ticks,
		func(v float64) string { return group(int64(v)) })
	d.curves(y, top, queue)
	d.times(y)
	y += panelHigh + panelGap
	unit := ms[0].Unit + "s of the job"
	d.bars(y, "average wait by "+unit, ms, func(l *SizeLine) float64 { return l.AvgWait }, waitTicks, span)
	y += panelHigh + panelGap
	d.bars(y, "average bounded slowdown by "+unit+" (1 is no wait)", ms,
		func(l *SizeLine) float64 { return l.AvgSlowdown }, slowdownTicks, func(v float64) string {
			return fmt.Sprintf("%.1f", v)
		})
	d.add(`</svg>`)
	_, err := io.WriteString(w, d.b.String())
	return err
}

// bins gives the mean load and the longest queue in equal parts of the time.
func bins(load []Sample, from, to int64, n int) (busy, queued []float64) {
	busy, queued = make([]float64, n), make([]float64, n)
	wide := float64(to-from) / float64(n)
	for i, s := range load {
		a, b := float64(s.At-from)/wide, float64(n)
		if i+1 < len(load) {
			b = float64(load[i+1].At-from) / wide
		}
		for k := int(a); k < n && float64(k) < b; k++ {
			busy[k] += float64(s.Busy) * (min(b, float64(k+1)) - max(a, float64(k)))
			queued[k] = max(queued[k], float64(s.Queued))
		}
	}
	return busy, queued
}

// roundTicks gives up to six round whole values from 0, of which only the last one is most or more.
func roundTicks(most float64) []float64 {
	const steps = 5
	unit := math.Pow(10, math.Floor(math.Log10(math.Max(most, 1)/steps)))
	step := math.Max(1, 10*unit)
	for _, f := range []float64{1, 2, 2.5, 5} {
		if s := unit * f; s >= 1 && s == math.Trunc(s) && s*steps >= most {
			step = s
			break
		}
	}
	out := []float64{0}
	for v := step; len(out) == 1 || v-step < most; v += step {
		out = append(out, v)
	}
	return out
}

type drawing struct {
	b        strings.Builder
	from, to int64
	epoch    int64
	labels   []string
	bins     int // of the time
}

func (d *drawing) add(format string, a ...any) {
	fmt.Fprintf(&d.b, format, a...)
	d.b.WriteByte('\n')
}

func (d *drawing) text(x, y float64, anchor, attr, s string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, attr, html.EscapeString(s))
}

// legendEntry is the name of one result and its place.
type legendEntry struct {
	text string
	x    float64
	row  int
}

// legend arranges the results' names in rows within the frame.
func (d *drawing) legend(ms []*Metrics) []legendEntry {
	var out []legendEntry
	x, row := float64(plotLeft), 0
	longest := 0.0
	for _, m := range ms {
		longest = max(longest, m.AvgWait)
	}
	for i, m := range ms {
		s := fmt.Sprintf("%s: wait %s, slowdown %.1f", d.labels[i], spanLike(m.AvgWait, longest), m.AvgSlowdown)
		wide := 40 + 6.6*float64(len(s))
		if x > plotLeft && x+wide > plotWide-plotRight {
			x, row = plotLeft, row+1
		}
		out = append(out, legendEntry{s, x, row})
		x += wide
	}
	return out
}

// panel draws a frame with its title, and a line for each tick.
func (d *drawing) panel(y float64, title string, top float64, ticks []float64, name func(float64) string) {
	d.text(plotLeft, y-8, "start", `font-weight="600"`, title)
	for _, v := range ticks {
		at := y + panelHigh*(1-v/top)
		d.add(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e3e3e3"/>`, plotLeft, plotWide-plotRight, at, at)
		d.text(plotLeft-8, at+4, "end", `fill="#555" font-size="11"`, name(v))
	}
}

// curves draws one line for each result; a single one is filled.
func (d *drawing) curves(y, top float64, lists [][]float64) {
	wide := float64(plotWide-plotLeft-plotRight) / float64(d.bins)
	for i, list := range slices.Backward(lists) { // the first result is the one that the others are compared with
		var p strings.Builder
		for k, v := range list {
			at := y + panelHigh*(1-min(v/top, 1))
			fmt.Fprintf(&p, "%.1f,%.1f %.1f,%.1f ", plotLeft+wide*float64(k), at, plotLeft+wide*float64(k+1), at)
		}
		if len(lists) == 1 {
			d.add(`<polygon points="%d,%.1f %s%d,%.1f" fill="%s" fill-opacity=".18"/>`, plotLeft, y+panelHigh, p.String(),
				plotWide-plotRight, y+panelHigh, plotColours[0])
		}
		d.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.2" stroke-opacity=".85"/>`,
			strings.TrimSpace(p.String()), plotColours[i])
	}
}

// timeSteps are round distances of moments, seconds; longer ones are multiples of the last.
var timeSteps = []int64{60, 300, 600, 1800, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 5 * 86400,
	10 * 86400, 20 * 86400, 50 * 86400, 100 * 86400}

// moments gives the round distance between the moments to name, and the first of them. Distances count from midnight
// UTC where the trace knows it, otherwise from the first event.
func (d *drawing) moments() (first, step int64) {
	const most = 8
	step = timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if (d.to-d.from)/s <= most {
			step = s
			break
		}
	}
	for (d.to-d.from)/step > most {
		step *= 2
	}
	if d.epoch == 0 {
		return d.from, step
	}
	at := d.epoch + d.from
	return (at+step-1)/step*step - d.epoch, step
}

// times names round moments below a panel: dates where the trace knows them, otherwise hours or days.
func (d *drawing) times(y float64) {
	first, step := d.moments()
	for at := first; at <= d.to; at += step {
		s := fmt.Sprintf("day %d", (at-d.from)/86400)
		switch {
		case d.epoch > 0 && step < 86400:
			s = time.Unix(d.epoch+at, 0).UTC().Format("01-02 15:04")
		case d.epoch > 0:
			s = time.Unix(d.epoch+at, 0).UTC().Format("2006-01-02")
		case step < 3600:
			s = fmt.Sprintf("%d min", (at-d.from)/60)
		case step < 86400:
			s = fmt.Sprintf("%d h", (at-d.from)/3600)
		}
		x := plotLeft + float64(plotWide-plotLeft-plotRight)*float64(at-d.from)/float64(d.to-d.from)
		d.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#999"/>`, x, x, y+panelHigh, y+panelHigh+4)
		const glyph = 6.6 // at most, of this size
		anchor := "middle"
		if x+glyph/2*float64(len(s)) > plotWide {
			x, anchor = plotWide-plotRight, "end"
		}
		d.text(x, y+panelHigh+18, anchor, `fill="#555" font-size="11"`, s)
	}
}

// tick is a value of a scale and its name.
type tick struct {
	value float64
	name  string
}

var (
	waitTicks = []tick{{1, "1 s"}, {10, "10 s"}, {60, "1 min"}, {600, "10 min"}, {3600, "1 h"}, {36000, "10 h"},
		{4 * 86400, "4 days"}, {40 * 86400, "40 days"}, {400 * 86400, "400 days"}}
	slowdownTicks = []tick{{1, "1"}, {10, "10"}, {100, "100"}, {1000, "1,000"}, {1e4, "10,000"}, {1e5, "100,000"},
		{1e6, "1,000,000"}, {1e7, "10,000,000"}, {1e8, "100,000,000"}}
)

// bars draws the mean of a measure for each class of size, on a logarithmic scale from 1 to the first tick that is at
// least as large as all values.
func (d *drawing) bars(y float64, title string, ms []*Metrics, get func(*SizeLine) float64, scale []tick,
	name func(float64) string) {
	var classes []string
	find := func(m *Metrics, class string) (v float64) {
		for i := range m.Sizes {
			if m.Sizes[i].Size == class {
				v = get(&m.Sizes[i])
			}
		}
		return v
	}
	most := 10.0
	for _, c := range append([]string{noUnits}, classNames()...) {
		there := false
		for _, m := range ms {
			v := find(m, c)
			there = there || v > 0
			most = max(most, v)
		}
		if there {
			classes = append(classes, c)
		}
	}
	last := 1
	for last < len(scale)-1 && scale[last].value < most {
		last++
	}
	decades := math.Log10(scale[last].value)
	var ticks []float64
	for _, t := range scale[:last+1] {
		ticks = append(ticks, math.Log10(t.value))
	}
	d.panel(y, title, decades, ticks, func(v float64) string {
		for _, t := range scale {
			if math.Log10(t.value) == v {
				return t.name
			}
		}
		return ""
	})
	wide := float64(plotWide-plotLeft-plotRight) / float64(max(len(classes), 1))
	n := min(len(ms), maxPlotted)
	bar := min(wide*.8/float64(n), 40)
	for i, c := range classes {
		mid := plotLeft + wide*(float64(i)+.5)
		for k, m := range ms[:n] {
			v := find(m, c)
			if v == 0 {
				continue
			}
			high := max(panelHigh*math.Log10(max(v, 1))/decades, 1)
			x := mid + bar*(float64(k)-float64(n)/2)
			d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %s</title></rect>`, x, y+
				panelHigh-high, max(bar-2, 1), high, plotColours[k],
				html.EscapeString(d.labels[k]), c, name(v))
			if n == 1 {
				d.text(mid-1, y+panelHigh-high-4, "middle", `fill="#555" font-size="10"`, name(v))
			}
		}
		d.text(mid, y+panelHigh+18, "middle", `fill="#555" font-size="11"`, c)
	}
}
