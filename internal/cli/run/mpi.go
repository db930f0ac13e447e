package run

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/pmi"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
)

// mpi.go is grun's end of --mpi=pmi2: the hub to which the processes connect that serve the tasks on each node.

// mpiPMI2 is the value of --mpi that means the programs of package pmi.
const mpiPMI2 = "pmi2"

// errListMPI is --mpi=list.
var errListMPI = &getopt.TextError{Text: "MPI plugin types are...\n\tnone\n\tpmi2"}

// setMPI reads --mpi.
func (r *run) setMPI(v string) error {
	switch v {
	case "none", "openmpi":
		r.mpi = "none"
	case mpiPMI2:
		r.mpi = v
	case "list":
		return errListMPI
	default:
		how := "use --mpi=pmi2 for MPICH, MVAPICH and Intel MPI, or none"
		if strings.HasPrefix(v, "pmix") {
			how = "start Open MPI's programs with its own mpirun in the job (it starts its daemons with grun), and those of " +
				"MPICH with --mpi=pmi2"
		}
		return &getopt.TextError{Text: "Invalid --mpi specification: '" + v + "': there is no such plugin here; " + how}
	}
	return nil
}

// mpiHub is the hub of a step and its port.
type mpiHub struct {
	*pmi.Hub
	ln int
}

// serveMPI opens the port for the processes that serve the tasks, of all steps.
func (s *steps) serveMPI() error {
	key, err := stepio.NewKey()
	if err != nil {
		return err
	}
	ln, port, err := listenAny()
	if err != nil {
		return fmt.Errorf("listen for --mpi=pmi2: %w", err)
	}
	size := 0
	for _, t := range s.all {
		size += len(t.tasks)
	}
	name := func(rank int32) string {
		i := int(rank)
		for _, t := range s.all {
			if i < len(t.tasks) {
				return fmt.Sprintf("task %d on node %s", rank, t.tasks[i].node)
			}
			i -= len(t.tasks)
		}
		return fmt.Sprintf("task %d", rank)
	}
	news := make(chan mpiNews, 1+maxMPINotes)
	notes := 0
	s.hub = &mpiHub{ln: ln, Hub: pmi.NewHub(size, name, func(text string) { news <- mpiNews{text, true} },
		func(text string) {
			if notes++; notes <= maxMPINotes { // the hub calls once at a time
				news <- mpiNews{text, false}
			}
		})}
	s.mpiNews = news
	for _, t := range s.all {
		t.pl.files.PMI = &proto.StepIO{Port: port, Key: key}
	}
	go acceptEach(ln, func(f *os.File) { s.hub.talk(f, key) }) // it ends with the port
	return nil
}

func (h *mpiHub) talk(f *os.File, key []byte) {
	defer f.Close() //nolint:errcheck // everything has been read
	if f.SetDeadline(time.Now().Add(remoteHello)) != nil {
		return
	}
	c, _, err := stepio.Answer(f, key)
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return // a stranger
	}
	h.Talk(c)
}

func (h *mpiHub) close() {
	_ = unix.Shutdown(h.ln, unix.SHUT_RDWR) // ends accept
}

// maxMPINotes is how many of the hub's sentences are printed, beside the one with which it ends the step.
const maxMPINotes = 8

// mpiNews is a sentence of the hub.
type mpiNews struct {
	text string
	end  bool // the step is to end
}

// hearMPI prints a sentence of the hub, and ends the steps if their tasks can't go on.
func (s *steps) hearMPI(n mpiNews) {
	for _, t := range s.all {
		t.tellExits()
	}
	s.Errorf("mpi/pmi2: %s", n.text)
	if !n.end {
		return
	}
	for _, t := range s.all {
		if t.over || t.aborted {
			continue
		}
		t.rc = max(t.rc, 1)
		t.sayTerminating()
		t.abort("")
	}
}
