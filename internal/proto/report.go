package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// report.go is what greport asks, and gacctmgr of events and transactions: sums of usage over time, and the audit
// trail.

// ReportWhat says what a report is about.
type ReportWhat uint8

// The kinds.
const (
	ReportUsage   ReportWhat = iota + 1 // Rows: sums of jobs' usage in the window
	ReportCluster                       // Uses: what became of the cluster's time in the window
	ReportResvs                         // Resvs: reservations of the window
	ReportTrail                         // Trail: entries of the audit trail in the window
	ReportEvents                        // Outages: times in which nodes took no jobs
	ReportBills                         // Bills: what runs that began in the window and have ended cost
)

// ReportBy is a set of the properties by which usage is summed.
type ReportBy uint8

// The properties.
const (
	ByAccount ReportBy = 1 << iota
	ByUser
	ByQOS
	ByPartition
	BySize // CPUs of the jobs
	ByResv
	ByWCKey
)

// ReportRequest asks for a report. The window is [Start, End). A list that is not empty must contain the job's value.
type ReportRequest struct {
	What       ReportWhat
	Start, End model.Time
	By         ReportBy
	Clusters   []string
	Users      []string
	Accounts   []string
	QOS        []string
	Partitions []string
	Resvs      []string
	GIDs       []uint32 // this, Jobs and Nodes need a look at each job of the window
	Jobs       []model.JobRef
	Nodes      []string // also of ReportEvents

	Job     model.JobID // of ReportTrail: only this one's; 0: any
	Events  []string    // of ReportTrail: their names
	Things  []string    // of ReportTrail: kinds of things
	Names   []string    // of ReportTrail: names of things
	ByUsers []string    // of ReportTrail: who did it
	WCKeys  []string
}

func (x *ReportRequest) Wire(c *wire.C) {
	wire.Int(c, &x.What)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Int(c, &x.By)
	wire.Texts(c, &x.Clusters, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Users, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Texts(c, &x.QOS, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Resvs, model.MaxList, model.MaxName)
	wire.Ints(c, &x.GIDs, model.MaxList)
	wire.List(c, &x.Jobs, model.MaxList)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Int(c, &x.Job)
	wire.Texts(c, &x.Events, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Things, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Texts(c, &x.ByUsers, model.MaxList, model.MaxName)
	wire.Texts(c, &x.WCKeys, model.MaxList, model.MaxName)
}

// UsageQuery is a report that the leader asks of gdbd for a user who may not see everything.
type UsageQuery struct {
	Report ReportRequest
	Only   bool // only jobs and entries of this user
	UID    uint32
	User   string
	Prices *price.Table // of ReportBills
}

func (x *UsageQuery) Wire(c *wire.C) {
	wire.Struct(c, &x.Report)
	wire.Bool(c, &x.Only)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.User, model.MaxName)
	wire.Ptr(c, &x.Prices)
}

// WaitBins are the upper bounds of the classes of ReportRow.Waits, seconds; the last class has no bound.
func WaitBins() []int64 { return []int64{60, 600, 3600, 6 * 3600, 86400} }

// ReportRow is usage of jobs with the same properties, as far as the report asks for them.
type ReportRow struct {
	Cluster   string
	Account   string
	User      string
	QOS       string
	Partition string
	WCKey     string
	Resv      string
	CPUs      int64
	TRES      []model.TRESCount // amount times seconds in the window; mem in MiB
	Jobs      int64             // that held resources in the window
	Started   int64             // in the window
	WaitS     int64             // of those that started: from eligible to start, seconds in all
	Waits     []int64           // of those that started: how many waited up to each of WaitBins
	Ended     []int64           // in the window, by model.JobState
}

func (x *ReportRow) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Text(c, &x.QOS, model.MaxName)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Text(c, &x.WCKey, model.MaxName)
	wire.Text(c, &x.Resv, model.MaxName)
	wire.Int(c, &x.CPUs)
	wire.List(c, &x.TRES, model.MaxFew)
	wire.Int(c, &x.Jobs)
	wire.Int(c, &x.Started)
	wire.Int(c, &x.WaitS)
	wire.Ints(c, &x.Waits, model.MaxFew)
	wire.Ints(c, &x.Ended, model.MaxFew)
}

// ClusterUse is what became of one resource of a cluster: amount times seconds. Idle is the rest.
type ClusterUse struct {
	Cluster     string
	TRES        string
	Count       int64 // the largest amount in the window
	Total       int64
	Alloc       int64
	Down        int64
	PlannedDown int64
	Planned     int64
}

