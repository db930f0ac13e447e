//go:build linux && (amd64 || arm64)

package shim

// lease.go kills the node's jobs before the controllers give the silent node up and start its jobs elsewhere: no job
// may run twice.
//
// gnoded renews the lease with each message that a controller acknowledges. When the lease ends, gnoded is stopped,
// hangs, is dead or is cut off. gshim does not know the cluster, so it asks: some time before the end it runs a program
// that gnoded has named, which prints one line:
//
//	keep TEXT        no controller gives this node up: what runs goes on. Asked again until there is a lease
//	cut AT TEXT      a controller does, and not before AT (nanoseconds of the clock of Uptime)
//
// After the end, or after AT if that is later, every process of every launch gets SIGKILL, and no new launch starts
// before the next lease. Prologs and epilogs are spared: they prepare and clean the node. A program that can't be run,
// or prints something else, means keep: jobs outlive faults of daemons.
//
// The lease is on disk for the gshim after this one.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	leaseFile    = "lease"
	maxLeaseFile = 64 << 10
	maxVerdict   = 4 << 10 // bytes of a verdict
	verdictGrace = time.Second
	leaseStep    = time.Second // Go's timers stand still while the machine is suspended, the lease does not
	killsAtOnce  = 64

	// firstProgram is the first of the steps that are prologs and epilogs; theirs go down from there.
	firstProgram = -1000
)

// leased is the current lease. server.mu guards it.
type leased struct {
	Lease
	turn    uint64        // counts leases: a verdict is about one of them
	over    string        // why the jobs were killed after its end; "": they were not
	free    time.Duration // until then the last verdict allows jobs to run and start
	idle    bool          // no job runs: the loop waits for a launch
	changed chan struct{} // closed and replaced with each change
}

// verdict is what the program has answered.
type verdict struct {
	cut bool
	at  time.Duration // with cut: not before
	why string
}

// program reports whether a launch is a prolog's or an epilog's.
func (k Key) program() bool { return k.Step <= firstProgram }

// setLease takes a lease from gnoded.
func (s *server) setLease(l *Lease) {
	s.mu.Lock()
	if l.Until != 0 && l.Until <= Uptime() && s.lease.over != "" {
		s.mu.Unlock()
		return // it arrived after the jobs that it was for were killed
	}
	if s.lease.over != "" {
		s.log.Info("the node is heard again; launches go on")
	}
	s.lease.Lease, s.lease.over, s.lease.free = *l, "", 0
	s.lease.turn++
	s.leaseChanged()
	s.mu.Unlock()
	if err := s.writeLease(l); err != nil {
		s.log.Warn("the lease counts, but the gshim after this one would not know it", "err", err)
	}
}

// leaseChanged wakes the goroutines that wait for the lease. Callers hold mu.
func (s *server) leaseChanged() {
	close(s.lease.changed)
	s.lease.changed = make(chan struct{})
}

