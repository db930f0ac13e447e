package starter

import "golang.org/x/sys/unix"

// architecture is the one whose calls are looked at; there are no calls from foreignCalls on.
const (
	architecture = unix.AUDIT_ARCH_AARCH64
	foreignCalls = 0x40000000
)

var deniedHere []uint32
