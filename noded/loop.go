package noded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gbatch/internal/crash"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// loop.go is the single goroutine that owns the attempts and the spool.
//
// All events (orders, gshim's events, results of workers, timers, acknowledgements) go into an inbox. The loop takes
// all messages at once, lets each change the attempts, and writes the records for the spool. A batch of any size costs
// one fsync.
//
// Actions that can be repeated wait only for the write, not for the fsync: making and removing scripts and control
// groups, and sending reports (gshim still has the reported end). Actions that can't be taken back wait for the fsync:
// orders and acknowledgements to gshim, signals, and reading the leader's next orders.
//
// Nothing here waits for a network, a user's file system or a process.

const (
	// maxAttempts is how many attempts a node holds at once, those included whose end the leader has not acknowledged.
	maxAttempts = 32768
	// maxGone is how many forgotten attempts are remembered, so that a late order cannot start one of them again.
	maxGone = 65536
)

// inbox is the queue of messages to the loop. Its senders bound its length: a session waits until its orders are taken,
// and every other message belongs to one of at most maxAttempts attempts.
type inbox struct {
	mu   sync.Mutex
	list []any
	wake chan struct{}
}

func (in *inbox) post(m any) {
	in.mu.Lock()
	in.list = append(in.list, m)
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default: // awake already
	}
}

func (in *inbox) take() []any {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list = nil
	return list
}

// deadline is a timer whose message comes through the inbox. The message has the number of the time that it was armed,
// so that one from before can be told.
type deadline struct {
	timer *time.Timer
	turn  uint64
}

// arm posts what of gives after d; 0: never. What was armed before is not posted, or has another number.
func (t *deadline) arm(in *inbox, d time.Duration, of func(turn uint64) any) {
	t.stop()
	t.turn++
	if d > 0 {
		m := of(t.turn)
		t.timer = time.AfterFunc(d, func() { in.post(m) })
	}
}

func (t *deadline) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// The messages.
type (
	msgWelcome struct {
		w    *proto.Welcome
		done chan error
	}
	msgOrders struct {
		o    *proto.Orders
		done chan error
	}
	msgAck struct{ seqs []uint64 }

	// msgLink says that a connection to gshim is up, and what it listed.
	msgLink struct{ events []shim.Event }
	// msgEvents is gshim's news.
	msgEvents struct{ events []shim.Event }

	// msgPrepared is a worker's: the order is made, or why it could not be.
	msgPrepared struct {
		key    proto.Attempt
		order  *shim.Launch
		script string
		err    error
	}
	// msgCleared is a worker's: nothing of the attempt is left on the machine, or something still is.
	msgCleared struct {
		key  proto.Attempt
		exit model.Exit
		told bool // the exit has what gshim said of the end
		left error
	}
	msgSampled struct{ list []*sampledUse } // the sampler's: to write to the spool
	msgKnown   struct{ reply chan answerFor }
	msgRunning struct{ reply chan answerFor }
	msgOwed    struct{ reply chan int } // the number of epilogs from before a reboot for which only this node waits
)

// loop owns the attempts.
type loop struct {
	n     *Noded
	spool *spool
	out   *outbox
	log   *slog.Logger
	now   func() time.Time

	attempts  map[proto.Attempt]*attempt
	gone      *recent                // attempts that are forgotten
	foreign   map[proto.Attempt]bool // the same of another instance, whose numbers may come again; at most maxAttempts
	seq       uint64
	ended     []*proto.Report        // of steps that have just ended, in order; at most mostEnded
	leftovers map[proto.Attempt]bool // abandoned attempts of which something is left; at most maxLeftovers
	haunting  map[proto.Attempt]bool // leftovers that were reported to the leader, which waits for their end
	swept     bool                   // groups without a known attempt have been removed: gshim has listed what it has
	hailed    bool                   // a registration has listed the attempts
	began     time.Time              // when this gnoded read the spool
	serial    proto.Attempt          // PrologFlags=Serial: the attempt whose program runs
	queue     []proto.Attempt        // attempts whose programs wait; at most maxAttempts

	failed  error    // of the spool, while a step went on
	sending *sending // of the signals that are being handled; nil: nobody waits for them
	// What follows once the batch is written, and once it is on disk.
	reports []*proto.Report
	early   []func()
	late    []func()
}

