package sched

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Advance reservations are windows on a node's calendar. From the beginning of a reservation to its end, the node is
// closed to jobs that did not ask for it. To jobs that did, it is closed at all other times (FLEX: never). A job starts
// only on nodes that stay open to it until its planned end. A reservation with MAINT or OVERLAP may lie on top of
// others: these don't close the node to its jobs, as in Slurm.

// window is one occurrence of a reservation on a node.
type window struct {
	from, to model.Time
	name     string
	flex     bool
	maint    bool
	over     bool  // MAINT or OVERLAP: other reservations don't keep its jobs out
	part     *hold // what it takes of the node; nil: all of it
	delay    int64 // jobs that give way within so many seconds may have it until its own jobs need it
}

// windowStep opens (1) or closes (-1) a node or, with a share, a part of it, at a moment.
type windowStep struct {
	at    model.Time
	sign  int
	share int // index among the cursor's shares, plus 1; 0: the whole node
}

// portion is the part of a node that a reservation takes. What its own jobs use of that part is in use and no longer
// held back.
type portion struct {
	name string
	all  *hold
	left counts // the rest of all that its jobs have not taken
	own  bool   // the job to place is in this reservation, and can't have more than the portion
	open int    // number of its occurrences at the cursor's moment

	// On nodes with shared GPUs (held.go).
	mine       []int // slots that the reservation's jobs have
	gpus       []int // scratch
	held, last heldGPUs
}

// closedCPUs is more than any node has. It is subtracted while a node is closed, so that no need is met.
const closedCPUs = 1 << 40

// everybody, as a cursor's own reservation, makes it ignore all windows.
const everybody = "\x00"

// windows gives each node its reservations, if reservations have changed. A reservation with TIME_FLOAT changes in each
// pass.
func (p *Planner) windows() {
	if p.windowGen == p.v.ResvGen()+1 && !p.floating {
		return
	}
	p.windowGen = p.v.ResvGen() + 1
	p.windowTurn++
	p.moved, p.early, p.windowed, p.floating = true, true, false, false
	waiting := map[string]bool{}
	for _, n := range p.nodes {
		n.wins, n.parts = nil, false
	}
	if p.lic != nil {
		p.lic.wins, p.lic.parts = nil, false
	}
	clear(p.roams)
	magnets := p.magnets[:0:0]
	p.v.Reservations(func(r *model.Reservation) bool {
		p.windowed = true
		if r.Flags&model.ResvMagnetic != 0 {
			magnets = append(magnets, r)
		}
		p.floating = p.floating || r.FloatS > 0
		if r.Roams() {
			p.roams[r.Name] = true
		}
		if r.DelayS > 0 {
			waiting[r.Name] = true
		}
		for _, o := range r.At(p.now).Occurrences() {
			if o[1] <= p.now {
				continue
			}
			w := window{from: o[0], to: o[1], name: r.Name, flex: r.Flags&model.ResvFlex != 0,
				maint: r.Flags&model.ResvMaint != 0,
				over:  r.Flags&(model.ResvMaint|model.ResvOverlap) != 0, delay: r.DelayS}
			for i, name := range r.Nodes {
				n := p.byName[name]
				if n == nil {
					continue
				}
				one := w
				if part := r.Part(i); part != nil {
					one.part, n.parts = partOf(n.def, part), true
				}
				n.wins = append(n.wins, one)
			}
			if len(r.Licenses) > 0 && p.lic != nil {
				w.flex, w.over, w.delay, w.part, p.lic.parts = true, false, 0, p.licenseHold(r.Licenses), true
				p.lic.wins = append(p.lic.wins, w)
			}
		}
		return true
	})
	if p.policy.Predict != nil {
		p.repredict()
	}
	p.magnetize(magnets)
	p.letRob(waiting)
}

// partOf counts what a reservation of a part takes of a node.
func partOf(d *model.NodeDef, part *model.ResvPart) *hold {
	h := &hold{cpus: int(part.CPUs), mem: part.MemMiB, gres: make([]int, len(d.Gres))}
	for i := range h.gres {
		if i < len(part.Gres) {
			h.gres[i] = int(part.Gres[i])
		}
	}
	return h
}