func (x *ClusterUse) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.TRES, model.MaxName)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Total)
	wire.Int(c, &x.Alloc)
	wire.Int(c, &x.Down)
	wire.Int(c, &x.PlannedDown)
	wire.Int(c, &x.Planned)
}

// ResvUse is the use of a reservation, or of one occurrence of it, in the window: amount times seconds.
type ResvUse struct {
	Cluster    string
	Name       string
	Start, End model.Time
	Nodes      string
	TRES       []model.TRESCount // what it had, times seconds
	Alloc      []model.TRESCount // of it, what jobs held
}

func (x *ResvUse) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Text(c, &x.Nodes, model.MaxText)
	wire.List(c, &x.TRES, model.MaxFew)
	wire.List(c, &x.Alloc, model.MaxFew)
}

// Outage is a time in which a node took no jobs, or, without a node, one in which a cluster had these resources.
type Outage struct {
	Cluster    string
	Node       string
	Start, End model.Time // End 0: it goes on
	State      string
	Reason     string
	By         string
	TRES       []model.TRESCount
}

func (x *Outage) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.Node, model.MaxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Text(c, &x.State, model.MaxName)
	wire.Text(c, &x.Reason, model.MaxText)
	wire.Text(c, &x.By, model.MaxName)
	wire.List(c, &x.TRES, model.MaxFew)
}

// ReportChunk is a part of the answer.
type ReportChunk struct {
	Rows    []ReportRow
	Uses    []ClusterUse
	Resvs   []ResvUse
	Outages []Outage
	Trail   []*model.Audit
	Note    string // a sentence for who reads the answer; "": none
	Bills   []price.Bill
	Running int64 // of ReportBills: runs that began in the window and have not ended, which are in no line
}

func (x *ReportChunk) Wire(c *wire.C) {
	wire.List(c, &x.Rows, model.MaxMany)
	wire.List(c, &x.Uses, model.MaxMany)
	wire.List(c, &x.Resvs, model.MaxMany)
	wire.List(c, &x.Outages, model.MaxMany)
	wire.Ptrs(c, &x.Trail, model.MaxMany)
	wire.Text(c, &x.Note, model.MaxText)
	wire.List(c, &x.Bills, model.MaxMany)
	wire.Int(c, &x.Running)
}

// MoneyRequest asks for prices, and for accounts' balances, invoices and present use. A list that is not empty must
// contain the account.
type MoneyRequest struct {
	Accounts []string
	Invoices bool
	Number   uint64 // with Invoices: only this one; 0: any
}

func (x *MoneyRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Invoices)
	wire.Int(c, &x.Number)
}

// MoneyChunk is a part of the answer. Wallets come without their months.
type MoneyChunk struct {
	Cluster  string
	Prices   price.Table
	Wallets  []*price.Wallet
	Invoices []*price.Invoice
	Use      []AccountUse
}

func (x *MoneyChunk) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Struct(c, &x.Prices)
	wire.Ptrs(c, &x.Wallets, model.MaxMany)
	wire.Ptrs(c, &x.Invoices, model.MaxMany)
	wire.List(c, &x.Use, model.MaxMany)
}

// AccountUse is what the running jobs of an account hold of a resource.
type AccountUse struct {
	Account string
	TRES    string
	Count   int64
	Jobs    int64
}

func (x *AccountUse) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.TRES, model.MaxName)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Jobs)
}

// EditMoneyRequest gives credit, sets a budget, or makes an invoice: one of both.
type EditMoneyRequest struct {
	Ledger  *price.Ledger
	Invoice *InvoiceOrder
}

func (x *EditMoneyRequest) Wire(c *wire.C) {
	wire.Ptr(c, &x.Ledger)
	wire.Ptr(c, &x.Invoice)
}

// InvoiceOrder asks for an invoice of an account and the accounts below it, for [Start, End).
type InvoiceOrder struct {
	Account    string
	Start, End model.Time
	Unfinished bool // also if runs that began in that time have not ended, which then are on no invoice
}

func (x *InvoiceOrder) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Bool(c, &x.Unfinished)
}

// EditMoneyReply has the invoice that was made.
type EditMoneyReply struct {
	Invoice *price.Invoice
}

func (x *EditMoneyReply) Wire(c *wire.C) { wire.Ptr(c, &x.Invoice) }
