package pmi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"gbatch/internal/stepio"
)

// world is a step of tasks on nodes, with its hub and servers in this process.
type world struct {
	t     *testing.T
	tasks []net.Conn // by rank
	ended chan string
	notes chan string
}

func newWorld(t *testing.T, nodes, perNode int) *world {
	w := &world{t: t, ended: make(chan string, 1), notes: make(chan string, 32)}
	size := nodes * perNode
	hub := NewHub(size, func(r int32) string { return fmt.Sprintf("task %d", r) }, func(s string) { w.ended <- s },
		func(s string) { w.notes <- s })
	key, err := stepio.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	where := make([]int, size)
	for r := range where {
		where[r] = r / perNode
	}
	for n := range nodes {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = here.Close() }) // ends both sides
		all.Go(func() {
			c, _, err := stepio.Answer(here, key)
			if err == nil {
				hub.Talk(c)
			}
		})
		c, err := stepio.Hail(there, key, int32(n))
		if err != nil {
			t.Fatal(err)
		}
		l := NewLocal(Job{ID: "7.0", Size: size, Mapping: Mapping(where)}, perNode, c)
		all.Go(func() { _ = l.Listen() })
		for i := range perNode {
			mine, its := net.Pipe()
			w.tasks = append(w.tasks, mine)
			all.Go(func() { l.Serve(int32(n*perNode+i), its) })
		}
	}
	t.Cleanup(func() {
		for _, c := range w.tasks {
			_ = c.Close() // it may be closed
		}
	})
	return w
}

// one is a program of PMI-1.
type one struct {
	w io.ReadWriter
	r *bufio.Reader
}

func (p *one) ask(format string, args ...any) (message, error) {
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil {
		return nil, err
	}
	return readLine(p.r)
}

func ringOne(c net.Conn, rank, size int) error {
	p := &one{c, bufio.NewReaderSize(c, maxLine)}
	if m, err := p.ask("cmd=init pmi_version=1 pmi_subversion=1"); err != nil || m["rc"] != "0" {
		return fmt.Errorf("init: %v %w", m, err)
	}
	for round := range 3 {
		m, err := p.ask("cmd=put kvsname=7.0 key=k%d-%d value=at %d of round %d", rank, round, rank, round)
		if err != nil || m["rc"] != "0" {
			return fmt.Errorf("put: %v %w", m, err)
		}
		if m, err := p.ask("cmd=barrier_in"); err != nil || m["cmd"] != "barrier_out" {
			return fmt.Errorf("barrier: %v %w", m, err)
		}
		for other := range size {
			m, err := p.ask("cmd=get kvsname=7.0 key=k%d-%d", other, round)
			if want := fmt.Sprintf("at %d of round %d", other, round); err != nil || m["value"] != want {
				return fmt.Errorf("task %d got %q of task %d: %w", rank, m["value"], other, err)
			}
		}
	}
	m, err := p.ask("cmd=finalize")
	if err != nil || m["cmd"] != "finalize_ack" {
		return fmt.Errorf("finalize: %v %w", m, err)
	}
	return c.Close()
}

