package faultsim

import (
	"fmt"

	"gbatch/internal/state"
)

// log.go is the model of the replicated log, as the store presents it to a controller. There is one order of entries. A
// proposal becomes an entry when the controller that really leads has a majority in contact; when leadership moves,
// some of the proposals on their way are in the new leader's log, the others are lost, and the old leader knows of
// neither. A controller may believe for a while that it leads when it does not; what it proposes is lost.

const (
	watchPace    = 50
	heartbeatMS  = 500 // without contact for so long, followers elect
	leaseLoss    = 250 // a leader without a majority steps down after that
	leaseTime    = 400 // for which a confirmed leader answers
	stallTime    = 2 * second
	lostPatience = 20 * second // of a proposal
)

type entry struct {
	term uint64
	cmds [][]byte
}

// proposal is what a controller has asked the log for.
type proposal struct {
	by    *controller
	life  int
	term  uint64
	cmds  [][]byte
	made  int64
	ready int64
	done  func([]state.Result, error)
}

type replog struct {
	w       *World
	entries []entry
	term    uint64
	leader  int // who really leads, -1: nobody
	pending []*proposal
	goodAt  int64          // when the leader last had a majority in contact
	sums    map[int][]byte // snapshots by index, for comparison
	pumping bool
}

// Errors of a proposal.
var (
	errNotLeader = fmt.Errorf("not the leader: nothing was done")
	errLost      = fmt.Errorf("leadership lost: the outcome is unknown")
)

// contact says whether two controllers hear each other.
func (l *replog) contact(a, b int) bool {
	x, y := l.w.ctls[a], l.w.ctls[b]
	return x.runs() && y.runs() && (a == b || l.w.reach(a, b))
}

// majority counts the voters that a controller hears, itself included; those without state have no vote.
func (l *replog) majority(a int) bool {
	n := 0
	for b, c := range l.w.ctls {
		if l.contact(a, b) && c.joined {
			n++
		}
	}
	return n > controllers/2
}

// propose asks for an entry. done is called later, once, unless the controller ends before.
func (l *replog) propose(c *controller, cmds [][]byte, done func([]state.Result, error)) {
	p := &proposal{by: c, life: c.life, term: c.term, cmds: cmds, made: l.w.now, done: done}
	if !c.believes {
		l.w.after(0, func() { p.answer(nil, errNotLeader) })
		return
	}
	d := l.w.between(1, 6)
	if c.slowUntil > l.w.now {
		d += c.slowUntil - l.w.now
	}
	p.ready = l.w.now + d
	if n := len(l.pending); n > 0 {
		p.ready = max(p.ready, l.pending[n-1].ready)
	}
	c.mine = append(c.mine, p)
	if l.leader != c.id || l.term != c.term {
		return // nobody follows it; it will notice
	}
	l.pending = append(l.pending, p)
	l.pump()
}

// answer gives the outcome to whoever asked.
func (p *proposal) answer(res []state.Result, err error) {
	if p.done == nil || p.by.life != p.life || !p.by.up {
		return
	}
	f := p.done
	p.done = nil
	for i, q := range p.by.mine {
		if q == p {
			p.by.mine = append(p.by.mine[:i:i], p.by.mine[i+1:]...)
			break
		}
	}
	f(res, err)
}

func (l *replog) pump() {
	if l.pumping || len(l.pending) == 0 {
		return
	}
	l.pumping = true
	l.w.after(l.pending[0].ready-l.w.now, l.commit)
}

// commit makes entries of the proposals that are due.
func (l *replog) commit() {
	l.pumping = false
	for len(l.pending) > 0 && l.pending[0].ready <= l.w.now {
		p := l.pending[0]
		if l.leader != p.by.id || !l.majority(l.leader) && !l.w.bug(AckEarly) {
			break
		}
		l.pending = l.pending[1:]
		l.add(p)
		l.goodAt = l.w.now
		res := p.by.applyTo(len(l.entries))
		p.answer(res, nil)
		if l.w.trouble != "" {
			return
		}
	}
	if len(l.pending) > 0 {
		l.pumping = true
		l.w.after(max(l.pending[0].ready-l.w.now, 20), l.commit)
	}
}

