package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// controllers.go is the list of the controllers, and its changes.

// Roles of a controller.
const (
	RoleLeads   = "leader"
	RoleVotes   = "voter"
	RoleJoins   = "joining" // it gets the state, and votes when it has it
	RoleUnknown = "not a member"
)

// ControllersReply is the list as one controller knows it: Name. It needs no leader.
type ControllersReply struct {
	Cluster string
	Name    string // who answers
	Leader  string // "": none is known
	Now     model.Time
	Quorum  int32 // voters that must agree
	Answer  int32 // voters that answer it, itself included
	List    []ControllerState
	Notes   []string // what is wrong, and what to do
}

func (x *ControllersReply) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Leader, model.MaxName)
	wire.Int(c, &x.Now)
	wire.Int(c, &x.Quorum)
	wire.Int(c, &x.Answer)
	wire.List(c, &x.List, model.MaxFew)
	wire.Texts(c, &x.Notes, model.MaxFew, model.MaxText)
}

// ControllerState is one of them.
type ControllerState struct {
	Name    string
	Addr    string
	Role    string
	Term    uint64
	Index   uint64 // last entry of the log that it has applied
	Behind  int64  // entries that the most advanced one has and it hasn't; -1: unknown
	HeardMS int64  // since it last answered; -1: never; 0: it is the one that answers this
	Version string
	Health  string // "ok", or what is wrong
}

func (x *ControllerState) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Text(c, &x.Role, model.MaxName)
	wire.Int(c, &x.Term)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.Behind)
	wire.Int(c, &x.HeardMS)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Text(c, &x.Health, model.MaxText)
}

// EditControllersRequest adds a controller, removes one, or both: the new one first. Only operators may. It may be
// repeated: what is done already is not done again, and is told from a wrong name by RequestID.
type EditControllersRequest struct {
	Add       string // name; "": none
	Addr      string // host:port; "": as the leader's configuration file says
	Remove    string // name; "": none
	RequestID string // the same for each try; "": of an older command
}

func (x *EditControllersRequest) Wire(c *wire.C) {
	wire.Text(c, &x.Add, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Text(c, &x.Remove, model.MaxName)
	wire.Text(c, &x.RequestID, model.MaxName)
}

// EditControllersReply says what is so now, and what is left to do, as sentences.
type EditControllersReply struct {
	Said []string
}

func (x *EditControllersReply) Wire(c *wire.C) { wire.Texts(c, &x.Said, model.MaxFew, model.MaxText) }

// MaxEditControllersS is how long a change of the controllers may take: a new one gets the whole state.
const MaxEditControllersS = 120
