package shim

// wire.go is the encoding on the socket and in the journal.
//
// A frame is a length (4 bytes, little endian, of what follows) and a payload: one kind byte, then the fields of that
// kind in order: numbers as varints, strings and lists with their length before them. Nothing is optional, so a field
// can only be added with a new protocol number. Hello, Upgrade and Done never change, so that a new gnoded
// can always ask an old gshim to replace itself.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"gbatch/internal/budget"
)

// Protocol is the version of the orders and events. Both sides must have the same one, except for Upgrade.
const Protocol = 10

// The limits of the wire.
const (
	MaxFrameBytes  = 8 << 20
	maxLaunchBytes = 6 << 20 // strings of one order, so that its frame always fits
	frameHead      = 4
	eventsPerFrame = 256
)

// Kinds of payload. Below 64: orders.
const (
	kindLaunch   = 2
	kindSignal   = 3
	kindList     = 4
	kindAck      = 5
	kindPing     = 6
	kindShutdown = 7
	kindUpgrade  = 8
	kindLease    = 9

	kindHello  = 64
	kindEvents = 65
	kindDone   = 66
)

// order is one request; seq is the client's number for the answer (0: none is wanted).
type order struct {
	kind   byte
	seq    uint64
	launch Launch // kindLaunch
	passed byte   // kindLaunch: which of its Passed come as descriptors beside the frame, a bit each
	key    Key    // kindSignal
	sig    int
	scope  Scope
	keys   []Key  // kindAck
	path   string // kindUpgrade
	lease  Lease  // kindLease
	bad    error  // why it can't be carried out: a value is out of range; only of decodeOrder
}

// reply is one message to a client.
type reply struct {
	kind   byte
	seq    uint64
	events []Event // kindEvents
	n      int     // kindDone: how many
	err    string
	info   Info // kindHello
}

// Info is what a gshim says about itself when a client connects.
type Info struct {
	Protocol int
	Version  string // of the binary
	PID      int
	Started  time.Time // of the process; an upgrade keeps it
	Upgrades int       // how often it has replaced itself
}

func (e *encoder) launch(l *Launch) {
	e.key(l.Key)
	e.str(l.Path)
	e.strs(l.Argv)
	e.strs(l.Env)
	e.str(l.Dir)
	e.u64(uint64(l.UID))
	e.u64(uint64(l.GID))
	e.u64(uint64(len(l.Groups)))
	for _, g := range l.Groups {
		e.u64(uint64(g))
	}
	e.u64(uint64(l.Umask))
	e.str(l.Stdin)
	e.str(l.Stdout)
	e.str(l.Stderr)
	e.bool(l.Append)
	e.u64(uint64(len(l.Limits)))
	for _, r := range l.Limits {
		e.i64(int64(r.Resource))
		e.u64(r.Soft)
		e.u64(r.Hard)
		e.bool(r.Raise)
	}
	e.cgroup(l.Cgroup)
	e.i64(int64(l.Nice))
	e.u64(uint64(len(l.CPUs)))
	for _, c := range l.CPUs {
		e.i64(int64(c))
	}
	passed := byte(0)
	for i, f := range l.Passed {
		if f != nil {
			passed |= 1 << i
		}
	}
	e.u8(passed)
	e.i64(int64(l.Mem.Mode))
	e.u64(uint64(len(l.Mem.Nodes)))
	for _, n := range l.Mem.Nodes {
		e.i64(int64(n))
	}
	e.str(l.PIDVar)
	e.bool(l.Terminal)
	e.str(l.Mounts)
	e.bool(l.AsRoot)
	e.bool(l.Confined)
}

