package stepio

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LostAfter is how long a connection between a relay and its command may be cut off before both give it up: as long as
// a step waits for a node that can't be reached. A shorter cut only delays what tasks write.
const LostAfter = 60 * time.Second

// keepProbes is how many times an idle connection is tried within the time.
const keepProbes = 4

// Bound has the kernel give a TCP connection up when nothing of the other side has been heard for so long, in whole
// seconds of at least keepProbes: bytes that are not acknowledged, and where nothing is sent probes that aren't
// answered.
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
