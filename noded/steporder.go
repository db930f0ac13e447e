package noded

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/pool"
	"gbatch/noded/shim"
)

// steporder.go brings a step's tasks to gshim: the files of its command come, a worker makes the orders, and they are
// given.

// onStepFiles prepares the tasks that gshim does not know yet, and tells the step's other nodes.
func (l *loop) onStepFiles(m msgStepFiles) {
	s := m.conn.step
	if s == nil || s.req == nil {
		m.drop()
		return
	}
	if s.phase == stepCreated || s.phase == stepRunning {
		l.partFiles(s, &m)
	}
	e := sevNoFiles
	for i := range s.tasks {
		if s.tasks[i].waits() {
			e = sevFiles
		}
	}
	if e == sevNoFiles {
		m.drop()
	}
	l.stepHappens(s, e, stepNews{files: &m})
}

func (m *msgStepFiles) all() []*os.File { return slices.Concat(m.given[0], m.given[1], m.given[2]) }

// drop closes the files of a message that nobody needs.
func (m *msgStepFiles) drop() {
	files, paid := m.all(), m.paid
	m.given = [3][]*os.File{}
	closeAside(files, func() { paid.give(int64(len(files))) })
}

// closeAside closes files on a goroutine of its own, and then calls over: they are a user's, and to close one may take
// as long as its server, or who reads from it, likes. What is paid for the files is given back then, so a user has no
// more of such goroutines than open files.
func closeAside(files []*os.File, over func()) {
	if len(files) == 0 {
		return
	}
	go func() { // it ends with the files
		closeFiles(files)
		over()
	}()
}

// closeFiles closes what was held for tasks that were to begin.
func (l *loop) closeFiles(s *step) {
	files, paid := s.files, s.paid
	s.files, s.paid = nil, nil
	if len(files) == 0 {
		return
	}
	l.soon(func() {
		closeAside(files, func() {
			for _, p := range paid {
				p.give(math.MaxInt64)
			}
		})
	})
}

// waits reports whether the task was not ordered and gshim has not heard of it.
func (t *stepTask) waits() bool { return t.order == nil && !t.began && t.ended == nil }

const thisHost = "127.0.0.1" // where a command is that is on this host

// makeOrders has a worker make the step's group and the orders for the tasks that wait.
func (l *loop) makeOrders(s *step, m *msgStepFiles) {
	var only []int
	for i := range s.tasks {
		if s.tasks[i].waits() {
			only = append(only, i)
		}
	}
	s.files = append(s.files, m.all()...)
	s.paid = append(s.paid, m.paid)
	p := &stepPlan{key: s.job.key, facts: s.job.rec.Order, rec: s.rec, here: s.here, req: s.req, files: m.files,
		given: m.given, only: only, het: m.het}
	if m.conn.direct(l.n.opts.Name) == "" {
		p.io = relayAt(m.conn, m.io)
	}
	if p.pmi = relayAt(m.conn, m.pmi); p.pmi != nil && p.pmi.Host == "" {
		p.pmi.Host = thisHost
	}
	if p.x11 = relayAt(m.conn, m.x11); p.x11 != nil && p.x11.Host == "" {
		p.x11.Host = thisHost
	}
	work := func(ctx ctxType) {
		defer pool.Or(func(err error) { l.n.inbox.post(msgStepPrepared{key: p.key, id: p.rec.ID, err: err}) })
		if ctx.Err() != nil {
			l.n.inbox.post(msgStepPrepared{key: p.key, id: p.rec.ID, err: errLeft})
			return
		}
		orders, lines, err := l.n.makeStep(ctx, p)
		l.n.inbox.post(msgStepPrepared{key: p.key, id: p.rec.ID, orders: orders, relays: p.relays, writes: p.writes,
			lines: lines, err: err})
	}
	if p.req.Container == nil {
		l.soon(func() { l.n.workers.Do(work) })
		return
	}
	l.soon(func() {
		if s.leave = l.n.imports.DoFor(p.facts.Spec.UID, eachImports, work); s.phase != stepPreparing {
			s.leave()
		}
	})
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only passed on
	}
}

// onStepPrepared continues a step when a worker has made its orders.
func (l *loop) onStepPrepared(m msgStepPrepared) {
	s := l.step(m.key, m.id)
	if s == nil {
		m.close()
		return
	}
	for _, line := range m.lines {
		s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: line})
	}
	if m.err != nil {
		l.stepHappens(s, sevNotMade, stepNews{text: "Unable to start step: " + m.err.Error()})
		return
	}
	l.stepHappens(s, sevMade, stepNews{made: &m})
}

// passed gives the files of its orders: those of the step's command, which the step holds, and others.
func (m *msgStepPrepared) passed() (files []*os.File) {
	for _, o := range slices.Concat(m.relays, m.orders) {
		for _, f := range o.Passed {
			if f != nil {
				files = append(files, f)
			}
		}
	}
	return files
}

// close closes the files of orders that are not carried out, and whose step is gone: it has closed those that are paid
// for.
func (m *msgStepPrepared) close() { closeAside(m.passed(), func() {}) }

