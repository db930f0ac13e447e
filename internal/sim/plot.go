package sim

import (
	"fmt"
	"html"
	"io"
	"math"
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
	plotTop    = 108
	plotBins   = 420
	maxPlotted = 6
)

var plotColours = [maxPlotted]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// Plot draws load and queue over time and slowdown by size as an SVG that needs nothing else. Results after the sixth
// are left out.
func Plot(w io.Writer, outs []*Outcome, ms []*Metrics, labels []string) error {
	outs = outs[:min(len(outs), maxPlotted)]
	d := &drawing{from: math.MaxInt64, to: math.MinInt64, labels: labels}
	for _, o := range outs {
		if n := len(o.Load); n > 0 {
			d.from, d.to = min(d.from, o.Load[0].At), max(d.to, o.Load[n-1].At)
		}
	}
	if d.to <= d.from {
		return fmt.Errorf("nothing to draw: no time passed while the jobs ran")
	}
	d.epoch = outs[0].Work.Epoch
	high := plotTop + 3*panelHigh + 2*panelGap + 64
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui,Segoe `+
		`UI,Helvetica,Arial,sans-serif" font-size="12" fill="#222">`, plotWide, high)
	d.add(`<rect width="%d" height="%d" fill="#fff"/>`, plotWide, high)
	d.text(plotLeft, 30, "start", `font-size="18" font-weight="600"`, strings.TrimSuffix(outs[0].Work.Name, ".gz"))
	d.text(plotLeft, 50, "start", `fill="#555"`, fmt.Sprintf("%s jobs on %s", group(int64(ms[0].Jobs)), ms[0].Machine))
	d.legend(ms)

	load, queue := make([][]float64, len(outs)), make([][]float64, len(outs))
	most := 0.0
	for i, o := range outs {
		busy, queued := bins(o.Load, d.from, d.to)
		for k := range busy {
			busy[k] /= float64(max(ms[i].Total, 1))
			most = max(most, queued[k])
		}
		load[i], queue[i] = busy, queued
	}
	y := float64(plotTop)
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
	d.bars(y, ms)
	d.add(`</svg>`)
	_, err := io.WriteString(w, d.b.String())
	return err
}

// bins gives the mean load and the longest queue in equal parts of the time.
func bins(load []Sample, from, to int64) (busy, queued []float64) {
	busy, queued = make([]float64, plotBins), make([]float64, plotBins)
	wide := float64(to-from) / plotBins
	for i, s := range load {
		a, b := float64(s.At-from)/wide, float64(plotBins)
		if i+1 < len(load) {
			b = float64(load[i+1].At-from) / wide
		}
		for k := int(a); k < plotBins && float64(k) < b; k++ {
			busy[k] += float64(s.Busy) * (min(b, float64(k+1)) - max(a, float64(k)))
			queued[k] = max(queued[k], float64(s.Queued))
		}
	}
	return busy, queued
}

// roundTicks gives four or five round values from 0 to at least most.
func roundTicks(most float64) []float64 {
	unit := math.Pow(10, math.Floor(math.Log10(math.Max(most, 1)/4)))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if s := math.Max(1, unit*f); s*4 >= most {
			return []float64{0, s, 2 * s, 3 * s, 4 * s}
		}
	}
	return []float64{0, most}
}

type drawing struct {
	b        strings.Builder
	from, to int64
	epoch    int64
	labels   []string
}

func (d *drawing) add(format string, a ...any) {
	fmt.Fprintf(&d.b, format, a...)
	d.b.WriteByte('\n')
}

func (d *drawing) text(x, y float64, anchor, attr, s string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, attr, html.EscapeString(s))
}

func (d *drawing) legend(ms []*Metrics) {
	x := float64(plotLeft)
	for i, label := range d.labels[:min(len(d.labels), maxPlotted)] {
		s := fmt.Sprintf("%s: wait %s, slowdown %.1f", label, span(ms[i].AvgWait), ms[i].AvgSlowdown)
		d.add(`<rect x="%.1f" y="61" width="11" height="11" rx="2" fill="%s"/>`, x, plotColours[i])
		d.text(x+16, 71, "start", ``, s)
		x += 34 + 6.3*float64(len(s))
	}
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
	wide := float64(plotWide-plotLeft-plotRight) / plotBins
	for i, list := range lists {
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

// times names some moments below a panel: dates where the trace knows them, otherwise hours or days.
func (d *drawing) times(y float64) {
	const parts = 6
	for k := range parts + 1 {
		at := d.from + (d.to-d.from)*int64(k)/parts
		s := fmt.Sprintf("day %.0f", float64(at-d.from)/86400)
		switch {
		case d.epoch > 0:
			s = time.Unix(d.epoch+at, 0).UTC().Format("2006-01-02")
		case d.to-d.from < 4*86400:
			s = fmt.Sprintf("%.0f h", float64(at-d.from)/3600)
		}
		d.text(plotLeft+float64(plotWide-plotLeft-plotRight)*float64(k)/parts, y+panelHigh+18, "middle",
			`fill="#555" font-size="11"`, s)
	}
}

// bars draws the mean bounded slowdown of each class of size, on a scale of powers of ten.
func (d *drawing) bars(y float64, ms []*Metrics) {
	var classes []string
	find := func(m *Metrics, class string) (v float64) {
		for _, s := range m.Sizes {
			if s.Size == class {
				v = s.AvgSlowdown
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
	decades := math.Ceil(math.Log10(most))
	var ticks []float64
	for k := 0.0; k <= decades; k++ {
		ticks = append(ticks, k)
	}
	d.panel(y, "average bounded slowdown by "+ms[0].Unit+"s of the job (1 is no wait)", decades, ticks,
		func(v float64) string { return group(int64(math.Pow(10, v))) })
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
			d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %.2f</title></rect>`, x, y+
				panelHigh-high, max(bar-2, 1), high, plotColours[k],
				html.EscapeString(d.labels[k]), c, v)
			if n == 1 {
				d.text(mid-1, y+panelHigh-high-4, "middle", `fill="#555" font-size="10"`, fmt.Sprintf("%.1f", v))
			}
		}
		d.text(mid, y+panelHigh+18, "middle", `fill="#555" font-size="11"`, c)
	}
}
