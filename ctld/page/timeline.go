package page

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	jobrequest "gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The picture's measures, in its own units.
const (
	drawWide  = 1160
	drawNames = 90 // for nodes' names, at the left
	drawTop   = 26
	drawLane  = 16
	drawNodes = 48 // nodes in one picture
	drawJobs  = 2000
)

// box is a time on a node: a job's, a reservation's.
type box struct {
	From, To model.Time
	Class    string // past, runs, plan, resv, mine, if
	Ref      string
	Title    string
	Label    string
	X, Y, W  int
	H        int
	Beside   bool // the label stands at the right of the box
	LabelY   int
	many     int // jobs that are one box, because each is too narrow to see
}

// drawnNode is a node's row.
type drawnNode struct {
	Name  string
	Y, H  int
	Text  int
	Boxes []*box
	lanes []model.Time // until when each is taken
	resvs bool         // a reservation's name has a line of its own
}

// LabelX is where the label begins.
func (b *box) LabelX() int {
	if b.Beside {
		return b.X + b.W
	}
	return b.X
}

// Wide is the picture's width without the nodes' names.
func (v *timelineView) Wide() int { return v.Width - v.Left }

// mark is a time on the axis.
type mark struct {
	X     int
	Text  string
	Class string // start, end: on which side of the text the line is
	Day   bool   // a day begins
}

// timelineView is the view.
type timelineView struct {
	Hours              int
	Spans              []int
	Nodes              []*drawnNode
	Marks              []mark
	Now, Width, Height int
	Left, AxisY        int
	Prev, Next         string
	GPUs, Count, Limit string
	Part               string
	Parts              []string
	Said, Wrong        string
	PastWhy            string
	from, to           model.Time
	on                 map[string]*drawnNode
}

// timeline draws what ran, runs and is planned on each node.
func timeline(q *request) (any, error) {
	set := q.r.URL.Query()
	v := &timelineView{Hours: 12, Spans: []int{2, 12, 48, 168}, Width: drawWide, Left: drawNames,
		on:   map[string]*drawnNode{},
		GPUs: set.Get("gpus"), Part: set.Get("partition"), Count: cmp.Or(set.Get("nodes"), "1"),
		Limit: cmp.Or(set.Get("time"), "4:00:00")}
	if n, err := strconv.Atoi(set.Get("hours")); err == nil && slices.Contains(v.Spans, n) {
		v.Hours = n
	}
	whole := model.Time(v.Hours) * 3600_000
	v.from, v.to = q.now-whole/4, q.now+whole
	skip, _ := strconv.Atoi(set.Get("skip")) // 0 is the beginning
	n := 0
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		if n++; n > skip && len(v.Nodes) < drawNodes {
			d := &drawnNode{Name: i.Node.Def.Name}
			v.Nodes, v.on[d.Name] = append(v.Nodes, d), d
		}
	})
	if err != nil {
		return nil, err
	}
	if skip > 0 {
		v.Prev = fmt.Sprint(max(0, skip-drawNodes))
	}
	if n > skip+drawNodes {
		v.Next = fmt.Sprint(skip + drawNodes)
	}
	if err := q.gpuParts(v); err != nil {
		v.PastWhy = env.Text(err)
	}
	if v.GPUs != "" {
		q.whatIf(v)
	}
	if err := q.drawResvs(v); err != nil {
		v.PastWhy = env.Text(err)
	}
	if err := q.drawJobs(v); err != nil {
		return nil, err
	}
	if err := q.drawPast(v); err != nil {
		v.PastWhy = env.Text(err)
	}
	v.trim(q.now, whole)
	v.layOut(q.now)
	return v, nil
}

// add puts a box on the nodes that are drawn.
func (v *timelineView) add(nodes []string, b box) {
	if b.To <= v.from || b.From >= v.to {
		return
	}
	for _, n := range nodes {
		if d := v.on[n]; d != nil && len(d.Boxes) < drawJobs {
			one := b
			d.Boxes = append(d.Boxes, &one)
		}
	}
}

func (q *request) drawJobs(v *timelineView) error {
	_, _, _, err := q.jobs(&proto.JobsRequest{Default: true}, 0, func(j *model.Job) bool {
		limit := j.TimeLimitS()
		if limit == model.NotSet && j.Expect != nil && j.Expect.LimitS > 0 {
			limit = j.Expect.LimitS
		}
		if limit <= 0 || limit == model.Unlimited || limit == model.NotSet {
			limit = 365 * 24 * 3600
		}
		b := box{Ref: jobtext.RefText(refOf(j)), Label: jobtext.JobID(j)}
		b.Title = fmt.Sprintf("Job %s (%s) of %s", b.Label, j.Spec.Name, j.Spec.User)
		switch {
		case j.Run != nil && j.Run.Alloc != nil && j.State.HasResources():
			b.Class, b.From, b.To = "runs", j.Run.Start, q.now.Add(max(0, limit-j.ElapsedS(q.now)))
			b.Title += ", until " + clock(b.To, q.now) + " at the latest"
			v.add(j.Run.Alloc.NodeNames(), b)
		case j.State == model.Pending && j.Expect != nil && j.Expect.Start > 0:
			b.Class, b.From = "plan", j.Expect.Start
			b.To = b.From + model.Time(limit)*1000
			b.Title += ", planned for " + clock(b.From, q.now)
			v.add(j.Expect.Nodes, b)
		}
		return false
	})
	return err
}