// writeLease writes the lease for the next gshim. It holds for this boot only, as its clock does.
func (s *server) writeLease(l *Lease) error {
	var e encoder
	e.str(s.boot)
	e.lease(l)
	path := filepath.Join(s.dir, leaseFile)
	if err := os.WriteFile(path+".new", e.b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readLease reads the lease that an earlier gshim has written.
func (s *server) readLease() {
	s.lease.changed = make(chan struct{})
	b, err := os.ReadFile(filepath.Join(s.dir, leaseFile))
	if err == nil && len(b) > maxLeaseFile {
		err = fmt.Errorf("%d bytes", len(b))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	d := decoder{b: b}
	boot, l := d.str(), d.lease()
	if err = errors.Join(err, d.end()); err != nil {
		s.log.Warn("the lease of an earlier gshim can't be read; there is none until gnoded renews it", "err", err)
		return
	}
	if boot == s.boot {
		s.lease.Lease = l
	}
}

// leaseLoop asks for a verdict shortly before the lease ends, and carries it out.
func (s *server) leaseLoop(ctx context.Context) {
	turn, due, said := uint64(0), time.Duration(0), ""
	for ctx.Err() == nil {
		s.mu.Lock()
		l, changed := s.lease.Lease, s.lease.changed
		idle := l.Until == 0 || s.lease.over != "" || !s.holdsWork()
		s.lease.idle = idle
		if turn != s.lease.turn || due == 0 {
			turn, due = s.lease.turn, l.Until-l.Ask
		}
		s.mu.Unlock()
		if idle {
			sleepUntil(ctx, changed, 0)
			continue
		}
		if now := Uptime(); now < due {
			sleepUntil(ctx, changed, due)
			continue
		}
		v, err := s.askVerdict(ctx, &l)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			v.why = "whether this node is cut off can't be found out: " + err.Error()
		}
		if v.why != said {
			said = v.why
			s.log.Warn("gnoded has not renewed the lease", "heard_ago", (Uptime() - l.Heard).Round(time.Millisecond),
				"cut_off", v.cut, "why", v.why)
		}
		due = s.follow(ctx, turn, &l, v)
	}
}

// follow carries out a verdict and returns the time of the next one.
func (s *server) follow(ctx context.Context, turn uint64, l *Lease, v verdict) time.Duration {
	now := Uptime()
	end := max(l.Until, v.at)
	if !v.cut {
		s.letRun(turn, now+3*l.Ask)
		return now + 2*l.Ask
	}
	if end-now > 2*l.Ask { // until then a controller may be heard, or another may lead
		s.letRun(turn, end)
		return end - l.Ask
	}
	for ctx.Err() == nil && Uptime() < end {
		s.mu.Lock()
		same, changed := s.lease.turn == turn, s.lease.changed
		s.mu.Unlock()
		if !same {
			return 0
		}
		sleepUntil(ctx, changed, end)
	}
	if ctx.Err() == nil {
		s.cutOff(turn, v.why)
	}
	return 0
}

// letRun allows launches until a time although the lease has ended.
func (s *server) letRun(turn uint64, until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.turn == turn {
		s.lease.free = until
		s.leaseChanged()
	}
}

// sleepUntil waits for a change or a time; 0 is for a change only.
func sleepUntil(ctx context.Context, changed <-chan struct{}, at time.Duration) {
	var tick <-chan time.Time
	if at != 0 {
		t := time.NewTimer(min(max(at-Uptime(), 0), leaseStep))
		defer t.Stop()
		tick = t.C
	}
	select {
	case <-changed:
	case <-tick:
	case <-ctx.Done():
	}
}

// holdsWork reports whether the end of the lease concerns any launch. Callers hold mu.
func (s *server) holdsWork() bool {
	for k := range s.entries {
		if !k.program() {
			return true
		}
	}
	return false
}

// mayStart waits until it is known whether a launch may start now. The text says why not; it is empty if gshim is
// ending.
func (s *server) mayStart(k Key) (why string) {
	for !k.program() {
		s.mu.Lock()
		l := &s.lease
		why, changed, now := l.over, l.changed, Uptime()
		wait := why == "" && l.Until != 0 && now >= max(l.Until, l.free) && !s.closing
		s.mu.Unlock()
		if !wait {
			return why
		}
		select {
		case <-changed:
		case <-s.stopping:
			return ""
		}
	}
	return ""
}

// cutOff ends everything that runs, unless the lease has been renewed.
func (s *server) cutOff(turn uint64, why string) {
	s.mu.Lock()
	if s.lease.turn != turn {
		s.mu.Unlock()
		return
	}
	silent := (Uptime() - s.lease.Heard).Round(100 * time.Millisecond)
	text := cutWords + fmt.Sprintf("%v, which give its jobs up, so it ended them: %s", silent, why)
	s.lease.over = text
	var list []*entry
	for k, e := range s.entries {
		if !k.program() {
			e.cut = text
			list = append(list, e)
		}
	}
	s.leaseChanged()
	s.mu.Unlock()
	s.log.Error("the lease has ended: every process of every job is killed", "launches", len(list), "why", text)
	begun := time.Now()
	for _, e := range list { // all at once, and only then wait for each
		if e.cgroup.V2 != "" {
			_ = os.WriteFile(filepath.Join(e.cgroup.V2, "cgroup.kill"), []byte("1\n"), 0) // endCut tries again
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, killsAtOnce)
	for _, e := range list {
		slots <- struct{}{}
		wg.Go(func() {
			s.endCut(e)
			<-slots
		})
	}
	wg.Wait()
	s.log.Info("what ran has been killed", "launches", len(list), "took", time.Since(begun).Round(time.Millisecond))
}

// endCut kills all processes of one launch, also frozen ones.
func (s *server) endCut(e *entry) {
	err := s.settle(e, unix.SIGKILL)
	if err == nil {
		// A frozen process of v1 dies when it is thawed.
		if pids, terr := s.treeOf(e); terr == nil {
			for _, p := range pids {
				_ = killProcess(p, unix.SIGKILL) // signalTree tells what is left
			}
		}
		for _, dir := range e.cgroup.V1 {
			thaw(dir)
		}
		_, err = s.signalTree(e, unix.SIGKILL)
	}
	if err != nil {
		s.log.Error("a job's processes could not be killed", "job", e.key.JobID, "attempt", e.key.Attempt,
			"step", e.key.Step, "err", err)
	}
}

// thaw resumes the processes of a frozen v1 group and of the groups below it.
func thaw(dir string) {
	if os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0) != nil {
		return // another hierarchy, or gone
	}
	below, _ := os.ReadDir(dir) // gone is as good
	for _, d := range below {
		if d.IsDir() {
			thaw(filepath.Join(dir, d.Name()))
		}
	}
}

// refuseCut answers a launch that came after the end of the lease: it reports it as killed.
func (s *server) refuseCut(e *entry, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.launching, e)
	defer close(e.settled)
	s.finish(e, unknownEnd(Event{Key: e.key}, why))
}

// cutEnd adds the reason to an end by cutOff's signal.
func cutEnd(last Event, why string) Event {
	if last.Kind == Exited && (last.Unknown || last.Signal == int(unix.SIGKILL)) {
		last.Unknown, last.Code, last.Signal, last.Text = true, 0, 0, why
	}
	return last
}

// askVerdict runs the program that gnoded has named and waits for its line.
func (s *server) askVerdict(ctx context.Context, l *Lease) (verdict, error) {
	if len(l.Verdict) == 0 {
		return verdict{}, errors.New("gnoded has named no program")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return verdict{}, err
	}
	defer r.Close() // ends the reader below
	patience := l.Ask + verdictGrace
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return verdict{}, errors.Join(err, w.Close())
	}
	type said struct {
		v   verdict
		err error
	}
	answer := make(chan said, 2)
	var child atomic.Pointer[process]
	go func() { // beyond the answer only while the program is on a dead file server
		defer w.Close()
		p, err := s.startVerdict(l, w)
		if err != nil {
			answer <- said{err: err}
			return
		}
		child.Store(p)
	}()
	go func() {
		v, err := readVerdict(r)
		answer <- said{v, err}
	}()
	select {
	case a := <-answer:
		if p := child.Load(); a.err != nil && p != nil {
			_ = killProcess(*p, unix.SIGKILL) // it has ended, or takes too long
		}
		if a.err != nil {
			a.err = fmt.Errorf("%s gave no verdict within %v: %w", l.Verdict[0], patience, a.err)
		}
		return a.v, a.err
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
}

// startVerdict starts the program as a launch is started: on a dead file server it holds one thread.
func (s *server) startVerdict(l *Lease, out *os.File) (*process, error) {
	order := &Launch{Argv: l.Verdict, Env: cleanEnv(), UID: uint32(s.id.uid), GID: uint32(s.id.gid), Nice: s.id.nice,
		Passed: [PassedFiles]*os.File{1: out}, AsRoot: s.id.root}
	p, failed := s.id.prepare(order)
	if failed == nil {
		defer p.close()
		var pid int
		if pid, failed = p.forkExec(order); failed == nil {
			child, err := readProcess(pid)
			if err != nil {
				return nil, nil // it has ended already, and its line is in the pipe
			}
			return &child, nil
		}
	}
	return nil, errors.New(failed.text)
}

// readVerdict reads the program's line.
func readVerdict(r io.Reader) (verdict, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxVerdict)).ReadString('\n')
	if err != nil {
		return verdict{}, err
	}
	return parseVerdict(strings.TrimSuffix(line, "\n"))
}

func parseVerdict(line string) (verdict, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "keep":
		return verdict{why: rest}, nil
	case "cut":
		at, why, _ := strings.Cut(rest, " ")
		if ns, err := strconv.ParseInt(at, 10, 64); err == nil && ns >= 0 {
			return verdict{cut: true, at: time.Duration(ns), why: why}, nil
		}
	}
	return verdict{}, fmt.Errorf("a verdict that is none: %q", clip(line))
}

// maxLeaseSpan bounds the times of a lease: no machine has been up longer.
const maxLeaseSpan = int64(100 * 365 * 24 * time.Hour)

func (e *encoder) lease(l *Lease) {
	e.i64(int64(l.Until))
	e.i64(int64(l.Heard))
	e.i64(int64(l.Ask))
	e.strs(l.Verdict)
}

func (d *decoder) lease() Lease {
	return Lease{Until: time.Duration(d.num("end of the lease", 0, maxLeaseSpan)),
		Heard:   time.Duration(d.num("last word", 0, maxLeaseSpan)),
		Ask:     time.Duration(d.num("time to ask", 0, maxLeaseSpan)),
		Verdict: d.strs("arguments", MaxVerdictArgs)}
}
