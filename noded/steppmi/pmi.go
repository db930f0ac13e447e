// Package steppmi is the process beside a step's tasks that serves MPI programs among them (grun --mpi=pmi2): package
// internal/pmi has the protocols. gshim starts it in the step's control group, as the step's user, so it outlives
// gnoded; it ends when the tasks have closed their ends of its connections.
//
// It owns nothing else: gnoded makes the connections and sends their other ends, and the address of the step's command,
// on the socket that is the process's standard input.
package steppmi

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"

	"gbatch/internal/pmi"
	"gbatch/internal/stepio"
	"gbatch/noded/steprelay"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "step-pmi"

// FD is the descriptor of a task's connection.
const FD = 3

// Exit statuses, beside those of steprelay.
const (
	exitOrder = 2
	exitLost  = 4 // the command is gone
)

// Order has the command's address and the tasks.
type Order struct {
	Addr  string // host:port
	Key   []byte
	Node  int32 // this node's place in the step
	Job   pmi.Job
	Ranks []int32
	Files []*os.File // the process's ends of the connections, as Ranks
}

// Send writes an order on the socket whose other end is the process's standard input. It does not wait for it.
func Send(sock int, o *Order) error {
	mapping := o.Job.Mapping
	if mapping == "" {
		mapping = "-"
	}
	text := fmt.Sprintf("%s %x %d %s %d %s\n", o.Addr, o.Key, o.Node, o.Job.ID, o.Job.Size, mapping)
	for _, r := range o.Ranks {
		text += fmt.Sprintf("%d\n", r)
	}
	return steprelay.SendLines(sock, text, o.Files)
}

// take reads an order from the socket.
func take(sock int) (*Order, error) {
	lines, err := steprelay.TakeLines(sock)
	if err != nil {
		return nil, err
	}
	o := &Order{}
	var key string
	if _, err := fmt.Sscanf(lines[0], "%s %s %d %s %d %s", &o.Addr, &key, &o.Node, &o.Job.ID, &o.Job.Size,
		&o.Job.Mapping); err != nil {
		return nil, fmt.Errorf("the order %q: %w", lines[0], err)
	}
	if o.Job.Mapping == "-" {
		o.Job.Mapping = ""
	}
	if o.Key, err = hex.DecodeString(key); err != nil {
		return nil, err
	}
	if o.Ranks, err = steprelay.Ranks(lines[1:]); err != nil {
		return nil, err
	}
	o.Files, err = steprelay.TakeFiles(sock, len(o.Ranks))
	return o, err
}

// Main is the program. It returns the exit status.
func Main(stderr io.Writer) int {
	steprelay.IgnoreSignals()
	o, err := take(0)
	if err != nil {
		fmt.Fprintln(stderr, "gshim step-pmi:", err)
		return exitOrder
	}
	nc, err := steprelay.Dial(o.Addr)
	if err != nil {
		return steprelay.ExitNoReach
	}
	defer nc.Close() //nolint:errcheck // all is written, or has no reader
	c, err := stepio.Hail(nc, o.Key, o.Node)
	if err != nil {
		return steprelay.ExitNoReach
	}
	l := pmi.NewLocal(o.Job, len(o.Ranks), c)
	lost := make(chan struct{})
	go func() {
		_ = l.Listen() // it ends with the connection, and that with the process
		close(lost)
	}()
	var tasks sync.WaitGroup
	for i, rank := range o.Ranks {
		tasks.Go(func() {
			l.Serve(rank, o.Files[i])
			_ = o.Files[i].Close() // the task has been told everything
		})
	}
	done := make(chan struct{})
	go func() { tasks.Wait(); close(done) }()
	select {
	case <-done:
		return 0
	case <-lost:
		return exitLost
	}
}
