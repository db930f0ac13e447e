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

// EndedText says of a record what an explanation says of a job that has ended; moments stand in it as there.
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

// WhyText tells why a job waits, and what would let it start sooner, at a time of the controller.
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

// told writes the moments in a sentence: the time of day alone for those of today.
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

// WhyJSON writes what WhyText tells.
func WhyJSON(j *slurmjson.Writer, x *model.Explanation, at *Times) {
	j.Open("", '{')
	j.Num("job_id", int64(x.Job))
	j.Str("job", whyID(x))
	j.Str("name", x.Name)
	j.Str("user_name", x.User)
	j.Words("job_state", x.State.String())
	j.Str("text", told(at, x.Text, 0))
	j.Time("expected_start", x.Start)
	j.Str("nodes", hostlist.CompressSorted(x.Nodes))
	j.Open("positions", '[')
	for _, q := range x.Places {
		j.Open("", '{')
		j.Str("partition", q.Partition)
		j.Num("position", int64(q.Ahead)+1)
		j.Num("ahead", int64(q.Ahead))
		j.Num("queued", int64(q.Queue))
		j.Close('}')
	}
	j.Close(']')
	j.Open("causes", '[')
	for _, c := range x.Causes {
		j.Open("", '{')
		j.Str("reason", c.Reason.String())
		j.Str("partition", c.Partition)
		j.Str("text", told(at, c.Text, 0))
		j.List("nodes", c.Nodes)
		j.Open("jobs", '[')
		for _, id := range c.Jobs {
			j.Num("", int64(id))
		}
		j.Close(']')
		j.Close('}')
	}
	j.Close(']')
	j.Open("changes", '[')
	for _, w := range x.Changes {
		j.Open("", '{')
		j.Str("option", w.Option)
		j.Time("start", w.Start)
		j.Bool("now", w.Now)
		j.Str("partition", w.Partition)
		j.List("nodes", w.Nodes)
		j.Close('}')
	}
	j.Close(']')
	j.Close('}')
}
