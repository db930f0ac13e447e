package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// lists.go is what users ask to see: jobs, nodes, partitions, configuration, records, shares, reservations, scripts.

// JobFilter selects the jobs that match every list that isn't empty.
type JobFilter struct {
	Jobs       []model.JobRef
	Users      []uint32
	NotUsers   []uint32
	States     []model.JobState
	Names      []string
	Partitions []string
	Accounts   []string
	QOS        []string
	Nodes      []string

	Reservations []string
	Licenses     []string
	WCKeys       []string
}

func (x *JobFilter) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Ints(c, &x.NotUsers, model.MaxList)
	wire.Ints(c, &x.States, model.MaxList)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Texts(c, &x.QOS, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Reservations, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Licenses, model.MaxList, model.MaxName)
	wire.Texts(c, &x.WCKeys, model.MaxList, model.MaxName)
}

// JobsRequest lists jobs. Answered by a stream of JobsChunk.
type JobsRequest struct {
	Filter  JobFilter
	Default bool // no States were given: only unfinished jobs

	Positions bool // with the places of pending jobs in their queues
}

func (x *JobsRequest) Wire(c *wire.C) {
	wire.Struct(c, &x.Filter)
	wire.Bool(c, &x.Default)
	wire.Bool(c, &x.Positions)
}

// JobsChunk is a part of the list, in order of ID. The records are the complete replicated ones. The first chunk has no
// jobs, but the rules of the partitions.
type JobsChunk struct {
	Now  model.Time
	Jobs []*model.Job

	Rules []*model.AskRules // partitions' defaults and bounds of requests
}

func (x *JobsChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Jobs, model.MaxMany)
	wire.Ptrs(c, &x.Rules, model.MaxList)
}

// RawJobs is a JobsChunk whose jobs are not read: each is the bytes of a model.Job, of which most readers of the same
// list again and again have read equal ones before. They are the message's.
type RawJobs struct {
	Now   model.Time
	Jobs  []wire.Raw
	Rules []*model.AskRules
}

func (x *RawJobs) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Raws(c, &x.Jobs, model.MaxMany)
	wire.Ptrs(c, &x.Rules, model.MaxList)
}

// NodesRequest lists nodes, all or the named ones. Answered by a stream of NodesChunk.
type NodesRequest struct {
	Names []string
	Units bool // with their units, one by one

	Future bool // those of State=FUTURE too
}

func (x *NodesRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Units)
	wire.Bool(c, &x.Future)
}

// NodeInfo is a node with data that only the leader has.
type NodeInfo struct {
	Node       *model.Node
	LoadMilli  int64 // load average of one minute, thousandths; -1: unknown
	FreeMemMiB int64 // -1: unknown
	SeenAt     model.Time
	Partitions []string
	Notes      []string // sentences about what the node can't enforce, from its registration

	// If the request asks for units:
	Units    []model.GresUnit
	Readings []UnitReading
	Holders  []UnitHolder

	Resv  string // the reservation that has the whole node now; "": none
	Maint bool   // that reservation has MAINT
}

func (x *NodeInfo) Wire(c *wire.C) {
	wire.Ptr(c, &x.Node)
	wire.Int(c, &x.LoadMilli)
	wire.Int(c, &x.FreeMemMiB)
	wire.Int(c, &x.SeenAt)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.List(c, &x.Units, model.MaxList)
	wire.List(c, &x.Readings, model.MaxList)
	wire.List(c, &x.Holders, model.MaxList)
	wire.Text(c, &x.Resv, model.MaxName)
	wire.Bool(c, &x.Maint)
}

// HiddenJob is a UnitHolder's job that the reader may not see.
const HiddenJob = "hidden"

// UnitHolder is a job that holds a unit, or shares of a GPU.
type UnitHolder struct {
	Name  string
	Index int32  // of shares their GPU's
	Job   string // as users write it, or HiddenJob

	Shares int32 // how many; 0: it is a whole unit
}

