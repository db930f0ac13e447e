package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/clustertext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// chart.go draws what was measured over time: from 0 to the whole where there is one, the times below, and each value
// for who points at it.

const (
	chartSteps = 72  // points of a chart, about
	chartWide  = 300 // its own units
	chartHigh  = 60
	fullCharts = 16 // of many charts beside each other only so many have their values
)

// chart is one line over time.
type chart struct {
	Name          string // what it shows
	Line, Area    string // paths
	Now, Mean     string
	Most          string
	Top           string // what its upper edge is
	From, Mid, To string // times below it
	Over          string // how much time it is
	Label         string // all of it in words
	Low           bool
	Points        []chartPoint
}

// chartPoint is one value, and where it lies.
type chartPoint struct{ X, W, Text string }

// frame is the time that a chart shows.
type frame struct {
	from, to, now model.Time
	values        bool // each has its own place to point at
}

// firstOf is when a chart of a day begins: with its first value, and an hour ago at the latest.
func firstOf(x *proto.HistorySeries, from, now model.Time) model.Time {
	if len(x.Points) == 0 {
		return from
	}
	return max(from, min(x.Points[0].At-model.Time(x.StepS*1000), now-sparkSpan))
}

// over says how much time a chart of the past shows.
func over(s int64) string {
	switch {
	case s > 23*3600 && s < 25*3600:
		return "The last day"
	case s > 3540 && s < 3660:
		return "The last hour"
	}
	return "The last " + span(s)
}

// units are written behind values.
var units = map[string]string{"gpu_util": "\u00a0%", "power": "\u00a0W", "temp": "\u00a0°C"}

// valueText writes a value of a field.
func valueText(field string, v int64) string {
	switch {
	case field == "power": // whole watts are enough
		return strconv.FormatInt((v+5)/10, 10) + units[field]
	case (field == "mem" || field == "gpu_mem") && v%1024 == 0 && v >= 1024 && v < 1<<20:
		return strconv.FormatInt(v/1024, 10) + "G"
	case field == "running" || field == "pending" || field == "gpus" || field == "cpus":
		return count(v)
	}
	return strings.TrimSuffix(clustertext.HistoryValue(field, v, false), ".00") + units[field]
}

// roundUp gives a round number that is not smaller, for a scale's upper edge.
func roundUp(field string, v int64) int64 {
	base := int64(1)
	switch field {
	case "mem", "gpu_mem":
		for base < v {
			base *= 2
		}
		return base
	case "cpu_use", "cpu_load":
		base = 100
	case "power":
		base = 1000
	}
	for ; ; base *= 10 {
		for _, k := range []int64{1, 2, 5} {
			if v <= k*base {
				return k * base
			}
		}
	}
}

// draw makes a chart of a field. top is the whole; 0: its upper edge is a round number above the largest value. nil:
// nothing is known.
func draw(x *proto.HistorySeries, field, name string, top int64, in frame) *chart {
	at := slices.IndexFunc(x.Of.Shown(), func(f proto.HistoryField) bool { return f.Name == field })
	from, to := in.from, in.to
	if at < 0 || to <= from {
		return nil
	}
	var sum, n, most, last int64
	points := slices.DeleteFunc(slices.Clone(x.Points), func(p proto.HistoryPoint) bool { return p.At <= from })
	for _, p := range points {
		if at < len(p.Values) && p.Values[at] >= 0 {
			v := p.Values[at]
			sum, n, most, last = sum+v, n+1, max(most, v), v
		}
	}
	if n == 0 {
		return nil
	}
	if top <= 0 || most > top {
		top = roundUp(field, max(1, most))
	}
	c := &chart{Name: name, Now: valueText(field, last), Mean: valueText(field, sum/n), Most: valueText(field, most),
		Top: valueText(field, top), From: clock(from, in.now), Mid: clock((from+to)/2, in.now), To: clock(to, in.now),
		Over: over(int64(to-from) / 1000)}
	if to >= in.now {
		c.To = "now"
	}
	c.Label = fmt.Sprintf("%s over %s: %s at the end, %s on average, at most %s", name, span(int64(to-from)/1000), c.Now,
		c.Mean, c.Most)
	c.Low = field == "gpu_util" && last < model.IdleGPUPct
	c.trace(points, at, x.StepS, top, in, func(v int64) string { return valueText(field, v) })
	return c
}

// trace makes the paths, with gaps where nothing is known.
func (c *chart) trace(points []proto.HistoryPoint, at int, stepS, top int64, in frame, text func(int64) string) {
	var line, area strings.Builder
	var first, before float64
	open := false
	end := func() {
		if open {
			fmt.Fprintf(&area, "L%.1f %dL%.1f %dZ", before, chartHigh, first, chartHigh)
		}
		open = false
	}
	place := func(t model.Time) float64 {
		return min(chartWide, max(0, chartWide*float64(t-in.from)/float64(in.to-in.from)))
	}
	lastAt := model.Time(0)
	for _, p := range points {
		if at >= len(p.Values) || p.Values[at] < 0 {
			end()
			continue
		}
		if open && int64(p.At-lastAt) > 3*stepS*1000/2 {
			end()
		}
		left, right := place(p.At-model.Time(stepS*1000)), place(p.At)
		y := 1 + (chartHigh-2)*(1-float64(min(p.Values[at], top))/float64(top))
		if !open {
			fmt.Fprintf(&line, "M%.1f %.1f", left, y)
			fmt.Fprintf(&area, "M%.1f %dL%.1f %.1f", left, chartHigh, left, y)
			first, open = left, true
		}
		fmt.Fprintf(&line, "L%.1f %.1f", right, y)
		fmt.Fprintf(&area, "L%.1f %.1f", right, y)
		before, lastAt = right, p.At
		if in.values {
			c.Points = append(c.Points, chartPoint{fmt.Sprintf("%.1f", left), fmt.Sprintf("%.1f", max(1, right-left)),
				clock(p.At, in.now) + ": " + text(p.Values[at])})
		}
	}
	end()
	c.Line, c.Area = line.String(), area.String()
}

// tenths is a number of CPUs with one digit behind the point.
func (c *chart) tenths() string {
	v, err := strconv.ParseFloat(c.Now, 64)
	if err != nil {
		return c.Now
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