// dated reports whether the node's present free capacity may shrink later.
func (n *node) dated() bool {
	return n.resvs > 0 || len(n.wins) > 0 || n.rec != nil && len(n.rec.Asleep) > 0
}

// reserved reports whether the node is in a reservation.
func (n *node) reserved(name string) bool {
	return slices.ContainsFunc(n.wins, func(w window) bool { return w.name == name })
}

// beside reports whether a reservation of the node may lie on top of others.
func (n *node) beside(name string) bool {
	return slices.ContainsFunc(n.wins, func(w window) bool { return w.over && w.name == name })
}

// yields reports whether a reservation lets jobs with a notice have what its own jobs don't need; see preempt.go.
func (w *window) yields(noticeS int64) bool { return model.Yields(noticeS, w.delay) }

// open lists the moments at which the cursor's node opens and closes, and puts the cursor before the first of them.
func (c *cursor) open() {
	c.wins, c.w, c.shares = c.wins[:0], 0, c.shares[:0]
	if len(c.n.wins) == 0 || c.own == everybody {
		return
	}
	mine := false
	beside := c.n.beside(c.own)
	for i := range c.n.wins {
		w := &c.n.wins[i]
		if w.name != c.own && (beside || w.yields(c.notice)) {
			continue
		}
		if w.name == c.own {
			if w.flex {
				continue
			}
			if !mine {
				mine = true
				c.cpus -= closedCPUs
			}
			c.wins = append(c.wins, windowStep{w.from, 1, 0}, windowStep{w.to, -1, 0})
			if w.part == nil {
				continue
			}
		}
		if w.part == nil {
			c.wins = append(c.wins, windowStep{w.from, -1, 0}, windowStep{w.to, 1, 0})
			continue
		}
		k := c.shareOf(w)
		c.wins = append(c.wins, windowStep{w.from, 1, k + 1}, windowStep{w.to, -1, k + 1})
	}
	slices.SortFunc(c.wins, func(a, b windowStep) int { return cmp.Compare(a.at, b.at) })
	if len(c.shares) > 0 {
		c.carve()
	}
}

// shareOf gives the index of a reservation's share, which it adds if there is none yet.
func (c *cursor) shareOf(w *window) int {
	for i := range c.shares {
		if c.shares[i].name == w.name {
			return i
		}
	}
	s := portion{name: w.name, all: w.part, own: w.name == c.own,
		left: counts{cpus: w.part.cpus, mem: w.part.mem, gres: slices.Clone(w.part.gres)}}
	if l := c.n.room.lot; l != nil {
		s.mine = make([]int, len(l.gpus)*l.stride)
	}
	c.shares = append(c.shares, s)
	return len(c.shares) - 1
}

// inside reports whether the job that asks is in a reservation of a part of the cursor's node, and can't have more than
// that part.
func (c *cursor) inside() bool {
	return slices.ContainsFunc(c.shares, func(s portion) bool { return s.own })
}

// carve subtracts what the reservations' own jobs have now from their shares.
func (c *cursor) carve() {
	c.base = c.counts
	c.base.gres, c.base.share = slices.Clone(c.gres), slices.Clone(c.share)
	for i := range c.n.rel {
		c.use(&c.n.rel[i].hold, 1)
	}
	for i := range c.n.steps {
		if s := &c.n.steps[i]; !s.resv { // a job that this plan starts
			c.use(s.hold, 1)
		}
	}
}

// use subtracts a hold from its reservation's share (1), or gives it back (-1).
func (c *cursor) use(h *hold, sign int) {
	if h.resv == "" {
		return
	}
	for i := range c.shares {
		s := &c.shares[i]
		if s.name != h.resv {
			continue
		}
		s.left.cpus -= sign * h.cpus
		s.left.mem -= int64(sign) * h.mem
		for k := range min(len(h.gres), len(s.left.gres)) { // after the node's entries come slots of shared GPUs
			s.left.gres[k] -= sign * h.gres[k]
		}
		for k := range min(len(h.gres)-len(s.left.gres), len(s.mine)) {
			s.mine[k] += sign * h.gres[len(s.left.gres)+k]
		}
	}
}

