package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// AccountsRequest asks for all accounts, users, associations and QOS. Answered by a stream of AccountsChunk.
type AccountsRequest struct {
	InUse bool // also what jobs hold and have used
}

func (x *AccountsRequest) Wire(c *wire.C) { wire.Bool(c, &x.InUse) }

// AccountsChunk is a part of the answer. Gen, in every part, is the generation of the facts.
type AccountsChunk struct {
	Gen      uint64
	Cluster  string
	Accounts []*model.Account
	Users    []*model.User
	Assocs   []*model.Association
	QOS      []*model.QOS
	TRES     []string          // resources that the cluster counts, in order
	Addr     string            // host:port of the leader
	InUse    []InUse           // of the tree of accounts, and then of QOS
	Has      []model.TRESCount // what all nodes have, in order of name
	WCKeys   []*model.WCKey

	TrackWCKey bool // usage is kept by wckeys

	Nodes string // of the cluster, as a host list; in the first part
}

// InUse is what the jobs of an association or a QOS hold and have used. QOS is "" for an association; of a QOS there is
// one for the whole, one for each account and one for each user with unfinished jobs.
type InUse struct {
	ID        uint32 // of the association or QOS; 0: it has none
	Account   string
	User      string
	UID       uint32 // 0: it is not known
	Partition string
	QOS       string

	Jobs    int64 // with resources
	Submit  int64 // unfinished; every task of an array is one
	Aging   int64 // pending, and gaining priority by age
	Held    []model.TRESCount
	RunMins []model.TRESCount // what running jobs may still use, times minutes
	Mins    []model.TRESCount // used, times minutes; it decays
	WallS   int64             // used, seconds of jobs; likewise
	UsageS  int64             // used, billing units times seconds; likewise
}

func (x *InUse) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Text(c, &x.QOS, model.MaxName)
	wire.Int(c, &x.Jobs)
	wire.Int(c, &x.Submit)
	wire.Int(c, &x.Aging)
	wire.List(c, &x.Held, model.MaxFew)
	wire.List(c, &x.RunMins, model.MaxFew)
	wire.List(c, &x.Mins, model.MaxFew)
	wire.Int(c, &x.WallS)
	wire.Int(c, &x.UsageS)
}

func (x *AccountsChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Gen)
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Ptrs(c, &x.Accounts, model.MaxMany)
	wire.Ptrs(c, &x.Users, model.MaxMany)
	wire.Ptrs(c, &x.Assocs, model.MaxMany)
	wire.Ptrs(c, &x.QOS, model.MaxMany)
	wire.Texts(c, &x.TRES, model.MaxList, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.List(c, &x.InUse, model.MaxMany)
	wire.List(c, &x.Has, model.MaxList)
	wire.Ptrs(c, &x.WCKeys, model.MaxMany)
	wire.Bool(c, &x.TrackWCKey)
	wire.Text(c, &x.Nodes, model.MaxText)
}

// EditAccountsRequest changes accounts: all of the edits, or none. Gen is the generation of the facts from which they
// were made.
type EditAccountsRequest struct {
	Gen   uint64
	Edits []model.AcctEdit
}

func (x *EditAccountsRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Gen)
	wire.List(c, &x.Edits, model.MaxMany)
}

// PrioRequest asks for the factors of pending jobs' priorities. Answered by a stream of PrioChunk.
type PrioRequest struct {
	Filter JobFilter
}

func (x *PrioRequest) Wire(c *wire.C) {
	wire.Struct(c, &x.Filter)
}

// PrioRow is one job in one of its partitions. Names that end in N are normalized factors, 0 to 1; the others are
// weighted.
type PrioRow struct {
	Job       model.JobID // the array's own number for its tasks
	JobText   string      // as users write it: 7, 7_3, 7_[4-9]
	User      string
	UID       uint32
	Account   string
	QOSName   string
	PartName  string
	Priority  uint32
	Site      int64
	Nice      int64
	Age       float64
	AgeN      float64
	Assoc     float64
	AssocN    float64
	FairShare float64
	FairN     float64
	JobSize   float64
	SizeN     float64
	Partition float64
	PartN     float64
	QOS       float64
	QOSN      float64
	TRES      []float64 // by weight, in the weights' order
	TRESN     []float64
}

func (x *PrioRow) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Text(c, &x.JobText, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.QOSName, model.MaxName)
	wire.Text(c, &x.PartName, model.MaxName)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Site)
	wire.Int(c, &x.Nice)
	wire.Float(c, &x.Age)
	wire.Float(c, &x.AgeN)
	wire.Float(c, &x.Assoc)
	wire.Float(c, &x.AssocN)
	wire.Float(c, &x.FairShare)
	wire.Float(c, &x.FairN)
	wire.Float(c, &x.JobSize)
	wire.Float(c, &x.SizeN)
	wire.Float(c, &x.Partition)
	wire.Float(c, &x.PartN)
	wire.Float(c, &x.QOS)
	wire.Float(c, &x.QOSN)
	wire.Each(c, &x.TRES, model.MaxFew, wire.Float)
	wire.Each(c, &x.TRESN, model.MaxFew, wire.Float)
}

// PrioChunk is a part of the answer; every part has the configured weights.
type PrioChunk struct {
	Weights model.Priority
	Rows    []PrioRow
}

func (x *PrioChunk) Wire(c *wire.C) {
	wire.Struct(c, &x.Weights)
	wire.List(c, &x.Rows, model.MaxMany)
}
