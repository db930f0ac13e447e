package control

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/logfile"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// pids.go has listpids and pidinfo: the processes of jobs on a node, as its daemon sees them; and show slurmd, what
// that daemon says of itself.

// listPIDs is listpids [JOBID[.STEP]] [NODENAME].
func (c *control) listPIDs(words []string) error {
	if len(words) > 2 {
		return errors.New("listpids takes a job or a step, and a node: listpids 12.0 n1")
	}
	job, step := "", proto.StepAll
	if len(words) > 0 && words[0] != "*" {
		refs, err := env.ParseStepRefs(words[0])
		if err != nil {
			return err
		}
		if len(refs) != 1 {
			return errors.New("listpids takes one job or step, or *")
		}
		job, _, _ = strings.Cut(words[0], ".")
		step = refs[0].Step
	}
	nodes, err := c.HostNodes()
	if len(words) == 2 {
		nodes, err = []string{words[1]}, nil
	}
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return errors.New("this host is no node of the cluster: name one, as in listpids 12 n1")
	}
	rows, err := c.processes(job, step, nodes)
	if err == nil {
		fmt.Fprintf(c.Stdout, "%-8s %-8s %-8s %-7s %-8s\n", "PID", "JOBID", "STEPID", "LOCALID", "GLOBALID")
	}
	switch {
	case err != nil:
		return err
	case len(rows) > 0:
	case job == "":
		return plain{errors.New("No job steps exist on this node.")}
	case step == proto.StepAll:
		return plain{fmt.Errorf("JobId=%s does not exist on node %s.", job, hostlist.Compress(nodes))}
	default:
		return plain{fmt.Errorf("StepId=%s does not exist on node %s.", words[0], hostlist.Compress(nodes))}
	}
	for _, r := range rows {
		local, rank := "-", "-"
		if r.local >= 0 {
			local, rank = strconv.Itoa(int(r.local)), strconv.Itoa(int(r.rank))
		}
		fmt.Fprintf(c.Stdout, "%-8d %-8d %-8s %-7s %-8s\n", r.pid, r.job, jobtext.StepName(r.step), local, rank)
	}
	return nil
}

// process is one process of a step. local and rank are -1 for one that a task has started.
type process struct {
	pid         int32
	job         model.JobID
	step        int32
	local, rank int32
}

// processes lists the processes of jobs on some nodes, in order; those of one job or step, or of all.
func (c *control) processes(job string, step int32, nodes []string) ([]process, error) {
	refs, err := c.jobsOn(job, nodes)
	if err != nil {
		return nil, err
	}
	cl, err := c.ask()
	if err != nil {
		return nil, err
	}
	var rows []process
	for part := range slices.Chunk(refs, proto.MaxStatJobs) {
		var reply proto.StatReply
		if err := cl.Call(proto.KindStat, &proto.StatRequest{Jobs: part}, &reply); err != nil {
			return nil, plain{fmt.Errorf("listpids error: %s", env.Text(err))}
		}
		ofSteps := stepPIDs(reply.Steps)
		for i := range reply.Steps {
			s := &reply.Steps[i]
			if step != proto.StepAll && s.Step != step {
				continue
			}
			for _, on := range s.Pids {
				if s.Step == proto.StepBatch { // its group has those of the steps in it
					on.Pids = slices.DeleteFunc(on.Pids, func(pid int32) bool { return ofSteps[place{s.Job, on.Node, pid}] })
				}
				if slices.Contains(nodes, on.Node) {
					rows = append(rows, rowsOf(s, &on)...)
				}
			}
		}
		for _, missing := range reply.Missing {
			c.Errorf("%s", missing)
		}
	}
	return rows, nil
}

// place is one process of a job.
type place struct {
	job  model.JobID
	node string
	pid  int32
}

// stepPIDs gives the processes that are in a step and not only in their job.
func stepPIDs(steps []proto.StepStat) map[place]bool {
	out := map[place]bool{}
	for i := range steps {
		s := &steps[i]
		for _, on := range s.Pids {
			for _, pid := range on.Pids {
				if s.Step != proto.StepBatch {
					out[place{s.Job, on.Node, pid}] = true
				}
			}
		}
	}
	return out
}

func rowsOf(s *proto.StepStat, on *proto.NodePids) []process {
	var rows []process
	for _, pid := range on.Pids {
		p := process{pid: pid, job: s.Job, step: s.Step, local: -1, rank: -1}
		for t := range slices.Chunk(on.Tasks, 3) {
			if len(t) == 3 && t[0] == pid {
				p.local, p.rank = t[1], t[2]
			}
		}
		rows = append(rows, p)
	}
	return rows
}

