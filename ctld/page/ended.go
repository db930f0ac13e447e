package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/seff"
)

// ended.go lists the reader's jobs of the last days, from accounting. My jobs has it too, asked for by the script when
// the page is there already.

// Limits of the list.
const (
	endedWait = 5 * time.Second // for gdbd
	endedRead = 500_000         // records that are looked at, the newest of which are shown
)

// endedLine is a job that has ended.
type endedLine struct {
	*model.Record
	Number, Ref, Class, StateWord string
	Size, Why, UseText            string
	Use                           *bar
	GPUs                          gpuCount
	Ran                           int64 // seconds
}

// endedView is the view.
type endedView struct {
	Days              int
	Spans             []int
	List              []*endedLine
	Name, State, Sort string
	Sorts             []pair
	Found             int // how many fit
	More              bool
	Hidden            string // why nothing is known
}

func endedSorts() []pair {
	return []pair{{"", "latest first"}, {"ran", "longest first"}, {"gpus", "most GPUs first"}, {"name", "by name"}}
}

// ended lists what the reader's jobs did in the last days.
func ended(q *request) (any, error) {
	set := q.r.URL.Query()
	v := &endedView{Days: 3, Spans: []int{1, 3, 7, 30}, Name: strings.TrimSpace(set.Get("name")), State: set.Get("state"),
		Sort: set.Get("sort"), Sorts: endedSorts()}
	if n, err := strconv.Atoi(set.Get("days")); err == nil && slices.Contains(v.Spans, n) {
		v.Days = n
	}
	own := *q
	ctx, cancel := context.WithTimeout(q.ctx, endedWait)
	defer cancel()
	own.ctx = ctx
	var list []*model.Record
	latest := func() {
		slices.SortFunc(list, func(a, b *model.Record) int {
			return cmp.Or(cmp.Compare(b.End, a.End), cmp.Compare(b.Job, a.Job))
		})
		list = list[:min(len(list), maxRows)]
	}
	read := 0
	err := own.stream(proto.KindAcct, &proto.AcctRequest{Users: []uint32{q.who.UID},
		Start: q.now - model.Time(v.Days)*24*3600*1000, End: q.now}, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			if read++; read > endedRead {
				return errEnough
			}
			if r.End == 0 || v.Name != "" && !strings.Contains(strings.ToLower(r.Name), strings.ToLower(v.Name)) ||
				v.State == "failed" && classOf(r.State) != "bad" || v.State == "completed" && r.State != model.Completed {
				continue
			}
			v.Found++
			if list = append(list, r); len(list) > 10*maxRows {
				latest()
			}
		}
		return nil
	})
	v.More = errors.Is(err, errEnough) || v.Found > maxRows
	switch {
	case errors.Is(err, errEnough): // accounting gives the oldest first
		v.Hidden = fmt.Sprintf("Only the first %d of these jobs were looked at: choose fewer days.", endedRead)
	case err != nil:
		v.Hidden = sentence(env.Text(err))
	}
	latest()
	for _, r := range list {
		v.List = append(v.List, endedOf(r))
	}
	slices.SortStableFunc(v.List, func(a, b *endedLine) int {
		switch v.Sort {
		case "ran":
			return cmp.Compare(b.Ran, a.Ran)
		case "gpus":
			return cmp.Compare(b.GPUs, a.GPUs)
		case "name":
			return strings.Compare(a.Name, b.Name)
		}
		return 0
	})
	return v, nil
}

// endedOf makes a line of a record.
func endedOf(r *model.Record) *endedLine {
	l := &endedLine{Record: r, Number: jobtext.RecordID(r), Class: classOf(r.State), StateWord: stateWord(r.State),
		Why: sentence(r.EndText()), Ran: r.ElapsedS()}
	l.Ref = l.Number
	if r.ArrayID != 0 && r.Task == model.NoTask || r.Het != nil {
		l.Ref = strconv.FormatUint(uint64(r.Job), 10)
	}
	l.GPUs, l.Size = recordSize(r)
	if r.Exit.Use == nil {
		return l
	}
	if s := seff.GPUs(r.Exit.Use); s.Told > 0 {
		l.Use = barOf(s.UtilAve, 100, "")
		l.UseText = l.Use.Label + " of " + plural(s.Told, "GPU", "GPUs")
		if s.UtilAve < model.IdleGPUPct {
			l.Use.Class = "low"
		}
	} else if cpus := int64(r.AllocCPUs); l.GPUs == 0 && l.Ran > 0 && cpus > 0 {
		user, sys := r.Exit.Use.CPUms()
		l.Use = barOf(user+sys, l.Ran*cpus*1000, "")
		l.UseText = l.Use.Label + " of " + plural(cpus, "CPU", "CPUs")
	}
	return l
}

// recordSize says how large a job was: 2 nodes, 16 GPUs; or its CPUs, where it had no GPU.
func recordSize(r *model.Record) (gpus gpuCount, text string) {
	var words []string
	if r.NumNodes > 1 {
		words = append(words, plural(r.NumNodes, "node", "nodes"))
	}
	list, cpus := r.AllocGres, r.AllocCPUs
	if r.Start == 0 {
		list, cpus = r.ReqGres, r.ReqCPUs
	}
	parts := ""
	for _, g := range list {
		if g.Name == model.GPUName {
			gpus += wholeGPU * gpuCount(g.Count)
		} else if model.IsShare(g.Name) && g.Count > 0 {
			parts = count(g.Count) + " " + g.Name
		}
	}
	switch {
	case gpus > 0:
		words = append(words, plural(gpus, "GPU", "GPUs"))
	case parts == "":
		words = append(words, plural(max(1, cpus), "CPU", "CPUs"))
	}
	if parts != "" {
		words = append(words, parts)
	}
	return gpus, strings.Join(words, ", ")
}
