package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// dbd.go is what administrators and other accounting daemons ask of gdbd. A backup (KindBackup) is no message: its
// stream is the bytes of the file.

// BeginEmptyRequest says that gdbd is to take the records of a cluster that has had records acknowledged before,
// although it has none of them.
type BeginEmptyRequest struct {
	Cluster string // "": of any
}

func (x *BeginEmptyRequest) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
}

// DbdReply says what gdbd has.
type DbdReply struct {
	Name    string
	Version string
	Now     model.Time
	File    string
	Bytes   int64
	Series  []DbdSeries
	Notes   []string // what administrators have to know, in sentences
	Holes   []DbdHole
}

func (x *DbdReply) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Int(c, &x.Now)
	wire.Text(c, &x.File, model.MaxText)
	wire.Int(c, &x.Bytes)
	wire.List(c, &x.Series, model.MaxList)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.List(c, &x.Holes, model.MaxList)
}

// DbdHole is records of a history that are missing for good, from one number to another.
type DbdHole struct {
	Cluster  string
	Instance uint64
	From, To uint64
}

func (x *DbdHole) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Int(c, &x.Instance)
	wire.Int(c, &x.From)
	wire.Int(c, &x.To)
}

// DbdSeries is one history of a cluster: gdbd has every record of it up to Seq that was sent to it.
type DbdSeries struct {
	Cluster  string
	Instance uint64
	Seq      uint64
	Era      uint64
}

func (x *DbdSeries) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Int(c, &x.Instance)
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.Era)
}

// Sight says who may see whose records, so that gdbd can answer users when no controller leads. If HidesJobs is not
// set, everybody sees all.
type Sight struct {
	HidesJobs bool
	Full      []uint32 // uids that see all, besides root
	Operators []string // names of users that see all

	Coordinators []Coordinator

	Revoked *Revoked // certificates that count no more

	LoginRights model.Rights // with more than RightsUser, who sees more is asked of the leader
}

func (x *Sight) Wire(c *wire.C) {
	wire.Bool(c, &x.HidesJobs)
	wire.Ints(c, &x.Full, model.MaxList)
	wire.Texts(c, &x.Operators, model.MaxList, model.MaxName)
	wire.List(c, &x.Coordinators, model.MaxList)
	wire.Ptr(c, &x.Revoked)
	wire.Int(c, &x.LoginRights)
}

// Coordinator is a user who sees the jobs of an account. An account that lies below it has entries of its own.
type Coordinator struct {
	User    string
	Account string
}

func (x *Coordinator) Wire(c *wire.C) {
	wire.Text(c, &x.User, model.MaxName)
	wire.Text(c, &x.Account, model.MaxName)
}
