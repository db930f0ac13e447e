package noded

import "testing"

// TestPeerHost: only where all controllers are on the loopback, other hosts can't reach a node.
func TestPeerHost(t *testing.T) {
	for _, x := range []struct {
		want        string
		controllers []string
	}{
		{"127.0.0.1", []string{"127.0.0.1:6817"}},
		{"127.0.0.1", []string{"localhost:6817", "127.0.0.1:1", "127.0.0.2:1"}},
		{"", []string{"127.0.0.1:6817", "10.0.0.2:6817"}},
		{"", []string{"ctl1:6817"}},
		{"", []string{"[::1]:6817"}}, // connections come from there, and not from 127.0.0.1
		{"", []string{"127.0.0.1"}},
	} {
		if got := peerHost(x.controllers); got != x.want {
			t.Errorf("%v: %q, want %q", x.controllers, got, x.want)
		}
	}
}
