package migrate

import (
	"fmt"
	"strconv"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// step makes the record of a step. Its row follows that of its job.
func (h *History) step(id rowID) (*model.Record, error) {
	if id.raw != h.raw {
		return nil, fmt.Errorf("the step %.60q is not below the row of its job", h.get("jobid"))
	}
	if h.skipped {
		h.Counts.Unfinished++
		return nil, nil
	}
	number, named := steps[id.step]
	if !named {
		n, err := strconv.ParseUint(id.step, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%.40q is no step", id.step)
		}
		number = int32(n)
	}
	job := h.job
	s := &model.Step{ID: number, Name: h.get("jobname"), Submit: h.get("submitline")}
	var ok bool
	if s.Start, ok = moment(h.get("start"), h.o.Zone); !ok {
		return nil, fmt.Errorf("column Start is %.60q", h.get("start"))
	}
	if s.End, ok = moment(h.get("end"), h.o.Zone); !ok {
		return nil, fmt.Errorf("column End is %.60q", h.get("end"))
	}
	if s.End == 0 {
		s.End = job.End // its job is over
	}
	if s.Start == 0 {
		s.Start = min(job.Start, s.End)
	}
	held, ok := readTRES(h.get("alloctres"))
	if !ok {
		return nil, fmt.Errorf("AllocTRES is %.60q", h.get("alloctres"))
	}
	cpus, err := h.number("NCPUS", 1<<31-1)
	if err != nil {
		return nil, err
	}
	if cpus == 0 {
		if cpus, err = h.number("AllocCPUS", 1<<31-1); err != nil {
			return nil, err
		}
	}
	tasks, err := h.number("NTasks", 1<<31-1)
	if err != nil {
		return nil, err
	}
	s.CPUs, s.Tasks, s.MemMiB, s.Gres = first(held.CPUs, int32(cpus)), int32(tasks), held.MemMiB, held.Gres
	if list := h.get("nodelist"); list != "" && list != "None assigned" && list != "Unknown" {
		if n, err := hostlist.Count(list); err != nil || n > maxStepNodes {
			return nil, fmt.Errorf("NodeList is %.60q", list)
		}
		if s.Nodes, err = hostlist.Expand(list); err != nil {
			return nil, fmt.Errorf("NodeList is %.60q", list)
		}
	}
	if err := h.stepEnd(s); err != nil {
		return nil, err
	}
	if err := h.used(s); err != nil {
		return nil, err
	}
	h.Counts.Steps++
	return &model.Record{Cluster: job.Cluster, Job: job.Job, Attempt: job.Attempt, ArrayID: job.ArrayID, Task: job.Task,
		UID: job.UID, GID: job.GID, User: job.User, Account: job.Account, Submit: job.Submit, Start: s.Start, End: s.End,
		State: s.State(), Step: s}, nil
}

// maxStepNodes bounds the nodes of a step.
const maxStepNodes = 1 << 16

// stepEnd fills in how the step ended.
func (h *History) stepEnd(s *model.Step) error {
	var ok bool
	if s.Exit.Code, s.Exit.Signal, ok = exit(h.get("exitcode")); !ok {
		return fmt.Errorf("column ExitCode is %.60q", h.get("exitcode"))
	}
	end, by, ok := state(h.get("state"))
	if !ok {
		return fmt.Errorf("column State is %.60q", h.get("state"))
	}
	switch s.StopUID = by; end {
	case model.Cancelled, model.Deadline, model.Requeued, model.Running, model.Completing, model.Suspended:
		s.Stop = model.StopCancel
	case model.Timeout:
		s.Stop = model.StopTimeLimit
	case model.Preempted:
		s.Stop = model.StopPreempt
	case model.NodeFail, model.BootFail:
		s.Stop = model.StopNodeFail
	case model.OutOfMemory:
		s.Exit.OOM = true
	case model.Failed:
		if s.Exit.Code == 0 && s.Exit.Signal == 0 {
			s.Exit.NoStart = true // it failed by no code of its own
		}
	}
	return nil
}

// used fills in what the step used.
func (h *History) used(s *model.Step) error {
	if err := h.cpuTime(&s.Exit); err != nil {
		return err
	}
	n := model.NodeUsage{Node: h.get("maxrssnode"), Tasks: s.Tasks, CPUs: s.CPUs, UserMS: s.Exit.UserMS,
		SysMS: s.Exit.SysMS}
	any := false
	for _, m := range []struct {
		column string
		bare   int
		unit   int
		to     *int64
	}{{"maxrss", 0, 10, &n.PeakKB}, {"maxvmsize", 0, 10, &n.VMKB}, {"maxpages", 0, 0, &n.Faults},
		{"maxdiskread", 0, 0, &n.ReadB}, {"maxdiskwrite", 0, 0, &n.WriteB}} {
		v, ok := size(h.get(m.column), m.bare, m.unit)
		if !ok {
			return fmt.Errorf("%s is %.60q", m.column, h.get(m.column))
		}
		*m.to, any = v, any || v > 0
	}
	if !any {
		return nil
	}
	if n.Node == "" && len(s.Nodes) > 0 {
		n.Node = s.Nodes[0]
	}
	s.Exit.MaxRSSKB = n.PeakKB
	s.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{n}}
	return nil
}
