package model

// Step is a job step that has ended: what accounting keeps of it. It stands beside its job's Record, whose key it has,
// with its number.
//
//gbatch:codec
type Step struct {
	ID      int32
	Name    string
	Submit  string // the command line
	Start   Time
	End     Time
	Nodes   []string
	Tasks   int32
	CPUs    int32
	MemMiB  int64 // that it asked for, over all nodes; 0: the job's
	Gres    []GresCount
	Exit    Exit // of the task that ended worst; usage of all
	Stop    StopCause
	StopUID uint32 // who cancelled it
}

// State gives what became of the step.
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
