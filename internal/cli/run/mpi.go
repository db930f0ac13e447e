package run

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/pmi"
	"gbatch/internal/pmix"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
)

// mpi.go is grun's end of --mpi=pmi2 and --mpi=pmix: the hub to which the processes connect that serve the tasks on
// each node.

// The values of --mpi with which tasks are served: by package pmi, and by libpmix.
const (
	mpiPMI2 = "pmi2"
	mpiPMIx = "pmix"
)

// errListMPI is --mpi=list.
var errListMPI = &getopt.TextError{Text: "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n" +
	"specific pmix plugin versions available: pmix_v2,pmix_v3,pmix_v4,pmix_v5"}

// setMPI reads --mpi.
func (r *run) setMPI(v string) error {
	if v == "list" {
		return errListMPI
	}
	if r.mpi = kindOfMPI(v); r.mpi == "none" && v != "none" && v != "openmpi" {
		return &getopt.TextError{Text: "Invalid --mpi specification: '" + v + "': there is no such plugin here; " +
			"use --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH, MVAPICH and Intel MPI, or none"}
	}
	return nil
}

// kindOfMPI is what a value of --mpi or MpiDefault means. Clients and servers of all versions of PMIx understand each
// other, so a version in the name makes no difference.
func kindOfMPI(v string) string {
	switch v = strings.ToLower(v); v {
	case mpiPMI2:
		return v
	case mpiPMIx, "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5":
		return mpiPMIx
	}
	return "none"
}

// mpiHub is the hub of a step.
type mpiHub interface {
	Talk(c pmi.Conn)
	Ended(rank int32)
}

// serveMPI opens the port for the processes that serve the tasks, of all steps.
func (s *steps) serveMPI() error {
	kind := s.all[0].mpi
	key, err := stepio.NewKey()
	if err != nil {
		return err
	}
	ln, port, err := listenAny()
	if err != nil {
		return fmt.Errorf("listen for --mpi=%s: %w", kind, err)
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
	end := func(text string) { news <- mpiNews{text, true} }
	note := func(text string) {
		if notes++; notes <= maxMPINotes { // the hub calls once at a time
			news <- mpiNews{text, false}
		}
	}
	if kind == mpiPMIx {
		s.hub = pmixHub{pmix.NewHub(s.pmixPlan(key), name, end, note)}
	} else {
		size := 0
		for _, t := range s.all {
			size += len(t.tasks)
		}
		s.hub = pmi.NewHub(size, name, end, note)
	}
	s.mpiNews, s.mpiPort = news, ln
	for _, t := range s.all {
		t.pl.files.PMI = &proto.StepIO{Port: port, Key: key, PMIx: kind == mpiPMIx}
	}
	go acceptEach(ln, func(f *os.File) { s.talkMPI(f, key) }) // it ends with the port
	return nil
}

// pmixHub is a hub of package pmix.
type pmixHub struct{ *pmix.Hub }

func (h pmixHub) Talk(c pmi.Conn) { h.Hub.Talk(c) }

// pmixPlan is what the nodes' servers are told of the steps: to them these are one, whose tasks are numbered through.
// Servers of one node, of several steps, are of nodes of their own. The key names the tasks' namespace without being
// told by it.
func (s *steps) pmixPlan(key []byte) *pmix.Plan {
	first := s.all[0]
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("pmix")) // a hash never fails
	p := &pmix.Plan{Job: fmt.Sprintf("%d.%d", first.rq.Job, first.id)}
	p.Space = fmt.Sprintf("gbatch.%s.%x", p.Job, mac.Sum(nil)[:16])
	used := map[string]bool{}
	for i, t := range s.all {
		at := map[string]int{}
		for r := range t.tasks {
			name := t.tasks[r].node
			k, ok := at[name]
			if !ok {
				k = len(p.Nodes)
				at[name] = k
				if used[name] {
					name = fmt.Sprintf("%s.step%d", name, i)
				}
				used[name] = true
				p.Nodes = append(p.Nodes, pmix.Node{Name: name, App: int32(i)})
			}
			p.Nodes[k].Ranks = append(p.Nodes[k].Ranks, t.het.First()+int32(r))
		}
	}
	return p
}

// talkMPI serves a node's process until its connection ends.
func (s *steps) talkMPI(f *os.File, key []byte) {
	defer f.Close() //nolint:errcheck // everything has been read
	if f.SetDeadline(time.Now().Add(remoteHello)) != nil {
		return
	}
	c, _, err := stepio.Answer(f, key)
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return // a stranger
	}
	s.hub.Talk(c)
}

func (s *steps) closeMPI() {
	_ = unix.Shutdown(s.mpiPort, unix.SHUT_RDWR) // ends accept
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
	if n.end && s.saidAborted && len(s.all) == 1 {
		return // the step is being ended, and its tasks' ends are no news
	}
	s.Errorf("mpi/%s: %s", s.all[0].mpi, n.text)
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
