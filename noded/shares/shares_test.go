package shares

import (
	"fmt"
	"testing"
)

// TestOneUsersConnections: a user who opens as many connections as the node takes, and sends as much as it takes, has
// a part of them: another user's step begins, and the node's memory stays within bounds.
func TestOneUsersConnections(t *testing.T) {
	own := New(4096)
	greedy, modest := Owner{UID: 1000}, Owner{UID: 1001}
	n := 0
	for own.Conns.Take(greedy, 1) == nil {
		n++
	}
	if n == 0 || own.Conns.Take(modest, 1) != nil {
		t.Errorf("beside %d connections of one user there is none for another", n)
	}
	mem := int64(0)
	for own.Memory.Take(greedy, 1<<20) == nil {
		mem += 1 << 20
	}
	if mem > stepBytesOne || own.Memory.Take(modest, 8<<20) != nil {
		t.Errorf("one user has %d bytes of messages, and another finds no room", mem)
	}
	for fd := int64(1024); fd <= 1<<20; fd *= 4 {
		s := New(fd)
		use := int64(s.Local)
		for _, take := range []func() error{func() error { return s.Conns.Take(Owner{}, 1) },
			func() error { return s.Files.Take(Owner{}, 1) }, func() error { return s.Peers.Take(fmt.Sprint(use), 1) }} {
			for take() == nil {
				use++
			}
		}
		if use > fd*7/8 {
			t.Errorf("of %d descriptors others may take %d", fd, use)
		}
	}
}
