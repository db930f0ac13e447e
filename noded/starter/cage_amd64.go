package starter

import "golang.org/x/sys/unix"

// architecture is the one whose calls are looked at; calls from foreignCalls on are those of x32.
const (
	architecture = unix.AUDIT_ARCH_X86_64
	foreignCalls = 0x40000000
)

var deniedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM}
