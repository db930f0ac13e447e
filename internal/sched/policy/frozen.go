package policy

import "gbatch/internal/model"

// Frozen gives an order and predictions that answer as those of this policy do, the order as of now (0: the policy's
// moment): a job that came with the last Refresh has waited since. They may be read while the policy is refreshed.
func (p *Policy) Frozen(now model.Time) (*Order, *Predict) {
	c := &Policy{opt: p.opt, now: p.now, at: p.at, epoch: p.epoch, round: p.round,
		parts: make(map[string]*part, len(p.parts)), jobs: make(map[model.JobID]*entry, len(p.jobs))}
	for name, q := range p.parts {
		n := *q
		n.line, n.head, n.tail, n.first, n.guesses = nil, nil, nil, nil, nil
		c.parts[name] = &n
	}
	all := make([]entry, len(p.jobs))
	k := 0
	for id, e := range p.jobs {
		n := &all[k]
		k++
		*n = *e
		n.prev, n.next, n.part = nil, nil, c.parts[e.part.def.Name]
		if e.part.first == e {
			n.part.first = n
		}
		c.jobs[id] = n
	}
	return c.OrderAt(now), c.Predict()
}