// divide computes what is free for the job that asks: everything that no share holds back or, for a job in a share, at
// most what is left of that share. While a part of the node is reserved, no job can have the node alone.
func (c *cursor) divide() {
	gres := append(c.gres[:0], c.base.gres...)
	slots := append(c.share[:0], c.base.share...)
	c.counts = c.base
	c.gres, c.share = gres, slots
	var own *portion
	for i := range c.shares {
		s := &c.shares[i]
		if s.open <= 0 {
			continue
		}
		c.users++
		if s.own {
			own = s
			continue
		}
		c.cpus -= max(0, s.left.cpus)
		c.mem -= max(0, s.left.mem)
		for k, g := range s.left.gres {
			c.gres[k] -= max(0, g)
		}
	}
	if own != nil {
		c.cpus = min(c.cpus, own.left.cpus)
		for k, g := range own.left.gres {
			c.gres[k] = min(c.gres[k], g)
		}
	}
	if l := c.n.room.lot; l != nil {
		c.hold(l)
	}
}

// turn applies the openings and closings of the node, and of parts of it, at a moment.
func (c *cursor) turn(at model.Time) {
	for c.w < len(c.wins) && c.wins[c.w].at == at {
		switch s := &c.wins[c.w]; {
		case s.share > 0:
			c.shares[s.share-1].open += s.sign
		case len(c.shares) > 0:
			c.base.cpus += s.sign * closedCPUs
		default:
			c.cpus += s.sign * closedCPUs
		}
		c.w++
	}
}

// until gives the end of a reservation's occurrence at a moment, for jobs that end with their reservation; forever if
// there is none.
func (p *Planner) until(name string, t model.Time) model.Time {
	if name == "" || p.roams[name] && p.v.Reservation(name).Flags&model.ResvFlex != 0 {
		return forever
	}
	if r := p.v.Reservation(name); r != nil {
		for _, o := range r.At(p.now).Occurrences() {
			if o[0] <= t && t < o[1] {
				return o[1]
			}
		}
	}
	return forever
}

// endIn gives the planned end of a job of a shape that begins at t and takes s seconds, or the end of its reservation
// if that is earlier.
func (p *Planner) endIn(sh *shape, t model.Time, s int64) model.Time {
	return min(p.after(t, s), p.until(sh.rq.Reservation, t))
}

// outside gives the reason why a job's reservations keep it from starting now.
func (p *Planner) outside(it *item) model.Reason {
	sp := it.e.j.Spec
	if sp.Reservation == "" {
		return model.ReasonNone
	}
	why := model.ReasonReservationDeleted
	for _, name := range sp.ReservationNames() {
		r := p.v.Reservation(name)
		switch {
		case r == nil:
			continue
		case !r.Admits(sp):
			return model.ReasonReservation
		case r.Flags&model.ResvFlex != 0 || r.At(p.now).Start <= p.now:
			return model.ReasonNone
		}
		why = model.ReasonReservation
	}
	return why
}

// opens gives the first beginning among the job's reservations that have not begun and take the job; 0: there is none.
func (p *Planner) opens(sp *model.Spec) (first model.Time) {
	for _, name := range sp.ReservationNames() {
		if r := p.v.Reservation(name); r != nil && r.Admits(sp) {
			if t := r.At(p.now).Start; t > p.now && (first == 0 || t < first) {
				first = t
			}
		}
	}
	return first
}

// closing is until when a shape does not fit, in a round.
type closing struct {
	round   uint64
	failEnd model.Time
}

