package state

import (
	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// State is the facts. It is not safe for concurrent use: its owner (package ctld's machine) calls Apply and View under
// one lock, and gives Views to all readers.
type State struct {
	facts

	// Derived from the facts, rebuilt by reindex; never in a snapshot.
	limits   *btree.BTreeG[due]      // jobs with resources, by the moment their time limit ends
	begins   *btree.BTreeG[due]      // pending jobs that only wait for their begin time
	asked    *btree.BTreeG[askedKey] // unfinished jobs, by the reservations that they asked for
	dooms    *btree.BTreeG[due]      // pending jobs, by the moment from which they can't end before their deadline
	warnings *btree.BTreeG[due]      // running jobs, by the moment of the signal that they asked for
	takes    *btree.BTreeG[due]      // elastic jobs that are to give nodes back, by the moment at which these are taken
	halfways *btree.BTreeG[due]      // running jobs, by the moment of the next mail about their time limit
	finished *btree.BTreeG[due]      // finished jobs, by the moment of their end
	waiters  *btree.BTreeG[waitKey]  // jobs that wait for a job, an array or one of its tasks
	spents   *btree.BTreeG[due]      // triggers that are over, by the moment at which they are forgotten

	resumes *btree.BTreeG[resume] // nodes that are out of service, by when they resume by themselves

	shared *interned
	held   holdings

	purses  *btree.Map[string, *purse] // holders of limits in minutes; see purse.go
	spends  *btree.BTreeG[spendDue]
	touched []*purse // purses whose due must be computed again
	capped  bool     // an association or QOS has MaxTRESMins
	capDue  *btree.BTreeG[due]
	capAt   *btree.Map[model.JobID, model.Time] // each job's entry in capDue

	last   *View // the last View, given again as long as nothing has changed
	queues map[string]*btree.BTreeG[readyKey]
	peek   View

	ages ages // jobs that wait to gain priority by age; see age.go

	now told // what the command under way says of itself; see trail.go

	jobTriggers map[model.JobID][]uint32 // of each job with any
	stirs       stirs                    // what the command under way has done; see trigger.go

	woken []*model.Job // started and ended jobs whose waiters are still to be checked: empty between Applies
}

// facts is the part of State that a View shares. All trees are copy-on-write, all values immutable.
type facts struct {
	gen      uint64 // grows with every Apply
	cfg      *model.Config
	instance uint64                      // identifies this history of job numbers: a cluster that starts over has another
	parts    map[string]*model.Partition // by name; replaced whole with cfg
	defs     map[string]*model.NodeDef   // by name; replaced whole with cfg
	nextID   model.JobID
	jobs     *btree.Map[model.JobID, *model.Job]
	nodes    *btree.Map[string, *model.Node]
	blobs    *btree.Map[string, *model.Blob]
	usage    *btree.Map[string, *Usage]
	qosUse   *btree.Map[string, *Usage] // by QOS
	acctUse  *btree.Map[string, *Usage] // by account, including accounts below it: only accounts with limits in minutes
	arrays   *btree.Map[model.JobID, *Array]
	elems    *btree.Map[uint64, model.JobID] // array<<32|task -> the task's own job
	groups   *btree.Map[uint64, model.JobID] // array<<32|job -> several tasks with a record that is not the array's own
	ready    *btree.Map[string, *queue]      // by partition: the jobs that may start if there is room

	licenses map[string]int64 // in use, by name; derived, and replaced whole

	// jobs for which a node still needs orders: CONFIGURING, COMPLETING, ever suspended, not ready on all nodes
	moving *btree.Map[model.JobID, model.JobState]
	rising int                               // nodes that are off or on their way up; derived
	shares *btree.Map[model.JobID, struct{}] // jobs with resources that share CPUs or are suspended
	live   *btree.BTreeG[liveKey]            // unfinished jobs by user and name
	owned  *btree.BTreeG[ownedKey]           // all jobs by user and phase

	requests *btree.Map[string, request]
	reqQueue *btree.Map[uint64, string] // requests in order of arrival
	nextReq  uint64
	answers  answers // to requests that were made; see once.go

	accounts  *btree.Map[string, *model.Account]
	users     *btree.Map[string, *model.User]
	assocs    *btree.Map[string, *model.Association]
	qos       *btree.Map[string, *model.QOS]
	acctGen   uint64 // grows with every change of accounts, users, associations or QOS
	nextAssoc uint32
	nextQOS   uint32
	wckeys    *btree.Map[string, *model.WCKey] // by user and name
	nextWCKey uint32
	resetAt   model.Time // usage before this moment is forgotten

	wallets     *btree.Map[string, *price.Wallet]
	invoices    *btree.Map[uint64, *price.Invoice] // the latest ones, by number
	nextInvoice uint64

	outbox   *btree.Map[uint64, *model.Job]  // accounting events not yet acknowledged, by sequence
	outSteps *btree.Map[uint64, *model.Step] // events that are ends of steps, by sequence; the outbox has their jobs
	outSeq   *btree.Map[model.JobID, uint64]
	outTrail *btree.Map[uint64, *model.Audit] // events that are entries of the audit trail, by sequence
	capacity []model.TRESCount                // of all nodes, as the trail last had it; replaced whole
	nextSeq  uint64
	shipped  shipped
	detail   detail // derived
	givenUp  *btree.BTreeG[lastAttempt]
	eras     []model.Era // replaced whole; empty: the history has never gone back

	mails    *btree.Map[uint64, *Mail] // not yet sent, in order
	nextMail uint64

	turns    []model.ResvTurn // of which no program has been told yet, in order; replaced whole
	nextTurn uint64

	tallies  *btree.Map[string, *Tally] // derived; see tally.go
	counting bool                       // tallies are kept
	byNode   bool                       // a limit is on the nodes that jobs hold together
	pledged  bool                       // an account has GuaranteedTRES

	crontabs *btree.Map[uint32, *model.Crontab] // by user
	undue    *btree.Map[model.JobID, struct{}]  // jobs of crontabs that wait for their next time; derived

	triggers triggers

	resvs   *btree.Map[string, *model.Reservation]
	certs   certs
	tokens  tokens
	resvGen uint64 // grows with every change of reservations; not in a snapshot

	journal  journal
	happened happened
	outcomes Outcomes

	nextDue model.Time // when the next Tick has something to do; 0: never
	active  int        // jobs with resources
	pending int        // pending records
}

// Array is the state of one array as a whole. Immutable.
type Array struct {
	ID      model.JobID
	Total   int32 // tasks as submitted
	Min     int32
	Max     int32
	Step    int32
	Waiting int32 // tasks that have not started
	Active  int32 // tasks with resources
	Done    int32
	Failed  int32 // of Done: not COMPLETED
	MaxExit int32

	// For the mail about the whole array.
	Begun     bool  // a task has started
	Back      bool  // a task was put back into the queue
	Ill       int32 // of Failed: not cancelled either
	LeastExit int32 // exit codes of the tasks in Done
	MostExit  int32
	MaxSignal int32

	Culprit string // the task that failed first: "job 12_3 ended FAILED"; "" while none has
}

func (x *Array) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Total)
	wire.Int(c, &x.Min)
	wire.Int(c, &x.Max)
	wire.Int(c, &x.Step)
	wire.Int(c, &x.Waiting)
	wire.Int(c, &x.Active)
	wire.Int(c, &x.Done)
	wire.Int(c, &x.Failed)
	wire.Int(c, &x.MaxExit)
	wire.Bool(c, &x.Begun)
	wire.Bool(c, &x.Back)
	wire.Int(c, &x.Ill)
	wire.Int(c, &x.LeastExit)
	wire.Int(c, &x.MostExit)
	wire.Int(c, &x.MaxSignal)
	wire.Text(c, &x.Culprit, model.MaxText)
}

