package steppmix

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"gbatch/internal/pmix"
	"gbatch/internal/stepio"
	"gbatch/noded/steprelay"
	"gbatch/noded/taskenv"
)

// Exit statuses, beside those of steprelay.
const (
	exitOrder = 2
	exitLost  = 4 // the command is gone
	exitLib   = 5
)

const (
	helloWait  = time.Minute      // for the command's answer
	answerWait = 10 * time.Minute // for another task's data
)

// noSpawn answers a program that wants to start others.
const noSpawn = "MPI_Comm_spawn is not supported under grun: start all tasks at once, or use Open MPI's own " +
	"mpirun in the job"

// server is the process.
type server struct {
	hub   pmix.Conn
	plan  *pmix.Plan
	here  int32 // in the plan
	dir   string
	ranks []int32

	mu     sync.Mutex
	gone   map[int32]bool
	fences map[string]call // by their tasks
	asked  map[uint64]call
	asking uint64
	left   chan struct{} // closed when all tasks are gone
}

// call is what libpmix wants to be told: its function, and what it gave with it.
type call struct{ fn, data uintptr }

// Main is to be called in the main of gnoded's program. When the program is running as the server it does the server's
// work and handled is true: exit with that status.
func Main(args []string, stderr io.Writer) (status int, handled bool) {
	if len(args) != 2 || args[1] != Word {
		return 0, false
	}
	steprelay.IgnoreSignals()
	o, err := take(0)
	if err != nil {
		fmt.Fprintln(stderr, "gnoded step-pmix:", err)
		return exitOrder, true
	}
	nc, err := steprelay.Dial(o.Addr)
	if err != nil {
		return steprelay.ExitNoReach, true
	}
	defer nc.Close() //nolint:errcheck // all is written, or has no reader
	s := &server{ranks: o.Ranks, gone: map[int32]bool{}, fences: map[string]call{}, asked: map[uint64]call{},
		left: make(chan struct{})}
	if err := s.greet(nc, o); err != nil {
		return steprelay.ExitNoReach, true
	}
	return s.serve(o), true
}

// greet says who is here, and learns the plan.
func (s *server) greet(nc net.Conn, o *Order) error {
	if err := nc.SetDeadline(time.Now().Add(helloWait)); err != nil {
		return err
	}
	c, err := stepio.Hail(nc, o.Key, o.Node)
	if err != nil {
		return err
	}
	if err := pmix.Send(c, &pmix.Message{Kind: pmix.Hello, Ranks: o.Ranks}); err != nil {
		return err
	}
	m, err := pmix.Receive(c)
	if err != nil {
		return err
	}
	if m.Kind != pmix.Start || m.Plan == nil || m.Rank < 0 || int(m.Rank) >= len(m.Plan.Nodes) ||
		!slices.Equal(m.Plan.Nodes[m.Rank].Ranks, o.Ranks) {
		return errors.New("a plan that has other tasks")
	}
	s.hub, s.plan, s.here = c, m.Plan, m.Rank
	return nc.SetDeadline(time.Time{})
}

// serve lets the tasks begin, and serves them until they have ended.
func (s *server) serve(o *Order) int {
	top := "/tmp"
	if o.Virtual {
		top = "/dev/shm"
	}
	err := s.makeDirs(top)
	defer os.RemoveAll(s.dir) //nolint:errcheck // it is in /tmp
	if err == nil {
		err = s.start()
	}
	lost := make(chan struct{})
	go func() {
		s.listen() // it ends with the connection, and that with the process
		close(lost)
	}()
	for i, rank := range o.Ranks {
		var env []string
		if err == nil {
			env, err = s.variables(rank)
		}
		if o.Virtual {
			env = append(env, "OMPI_MCA_btl_vader_backing_directory="+s.dir, "OMPI_MCA_btl_sm_backing_directory="+s.dir)
		}
		if err == nil {
			_ = taskenv.Send(o.Files[i], env) // a task that has ended needs none
		}
	}
	if err != nil {
		for _, f := range o.Files {
			_ = taskenv.Refuse(f) // as above
		}
		s.tell(&pmix.Message{Kind: pmix.Fail, Text: err.Error()})
	}
	for i, rank := range o.Ranks {
		go func() {
			_, _ = io.Copy(io.Discard, o.Files[i]) // its end is all that is to be heard
			s.ended(rank)
		}()
	}
	select {
	case <-s.left:
	case <-lost:
		return exitLost
	}
	if err != nil {
		return exitLib
	}
	return 0
}

