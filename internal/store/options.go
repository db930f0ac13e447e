package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// Machine is the replicated state machine, as its owner implements it.
type Machine interface {
	// Apply applies the commands of one committed log entry, in order, and returns one result for each. It is called
	// from one goroutine. It must not change the commands' bytes, and must copy what it keeps of them (they share the
	// memory of the whole entry).
	Apply(index uint64, cmds [][]byte) []any

	// Freeze returns a function that writes the state as it is now. No Apply runs during Freeze, so it has to be quick
	// (copy a pointer); the function it returns runs while later Applies go on. An error from it, or from the writer,
	// abandons the snapshot: the log is kept and another is tried later.
	Freeze() (write func(io.Writer) error)

	// Restore replaces the whole state by what a snapshot holds. It is called from Open, and later from the goroutine
	// of Apply when a leader sends its snapshot.
	Restore(r io.Reader) error
}

// StreamLayer carries the controllers' connections: a listener, already bound, and a way to call others.
type StreamLayer interface {
	net.Listener
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// Peer is one voter.
type Peer struct {
	ID   string // name of the controller, the same for ever
	Addr string // where the others call it; may change between restarts
}

// Options say how to open a store. ID, Peers, Machine and one of Layer and Net are required.
type Options struct {
	ID  string // this voter; one of Peers
	Dir string // log and snapshots; made if missing, mode 0700. May be empty with Net: then nothing is durable

	// Peers are all voters. Where Dir holds nothing yet, the log begins with them, so all voters must start with the
	// same IDs. On an existing log the IDs must be the ones it was made with; the addresses may differ.
	Peers []Peer

	Layer   StreamLayer // taken over: closed by Close, and by Open when it fails
	Net     *MemNet     // in place of Layer in tests: no sockets
	Machine Machine
	Logger  *slog.Logger // nil: nothing is logged

	// HeartbeatTimeout is how long a follower waits for its leader before it calls an election, ElectionTimeout how long
	// one election may take. Zero: 500 ms each, and a leader that has lost the majority gives up after half the
	// heartbeat timeout. A single voter, which waits for nobody, takes 40 ms.
	HeartbeatTimeout, ElectionTimeout time.Duration

	// SnapshotThreshold is the number of log entries after which a snapshot is written (zero: 8192; one is also written
	// when the log has grown by as much as the last one was large, within 8 to 64 MiB); TrailingLogs the number of entries
	// kept behind it for followers that lag (zero: 1024).
	SnapshotThreshold, TrailingLogs uint64
}

const (
	defaultTimeout      = 500 * time.Millisecond
	singleVoterTimeout  = 40 * time.Millisecond
	minTimeout          = 10 * time.Millisecond // raft wants a lease of at least 5 ms, half of this
	defaultThreshold    = 8192
	defaultTrailing     = 1024
	maxPeers            = 9 // more voters only make every command slower
	snapshotsKept       = 2
	snapshotMinBytes    = 8 << 20  // of log between two snapshots of a small state
	snapshotMaxBytes    = 64 << 20 // and of a large one
	logPage             = 4 << 10  // what an entry takes of the log's file at least
	snapshotCheckPeriod = 30 * time.Second
	cachedEntries       = 128 // recent entries kept in memory for followers
	appendEntriesMax    = 64  // entries in one message to a follower, and in one transaction of the log
	transportPool       = 3   // idle connections kept to each peer
	transportTimeout    = 10 * time.Second
	fileLockTimeout     = time.Second
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
	base := defaultTimeout
	if len(o.Peers) == 1 {
		base = singleVoterTimeout
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = base
	}
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = max(base, o.HeartbeatTimeout)
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

// makeDir makes a directory for the owner's eyes only, and makes an existing one so.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}
