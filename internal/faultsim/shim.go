package faultsim

import (
	"hash/fnv"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/fence"
)

// shim.go is the model of gshim and the processes: they outlive gnoded. The lease decides whether they outlive silence;
// the verdict is package fence's.

const leasePace = 100

// key is one attempt of a job.
type key struct {
	Job     model.JobID
	Attempt uint32
}

// process is a job's script on its node.
type process struct {
	k      key
	gpus   model.Bits
	turn   int // a later end replaces an earlier one
	ended  bool
	exit   model.Exit
	at     model.Time // of the end, by the node's clock
	cutOff bool
}

type lease struct {
	until, free int64
	over        bool // what ran was killed after the end of the lease
	turn        int
	due         int64
}

type shim struct {
	procs []*process // in order of their start; also ended ones that gnoded has not taken
	lease lease
}

const nodeLimitD = nodeLimit * time.Second

func (n *node) setLease(heard int64) {
	until := heard + (nodeLimitD - fence.Margin(nodeLimitD)).Milliseconds()
	if until <= n.w.now && n.lease.over {
		return
	}
	ask := fence.Ask(nodeLimitD).Milliseconds()
	n.lease = lease{until: until, turn: n.lease.turn + 1, due: until - ask}
}

func (n *node) noLease() bool { return n.w.bug(NoLease) || n.w.bug(HideLeaving) }

// mayStart says whether a process may start now; while it is not known, it may not.
func (n *node) mayStart() bool {
	l := &n.lease
	return n.hostUp && (n.noLease() || l.over || l.until == 0 || n.w.now < max(l.until, l.free))
}

// start starts an attempt's process, or reports it as cut off if the lease has ended.
func (n *node) start(a *attempt) {
	if n.lease.over && !n.noLease() {
		a.phase = over
		n.report(&proto.Report{Kind: proto.ReportEnded, Job: a.k.Job, Attempt: a.k.Attempt,
			Exit: model.Exit{Unknown: true, CutOff: true}})
		return
	}
	p := &process{k: a.k, gpus: a.launch.Alloc.Nodes[0].Units(model.GPUName)}
	if n.w.bug(OwnGPUs) {
		p.gpus = n.free(p.gpus)
	}
	a.phase, a.proc = running, p
	n.procs = append(n.procs, p)
	n.w.ledger.started(n, p)
	dur, code := fate(a.launch.Spec.Name, a.k.Attempt)
	n.endIn(p, dur, model.Exit{Code: code})
	n.report(&proto.Report{Kind: proto.ReportStarted, Job: a.k.Job, Attempt: a.k.Attempt, At: n.time()})
}

// free gives as many of the GPUs that no process here uses, the last ones first, or the wanted ones.
func (n *node) free(want model.Bits) (some model.Bits) {
	used := model.Bits(nil)
	for _, p := range n.procs {
		if !p.ended {
			used = used.Or(p.gpus)
		}
	}
	for i := gpusPerNode - 1; i >= 0 && some.Count() < want.Count(); i-- {
		if !used.Has(i) {
			some = some.With(i)
		}
	}
	if some.Count() < want.Count() {
		return want
	}
	return some
}

// fate is how long a job runs and how it ends, by its name.
func fate(name string, attempt uint32) (ms int64, code int32) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	x := h.Sum64() + uint64(attempt)*7919
	return 300 + int64(x%15_000), int32(x >> 20 % 4 / 3 * 7)
}

func (n *node) endIn(p *process, d int64, exit model.Exit) {
	p.turn++
	turn := p.turn
	n.w.after(d, func() {
		if p.turn == turn && !p.ended {
			n.ends(p, exit)
		}
	})
}

// kill ends a process after a while.
func (n *node) kill(p *process, d int64, exit model.Exit) {
	if p != nil && !p.ended {
		n.endIn(p, d, exit)
	}
}

// ends writes the end of a process into the journal.
func (n *node) ends(p *process, exit model.Exit) {
	p.ended, p.exit, p.at = true, exit, n.time()
	if p.cutOff {
		p.exit = model.Exit{Unknown: true, CutOff: true}
	}
	n.w.ledger.ended(n, p)
	if n.runs() {
		n.readJournal()
	}
}

