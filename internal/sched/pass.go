package sched

// Pass counts the work of one Plan, for statistics.
type Pass struct {
	Queue  int // jobs in the queues, one in several partitions once for each
	Seen   int // jobs looked at
	Behind int // of them those that stand behind one that does not fit, and so could only be backfilled
	Ahead  int // jobs started ahead of their turn
	Table  int // reservations on the calendar
}

// Pass gives the counts of the last Plan.
func (p *Planner) Pass() Pass {
	c := Pass{Seen: p.seen, Behind: p.tested, Ahead: p.ahead}
	for _, l := range p.lanes {
		c.Queue += p.v.ReadyLen(l.part.Name)
		c.Table += l.reserved
	}
	return c
}
