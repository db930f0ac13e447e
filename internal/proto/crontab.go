package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// crontab.go is users' crontabs. The command reads the text and makes a submission of each entry, as gsubmit does of a
// script; the controller judges each, and takes all or none.

// CrontabRequest asks for a user's crontab.
type CrontabRequest struct {
	User string // login name or number; "": the caller
}

func (x *CrontabRequest) Wire(c *wire.C) { wire.Text(c, &x.User, model.MaxName) }

// CrontabReply has it.
type CrontabReply struct {
	There bool // there is one
	User  string
	Text  []byte
	Off   []model.Lines // entries that don't run any more: see model.Crontab
	Why   string        // why none do
}

func (x *CrontabReply) Wire(c *wire.C) {
	wire.Bool(c, &x.There)
	wire.Text(c, &x.User, model.MaxName)
	wire.Bytes(c, &x.Text, model.MaxText)
	wire.List(c, &x.Off, model.MaxFew)
	wire.Text(c, &x.Why, model.MaxText)
}

// SetCrontabRequest replaces or removes a user's crontab. Nothing of it is done if an entry is refused.
type SetCrontabRequest struct {
	User   string // login name or number; "": the caller
	Remove bool
	Text   []byte
	Jobs   []SubmitRequest // of the entries, in order, each with its Spec.Cron; their RequestIDs don't count
}

func (x *SetCrontabRequest) Wire(c *wire.C) {
	wire.Text(c, &x.User, model.MaxName)
	wire.Bool(c, &x.Remove)
	wire.Bytes(c, &x.Text, model.MaxText)
	wire.List(c, &x.Jobs, model.MaxFew)
}

// SetCrontabReply is the answer: Refused says why an entry, and with it the crontab, is refused.
type SetCrontabReply struct {
	Notes   []string // sentences for the user
	Entry   model.Lines
	Code    Code
	Refused string
}

func (x *SetCrontabReply) Wire(c *wire.C) {
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Struct(c, &x.Entry)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.Refused, model.MaxText)
}
