package faultsim

import "gbatch/internal/model"

// faults.go chooses what goes wrong, and when; and at the end it mends everything.

// Bug is a fault of our own making: a rule that the world leaves out, for the test that its check finds it.
type Bug uint8

// The bugs, by the invariant that they break.
const (
	NoBug       Bug = iota
	HideLeaving     // a node that nobody hears lets its jobs run, and does not say what it still has to end: GPUs twice
	NoLease         // a node that nobody hears lets its jobs run: a job twice
	NodeForgets     // gnoded knows nothing after a restart: an attempt twice
	LateOrders      // a node carries out orders however old they are
	OldEpoch        // a leader takes nodes without asking the log, and nodes obey any leader
	LateHello       // a leader takes a registration that is older than the last one: a job twice
	SameBoot        // a node does not say that it was rebooted
	AckEarly        // an entry is acknowledged before a majority has it: jobs lost
	NoOnce          // requests have no id: jobs twice
	StaleReads      // a leader answers without asking whether it leads
	NoChecksum      // flipped bytes of the log are read: replicas differ
	TrimEarly       // records are dropped when they are sent
	TakeTwice       // gdbd takes what it has again
	AckReports      // a node's report is acknowledged before it is in the log
	HostTime        // commands are stamped by the host's clock
	OwnGPUs         // gnoded gives a job GPUs that are free, not those of its order: records name others
	HeardAt         // an attempt ends when that is heard: records have more time than it ran
)

func (w *World) config() *model.Config {
	c := &model.Config{Cluster: "sim", Hash: "h", Params: model.Params{MinJobAgeS: 0, KillWaitS: killWaitS,
		NodeTimeoutS: nodeLimit, HeartbeatS: beatS, JobRequeue: true, ReturnToService: 1,
		Backfill: model.Backfill{On: true}}}
	part := &model.Partition{Name: "p", Default: true, MaxTimeS: model.Unlimited, PriorityTier: 1, PriorityJobFactor: 1,
		OverSubscribe: "NO"}
	for _, n := range w.nodes {
		c.Nodes = append(c.Nodes, &model.NodeDef{Name: n.name, CPUs: cpusPerNode, Boards: 1, Sockets: 1,
			CoresPerSocket: cpusPerNode, ThreadsPerCore: 1,
			Gres: []model.GresDef{{Name: model.GPUName, Count: gpusPerNode}}})
		part.Nodes = append(part.Nodes, n.name)
	}
	c.Partitions = append(c.Partitions, part)
	return c
}

// mischief lets something go wrong, and comes again.
func (w *World) mischief() {
	if w.calm {
		return
	}
	w.after(w.between(300, 6*second), w.mischief)
	switch k := w.n(100); {
	case k < 14:
		w.cutOff()
	case k < 24:
		w.stopController()
	case k < 36:
		w.killController()
	case k < 46:
		w.stopNode()
	case k < 58:
		w.killNode()
	case k < 64:
		w.powerLoss()
	case k < 70:
		w.slowDisk()
	case k < 76:
		w.killGdbd()
	case k < 82:
		w.setClock()
	case k < 88:
		if w.log.leader >= 0 {
			w.log.transfer(w.n(controllers))
		}
	case k < 94:
		w.ctls[w.n(controllers)].keepSnapshot()
	default:
		w.flip()
	}
}

// long draws how long a fault lasts: mostly short, sometimes longer than SlurmdTimeout.
func (w *World) long() int64 {
	if w.chance(35) {
		return w.between(nodeLimit*second, 3*nodeLimit*second)
	}
	return w.between(100, 6*second)
}

// cutOff cuts one host from some others, or from all. Two hosts at a time that are cut from some only are not survived
// (noded/fence says why): a node may then reach but a controller that does not reach the leader either.
func (w *World) cutOff() {
	hosts := len(w.cut)
	a := w.n(hosts)
	all := w.chance(40) || w.partly
	var cut []int
	for b := range hosts {
		if b != a && (all || w.chance(40)) && w.reach(a, b) {
			w.setCut(a, b, true)
			cut = append(cut, b)
		}
	}
	w.partly = w.partly || !all
	d := w.long()
	w.tell("the network cuts host %d from %v for %d ms", a, cut, d)
	w.after(d, func() {
		for _, b := range cut {
			w.setCut(a, b, false)
		}
		w.partly = w.partly && all
	})
}