func (d *decoder) launch(o *order) Launch {
	l := Launch{Key: d.key(), Path: d.str(), Argv: d.strs("arguments", MaxArgs),
		Env: d.strs("environment variables", MaxArgs),
		Dir: d.str(), UID: d.u32(), GID: d.u32()}
	for range d.count("groups", MaxGroups) {
		l.Groups = append(l.Groups, d.u32())
	}
	l.Umask = d.u32()
	l.Stdin, l.Stdout, l.Stderr = d.str(), d.str(), d.str()
	l.Append = d.bool()
	for range d.count("resource limits", MaxLimits) {
		l.Limits = append(l.Limits, Limit{Resource: int(d.num("resource", 0, MaxLimits-1)), Soft: d.u64(), Hard: d.u64(),
			Raise: d.bool()})
	}
	l.Cgroup = d.cgroup()
	l.Nice = int(d.num("nice value", -20, 19))
	for range d.count("CPUs", MaxCPUs) {
		l.CPUs = append(l.CPUs, int(d.num("CPU", 0, MaxCPUs-1)))
	}
	if o.passed = d.u8(); o.passed >= 1<<PassedFiles {
		d.fail(fmt.Errorf("passed descriptors %#x", o.passed))
	}
	l.Mem.Mode = int(d.num("memory policy", 0, maxMemMode))
	for range d.count("memory nodes", maxMemNode) {
		l.Mem.Nodes = append(l.Mem.Nodes, int(d.num("memory node", 0, maxMemNode)))
	}
	l.PIDVar = d.str()
	l.Terminal = d.bool()
	l.Mounts = d.str()
	l.AsRoot = d.bool()
	l.Confined = d.bool()
	return l
}

// withIO marks the kind of an event that ends with ReadB, WriteB and Faults. Journals from before protocol 2 have no
// such events.
const withIO = 0x40

func (e *encoder) event(v *Event) {
	kind := byte(v.Kind)
	if v.Kind == Exited {
		kind |= withIO
	}
	e.u8(kind)
	e.key(v.Key)
	e.i64(int64(v.PID))
	e.time(v.Started)
	e.u64(v.StartTicks)
	e.str(v.Text)
	e.strs(v.Notes)
	e.u8(byte(v.Stage))
	e.u64(uint64(v.Errno))
	e.i64(int64(v.Code))
	e.i64(int64(v.Signal))
	e.bool(v.Core)
	e.bool(v.Unknown)
	e.i64(int64(v.UserCPU))
	e.i64(int64(v.SysCPU))
	e.i64(v.MaxRSSKB)
	e.time(v.Ended)
	if v.Kind == Exited {
		e.i64(v.ReadB)
		e.i64(v.WriteB)
		e.i64(v.Faults)
	}
}

func (d *decoder) event() Event {
	kind := d.u8()
	v := Event{Kind: EventKind(kind &^ withIO)}
	if d.err == nil && (v.Kind == 0 || v.Kind >= eventNo || kind&withIO != 0 && v.Kind != Exited) {
		d.fail(fmt.Errorf("unknown event kind %d", v.Kind))
	}
	v.Key = d.key()
	v.PID = int(d.num("pid", 0, 1<<31-1))
	v.Started = d.time()
	v.StartTicks = d.u64()
	v.Text = d.str()
	v.Notes = d.strs("notes", maxNotes)
	v.Stage = Stage(d.u8())
	if v.Stage >= stageNo {
		d.fail(fmt.Errorf("unknown stage %d", v.Stage))
		v.Stage = 0
	}
	v.Errno = syscall.Errno(d.u32())
	v.Code = int(d.num("exit code", 0, 255))
	v.Signal = int(d.num("signal", 0, 127))
	v.Core, v.Unknown = d.bool(), d.bool()
	v.UserCPU, v.SysCPU = time.Duration(d.i64()), time.Duration(d.i64())
	v.MaxRSSKB = d.i64()
	v.Ended = d.time()
	if kind&withIO != 0 {
		v.ReadB, v.WriteB, v.Faults = d.i64(), d.i64(), d.i64()
	}
	return v
}

