package model

// Record is a job's line in accounting: whole and self-contained, one per (Job, Attempt), or with Step a step's. A later record of the same
// key replaces the earlier one, so sending one twice changes nothing.
//
//gbatch:codec
type Record struct {
	Seq          uint64 // position in the controller's outbox: strictly growing
	Cluster      string
	Job          JobID
	Attempt      uint32
	ArrayID      JobID
	Task         int32
	TaskText     string // for an array's own record: its tasks as text, "0-9%2"
	Name         string
	User         string
	Group        string
	UID          uint32
	GID          uint32
	Account      string
	QOS          string
	Partition    string
	State        JobState
	Reason       Reason
	Submit       Time
	Eligible     Time
	Start        Time
	End          Time
	LimitS       int64
	Nodes        string // hostlist
	NumNodes     int32
	ReqCPUs      int32
	AllocCPUs    int32
	ReqMemMiB    int64       // per node
	AllocMemMiB  int64       // all nodes
	ReqGres      []GresCount // whole job
	AllocGres    []GresCount
	Exit         Exit
	CancelUID    uint32
	Priority     uint32
	Restarts     uint32
	WorkDir      string
	Command      string
	SubmitLine   string
	Comment      string
	AdminComment string
	StdOut       string
	StdErr       string
	StdIn        string
	Constraints  string
	Why          string
	Purge        bool // the array's own record is done: its tasks have records of their own, forget this one

	Reservation string // that it ran in, or the first that it asked for
	// Step makes this the record of a step of (Job, Attempt): a line of its own, one per step. Of the other fields it has
	// only those that say whose job it is.
	Step      *Step
	SuspendMS int64 // how long it was suspended until then, milliseconds: not part of what it ran
	SuspendAt Time  // since when it is suspended; 0: it runs, or is over
	NoScript  bool  // galloc's, or grun's own: there is no batch step

	FailedNode string // the node whose failure, fault or prolog ended the run; "": none did
}

// ElapsedS gives how long an ended job had its resources without being suspended, seconds.
func (r *Record) ElapsedS() int64 {
	if r.Start == 0 || r.End == 0 {
		return 0
	}
	return max(0, r.End.Seconds()-r.Start.Seconds()-r.SuspendMS/1000)
}

// ShortForSummary reports whether an ended job ran for less than two samples, or a minute where there were none: too short
// to be summed up.
func (r *Record) ShortForSummary() bool {
	every := int64(30)
	if r.Exit.Use != nil && len(r.Exit.Use.Nodes) > 0 && r.Exit.Use.Nodes[0].EveryS > 0 {
		every = int64(r.Exit.Use.Nodes[0].EveryS)
	}
	return r.ElapsedS() < 2*every
}