// jobsOn gives the jobs that run on some nodes and whose processes the caller may see.
func (c *control) jobsOn(job string, nodes []string) (refs []model.JobRef, err error) {
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Nodes: nodes}, Default: true}
	if job != "" {
		if rq.Filter.Jobs, err = env.ParseJobRefs(job); err != nil {
			return nil, err
		}
	} else if uid := os.Getuid(); uid != 0 {
		rq.Filter.Users = []uint32{uint32(uid)}
	}
	err = c.eachJob(rq, nil, func(j *model.Job, _ model.Time) {
		if j.Run != nil && j.State.HasResources() {
			refs = append(refs, j.Ref())
		}
	})
	if err != nil {
		return nil, plain{fmt.Errorf("slurm_load_jobs error: %s", env.Text(err))}
	}
	return refs, nil
}

// maxAncestors bounds the way from a process to the one that its daemon knows.
const maxAncestors = 1 << 10

// pidInfo is pidinfo PID: the job of a process of this host, and when it ends.
func (c *control) pidInfo(words []string) error {
	if len(words) != 1 {
		return errors.New("pidinfo takes the number of a process on this host: pidinfo 4711")
	}
	pid, err := strconv.ParseInt(words[0], 10, 32)
	if err != nil || pid <= 0 {
		return fmt.Errorf("'%s' is no number of a process", words[0])
	}
	nodes, err := c.HostNodes()
	if err != nil {
		return err
	}
	var rows []process
	if len(nodes) > 0 {
		if rows, err = c.processes("", proto.StepAll, nodes); err != nil {
			return err
		}
	}
	for range maxAncestors {
		i := slices.IndexFunc(rows, func(r process) bool { return int64(r.pid) == pid })
		if i >= 0 {
			return c.tellPID(rows[i].job)
		}
		if pid = parentOf(pid); pid <= 1 {
			break
		}
	}
	return plain{fmt.Errorf("Failed to locate job for requested pid: %s is no process of a job on this host that you "+
		"may see", words[0])}
}

// parentOf reads a process's parent; 0: it has none, or is gone.
func parentOf(pid int64) int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	behind := string(stat[strings.LastIndexByte(string(stat), ')')+1:]) // the name before may have blanks
	fields := strings.Fields(behind)
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil {
		return 0
	}
	return parent
}

// tellPID prints the job of a process.
func (c *control) tellPID(id model.JobID) error {
	ref := model.JobRef{Job: id, Task: model.NoTask}
	return c.eachJob(&proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}}, nil,
		func(j *model.Job, now model.Time) {
			end, left := model.Time(0), model.Unlimited
			if limit := j.TimeLimitS(); limit < model.Unlimited {
				left = max(0, limit-j.ElapsedS(now))
				end = now.Add(left)
			}
			fmt.Fprintf(c.Stdout, "Slurm JobId=%d ends at %s\nJob remaining time is %d\n", j.ID,
				c.Stamp(end, "Unknown"), left)
		})
}

// showDaemon is show slurmd [NODE]: what the daemon of this host's node says, in Slurm's words.
func (c *control) showDaemon(name string) error {
	nodes, err := c.HostNodes()
	if name != "" {
		nodes, err = []string{name}, nil
	}
	switch {
	case err != nil:
		return err
	case len(nodes) == 0:
		return errors.New("this host is no node of the cluster: name one, as in show slurmd n1")
	case len(nodes) > 1:
		return fmt.Errorf("this host has the nodes %s: name one, as in show slurmd %s", hostlist.Compress(nodes), nodes[0])
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.DaemonReply
	if err := cl.Call(proto.KindDaemon, &proto.DaemonRequest{Node: nodes[0]}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_slurmd_status: %s", env.Text(err))}
	}
	a := &reply.About
	steps := make([]string, len(a.Steps))
	for i, s := range a.Steps {
		steps[i] = fmt.Sprintf("%d.%s", s.Job, jobtext.StepName(s.Step))
	}
	clock := c.Clock()
	for _, row := range [...]struct {
		name  string
		value any
	}{
		{"Active Steps", cmp.Or(strings.Join(steps, ","), "NONE")}, {"Actual CPUs", a.Hw.CPUs}, {"Actual Boards", 1},
		{"Actual sockets", a.Hw.Sockets}, {"Actual cores", a.Hw.Sockets * a.Hw.Cores},
		{"Actual threads per core", a.Hw.Threads}, {"Actual real memory", fmt.Sprintf("%d MB", a.Hw.MemMiB)},
		{"Actual temp disk space", fmt.Sprintf("%d MB", a.Hw.TmpMiB)}, {"Boot time", clock.Stamp(a.UpSince, "NONE")},
		{"Hostname", a.Node}, {"Last slurmctld msg time", clock.Stamp(a.Heard, "NONE")}, {"Slurmd PID", a.PID},
		{"Slurmd Debug", slices.Index(logfile.Levels, a.Level)}, {"Slurmd Logfile", cmp.Or(a.Log, "(null)")},
		{"Version", a.Version},
	} {
		fmt.Fprintf(c.Stdout, "%-24s = %v\n", row.name, row.value)
	}
	return nil
}