func (x *UnitHolder) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Text(c, &x.Job, model.MaxName)
	wire.Int(c, &x.Shares)
}

// NodesChunk is a part of the list, in the order of the configuration.
type NodesChunk struct {
	Now   model.Time
	Nodes []*NodeInfo
}

func (x *NodesChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Nodes, model.MaxList)
}

// PartitionsReply lists the partitions in the order of the configuration.
type PartitionsReply struct {
	Now        model.Time
	Partitions []*model.Partition
	TotalCPUs  []int64 // by partition
	Gres       []GresTotals
	Barred     []bool // by partition: AllowGroups leaves out who asks; empty: none does
}

// Hides reports whether lists leave a partition out unless they are asked for all: it is hidden, or closed to who asks.
func (x *PartitionsReply) Hides(i int) bool {
	return x.Partitions[i].Hidden || i < len(x.Barred) && x.Barred[i]
}

func (x *PartitionsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Partitions, model.MaxList)
	wire.Ints(c, &x.TotalCPUs, model.MaxList)
	wire.List(c, &x.Gres, model.MaxList)
	wire.Each(c, &x.Barred, model.MaxList, wire.Bool)
}

// GresTotals sums generic resources over one partition's nodes.
type GresTotals struct {
	MemMiB int64
	Gres   []model.GresCount
}

func (x *GresTotals) Wire(c *wire.C) {
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, model.MaxFew)
}

// ConfigReply is the cluster's configuration.
type ConfigReply struct {
	Config *model.Config
	Paths  []model.KV // local settings of the daemon that answered
	Now    model.Time
	BootAt model.Time

	LicensesInUse []model.LicenseCount // in the order of Config.Licenses

	LicensesReserved []model.LicenseCount // what active reservations have of them, in the same order
}

func (x *ConfigReply) Wire(c *wire.C) {
	wire.Ptr(c, &x.Config)
	wire.List(c, &x.Paths, model.MaxFew)
	wire.Int(c, &x.Now)
	wire.Int(c, &x.BootAt)
	wire.List(c, &x.LicensesInUse, model.MaxFew)
	wire.List(c, &x.LicensesReserved, model.MaxFew)
}

// AcctRequest asks the accounting daemon for job records. Answered by a stream of RecordsChunk, ordered by job and
// attempt.
type AcctRequest struct {
	Jobs       []model.JobRef
	Users      []uint32
	Groups     []uint32
	Accounts   []string
	Partitions []string
	Names      []string
	QOS        []string
	Nodes      []string
	States     []model.JobState
	Start      model.Time // window; 0: none
	End        model.Time
	Duplicates bool // -D: every attempt of a requeued job, not only the last
	Summaries  bool // also the JS1 summaries
	Steps      bool // also the records of each job's steps, right after its own
	WCKeys     []string
	Sizes      bool // also the earlier sizes of a job's last run
}

func (x *AcctRequest) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Ints(c, &x.Groups, model.MaxList)
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Texts(c, &x.QOS, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Ints(c, &x.States, model.MaxList)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Bool(c, &x.Duplicates)
	wire.Bool(c, &x.Summaries)
	wire.Bool(c, &x.Steps)
	wire.Texts(c, &x.WCKeys, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Sizes)
}

// RecordsChunk is a part of the answer.
type RecordsChunk struct {
	Records []*model.Record

	Summaries []string // summary of each record, if they were asked for; "": it has none

	Note string // a sentence for who reads the answer, such as that a copy gives it; "": none
}

func (x *RecordsChunk) Wire(c *wire.C) {
	wire.Ptrs(c, &x.Records, model.MaxMany)
	wire.Texts(c, &x.Summaries, model.MaxMany, model.MaxText)
	wire.Text(c, &x.Note, model.MaxText)
}

// Unpaid is the memory beyond what the message's length allows: gdbd sends records as they are stored, and decoding an
// empty one takes about a KiB.
func (x *RecordsChunk) Unpaid() int { return ChunkJobs * 2 << 10 }

