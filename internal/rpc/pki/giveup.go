package pki

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// GiveUpAfter makes the kernel end a TCP connection, TLS or not, if sent bytes stay unacknowledged for d: a peer whose
// host died sends no FIN. It does nothing for other connections.
func GiveUpAfter(nc net.Conn, d time.Duration) error {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	})
	return errors.Join(err, serr)
}
