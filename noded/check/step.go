package check

import (
	"errors"
	"fmt"
	"math"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/noded/steplayout"
)

// step.go refuses what no command and no other node's daemon may say about a step.

const (
	MaxSignal     = 64      // of Linux
	maxStepList   = 4096    // nodes that a step names, masks to bind to, lines of --multi-prog
	maxListEntry  = 4096    // bytes of one mask or index
	maxStepEntry  = 1 << 16 // bytes of one node's name, or of a generic resource's
	maxStepNumber = 1 << 30
	maxStepMem    = 1 << 40 // MiB
	maxTermChars  = 64
	maxText       = 4096    // bytes of a text for a user
	maxNodesText  = 1 << 16 // bytes of a list of nodes, or of what is on each
	maxName       = 64      // bytes of a name in an error
	maxStep       = 1 << 30 // number of a step
)

// Step refuses an invalid request.
func Step(rq *proto.StepRequest) error {
	for _, check := range []func(*proto.StepRequest) error{texts, need, bind, rest} {
		if err := check(rq); err != nil {
			return err
		}
	}
	return nil
}

func texts(rq *proto.StepRequest) error {
	switch {
	case len(rq.Argv) == 0 && len(rq.Multi) == 0 && rq.Receive == nil && rq.Attach == nil,
		len(rq.Argv) > proto.MaxStepArgs:
		return fmt.Errorf("a step of %d arguments: at least the command and at most %d", len(rq.Argv), proto.MaxStepArgs)
	case len(rq.RequestID) > 64, len(rq.Command) > 64:
		return errors.New("a step whose request or command has a name of more than 64 bytes")
	case rq.Parts < 0, rq.Parts > maxStepList:
		return fmt.Errorf("a step of a command with %d steps: at most %d", rq.Parts, maxStepList)
	case len(rq.Env) > proto.MaxEnvBytes:
		return fmt.Errorf("a step with %d bytes of environment: at most %d", len(rq.Env), proto.MaxEnvBytes)
	}
	list := []string{rq.Name, rq.Submit, rq.Dir, rq.Program, rq.Prolog, rq.Epilog, rq.Node, rq.Host, rq.Copied}
	if rq.Receive != nil {
		list = append(list, rq.Receive.Path)
	}
	for _, text := range list {
		if len(text) > proto.MaxFieldBytes {
			return fmt.Errorf("a name, a path or the command line is longer than %d bytes", proto.MaxFieldBytes)
		}
	}
	if err := rq.Container.Check(); err != nil {
		return err
	}
	if len(rq.Multi) > maxStepList {
		return fmt.Errorf("--multi-prog: %d lines, at most %d", len(rq.Multi), maxStepList)
	}
	ranges := 0
	for _, m := range rq.Multi {
		ranges += len(m.Ranks)
		switch {
		case !m.Ranks.Valid() || len(m.Argv) == 0:
			return errors.New("--multi-prog: a line without ranks or command")
		case ranges > proto.MaxStepTasks || len(m.Argv) > proto.MaxStepArgs || len(m.Program) > proto.MaxFieldBytes:
			return fmt.Errorf("--multi-prog: more than %d ranges of tasks or %d arguments", proto.MaxStepTasks,
				proto.MaxStepArgs)
		}
	}
	return nil
}

func need(rq *proto.StepRequest) error {
	n := &rq.Need
	for _, v := range []int32{n.Tasks, n.CPUsPerTask, n.TasksPerNode, n.MinNodes, n.MaxNodes, n.CPUsPerGPU,
		n.TasksPerGPU, n.Plane, n.ThreadsCore} {
		if v < 0 || v > maxStepNumber {
			return fmt.Errorf("a step's numbers can't be negative, nor more than %d", maxStepNumber)
		}
	}
	for _, v := range []int64{n.MemPerNode, n.MemPerCPU, n.MemPerGPU} {
		if v < 0 || v > maxStepMem {
			return fmt.Errorf("a step's memory can't be negative, nor more than %d MiB", int64(maxStepMem))
		}
	}
	switch {
	case n.Tasks > proto.MaxStepTasks || n.TasksPerNode > proto.MaxStepTasks || n.TasksPerGPU > proto.MaxStepTasks ||
		len(n.Ranks) > proto.MaxStepTasks:
		return fmt.Errorf("a step of %d tasks: at most %d", max(n.Tasks, n.TasksPerNode, n.TasksPerGPU), proto.MaxStepTasks)
	case n.CPUsPerTask > steplayout.MaxIndex || n.CPUsPerGPU > steplayout.MaxIndex:
		return fmt.Errorf("%d of something for each task: at most %d", max(n.CPUsPerTask, n.CPUsPerGPU),
			steplayout.MaxIndex)
	case n.Dist > proto.DistFCyclic:
		return fmt.Errorf("there is no distribution of tasks %d", n.Dist)
	case len(n.Nodes) > maxStepList || len(n.NotNodes) > maxStepList:
		return fmt.Errorf("a step names %d nodes, at most %d", max(len(n.Nodes), len(n.NotNodes)), maxStepList)
	case len(n.Gres) > 64:
		return fmt.Errorf("%d generic resources, at most 64", len(n.Gres))
	}
	for _, g := range n.Gres {
		if g.Count < 0 || g.Per > model.PerTask || len(g.Name) > maxStepEntry ||
			len(g.Type) > maxStepEntry {
			return fmt.Errorf("a step can't have %d of %s", g.Count, clip(steplayout.GresName(g.Name, g.Type), maxName))
		}
	}
	return nil
}

