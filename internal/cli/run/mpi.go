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

// serveMPI opens the port for the processes that serve the tasks.
func (t *talk) serveMPI() error {
	key, err := stepio.NewKey()
	if err != nil {
		return err
	}
	ln, port, err := listenAny()
	if err != nil {
		return fmt.Errorf("listen for --mpi=pmi2: %w", err)
	}
	name := func(rank int32) string { return fmt.Sprintf("task %d on node %s", rank, t.tasks[rank].node) }
	news := make(chan mpiNews, 1+maxMPINotes)
	notes := 0
	t.hub = &mpiHub{ln: ln, Hub: pmi.NewHub(len(t.tasks), name, func(text string) { news <- mpiNews{text, true} },
		func(text string) {
			if notes++; notes <= maxMPINotes { // the hub calls once at a time
				news <- mpiNews{text, false}
			}
		})}
	t.mpiNews = news
	t.pl.files.PMI = &proto.StepIO{Port: port, Key: key}
	go t.hub.accept(key) // it ends with the port
	return nil
}

// accept takes connections until the port is closed.
func (h *mpiHub) accept(key []byte) {
	for {
		fd, _, err := unix.Accept4(h.ln, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == unix.EINTR || err == unix.ECONNABORTED:
			continue
		case err != nil:
			return
		}
		if stepio.Bound(fd, stepio.LostAfter) != nil { // the peer has gone already
			_ = unix.Close(fd) // nothing was sent
			continue
		}
		go h.talk(os.NewFile(uintptr(fd), "of a node"), key)
	}
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

// hearMPI prints a sentence of the hub, and ends the step if its tasks can't go on.
func (t *talk) hearMPI(n mpiNews) {
	t.tellExits()
	t.Errorf("mpi/pmi2: %s", n.text)
	if !n.end || t.aborted {
		return
	}
	t.rc = max(t.rc, 1)
	if !t.quiet {
		fmt.Fprintf(t.Stderr, "%s: Terminating StepId=%d.%d\n", t.Program, t.rq.Job, t.id)
	}
	t.abort("")
}
