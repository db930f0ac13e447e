package server

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gbatch/internal/rpc"
)

// maxGroups is the most supplementary groups a process can have (NGROUPS_MAX, since Linux 2.6.4).
const maxGroups = 65536

// UnixPeer asks the kernel which process is at the other end of a unix socket. The answer describes the process at the
// time of connect, even if it later changes its uid or passes the socket on.
func UnixPeer(nc net.Conn) (rpc.Peer, error) {
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return rpc.Peer{}, fmt.Errorf("asking for the peer of a %T: it is no unix socket", nc)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return rpc.Peer{}, fmt.Errorf("asking for the peer of a unix socket: %w", err)
	}
	var u rpc.User
	var askErr error
	if err := raw.Control(func(fd uintptr) { u, askErr = peerUser(int(fd)) }); err != nil {
		return rpc.Peer{}, fmt.Errorf("asking for the peer of a unix socket: %w", err)
	}
	if askErr != nil {
		return rpc.Peer{}, fmt.Errorf("asking for the peer of a unix socket: %w", askErr)
	}
	return rpc.LocalPeer(u), nil
}

func peerUser(fd int) (rpc.User, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return rpc.User{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	if cred.Uid == ^uint32(0) {
		return rpc.User{}, fmt.Errorf("the kernel names no peer")
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return rpc.User{}, err
	}
	return rpc.User{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid, Groups: groups}, nil
}

// peerGroups is the supplementary groups, nil on a kernel before 4.13. The kernel says how much room they need.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		n := int(size / 4)
		switch {
		case errno == 0:
			return groups[:n:n], nil
		case errno == syscall.ENOPROTOOPT:
			return nil, nil
		case errno == syscall.ERANGE && n > len(groups) && n <= maxGroups:
			groups = make([]uint32, n)
		default:
			return nil, os.NewSyscallError("getsockopt SO_PEERGROUPS", errno)
		}
	}
}