// readJournal lets gnoded take the ends that it has not seen.
func (n *node) readJournal() {
	kept := n.procs[:0]
	for _, p := range n.procs {
		if !p.ended {
			kept = append(kept, p)
			continue
		}
		if a := n.attempts[p.k]; a != nil && a.proc == p {
			n.reaped(a, p)
		}
	}
	n.procs = kept
}

// endAll is the end of all processes with their machine.
func (n *node) endAll() {
	for _, p := range n.procs {
		if !p.ended {
			p.turn++
			p.ended = true
			n.w.ledger.ended(n, p)
		}
	}
	n.procs = nil
}

// leaseTick asks for a verdict when the lease is about to end, and carries it out, as gshim's leaseLoop does.
func (n *node) leaseTick() {
	n.w.after(leasePace, n.leaseTick)
	l := &n.lease
	if !n.hostUp || l.until == 0 || l.over || n.w.now < l.due || !n.holdsWork() || n.noLease() {
		return
	}
	ask := fence.Ask(nodeLimitD).Milliseconds()
	v := fence.Decide(time.Duration(n.w.now)*time.Millisecond, nodeLimitD, n.ask())
	end := max(l.until, v.At.Milliseconds())
	switch {
	case !v.Cut:
		l.free, l.due = n.w.now+3*ask, n.w.now+2*ask
	case end-n.w.now > 2*ask:
		l.free, l.due = end, end-ask
	default:
		l.due = end
		turn := l.turn
		n.w.after(end-n.w.now, func() {
			if n.lease.turn == turn && n.hostUp && !n.lease.over {
				n.cutOff(v.Why)
			}
		})
		l.due = end + minute // it is decided
	}
}

// holdsWork says whether the end of the lease concerns anything.
func (n *node) holdsWork() bool {
	for _, p := range n.procs {
		if !p.ended {
			return true
		}
	}
	for _, a := range n.attempts {
		if a.phase == accepted {
			return true
		}
	}
	return false
}

func (n *node) cutOff(why string) {
	n.w.tell("%s ends its jobs: %s", n.name, why)
	n.lease.over = true
	for _, p := range n.procs {
		if !p.ended {
			p.cutOff = true
			n.kill(p, n.w.between(1, 400), model.Exit{})
		}
	}
}

// ask gives the answers of all controllers and witnesses.
func (n *node) ask() []fence.Answer {
	var out []fence.Answer
	here := n.w.nodeHost(n.id)
	for i, c := range n.w.ctls {
		a := fence.Answer{Who: "a controller", Controller: true}
		switch {
		case !n.w.reach(here, i) || c.stopped:
			a.Sign = fence.Silent
		case !c.up:
			a.Sign = fence.Alive
		default:
			a.Sign, a.Leads = fence.Deaf, 0
			if lead := n.w.log.leader; lead >= 0 && (i == lead || n.w.reach(i, lead)) && n.w.ctls[lead].heard() {
				a.Sign, a.Leads = fence.Hears, n.leads(lead)
			}
		}
		out = append(out, a)
	}
	for _, o := range n.w.nodes {
		if o == n {
			continue
		}
		a := fence.Answer{Who: "node " + o.name, Elsewhere: true}
		switch {
		case !o.hostUp || !n.w.reach(here, n.w.nodeHost(o.id)) || o.stopped:
			a.Sign = fence.Silent
		case !o.up:
			a.Sign = fence.Alive
		default:
			a.Sign = fence.Deaf
			if o.s != nil && o.ctl == n.w.log.leader && n.w.reach(o.ctl, n.w.nodeHost(o.id)) && n.w.ctls[o.ctl].heard() {
				a.Sign, a.Leads = fence.Hears, n.leads(o.ctl)
			}
		}
		out = append(out, a)
	}
	return out
}

func (n *node) leads(i int) time.Duration {
	return time.Duration(n.w.now-n.w.ctls[i].since) * time.Millisecond
}