type request struct {
	Job model.JobID
	At  model.Time
	Seq uint64
}

// due is a job and a moment.
type due struct {
	at model.Time
	id model.JobID
}

func dueLess(a, b due) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}

// liveKey orders unfinished jobs by user and name, then by submission, for singleton dependencies.
type liveKey struct {
	uid  uint32
	name string
	root model.JobID // the array's number for its tasks
	id   model.JobID
}

func liveLess(a, b liveKey) bool {
	switch {
	case a.uid != b.uid:
		return a.uid < b.uid
	case a.name != b.name:
		return a.name < b.name
	case a.root != b.root:
		return a.root < b.root
	}
	return a.id < b.id
}

// ownedKey orders jobs by user and phase, then by ID.
type ownedKey struct {
	uid   uint32
	phase Phase
	id    model.JobID
}

func ownedLess(a, b ownedKey) bool {
	switch {
	case a.uid != b.uid:
		return a.uid < b.uid
	case a.phase != b.phase:
		return a.phase < b.phase
	}
	return a.id < b.id
}

// waitKey says that job id waits for target or, if task is set, for one task of it.
type waitKey struct {
	target model.JobID
	task   int32
	id     model.JobID
}

func waitLess(a, b waitKey) bool {
	switch {
	case a.target != b.target:
		return a.target < b.target
	case a.task != b.task:
		return a.task < b.task
	}
	return a.id < b.id
}