// add puts a proposal into the order, and on the disks of those in contact.
func (l *replog) add(p *proposal) {
	l.entries = append(l.entries, entry{p.term, p.cmds})
	for b, c := range l.w.ctls {
		if b == l.leader || l.leader >= 0 && l.contact(l.leader, b) && c.stored == len(l.entries)-1 {
			c.stored = len(l.entries)
			c.wakeApply()
		}
	}
}

// watch looks who leads, again and again.
func (l *replog) watch() {
	l.w.after(watchPace, l.watch)
	if l.leader >= 0 {
		if lead := l.w.ctls[l.leader]; l.majority(l.leader) && lead.believes && lead.term == l.term &&
			(lead.slowUntil <= l.w.now || lead.slowSince == 0 || l.w.now-lead.slowSince < stallTime) {
			l.goodAt = l.w.now
			l.replicate()
		}
	}
	for _, c := range l.w.ctls {
		c.doubt()
	}
	if l.w.now-l.goodAt < heartbeatMS {
		return
	}
	var able []int
	for a, c := range l.w.ctls {
		if c.runs() && c.joined && (c.stored == len(l.entries) || l.w.bug(AckEarly)) && l.majority(a) &&
			c.slowUntil <= l.w.now {
			able = append(able, a)
		}
	}
	if len(able) > 0 && l.w.chance(25) { // elections take some rounds
		l.elect(able[l.w.n(len(able))])
	}
}

// replicate brings those in contact with the leader up to date.
func (l *replog) replicate() {
	for b, c := range l.w.ctls {
		if b != l.leader && l.contact(l.leader, b) && c.stored < len(l.entries) {
			c.catchUp()
		}
	}
}

// elect makes a controller the leader. Of the proposals on their way, those that the old leader had sent while it was
// heard may be in the new one's log: a beginning of them survives.
func (l *replog) elect(a int) {
	c := l.w.ctls[a]
	sent := 0
	for sent < len(l.pending) && l.pending[sent].made <= l.goodAt {
		sent++
	}
	if sent > 0 {
		sent = l.w.n(sent + 1)
	}
	l.leader = a
	l.forgetAfter(c.stored)
	for _, p := range l.pending[:sent] {
		l.add(p)
	}
	l.w.tell("controller %d is elected in term %d; %d of %d proposals survive", a, l.term+1, sent, len(l.pending))
	l.pending = nil
	l.term++
	l.goodAt = l.w.now
	for _, p := range c.mine {
		p.answer(nil, errLost)
	}
	c.mine = nil
	c.lead(l.term)
}

// forgetAfter drops entries that a new leader does not have. There are none, but with the bug.
func (l *replog) forgetAfter(last int) {
	if last >= len(l.entries) {
		return
	}
	l.entries = l.entries[:last]
	for _, c := range l.w.ctls {
		c.stored = min(c.stored, last)
		if c.snapAt > last {
			c.snap, c.snapAt = nil, 0
		}
		if c.up && c.applied > last {
			c.crash()
			c.start()
		}
	}
	l.w.ledger.index = min(l.w.ledger.index, last)
	for i := range l.sums {
		if i > last {
			delete(l.sums, i)
		}
	}
}

// transfer hands leadership over: what is on its way is committed before.
func (l *replog) transfer(to int) bool {
	from := l.leader
	if from < 0 || to == from || !l.majority(from) || !l.contact(from, to) || len(l.pending) > 0 ||
		l.w.ctls[to].stored != len(l.entries) || !l.w.ctls[to].joined || !l.w.ctls[from].believes {
		return false
	}
	l.w.tell("controller %d hands over to %d", from, to)
	old := l.w.ctls[from]
	old.leaseUntil = 0
	l.leader = to
	l.term++
	l.goodAt = l.w.now
	old.stepDown()
	l.w.ctls[to].lead(l.term)
	return true
}

// compare holds a replica's snapshot at an index against those of the others.
func (l *replog) compare(c *controller, index int) {
	sum, err := c.snapshot()
	if err != nil {
		l.w.fail("controller %d can't write a snapshot: %v", c.id, err)
		return
	}
	if l.sums == nil {
		l.sums = map[int][]byte{}
	}
	if want, ok := l.sums[index]; !ok {
		l.sums[index] = sum
	} else if string(want) != string(sum) {
		l.w.fail("controller %d differs from another one at entry %d", c.id, index)
	}
}