// SharesRequest asks for usage by account and user.
type SharesRequest struct {
	Accounts []string
	Users    []uint32
	Names    []string // users by name, in addition to Users
}

func (x *SharesRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
}

// ShareRow is one line of gshare: an account (User "") or a user in an account.
type ShareRow struct {
	Account    string
	Parent     string
	User       string
	UID        uint32
	Depth      int32
	RawShares  int64
	NormShares float64
	RawUsage   int64 // CPU-seconds
	NormUsage  float64
	FairShare  float64

	Partition   string
	UseParent   bool    // Fairshare=parent
	Used        float64 // effective usage, among its siblings
	LevelFS     float64 // +Inf without usage
	ID          uint32  // of the association
	GrpTRESMins []model.TRESLimit
	RunMins     []model.TRESCount // TRES-minutes that running jobs may still use
	TRESMins    []model.TRESCount // used, in minutes
}

func (x *ShareRow) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.Parent, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.Depth)
	wire.Int(c, &x.RawShares)
	wire.Float(c, &x.NormShares)
	wire.Int(c, &x.RawUsage)
	wire.Float(c, &x.NormUsage)
	wire.Float(c, &x.FairShare)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Bool(c, &x.UseParent)
	wire.Float(c, &x.Used)
	wire.Float(c, &x.LevelFS)
	wire.Int(c, &x.ID)
	wire.List(c, &x.GrpTRESMins, model.MaxFew)
	wire.List(c, &x.RunMins, model.MaxFew)
	wire.List(c, &x.TRESMins, model.MaxFew)
}

// SharesReply lists accounts, each followed by its users.
type SharesReply struct {
	Rows []ShareRow
}

func (x *SharesReply) Wire(c *wire.C) {
	wire.List(c, &x.Rows, model.MaxMany)
}

// ReservationsReply lists reservations in order of name; CPUs has the CPUs of all nodes of each.
type ReservationsReply struct {
	Now  model.Time
	List []*model.Reservation
	CPUs []int64

	Sizes []ResvSize // size of each reservation
}

func (x *ReservationsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.List, model.MaxList)
	wire.Ints(c, &x.CPUs, model.MaxList)
	wire.List(c, &x.Sizes, model.MaxList)
}

// ResvSize is the sum of what a reservation takes of its nodes.
type ResvSize struct {
	CPUs     int64
	Cores    int64
	Gres     []model.TRESCount // gres/NAME
	PartGres []string          // for each node of which it takes a part: gpu:a100:2
}

func (x *ResvSize) Wire(c *wire.C) {
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.Cores)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Texts(c, &x.PartGres, model.MaxList, model.MaxText)
}

// ScriptRequest asks for a job's batch script; only its owner and operators get it.
type ScriptRequest struct {
	Job model.JobID
	Env bool // the environment of the submission instead: NAME=value, each ended by a NUL
}

func (x *ScriptRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Bool(c, &x.Env)
}

// ScriptReply is the script as it was submitted.
type ScriptReply struct {
	Script []byte
}

func (x *ScriptReply) Wire(c *wire.C) {
	wire.Bytes(c, &x.Script, model.MaxFile)
}

// DumpKind says what a dump is.
type DumpKind uint8

// The kinds.
const (
	DumpForSim   DumpKind = iota // WriteDump in package state
	DumpSnapshot                 // package snapfile
	DumpJSON
)

// DumpRequest asks for the leader's state. Controllers of before know only DumpForSim.
type DumpRequest struct {
	What DumpKind
}

func (x *DumpRequest) Wire(c *wire.C) {
	wire.Int(c, &x.What)
}

// DumpChunk is a part of a dump of the leader's state. It has scripts and environments of all jobs, so only operators
// get it.
type DumpChunk struct {
	Data []byte
}

func (x *DumpChunk) Wire(c *wire.C) {
	wire.Bytes(c, &x.Data, model.MaxFile)
}

// DumpChunkBytes is the size of a dump's part in one frame.
const DumpChunkBytes = 256 << 10
