package stepio

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LostAfter is the longest interruption of a connection between a relay and its command before both close it: the time
// that a step waits for an unreachable node. A shorter one only delays the tasks' output.
const LostAfter = 60 * time.Second

// keepProbes is the number of keepalive probes of an idle connection within the time.
const keepProbes = 4

// Bound makes the kernel end a TCP connection when the peer has been silent for this time, in whole seconds, at least
// keepProbes: sent bytes stay unacknowledged or, if nothing is sent, probes stay unanswered.
func Bound(fd int, after time.Duration) error {
	each := max(1, int(after/time.Second)/keepProbes)
	for _, o := range [...]struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, each},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, each},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepProbes - 1},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after / time.Millisecond)},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}
