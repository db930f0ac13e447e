package proto

import (
	"time"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Caller is the user who sent a request, from the peer credentials of a local socket.
type Caller struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	User   string // login name, if the accepting host knows it
	Group  string
	Host   string // the host on which the command runs
}

func (x *Caller) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Ints(c, &x.Groups, model.MaxList)
	wire.Text(c, &x.User, model.MaxName)
	wire.Text(c, &x.Group, model.MaxName)
	wire.Text(c, &x.Host, model.MaxName)
}

// Forward carries a user's request from the daemon that accepted it to the leader. The sender's certificate decides for
// which users the leader trusts Caller: a controller for anyone, a login node for anyone but root, a compute node for
// users who have a job on it.
type Forward struct {
	Caller Caller
	Kind   uint16
	Body   []byte
}

func (x *Forward) Wire(c *wire.C) {
	wire.Struct(c, &x.Caller)
	wire.Int(c, &x.Kind)
	wire.Bytes(c, &x.Body, model.MaxFile)
}

// Once carries a change that its command may have to make again, because an answer was lost: the leader makes it once
// for each user and id, and gives every further try the answer of the first one.
type Once struct {
	ID   string // OnceIDBytes random bytes
	Kind uint16
	Body []byte

	// AtMS is when the command began, Unix milliseconds of its host's clock. The daemon of that host refuses older ones
	// than OnceAge: what was forgotten must not be made again by a copy that lay in a daemon's socket.
	AtMS int64
}

func (x *Once) Wire(c *wire.C) {
	wire.Text(c, &x.ID, model.MaxName)
	wire.Int(c, &x.Kind)
	wire.Bytes(c, &x.Body, model.MaxFile)
	wire.Int(c, &x.AtMS)
}

// Bounds of a Once.
const (
	OnceIDBytes = 16
	OnceAge     = 8 * time.Minute // longer than a command tries, shorter than the leader remembers
)

// Put brings accounting records to gdbd, in the order of the outbox. A Put without records asks for gdbd's last
// sequence number.
type Put struct {
	Cluster string
	Records []*model.Record

	// Instance identifies one history of a cluster: a cluster of the same name that starts over numbers its records and
	// jobs from 1, and gdbd must not take them for old ones. It is chosen when the replicated state is created and kept
	// with it; 0 is a valid instance.
	Instance uint64

	Eras []model.Era // of the instance after its first, oldest first
}

func (x *Put) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Ptrs(c, &x.Records, model.MaxMany)
	wire.Int(c, &x.Instance)
	wire.List(c, &x.Eras, model.MaxFew)
}

// PutReply acknowledges every record of the instance up to Seq: they are on disk.
type PutReply struct {
	Seq     uint64
	LastJob model.JobID // in the answer to a Put without records: the instance's highest job number on record
}

func (x *PutReply) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.LastJob)
}

// WitnessReply says whether a daemon hears a controller that leads, at this moment and not as it remembers.
type WitnessReply struct {
	Hears   bool
	LeadsMS int64 // for how long that controller has heard nodes without a break, ms
}

func (x *WitnessReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Hears)
	wire.Int(c, &x.LeadsMS)
}

// MomentReply has a controller's clocks.
type MomentReply struct {
	Host    model.Time // what its host's clock says
	Cluster model.Time // the cluster's time as it knows it
	Leads   bool       // Cluster stamps commands
}

func (x *MomentReply) Wire(c *wire.C) {
	wire.Int(c, &x.Host)
	wire.Int(c, &x.Cluster)
	wire.Bool(c, &x.Leads)
}
