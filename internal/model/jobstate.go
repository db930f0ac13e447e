package model

// JobState is the state of a job. The numbers are stored: append only.
type JobState uint8

// The states, with Slurm's names. Completing means that the processes are being ended; Run.Stop says what the job
// becomes after that.
const (
	Pending JobState = iota + 1
	Configuring
	Running
	Suspended
	Completing
	Completed
	Cancelled
	Failed
	Timeout
	NodeFail
	Preempted
	BootFail
	Deadline
	OutOfMemory
	Requeued // of accounting records only: the run ended since somebody put the job back into the queue
	Resizing // of accounting records only: the run went on with other nodes
	numJobStates
)

// States of filters only: pending jobs, as they are shown.
const (
	Expediting  JobState = 200 // they start again before others since they were lost with a node
	SpecialExit JobState = 201 // they are held for somebody to look at them
	Queued      JobState = 202 // PENDING as squeue -t has it: not SPECIAL_EXIT
)

var jobStateNames = [numJobStates][2]string{
	Pending: {"PENDING", "PD"}, Configuring: {"CONFIGURING", "CF"}, Running: {"RUNNING", "R"},
	Suspended: {"SUSPENDED", "S"}, Completing: {"COMPLETING", "CG"}, Completed: {"COMPLETED", "CD"},
	Cancelled: {"CANCELLED", "CA"}, Failed: {"FAILED", "F"}, Timeout: {"TIMEOUT", "TO"}, NodeFail: {"NODE_FAIL", "NF"},
	Preempted: {"PREEMPTED", "PR"}, BootFail: {"BOOT_FAIL", "BF"}, Deadline: {"DEADLINE", "DL"},
	OutOfMemory: {"OUT_OF_MEMORY", "OOM"}, Requeued: {"REQUEUED", "RQ"},
	Resizing: {"RESIZING", "RS"},
}

// JobStates lists every state in order.
func JobStates() []JobState {
	out := make([]JobState, 0, numJobStates-1)
	for s := Pending; s < numJobStates; s++ {
		out = append(out, s)
	}
	return out
}

// String gives Slurm's long name.
func (s JobState) String() string {
	if s == 0 || s >= numJobStates {
		return "UNKNOWN"
	}
	return jobStateNames[s][0]
}

// Short gives Slurm's compact name: "PD", "R", ...
func (s JobState) Short() string {
	if s == 0 || s >= numJobStates {
		return "?"
	}
	return jobStateNames[s][1]
}

// Finished reports whether the job has ended for good.
func (s JobState) Finished() bool { return s >= Completed && s < numJobStates }

// HasResources reports whether a job in this state holds an allocation.
func (s JobState) HasResources() bool { return s >= Configuring && s <= Completing }

// ParseJobState reads a state's long or compact name in any case.
func ParseJobState(text string) (JobState, bool) {
	for s := Pending; s < numJobStates; s++ {
		if equalFold(text, jobStateNames[s][0]) || equalFold(text, jobStateNames[s][1]) {
			return s, true
		}
	}
	return 0, false
}

// ParseFilterState reads a state as filters have it: a job's, EXPEDITING or SPECIAL_EXIT.
func ParseFilterState(text string) (JobState, bool) {
	switch {
	case equalFold(text, ExpeditingText):
		return Expediting, true
	case equalFold(text, SpecialExitText), equalFold(text, "SE"):
		return SpecialExit, true
	}
	return ParseJobState(text)
}

func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if 'a' <= x && x <= 'z' {
			x -= 32
		}
		if 'a' <= y && y <= 'z' {
			y -= 32
		}
		if x != y {
			return false
		}
	}
	return true
}

// Event is something that happens to a job, or a request to it.
type Event uint8

// The events.
const (
	EvAllocate     Event = iota + 1 // the plan gave it resources
	EvStarted                       // the node reports that the script runs
	EvEnded                         // the node reports that every process is gone
	EvLaunchFailed                  // the node could not start it
	EvCancel                        // its user or an operator ends it
	EvTimeLimit                     // its time limit has passed
	EvPreempt                       // a stronger job takes its resources
	EvRequeue                       // it goes back to the queue on request
	EvNodeLost                      // its node has failed
	EvDeadline                      // it can no longer end before its deadline
	EvSuspend                       // its processes are stopped
	EvResume                        // its processes go on
	numEvents
)

var eventNames = [numEvents]string{
	EvAllocate: "allocate", EvStarted: "started", EvEnded: "ended", EvLaunchFailed: "launch-failed", EvCancel: "cancel",
	EvTimeLimit: "time-limit", EvPreempt: "preempt", EvRequeue: "requeue", EvNodeLost: "node-lost", EvDeadline: "deadline",
	EvSuspend: "suspend", EvResume: "resume",
}

func (e Event) String() string {
	if e == 0 || e >= numEvents {
		return "unknown"
	}
	return eventNames[e]
}

// Events lists every event in order.
func Events() []Event {
	out := make([]Event, 0, numEvents-1)
	for e := EvAllocate; e < numEvents; e++ {
		out = append(out, e)
	}
	return out
}

// Next is the job state table: the state that event e moves a job in state s to. ok is false if the event has no
// meaning in that state and must be ignored or refused. EvEnded gives Completed for a job that was not being stopped;
// the exit status then decides between Completed, Failed and OutOfMemory (see Exit.State). For a Completing job
// Run.Stop decides.
func Next(s JobState, e Event) (next JobState, ok bool) {
	switch s {
	case Pending:
		switch e {
		case EvAllocate:
			return Configuring, true
		case EvCancel:
			return Cancelled, true
		case EvDeadline:
			return Deadline, true
		}
	case Configuring, Running, Suspended:
		switch e {
		case EvStarted:
			if s == Configuring {
				return Running, true
			}
		case EvEnded:
			return Completed, true
		case EvLaunchFailed:
			if s == Configuring {
				return Pending, true
			}
		case EvCancel, EvTimeLimit, EvPreempt, EvRequeue, EvDeadline:
			return Completing, true
		case EvNodeLost:
			return NodeFail, true
		case EvSuspend:
			if s == Running {
				return Suspended, true
			}
		case EvResume:
			if s == Suspended {
				return Running, true
			}
		}
	case Completing:
		switch e {
		case EvEnded, EvLaunchFailed:
			return Completed, true
		case EvCancel: // a requeue that is still ending its processes can be turned into a cancel
			return Completing, true
		case EvNodeLost:
			return NodeFail, true
		}
	case Completed, Cancelled, Failed, Timeout, NodeFail, Preempted, BootFail, Deadline, OutOfMemory:
		if e == EvRequeue {
			return Pending, true
		}
	}
	return s, false
}
