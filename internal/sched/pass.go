package sched

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
		c.Table += l.reserved
	}
	return c
}
