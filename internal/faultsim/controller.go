package faultsim

import (
	"bytes"
	"fmt"
	"time"

	"gbatch/ctld/clock"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// controller is one gctld: a replica of the state, its disk, and what it believes of the leadership. leader.go has what
// it does while it leads.
type controller struct {
	w       *World
	id      int
	up      bool
	stopped bool // SIGSTOP
	// stoppedAt is when it was stopped last.
	stoppedAt int64
	life      int // grows when the process ends

	st       *state.State
	applied  int
	cursor   state.Cursor
	applying bool

	// The disk.
	stored    int // entries
	snap      []byte
	snapAt    int
	joined    bool  // it has state, and a vote
	flipped   bool  // bytes of the log have changed: the next start finds it
	slowSince int64 // since when writes hang
	slowUntil int64

	skew  int64 // of the host's clock, ms
	clock *clock.Clock

	believes bool // that it leads
	term     uint64
	mine     []*proposal
	leading  bool // its loops run
	leads
}

func newController(w *World, id int) *controller {
	return &controller{w: w, id: id, joined: true, skew: w.between(-5*second, 5*second)}
}

// runs says that the process does something.
func (c *controller) runs() bool { return c.up && !c.stopped }

// unnoticed is how long a daemon may be silent before others take notice: less than the silence that ends a connection.
const unnoticed = second

// heard says whether those that this controller's words reach hear a leader in it.
func (c *controller) heard() bool {
	if !c.up || !c.leading || c.stopped && c.w.now-c.stoppedAt >= unnoticed {
		return false
	}
	return c.isLeader() || c.stopped && c.believes && c.w.log.leader == c.id && c.w.log.term == c.term
}

// start starts the process from what is on its disk.
func (c *controller) start() {
	c.up, c.stopped = true, false
	c.life++
	c.st, c.applied, c.cursor = state.New(), 0, state.Cursor{}
	if c.flipped && !c.w.bug(NoChecksum) {
		// The store finds it, keeps the files aside and gets everything from the others; until then it has no vote.
		c.w.tell("controller %d finds its log damaged and begins without state", c.id)
		c.flipped, c.joined, c.stored, c.snap, c.snapAt, c.clock = false, false, 0, nil, 0, nil
	}
	if c.snap != nil {
		if err := c.st.Restore(bytes.NewReader(c.snap)); err != nil {
			c.w.fail("controller %d can't restore its snapshot: %v", c.id, err)
			return
		}
		c.applied = c.snapAt
	}
	if c.clock == nil { // else its file has it: the host has not been rebooted
		c.clock = clock.New(
			func() model.Time { return c.w.real() + model.Time(c.skew) },
			func() time.Duration { return time.Duration(c.w.now+minute) * time.Millisecond })
	}
	life := c.life
	c.w.after(c.w.between(0, 2*second), func() { c.compareClocks(life) })
	c.wakeApply()
}

// crash ends the process as kill -9 does.
func (c *controller) crash() {
	c.w.tell("controller %d dies", c.id)
	c.endLeading()
	c.up, c.stopped, c.believes = false, false, false
	c.life++
	c.mine = nil
	if c.w.log.leader == c.id {
		c.w.log.leader = -1
	}
}

// resume is SIGCONT. Whatever it believed, it believes for a moment longer.
func (c *controller) resume() {
	c.stopped = false
	c.wakeApply()
	c.wake()
}

// doubt lets a controller that leads in vain notice it.
func (c *controller) doubt() {
	l := c.w.log
	switch {
	case !c.runs() || !c.believes:
	case l.leader != c.id || l.term != c.term:
		if c.w.chance(20) { // on its next timer, or from the others
			c.stepDown()
		}
	case c.w.now-l.goodAt > leaseLoss:
		c.w.tell("controller %d has lost its majority", c.id)
		c.stepDown()
	}
}

func (c *controller) stepDown() {
	c.endLeading()
	c.believes = false
	if c.w.log.leader == c.id {
		c.w.log.leader = -1
	}
	for _, p := range append([]*proposal(nil), c.mine...) {
		p.answer(nil, errLost)
	}
	c.mine = nil
}

// lead begins a leadership: everything committed before is applied first.
func (c *controller) lead(term uint64) {
	c.believes, c.term = true, term
	life := c.life
	c.w.after(c.w.between(5, 40), func() { c.beginLeading(life, term) })
}

// wakeApply lets a follower apply what it has, a little later.
func (c *controller) wakeApply() {
	if c.applying || c.applied >= c.stored {
		return
	}
	c.applying = true
	life := c.life
	c.w.after(c.w.between(1, 40), func() {
		c.applying = false
		if c.life == life && c.runs() {
			c.applyTo(c.stored)
		}
	})
}

// catchUp is what a follower gets from the leader: the entries that it lacks, or a snapshot.
func (c *controller) catchUp() {
	lead := c.w.ctls[c.w.log.leader]
	if !c.joined && lead.applied > 0 && c.w.chance(50) {
		snap, err := lead.snapshot()
		if err == nil {
			err = c.st.Restore(bytes.NewReader(snap))
		}
		if err != nil {
			c.w.fail("controller %d can't take the snapshot of %d: %v", c.id, lead.id, err)
			return
		}
		c.clock.Applied(c.st.Peek().Latest()) // as ctld/machine.go does
		c.snap, c.snapAt, c.applied = snap, lead.applied, lead.applied
		c.cursor = state.Cursor{}
	}
	c.stored = len(c.w.log.entries)
	if !c.joined {
		c.w.tell("controller %d has the others' state again", c.id)
		c.joined, c.w.wrecked = true, false
	}
	c.wakeApply()
}

func (c *controller) snapshot() ([]byte, error) {
	var b bytes.Buffer
	err := c.st.Freeze()(&b)
	return b.Bytes(), err
}

// applyTo applies entries up to one, and gives the results of that one.
func (c *controller) applyTo(index int) []state.Result {
	var last []state.Result
	for c.applied < index && c.w.trouble == "" {
		e := c.w.log.entries[c.applied]
		last = last[:0]
		for _, data := range e.cmds {
			if c.flipped { // only with the bug: the entry that is damaged is read as it is
				c.flipped = false
				data = append([]byte(nil), data...)
				data[c.w.n(len(data))] ^= 1 << c.w.n(8)
			}
			cmd, err := state.Decode(data)
			if err != nil {
				if !c.w.bug(NoChecksum) {
					c.w.fail("entry %d can't be decoded: %v", c.applied+1, err)
					return nil
				}
				continue
			}
			if c.clock != nil {
				c.clock.Applied(cmd.At)
			}
			last = append(last, c.st.Apply(cmd))
		}
		c.applied++
		c.w.checkEntry(c)
	}
	c.wake()
	return last
}

// keepSnapshot writes a snapshot to the disk.
func (c *controller) keepSnapshot() {
	if !c.runs() || c.applied == 0 {
		return
	}
	snap, err := c.snapshot()
	if err != nil {
		c.w.fail("controller %d can't write a snapshot: %v", c.id, err)
		return
	}
	c.snap, c.snapAt = snap, c.applied
}

// compareClocks asks the other controllers for their time, as ctld/clocks.go does.
func (c *controller) compareClocks(life int) {
	if c.life != life {
		return
	}
	c.w.after(2*second, func() { c.compareClocks(life) })
	if !c.runs() {
		return
	}
	var offsets []clock.Offset
	for i, o := range c.w.ctls {
		if i == c.id || !c.w.log.contact(c.id, i) {
			continue
		}
		offsets = append(offsets, clock.Offset{Name: fmt.Sprint(i), Controller: true,
			Ahead: time.Duration(o.skew-c.skew) * time.Millisecond})
		if o.leading && o.believes && c.w.log.leader == i {
			c.clock.Follow(o.clock.Now())
		}
	}
	if c.leading {
		for _, n := range c.w.nodes {
			if n.up && !n.stopped && n.s != nil && n.ctl == c.id {
				offsets = append(offsets, clock.Offset{Name: n.name, Ahead: time.Duration(n.skew-c.skew) * time.Millisecond})
			}
		}
	}
	v := clock.Judge(offsets)
	c.clock.Judge(v)
	if v.Sure && v.Self && len(v.Heirs) > 0 && c.w.log.leader == c.id && c.believes && c.w.chance(50) {
		to := int(v.Heirs[0][0] - '0')
		c.w.log.transfer(to)
	}
}

// time is the cluster's time by which this controller stamps.
func (c *controller) time() model.Time {
	if c.w.bug(HostTime) {
		return c.w.real() + model.Time(c.skew)
	}
	return c.clock.Now()
}
