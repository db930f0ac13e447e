package sim

import (
	"bufio"
	"encoding/csv"
	"io"
	"strconv"
)

// WriteJobs writes one CSV line for each job, in (submit, file) order. start, wait_s and bounded_slowdown are empty for
// a job that the machine can't run.
func (o *Outcome) WriteJobs(w io.Writer) error {
	bw := bufio.NewWriter(w)
	c := csv.NewWriter(bw)
	_ = c.Write([]string{"id", "user", "account", "queue", "cpus", "gpus", "nodes", "submit", "start", "end", "run_s",
		"requested_s", "wait_s", "bounded_slowdown"})
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	for i := range o.Work.Jobs {
		j := &o.Work.Jobs[i]
		start, end, wait, slow := "", "", "", ""
		if at := o.Start[i]; at != NoStart {
			waited := o.End[i] - j.Submit - j.Run
			start, end, wait = n(at), n(o.End[i]), n(waited)
			slow = strconv.FormatFloat(Slowdown(waited, j.Run), 'f', 4, 64)
		}
		_ = c.Write([]string{n(j.ID), j.User, j.Account, j.Queue, n(int64(j.CPUs)), n(int64(j.GPUs)), n(int64(j.Nodes)),
			n(j.Submit), start, end,
			n(j.Run), n(j.Request), wait, slow})
	}
	c.Flush() // keeps the first error of Write
	if err := c.Error(); err != nil {
		return err
	}
	return bw.Flush()
}
