package pmix

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gbatch/internal/stepio"
)

// pipe is one end of a connection in memory.
type pipe struct {
	in  <-chan stepio.Frame
	out chan<- stepio.Frame
}

func (p *pipe) Read() (stepio.Frame, error) {
	f, ok := <-p.in
	if !ok {
		return f, io.EOF
	}
	return f, nil
}

func (p *pipe) Write(stream uint8, rank int32, data []byte) error {
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), stepio.MaxData)
		p.out <- stepio.Frame{Stream: stream, Rank: rank, Data: bytes.Clone(data[:n])}
		data = data[n:]
	}
	return nil
}

func pipes() (a, b *pipe) {
	x, y := make(chan stepio.Frame, 64), make(chan stepio.Frame, 64)
	return &pipe{x, y}, &pipe{y, x}
}

// step is a hub of three nodes with two tasks each.
type step struct {
	t          *testing.T
	h          *Hub
	ends, said chan string
}

func newStep(t *testing.T) *step {
	s := &step{t: t, ends: make(chan string, 4), said: make(chan string, 4)}
	plan := &Plan{Space: "x", Job: "1.0"}
	for i := range int32(3) {
		plan.Nodes = append(plan.Nodes, Node{Name: fmt.Sprintf("n%d", i+1), Ranks: []int32{2 * i, 2*i + 1}})
	}
	s.h = NewHub(plan, func(r int32) string { return fmt.Sprintf("task %d", r) }, func(text string) { s.ends <- text },
		func(text string) { s.said <- text })
	return s
}

// join makes a node's server come.
func (s *step) join(node int32) *pipe {
	s.t.Helper()
	mine, its := pipes()
	go s.h.Talk(its)
	s.say(mine, &Message{Kind: Hello, Ranks: []int32{2 * node, 2*node + 1}})
	if m := s.hear(mine, Start); m.Rank != node || len(m.Plan.Nodes) != 3 {
		s.t.Fatalf("the plan is %+v", m)
	}
	return mine
}