// readyKey orders a partition's queue: priority, then age.
type readyKey struct {
	prio uint32
	id   model.JobID
}

func readyLess(a, b readyKey) bool {
	if a.prio != b.prio {
		return a.prio > b.prio
	}
	return a.id < b.id
}

type queue struct {
	tree *btree.BTreeG[readyKey]
	copy *btree.BTreeG[readyKey] // the last View's copy; nil if the queue has changed since
}

// Limits that the state itself keeps.
const (
	// requestAgeS is how long a RequestID is remembered, seconds: longer than any client retries.
	requestAgeS = 600
	// FirstJobID is the first job of a cluster.
	FirstJobID = 1
	// MaxDeps bounds the dependencies of one job.
	MaxDeps = 1024
	// MaxTasks bounds the tasks of one array, whatever MaxArraySize says.
	MaxTasks = 1 << 24
	// MaxJobID is the highest number of a new submission; the numbers above are for tasks of pending arrays.
	MaxJobID = 1<<32 - 1<<24
)

var noLocks = btree.Options{NoLocks: true}

// New gives an empty state.
func New() *State {
	s := &State{}
	s.facts = facts{
		cfg: &model.Config{}, parts: map[string]*model.Partition{}, defs: map[string]*model.NodeDef{}, nextID: FirstJobID,
		nextSeq: 1, nextReq: 1, nextMail: 1, nextTurn: 1,
		jobs: new(btree.Map[model.JobID, *model.Job]), nodes: new(btree.Map[string, *model.Node]),
		blobs: new(btree.Map[string, *model.Blob]), usage: new(btree.Map[string, *Usage]),
		qosUse:   new(btree.Map[string, *Usage]),
		acctUse:  new(btree.Map[string, *Usage]),
		accounts: new(btree.Map[string, *model.Account]), users: new(btree.Map[string, *model.User]),
		assocs: new(btree.Map[string, *model.Association]), qos: new(btree.Map[string, *model.QOS]),
		arrays: new(btree.Map[model.JobID, *Array]), elems: new(btree.Map[uint64, model.JobID]),
		groups: new(btree.Map[uint64, model.JobID]),
		moving: new(btree.Map[model.JobID, model.JobState]), shares: new(btree.Map[model.JobID, struct{}]),
		ready: new(btree.Map[string, *queue]), requests: new(btree.Map[string, request]),
		reqQueue: new(btree.Map[uint64, string]), outbox: new(btree.Map[uint64, *model.Job]),
		outTrail: new(btree.Map[uint64, *model.Audit]),
		outSteps: new(btree.Map[uint64, *model.Step]), mails: new(btree.Map[uint64, *Mail]),
		wckeys: new(btree.Map[string, *model.WCKey]), nextWCKey: 1,
		crontabs: new(btree.Map[uint32, *model.Crontab]), undue: new(btree.Map[model.JobID, struct{}]),
		resvs:  new(btree.Map[string, *model.Reservation]),
		outSeq: new(btree.Map[model.JobID, uint64]), tallies: new(btree.Map[string, *Tally]), journal: newJournal(),
		wallets: new(btree.Map[string, *price.Wallet]), invoices: new(btree.Map[uint64, *price.Invoice]), nextInvoice: 1,
		answers: newAnswers(), shipped: newShipped(), certs: newCerts(), triggers: newTriggers(),
	}
	s.givenUp = newGivenUp()
	s.seed()
	s.reset()
	return s
}