// run works until ctx ends.
func (l *loop) run(ctx context.Context) error {
	defer l.stopTimers()
	for {
		select {
		case <-l.n.inbox.wake:
		case <-ctx.Done():
			if err := l.onSampled(l.n.sampler.unsaved()); err != nil {
				return err
			}
			l.spool.write()
			return nil
		}
		if err := l.batch(l.n.inbox.take()); err != nil {
			return err
		}
	}
}

// batch handles messages, makes what they changed durable, and does what follows.
func (l *loop) batch(list []any) error {
	for _, m := range list {
		if err := l.unlessItem(l.handle(m)); err != nil {
			return err
		}
	}
	if l.failed != nil {
		return l.failed
	}
	l.spool.write()
	l.out.put(l.reports...)
	l.reports = l.reports[:0]
	for _, f := range l.early {
		f()
	}
	l.spool.commit()
	l.noteSpool()
	for _, f := range l.late {
		f()
	}
	l.n.alive.Store(int64(len(l.attempts)))
	clear(l.early)
	clear(l.late)
	l.early, l.late = l.early[:0], l.late[:0]
	return nil
}

// unlessItem drops an error that concerns one record only, with a line in the log: what one job or step has sent does
// not end the daemon.
func (l *loop) unlessItem(err error) error {
	if tooLarge(err) {
		l.log.Error("a record can't be kept in the spool", "err", err)
		return nil
	}
	return err
}

// soon queues f until the batch is written, so that it survives this process. f must be an action that may be repeated,
// or be lost with the machine's power.
func (l *loop) soon(f func()) { l.early = append(l.early, f) }

// then queues f until the batch is on disk.
func (l *loop) then(f func()) { l.late = append(l.late, f) }

func (l *loop) handle(m any) error {
	switch m := m.(type) {
	case msgWelcome:
		return l.answer(m.done, func() error { return l.onWelcome(m.w) })
	case msgOrders:
		return l.answer(m.done, func() error { return l.onOrders(m.o) })
	case msgSignals:
		return l.onSignals(m)
	case msgAck:
		return l.onAck(m.seqs)
	case msgLink:
		return l.onLink(m.events)
	case msgEvents:
		return l.onEvents(m.events)
	case msgPrograms:
		return l.onPrograms(m)
	case msgProgramLate:
		return l.onProgramLate(m)
	case msgPrepared:
		return l.onPrepared(m)
	case msgCleared:
		return l.onCleared(m)
	case msgSampled:
		return l.onSampled(m.list)
	case msgChilled:
		return l.onChilled(m)
	case msgChill:
		if a := l.attempts[m.key]; a != nil {
			l.chill(a)
		}
	case msgDeadline:
		return l.onDeadline(m)
	case msgLeftover:
		l.onLeftover(m)
	case msgKnown:
		l.hailed = true
		m.reply <- answerFor{known: l.known(), leaving: l.leaving()}
	case msgWaits:
		m.reply <- l.tellWaits(m.keys)
	case msgOwed:
		m.reply <- l.owed()
	case msgOverfull:
		l.onOverfull(m)
	case msgMendSpool:
		l.onMendSpool()
	case msgRunning:
		m.reply <- answerFor{running: l.running(), leaving: l.leaving()}
	default:
		return l.guard(func() error {
			handled, err := l.handleStep(m)
			if err == nil && !handled {
				err = fmt.Errorf("the node's loop got a %T", m)
			}
			return err
		}, func(crashed error) error { return l.stepCrashed(m, crashed) })
	}
	return nil
}

