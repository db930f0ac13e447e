package pmix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gbatch/internal/plain"
)

// PMIx's own numbers.
const (
	Success     int32 = 0
	ErrTimeout  int32 = -24
	ErrResource int32 = -29
	ErrNotFound int32 = -46
)

// Hub is the step's side: it knows the servers of all nodes, and passes on what they say to each other.
type Hub struct {
	end  func(text string) // ends the step, and tells the user why; it must not wait for the hub
	note func(text string) // tells the user
	name func(rank int32) string
	plan *Plan
	size int

	mu      sync.Mutex
	servers []*server // by node of the plan; nil: it has not come
	of      []int     // the node of each rank
	tasks   []task    // by rank
	running int       // tasks between MPI_Init and MPI_Finalize
	absent  int32     // a task that has ended without MPI_Init, -1: none has
	fences  map[string]*fence
	held    int // bytes of the fences' data
	asked   map[uint64]question
	asking  uint64
	over    bool // the step was ended
}

// task is what the hub knows of a task.
type task struct{ connected, finalized, ended, gone bool }

// server is the process of one node.
type server struct {
	c     Conn
	node  int
	asked int // its questions that are not answered
}

// fence is one that has not ended.
type fence struct {
	ranks   []int32 // none: all
	need    int     // tasks that it waits for
	data    []byte
	servers []*server
}

// question is for one task's data.
type question struct {
	by   *server
	id   uint64 // its own number
	rank int32
}

// NewHub makes the hub of a step. name says which task a rank is, in words.
func NewHub(plan *Plan, name func(rank int32) string, end, note func(text string)) *Hub {
	h := &Hub{end: end, note: note, name: name, plan: plan, size: plan.Size(), servers: make([]*server, len(plan.Nodes)),
		absent: -1, fences: map[string]*fence{}, asked: map[uint64]question{}}
	h.of, h.tasks = make([]int, h.size), make([]task, h.size)
	for i := range plan.Nodes {
		for _, r := range plan.Nodes[i].Ranks {
			if h.known(r) {
				h.of[r] = i
			}
		}
	}
	return h
}

func (h *Hub) known(rank int32) bool { return rank >= 0 && int(rank) < h.size }

// Talk serves a node's server until its connection ends.
func (h *Hub) Talk(c Conn) {
	s, err := h.welcome(c)
	if err != nil {
		h.mu.Lock()
		h.fail("a node's server of PMIx is refused: " + err.Error())
		h.mu.Unlock()
		return
	}
	if s == nil {
		return
	}
	defer h.drop(s)
	for {
		m, err := Receive(c)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.take(s, m)
		h.mu.Unlock()
	}
}

