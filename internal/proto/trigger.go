package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// trigger.go is triggers: programs that the leader runs when something happens (model.Trigger).

// TriggerInfo is one trigger in a list.
type TriggerInfo struct {
	ID      uint32
	Of      model.TriggerOf
	Res     string // a job's number, a host list, or * for all
	Job     model.JobID
	Events  model.TriggerEvents
	OffsetS int64
	User    string
	UID     uint32
	Perm    bool
	Program string
	Off     string // why it does nothing any more; "": it does
}

func (x *TriggerInfo) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Of)
	wire.Text(c, &x.Res, model.MaxText)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Events)
	wire.Int(c, &x.OffsetS)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Bool(c, &x.Perm)
	wire.Data(c, &x.Program, model.MaxName)
	wire.Text(c, &x.Off, model.MaxText)
}

// TriggersChunk is a part of the list of triggers.
type TriggersChunk struct {
	Triggers []TriggerInfo
}

func (x *TriggersChunk) Wire(c *wire.C) { wire.List(c, &x.Triggers, model.MaxMany) }

// SetTriggerRequest sets a trigger of the caller's.
type SetTriggerRequest struct {
	Of      model.TriggerOf
	Job     model.JobID
	Nodes   string // with TriggerNode: a host list; "": all
	Events  model.TriggerEvents
	OffsetS int64
	Perm    bool
	Program string
}

func (x *SetTriggerRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Of)
	wire.Int(c, &x.Job)
	wire.Text(c, &x.Nodes, model.MaxText)
	wire.Int(c, &x.Events)
	wire.Int(c, &x.OffsetS)
	wire.Bool(c, &x.Perm)
	wire.Data(c, &x.Program, model.MaxName)
}

// ClearTriggersRequest clears the triggers that all of its parts that are set name.
type ClearTriggersRequest struct {
	ID     uint32
	Job    model.JobID
	OfUser bool
	UID    uint32 // with OfUser
}

func (x *ClearTriggersRequest) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Job)
	wire.Bool(c, &x.OfUser)
	wire.Int(c, &x.UID)
}

// ClearTriggersReply names those that were there.
type ClearTriggersReply struct {
	IDs []uint32
}

func (x *ClearTriggersReply) Wire(c *wire.C) { wire.Ints(c, &x.IDs, model.MaxMany) }