// staleError refuses a former leader.
type staleError struct{ epoch, seen uint64 }

func (e *staleError) Error() string {
	return fmt.Sprintf("the leader is of epoch %d, this node has obeyed one of epoch %d: its orders are refused",
		e.epoch, e.seen)
}

// answer tells a message's sender whether it was accepted, once that is on disk. The sender handles a stale leader; any
// other error ends the loop.
func (l *loop) answer(done chan error, f func() error) error {
	err := f()
	if _, stale := err.(*staleError); stale {
		done <- err
		return nil
	}
	if err == nil {
		l.then(func() { done <- nil })
	}
	return err
}

// onWelcome records the leader's epoch and instance.
func (l *loop) onWelcome(w *proto.Welcome) error {
	mem := &l.spool.mem.epoch
	if w.Instance != 0 && mem.Instance != 0 && w.Instance != mem.Instance {
		l.log.Warn("the controllers have lost their state; the jobs that it had are ended", "attempts", len(l.attempts))
		clear(l.foreign)
		for _, a := range l.attempts {
			if err := l.forget(a, foreign); err != nil {
				return err
			}
		}
		l.gone = newRecent(maxGone)
	} else if w.Epoch < mem.Epoch {
		return &staleError{w.Epoch, mem.Epoch}
	}
	l.n.def.Store(&welcomed{cluster: w.Cluster, def: w.Def, killWaitS: w.KillWaitS})
	l.n.groups.keep(w.Def)
	if w.Rules != nil {
		l.n.takeRules(w.Rules)
	}
	if err := l.sawEpoch(w.Epoch, w.Instance); err != nil {
		return err
	}
	return l.forgetAll(w.Forget)
}

// forgetAll ends attempts that the leader does not know.
func (l *loop) forgetAll(keys []proto.Attempt) error {
	for _, key := range keys {
		if a := l.attempts[key]; a != nil && a.will != wanted {
			continue // under way
		}
		if err := l.onForget(key); err != nil {
			return err
		}
	}
	return nil
}

// sawEpoch remembers the greatest epoch. It is on disk before any order of that epoch's leader is carried out.
func (l *loop) sawEpoch(epoch, instance uint64) error {
	old := l.spool.mem.epoch
	if instance == 0 {
		instance = old.Instance
	}
	if epoch == old.Epoch && instance == old.Instance {
		return nil
	}
	l.n.instance.Store(instance)
	return l.spool.add(recEpoch, &leaderEpoch{Epoch: epoch, Instance: instance}, true)
}

// onOrders carries out the leader's orders. Launches come first: a Stop in the same message may be for one of them.
func (l *loop) onOrders(o *proto.Orders) error {
	if seen := l.spool.mem.epoch.Epoch; o.Epoch < seen {
		return &staleError{o.Epoch, seen}
	}
	if err := l.sawEpoch(o.Epoch, 0); err != nil {
		return err
	}
	if o.Rules != nil {
		l.n.takeRules(o.Rules)
	}
	if o.Health {
		l.then(l.n.health.run)
	}
	if err := l.forgetAll(o.Forget); err != nil {
		return err
	}
	for _, launch := range o.Launch {
		err := l.guard(func() error { return l.onLaunch(launch) },
			func(crashed error) error { return l.refuseLaunch(launch, crashed) })
		if err != nil {
			return err
		}
	}
	for _, resize := range o.Resize {
		if err := l.guard(func() error { return l.onResize(resize) }, nil); err != nil {
			return err
		}
	}
	for _, freeze := range o.Freeze {
		l.onFreeze(freeze)
	}
	for _, stop := range o.Stop {
		if err := l.guard(func() error { return l.onStop(stop) }, nil); err != nil {
			return err
		}
	}
	return nil
}