// welcome answers a server's first message. A connection that ends before it is nobody.
func (h *Hub) welcome(c Conn) (*server, error) {
	m, err := Receive(c)
	switch {
	case errors.Is(err, errStranger):
		return nil, errors.New("its gnoded is of an older version, without --mpi=pmix")
	case err != nil:
		return nil, nil //nolint:nilerr // the step's end says what there is to say
	case m.Kind != Hello || len(m.Ranks) == 0 || !h.known(m.Ranks[0]):
		return nil, errStranger
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.of[m.Ranks[0]]
	node := &h.plan.Nodes[i]
	if h.servers[i] != nil || !slices.Equal(node.Ranks, m.Ranks) {
		return nil, fmt.Errorf("node %s began some tasks of the step without the others, because its gnoded was restarted; "+
			"start the step again", node.Name)
	}
	s := &server{c: c, node: i}
	h.servers[i] = s
	if err := Send(c, &Message{Kind: Start, Rank: int32(i), Plan: h.plan}); err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	// What was said of its tasks before it came.
	var late []*Message
	for _, r := range node.Ranks {
		if h.tasks[r].ended {
			late = append(late, &Message{Kind: Ended, Rank: r})
		}
	}
	for id, q := range h.asked {
		if h.of[q.rank] == i {
			late = append(late, &Message{Kind: Ask, ID: id, Rank: q.rank})
		}
	}
	s.tell(late...)
	return s, nil
}

// tell writes to a server without waiting for it: a lost one is seen by its reader, which ends the writing too.
func (s *server) tell(list ...*Message) {
	if len(list) == 0 {
		return
	}
	go func() {
		for _, m := range list {
			if Send(s.c, m) != nil {
				return
			}
		}
	}()
}

// drop answers the questions that a server that is gone can't answer. One that goes before its tasks was killed, or has
// crashed: they would wait for ever.
func (h *Hub) drop(s *server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node := &h.plan.Nodes[s.node]
	if slices.ContainsFunc(node.Ranks, func(r int32) bool { return !h.tasks[r].gone }) {
		h.fail(fmt.Sprintf("node %s: the step's PMIx server there (gnoded step-pmix) has ended before its tasks", node.Name))
	}
	for id, q := range h.asked {
		if q.by == s || h.of[q.rank] == s.node {
			h.answer(id, ErrNotFound, nil)
		}
	}
}

// take does what a message asks for. The caller holds the lock.
func (h *Hub) take(s *server, m *Message) {
	if m.Kind == Fence {
		h.fence(s, m)
		return
	}
	if m.Kind == Answer {
		if q, ok := h.asked[m.ID]; ok && h.of[q.rank] == s.node {
			h.answer(m.ID, m.Status, m.Data)
		}
		return
	}
	if m.Kind == Fail {
		h.fail(fmt.Sprintf("node %s: %s", h.plan.Nodes[s.node].Name, said(m)))
		return
	}
	if !h.known(m.Rank) {
		return
	}
	t := &h.tasks[m.Rank]
	if m.Kind != Ask && h.of[m.Rank] != s.node {
		return
	}
	switch m.Kind {
	case Ask:
		h.ask(s, m)
	case Connected:
		if !t.connected || t.finalized { // a second program of the same task
			t.connected, t.finalized = true, false
			h.running++
		}
		h.look()
	case Finalized:
		if t.connected && !t.finalized {
			t.finalized = true
			h.running--
		}
	case Gone:
		h.left(m.Rank)
	case Abort:
		text := said(m)
		if text == "" || text == "N/A" {
			text = fmt.Sprintf("exit code %d", m.Status)
		}
		h.fail(h.name(m.Rank) + " aborted: " + text)
	case Note:
		if !h.over {
			h.note(h.name(m.Rank) + ": " + said(m))
		}
	}
}

// fail ends the step, once. The caller holds the lock.
func (h *Hub) fail(text string) {
	if !h.over {
		h.over = true
		h.end(text)
	}
}

// fence takes in a server's part of a fence, and ends it when all are there.
func (h *Hub) fence(s *server, m *Message) {
	mine := len(h.plan.Nodes[s.node].Ranks)
	need := h.size
	if len(m.Ranks) > 0 {
		mine, need = 0, len(m.Ranks)
		for _, r := range m.Ranks {
			if !h.known(r) {
				return
			}
			if h.of[r] == s.node {
				mine++
			}
		}
	}
	key := make([]byte, 0, 4*len(m.Ranks))
	for _, r := range m.Ranks {
		key = binary.LittleEndian.AppendUint32(key, uint32(r))
	}
	f := h.fences[string(key)]
	switch {
	case f == nil && len(h.fences) >= MaxFences:
		h.fail(fmt.Sprintf("more than %d fences (MPI_Barrier's kin of PMIx) at once", MaxFences))
		return
	case f == nil:
		f = &fence{ranks: m.Ranks, need: need}
		h.fences[string(key)] = f
	case slices.Contains(f.servers, s):
		return // it has not left it
	}
	if h.held += len(m.Data); h.held > MaxSpace {
		h.fail(fmt.Sprintf("the tasks exchange more than %d MiB", MaxSpace>>20))
		return
	}
	f.data = append(f.data, m.Data...)
	f.servers = append(f.servers, s)
	if f.need -= mine; f.need > 0 {
		return
	}
	delete(h.fences, string(key))
	h.held -= len(f.data)
	end := &Message{Kind: FenceEnd, Ranks: f.ranks, Data: f.data}
	for _, s := range f.servers {
		s.tell(end)
	}
}

// ask passes a question on to the server that has the task; if that has not come, it is asked when it does.
func (h *Hub) ask(s *server, m *Message) {
	if s.asked >= MaxAsked {
		s.tell(&Message{Kind: Answer, ID: m.ID, Status: ErrResource})
		return
	}
	s.asked++
	h.asking++
	h.asked[h.asking] = question{by: s, id: m.ID, rank: m.Rank}
	if to := h.servers[h.of[m.Rank]]; to != nil {
		to.tell(&Message{Kind: Ask, ID: h.asking, Rank: m.Rank})
	}
}

// answer passes an answer back.
func (h *Hub) answer(id uint64, status int32, data []byte) {
	q := h.asked[id]
	delete(h.asked, id)
	q.by.asked--
	if len(data) > MaxAnswer {
		status, data = ErrResource, nil
	}
	q.by.tell(&Message{Kind: Answer, ID: q.id, Status: status, Data: data})
}

// Ended says that a task has ended. Its server knows what has come from it before, and says that it is gone.
func (h *Hub) Ended(rank int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known(rank) || h.tasks[rank].ended {
		return
	}
	h.tasks[rank].ended = true
	if s := h.servers[h.of[rank]]; s != nil {
		s.tell(&Message{Kind: Ended, Rank: rank})
	}
}

// left is a task that is gone.
func (h *Hub) left(rank int32) {
	t := &h.tasks[rank]
	if t.gone {
		return
	}
	t.gone = true
	switch {
	case t.connected && !t.finalized:
		h.fail(h.name(rank) + " ended between MPI_Init and MPI_Finalize")
	case !t.connected:
		h.absent = rank
	}
	h.look()
}

// look ends the step if some tasks wait in MPI_Init for one that is gone.
func (h *Hub) look() {
	if h.running > 0 && h.absent >= 0 {
		h.fail(fmt.Sprintf("%s ended, and %d of %d tasks wait for it in MPI_Init", h.name(h.absent), h.running, h.size))
	}
}

// said is a message's text, which a program may have written, as it is printed.
func said(m *Message) string { return strings.TrimSpace(plain.Line(m.Text)) }