// frame appends one frame to b, its payload written by fill.
func frame(b []byte, fill func(*encoder)) []byte {
	at := len(b)
	e := encoder{b: append(b, 0, 0, 0, 0)}
	fill(&e)
	binary.LittleEndian.PutUint32(e.b[at:], uint32(len(e.b)-at-frameHead))
	return e.b
}

func (o *order) encode(e *encoder) {
	e.u8(o.kind)
	e.u64(o.seq)
	switch o.kind {
	case kindLaunch:
		e.launch(&o.launch)
	case kindSignal:
		e.key(o.key)
		e.i64(int64(o.sig))
		e.u8(byte(o.scope))
	case kindAck:
		e.u64(uint64(len(o.keys)))
		for _, k := range o.keys {
			e.key(k)
		}
	case kindUpgrade:
		e.str(o.path)
	case kindLease:
		e.lease(&o.lease)
	}
}

// decodeOrder reads an order. The error says that it can't be read; the order then has its kind and seq, as far as they
// are known. An order that is whole and has a value out of range says so in bad.
func decodeOrder(b []byte) (order, error) {
	d := decoder{b: b}
	o := order{kind: d.u8(), seq: d.u64()}
	switch o.kind {
	case kindLaunch:
		o.launch = d.launch(&o)
	case kindSignal:
		o.key = d.key()
		o.sig = int(d.num("signal", 0, 64))
		o.scope = Scope(d.u8())
		if o.scope == 0 || o.scope >= scopeNo {
			d.wrong(fmt.Errorf("unknown scope %d", o.scope))
		}
	case kindAck:
		for range d.count("keys", MaxAckKeys) {
			o.keys = append(o.keys, d.key())
		}
	case kindUpgrade:
		o.path = d.str()
	case kindLease:
		o.lease = d.lease()
	case kindList, kindPing, kindShutdown:
	default:
		d.fail(fmt.Errorf("unknown order %d", o.kind))
	}
	if err := d.whole(); err != nil {
		return order{kind: o.kind, seq: o.seq}, fmt.Errorf("order: %w", err)
	}
	o.bad = d.bad
	return o, nil
}

func (r *reply) encode(e *encoder) {
	e.u8(r.kind)
	e.u64(r.seq)
	switch r.kind {
	case kindHello:
		e.i64(int64(r.info.Protocol))
		e.str(r.info.Version)
		e.i64(int64(r.info.PID))
		e.time(r.info.Started)
		e.i64(int64(r.info.Upgrades))
	case kindEvents:
		e.u64(uint64(len(r.events)))
		for i := range r.events {
			e.event(&r.events[i])
		}
	case kindDone:
		e.i64(int64(r.n))
		e.str(r.err)
	}
}

func decodeReply(b []byte) (reply, error) {
	d := decoder{b: b}
	r := reply{kind: d.u8(), seq: d.u64()}
	switch r.kind {
	case kindHello:
		r.info = Info{Protocol: int(d.num("protocol", 0, 1<<31-1)), Version: d.str(), PID: int(d.num("pid", 0, 1<<31-1)),
			Started: d.time(), Upgrades: int(d.num("upgrades", 0, 1<<31-1))}
	case kindEvents:
		for range d.count("events", eventsPerFrame) {
			r.events = append(r.events, d.event())
			if d.err != nil {
				break
			}
		}
	case kindDone:
		r.n = int(d.num("count", 0, 1<<31-1))
		r.err = d.str()
	default:
		d.fail(fmt.Errorf("unknown reply %d", r.kind))
	}
	if err := d.end(); err != nil {
		return reply{}, fmt.Errorf("reply: %w", err)
	}
	return r, nil
}

// readFrame reads one payload into buf's memory where it fits. io.EOF only between frames.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > MaxFrameBytes {
		return nil, fmt.Errorf("frame of %d bytes, expected 1 to %d", n, MaxFrameBytes)
	}
	buf, err := budget.ReadGrowing(r, buf, int(n), nil)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}

// wake wakes the goroutine that waits for a channel of capacity 1.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // already awake
	}
}
