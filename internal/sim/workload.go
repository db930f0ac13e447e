package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Job is one job of a workload. Times are whole seconds on the workload's own clock.
type Job struct {
	ID      int64 // its number in the file
	Submit  int64
	Run     int64  // how long it runs, at most Request
	Request int64  // the time limit that its user gave
	CPUs    int32  // of the whole job
	GPUs    int32  // of the whole job
	Nodes   int32  // 0: as few as hold it
	MemMiB  int64  // per node; 0: not said
	GPUType string // one or several joined with |; "": any
	Milli   int32  // of each GPU, where less than all of one was asked for; 0: all
	User    string
	Account string
	Queue   string // the partition that it was submitted to
}

// Workload is a trace's jobs and what the trace says of its machine.
type Workload struct {
	Name     string // of the file
	Jobs     []Job  // in order of (Submit, place in the file)
	Epoch    int64  // Unix seconds of second 0; 0: not known
	MaxProcs int    // processors of the machine as one pool; 0: not known
	GPUProcs bool   // the processors are GPUs
	Pools    []Pool // machines of their own for each queue, where the trace names them
	Nodes    []NodeKind
	Left     []Left // what the trace has beside
	Notes    []string

	NodesBeside bool // the machine is in a file of its own beside this one
}

// Pool is a queue's own nodes.
type Pool struct {
	Queue string
	Nodes int
	GPUs  int // per node
}

// NodeKind is a number of equal nodes.
type NodeKind struct {
	Name   string
	CPUs   int
	MemMiB int64
	GPUs   int
	Type   string
}

// Left counts lines of a trace that are no job to be run, by why.
type Left struct {
	Why  string
	Jobs int
}

// leave counts a line that is left out.
func (w *Workload) leave(why string) {
	for i := range w.Left {
		if w.Left[i].Why == why {
			w.Left[i].Jobs++
			return
		}
	}
	w.Left = append(w.Left, Left{why, 1})
}

// sort puts the jobs into the order in which they arrive.
func (w *Workload) sort() {
	if !slices.IsSortedFunc(w.Jobs, bySubmit) {
		slices.SortStableFunc(w.Jobs, bySubmit)
	}
}

func bySubmit(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) }

// add adds a job, cut to its request. It omits lines without a run time, as the studies do; a job without a requested
// time gets its run time as request, as in traces without estimates.
func (w *Workload) add(j Job) {
	switch {
	case j.Run <= 0:
		w.leave("never ran")
		return
	case j.CPUs <= 0 && j.GPUs <= 0:
		w.leave("no processors")
		return
	}
	if j.Request <= 0 {
		j.Request = j.Run
	}
	j.Run = min(j.Run, j.Request)
	w.Jobs = append(w.Jobs, j)
}

// Shake shifts every submission by 0 to most seconds, drawn with seed, and sorts the jobs again. Results that change
// much with it are no evidence about a scheduler.
//
// Source: Tsafrir, Ouaknine, Feitelson: Reducing performance evaluation sensitivity and variability by input shaking,
// MASCOTS 2007.
func (w *Workload) Shake(seed uint64, most int64) {
	rng := rand.New(rand.NewPCG(seed, 0x73696d))
	for i := range w.Jobs {
		w.Jobs[i].Submit += rng.Int64N(most + 1)
	}
	w.sort()
}

// TrueEstimates makes every job ask for exactly the time that it runs.
func (w *Workload) TrueEstimates() {
	for i := range w.Jobs {
		w.Jobs[i].Request = w.Jobs[i].Run
	}
}

// span gives the first submission and the last, seconds.
func (w *Workload) span() (first, last int64) {
	if len(w.Jobs) == 0 {
		return 0, 0
	}
	return w.Jobs[0].Submit, w.Jobs[len(w.Jobs)-1].Submit
}

// LineError is an error in a line of a trace.
type LineError struct {
	File string
	Line int
	Text string
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }
