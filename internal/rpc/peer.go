package rpc

import (
	"fmt"
	"slices"
)

// Peer is who is at the other end: a local user, proven by the kernel, or a daemon, proven by its certificate. The
// zero Peer is nobody. Its fields are closed so that code that has not asked which of the two it is cannot take a
// daemon for uid 0; only server.UnixPeer and pki.PeerOf make one, and tests.
type Peer struct {
	kind peerKind
	user User
	role string
	name string
}

type peerKind uint8

const (
	nobody peerKind = iota
	localUser
	daemon
)

// User is a process on this host as the kernel described it when it connected. Groups are its supplementary groups;
// they are empty where the kernel is too old to tell (before 4.13).
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	PID    int32
}

// InGroup reports whether the process had gid as its primary or a supplementary group.
func (u User) InGroup(gid uint32) bool { return u.GID == gid || slices.Contains(u.Groups, gid) }

// LocalPeer is a peer whose identity the kernel gave.
func LocalPeer(u User) Peer { return Peer{kind: localUser, user: u} }

// DaemonPeer is a peer whose role and name come from a verified certificate.
func DaemonPeer(role, name string) Peer { return Peer{kind: daemon, role: role, name: name} }

// User is the local process, and false where the peer isn't one.
func (p Peer) User() (User, bool) { return p.user, p.kind == localUser }

// Daemon is the daemon's role and name, and false where the peer isn't one.
func (p Peer) Daemon() (role, name string, ok bool) { return p.role, p.name, p.kind == daemon }

// String names the peer for logs: "uid 1000 pid 4711" or "node n1".
func (p Peer) String() string {
	switch p.kind {
	case localUser:
		return fmt.Sprintf("uid %d pid %d", p.user.UID, p.user.PID)
	case daemon:
		return p.role + " " + p.name
	}
	return "unknown peer"
}