// pickCtl prefers the leader.
func (w *World) pickCtl() *controller {
	if w.log.leader >= 0 && w.chance(60) {
		return w.ctls[w.log.leader]
	}
	return w.ctls[w.n(controllers)]
}

func (w *World) stopController() {
	c := w.pickCtl()
	if !c.runs() {
		return
	}
	d, life := w.long(), c.life
	w.tell("controller %d is stopped for %d ms", c.id, d)
	c.stopped, c.stoppedAt = true, w.now
	w.after(d, func() {
		if c.life == life && c.stopped {
			w.tell("controller %d goes on", c.id)
			c.resume()
		}
	})
}

func (w *World) killController() {
	c := w.pickCtl()
	if !c.up {
		return
	}
	c.crash()
	w.after(w.between(200, 8*second), func() {
		if !c.up {
			c.start()
		}
	})
}

func (w *World) stopNode() {
	n := w.nodes[w.n(len(w.nodes))]
	if !n.runs() {
		return
	}
	d, life := w.long(), n.life
	w.tell("gnoded of %s is stopped for %d ms", n.name, d)
	n.stopped = true
	w.after(d, func() {
		if n.life == life {
			n.resume()
		}
	})
}

func (w *World) killNode() {
	n := w.nodes[w.n(len(w.nodes))]
	if !n.up {
		return
	}
	n.crash()
	w.after(w.long(), n.restart)
}

func (w *World) powerLoss() {
	n := w.nodes[w.n(len(w.nodes))]
	if !n.hostUp {
		return
	}
	n.powerLoss(w.chance(50))
	w.after(w.between(second, 15*second), n.powerOn)
}

func (w *World) slowDisk() {
	c := w.pickCtl()
	d := w.between(100, 5*second)
	w.tell("the disk of controller %d hangs for %d ms", c.id, d)
	c.slowSince, c.slowUntil = w.now, w.now+d
}

func (w *World) killGdbd() {
	d := w.gdbd
	if !d.up {
		return
	}
	w.tell("gdbd dies")
	d.up = false
	d.life++
	w.after(w.long(), func() { d.up = true })
}

// setClock sets one controller's clock off, or right again. Two wrong clocks of three are a majority.
func (w *World) setClock() {
	for _, c := range w.ctls {
		if c.skew > minute || c.skew < -minute {
			w.tell("the clock of controller %d is right again", c.id)
			c.skew = 0
			return
		}
	}
	c := w.ctls[w.n(controllers)]
	c.skew = 60 * minute
	if w.chance(50) {
		c.skew = -c.skew
	}
	w.tell("the clock of controller %d is set %d s off", c.id, c.skew/second)
}

// flip changes bytes of a controller's log. It is found at its next start.
func (w *World) flip() {
	c := w.ctls[w.n(controllers)]
	if w.wrecked || !c.up || c.stored < 4 {
		return
	}
	w.wrecked = true
	c.crash()
	w.tell("bytes of the log of controller %d are flipped", c.id)
	c.flipped = true
	w.after(w.between(100, 3*second), func() {
		if !c.up {
			c.start()
		}
	})
}

// makePeace ends all faults.
func (w *World) makePeace() {
	w.tell("from now on nothing goes wrong")
	w.calm = true
	for a := range w.cut {
		clear(w.cut[a])
	}
	for _, c := range w.ctls {
		c.skew, c.slowUntil = 0, 0
		if !c.up {
			c.start()
		} else if c.stopped {
			c.resume()
		}
	}
	for _, n := range w.nodes {
		switch {
		case !n.hostUp:
			n.powerOn()
		case !n.up:
			n.restart()
		case n.stopped:
			n.resume()
		default:
			n.dial()
		}
	}
	w.gdbd.up = true
}