// reset empties everything that is derived.
func (s *State) reset() {
	s.licenses, s.ages, s.held = nil, noAges(), newHoldings()
	s.noPurses()
	s.limits = btree.NewBTreeGOptions(dueLess, noLocks)
	s.begins = btree.NewBTreeGOptions(dueLess, noLocks)
	s.asked = btree.NewBTreeGOptions(askedLess, noLocks)
	s.dooms = btree.NewBTreeGOptions(dueLess, noLocks)
	s.warnings = btree.NewBTreeGOptions(dueLess, noLocks)
	s.takes = btree.NewBTreeGOptions(dueLess, noLocks)
	s.halfways = btree.NewBTreeGOptions(dueLess, noLocks)
	s.finished = btree.NewBTreeGOptions(dueLess, noLocks)
	s.live = btree.NewBTreeGOptions(liveLess, noLocks)
	s.owned = btree.NewBTreeGOptions(ownedLess, noLocks)
	s.waiters = btree.NewBTreeGOptions(waitLess, noLocks)
	s.spents = btree.NewBTreeGOptions(dueLess, noLocks)
	s.resumes = btree.NewBTreeGOptions(resumeLess, noLocks)
	s.jobTriggers = map[model.JobID][]uint32{}
	if s.shared == nil {
		s.shared = newInterned()
	}
}

func elemKey(array model.JobID, task int32) uint64 { return uint64(array)<<32 | uint64(uint32(task)) }

func groupKey(array, id model.JobID) uint64 { return uint64(array)<<32 | uint64(id) }

// Refusal is the reason why a command changed nothing, for one target or at all. ctld turns it into a sentence.
type Refusal uint8

// The refusals.
const (
	OK Refusal = iota
	NoSuchJob
	AlreadyDone
	NotPending
	BadDependency
	ContentMissing // the leader must send the script or environment whole
	TooManyJobs
	NoSuchNode
	NotFits // a start whose resources are no longer free
	StillEnding
	CannotRequeue
	Outdated // made from facts that have changed since: try again
	NoSuchAccount
	NoSuchUser
	NoSuchQOS
	NoSuchAssoc
	Circular   // an account would be below itself
	InUse      // other records refer to it
	JobsActive // unfinished jobs refer to it
	NoSuchReservation
	Overlapping // conflicts with another reservation
	OverLimit   // a limit on unfinished jobs (Result.Reason)
	NotRunning  // a job to suspend is not running, or a job to resume is not suspended
	WillResume  // the job resumes as soon as its CPUs are free
	Repeated    // the request was made before (View.Answer)
	Full        // there may be no more of them
	NoSuchToken // or its secret is another one, or it is for another daemon
	TokenUsed
	TokenExpired
	CertIsRevoked
	BadUser  // a job can't be of this user
	TooLong  // a job's description has more bytes than it may have
	WholeHet // it can be done to a heterogeneous job only as a whole
	NoSuchPartition
	NoSuchWCKey
	NameTaken
	NoSuchTrigger
)

