package acct

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/trail"
)

// events.go is gacct --events: what became of jobs, from their records, and who changed them, from gdbd's trail.

// happening is a line of it.
type happening struct {
	job, event, by, text string
	at                   model.Time
}

func (a *account) eventsOption(group string) getopt.Option {
	return getopt.Option{Name: "events", Arg: getopt.Required, Group: group, Metavar: "ids",
		Help: "what happened to these jobs, and who changed them", Set: func(v string) error {
			a.events = true
			return a.setJobs(v)
		}}
}

// printEvents prints what happened to the jobs, oldest first.
func (a *account) printEvents(c *client.Client, times jobtext.Times) error {
	var rows []happening
	type submission struct { // a cluster that has started over may have the number again
		job model.JobID
		at  model.Time
	}
	submitted := map[submission]bool{}
	a.rq.Steps, a.rq.Duplicates = false, true
	records := jobtext.RecordLanguage()
	fields, err := records.Table("jobid,nodelist,state", format.Style{Parsable: true, NoTrailing: true})
	if err != nil {
		return err
	}
	err = a.each(c, func(r *model.Record, _ []*model.Record) error {
		row := &jobtext.RecordRow{Record: r, RecordView: &jobtext.RecordView{Times: times}}
		name, rest, _ := strings.Cut(strings.TrimSuffix(string(fields.AppendRow(nil, row)), "\n"), "|")
		nodes, ended, _ := strings.Cut(rest, "|")
		if of := (submission{r.Job, r.Submit}); !submitted[of] { // a job that was requeued has a record of each run
			submitted[of] = true
			rows = append(rows, happening{job: name, event: trail.TaskSubmitted, by: r.User, at: r.Submit})
		}
		if r.Start != 0 {
			rows = append(rows, happening{job: name, event: trail.TaskScheduled, at: r.Start, text: nodes})
		}
		if r.End != 0 {
			rows = append(rows, happening{job: name, event: trail.TaskFinished, at: r.End, text: ended})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, want := range a.jobs {
		rq := proto.ReportRequest{What: proto.ReportTrail, Job: want.ref.Job}
		if err := c.Stream(proto.KindReport, &rq, func(body []byte) error {
			var chunk proto.ReportChunk
			if err := c.Decode(body, &chunk); err != nil {
				return err
			}
			for _, e := range chunk.Trail {
				if concerns(e.Name, want.ref) {
					rows = append(rows, happening{job: e.Name, event: e.Event, by: e.By, text: e.Text, at: e.At})
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(rows, func(x, y happening) int { return cmp.Compare(x.at, y.at) })
	field := func(name string, width int, get func(h *happening) string) format.Field[happening] {
		return format.Field[happening]{Name: name, Width: width, Get: get}
	}
	lang := &format.Language[happening]{Noun: "event", Fields: []format.Field[happening]{
		field("Time", 19, func(h *happening) string { return string(times.Append(nil, h.at, "Unknown")) }),
		field("JobID", 12, func(h *happening) string { return h.job }),
		field("Event", 15, func(h *happening) string { return h.event }),
		field("By", 10, func(h *happening) string { return h.by }),
		field("Text", 30, func(h *happening) string { return h.text })}}
	p, err := lang.Table("Time,JobID,Event,By,Text", a.style)
	if err != nil {
		return err
	}
	return p.Write(a.Stdout, rows, !a.noHeader)
}

// concerns reports whether an entry about the jobs called name is about the one that is asked for.
func concerns(name string, want model.JobRef) bool {
	if want.Task == model.NoTask {
		return true
	}
	refs, err := env.ParseJobRefs(name)
	return err != nil || slices.ContainsFunc(refs, func(r model.JobRef) bool {
		return r.Task == want.Task || r.Task == model.NoTask && (len(r.Tasks) == 0 || r.Tasks.Has(want.Task))
	})
}
