package jobtext

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// whyID gives the job's number as gqueue shows it.
func whyID(x *model.Explanation) string {
	return JobID(&model.Job{ID: x.Job, ArrayID: x.ArrayID, Task: x.Task, Tasks: x.Tasks})
}

// EndedText gives, for an accounting record, the text of an explanation of an ended job; moments are written in the
// same form.
func EndedText(r *model.Record) string {
	text := fmt.Sprintf("It does not wait: it ended %s before it started, at <t:%d>", r.State, int64(r.End))
	if r.Start != 0 {
		text = fmt.Sprintf("It does not wait: it ran from <t:%d> to <t:%d> and ended %s", int64(r.Start),
			int64(r.End), r.State)
	}
	if why := r.EndText(); why != "" {
		text += ": " + why
	}
	return text + "."
}

// WhyText says why a job waits, and what would let it start sooner, at a time of the controller.
func WhyText(x *model.Explanation, now model.Time, at *Times) string {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format, a...) }
	p("Job %s (%s) of user %s is %s.\n", whyID(x), x.Name, x.User, x.State)
	if x.State != model.Pending {
		p("%s\n", told(at, x.Text, now))
		return b.String()
	}
	for _, q := range x.Places {
		p("  Position: %d of %d in partition %s\n", q.Ahead+1, q.Queue, q.Partition)
	}
	switch {
	case x.Start == 0:
		p("  Start:    unknown\n")
	case x.Start <= now:
		p("  Start:    now%s\n", onNodes(x.Nodes))
	default:
		p("  Start:    %s%s\n", at.Stamp(x.Start, "unknown"), onNodes(x.Nodes))
	}
	p("            %s\n", told(at, x.Text, now))
	if likely := Likely(x.Early, x.Late, now); likely != "" {
		p("  Likely:   %s, by how long these users' jobs really ran lately\n", likely)
	}
	if len(x.Causes) > 0 {
		p("  What holds it:\n")
	}
	for i, c := range x.Causes {
		part := ""
		if c.Partition != "" && len(x.Places) > 1 {
			part = ", partition " + c.Partition
		}
		p("    %d. %s%s: %s\n", i+1, c.Reason, part, told(at, c.Text, now))
	}
	if len(x.Changes) > 0 {
		p("  What would let it start sooner:\n")
	}
	for _, w := range x.Changes {
		when := "now"
		if !w.Now {
			when = at.Stamp(w.Start, "")
		}
		p("    %s: %s%s\n", w.Option, when, onNodes(w.Nodes))
	}
	return b.String()
}

func onNodes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " on " + hostlist.CompressSorted(names)
}

// told writes the moments in a sentence: only the time of day for moments of today.
func told(at *Times, text string, now model.Time) string {
	var b strings.Builder
	for {
		head, rest, found := strings.Cut(text, "<t:")
		b.WriteString(head)
		num, tail, closed := strings.Cut(rest, ">")
		ms, err := strconv.ParseInt(num, 10, 64)
		if !found || !closed || err != nil {
			if found {
				b.WriteString("<t:" + rest)
			}
			return b.String()
		}
		t, today := time.UnixMilli(ms), time.UnixMilli(int64(now))
		if t.Format(time.DateOnly) == today.Format(time.DateOnly) && (at.Form == "" || at.Form == "standard") {
			b.WriteString(t.Format("15:04"))
		} else {
			b.WriteString(at.Stamp(model.Time(ms), ""))
		}
		text = tail
	}
}

// WhyOf is an explanation, with the form of its moments.
type WhyOf struct {
	*model.Explanation
	Times *Times
}

// WhyJSON is the object of an explanation: it has what WhyText tells.
func WhyJSON() []slurmjson.Field[WhyOf] {
	return []slurmjson.Field[WhyOf]{
		{Name: "job_id", Int: func(x *WhyOf) int64 { return int64(x.Job) }},
		{Name: "job", Str: func(x *WhyOf) string { return whyID(x.Explanation) }},
		{Name: "name", Str: func(x *WhyOf) string { return x.Name }},
		{Name: "user_name", Str: func(x *WhyOf) string { return x.User }},
		{Name: "job_state", Words: func(x *WhyOf) []string { return []string{x.State.String()} }},
		{Name: "text", Str: func(x *WhyOf) string { return told(x.Times, x.Text, 0) }},
		{Name: "expected_start", Num: func(x *WhyOf) (int64, bool, bool) { return foreseen(x.Start) }},
		{Name: "likely_start_earliest", Num: func(x *WhyOf) (int64, bool, bool) { return foreseen(x.Early) }},
		{Name: "likely_start_latest", Num: func(x *WhyOf) (int64, bool, bool) { return foreseen(x.Late) }},
		{Name: "nodes", Str: func(x *WhyOf) string { return hostlist.CompressSorted(x.Nodes) }},
		slurmjson.Slice("positions", func(x *WhyOf) []model.QueuePlace { return x.Places },
			[]slurmjson.Field[model.QueuePlace]{
				{Name: "partition", Str: func(q *model.QueuePlace) string { return q.Partition }},
				{Name: "position", Int: func(q *model.QueuePlace) int64 { return int64(q.Ahead) + 1 }},
				{Name: "ahead", Int: func(q *model.QueuePlace) int64 { return int64(q.Ahead) }},
				{Name: "queued", Int: func(q *model.QueuePlace) int64 { return int64(q.Queue) }},
			}),
		slurmjson.ListOf("causes", (*WhyOf).eachCause, []slurmjson.Field[causeOf]{
			{Name: "reason", Str: func(c *causeOf) string { return c.Reason.String() }},
			{Name: "partition", Str: func(c *causeOf) string { return c.Partition }},
			{Name: "text", Str: func(c *causeOf) string { return told(c.times, c.Text, 0) }},
			{Name: "nodes", List: func(c *causeOf) []string { return c.Nodes }},
			{Name: "jobs", Ints: func(c *causeOf) (ids []int64) {
				for _, id := range c.Jobs {
					ids = append(ids, int64(id))
				}
				return ids
			}},
		}),
		slurmjson.Slice("changes", func(x *WhyOf) []model.WhatIf { return x.Changes },
			[]slurmjson.Field[model.WhatIf]{
				{Name: "option", Str: func(w *model.WhatIf) string { return w.Option }},
				{Name: "start", Num: func(w *model.WhatIf) (int64, bool, bool) { return foreseen(w.Start) }},
				{Name: "now", Bool: func(w *model.WhatIf) bool { return w.Now }},
				{Name: "partition", Str: func(w *model.WhatIf) string { return w.Partition }},
				{Name: "nodes", List: func(w *model.WhatIf) []string { return w.Nodes }},
			}),
	}
}

// foreseen gives a moment in seconds, or that none is foreseen.
func foreseen(t model.Time) (seconds int64, set, infinite bool) { return t.Seconds(), t != 0, false }

// causeOf is one cause of an explanation.
type causeOf struct {
	*model.Cause
	times *Times
}

func (x *WhyOf) eachCause(add func(*causeOf)) {
	for i := range x.Causes {
		add(&causeOf{&x.Causes[i], x.Times})
	}
}

// WhyTold gives the sentences of an explanation, with its moments: the decisive one, and all of them.
func WhyTold(x *model.Explanation, now model.Time, at *Times) (first string, all []string) {
	for i := range x.Causes {
		all = append(all, told(at, x.Causes[i].Text, now))
	}
	if text := told(at, x.Text, now); text != "" {
		all = append(all, text)
	}
	if len(all) > 0 {
		first = all[0]
	}
	return first, all
}