var refusalNames = [...]string{OK: "ok", NoSuchJob: "no such job", AlreadyDone: "already done",
	NotPending:    "not pending",
	BadDependency: "bad dependency", ContentMissing: "content missing", TooManyJobs: "too many jobs",
	NoSuchNode: "no such node",
	NotFits:    "does not fit", StillEnding: "still ending", CannotRequeue: "cannot be requeued",
	Outdated: "outdated", NoSuchAccount: "no such account", NoSuchUser: "no such user", NoSuchQOS: "no such QOS",
	NoSuchAssoc: "no such association", Circular: "an account below itself", InUse: "in use",
	JobsActive: "jobs are active", NoSuchReservation: "no such reservation",
	Overlapping: "overlaps with another reservation", OverLimit: "over a limit",
	NotRunning: "does not run, or is not suspended", WillResume: "goes on when its CPUs are free",
	Repeated: "made before", Full: "too many", NoSuchToken: "no such token", TokenUsed: "token was used",
	TokenExpired: "token has expired", CertIsRevoked: "certificate is revoked",
	BadUser: "of a user whose jobs it can't be",
	TooLong: "too long a description", WholeHet: "only to the whole heterogeneous job",
	NoSuchPartition: "no such partition", NoSuchWCKey: "the user has no such wckey",
	NameTaken: "there is one of that name", NoSuchTrigger: "no such trigger"}

// String gives the refusal in a few words, for logs.
func (r Refusal) String() string {
	if int(r) >= len(refusalNames) {
		return "unknown"
	}
	return refusalNames[r]
}

// Result is the result of Apply: Job for Submit, Each with one Refusal per target or start, in order.
type Result struct {
	Refusal Refusal
	Job     model.JobID
	Each    []Refusal
	Changed bool
	Reason  model.Reason // with OverLimit: the limit
	Parts   []Result     // of a Once: one for each part
}

// Apply applies one command to the facts. It keeps parts of the command and changes others, so apply a command to one
// state only; a second replica decodes its own.
func (s *State) Apply(c Command) Result {
	s.gen++
	s.hear(c)
	res := s.fold(c)
	s.pull(c.At)
	s.tellCapacity()
	if s.letAge(c.At) {
		s.plan()
		res.Changed = true
	}
	return res
}

func (s *State) fold(c Command) Result {
	switch b := c.Body.(type) {
	case *Submit:
		return s.applySubmit(c.At, b)
	case *Starts:
		return s.applyStarts(c.At, b)
	case *Reports:
		return s.applyReports(c.At, b)
	case *Stop:
		return s.applyStop(c.At, b)
	case *Edit:
		return s.applyEdit(c.At, b)
	case *Join:
		return s.applyJoin(c.At, b)
	case *Lost:
		return s.applyLost(c.At, b)
	case *NodeHealth:
		return s.applyNodeHealth(c.At, b)
	case *NodeEdit:
		return s.applyNodeEdit(c.At, b)
	case *SetConfig:
		return s.applyConfig(c.At, b)
	case *Trim:
		return s.applyTrim(c.At, b)
	case *Tick:
		return s.applyTick(c.At, b)
	case *Accounts:
		return s.applyAccounts(c.At, b)
	case *Reserve:
		return s.applyReserve(c.At, b)
	case *Suspend:
		return s.applySuspend(c.At, b)
	case *Units:
		return s.applyUnits(c.At, b)
	case *Mailed:
		return s.applyMailed(b)
	case *Once:
		return s.applyOnce(c.At, b, c.parts)
	case *NewEra:
		return s.applyNewEra(c.At, b)
	case *Certs:
		return s.applyCerts(c.At, b)
	case *SubmitHet:
		return s.applySubmitHet(c.At, b)
	case *Tokens:
		return s.applyTokens(c.At, b)
	case *Define:
		return s.applyDefine(c.At, b)
	case *Reboots:
		return s.applyReboots(c.At, b)
	case *Audits:
		return s.applyAudits(b)
	case *Powers:
		return s.applyPowers(c.At, b)
	case *Resize:
		return s.applyResize(c.At, b)
	case *Credit:
		return s.applyCredit(b)
	case *Issue:
		return s.applyIssue(b)
	case *ResvTold:
		return s.applyResvTold(b)
	case *Crontab:
		return s.applyCrontab(c.At, b)
	case *Triggers:
		return s.applyTriggers(c.At, b)
	}
	return Result{}
}