// orderTasks hands a step's tasks to gshim.
func (l *loop) orderTasks(s *step, m *msgStepPrepared) {
	part := &s.rec.Nodes[s.here]
	s.outputs = append(s.outputs, m.writes...)
	for _, o := range m.orders {
		if i := slices.Index(part.Ranks, o.Key.Task); i >= 0 {
			s.tasks[i].order = o
		}
	}
	for _, o := range m.relays {
		s.relays = append(s.relays, &relayed{order: o})
		s.files = append(s.files, o.Passed[0])
	}
	if len(m.relays) > 0 {
		for _, o := range m.orders {
			for _, f := range o.Passed {
				if f != nil {
					s.files = append(s.files, f)
				}
			}
		}
	}
	orders := slices.Concat(m.relays, m.orders)
	l.then(func() { l.n.link.launch(orders...) })
	if s.limit == nil {
		l.armLimit(s)
	}
}

// armLimit arms the timer of a step's time limit, which counts from its first task's start, and not while its job is
// suspended.
func (l *loop) armLimit(s *step) {
	if s.rec.LimitS <= 0 || s.rec.LimitS >= model.Unlimited || s.rec.FrozenAt != 0 {
		s.stopTimer(timerLimit)
		return
	}
	left := time.Duration(s.rec.LimitS)*time.Second + time.Duration(s.rec.Frozen)*time.Millisecond
	if s.began != 0 {
		left = max(0, left-time.Duration(l.stamp()-s.began)*time.Millisecond)
	}
	s.setTimer(l, timerLimit, left)
}

// limitStep gives a step another time limit.
func (l *loop) limitStep(s *step, seconds int64) {
	rec := *s.rec
	rec.LimitS = seconds
	l.timeStep(s, &rec)
}

// timeStep replaces what counts for a step's time limit.
func (l *loop) timeStep(s *step, rec *placedStep) {
	if err := l.spool.add(recStep, rec, false); err != nil {
		l.log.Warn("a step's new time limit is not in the spool: it counts until this daemon ends", "job", rec.Job,
			"step", s.id, "err", err)
	}
	s.rec = rec
	l.armLimit(s)
}

// holdLimits stops the time of an attempt's steps when it has been suspended, and lets it go on when it has been
// resumed.
func (l *loop) holdLimits(a *attempt, frozen bool) {
	for _, s := range a.steps {
		rec := *s.rec
		switch now := l.stamp(); {
		case rec.Manager != "" || frozen == (rec.FrozenAt != 0):
			continue
		case frozen: // also while its processes had time to get ready for it
			rec.FrozenAt = max(a.chill.begun, s.began)
		default:
			rec.Frozen, rec.FrozenAt = rec.Frozen+max(0, int64(now-max(rec.FrozenAt, s.began))), 0
		}
		l.timeStep(s, &rec)
	}
}

// bindLines are what --cpu-bind=verbose, --mem-bind=verbose and --gpu-bind=verbose print for each task.
func bindLines(p *stepPlan, orders []*shim.Launch, cpus, gpus []model.Bits) []string {
	var out []string
	part := &p.rec.Nodes[p.here]
	for i, local := range p.only {
		rank := part.Ranks[local]
		if p.req.Bind.MemVerbose {
			out = append(out, memLine(&p.req.Bind, &orders[i].Mem, part.Node, int(rank), local))
		}
		if p.req.Bind.CPUVerbose {
			mode, on := "cpu-bind=NULL", part.CPUs
			if local < len(cpus) {
				mode, on = "cpu-bind=MASK", cpus[local]
			}
			out = append(out, fmt.Sprintf("%s - %s, task %2d %2d: mask %s set", mode, part.Node, rank, local,
				jobenv.MaskText(on)))
		}
		if p.req.Bind.GPUVerbose {
			all := jobenv.StepGPUs(part)
			own := all
			if local < len(gpus) {
				own = gpus[local]
			}
			out = append(out, fmt.Sprintf("gpu-bind: usable_gres=%s; bit_alloc=%s; local_inx=%d; global_list=%s; local_list=%s",
				jobenv.MaskText(own), jobenv.MaskText(all), all.Count(), jobenv.CommaList(own), jobenv.PlacesIn(all, own)))
		}
	}
	return out
}

// memWays are the words for a task's memory in Slurm's lines.
var memWays = map[uint8]string{proto.BindNone: "NONE", proto.BindRank: "RANK", proto.BindLocal: "LOC",
	proto.BindMap: "MAP", proto.BindMask: "MASK"}

// memLine is what --mem-bind=verbose prints for a task.
func memLine(b *proto.StepBind, p *shim.MemPolicy, node string, rank, local int) string {
	mode, way, action := "=", memWays[b.Mem], " set"
	if b.MemPrefer {
		mode = " PREFER "
	}
	switch b.Mem {
	case proto.BindNone:
		mode, action = "=", ""
	case proto.BindAuto:
		way, action = "NULL", ""
	}
	var mask model.Bits
	for _, n := range p.Nodes {
		mask = mask.With(n)
	}
	return fmt.Sprintf("mem-bind%s%s - %s, task %2d %2d: mask %s%s", mode, way, node, rank, local, jobenv.MaskText(mask),
		action)
}
