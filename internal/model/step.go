package model

import "gbatch/internal/wire"

// Step is the accounting data of a job step that has ended. Its key is its job's key and its own number.
type Step struct {
	ID      int32
	Name    string
	Submit  string // the command line
	Start   Time
	End     Time
	Nodes   []string
	Tasks   int32
	CPUs    int32
	MemMiB  int64 // memory that it asked for, over all nodes; 0: the job's memory
	Gres    []GresCount
	Exit    Exit // exit of the task that ended worst; usage of all tasks
	Stop    StopCause
	StopUID uint32 // who cancelled it

	Container string // the image or bundle in which it ran; "": in none

	SleptMS int64 // how long its job was suspended while it ran, before SleepAt, milliseconds: not part of its run time
	SleepAt Time  // since when its job is suspended; 0: it runs or has ended
}

func (x *Step) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Name, MaxName)
	wire.Derived(c, &x.Submit, MaxText)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, MaxFew)
	wire.Struct(c, &x.Exit)
	wire.Int(c, &x.Stop)
	wire.Int(c, &x.StopUID)
	wire.Text(c, &x.Container, MaxText)
	wire.Int(c, &x.SleptMS)
	wire.Int(c, &x.SleepAt)
}

// ElapsedS gives how long it has run up to a moment without being suspended, seconds.
func (s *Step) ElapsedS(until Time) int64 {
	asleep := s.SleptMS
	if s.SleepAt != 0 {
		asleep += max(0, int64(until-s.SleepAt))
	}
	return max(0, int64(until-s.Start)-asleep) / 1000
}

// State gives the step's final state.
func (s *Step) State() JobState {
	switch s.Stop {
	case NoStop:
	case StopTimeLimit:
		return Timeout
	case StopPreempt, StopPreemptCancel:
		return Preempted
	case StopNodeFail:
		return NodeFail
	default:
		return Cancelled
	}
	state, _ := s.Exit.State()
	return state
}

// AddGres counts units of a generic resource.
func (s *Step) AddGres(name, typ string, n int64) { s.Gres = addGres(s.Gres, name, typ, n) }
