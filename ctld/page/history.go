package page

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/clustertext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// history.go draws what was measured over time. A page is complete without it: gdbd may be away or slow.

const (
	pastWait   = 400 * time.Millisecond // for gdbd
	pastKept   = 20 * time.Second       // an answer serves other looks of the same reader
	noneKept   = 3 * time.Second        // that there is none
	maxKept    = 512
	chartSteps = 120 // points of a chart, about
	chartWide  = 300 // its own units
	chartHigh  = 60
)

// chart is one line over time.
type chart struct {
	Name       string // what it shows
	Line, Area string // paths
	Now, Mean  string
	Top        string // what its upper edge is
	Span       string
	Label      string // all of it in words
	Low        bool
}

// kept holds answers of gdbd for a short time.
type kept struct {
	mu sync.Mutex
	by map[string]keptAnswer
}

type keptAnswer struct {
	at   time.Time
	list []proto.HistorySeries
}

// past asks gdbd; nil if it does not answer in time.
func (q *request) past(rq *proto.HistoryRequest) []proto.HistorySeries {
	key := fmt.Sprint(q.who.UID, q.who.Less, rq.Of, rq.Names, rq.Start/60_000, rq.End/60_000, rq.StepS, rq.Job)
	k := &q.p.kept
	k.mu.Lock()
	a, known := k.by[key]
	k.mu.Unlock()
	if age := time.Since(a.at); known && (age < noneKept || age < pastKept && len(a.list) > 0) {
		return a.list
	}
	ctx, cancel := context.WithTimeout(q.ctx, pastWait)
	defer cancel()
	var list []proto.HistorySeries
	_, err := q.p.o.Cluster.Ask(ctx, q.who, proto.KindHistory, rq, func(part []byte) error {
		var reply proto.HistoryReply
		if err := proto.Decode(part, &reply); err != nil {
			return err
		}
		list = append(list, reply.List...)
		return nil
	})
	if err != nil {
		list = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil || len(k.by) >= maxKept {
		k.by = map[string]keptAnswer{}
	}
	k.by[key] = keptAnswer{time.Now(), list}
	return list
}

// tenths is a number of CPUs with one digit behind the point.
func (c *chart) tenths() string {
	v, err := strconv.ParseFloat(c.Now, 64)
	if err != nil {
		return c.Now
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// stepOfSpan is how finely a time is drawn, seconds.
func stepOfSpan(from, to model.Time) int64 {
	s := int64(to-from) / 1000 / chartSteps
	return max(proto.HistoryFineS, (s+proto.HistoryFineS-1)/proto.HistoryFineS*proto.HistoryFineS)
}

// draw makes a chart of a field; top 0: its upper edge is the largest value. nil: nothing is known.
func draw(x *proto.HistorySeries, field, name string, top int64, from, to model.Time) *chart {
	at := -1
	for i, f := range x.Of.Shown() {
		if f.Name == field {
			at = i
		}
	}
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
	if top <= 0 {
		top = max(1, most)
	}
	unit := map[string]string{"gpu_util": "\u00a0%", "power": "\u00a0W", "temp": "\u00a0°C"}[field]
	word := func(v int64) string {
		if field == "power" { // whole watts are enough
			return strconv.FormatInt((v+5)/10, 10) + unit
		}
		return clustertext.HistoryValue(field, v, false) + unit
	}
	c := &chart{Name: name, Now: word(last), Mean: word(sum / n), Top: word(top), Span: span(int64(to-from) / 1000)}
	c.Label = fmt.Sprintf("%s over %s: %s at the end, %s on average, at most %s", name, c.Span, c.Now, c.Mean, word(most))
	c.Low = field == "gpu_util" && last < lowNow
	var line, area strings.Builder
	var first, before float64
	open := false
	end := func() {
		if open {
			fmt.Fprintf(&area, "L%.1f %dL%.1f %dZ", before, chartHigh, first, chartHigh)
		}
		open = false
	}
	lastAt := model.Time(0)
	for _, p := range points {
		if at >= len(p.Values) || p.Values[at] < 0 {
			end()
			continue
		}
		if open && int64(p.At-lastAt) > 3*x.StepS*1000/2 {
			end()
		}
		left := chartWide * float64(p.At-model.Time(x.StepS*1000)-from) / float64(to-from)
		right := chartWide * float64(p.At-from) / float64(to-from)
		left, right = min(chartWide, max(0, left)), min(chartWide, max(0, right))
		y := 1 + (chartHigh-2)*(1-float64(min(p.Values[at], top))/float64(top))
		if !open {
			fmt.Fprintf(&line, "M%.1f %.1f", left, y)
			fmt.Fprintf(&area, "M%.1f %dL%.1f %.1f", left, chartHigh, left, y)
			first, open = left, true
		}
		fmt.Fprintf(&line, "L%.1f %.1f", right, y)
		fmt.Fprintf(&area, "L%.1f %.1f", right, y)
		before, lastAt = right, p.At
	}
	end()
	c.Line, c.Area = line.String(), area.String()
	return c
}

const (
	sparkSpan = 3600 * 1000 // what a sparkline of my jobs shows, ms
	leastSpan = 600 * 1000  // that of a job that has just started
)

// sparks adds to running jobs what their GPUs did in the last hour, or their CPUs.
func (q *request) sparks(list []*jobLine) {
	var names []string
	by := map[string]*jobLine{}
	for _, l := range list {
		if id := strconv.FormatUint(uint64(l.ID), 10); l.Run != nil && len(names) < maxRows {
			names, by[id] = append(names, id), l
		}
	}
	if len(names) == 0 {
		return
	}
	from := q.now - sparkSpan
	for _, x := range q.past(&proto.HistoryRequest{Of: proto.HistoryJob, Names: names, Start: from}) {
		if l := by[x.Name]; l != nil {
			since := max(from, min(l.Start, q.now-leastSpan))
			if l.Spark = draw(&x, "gpu_util", "GPU use", 100, since, q.now); l.Spark == nil && l.GPUs == 0 {
				cpus := int64(l.CPUs)
				if l.Spark = draw(&x, "cpu_use", "CPUs in use", 100*cpus, since, q.now); l.Spark != nil {
					l.UseText = l.Spark.tenths() + " of " + plural(cpus, "CPU", "CPUs")
				}
			}
		}
	}
}

// overTime adds what a job used over time, and each of its GPUs.
func (q *request) overTime(x *job, id model.JobID, from, to model.Time) {
	if to == 0 || to > q.now {
		to = q.now
	}
	from = max(min(from, to-leastSpan), q.now-proto.HistoryLongFor*1000)
	rq := &proto.HistoryRequest{Of: proto.HistoryJob, Names: []string{strconv.FormatUint(uint64(id), 10)}, Start: from,
		End: to + proto.HistoryFineS*1000, StepS: stepOfSpan(from, to)}
	for _, s := range q.past(rq) {
		for _, f := range []struct {
			field, name string
			top         int64
		}{{"gpu_util", "GPU use", 100}, {"gpu_mem", "GPU memory", 0}, {"cpu_use", "CPUs in use", 0}, {"mem", "Memory", 0},
			{"power", "Power of its GPUs", 0}} {
			if c := draw(&s, f.field, f.name, f.top, from, to); c != nil {
				x.Charts = append(x.Charts, c)
			}
		}
	}
	if len(x.Charts) == 0 {
		return
	}
	rq.Of, rq.Names, rq.Job = proto.HistoryGPU, nil, id
	for _, s := range q.past(rq) {
		if c := draw(&s, "gpu_util", "GPU "+strings.ReplaceAll(s.Name, "/", " "), 100, from, to); c != nil &&
			len(x.EachGPU) < maxRows {
			x.EachGPU = append(x.EachGPU, c)
		}
	}
}

// lastDay draws some fields of the cluster.
func (q *request) lastDay(fields ...string) (list []*chart) {
	from := q.now - proto.HistoryFineFor*1000
	rq := &proto.HistoryRequest{Of: proto.HistoryCluster, Start: from, StepS: stepOfSpan(from, q.now)}
	for _, x := range q.past(rq) {
		if len(x.Points) == 0 {
			continue
		}
		first := x.Points[0].At - model.Time(x.StepS*1000)
		total := func(k int) (n int64) {
			if v := x.Points[len(x.Points)-1].Values; k < len(v) {
				n = v[k]
			}
			return n
		}
		since := max(from, min(first, q.now-sparkSpan))
		for _, f := range []struct {
			field, name string
			top         int64
		}{{"gpus", "GPUs that jobs hold", total(6)}, {"gpu_util", "Use of held GPUs", 100},
			{"cpus", "CPUs that jobs hold", total(5)}, {"running", "Running jobs", 0}, {"pending", "Waiting jobs", 0}} {
			if f.field == "gpus" && f.top <= 0 || !slices.Contains(fields, f.field) {
				continue
			}
			if c := draw(&x, f.field, f.name, f.top, since, q.now); c != nil {
				list = append(list, c)
			}
		}
	}
	return list
}
