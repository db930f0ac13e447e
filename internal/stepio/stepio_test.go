package stepio

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// pair gives both ends of a connection.
func pair(t *testing.T, keyA, keyB []byte) (a, b *Conn, wire [2]net.Conn, errA, errB error) {
	t.Helper()
	wire[0], wire[1] = net.Pipe()
	t.Cleanup(func() { wire[0].Close(); wire[1].Close() })
	done := make(chan struct{})
	go func() {
		var node int32
		b, node, errB = Answer(wire[1], keyB)
		if errB == nil && node != 3 {
			t.Errorf("node %d, want 3", node)
		}
		if errB != nil {
			wire[1].Close()
		}
		close(done)
	}()
	a, errA = Hail(wire[0], keyA, 3)
	if errA != nil {
		wire[0].Close()
	}
	<-done
	return a, b, wire, errA, errB
}

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestBothWays sends frames of all sizes in both directions.
func TestBothWays(t *testing.T) {
	key := newKey(t)
	a, b, wire, errA, errB := pair(t, key, key)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		from, to := a, b
		if round%2 == 1 {
			from, to = b, a
		}
		data := make([]byte, rng.IntN(3*MaxData))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		go func() {
			if err := from.Write(2, int32(round), data); err != nil {
				t.Error(err)
			}
		}()
		var got []byte
		for {
			f, err := to.Read()
			if err != nil || f.Stream != 2 || f.Rank != int32(round) {
				t.Fatalf("round %d: %d.%d %v", round, f.Stream, f.Rank, err)
			}
			if got = append(got, f.Data...); len(got) >= len(data) {
				break
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("round %d: %d bytes differ", round, len(data))
		}
	}
	wire[0].Close()
	if _, err := b.Read(); err != io.EOF {
		t.Errorf("after the end: %v, want EOF", err)
	}
}

// TestStrangers checks that a peer with another key is refused before any data, and that a changed byte is detected.
func TestStrangers(t *testing.T) {
	_, _, _, errA, errB := pair(t, newKey(t), newKey(t))
	if errA == nil || errB == nil {
		t.Errorf("different keys: %v and %v, want errors", errA, errB)
	}
	key := newKey(t)
	a, b, wire, errA, errB := pair(t, key, key)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	spoiled := &spoiler{Conn: wire[0], at: 20}
	a.rw = spoiled
	go func() { _ = a.Write(1, 0, []byte("some output")) }() // the reader tells
	if _, err := b.Read(); err == nil {
		t.Error("a changed byte was not seen")
	}
}

// spoiler changes one written byte.
type spoiler struct {
	net.Conn
	at int
}

func (s *spoiler) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	b[s.at] ^= 1
	return s.Conn.Write(b)
}

// FuzzRead reads frames that were never sealed.
func FuzzRead(f *testing.F) {
	f.Add([]byte{30, 0, 0, 0, 1, 2, 3})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := newConn(bytes.NewBuffer(b), make([]byte, KeyBytes), []byte("a"), []byte("b"), true)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := c.Read(); err == nil {
			t.Fatalf("took %v", f)
		}
	})
}
