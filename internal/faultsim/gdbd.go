package faultsim

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// gdbd is the model of the accounting daemon: records in the order of their numbers, each taken once, on the disk
// before they are acknowledged.
type gdbd struct {
	w       *World
	up      bool
	life    int
	last    uint64
	records map[key]record
}

// record is what is kept of an attempt: its latest event.
type record struct {
	seq uint64
	job *model.Job
}

const shipBatch = 20

// put takes a batch.
func (d *gdbd) put(seqs []uint64, jobs []*model.Job) uint64 {
	for i, seq := range seqs {
		if seq <= d.last && !d.w.bug(TakeTwice) {
			continue
		}
		d.last = seq
		j := jobs[i]
		if j.ID == 0 {
			continue // an entry of the audit trail
		}
		d.records[key{Job: j.ID, Attempt: j.Attempt}] = record{seq, j}
	}
	return d.last
}

// ship sends gdbd what it lacks, one batch at a time, and trims what it has acknowledged.
func (c *controller) ship(v *state.View) {
	if c.shipping {
		return
	}
	d := c.w.gdbd
	var seqs []uint64
	var jobs []*model.Job
	v.Outbox(c.sent, func(e state.Event) bool {
		seqs, jobs = append(seqs, e.Seq), append(jobs, e.Job)
		return len(seqs) < shipBatch
	})
	if len(seqs) == 0 {
		return
	}
	c.shipping = true
	life, term := c.life, c.term
	back := func(ok bool, last uint64) {
		if c.life != life || c.term != term || !c.leading {
			return
		}
		if !ok {
			c.shipping, c.asked = false, false
			return
		}
		c.sent = max(c.sent, last)
		c.propose(&state.Trim{Seq: last}, func(state.Result, error) { c.shipping = false; c.wake() })
	}
	if c.w.bug(TrimEarly) {
		c.propose(&state.Trim{Seq: seqs[len(seqs)-1]}, func(state.Result, error) {})
	}
	asked := d.life
	c.w.after(c.w.latency(), func() {
		if !d.up || d.life != asked || !c.w.reach(c.id, c.w.gdbdHost()) {
			c.w.after(500, func() { back(false, 0) })
			return
		}
		last := d.put(seqs, jobs)
		c.w.after(c.w.latency(), func() {
			if d.life != asked || !c.w.reach(c.id, c.w.gdbdHost()) { // written, and not acknowledged
				c.w.after(500, func() { back(false, 0) })
				return
			}
			back(true, last)
		})
	})
}