// drawPast adds what has ended, from accounting.
func (q *request) drawPast(v *timelineView) error {
	n := 0
	err := q.stream(proto.KindAcct, &proto.AcctRequest{Start: v.from, End: q.now}, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			if r.End == 0 || r.Start == 0 {
				continue
			}
			if n++; n > drawJobs {
				return errEnough
			}
			nodes, err := hostlist.Expand(r.Nodes)
			if err != nil {
				continue // it is not drawn
			}
			id := jobtext.RecordID(r)
			v.add(nodes, box{From: r.Start, To: r.End, Class: "past", Ref: fmt.Sprint(r.Job), Label: id,
				Title: fmt.Sprintf("Job %s (%s) of %s, ended %s", id, r.Name, r.User, r.State)})
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (q *request) drawResvs(v *timelineView) error {
	var reply proto.ReservationsReply
	if err := q.ask(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		return err
	}
	for _, r := range reply.List {
		v.add(r.Nodes, box{From: r.Start, To: r.End, Class: "resv", Title: "Reservation " + r.Name, Label: r.Name})
	}
	return nil
}

// maxAsked bounds the partitions that one question is about: each costs the planner a pass.
const maxAsked = 16

// gpuParts adds the partitions in which there are GPUs and that take jobs.
func (q *request) gpuParts(v *timelineView) error {
	var parts queueView
	if err := q.parts(&parts); err != nil {
		return err
	}
	for _, p := range parts.Parts {
		if p.GPUs != "" && p.State == model.PartUp.String() {
			v.Parts = append(v.Parts, p.Name)
		}
	}
	return nil
}

// whatIf asks the planner when a job would start, and draws it: in one partition, or where it would start first of all
// those that take the reader's jobs.
func (q *request) whatIf(v *timelineView) {
	parts := v.Parts[:min(len(v.Parts), maxAsked)]
	if v.Part != "" {
		parts = []string{v.Part}
	} else if len(parts) == 0 {
		parts = []string{""} // the default
	}
	var best *proto.SubmitReply
	where, limit := "", int64(60)
	for _, part := range parts {
		reply, limitS, err := q.tryOn(v, part)
		switch {
		case err != nil:
			if v.Wrong == "" {
				v.Wrong = sentence(env.Text(err))
			}
		case best == nil || reply.TestStart < best.TestStart:
			best, where, limit = reply, part, max(limitS, 60)
		}
	}
	if best == nil {
		return
	}
	v.Wrong = ""
	v.Said = "It would start " + clock(best.TestStart, q.now) + " on " + best.TestNodes
	if where != "" && len(v.Parts) > 1 {
		v.Said += ", in partition " + where
	}
	v.Said += "."
	nodes, err := hostlist.Expand(best.TestNodes)
	if err != nil {
		return // the sentence is enough
	}
	v.add(nodes, box{From: best.TestStart, To: best.TestStart + model.Time(limit)*1000, Class: "if", Label: "what if",
		Title: v.Said})
}

// tryOn asks when the job would start in a partition.
func (q *request) tryOn(v *timelineView, part string) (reply *proto.SubmitReply, limitS int64, err error) {
	args := []string{"--job-name=what-if", "--gpus-per-node=" + strings.TrimSpace(v.GPUs),
		"--nodes=" + strings.TrimSpace(v.Count), "--time=" + strings.TrimSpace(v.Limit)}
	if part != "" {
		args = append(args, "--partition="+part)
	}
	s, err := jobrequest.From(args, q.moment)
	if err != nil {
		return nil, 0, err
	}
	s.Spec.WorkDir, s.Spec.Umask = "/tmp", 0o022
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	reply = &proto.SubmitReply{}
	err = q.ask(proto.KindSubmit, &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: &s.Spec,
		Script: []byte("#!/bin/sh\ntrue\n"), Env: []byte("PATH=/bin\x00"), TestOnly: true}, reply)
	return reply, s.Spec.LimitS, err
}

// trim begins the picture shortly before what ran first: time in which nothing was is left to the future.
func (v *timelineView) trim(now, whole model.Time) {
	first := now
	for _, d := range v.Nodes {
		for _, b := range d.Boxes {
			first = min(first, b.From)
		}
	}
	v.from = min(max(v.from, first-whole/24), now-whole/24)
	v.to = v.from + whole
	for _, d := range v.Nodes {
		d.Boxes = slices.DeleteFunc(d.Boxes, func(b *box) bool { return b.From >= v.to || b.To <= v.from })
	}
}

// Measures of labels and of boxes that are too narrow to be told apart, in the picture's units.
const (
	letterWide = 7
	tooNarrow  = 4
)

// merge makes one box of jobs that ended and are too narrow to be told apart. The boxes are in order of their begin.
func (d *drawnNode) merge(x func(model.Time) int) {
	var out []*box
	var last *box // the latest narrow one
	for _, b := range d.Boxes {
		narrow := b.Class == "past" && x(b.To)-x(b.From) < tooNarrow
		if narrow && last != nil && x(b.From)-x(last.To) < tooNarrow/2 && x(b.To)-x(last.From) < 4*tooNarrow {
			last.many++
			last.To = max(last.To, b.To)
			last.Title, last.Ref = fmt.Sprintf("%d short jobs, the first one: %s", last.many, last.first()), ""
			last.Label = fmt.Sprintf("%d jobs", last.many)
			continue
		}
		if narrow {
			b.many, last = 1, b
		}
		out = append(out, b)
	}
	d.Boxes = out
}

// first is the sentence about the first job of a merged box.
func (b *box) first() string {
	if _, after, cut := strings.Cut(b.Title, "the first one: "); cut {
		return after
	}
	return b.Title
}

// layOut gives everything its place: on each node, boxes that overlap in time lie below each other.
func (v *timelineView) layOut(now model.Time) {
	scale := float64(drawWide-drawNames) / float64(v.to-v.from)
	x := func(t model.Time) int { return drawNames + int(float64(min(max(t, v.from), v.to)-v.from)*scale) }
	y := drawTop
	for _, d := range v.Nodes {
		slices.SortStableFunc(d.Boxes, func(a, b *box) int { return cmp.Compare(a.From, b.From) })
		d.merge(x)
		for _, b := range d.Boxes {
			if b.Class == "resv" {
				d.resvs = true
				continue
			}
			lane := slices.IndexFunc(d.lanes, func(until model.Time) bool { return until <= b.From })
			if lane < 0 {
				lane, d.lanes = len(d.lanes), append(d.lanes, 0)
			}
			d.lanes[lane] = b.To
			b.Y, b.H = y+3+lane*drawLane, drawLane-2
		}
		d.Y, d.H = y, max(1, len(d.lanes))*drawLane+6
		if d.resvs {
			d.H += drawLane
		}
		d.Text = d.Y + 15
		for _, b := range d.Boxes {
			b.X = x(b.From)
			b.W = max(2, x(b.To)-b.X)
			b.LabelY = b.Y
			if b.Class == "resv" {
				b.Y, b.H, b.LabelY = d.Y, d.H, d.Y+d.H-drawLane
			}
		}
		d.label()
		y += d.H
	}
	v.Height, v.AxisY, v.Now = y+4, drawTop-8, x(now)
	v.marks(x)
}

// label puts each name into its box, or beside it where nothing else is, or leaves it out.
func (d *drawnNode) label() {
	for _, b := range d.Boxes {
		wide := letterWide*len(b.Label) + 8
		if b.W >= wide {
			continue
		}
		room := drawWide
		for _, o := range d.Boxes {
			if o != b && o.LabelY == b.LabelY && o.X >= b.X {
				room = min(room, o.X)
			}
		}
		if b.Beside = b.X+b.W+wide <= room; !b.Beside {
			b.Label = ""
		}
	}
}

// marks writes times at the top; where a day begins, its date.
func (v *timelineView) marks(x func(model.Time) int) {
	step := map[int]time.Duration{2: 15 * time.Minute, 12: time.Hour, 48: 6 * time.Hour, 168: 24 * time.Hour}[v.Hours]
	from := moment(v.from)
	at := time.Date(from.Year(), from.Month(), from.Day(), 0, 0, 0, 0, from.Location())
	for !at.After(from) {
		at = at.Add(step)
	}
	for t := model.Time(at.UnixMilli()); t <= v.to; t += model.Time(step.Milliseconds()) {
		m := mark{X: x(t), Text: moment(t).Format("15:04")}
		if m.Day = moment(t).Format("15:04") == "00:00"; m.Day {
			m.Text = moment(t).Format("Mon, Jan 2")
		}
		half := letterWide * len(m.Text) / 2
		switch {
		case m.X < drawNames+half:
			m.Class = "start"
		case m.X > drawWide-half:
			m.Class = "end"
		}
		v.Marks = append(v.Marks, m)
	}
}