// closed gives the text for a job that only reservations keep from starting, or "".
func (p *Planner) closed(it *item) string {
	why := ""
	if !p.windowed || p.hopeless(it.sh) {
		return ""
	}
	for _, n := range it.sh.pool.nodes {
		if len(n.wins) == 0 || !it.sh.mayHave(n) {
			continue
		}
		for i := range n.wins {
			if w := &n.wins[i]; w.name != it.sh.rq.Reservation && !n.beside(it.sh.rq.Reservation) &&
				!w.yields(it.sh.rq.noticeS) &&
				w.from < p.after(p.now, it.leastS()) {
				if why == "" {
					why = model.WhyOthers
				}
				if w.maint {
					why = model.WhyMaintenance
				}
			}
		}
	}
	if why == "" {
		return ""
	}
	sh, own := *it.sh, p.cursor.own
	sh.round, sh.failEnd = sh.open.round, sh.open.failEnd
	sh.prefer = nil // which needs no look: it is a wish, and its search would set the cursor to the job's reservation
	p.cursor.own = everybody
	a := p.fitAs(&sh, p.after(p.now, it.leastS()))
	p.cursor.own, it.sh.open = own, closing{sh.round, sh.failEnd}
	if a == nil {
		return ""
	}
	return why
}

// A MAGNETIC reservation takes jobs that may use it and ask for none. Such a job has a shape for each reservation that
// attracts it, beside its plain one. They are tried first, so that what is not reserved stays free for others; then the
// job is tried as if they were not there. Nobody has asked for such a reservation's end, so a job that would not be
// over by then is not attracted.

// maxMagnets bounds the reservations that attract one job.
const maxMagnets = 16

// attractedTo names the reservations that attract a job, in order, with commas between them; "": none does.
func (p *Planner) attractedTo(j *model.Job) string {
	var names []string
	for _, r := range p.magnets {
		if len(names) < maxMagnets && r.Attracts(j.Spec, j.Het != nil) {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, ",")
}

// shapeItem gives an item its shape.
func (p *Planner) shapeItem(it *item, l *lane) {
	it.sh, it.anywhere = p.shapeOf(l, it.e.j.Spec, p.attractedTo(it.e.j)), nil
	p.keepOff(it, l)
}

// draw adds the shapes for the reservations that attract jobs of a shape.
func (p *Planner) draw(l *lane, sh *shape, magnets string) {
	if magnets == "" {
		return
	}
	rq := sh.rq
	rq.Reservation = magnets
	sh.next, sh.drawn = p.newShape(l, &rq), true
	if sh.relaxed != nil {
		sh.relaxed.next, sh.relaxed.drawn = sh.next.relaxed, true
	}
}

// turns gives a job's shapes in the order in which they are tried.
func (sh *shape) turns() iter.Seq[*shape] {
	return func(yield func(*shape) bool) {
		first := sh
		if sh != nil && sh.drawn {
			first = sh.next
		}
		for s := first; s != nil; s = s.next {
			if !yield(s) {
				return
			}
		}
		if first != sh {
			yield(sh)
		}
	}
}

// attracts reports whether one of the shapes of sh is for a reservation that the job did not ask for.
func (sh *shape) attracts(one *shape) bool { return sh.drawn && one != sh }

// resvAt names the reservation in which a job has a node: the first that it asks for and the node is in.
func (sh *shape) resvAt(n *node) string {
	for one := range sh.turns() {
		if !sh.attracts(one) && n.reserved(one.rq.Reservation) {
			return one.rq.Reservation
		}
	}
	return sh.rq.Reservation
}

// magnetize gives all jobs new shapes if other reservations attract them than before.
func (p *Planner) magnetize(now []*model.Reservation) {
	same := slices.EqualFunc(now, p.magnets, func(a, b *model.Reservation) bool {
		return a.Name == b.Name && slices.Equal(a.Users, b.Users) && slices.Equal(a.Accounts, b.Accounts) &&
			slices.Equal(a.GIDs, b.GIDs) && slices.Equal(a.Groups, b.Groups)
	})
	p.magnets = now
	if same {
		return
	}
	for _, l := range p.lanes {
		l.settle()
		for i := range l.items {
			if it := &l.items[i]; it.e != nil && it.sh != nil {
				p.shapeItem(it, l)
			}
		}
	}
}