func (s *step) say(c *pipe, m *Message) {
	s.t.Helper()
	if err := Send(c, m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *step) hear(c *pipe, want Kind) *Message {
	s.t.Helper()
	m, err := Receive(c)
	if err != nil || m.Kind != want {
		s.t.Fatalf("got %+v, %v; want a message of kind %d", m, err, want)
	}
	return m
}

// ended waits for the sentence that ends the step.
func (s *step) ended(want string) {
	s.t.Helper()
	select {
	case got := <-s.ends:
		if !strings.Contains(got, want) {
			s.t.Errorf("the step ends with %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		s.t.Errorf("the step does not end with %q", want)
	}
}

// TestFence checks that a fence ends with the data of all its tasks, and that fences of other tasks go on beside it.
func TestFence(t *testing.T) {
	s := newStep(t)
	a, b, c := s.join(0), s.join(1), s.join(2)
	big := bytes.Repeat([]byte("b"), 3*stepio.MaxData)
	s.say(a, &Message{Kind: Fence, Data: []byte("a")})
	s.say(a, &Message{Kind: Fence, Ranks: []int32{1, 2}, Data: []byte("1")})
	s.say(b, &Message{Kind: Fence, Ranks: []int32{1, 2}, Data: []byte("2")})
	for _, x := range []*pipe{a, b} {
		if m := s.hear(x, FenceEnd); len(m.Data) != 2 || len(m.Ranks) != 2 {
			t.Errorf("the fence of two tasks ends with %+v", m)
		}
	}
	s.say(b, &Message{Kind: Fence, Data: big})
	s.say(c, &Message{Kind: Fence, Data: []byte("c")})
	for _, x := range []*pipe{a, b, c} {
		if m := s.hear(x, FenceEnd); len(m.Data) != len(big)+2 || len(m.Ranks) != 0 {
			t.Errorf("the fence of all ends with %d bytes of %v", len(m.Data), m.Ranks)
		}
	}
	if s.h.held != 0 || len(s.h.fences) != 0 {
		t.Errorf("%d fences with %d bytes are left", len(s.h.fences), s.h.held)
	}
}

// TestAsk checks that a question is answered, also by a server that comes later, and when a server is lost.
func TestAsk(t *testing.T) {
	s := newStep(t)
	a := s.join(0)
	s.say(a, &Message{Kind: Ask, ID: 7, Rank: 3})
	b := s.join(1)
	q := s.hear(b, Ask)
	if q.Rank != 3 {
		t.Fatalf("asked %+v", q)
	}
	s.say(b, &Message{Kind: Answer, ID: q.ID, Data: []byte("three")})
	if m := s.hear(a, Answer); m.ID != 7 || m.Status != 0 || string(m.Data) != "three" {
		t.Errorf("answered %+v", m)
	}
	s.say(a, &Message{Kind: Ask, ID: 8, Rank: 2})
	s.hear(b, Ask)
	close(b.out)
	if m := s.hear(a, Answer); m.ID != 8 || m.Status != ErrNotFound {
		t.Errorf("after the server's end: %+v", m)
	}
}

// TestEnds checks the sentences with which steps end.
func TestEnds(t *testing.T) {
	begin := func(s *step, c *pipe, ranks ...int32) {
		for _, r := range ranks {
			s.say(c, &Message{Kind: Connected, Rank: r})
		}
	}
	for _, test := range []struct {
		name, want string
		do         func(s *step, a, b *pipe)
	}{
		{"abort", "task 1 aborted: exit code 5", func(s *step, a, b *pipe) {
			s.say(a, &Message{Kind: Abort, Rank: 1, Status: 5, Text: "N/A"})
		}},
		{"early", "task 2 ended between MPI_Init and MPI_Finalize", func(s *step, a, b *pipe) {
			begin(s, b, 2, 3)
			s.h.Ended(2)
			s.hear(b, Ended)
			s.say(b, &Message{Kind: Gone, Rank: 2})
		}},
		{"absent", "task 3 ended, and 1 of 6 tasks wait for it in MPI_Init", func(s *step, a, b *pipe) {
			s.say(b, &Message{Kind: Gone, Rank: 3})
			begin(s, b, 2)
		}},
		{"library", "node n2: no library", func(s *step, a, b *pipe) {
			s.say(b, &Message{Kind: Fail, Text: "no library"})
		}},
		{"lost", "node n2: the step's PMIx server there (gnoded step-pmix) has ended before its tasks",
			func(s *step, a, b *pipe) {
				s.say(b, &Message{Kind: Gone, Rank: 2})
				close(b.out)
			}},
		{"twice", "its gnoded was restarted", func(s *step, a, b *pipe) {
			mine, its := pipes()
			go s.h.Talk(its)
			s.say(mine, &Message{Kind: Hello, Ranks: []int32{1}})
		}},
		{"old", "older version", func(s *step, a, b *pipe) {
			mine, its := pipes()
			go s.h.Talk(its)
			_ = mine.Write(11, stepio.AllRanks, nil)
		}},
		{"others' tasks", "task 4 aborted", func(s *step, a, b *pipe) {
			s.say(a, &Message{Kind: Abort, Rank: 4}) // is not a's
			s.say(a, &Message{Kind: Abort, Rank: 17})
			s.say(a, &Message{Kind: Fence, Ranks: []int32{-3}})
			c := s.join(2)
			s.say(c, &Message{Kind: Abort, Rank: 4})
		}},
		{"no end", "task 0 aborted", func(s *step, a, b *pipe) {
			begin(s, a, 0, 1)
			s.say(a, &Message{Kind: Finalized, Rank: 1})
			s.say(a, &Message{Kind: Gone, Rank: 1})
			s.say(a, &Message{Kind: Note, Rank: 0, Text: "a\nnote"})
			if got := <-s.said; got != "task 0: a?note" {
				s.t.Errorf("said %q", got)
			}
			s.say(a, &Message{Kind: Abort, Rank: 0})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStep(t)
			test.do(s, s.join(0), s.join(1))
			s.ended(test.want)
		})
	}
}

// TestReceive checks that no input is taken for a message that is none.
func TestReceive(t *testing.T) {
	for _, data := range [][]byte{nil, {1}, {0xff, 0xff, 0xff, 0xff}, {1, 0, 0, 0, 1, 2}, {2, 0, 0, 0, 0xff, 0xff}} {
		a, b := pipes()
		_ = a.Write(stream, stepio.AllRanks, data)
		close(a.out)
		if m, err := Receive(b); err == nil {
			t.Errorf("% x is %+v", data, m)
		}
	}
}