// ringTwo is a program of PMI-2.
func ringTwo(c net.Conn, rank, size int) error {
	r := bufio.NewReader(c)
	if _, err := io.WriteString(c, "cmd=init pmi_version=2 pmi_subversion=0\n"); err != nil {
		return err
	}
	if m, err := readLine(r); err != nil || m["pmi_version"] != "2" {
		return fmt.Errorf("init: %v %w", m, err)
	}
	ask := func(words ...string) (message, error) {
		if _, err := c.Write(pairs(append(words, "thrid", "5")...)); err != nil {
			return nil, err
		}
		m, err := readMessage(r)
		if err == nil && (m["cmd"] != words[1]+"-response" || m["thrid"] != "5") {
			err = fmt.Errorf("the answer to %s is %v", words[1], m)
		}
		return m, err
	}
	if m, err := ask("cmd", "fullinit", "pmirank", fmt.Sprint(rank)); err != nil || m["rank"] != fmt.Sprint(rank) ||
		m["size"] != fmt.Sprint(size) {
		return fmt.Errorf("fullinit: %v %w", m, err)
	}
	if _, err := ask("cmd", "kvs-put", "key", fmt.Sprint("k", rank), "value", fmt.Sprintf("a;b;;%d", rank)); err != nil {
		return err
	}
	if _, err := ask("cmd", "kvs-fence"); err != nil {
		return err
	}
	for other := range size {
		m, err := ask("cmd", "kvs-get", "jobid", "7.0", "srcid", "-1", "key", fmt.Sprint("k", other))
		if err != nil || m["found"] != "TRUE" || m["value"] != fmt.Sprintf("a;b;;%d", other) {
			return fmt.Errorf("get: %v %w", m, err)
		}
	}
	if rank%2 == 0 {
		if _, err := ask("cmd", "info-putnodeattr", "key", fmt.Sprint("n", rank), "value", "here"); err != nil {
			return err
		}
	} else if m, err := ask("cmd", "info-getnodeattr", "key", fmt.Sprint("n", rank-1), "wait", "TRUE"); err != nil ||
		m["value"] != "here" {
		return fmt.Errorf("node's attribute: %v %w", m, err)
	}
	if m, err := ask("cmd", "info-getjobattr", "key", "PMI_process_mapping"); err != nil ||
		!strings.HasPrefix(m["value"], "(vector,") {
		return fmt.Errorf("job's attribute: %v %w", m, err)
	}
	if m, err := ask("cmd", "kvs-get", "key", "nothing"); err != nil || m["found"] != "FALSE" {
		return fmt.Errorf("a missing key: %v %w", m, err)
	}
	if m, err := ask("cmd", "spawn", "ncmds", "1"); err != nil || m["rc"] == "0" {
		return fmt.Errorf("spawn: %v %w", m, err)
	}
	if _, err := ask("cmd", "finalize"); err != nil {
		return err
	}
	return c.Close()
}

// TestRings: what is put before a fence is there for all behind it, in both protocols.
func TestRings(t *testing.T) {
	for name, ring := range map[string]func(net.Conn, int, int) error{"1": ringOne, "2": ringTwo} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, 4)
			errs := make(chan error, len(w.tasks))
			for rank, c := range w.tasks {
				go func() { errs <- ring(c, rank, len(w.tasks)) }()
			}
			for range w.tasks {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			select {
			case s := <-w.ended:
				t.Errorf("the step was ended: %s", s)
			default:
			}
		})
	}
}

// TestDeath: a fence whose task has ended ends the step, whichever comes first.
func TestDeath(t *testing.T) {
	for _, first := range []string{"fence", "death"} {
		w := newWorld(t, 2, 2)
		die := func() { _ = w.tasks[3].Close() } // the other side sees it
		if first == "death" {
			die()
		}
		for _, c := range w.tasks[:3] {
			go func() {
				p := &one{c, bufio.NewReader(c)}
				_, _ = p.ask("cmd=init pmi_version=1 pmi_subversion=1")
				_, _ = p.ask("cmd=barrier_in") // the test's end ends it
			}()
		}
		if first == "fence" {
			p := &one{w.tasks[3], bufio.NewReader(w.tasks[3])}
			if _, err := p.ask("cmd=init pmi_version=1 pmi_subversion=1"); err != nil {
				t.Fatal(err)
			}
			die()
		}
		if s := <-w.ended; !strings.HasPrefix(s, "task 3 ended, and ") || !strings.HasSuffix(s, " wait for it in a fence") {
			t.Errorf("%s first: %q", first, s)
		}
	}
}

// TestAbortAndSpawn: a program that aborts ends the step; one that would start others is refused with a sentence.
func TestAbortAndSpawn(t *testing.T) {
	w := newWorld(t, 1, 2)
	p := &one{w.tasks[0], bufio.NewReader(w.tasks[0])}
	if _, err := p.ask("cmd=init pmi_version=1 pmi_subversion=1"); err != nil {
		t.Fatal(err)
	}
	m, err := p.ask("mcmd=spawn\nnprocs=1\nexecname=/bin/true\ntotspawns=1\nspawnssofar=1\nargcnt=0\nendcmd")
	if err != nil || m["rc"] == "0" {
		t.Fatalf("%v %v", m, err)
	}
	if s := <-w.notes; s != "task 0: "+noSpawn {
		t.Errorf("%q", s)
	}
	if m, err = p.ask("cmd=put kvsname=7.0 key=%s value=x", strings.Repeat("k", MaxKey+1)); err != nil || m["rc"] == "0" {
		t.Errorf("a long key: %v %v", m, err)
	}
	m, err = p.ask("cmd=put kvsname=7.0 key=k value=%s", strings.Repeat("v", MaxValue+1))
	if err != nil || m["rc"] == "0" {
		t.Errorf("a long value: %v %v", m, err)
	}
	if _, err := io.WriteString(p.w, "cmd=abort exitcode=5\n"); err != nil {
		t.Fatal(err)
	}
	if s := <-w.ended; s != "task 0 aborted: exit code 5" {
		t.Errorf("%q", s)
	}
}

