package proto

import "gbatch/internal/model"

// AccountsRequest asks for all accounts, users, associations and QOS. Answered by a stream of AccountsChunk.
//
//gbatch:codec
type AccountsRequest struct{}

// AccountsChunk is a part of the answer. Gen, in every part, names the facts that it was taken from.
//
//gbatch:codec
type AccountsChunk struct {
	Gen      uint64
	Cluster  string
	Accounts []*model.Account
	Users    []*model.User
	Assocs   []*model.Association
	QOS      []*model.QOS
	TRES     []string // that the cluster counts, in order
	Addr     string   // host:port of the controller that leads
}

// AcctOp is what one edit of accounts does; the numbers are state's.
type AcctOp uint8

// The operations. Put replaces the record of that name or makes it.
const (
	PutAccount AcctOp = iota + 1
	DropAccount
	PutUser
	DropUser
	PutAssoc
	DropAssoc
	PutQOS
	DropQOS
	ResetUsage
)

// AcctEdit is one edit.
//
//gbatch:codec
type AcctEdit struct {
	Op      AcctOp
	Account *model.Account
	User    *model.User
	Assoc   *model.Association
	QOS     *model.QOS
}

// EditAccountsRequest changes accounts: all of the edits, or none. Gen is that of the facts they were made from.
//
//gbatch:codec
type EditAccountsRequest struct {
	Gen   uint64
	Edits []AcctEdit
}

// PrioRequest asks for the factors of waiting jobs' priorities. Answered by a stream of PrioChunk.
//
//gbatch:codec
type PrioRequest struct {
	Filter JobFilter
}

// PrioRow is one job in one of its partitions. N ends normalized factors, 0 to 1; the others are weighted.
//
//gbatch:codec
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

// PrioChunk is a part of the answer; every part has the configured weights.
//
//gbatch:codec
type PrioChunk struct {
	Weights model.Priority
	Rows    []PrioRow
}