// guard carries out one request. If that panics, the request fails alone: failed, if any, says so to whoever made it.
// What the request has changed by then stays; the deadline of its phase ends it.
func (l *loop) guard(do func() error, failed func(error) error) (err error) {
	defer func() {
		crashed := crash.Recovered(recover())
		if crashed == nil {
			return
		}
		l.log.Error("a request has failed, and the daemon goes on", "err", crashed)
		if err = nil; failed != nil {
			err = failed(crashed)
		}
	}()
	return do()
}

func (l *loop) stamp() model.Time { return l.n.hostTime() }

// repeat sends an attempt's reports again.
func (l *loop) repeat(a *attempt) error {
	if k, ok := l.spool.mem.attempts[a.key]; ok && len(k.reports) > 0 {
		l.out.repeat(k.reports)
		return nil
	}
	if a.began != 0 && a.runs() {
		return l.report(&proto.Report{Kind: proto.ReportStarted, Job: a.key.Job, Attempt: a.key.Attempt, At: a.began})
	}
	if a.phase == ready {
		return l.report(&proto.Report{Kind: proto.ReportReady, Job: a.key.Job, Attempt: a.key.Attempt})
	}
	return nil // there is nothing to report yet
}

// drop takes an attempt out of memory and keeps its key, so that a late order does not start it again.
func (l *loop) drop(key proto.Attempt) {
	since := uint32(0)
	if a := l.attempts[key]; a != nil {
		since = a.since
		l.dropSize(a)
		a.stopTimers()
		delete(l.attempts, key)
		if a.will != wanted {
			if l.leftovers[key] {
				l.haunting[key] = true
			}
			l.then(l.n.beatNow) // the leader may wait for it with new work
		}
		if a.will == foreign {
			l.foreign[key] = true
			return
		}
	}
	l.gone.add(key, since)
}

// known lists the attempts that this node has or still has to report.
func (l *loop) known() []proto.Attempt {
	out := make([]proto.Attempt, 0, len(l.attempts))
	for key, a := range l.attempts {
		if a.will == wanted {
			out = append(out, key)
		}
	}
	return out
}

// answerFor gives the attempts for a registration or a heartbeat.
type answerFor struct {
	known   []proto.Attempt
	running int
	leaving []proto.Attempt
}

// leaving lists attempts that were to be forgotten and have not ended, the first by number. Attempts that a reboot
// ended have no processes.
func (l *loop) leaving() []proto.Attempt {
	var out []proto.Attempt
	for key, a := range l.attempts {
		if a.will != wanted && a.origin != beforeBoot {
			out = append(out, key)
		}
	}
	for key := range l.haunting {
		if l.leftovers[key] {
			out = append(out, key)
		} else {
			delete(l.haunting, key)
		}
	}
	slices.SortFunc(out, func(a, b proto.Attempt) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
	})
	return out[:min(len(out), proto.MaxLeaving)]
}

func (l *loop) running() int {
	n := 0
	for _, a := range l.attempts {
		if a.alive() {
			n++
		}
	}
	return n
}

func (l *loop) stopTimers() {
	for _, a := range l.attempts {
		a.stopTimers()
	}
}

// recent has the last part of each attempt, and forgets the oldest attempts.
type recent struct {
	set  map[proto.Attempt]uint32 // NodeAlloc.Since of it
	ring []proto.Attempt
	next int
}

func newRecent(size int) *recent {
	return &recent{set: map[proto.Attempt]uint32{}, ring: make([]proto.Attempt, 0, size)}
}

func (r *recent) has(key proto.Attempt) bool {
	_, ok := r.set[key]
	return ok
}

// last gives the last part of an attempt.
func (r *recent) last(key proto.Attempt) (since uint32, ok bool) {
	since, ok = r.set[key]
	return since, ok
}

func (r *recent) add(key proto.Attempt, since uint32) {
	if was, ok := r.set[key]; ok {
		r.set[key] = max(was, since)
		return
	}
	r.set[key] = since
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, key)
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = key
	r.next = (r.next + 1) % len(r.ring)
}