// TestFull: the space has a limit.
func TestFull(t *testing.T) {
	s := space{bytes: MaxSpace - 20}
	if s.put("abc", "def") != nil || s.put("abcd", "defghi") == nil || s.put("abc", "xyz") != nil {
		t.Error("the limit does not hold")
	}
	if s.putAll([]byte{1, 0, 0, 0, 9, 0, 0, 0, 'a'}) == nil || s.putAll([]byte{1}) == nil {
		t.Error("pairs that are cut off are taken")
	}
}

func TestMapping(t *testing.T) {
	for want, nodes := range map[string][]int{
		"(vector,(0,2,2))":         {0, 0, 1, 1},
		"(vector,(0,2,1))":         {0, 1},
		"(vector,(0,1,3),(1,1,1))": {0, 0, 0, 1},
		"(vector,(0,1,2))":         {0, 0},
	} {
		if got := Mapping(nodes); got != want {
			t.Errorf("%v: %s, want %s", nodes, got, want)
		}
	}
	// Whatever the form, it gives each task its node.
	for _, nodes := range [][]int{{0, 1, 0, 1}, {0, 1, 1}, {0, 1, 2, 0, 1, 2}, {1, 0, 1}, {0, 1, 0, 1, 0},
		{2, 2, 0, 1, 1}} {
		if got := unmap(t, Mapping(nodes), len(nodes)); fmt.Sprint(got) != fmt.Sprint(nodes) {
			t.Errorf("%v: %s means %v", nodes, Mapping(nodes), got)
		}
	}
	wild := make([]int, 4096)
	for i := range wild {
		wild[i] = i * i % 97
	}
	if Mapping(wild) != "" {
		t.Error("a mapping is longer than a value may be")
	}
}

// unmap reads a mapping as MPICH does: the blocks are repeated until each task has a node.
func unmap(t *testing.T, text string, size int) []int {
	var out []int
	for len(out) < size {
		rest := strings.TrimPrefix(text, "(vector")
		for strings.HasPrefix(rest, ",(") {
			var node, nodes, tasks int
			if _, err := fmt.Sscanf(rest, ",(%d,%d,%d)", &node, &nodes, &tasks); err != nil {
				t.Fatal(err)
			}
			for n := range nodes {
				for range tasks {
					out = append(out, node+n)
				}
			}
			rest = rest[strings.Index(rest, ")")+1:]
		}
	}
	return out[:size]
}

// FuzzTask: no message of a program makes the server panic.
func FuzzTask(f *testing.F) {
	f.Add("cmd=init pmi_version=1\ncmd=get key=a\ncmd=put key=a value=b\nmcmd=spawn\nendcmd\ncmd=get key=a\n")
	f.Add("cmd=init pmi_version=2\n    13cmd=fullinit;    20cmd=kvs-get;key=a;;b;")
	f.Fuzz(func(t *testing.T, in string) {
		if strings.Contains(in, "barrier_in") || strings.Contains(in, "kvs-fence") || strings.Contains(in, "getnodeattr") {
			return // it would wait
		}
		l := NewLocal(Job{ID: "1.0", Size: 2}, 1, nobody{})
		l.Serve(0, struct {
			io.Reader
			io.Writer
		}{strings.NewReader(in), io.Discard})
	})
}

type nobody struct{}

func (nobody) Read() (stepio.Frame, error)      { return stepio.Frame{}, io.EOF }
func (nobody) Write(uint8, int32, []byte) error { return nil }
