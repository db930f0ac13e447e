package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gbatch/internal/golden"
)

func req(n, size int) *request {
	r := &request{done: make(chan outcome, 1), bytes: n * size}
	for range n {
		r.cmds = append(r.cmds, make([]byte, size))
	}
	return r
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for range queueCommands {
			if err := q.push(t.Context(), req(1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		late := make(chan error)
		go func() { late <- q.push(ctx, req(1, 1)) }()
		synctest.Wait() // it waits for room
		why := errors.New("the client went away")
		cancel(why)
		if err := <-late; !errors.Is(err, ErrQueueFull) || !errors.Is(err, why) {
			t.Errorf("a full queue: %v", err)
		}
		go func() { late <- q.push(t.Context(), req(1, 1)) }()
		synctest.Wait()
		if got := len(q.take()); got != entryCommands {
			t.Errorf("took %d", got)
		}
		if err := <-late; err != nil {
			t.Errorf("after room was made: %v", err)
		}
		if got := q.len(); got != queueCommands-entryCommands+1 {
			t.Errorf("%d are left", got)
		}
		r := req(1, 1)
		if err := q.push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if !q.withdraw(r) || q.withdraw(r) {
			t.Error("a request can be withdrawn once")
		}
		q.close()
		if err := q.push(t.Context(), req(1, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("push after close: %v", err)
		}
		if q.take() != nil || q.len() != 0 {
			t.Error("a closed queue holds something")
		}
	})
}

func TestQueueCutsEntries(t *testing.T) {
	for name, c := range map[string]struct {
		in   []*request
		want []int // requests in each entry
	}{
		"by count":          {[]*request{req(500, 1), req(12, 1), req(1, 1)}, []int{2, 1}},
		"by bytes":          {[]*request{req(1, entryBytes-1), req(1, 1), req(1, 1)}, []int{2, 1}},
		"large one alone":   {[]*request{req(1, 1), req(1, 4*entryBytes), req(1, 1)}, []int{1, 1, 1}},
		"large batch alone": {[]*request{req(3*entryCommands, 1), req(1, 1)}, []int{1, 1}},
	} {
		q := newQueue()
		for _, r := range c.in {
			if err := q.push(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		var got []int
		for q.len() > 0 {
			got = append(got, len(q.take()))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestContextWhileWaiting checks that a caller that gives up in the queue learns that its command was not applied.
func TestContextWhileWaiting(t *testing.T) {
	g := newGroup(t, 1, Options{Net: NewMemNet()})
	m := g.start(g.peers[0], "")
	g.leader()
	// Stop the machine, so that entries pile up: some in flight, the rest in the queue.
	m.machine.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var unknown, never []string
	for i := range 20 {
		wg.Go(func() {
			cmd := fmt.Sprint("cmd", i)
			_, err := m.Propose(ctx, []byte(cmd))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrQueueFull) && errors.Is(err, context.Canceled):
				never = append(never, cmd)
			case errors.Is(err, context.Canceled):
				unknown = append(unknown, cmd)
			default:
				t.Errorf("%s: %v", cmd, err)
			}
		})
		await(t, "the command to be in the queue or in flight", func() bool {
			return int(m.commands.Load())+m.queue.len() == i+1
		})
	}
	cancel()
	wg.Wait()
	m.machine.mu.Unlock()
	if err := m.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d withdrawn, %d in flight", len(never), len(unknown))
	if len(never) < 10 {
		t.Errorf("only %d of 20 could be withdrawn", len(never))
	}
	for _, c := range never {
		if m.machine.times(c) != 0 {
			t.Errorf("%s was said never to be applied, and was", c)
		}
	}
}

func TestEntryGolden(t *testing.T) {
	var b bytes.Buffer
	for _, cmds := range [][][]byte{{{}}, {[]byte("a")}, {[]byte("submit"), {}, bytes.Repeat([]byte{0xff}, 200)}} {
		enc := encodeEntry([]*request{{cmds: cmds}})
		fmt.Fprintf(&b, "%d commands: % x\n", len(cmds), enc)
	}
	golden.Compare(t, "testdata/entry.txt", b.Bytes())
}

func TestBrokenEntries(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      "empty",
		"\x02\x01\x00":                          "version 2",
		"\x01":                                  "broken number",
		"\x01\x00":                              "0 commands",
		"\x01\x05\x00":                          "5 commands in 1 bytes",
		"\x01\x01\x05ab":                        "command 0 of 1 has 5 bytes, 2 are left",
		"\x01\x01\x01ab":                        "1 bytes after the last command",
		"\x01\xff\xff\xff\xff\x0f":              "commands in 0 bytes",
		"\x01\x01" + strings.Repeat("\xff", 11): "broken number",
	} {
		if _, err := decodeEntry([]byte(in)); !errors.Is(err, errEntry) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte("\x01\x02\x01a\x00"))
	f.Add([]byte("\x01\xff\xff\xff\xff\x0f\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		cmds, err := decodeEntry(b)
		if err != nil {
			return
		}
		r := &request{cmds: cmds}
		again, err := decodeEntry(encodeEntry([]*request{r}))
		if err != nil || !slices.EqualFunc(cmds, again, bytes.Equal) {
			t.Fatalf("%q came back as %q, %v", cmds, again, err)
		}
	})
}
