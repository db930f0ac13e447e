package control

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// print writes a record to standard output; gcli's flush tells of errors.
func (c *control) print(r *jobtext.KeyValues) { _, _ = io.WriteString(c.Stdout, r.Text(c.oneLine)) }

// showJobs prints one job, several, or all.
func (c *control) showJobs(arg string) error {
	rq, task := &proto.JobsRequest{}, int32(model.NoTask)
	if n, ok := strings.CutPrefix(arg, "0_"); ok { // the tasks of that number, of all arrays
		if id, err := strconv.ParseInt(n, 10, 32); err == nil && id >= 0 {
			task, arg = int32(id), "0"
		}
	}
	if arg != "" && arg != "0" {
		refs, err := env.ParseJobRefs(arg)
		if err != nil {
			return plain{fmt.Errorf("slurm_load_jobs error: %w", err)}
		}
		rq.Filter.Jobs = refs
	}
	n, book := 0, &ask.Rulebook{}
	if c.verbose && task == model.NoTask { // the list is not kept: it is counted first
		all, at := 0, model.Time(0)
		err := c.eachJob(rq, nil, func(_ *model.Job, now model.Time) { all, at = all+1, now })
		if err == nil && all > 0 {
			c.sayRecords(at, all)
		}
	}
	err := c.eachJob(rq, book, func(j *model.Job, now model.Time) {
		refs := rq.Filter.Jobs
		if task != model.NoTask {
			if j.ArrayID == 0 || j.Task != task && !j.Tasks.Has(task) {
				return
			}
			refs = []model.JobRef{{Job: j.ArrayID, Task: task}}
		}
		j = oneTask(j, refs)
		c.print(jobtext.ShowJob(j, book.Of(j), now, c.Clock(), c.details > 0))
		n++
	})
	switch {
	case env.Code(err) == proto.CodeInvalidJob && len(rq.Filter.Jobs) == 1 && strings.ContainsAny(arg, "_+") &&
		c.isJob(rq.Filter.Jobs[0].Job): // only the task or component is none
		fmt.Fprintf(c.Stdout, "Job %s not found\n", arg)
		return plain{fmt.Errorf("")}
	case err != nil:
		return plain{fmt.Errorf("slurm_load_jobs error: %s", env.Text(err))}
	case n == 0 && task != model.NoTask:
		return plain{fmt.Errorf("Job 0_%d not found", task)}
	case n == 0 && (arg == "" || arg == "0"):
		fmt.Fprintln(c.Stdout, "No jobs in the system")
	}
	return nil
}

// isJob reports whether there is a job, an array or a heterogeneous job of a number.
func (c *control) isJob(id model.JobID) bool {
	found := false
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{{Job: id, Task: model.NoTask}}}}
	err := c.eachJob(rq, nil, func(*model.Job, model.Time) { found = true })
	return err == nil && found
}

// sayRecords says how many records follow, for --verbose, in scontrol's words.
func (c *control) sayRecords(at model.Time, n int) {
	if c.verbose && !c.quiet {
		fmt.Fprintf(c.Stdout, "last_update_time=%s, records=%d\n", c.Stamp(at, "Unknown"), n)
	}
}

// oneTask gives a waiting array with only the task that was named, if one was: its tasks share a record until they
// start.
func oneTask(j *model.Job, refs []model.JobRef) *model.Job {
	for _, r := range refs {
		if j.IsArray() && r.Job == j.ArrayID && r.Task != model.NoTask && j.Tasks.Has(r.Task) {
			one := *j
			one.Task, one.Tasks = r.Task, nil // so that its files have its number
			return &one
		}
	}
	return j
}

// eachJob calls f for the matching jobs, with the controller's time. Before that it puts the partitions' rules into
// book, unless that is nil.
func (c *control) eachJob(rq *proto.JobsRequest, book *ask.Rulebook, f func(j *model.Job, now model.Time)) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	return cl.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := cl.Decode(body, &chunk); err != nil {
			return err
		}
		if book != nil {
			book.Add(chunk.Rules)
		}
		for _, j := range chunk.Jobs {
			f(j, chunk.Now)
		}
		return nil
	})
}

// writeScript writes a new file for its owner; one that is there is left alone.
func writeScript(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close() // the write's error is the one to tell
		return err
	}
	return f.Close()
}
