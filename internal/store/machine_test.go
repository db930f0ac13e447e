package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledger is the state machine of these tests: it keeps all commands in order.
type ledger struct {
	mu       sync.Mutex
	lines    []string // never edited, only appended to: Freeze keeps a prefix
	seen     map[string]int
	last     uint64
	entries  int
	restores int
	block    chan struct{} // not nil: writing a frozen state waits for it
}

func newLedger() *ledger { return &ledger{seen: map[string]int{}} }

func (l *ledger) Apply(index uint64, cmds [][]byte) []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index <= l.last {
		panic(fmt.Sprintf("entry %d after %d", index, l.last))
	}
	l.last = index
	l.entries++
	out := make([]any, len(cmds))
	for i, c := range cmds {
		l.lines = append(l.lines, string(c))
		l.seen[string(c)]++
		out[i] = len(l.lines)
	}
	return out
}

func (l *ledger) Freeze() func(io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, last, block := l.lines, l.last, l.block
	return func(w io.Writer) error {
		if block != nil {
			<-block
		}
		return writeLedger(w, last, lines)
	}
}

func writeLedger(w io.Writer, last uint64, lines []string) error {
	b := binary.AppendUvarint(nil, last)
	b = binary.AppendUvarint(b, uint64(len(lines)))
	if _, err := w.Write(b); err != nil {
		return err
	}
	for _, s := range lines {
		if _, err := fmt.Fprintf(w, "%s\n", s); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) Restore(r io.Reader) error {
	br := bufio.NewReader(r)
	last, err := binary.ReadUvarint(br)
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(br)
	if err != nil {
		return err
	}
	var lines []string
	seen := map[string]int{}
	for range n {
		s, err := br.ReadString('\n')
		if err != nil {
			return err
		}
		s = strings.TrimSuffix(s, "\n")
		lines = append(lines, s)
		seen[s]++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.lines, l.seen = last, lines, seen
	l.restores++
	return nil
}

// snapshot gives the state's bytes without the index, because replicas may differ by an empty last entry.
func (l *ledger) snapshot() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	if err := writeLedger(&b, 0, l.lines); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

func (l *ledger) times(cmd string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[cmd]
}

// tcpLayer is a StreamLayer without TLS.
type tcpLayer struct{ net.Listener }

func (tcpLayer) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

func listen(t testing.TB, addr string) tcpLayer {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return tcpLayer{l}
}

// member is a voter of a test cluster and its machine.
type member struct {
	*Store
	peer    Peer
	machine *ledger
}

// group is a test cluster.
type group struct {
	t       testing.TB
	opts    Options
	peers   []Peer
	layers  map[string]tcpLayer
	members map[string]*member
	begun   bool // those who start empty don't begin a new cluster
	wrap    func(id string, l StreamLayer) StreamLayer
}

// newGroup prepares n voters, on TCP loopback or in opts.Net.
func newGroup(t testing.TB, n int, opts Options) *group {
	t.Helper()
	g := &group{t: t, opts: opts, layers: map[string]tcpLayer{}, members: map[string]*member{}}
	for i := range n {
		id := fmt.Sprintf("c%d", i+1)
		addr := id
		if opts.Net == nil {
			l := listen(t, "127.0.0.1:0")
			g.layers[id] = l
			addr = l.Addr().String()
		}
		g.peers = append(g.peers, Peer{id, addr})
	}
	return g
}

// start opens a voter; dir is kept from one start to the next.
func (g *group) start(p Peer, dir string) *member {
	g.t.Helper()
	o := g.opts
	o.ID, o.Peers, o.Dir, o.Begin = p.ID, g.peers, dir, !g.begun
	m := newLedger()
	if o.Machine == nil {
		o.Machine = m
	}
	if o.Net == nil {
		l, ok := g.layers[p.ID]
		if !ok {
			l = listen(g.t, p.Addr)
		}
		delete(g.layers, p.ID)
		o.Layer = l
		if g.wrap != nil {
			o.Layer = g.wrap(p.ID, l)
		}
	}
	s, err := Open(o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.members[p.ID] = &member{s, p, m}
	g.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			g.t.Errorf("closing %s: %v", p.ID, err)
		}
	})
	return g.members[p.ID]
}

func (g *group) startAll(base string) {
	g.t.Helper()
	for _, p := range g.peers {
		dir := ""
		if base != "" {
			dir = filepath.Join(base, p.ID)
		}
		g.start(p, dir)
	}
	g.joined()
}

// joined waits until all running voters have a vote.
func (g *group) joined() {
	g.t.Helper()
	await(g.t, "all voters to have joined", func() bool {
		for _, m := range g.members {
			if m.Joining() {
				return false
			}
		}
		return true
	})
	g.begun = true
}

// leader waits for a leader that can commit.
func (g *group) leader() *member {
	g.t.Helper()
	var found *member
	await(g.t, "a leader", func() bool {
		for _, m := range g.members {
			if m.IsLeader() && m.Barrier(short(g.t)) == nil {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// agree waits until all running voters have the same state, with n commands.
func (g *group) agree(n int) {
	g.t.Helper()
	await(g.t, fmt.Sprintf("%d commands on every voter", n), func() bool {
		for _, m := range g.members {
			if m.machine.count() != n {
				return false
			}
		}
		return true
	})
	var want []byte
	for _, m := range g.members {
		if got := m.machine.snapshot(); want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			g.t.Error("two voters with different states")
		}
	}
}

// patience is the longest time that a test waits for a condition.
const patience = 30 * time.Second

func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond) // between two checks of the condition
	}
}

// short is a context for one call to a store that may have lost its majority.
func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func propose(t testing.TB, s *Store, cmd string) int {
	t.Helper()
	r, err := s.Propose(context.Background(), []byte(cmd))
	if err != nil {
		t.Fatalf("proposing %s: %v", cmd, err)
	}
	return r.(int)
}

// proposeSomewhere finds the leader and tries until cmd is acknowledged, as a client does.
func (g *group) proposeSomewhere(cmd string) {
	g.t.Helper()
	await(g.t, "the command "+cmd+" to be taken", func() bool {
		for _, m := range g.members {
			_, err := m.Propose(short(g.t), []byte(cmd))
			if err == nil {
				return true
			}
			if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrLeadershipLost) && !errors.Is(err, ErrClosed) &&
				!errors.Is(err, context.DeadlineExceeded) {
				g.t.Fatal(err)
			}
		}
		return false
	})
}

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
