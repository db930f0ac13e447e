package faultsim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"gbatch/internal/model"
)

// Times are milliseconds of virtual time since the world began; epoch makes a model.Time of them.
const (
	second = 1000
	minute = 60 * second
	epoch  = model.Time(1_800_000_000_000)
)

// Sizes of a world.
const (
	controllers = 3
	gpusPerNode = 4
	cpusPerNode = 8
	maxSteps    = 400_000 // events in one world: more is a loop
	keptLines   = 200     // of the story, for a failure
)

// Options describe one world.
type Options struct {
	Seed  uint64
	Bug   Bug
	Story bool // keep the last lines for a failure
}

// World is one cluster and everything that happens to it.
type World struct {
	opts   Options
	rng    *rand.Rand
	now    int64
	seq    uint64
	steps  int
	events eventHeap

	log     *replog
	ctls    []*controller
	nodes   []*node
	gdbd    *gdbd
	clients []*client
	cut     [][]bool // by host: controllers, then nodes, then gdbd, then the users' host
	calm    bool     // no more faults
	partly  bool     // a host is cut from some others
	wrecked bool     // a controller has lost its disk and has not got the others' state back

	ledger  ledger
	trouble string
	digest  uint64
	story   []string
}

// Hosts by number.
func (w *World) nodeHost(i int) int { return controllers + i }
func (w *World) gdbdHost() int      { return controllers + len(w.nodes) }
func (w *World) userHost() int      { return controllers + len(w.nodes) + 1 }

// event is something that happens at a moment.
type event struct {
	at  int64
	seq uint64
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(a, b int) bool {
	if h[a].at != h[b].at {
		return h[a].at < h[b].at
	}
	return h[a].seq < h[b].seq
}
func (h eventHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// after lets something happen d ms from now.
func (w *World) after(d int64, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + max(d, 0), w.seq, do})
}

// n draws from 0 to n-1; chance says yes so often in a hundred; between draws from lo to hi.
func (w *World) n(n int) int                  { return w.rng.IntN(n) }
func (w *World) chance(percent int) bool      { return w.rng.IntN(100) < percent }
func (w *World) between(lo, hi int64) int64   { return lo + w.rng.Int64N(hi-lo+1) }
func (w *World) bug(b Bug) bool               { return w.opts.Bug == b }
func (w *World) real() model.Time             { return epoch + model.Time(w.now) }
func (w *World) reach(a, b int) bool          { return !w.cut[a][b] }
func (w *World) setCut(a, b int, cut bool)    { w.cut[a][b], w.cut[b][a] = cut, cut }
func (w *World) latency() int64               { return w.between(1, 15) }
func (w *World) attemptsOf(k key) *attemptLog { return w.ledger.attempt(k) }

// tell adds a line to the story. Equal stories have equal digests.
func (w *World) tell(format string, args ...any) {
	line := fmt.Sprintf("%8.3f ", float64(w.now)/second) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	_, _ = h.Write([]byte(line)) // it never fails
	w.digest = w.digest*1099511628211 ^ h.Sum64()
	if !w.opts.Story {
		return
	}
	w.story = append(w.story, line)
	if len(w.story) > 2*keptLines {
		w.story = append(w.story[:0], w.story[keptLines:]...)
	}
}

// fail notes the first broken invariant.
func (w *World) fail(format string, args ...any) {
	if w.trouble == "" {
		w.trouble = fmt.Sprintf(format, args...)
		w.tell("BROKEN: %s", w.trouble)
	}
}

// Outcome is what became of a world.
type Outcome struct {
	Trouble string // the first broken invariant; "": all hold
	Story   string // its last lines
	Digest  uint64 // of everything that happened
	Steps   int
	Entries int // of the log
	Jobs    int
	Runs    int // processes that were started
	Leaders int // changes of leadership
	Virtual int64
}

// Run lets one world happen.
func Run(o Options) Outcome {
	w := newWorld(o)
	w.begin()
	for w.trouble == "" && len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		if w.steps++; w.steps > maxSteps {
			w.fail("after %d steps it has not come to an end: %s", w.steps, w.unfinished())
		}
		if w.done() {
			break
		}
	}
	if w.trouble == "" {
		w.final()
	}
	return Outcome{Trouble: w.trouble, Story: strings.Join(w.story[max(0, len(w.story)-keptLines):], "\n"),
		Digest: w.digest, Steps: w.steps, Entries: len(w.log.entries), Jobs: len(w.ledger.acked), Runs: w.ledger.runs,
		Leaders: int(w.log.term), Virtual: w.now}
}

func newWorld(o Options) *World {
	w := &World{opts: o, rng: rand.New(rand.NewPCG(o.Seed, 0x6762617463680a))}
	w.ledger = newLedger()
	for i := range 3 + w.n(3) {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	hosts := controllers + len(w.nodes) + 2
	w.cut = make([][]bool, hosts)
	for i := range w.cut {
		w.cut[i] = make([]bool, hosts)
	}
	w.log = &replog{w: w, leader: -1}
	for i := range controllers {
		w.ctls = append(w.ctls, newController(w, i))
	}
	w.gdbd = &gdbd{w: w, up: true, records: map[key]record{}}
	for i := range 2 {
		w.clients = append(w.clients, &client{w: w, id: i})
	}
	return w
}

// The parts of a world's life.
const (
	troubled = 90 * second  // requests come and faults happen
	patience = 600 * second // and then everything ends
)

func (w *World) begin() {
	for _, c := range w.ctls {
		c.start()
	}
	w.after(100, w.log.watch)
	for _, n := range w.nodes {
		w.after(w.between(200, 2000), n.dial)
		w.after(leasePace, n.leaseTick)
	}
	for _, c := range w.clients {
		w.after(w.between(2*second, 3*second), c.next)
	}
	w.after(3*second, w.mischief)
	w.after(troubled, w.makePeace)
}

// done says that all has come to an end.
func (w *World) done() bool {
	if !w.calm || w.now < troubled {
		return false
	}
	if w.now > troubled+patience {
		w.fail("%d s after the last fault it has not come to an end: %s", patience/second, w.unfinished())
		return true
	}
	return w.steps%64 == 0 && w.unfinished() == ""
}

// unfinished says what has not ended, "" if all has.
func (w *World) unfinished() string {
	for _, c := range w.clients {
		if c.busy {
			return fmt.Sprintf("user %d waits for an answer", c.id)
		}
	}
	if w.log.leader < 0 || !w.ctls[w.log.leader].leading {
		return "nobody leads"
	}
	lead := w.ctls[w.log.leader]
	v := lead.st.Peek()
	text := ""
	v.Jobs(func(j *model.Job) bool {
		if !j.State.Finished() && j.Hold == model.NotHeld {
			text = fmt.Sprintf("job %d is %s (%s)", j.ID, j.State, j.Reason)
		}
		return text == ""
	})
	switch {
	case text != "":
		return text
	case len(w.log.pending) > 0:
		return "a proposal waits"
	case v.OutboxLen() > 0:
		return fmt.Sprintf("%d records wait", v.OutboxLen())
	}
	for _, c := range w.ctls {
		if !c.up || c.applied != len(w.log.entries) {
			return fmt.Sprintf("controller %d is behind", c.id)
		}
	}
	for _, n := range w.nodes {
		if len(n.reports) > 0 {
			return fmt.Sprintf("node %s has reports", n.name)
		}
		for _, k := range n.keys() {
			if n.attempts[k].proc != nil {
				return fmt.Sprintf("node %s still runs job %d", n.name, k.Job)
			}
		}
	}
	return ""
}
