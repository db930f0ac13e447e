package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/sched/demand"
	"gbatch/internal/sched/headroom"
	"gbatch/internal/state"
)

// Planner makes plan after plan over the views of one State. It keeps intermediate results from one pass to the next
// (see sync.go), and gives the same plans as Plan. Not safe for concurrent use.
type Planner struct {
	v         *state.View
	now       model.Time
	policy    Policy
	cfg       *model.Config
	cursorAt  state.Cursor
	stock     *stock
	social    bool  // some partition's rules depend on the jobs on a node
	tiers     bool  // partitions have different tiers
	lic       *node // stands for all licenses; nil: there are none
	licHeld   map[model.JobID]*hold
	licBooked []*hold
	apart     bool // some job shares its nodes only with jobs of its user
	mixes     bool // some job shares its CPUs

	nodes   []*node
	byName  map[string]*node
	classes []*nodeClass
	pools   []*pool
	shapes  map[string]map[string]*shape // by the partitions' rules (shapesOf), then by ask.Key
	lanes   []*lane
	laneBy  map[string]*lane
	jobs    map[model.JobID]*entry // pending jobs that may start

	pass, round              uint64
	orderEpoch, predictEpoch uint64
	usable                   uint64 // grows when a node comes or goes
	nextEnd                  model.Time
	moved                    bool // something other than nodes has changed since the last pass
	soiled, used             []*node
	loaded                   map[string][]*node // by model, as of the pass loadedAt
	loadedAt                 uint64

	plan    model.Plan
	running map[model.JobID]int32    // tasks started in this plan, by array
	said    []*entry                 // jobs with a reason, in order
	kept    map[model.JobID]*booking // promises
	early   bool                     // some job ended before its time
	wake    model.Time
	alarm   model.Time // the same for what all rounds of a pass have in common; 0: none
	settled model.Time // until when this pass's jobs wait for others that are COMPLETING; 0: they don't
	ids     []model.JobID
	later   []candidate // jobs that ShortestFirst has put off until the end of the pass
	keeping bool        // some node is kept for a blocked job
	again   bool        // a reservation has become free
	rounds  int
	tested  int
	seen    int // jobs looked at, see Pass
	ahead   int // jobs started ahead of their turn
	byUser  map[uint64]int
	byAssoc map[string]int

	lim     *limiter // nil: limits are not enforced
	acctGen uint64
	lifts   bool         // some QOS lifts limits of partitions
	over    model.Reason // the limit that the last allocation broke

	claimed   map[model.JobID]bool // jobs with a claim
	claimers  []*entry             // jobs whose claims this pass has put onto the calendar
	letGo     []model.JobID        // jobs whose claims this plan ends
	victims   map[model.JobID]fate // jobs that this plan ends or suspends
	vain      vain                 // jobs for which this pass found no victims
	tries     int
	looks     int                   // jobs of which it was asked whether preemption is futile
	callLooks int                   // as looks: whether elastic jobs could give back enough
	emptiest  map[preyKey][]emptied // in this pass
	lowest    int32                 // the lowest tier of all partitions
	totalAt   uint64
	total     []model.TRESCount

	// there are advance reservations: jobs are planned with their limits, because a job may outlive its prediction and
	// run into a window
	windowed   bool
	windowGen  uint64          // View.ResvGen when the nodes' windows were made, plus 1
	windowTurn uint64          // grows when the windows change
	floating   bool            // some reservation begins later in each pass
	roams      map[string]bool // reservations that let their jobs use other nodes too
	magnets    []*model.Reservation
	waiting    map[string]bool // reservations with a MaxStartDelay

	hets     int       // heterogeneous jobs that may start
	bookings []booked  // this plan's, if there are such jobs
	counted  []charged // as well

	mix     *demand.Mix     // Policy.Demand
	mixTurn uint64          // grows when costs must be computed anew
	tables  []*demand.Table // by class of nodes; nil: not made yet
	costed  []*shape        // shapes with costs, the oldest first

	elastic    map[model.JobID]*model.Job // elastic jobs with resources
	growers    []grower                   // the same, in order
	growersOld bool                       // they are to be made anew
	asked      map[model.JobID][]string   // nodes for which this plan asks elastic jobs
	vainCalls  vain                       // jobs for which this pass found no nodes to ask for
	calls      int
	spare      bool   // some elastic job has more than its least
	spareAt    uint64 // Planner.pass in which spare was found out

	lender   *headroom.Lender // of the pass lenderAt
	lenderAt uint64

	cursor cursor
	rooms  []*room

	moments []model.Time
	key     []byte

	forgetful bool // for tests: nothing found out for one job is used for the next
}

