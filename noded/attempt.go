package noded

import (
	"fmt"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// phase is where an attempt is on its way through the node.
//
//	accepted -> preparing -> (prologue ->) ordered -> running -> ending -> (epilogue ->) over -> (acknowledged: forgotten)
//
// One that the leader only wants prepared waits as ready between its prologue and its order, or its end.
//
// An attempt that was in the spool when gnoded started is accepted until gshim or the leader says more of it.
type phase uint8

const (
	accepted  phase = iota // in the spool
	preparing              // a worker makes its script and cgroup
	prologue               // its prolog runs
	ready                  // the prolog has run, and the leader has been told
	ordered                // gshim has the order and has not answered
	running
	ending   // its process has ended, or never was; what it left is being cleared away
	epilogue // nothing of it is left, and its epilog runs
	over     // its last report is on disk and waits for the leader
)

var phaseNames = [...]string{"accepted", "preparing", "prologue", "ready", "ordered", "running", "ending", "epilogue", "over"}

func (p phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase %d", uint8(p))
}

// attempt is one start of a job on this node. It belongs to the loop's goroutine; workers get what they need by value.
type attempt struct {
	key   proto.Attempt
	rec   *launched // nil for one that is only reported
	phase phase

	launch *proto.Launch // until its order is made
	order  *shim.Launch  // phase ordered: to be sent again if gshim's connection breaks
	script string        // its script file, held until it is over
	note   string        // a line for the user once it runs; "": none

	chill    chill         // whether it is, or shall be, suspended
	stop     *proto.Stop   // the leader wants it ended
	signals  []*proto.Stop // to be sent when it runs
	forget   bool          // nobody wants to hear of it
	foreign  bool          // forgotten because other controllers number their jobs anew
	rebooted bool          // it was there before the machine's last boot: only an end that gshim saw counts
	again    *proto.Launch
	ended    *shim.Event // phase ending: how; nil where nobody saw it
	began    model.Time  // when its script started, 0 before
	kill     *time.Timer // runs while it is being ended
	asked    time.Time   // when its processes were asked to end
	tries    int         // of clearing away what it left
	warned   time.Time   // about processes that don't die

	prepare    bool      // the last launch asked for no more than that
	until      time.Time // when the program that runs is killed; zero: never
	late       bool      // it has been
	orderedAt  time.Time // phase ordered: since when
	lateStart  bool      // it was killed since its script did not start
	killed     time.Time // when it was first sent SIGKILL
	unkillable bool      // that its processes survive SIGKILL has been reported

	released bool // it was given back, with this exit code
	code     int32

	steps    map[int32]*step // by number, those that have their part of the job
	queue    []*step         // those that wait for it
	nextStep int32
	missed   []*step // ended while their commands had no connection
}

// stepBatch is the step number of batch scripts, as Slurm counts.
const stepBatch = -5

func shimKey(k proto.Attempt) shim.Key {
	return shim.Key{JobID: uint32(k.Job), Attempt: k.Attempt, Step: stepBatch}
}

// alive reports whether the attempt has, or may have, processes.
func (a *attempt) alive() bool {
	switch a.phase {
	case prologue, ready, ordered, running, ending, epilogue:
		return true
	case accepted, preparing, over:
	}
	return false
}
