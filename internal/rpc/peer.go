package rpc

import (
	"fmt"
	"slices"
	"time"
)

// Peer is the identity of the other end: a local user, proven by the kernel, or a daemon, proven by its certificate.
// The zero Peer has no identity. Its fields are unexported, so that code that does not check the kind can't mistake a
// daemon for uid 0; only server.UnixPeer, pki.PeerOf and tests make one.
type Peer struct {
	kind peerKind
	user User
	role string
	name string
	cert Cert
}

// Cert is the certificate that a daemon has shown.
type Cert struct {
	Serial, Family string
	At, Until      time.Time
}

type peerKind uint8

const (
	nobody peerKind = iota
	localUser
	daemon
)

// User is a process on this host as the kernel described it when it connected. Groups are its supplementary groups;
// they are empty if the kernel is too old (before 4.13).
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	PID    int32
}

// InGroup reports whether the process had gid as its primary or a supplementary group.
func (u User) InGroup(gid uint32) bool { return u.GID == gid || slices.Contains(u.Groups, gid) }

// LocalPeer makes a peer from the kernel's description.
func LocalPeer(u User) Peer { return Peer{kind: localUser, user: u} }

// DaemonPeer makes a peer from the role and name of a verified certificate.
func DaemonPeer(role, name string) Peer { return Peer{kind: daemon, role: role, name: name} }

// With gives a daemon with its certificate.
func (p Peer) With(c Cert) Peer {
	p.cert = c
	return p
}

// Cert gives the certificate that a daemon has shown.
func (p Peer) Cert() Cert { return p.cert }

// User gives the local process; false if the peer isn't one.
func (p Peer) User() (User, bool) { return p.user, p.kind == localUser }

// Daemon gives the daemon's role and name; false if the peer isn't one.
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
