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

	// Less is how many steps of model.Rights the caller has less than by name: a token may say less. Of controllers only.
	Less uint8

	// Via is the certificate of the host through which the caller's token was made; nil: of none. Of controllers only.
	Via *model.Cert
}

func (x *Caller) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Ints(c, &x.Groups, model.MaxList)
	wire.Text(c, &x.User, model.MaxName)
	wire.Text(c, &x.Group, model.MaxName)
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.Less)
	wire.Ptr(c, &x.Via)
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
	wire.Held(c, &x.Body, model.MaxFile)
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
	wire.ID(c, &x.ID, model.MaxName)
	wire.Int(c, &x.Kind)
	wire.Held(c, &x.Body, model.MaxFile)
	wire.Int(c, &x.AtMS)
}

// Stale carries a request that only reads to any controller, which answers it from its own facts if no controller
// leads: the frames of the answer, all with FlagMore, and then StaleEnd.
type Stale struct {
	Kind uint16
	Body []byte
}

func (x *Stale) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Held(c, &x.Body, model.MaxFile)
}

// StaleEnd says how old the answer before it is, or why there is none.
type StaleEnd struct {
	AgeMS int64 // 0: it comes from a daemon that is up to date
	Code  uint16
	Text  string // with Code
	From  string // the controller that has answered
}

func (x *StaleEnd) Wire(c *wire.C) {
	wire.Int(c, &x.AgeMS)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Text(c, &x.From, model.MaxName)
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

	// Acked is the number of the last record that a gdbd has acknowledged in this instance, 0 if none ever has or if
	// the controllers don't know (older ones never say it). Dropped, at most Acked, is the number of the last of these
	// that the controllers don't have any more; they keep the ones after it for a while. A gdbd whose own last number is
	// less than Acked has lost records. If it does not know the instance at all, its database is missing, and it refuses
	// the request (CodeNoAccounting, with a sentence that the controller passes on) until a person restores a backup or
	// tells it to begin empty. If it knows the instance, a backup was restored: it answers with its own last number, and
	// the controller sends again what follows, under the same numbers. What is after that and not after Dropped is
	// missing for good; gdbd says so in PutReply.Notes.
	Acked, Dropped uint64

	Now model.Time // of the cluster, as the leader has it; 0: an older one, which does not say it
}

func (x *Put) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Ptrs(c, &x.Records, model.MaxMany)
	wire.Int(c, &x.Instance)
	wire.List(c, &x.Eras, model.MaxFew)
	wire.Int(c, &x.Acked)
	wire.Int(c, &x.Dropped)
	wire.Int(c, &x.Now)
}

// ImportInstance is the instance of records that come from another batch system and not from a controller. They were
// before everything that a cluster of this name has recorded by itself.
const ImportInstance uint64 = 1<<64 - 1

// PutReply acknowledges every record of the instance up to Seq: they are on disk.
type PutReply struct {
	Seq uint64

	// In the answer to a Put without records.
	LastJob model.JobID // the instance's highest job number on record
	Notes   []string    // what administrators have to know of the database, in sentences
	Now     model.Time  // of the cluster, as its leader told it last, or else of gdbd's host; 0: an older gdbd
}

func (x *PutReply) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.LastJob)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Int(c, &x.Now)
}

// Asked waits at gdbd until somebody asks for records, so that the leader sends at once what is new, and the answer has
// it. Each answer opens a round. Done is the round that ends: what was recorded when the leader heard of it was sent.
type Asked struct{ Done uint64 }

func (x *Asked) Wire(c *wire.C) { wire.Int(c, &x.Done) }

// AskedReply opens a round; 0: nobody has asked in a while.
type AskedReply struct{ Round uint64 }

func (x *AskedReply) Wire(c *wire.C) { wire.Int(c, &x.Round) }

// WitnessReply says whether a daemon hears a controller that leads, at this moment and not as it remembers.
type WitnessReply struct {
	Hears   bool
	LeadsMS int64 // for how long that controller has heard nodes without a break, ms
}

func (x *WitnessReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Hears)
	wire.Int(c, &x.LeadsMS)
}

// MomentReply has a controller's clocks, and how it is. One of an older version tells only the clocks.
type MomentReply struct {
	Host    model.Time // what its host's clock says
	Cluster model.Time // the cluster's time as it knows it
	Leads   bool       // Cluster stamps commands

	Name    string
	Version string
	Leader  string // whom it follows; "": nobody
	Term    uint64
	Index   uint64   // last entry of the log that it has applied
	Last    uint64   // last entry that it has
	Joins   bool     // it began without state, and does not have all of it
	Stalled bool     // its disk does not take what is written
	Members []string // the controllers, if it leads, as a majority confirms now; nil: it does not lead

	Troubles []Trouble // of its host

	// JobEventProgram was told of all events up to this entry of the log, as far as it knows; 0: it does not
	Told uint64

	UpMS int64 // for how long its process has run, ms; 0: an older version

	Alerts []Alerted // what AlertProgram was told of and is not over, as far as it knows
}

// Alerted is a trouble that a leader has told: the next one tells its end.
type Alerted struct {
	Event, Daemon string
	What          string // tells apart those of one event
}

func (x *Alerted) Wire(c *wire.C) {
	wire.Text(c, &x.Event, model.MaxName)
	wire.Text(c, &x.Daemon, model.MaxText)
	wire.Text(c, &x.What, model.MaxText)
}

// Trouble is something wrong with a controller's host, which it tells the leader for AlertProgram.
type Trouble struct {
	Event string // disk_full, disk_slow, disk_broken, records_refused or certificate_expires
	Text  string
}

func (x *Trouble) Wire(c *wire.C) {
	wire.Text(c, &x.Event, model.MaxName)
	wire.Text(c, &x.Text, model.MaxText)
}

func (x *MomentReply) Wire(c *wire.C) {
	wire.Int(c, &x.Host)
	wire.Int(c, &x.Cluster)
	wire.Bool(c, &x.Leads)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Text(c, &x.Leader, model.MaxName)
	wire.Int(c, &x.Term)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.Last)
	wire.Bool(c, &x.Joins)
	wire.Bool(c, &x.Stalled)
	wire.Texts(c, &x.Members, model.MaxFew, model.MaxName)
	wire.List(c, &x.Troubles, model.MaxFew)
	wire.Int(c, &x.Told)
	wire.Int(c, &x.UpMS)
	wire.List(c, &x.Alerts, model.MaxList)
}
