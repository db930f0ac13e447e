package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"
)

// Machine is the replicated state machine; its owner implements it.
type Machine interface {
	// Apply applies the commands of one committed log entry, in order, and returns one result for each. It is called
	// from one goroutine. It must not change the commands' bytes, and must copy bytes that it keeps (they share the
	// memory of the whole entry).
	Apply(index uint64, cmds [][]byte) []any

	// Freeze returns a function that writes the state as it is now. No Apply runs during Freeze, so it must be quick
	// (copy a pointer); the returned function runs concurrently with later Applies. If it or the writer fails, the
	// snapshot is abandoned: the log is kept, and a later snapshot is tried.
	Freeze() (write func(io.Writer) error)

	// Restore replaces the whole state by a snapshot's. It is called from Open, and later from the goroutine of Apply
	// when a leader sends its snapshot.
	Restore(r io.Reader) error
}

// StreamLayer makes the controllers' connections: a bound listener, and a method to dial others.
type StreamLayer interface {
	net.Listener
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// Peer is one voter.
type Peer struct {
	ID   string // name of the controller; never changes
	Addr string // address for the other voters; may change between restarts
}

// Options are the options of a store. ID, Peers, Machine and one of Layer and Net are required.
type Options struct {
	ID  string // this voter; one of Peers
	Dir string // log and snapshots; made if missing, mode 0700. May be empty with Net: then nothing is durable

	// Peers are the controllers that the configuration names. A log knows the members better (members.go): then these are
	// their addresses, which may have changed. A new log begins with these as its voters.
	Peers []Peer

	// If the directory is empty, the voter gets everything from the others, and neither votes nor leads before that
	// (join.go). With Begin, or if there is a file BeginFile, it begins a new cluster when all others are empty too; the
	// file is then removed. A single voter without either refuses to start empty.
	Begin     bool
	BeginFile string

	Layer   StreamLayer // owned by the store: Close closes it, and so does Open if it fails
	Net     *MemNet     // replaces Layer in tests: no sockets
	Machine Machine
	Logger  *slog.Logger // nil: nothing is logged

	// Broken is told of damage on the disk that is found after Open. Raft can't go on then and would end the process
	// with a panic; Broken may end it in a better way. nil: the panic.
	Broken func(error)

	// Wrote is told how long each write of the log to the disk has taken. It may not block. nil: nobody is told.
	Wrote func(took time.Duration)

	// HeartbeatTimeout is the time without a leader's heartbeat after which a follower starts an election;
	// ElectionTimeout is the longest time of one election. Zero: 500 ms each. A single voter doesn't wait for them. A
	// leader that has lost the majority steps down after half the heartbeat timeout.
	HeartbeatTimeout, ElectionTimeout time.Duration

	// SnapshotThreshold is the number of log entries after which a snapshot is written (zero: 8192; one is also written
	// when the log has grown by the size of the last one, within 8 to 64 MiB); TrailingLogs is the number of entries
	// kept before it for slow followers (zero: 1024).
	SnapshotThreshold, TrailingLogs uint64

	wrapLog func(raft.LogStore) raft.LogStore // for tests of disks that hang
}

const (
	defaultTimeout      = 500 * time.Millisecond
	minTimeout          = 10 * time.Millisecond // raft requires a lease of at least 5 ms, half of this
	defaultThreshold    = 8192
	defaultTrailing     = 1024
	maxPeers            = 9 // more voters only make every command slower
	snapshotsKept       = 2
	snapshotMinBytes    = 8 << 20  // of log between two snapshots of a small state
	snapshotMaxBytes    = 64 << 20 // and of a large one
	logPage             = 4 << 10  // least space of an entry in the log's file
	snapshotCheckPeriod = 30 * time.Second
	cachedEntries       = 128                   // recent entries kept in memory for followers
	appendEntriesMax    = 64                    // entries in one message to a follower, and in one transaction of the log
	commitTimeout       = 50 * time.Millisecond // raft repeats what is committed to a follower after once to twice this
	transportPool       = 3                     // idle connections kept to each peer
	transportTimeout    = 10 * time.Second
	fileLockTimeout     = time.Second
	acceptPause         = 50 * time.Millisecond
)

// checked validates o and fills in the defaults.
func (o Options) checked() (Options, error) {
	switch {
	case o.ID == "":
		return o, errors.New("store: ID is empty")
	case o.Machine == nil:
		return o, errors.New("store: no Machine")
	case (o.Layer == nil) == (o.Net == nil):
		return o, errors.New("store: exactly one of Layer and Net is needed")
	case o.Dir == "" && o.Net == nil:
		return o, errors.New("store: Dir is empty")
	case len(o.Peers) == 0 || len(o.Peers) > maxPeers:
		return o, fmt.Errorf("store: %d voters; there must be 1 to %d", len(o.Peers), maxPeers)
	}
	ids, addrs, self := map[string]bool{}, map[string]bool{}, false
	for _, p := range o.Peers {
		if p.ID == "" || p.Addr == "" {
			return o, fmt.Errorf("store: voter %q at %q: name or address is empty", p.ID, p.Addr)
		}
		if ids[p.ID] || addrs[p.Addr] {
			return o, fmt.Errorf("store: voter %q at %q: two voters with one name or address", p.ID, p.Addr)
		}
		ids[p.ID], addrs[p.Addr] = true, true
		self = self || p.ID == o.ID
	}
	if !self {
		return o, fmt.Errorf("store: this voter, %q, is not among the voters %s", o.ID, names(o.Peers))
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = defaultTimeout
	}
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = max(defaultTimeout, o.HeartbeatTimeout)
	}
	if o.HeartbeatTimeout < minTimeout || o.ElectionTimeout < o.HeartbeatTimeout {
		return o, fmt.Errorf("store: heartbeat timeout %v, election timeout %v: the first must be at least %v, the second "+
			"no shorter than the first",
			o.HeartbeatTimeout, o.ElectionTimeout, minTimeout)
	}
	if o.SnapshotThreshold == 0 {
		o.SnapshotThreshold = defaultThreshold
	}
	if o.TrailingLogs == 0 {
		o.TrailingLogs = defaultTrailing
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// addr gives the address of a voter, "" if unknown.
func (o Options) addr(id string) string {
	for _, p := range o.Peers {
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}

func names(ps []Peer) string {
	s := ""
	for i, p := range ps {
		if i > 0 {
			s += ", "
		}
		s += p.ID
	}
	return s
}

// makeDir makes a directory that only the owner can read, and restricts an existing one likewise.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}
