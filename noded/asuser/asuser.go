// Package asuser lets a daemon that runs as root do something with a user's rights to files: the
// kernel then decides what the user may see, links included.
//
// In Linux rights belong to threads. The goroutine that takes them locks its thread and ends
// with it, so no other goroutine ever runs with these rights. within.go bounds how long the daemon
// waits for such a goroutine, and how many there are.
package asuser

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OnThread gives a user's rights to files to the calling thread only. The goroutine must have locked the thread, and
// end with it.
func OnThread(uid, gid uint32, groups []uint32) error {
	var list unsafe.Pointer
	if len(groups) > 0 {
		list = unsafe.Pointer(&groups[0])
	}
	// The raw calls act on this thread; package syscall's would act on all.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(list), 0); errno != 0 {
		return fmt.Errorf("take the groups of uid %d: %w", uid, errno)
	}
	return Files(uid, gid)
}

// Files sets the ids by which the kernel decides about files for the calling thread: root's again with 0, 0.
func Files(uid, gid uint32) error {
	// These two answer with the old value and never fail visibly: asking again shows what holds.
	for _, id := range [...]struct {
		call uintptr
		want uint32
		name string
	}{{unix.SYS_SETFSGID, gid, "gid"}, {unix.SYS_SETFSUID, uid, "uid"}} {
		_, _, _ = unix.RawSyscall(id.call, uintptr(id.want), 0, 0)
		if got, _, _ := unix.RawSyscall(id.call, ^uintptr(0), 0, 0); uint32(got) != id.want {
			return fmt.Errorf("take the %s %d for files: the kernel leaves it at %d", id.name, id.want, uint32(got))
		}
	}
	return nil
}