func bind(rq *proto.StepRequest) error {
	b := &rq.Bind
	if b.CPU > proto.BindRankLdom || b.GPU > proto.BindRankLdom || b.Mem > proto.BindRankLdom ||
		b.Cores > proto.DistFCyclic {
		return fmt.Errorf("there is no binding %d", max(b.CPU, b.GPU, b.Mem, b.Cores))
	}
	if b.GPUCount < 0 || b.GPUCount > steplayout.MaxIndex || b.TasksPerGPU < 0 || b.TasksPerGPU > proto.MaxStepTasks {
		return fmt.Errorf("%d of something for each task: at most %d", max(b.GPUCount, b.TasksPerGPU), steplayout.MaxIndex)
	}
	for _, l := range []struct {
		kind uint8
		list []string
	}{{b.CPU, b.CPUList}, {b.GPU, b.GPUList}, {b.Mem, b.MemList}} {
		if (l.kind == proto.BindMap || l.kind == proto.BindMask) && len(l.list) == 0 {
			return errors.New("a map or mask to bind to is empty")
		}
		if len(l.list) > maxStepList {
			return fmt.Errorf("a list of %d CPUs, GPUs or memory nodes to bind to, at most %d", len(l.list), maxStepList)
		}
		for _, entry := range l.list {
			if len(entry) > maxListEntry {
				return fmt.Errorf("a mask of %d bytes to bind to, at most %d", len(entry), maxListEntry)
			}
		}
	}
	return nil
}

func rest(rq *proto.StepRequest) error {
	if r := rq.Receive; r != nil && (r.Path == "" || r.Size < 0 || r.Mode > 0o7777 || r.Step < proto.StepNone) {
		return fmt.Errorf("a file of %d bytes for step %d to take in", r.Size, r.Step)
	}
	if a := rq.Attach; a != nil && a.IO != nil && !at(a.IO) {
		return fmt.Errorf("port %d for output, with a key of %d bytes", a.IO.Port, len(a.IO.Key))
	}
	if rq.Copied != "" && len(rq.Multi) > 0 {
		return errors.New("--bcast copies one program, and --multi-prog has several")
	}
	switch t := rq.Terminal; {
	case t != nil && (t.Rows < 0 || t.Cols < 0 || t.Rows > math.MaxUint16 || t.Cols > math.MaxUint16):
		return fmt.Errorf("a terminal of %d rows and %d columns", t.Rows, t.Cols)
	case t != nil && (len(t.Modes) > 4 || len(t.Chars) > maxTermChars):
		return fmt.Errorf("a terminal with %d modes and %d characters", len(t.Modes), len(t.Chars))
	case rq.Parent < proto.StepNone || rq.PID < 0 || rq.LimitS < 0 || rq.LimitS > model.Unlimited || rq.OOMKill < -1 ||
		rq.OOMKill > 1:
		return fmt.Errorf("a step within step %d, of process %d, for %d s", rq.Parent, rq.PID, rq.LimitS)
	}
	return model.CheckLimits(rq.Limits)
}

