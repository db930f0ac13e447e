package sched

// GPUs that reservations hold on nodes with shared GPUs. A reservation has numbers of GPUs and of shares, not
// particular ones, and a GPU with a share in use can't be given out whole. So at each moment of the calendar the
// planner works out which GPUs, and which shares of which GPU, are kept for a reservation:
//
//  1. the GPUs and shares that its own jobs hold; if it reserves GPUs, a GPU with such a share is kept whole,
//  2. the GPUs that its jobs have not taken yet, idle ones first,
//  3. its shares: of one GPU if a GPU has enough, and then of the fullest such GPU.
//
// What is kept at one moment stays kept at the next if that is possible, so that a job can have the same GPU all the
// time.

// heldGPUs is what is kept for one reservation at the cursor's moment.
type heldGPUs struct {
	whole uint64 // GPUs
	units []int  // shares of each GPU, by sharing resource: [GPU*kinds+kind]; nil: none
}

// hold works out what is kept for each active reservation of the cursor's node, and subtracts from the counts what the
// job that is placed can't have.
func (c *cursor) hold(l *lot) {
	for i := range c.shares {
		if s := &c.shares[i]; s.open <= 0 {
			s.held = heldGPUs{}
		}
	}
	work := append(c.work[:0], c.base.gres[l.entries:]...)
	kept := uint64(0)
	for i := range c.shares {
		if s := &c.shares[i]; s.open > 0 {
			kept |= s.pin(l)
		}
	}
	for i := range c.shares {
		if s := &c.shares[i]; s.open > 0 {
			kept |= s.keepWhole(l, work, kept, c.index)
		}
	}
	for i := range c.shares {
		if s := &c.shares[i]; s.open > 0 {
			s.keepShares(l, work)
		}
	}
	c.work = work
	slots := c.gres[l.entries:]
	for i := range c.shares {
		s := &c.shares[i]
		if s.open <= 0 {
			continue
		}
		for u := range l.gpus {
			s.held.apply(l, slots, u, s.own)
		}
		if s.own {
			s.held.sharesOf(l, slots, c.gres)
		}
	}
}

// pin returns the GPUs that are kept whole because the reservation's own jobs have shares of them, other than reserved
// shares.
func (s *portion) pin(l *lot) uint64 {
	s.last, s.held = s.held, heldGPUs{}
	s.gpus = append(s.gpus[:0], s.all.gres[:l.entries]...) // what is still to be kept, by the node's entries
	for u := range l.gpus {
		mine := s.mine[u*l.stride : (u+1)*l.stride]
		if e := l.gpus[u].entry; e >= 0 && mine[slotWhole] > 0 {
			s.gpus[e]--
		}
		for k := range l.kinds {
			n, e := mine[1+k], l.kinds[k].entry[u]
			switch {
			case n <= 0 || e < 0:
			case n <= s.gpus[e]:
				s.gpus[e] -= n
			case l.gpus[u].entry >= 0 && s.gpus[l.gpus[u].entry] > 0:
				s.held.whole |= 1 << uint(u)
				s.gpus[l.gpus[u].entry]--
			default:
				s.gpus[e] = max(0, s.gpus[e]-n)
			}
		}
	}
	return s.held.whole
}

// keepWhole chooses the other GPUs to keep, among those that no reservation keeps yet. index has the GPUs that the job
// to place asks for by number: they are chosen last, or first if the job is in this reservation.
func (s *portion) keepWhole(l *lot, work []int, kept, index uint64) uint64 {
	mine := s.held.whole
	rank := func(u int) (n int) {
		bit := uint64(1) << uint(u)
		switch {
		case work[u*l.stride+slotWhole] < 1: // a job has it
			n = 8
		case !l.whole(work, u): // jobs have shares of it
			n = 4
		}
		if (index&bit != 0) != s.own {
			n += 2
		}
		if s.last.whole&bit == 0 {
			n++
		}
		return n
	}
	for e := range l.entries {
		if !l.shared[e] || s.gpus[e] <= 0 {
			continue
		}
		for range s.gpus[e] {
			best := -1
			for u := len(l.gpus) - 1; u >= 0; u-- {
				if l.gpus[u].entry == e && (kept|mine)&(1<<uint(u)) == 0 && (best < 0 || rank(u) < rank(best)) {
					best = u
				}
			}
			if best < 0 {
				break
			}
			mine |= 1 << uint(best)
		}
	}
	for u := range l.gpus {
		if mine&(1<<uint(u)) != 0 {
			work[u*l.stride+slotWhole] = 0
		}
	}
	s.held.whole = mine
	return mine
}

// keepShares chooses the shares that are kept.
func (s *portion) keepShares(l *lot, work []int) {
	for k := range l.kinds {
		x := &l.kinds[k]
		for e := range l.entries {
			for s.gpus[e] > 0 {
				best, most := -1, 0
				better := func(u, n int) bool {
					if best < 0 {
						return true
					}
					if all, was := n >= s.gpus[e], most >= s.gpus[e]; all != was {
						return all
					} else if !all {
						return n > most
					}
					if here, there := s.near(l, k, u), s.near(l, k, best); here != there {
						return here
					}
					return n < most
				}
				for u := range l.gpus {
					if n := l.free(work, u, k); x.entry[u] == e && n > 0 && better(u, n) {
						best, most = u, n
					}
				}
				if best < 0 {
					break
				}
				n := min(most, s.gpus[e])
				if s.held.units == nil {
					s.held.units = make([]int, len(l.gpus)*len(l.kinds))
				}
				s.held.units[best*len(l.kinds)+k] += n
				work[best*l.stride+1+k] -= n
				s.gpus[e] -= n
			}
		}
	}
}

// near reports whether the reservation's jobs have shares of a GPU, or shares of it were kept at the moment before.
func (s *portion) near(l *lot, k, u int) bool {
	return s.mine[u*l.stride+1+k] > 0 || s.last.of(l, u, k) > 0
}

// apply subtracts from a GPU's slots what is kept of it or, for the reservation's own jobs, what is not kept.
func (h *heldGPUs) apply(l *lot, slots []int, u int, own bool) {
	here := slots[u*l.stride : (u+1)*l.stride]
	if h.whole&(1<<uint(u)) != 0 {
		if !own {
			here[slotWhole] = min(here[slotWhole], 0)
		}
		return
	}
	some := false
	for k := range l.kinds {
		n := h.of(l, u, k)
		switch {
		case n == 0:
		case own:
			some, here[1+k] = true, min(here[1+k], n)
		default:
			here[1+k] -= n
		}
	}
	if own && !some {
		here[slotWhole] = min(here[slotWhole], 0)
	}
}

// of gives how many shares of a GPU are kept.
func (h *heldGPUs) of(l *lot, u, k int) int {
	if h.units == nil {
		return 0
	}
	return h.units[u*len(l.kinds)+k]
}

// sharesOf counts the shares that the reservation's own jobs can have, by the node's entries: kept shares, and shares
// of kept GPUs.
func (h *heldGPUs) sharesOf(l *lot, slots, gres []int) {
	for k := range l.kinds {
		for _, e := range l.kinds[k].entry {
			if e >= 0 {
				gres[e] = 0
			}
		}
	}
	for u := range l.gpus {
		for k := range l.kinds {
			switch e := l.kinds[k].entry[u]; {
			case e < 0:
			case h.whole&(1<<uint(u)) != 0:
				gres[e] += max(0, slots[u*l.stride+1+k])
			default:
				gres[e] += h.of(l, u, k)
			}
		}
	}
}
