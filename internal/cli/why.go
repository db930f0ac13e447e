package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gqueue --why and gcontrol why print the same: what the scheduler says of a job that waits.

// printWhy asks and prints; with a JSON version as JSON.
func printWhy(e *env.Env, c *client.Client, refs []proto.JobRef, json string) error {
	if len(refs) == 0 {
		return fmt.Errorf("name the jobs, as in %s 12 13_4", map[bool]string{true: "gcontrol why", false: "gqueue --why"}[strings.HasSuffix(e.Program, "control")])
	}
	var reply proto.WhyReply
	if err := c.Call(proto.KindWhy, &proto.WhyRequest{Jobs: refs}, &reply); err != nil {
		return err
	}
	if json != "" {
		cluster, err := env.ClusterName(c)
		if err != nil {
			return err
		}
		return whyJSON(e, &reply, json, cluster)
	}
	for i, x := range reply.List {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		writeWhy(e, x, reply.Now)
	}
	if reply.Left > 0 {
		fmt.Fprintf(e.Stdout, "\n%d more tasks are not explained; name them.\n", reply.Left)
	}
	return nil
}

// whyID gives the job's number as gqueue shows it.
func whyID(x *model.Explanation) string {
	return jobtext.JobID(&model.Job{ID: x.Job, ArrayID: x.ArrayID, Task: x.Task, Tasks: x.Tasks})
}

func writeWhy(e *env.Env, x *model.Explanation, now model.Time) {
	p := func(format string, a ...any) { fmt.Fprintf(e.Stdout, format, a...) } // gcli's flush tells of errors
	p("Job %s (%s) of user %s is %s.\n", whyID(x), x.Name, x.User, x.State)
	if x.State != model.Pending {
		p("%s\n", told(e, x.Text, now))
		return
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
		p("  Start:    %s%s\n", e.Stamp(x.Start, "unknown"), onNodes(x.Nodes))
	}
	p("            %s\n", told(e, x.Text, now))
	if len(x.Causes) > 0 {
		p("  What holds it:\n")
	}
	for i, c := range x.Causes {
		part := ""
		if c.Partition != "" && len(x.Places) > 1 {
			part = ", partition " + c.Partition
		}
		p("    %d. %s%s: %s\n", i+1, c.Reason, part, told(e, c.Text, now))
	}
	if len(x.Changes) > 0 {
		p("  What would let it start sooner:\n")
	}
	for _, w := range x.Changes {
		when := "now"
		if !w.Now {
			when = e.Stamp(w.Start, "")
		}
		p("    %s: %s%s\n", w.Option, when, onNodes(w.Nodes))
	}
}

func onNodes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " on " + hostlist.CompressSorted(names)
}

// told writes the moments in a sentence: the time of day alone for those of today.
func told(e *env.Env, text string, now model.Time) string {
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
		if form, set := e.Lookup("SLURM_TIME_FORMAT"); t.Format(time.DateOnly) == today.Format(time.DateOnly) && (!set || form == "standard") {
			b.WriteString(t.Format("15:04"))
		} else {
			b.WriteString(e.Stamp(model.Time(ms), ""))
		}
		text = tail
	}
}

func whyJSON(e *env.Env, r *proto.WhyReply, ver, cluster string) error {
	j := e.JsonFrame("why", ver)
	for _, x := range r.List {
		j.Open("", '{')
		j.Num("job_id", int64(x.Job))
		j.Str("job", whyID(x))
		j.Str("name", x.Name)
		j.Str("user_name", x.User)
		j.Words("job_state", x.State.String())
		j.Str("text", told(e, x.Text, 0))
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
			j.Str("text", told(e, c.Text, 0))
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
		j.Flush(false)
	}
	return e.JsonFinish(j, cluster, r.Now)
}

// why explains jobs.
func (c *control) why(words []string) error {
	refs, err := c.refs(words)
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	return printWhy(c.Env, cl, refs, c.json)
}
