package page

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// history.go draws what was measured over time. A page is complete without it: gdbd may be away or slow.

const (
	pastWait = 400 * time.Millisecond // for gdbd
	pastKept = 20 * time.Second       // an answer serves other looks of the same reader
	noneKept = 3 * time.Second        // that there is none
	maxKept  = 512
)

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

// stepOfSpan is how finely a time is drawn, seconds.
func stepOfSpan(from, to model.Time) int64 {
	s := int64(to-from) / 1000 / chartSteps
	return max(proto.HistoryFineS, (s+proto.HistoryFineS-1)/proto.HistoryFineS*proto.HistoryFineS)
}

const (
	sparkLeast = 600 * 1000  // what a sparkline shows at least, ms
	sparkSpan  = 3600 * 1000 // what a sparkline of my jobs shows, ms
	leastSpan  = 60 * 1000   // what the page of a job that has just started shows
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
			since := max(from, min(l.Start, q.now-sparkLeast))
			in := frame{since, q.now, q.now, false}
			if l.Spark = draw(&x, "gpu_util", "GPU use", 100, in); l.Spark == nil && l.GPUs == 0 {
				cpus := int64(l.CPUs)
				if l.Spark = draw(&x, "cpu_use", "CPUs in use", 100*cpus, in); l.Spark != nil {
					l.UseText = l.Spark.tenths() + " of " + plural(cpus, "CPU", "CPUs")
				}
			}
		}
	}
}

// jobSize is what a job has of what is measured; 0: it is not known.
type jobSize struct{ cpus, memMiB, gpuMiB int64 }

// overTime adds what a job used over time, and each of its GPUs.
func (q *request) overTime(x *job, id model.JobID, from, to model.Time, size jobSize) {
	if to == 0 || to > q.now {
		to = q.now
	}
	from = max(min(from, to-leastSpan), q.now-proto.HistoryLongFor*1000)
	rq := &proto.HistoryRequest{Of: proto.HistoryJob, Names: []string{strconv.FormatUint(uint64(id), 10)}, Start: from,
		End: to + proto.HistoryFineS*1000, StepS: stepOfSpan(from, to)}
	in := frame{from, to, q.now, true}
	for _, s := range q.past(rq) {
		for _, f := range []struct {
			field, name string
			top         int64
		}{{"gpu_util", "GPU use", 100}, {"gpu_mem", "GPU memory", size.gpuMiB}, {"cpu_use", "CPUs in use", 100 * size.cpus},
			{"mem", "Memory", size.memMiB},
			{"power", "Power of its GPUs", 0}} {
			if c := draw(&s, f.field, f.name, f.top, in); c != nil {
				x.Charts = append(x.Charts, c)
			}
		}
	}
	if len(x.Charts) == 0 {
		return
	}
	rq.Of, rq.Names, rq.Job = proto.HistoryGPU, nil, id
	for _, s := range q.past(rq) {
		in.values = len(x.EachGPU) < fullCharts
		if c := draw(&s, "gpu_util", "GPU "+strings.ReplaceAll(s.Name, "/", " "), 100, in); c != nil &&
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
		total := func(k int) (n int64) {
			if v := x.Points[len(x.Points)-1].Values; k < len(v) {
				n = v[k]
			}
			return n
		}
		in := frame{firstOf(&x, from, q.now), q.now, q.now, true}
		for _, f := range []struct {
			field, name string
			top         int64
		}{{"gpus", "GPUs that jobs hold", total(6)}, {"gpu_util", "Use of held GPUs", 100},
			{"cpus", "CPUs that jobs hold", total(5)}, {"running", "Running jobs", 0}, {"pending", "Waiting jobs", 0}} {
			if f.field == "gpus" && f.top <= 0 || !slices.Contains(fields, f.field) {
				continue
			}
			if c := draw(&x, f.field, f.name, f.top, in); c != nil {
				list = append(list, c)
			}
		}
	}
	return list
}