// Part refuses an invalid part of a step.
func Part(m *proto.StepPart) error {
	if m.Here < 0 || int(m.Here) >= len(m.Nodes) || m.Step < 0 || m.Step >= maxStep ||
		len(m.Name) > proto.MaxFieldBytes || len(m.Nodes) > proto.MaxStepTasks {
		return fmt.Errorf("a part of step %d at place %d of %d nodes", m.Step, m.Here, len(m.Nodes))
	}
	tasks := 0
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.Index < 0 || n.MemMiB < 0 || n.MemMiB > maxStepMem || len(n.Node) > proto.MaxFieldBytes || len(n.Gres) > 64 {
			return fmt.Errorf("the part of the job's node %d of a step, with %d MiB", n.Index, n.MemMiB)
		}
		if tasks += len(n.Ranks); tasks > proto.MaxStepTasks {
			return fmt.Errorf("a step of %d tasks: at most %d", tasks, proto.MaxStepTasks)
		}
		last := int32(-1)
		for _, r := range n.Ranks {
			if r <= last || r >= proto.MaxStepTasks {
				return fmt.Errorf("task %d follows task %d", r, last)
			}
			last = r
		}
	}
	if m.Request == nil {
		return nil
	}
	return Step(m.Request)
}

// Files refuses invalid standard files.
func Files(m *proto.StepFiles) error {
	if len(m.Files) != 3 {
		return fmt.Errorf("%d standard files", len(m.Files))
	}
	for _, f := range m.Files {
		if f.Mode > proto.FileOne || len(f.Pattern) > proto.MaxFieldBytes || f.Task < -1 || f.Task >= proto.MaxStepTasks ||
			f.FDs < 0 || f.FDs > proto.MaxStepTasks {
			return fmt.Errorf("a standard file of kind %d for task %d, with %d open files", f.Mode, f.Task, f.FDs)
		}
	}
	for _, io := range []*proto.StepIO{m.IO, m.PMI, m.X11} {
		if io != nil && !at(io) {
			return fmt.Errorf("port %d for input and output, with a key of %d bytes", io.Port, len(io.Key))
		}
	}
	const most = model.MaxHet * proto.MaxStepTasks
	if h := m.Het; h != nil && (h.Tasks < 1 || h.Tasks > most || h.NumNodes < 1 || h.NumNodes > most || h.FirstTask < 0 ||
		h.FirstTask >= h.Tasks || h.FirstNode < 0 || h.FirstNode >= h.NumNodes || len(h.Nodes) > maxNodesText ||
		len(h.Counts) > maxNodesText) {
		return fmt.Errorf("task %d of %d and node %d of %d of several steps", h.FirstTask, h.Tasks, h.FirstNode, h.NumNodes)
	}
	return nil
}

// at reports whether this can be where a command listens.
func at(io *proto.StepIO) bool {
	return len(io.Host) <= proto.MaxFieldBytes && io.Port >= 0 && io.Port <= math.MaxUint16 &&
		len(io.Key) == stepio.KeyBytes && io.Nodes <= proto.X11Last
}

// Signal refuses an invalid signal.
func Signal(m *proto.StepSignal) error {
	if m.Signal < 0 || m.Signal > MaxSignal || len(m.Text) > maxText {
		return fmt.Errorf("signal %d with %d bytes of text", m.Signal, len(m.Text))
	}
	return nil
}

// Words refuses what a command can't say of its tasks' ends.
func Words(m *proto.StepWords) error {
	for _, w := range m.List {
		if w.Task < 0 || w.Code < 0 || w.Code > math.MaxUint8 || w.Signal < 0 || w.Signal > 127 {
			return fmt.Errorf("task %d ended with code %d and signal %d", w.Task, w.Code, w.Signal)
		}
	}
	return nil
}

// Event refuses what a node can't say about its part of a step. Texts that are too long are cut.
func Event(ev *proto.StepEvent) error {
	ev.Text = clip(ev.Text, maxText)
	switch {
	case ev.Kind < proto.StepWaits || ev.Kind > proto.StepLine || ev.Step < proto.StepNone || ev.Task < 0 || ev.PID < 0 ||
		ev.Began < 0 || ev.Ended < 0:
		return fmt.Errorf("an event of kind %d about task %d", ev.Kind, ev.Task)
	case ev.Code < 0 || ev.Code > math.MaxUint8 || ev.Signal < 0 || ev.Signal > 127:
		return fmt.Errorf("an exit with code %d and signal %d", ev.Code, ev.Signal)
	case len(ev.Layout) > 0 || ev.Job != nil || ev.Direct != "" || ev.IO != nil:
		return errors.New("an event with a layout, which only a step's manager sends")
	}
	if x := ev.Use; x != nil {
		x.Text = clip(x.Text, maxText)
		if x.UserMS < 0 || x.SysMS < 0 || x.MaxRSSKB < 0 || x.Use != nil && len(x.Use.Nodes) > 1 {
			return errors.New("usage that is negative, or of several nodes")
		}
	}
	return nil
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
