package faultsim

import (
	"errors"
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// client.go is the model of users' commands, and of the way in which a leader answers them (ctld/once.go): a change has
// an id, a command repeats it on any controller until it has an answer or a minute has passed, and the leader looks
// into the state whether it was made before.

const (
	tryTime  = 2 * second
	giveUpIn = 60 * second
	limitS   = 40 // of a job, at first
	extendS  = 60 // by which an extension extends it
)

type op uint8

const (
	opSubmit op = iota
	opHold
	opRelease
	opExtend
	opCancel
	opRequeue
	opShow
)

var opNames = [...]string{"submit", "hold", "release", "extend", "cancel", "requeue", "show"}

type request struct {
	id   string
	op   op
	job  model.JobID
	spec *model.Spec
}

// reply is an answer. Without settled nothing is known, or nothing was done.
type reply struct {
	settled bool
	refused bool
	job     model.JobID
	limit   int64
	found   bool
}

// client is a user with one command at a time.
type client struct {
	w    *World
	id   int
	n    int
	busy bool
	jobs []*ownJob
}

// ownJob is what a user knows of a job.
type ownJob struct {
	id        model.JobID
	name      string
	least     int64 // its limit by the acknowledged extensions
	most      int64 // and if all that are unknown were made
	cancelled bool  // acknowledged
	unsure    bool  // a cancellation may have been made
}

// next makes the next command.
func (c *client) next() {
	if c.w.now > troubled {
		return
	}
	c.n++
	rq := &request{id: fmt.Sprintf("u%d-%d", c.id, c.n)}
	var own *ownJob
	if k := c.w.n(100); len(c.jobs) > 0 && k >= 45 {
		own = c.jobs[max(0, len(c.jobs)-1-c.w.n(6))]
		rq.job = own.id
		switch {
		case k < 53:
			rq.op = opHold
		case k < 63:
			rq.op = opRelease
		case k < 75:
			rq.op = opExtend
		case k < 80:
			rq.op = opCancel
		case k < 85:
			rq.op = opRequeue
		default:
			rq.op = opShow
		}
		if own.cancelled || own.unsure {
			rq.op = opShow
		}
	}
	if rq.op == opSubmit {
		rq.spec = c.spec(rq.id)
	}
	c.call(rq, func(r reply) {
		c.learn(rq, own, r)
		pause := c.w.between(100, 1500)
		if c.w.chance(5) {
			pause += 10 * second
		}
		c.w.after(pause, c.next)
	})
}

func (c *client) spec(name string) *model.Spec {
	nodes := int32(1)
	if c.w.chance(15) {
		nodes = 2
	}
	return &model.Spec{Name: name, UID: uint32(1000 + c.id), User: fmt.Sprint("u", c.id), Account: "root",
		Partitions: []string{"p"}, LimitS: limitS, Requeue: c.w.chance(70), Tasks: nodes, CPUsPerTask: 1,
		MinNodes: nodes, MaxNodes: nodes,
		Gres: []model.GresReq{{Name: model.GPUName, Count: int32(1 + c.w.n(gpusPerNode)), Per: model.PerNode}}}
}

// learn notes what an answer means for the ledger.
func (c *client) learn(rq *request, own *ownJob, r reply) {
	c.w.tell("user %d: %s %s of job %d: settled %v, refused %v, job %d", c.id, opNames[rq.op], rq.id, rq.job, r.settled,
		r.refused, r.job)
	switch rq.op {
	case opSubmit:
		c.w.ledger.submitted[rq.id] = r.settled && !r.refused
		if r.settled && !r.refused {
			c.jobs = append(c.jobs, &ownJob{id: r.job, name: rq.id, least: limitS, most: limitS})
			c.w.ledger.acked[r.job] = rq.id
		}
	case opExtend:
		switch {
		case !r.settled:
			own.most += extendS
		case !r.refused:
			own.least += extendS
			own.most += extendS
		}
	case opCancel:
		own.cancelled = own.cancelled || r.settled && !r.refused
		own.unsure = own.unsure || !r.settled
	case opShow:
		if !r.settled {
			return
		}
		switch {
		case !r.found:
			c.w.fail("a leader does not know job %d, which was acknowledged", own.id)
		case r.limit < own.least || r.limit > own.most:
			c.w.fail("a leader says that job %d has a limit of %d s; by what it acknowledged it is %d to %d s", own.id, r.limit,
				own.least, own.most)
		}
	}
}

// call makes a request until it has an answer.
func (c *client) call(rq *request, done func(reply)) {
	c.busy = true
	begun, answered := c.w.now, false
	finish := func(r reply) {
		if !answered {
			answered, c.busy = true, false
			done(r)
		}
	}
	to := c.w.n(controllers)
	var try func()
	try = func() {
		if answered {
			return
		}
		if c.w.now-begun > giveUpIn {
			finish(reply{})
			return
		}
		turn := to
		to = (to + 1) % controllers
		sends := 1
		if !c.w.calm && c.w.chance(8) {
			sends = 2 // the network, or a relay, sends it twice
		}
		heard := false
		for range sends {
			c.carry(turn, func() {
				c.w.ctls[turn].serve(rq, func(r reply) {
					c.carry(turn, func() {
						if r.settled {
							finish(r)
						} else if !heard && !answered {
							heard = true
							c.w.after(c.w.between(20, 200), try)
						}
					})
				})
			})
		}
		c.w.after(tryTime, func() {
			if !heard {
				heard = true
				try()
			}
		})
	}
	try()
}

// carry brings a message over the network between the users and a controller, or loses it.
func (c *client) carry(ctl int, do func()) {
	d := c.w.latency()
	if !c.w.calm {
		if c.w.chance(4) {
			return
		}
		if c.w.chance(4) {
			d += c.w.between(100, 8*second)
		}
	}
	c.w.after(d, func() {
		if c.w.reach(ctl, c.w.userHost()) && c.w.ctls[ctl].up {
			do()
		}
	})
}

// try is a request that the leader has in progress or has answered.
type try struct {
	done  bool
	r     reply
	later []func(reply)
}

// serve answers a request as a leader does; any other controller says that it does not lead.
func (c *controller) serve(rq *request, answer func(reply)) {
	if c.stopped { // it reads the request when it goes on
		life := c.life
		c.w.later(func() bool { return !c.stopped || c.life != life }, func() {
			if c.life == life && c.up {
				c.serve(rq, answer)
			}
		})
		return
	}
	c.confirmed(func(ok bool) {
		switch {
		case !ok:
			answer(reply{})
		case rq.op == opShow:
			answer(c.show(rq))
		default:
			c.once(rq, answer)
		}
	})
}

func (c *controller) show(rq *request) reply {
	r := reply{settled: true, job: rq.job}
	if j := c.st.Peek().Job(rq.job); j != nil {
		r.found, r.limit = true, j.Spec.LimitS
	}
	return r
}

// once makes a change, unless it was made before.
func (c *controller) once(rq *request, answer func(reply)) {
	if c.w.bug(NoOnce) {
		c.make(rq, answer)
		return
	}
	if c.tries == nil {
		answer(reply{})
		return
	}
	if t := c.tries[rq.id]; t != nil {
		if t.done {
			answer(t.r)
		} else {
			t.later = append(t.later, answer)
		}
		return
	}
	t := &try{}
	tries := c.tries
	tries[rq.id] = t
	end := func(r reply) {
		t.done, t.r = true, r
		if !r.settled {
			delete(tries, rq.id)
		}
		for _, f := range append(t.later, answer) {
			f(r)
		}
	}
	v := c.st.Peek()
	if rq.op == opSubmit {
		if id := v.Request(rq.id); id != 0 {
			end(reply{settled: true, job: id})
			return
		}
	} else if old := v.Answer(rq.id); old != nil {
		end(reply{settled: true, job: rq.job, refused: len(old.Refused) > 0})
		return
	}
	c.make(rq, end)
}

// make proposes the change.
func (c *controller) make(rq *request, end func(reply)) {
	b := c.command(rq)
	if b == nil {
		end(reply{settled: true, refused: true, job: rq.job})
		return
	}
	if rq.op != opSubmit && !c.w.bug(NoOnce) {
		part, err := state.Encode(c.time(), b)
		if err != nil {
			c.w.fail("%s can't be encoded: %v", rq.id, err)
			return
		}
		b = &state.Once{Key: rq.id, Step: state.OnceMake, Parts: [][]byte{part}, Reply: []byte("ok")}
	}
	c.propose(b, func(res state.Result, err error) {
		switch {
		case errors.Is(err, errNotLeader), errors.Is(err, errLost):
			end(reply{}) // a request with an id may be made again
		case res.Refusal == state.Repeated:
			old := c.st.Peek().Answer(rq.id)
			end(reply{settled: old != nil, job: rq.job, refused: old != nil && len(old.Refused) > 0})
		case rq.op == opSubmit:
			end(reply{settled: true, refused: res.Refusal != state.OK, job: res.Job})
		default:
			each := res.Each
			if len(res.Parts) > 0 {
				each = res.Parts[0].Each
			}
			end(reply{settled: true, refused: len(each) == 0 || each[0] != state.OK, job: rq.job})
		}
	})
}

// command makes the command of a change from the facts as they are now.
func (c *controller) command(rq *request) state.Body {
	target := []model.JobRef{{Job: rq.job, Task: model.NoTask}}
	switch rq.op {
	case opSubmit:
		spec := *rq.spec
		id := rq.id
		if c.w.bug(NoOnce) {
			id = ""
		}
		return &state.Submit{RequestID: id, Spec: &spec, Priority: 1, Script: model.Blob{Key: "s", Data: []byte("true\n")}}
	case opHold:
		return &state.Edit{Targets: target, Set: []state.Field{state.SetHold}, Hold: model.HeldByUser}
	case opRelease:
		return &state.Edit{Targets: target, Set: []state.Field{state.SetHold}, Hold: model.NotHeld}
	case opExtend:
		j := c.st.Peek().Job(rq.job)
		if j == nil || j.State.Finished() {
			return nil
		}
		spec := *j.Spec
		spec.LimitS += extendS
		return &state.Edit{Targets: target, Set: []state.Field{state.SetLimit, state.SetSpec}, LimitS: spec.LimitS,
			Spec: &spec}
	case opCancel:
		return &state.Stop{Targets: target, Event: model.EvCancel, UID: 1000}
	case opRequeue:
		return &state.Stop{Targets: target, Event: model.EvRequeue, UID: 1000}
	}
	return nil
}