// makeDirs makes the directory of the library's and the programs' files, with one for each task.
func (s *server) makeDirs(top string) (err error) {
	if s.dir, err = os.MkdirTemp(top, "gbatch-pmix-"+s.plan.Job+"-"); err != nil {
		return fmt.Errorf("make a directory for --mpi=pmix: %w", err)
	}
	for _, r := range s.ranks {
		if err := os.MkdirAll(s.taskDir(r), 0o700); err != nil {
			return fmt.Errorf("make a directory for --mpi=pmix: %w", err)
		}
	}
	return nil
}

// jobDir is the directory of the step's tasks, taskDir of one of them.
func (s *server) jobDir() string { return filepath.Join(s.dir, "step") }
func (s *server) taskDir(rank int32) string {
	return filepath.Join(s.jobDir(), strconv.Itoa(int(rank)))
}

// tell writes to the hub; a lost one is seen by listen.
func (s *server) tell(m *pmix.Message) { _ = pmix.Send(s.hub, m) }

// listen does what the hub says until it is gone.
func (s *server) listen() {
	for {
		m, err := pmix.Receive(s.hub)
		if err != nil {
			return
		}
		switch m.Kind {
		case pmix.FenceEnd:
			s.mu.Lock()
			c, ok := s.fences[fenceKey(m.Ranks)]
			delete(s.fences, fenceKey(m.Ranks))
			s.mu.Unlock()
			if ok {
				c.answer(pmix.Success, m.Data)
			}
		case pmix.Answer:
			s.answered(m.ID, m.Status, m.Data)
		case pmix.Ask:
			if slices.Contains(s.ranks, m.Rank) {
				s.find(m.ID, m.Rank)
			}
		case pmix.Ended:
			s.ended(m.Rank)
		}
	}
}

// found is the library's answer to a question of the hub.
func (s *server) found(id uint64, status int32, data []byte) {
	if len(data) > pmix.MaxAnswer {
		status, data = pmix.ErrResource, nil
	}
	s.tell(&pmix.Message{Kind: pmix.Answer, ID: id, Status: status, Data: data})
}

// ended is a task of which nothing more will come.
func (s *server) ended(rank int32) {
	s.mu.Lock()
	before := s.gone[rank]
	s.gone[rank] = true
	all := len(s.gone) == len(s.ranks)
	s.mu.Unlock()
	if before || !slices.Contains(s.ranks, rank) {
		return
	}
	s.tell(&pmix.Message{Kind: pmix.Gone, Rank: rank})
	if all {
		close(s.left)
	}
}

func fenceKey(ranks []int32) string { return fmt.Sprint(ranks) }

// fence joins the fence of the tasks (none: all) with the data of those here.
func (s *server) fence(ranks []int32, data []byte, c call) int32 {
	if len(data) > pmix.MaxSpace {
		return pmix.ErrResource
	}
	key := fenceKey(ranks)
	s.mu.Lock()
	_, twice := s.fences[key]
	if twice || len(s.fences) >= pmix.MaxFences {
		s.mu.Unlock()
		return pmix.ErrResource
	}
	s.fences[key] = c
	s.mu.Unlock()
	s.tell(&pmix.Message{Kind: pmix.Fence, Ranks: ranks, Data: data})
	return pmix.Success
}

// ask wants the data of a task of another node.
func (s *server) ask(rank int32, c call) int32 {
	s.mu.Lock()
	if len(s.asked) >= pmix.MaxAsked {
		s.mu.Unlock()
		return pmix.ErrResource
	}
	s.asking++
	id := s.asking
	s.asked[id] = c
	s.mu.Unlock()
	time.AfterFunc(answerWait, func() { s.answered(id, pmix.ErrTimeout, nil) })
	s.tell(&pmix.Message{Kind: pmix.Ask, ID: id, Rank: rank})
	return pmix.Success
}

// answered gives the library the data of a task, once.
func (s *server) answered(id uint64, status int32, data []byte) {
	s.mu.Lock()
	c, ok := s.asked[id]
	delete(s.asked, id)
	s.mu.Unlock()
	if ok {
		c.answer(status, data)
	}
}
