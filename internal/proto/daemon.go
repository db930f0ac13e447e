package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Caller is who sent a request, as the kernel attested it on a local socket.
type Caller struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	User   string // login name, where the accepting host knows one
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

// Forward carries a user's request from the daemon that accepted it to the leader. The leader believes Caller only as
// far as the sender's certificate allows: a controller for anyone, a login node for anyone but root, a compute node for
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

// Put brings accounting records to gdbd, in the order of the outbox. One without records asks how far gdbd is.
type Put struct {
	Cluster string
	Records []*model.Record

	// Instance tells apart the histories of controllers that share a cluster's name: a cluster that began again from
	// nothing numbers its records and jobs anew, and gdbd must not take them for old ones. Chosen when the replicated
	// state is created (its creation time will do) and kept with it; 0 is one too.
	Instance uint64
}

func (x *Put) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Ptrs(c, &x.Records, model.MaxMany)
	wire.Int(c, &x.Instance)
}

// PutReply acknowledges every record up to Seq, counted in the instance: they are on disk.
type PutReply struct {
	Seq uint64
}

func (x *PutReply) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
}