// NewPlanner gives a Planner for the views of one State.
func NewPlanner() *Planner {
	return &Planner{running: map[model.JobID]int32{}, kept: map[model.JobID]*booking{}, claimed: map[model.JobID]bool{},
		vain: vain{}, emptiest: map[preyKey][]emptied{}, roams: map[string]bool{},
		elastic: map[model.JobID]*model.Job{}, asked: map[model.JobID][]string{}, vainCalls: vain{},
		cursor: cursor{notice: -1}}
}

// Plan decides what starts now.
//
//  1. Follow the changes since the last pass: nodes, jobs, the time (sync.go).
//  2. Merge the partitions' queues, best job first (walk.go).
//  3. Start the job at the head while it fits (shape.go). A job that would not fit even if all other jobs on the nodes
//     that are up had ended waits for nodes, not for room: it blocks no other job.
//  4. A job that does not fit gets a reservation on the calendar, up to the policy's depth (reserve.go, timeline.go).
//     With a depth of 0 it blocks its partition.
//  5. A job behind it starts as well if it fits now and, until its planned end, beside all reservations ahead of it.
//  6. Give what is left to elastic jobs (elastic.go).
//  7. Give the other jobs their reasons (reason.go).
func (p *Planner) Plan(v *state.View, now model.Time, pol Policy) model.Plan {
	if pol.MaxStarts <= 0 {
		pol.MaxStarts = DefaultMaxStarts
	}
	if pol.Depth <= 0 {
		pol.Depth = DefaultDepth
	}
	if !pol.Backfill.On {
		pol.Backfill.Reserve = 0
	}
	p.forgetLicenses()
	p.sync(v, now, pol)
	p.lateLicenses()
	// the first such job: from now on the planner keeps which jobs are on each node
	if p.apart && !p.stock.byUser || p.mixes && !p.stock.shared {
		p.early = true
		p.build()
	}
	p.plan = model.Plan{}
	clear(p.running)
	p.said, p.rounds, p.ahead, p.seen, p.alarm = p.said[:0], 0, 0, 0, 0
	p.bookings, p.counted = p.bookings[:0], p.counted[:0]
	p.letLower()
	p.windows()
	p.promises()
	p.claims()
	p.wakeUp()
	p.walk()
	p.grow()
	p.sayTogether()
	p.say()
	return p.plan
}

// Plan makes one plan, with a new Planner.
func Plan(v *state.View, now model.Time, p Policy) model.Plan { return NewPlanner().Plan(v, now, p) }

// Expected gives the moment and the nodes of a job's reservation in the last plan; ok is false if it has none.
func (p *Planner) Expected(id model.JobID) (at model.Time, nodes []string, ok bool) {
	e := p.jobs[id]
	if e == nil || e.pass != p.pass || len(e.resv) == 0 {
		return 0, nil, false
	}
	b := e.resv[0]
	for _, n := range b.nodes {
		nodes = append(nodes, n.def.Name)
	}
	return b.at, nodes, true
}

// Positions calls f for every job that waits for its turn, once for each of its partitions, with its place in that
// partition's queue, from 1.
func (p *Planner) Positions(f func(id model.JobID, place int32)) {
	for _, l := range p.lanes {
		place := int32(0)
		for i := l.first; i < len(l.items); i++ {
			if e := l.items[i].e; e != nil {
				place++
				f(e.j.ID, place)
			}
		}
	}
}

// Expectations calls f for every job that has a place on the calendar in the last plan, or waits for an advance
// reservation to begin.
func (p *Planner) Expectations(f func(id model.JobID, e *model.Expect)) {
	for _, e := range p.said {
		if e.pass != p.pass || e.last == allStarted {
			continue
		}
		if len(e.resv) == 0 {
			if t := p.opens(e.j.Spec); t != 0 && e.why.Reason == model.ReasonReservation {
				f(e.j.ID, &model.Expect{Start: t})
			}
			continue
		}
		x := &model.Expect{Start: e.resv[0].at}
		for _, n := range e.resv[0].nodes {
			x.Nodes = append(x.Nodes, n.def.Name)
		}
		f(e.j.ID, x)
	}
}

// Pass counts the work of one Plan, for statistics.
type Pass struct {
	Queue  int // jobs in the queues; a job in several partitions counts once for each
	Seen   int // jobs looked at
	Behind int // jobs looked at behind one that does not fit: they could only be backfilled
	Ahead  int // jobs started ahead of their turn
	Table  int // reservations on the calendar
}

// Pass gives the counts of the last Plan.
func (p *Planner) Pass() Pass {
	c := Pass{Seen: p.seen, Behind: p.tested, Ahead: p.ahead}
	for _, l := range p.lanes {
		c.Queue += p.v.ReadyLen(l.part.Name)
		c.Table += l.reserved + l.apart
	}
	return c
}
