package noded

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
	"gbatch/noded/procs"
)

// sample.go samples running jobs, for values that no counter of the kernel keeps until their end. One goroutine goes
// through all jobs whose time has come; jobs with the same interval come together, at multiples of it, so a hundred
// jobs wake gnoded once. A job that ends before its first sample has cost an entry in a map.
//
// A sample can only increase the attempt's numbers. The loop writes them to the spool from time to time and when gnoded
// ends, and they are read at the attempt's end.

const (
	// maxOpenMeters bounds the jobs whose files stay open between samples; others open them each time. Six files each.
	maxOpenMeters = 1024
	// saveEvery is the least time between two writes of a job's numbers to the spool: a crash of gnoded loses at most
	// that much.
	saveEvery = 15 * time.Second
	// maxPids bounds the processes that are listed for gstat -i.
	maxPids = 4096
)

// sampler owns the results of samples. Its methods may be called from any goroutine.
type sampler struct {
	node   string
	groups *groups
	log    *slog.Logger
	now    func() time.Time
	save   func(list []*sampledUse) // gives numbers to the loop

	mu     sync.Mutex
	every  time.Duration // between samples of jobs that ask for nothing else; 0: none
	jobs   map[sampleKey]*sampled
	open   int // meters
	next   time.Time
	wake   chan struct{}
	buf    cgroup.MeterBuf
	reader procs.Reader
	tree   procs.Tree
	gpus   []gpu.Reading // the latest
	given  map[givenKey]int64

	told   map[proto.Attempt]toldUse // what the leader was told of jobs
	toldAt time.Time
}

// sampleKey names what is sampled: a job's attempt as a whole (step stepBatch), or one of its steps.
type sampleKey struct {
	job  proto.Attempt
	step int32
}

func wholeJob(key proto.Attempt) sampleKey { return sampleKey{key, stepBatch} }

// sampled is one attempt or step. It is guarded by the sampler's mu.
type sampled struct {
	key   sampleKey
	heads []int         // the processes that gshim started, for hosts without control groups
	tasks []int32       // for gcontrol listpids: of each head its pid, its number among the node's tasks, its rank
	every time.Duration // 0: only when asked
	due   time.Time
	saved time.Time
	dirty bool
	began time.Time

	meter *cgroup.Meter
	use   model.NodeUsage
	nowKB int64     // memory of its processes at the last sample
	memKB int64     // the same with page cache
	at    time.Time // of the last sample
	procs procs.Seen
	gpus  []gpuSeen
	hasIO bool // the group's I/O is counted, that of groups within it too

	steps  map[int32]*sampled // of a job: those that run here
	parted bool               // it has, or had, steps
	own    ownUse             // of a parted job
	below  model.NodeUsage    // what its ended steps used here
}

func newSampler(n *Noded) *sampler {
	s := &sampler{node: n.opts.Name, groups: n.groups, log: n.log, now: n.now, jobs: map[sampleKey]*sampled{},
		given: map[givenKey]int64{}, told: map[proto.Attempt]toldUse{}, wake: make(chan struct{}, 1),
		save: func(list []*sampledUse) { n.inbox.post(msgSampled{list}) }}
	s.setEvery(time.Duration(n.configured().SampleS) * time.Second)
	return s
}

// setEvery says how often jobs are sampled that start from now on.
func (s *sampler) setEvery(every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.every = every
}

// everyS is how often jobs that ask for nothing else are sampled, seconds.
func (s *sampler) everyS() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int32(s.every / time.Second)
}

// shape is a job's resources here, and its sampling interval.
func (s *sampler) shape(l *proto.Launch) *model.NodeUsage {
	u := s.held(&l.Alloc.Nodes[l.Node])
	if want := l.Spec.Extra().SampleS; want != 0 {
		u.EveryS = max(want, 0)
	}
	return u
}

// held gives the usage record of a part of this node, without any usage yet.
func (s *sampler) held(here *model.NodeAlloc) *model.NodeUsage {
	u := &model.NodeUsage{Node: s.node, Tasks: 1, CPUs: int32(here.CPUs.Count()), MemMiB: here.MemMiB, EveryS: s.everyS()}
	for _, key := range gpusHeld(here) {
		u.GPUs = append(u.GPUs, model.GPUUsage{Index: int32(key.Index), UUID: s.groups.units.UUID[key]})
	}
	return u
}

// begin starts to sample an attempt or a step. use has its resources and the results of earlier samples, pid is a
// process that gshim has started, the first one of the task local of this node with this rank; further processes of a
// step come by further calls.
func (s *sampler) begin(key sampleKey, use *model.NodeUsage, began model.Time, pid int, local, rank int32) {
	if use == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[key]; j != nil {
		j.heads, j.tasks = append(j.heads, pid), append(j.tasks, int32(pid), local, rank)
		return
	}
	j := &sampled{key: key, heads: []int{pid}, tasks: []int32{int32(pid), local, rank}, use: *use,
		every: time.Duration(use.EveryS) * time.Second,
		began: time.UnixMilli(int64(began))}
	j.use.GPUs = slices.Clone(use.GPUs)
	j.gpus = make([]gpuSeen, len(j.use.GPUs))
	for i := range j.gpus {
		j.gpus[i].energyMJ = -1
		if r := s.reading(&j.use.GPUs[i]); r != nil {
			j.gpus[i].energyMJ = r.EnergyMilliJ
		}
	}
	s.jobs[key] = j
	s.tieStep(j)
	if j.every <= 0 {
		return
	}
	now := s.now()
	j.due, j.saved = now.Truncate(j.every).Add(j.every), now
	if s.next.IsZero() || j.due.Before(s.next) {
		s.next = j.due
		select {
		case s.wake <- struct{}{}:
		default: // awake already
		}
	}
}

// end gives the samples' results for an attempt or step and forgets it; nil if it was not sampled.
func (s *sampler) end(key sampleKey) *sampled {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[key]
	if j == nil {
		return nil
	}
	delete(s.jobs, key)
	if key.step != stepBatch {
		if job := s.jobs[wholeJob(key.job)]; job != nil {
			delete(job.steps, key.step)
		}
	}
	s.shut(j)
	return j
}

func (s *sampler) shut(j *sampled) {
	if j.meter == nil {
		return
	}
	s.open--
	_ = j.meter.Close() // only read from
	j.meter = nil
}

// run samples until ctx ends, and then gives unsaved results to the loop.
func (s *sampler) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		next := s.next
		s.mu.Unlock()
		wait := time.Hour
		if !next.IsZero() {
			wait = max(next.Sub(s.now()), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			s.close()
			return
		case <-s.wake:
			continue
		case <-timer.C:
		}
		s.round(s.now())
	}
}

// onSampled remembers what samples have found of attempts that run.
func (l *loop) onSampled(list []*sampledUse) error {
	for _, r := range list {
		a := l.attempts[proto.Attempt{Job: r.Job, Attempt: r.Attempt}]
		if a == nil || !a.runs() || a.rec == nil {
			continue
		}
		if err := l.unlessItem(l.spool.add(recSampled, r, false)); err != nil {
			return err
		}
	}
	return nil
}

func (s *sampler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		s.shut(j)
	}
}

// round samples the jobs whose time has come. It locks for one job at a time: launches and ends go on in between.
func (s *sampler) round(now time.Time) {
	var due []*sampled
	s.mu.Lock()
	s.next = time.Time{}
	for _, j := range s.jobs {
		if j.every <= 0 {
			continue
		}
		if !j.due.After(now) {
			due = append(due, j)
			j.due = now.Truncate(j.every).Add(j.every)
		}
		if s.next.IsZero() || j.due.Before(s.next) {
			s.next = j.due
		}
	}
	s.mu.Unlock()
	var save []*sampledUse
	for _, j := range due {
		s.mu.Lock()
		if s.jobs[j.key] == j {
			s.sample(j)
			if j.toSave() && now.Sub(j.saved) >= saveEvery {
				save = append(save, j.record())
				j.saved, j.dirty = now, false
			}
		}
		s.mu.Unlock()
	}
	if len(save) > 0 {
		s.save(save)
	}
}

// unsaved gives the results that are not in the spool, for gnoded's end.
func (s *sampler) unsaved() []*sampledUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*sampledUse
	for _, j := range s.jobs {
		if j.toSave() {
			list = append(list, j.record())
			j.dirty = false
		}
	}
	return list
}

// toSave reports whether the spool lacks something. What samples found of a step is not kept there: a gnoded that was
// started anew goes on from what the kernel has counted.
func (j *sampled) toSave() bool { return j.dirty && j.key.step == stepBatch }

func (j *sampled) record() *sampledUse {
	use := j.use
	use.GPUs = slices.Clone(j.use.GPUs)
	return &sampledUse{Job: j.key.job.Job, Attempt: j.key.job.Attempt, Use: &use, OwnPeakKB: j.own.peakKB,
		OwnRSSKB: j.own.rssKB}
}

// groupOf gives the control group of a sampled attempt or step; nil if there is none, or if it could not be read.
func (s *sampler) groupOf(key sampleKey) *cgroup.Group {
	group, err := s.groups.of(key.job)
	if key.step != stepBatch {
		group, err = s.groups.ofStep(key.job, key.step)
	}
	if err != nil {
		return nil
	}
	return group
}

// sample takes one sample of a job. If the group is gone, the job is just ending.
func (s *sampler) sample(j *sampled) {
	if !s.groups.root.Can().Track {
		s.sampleTree(j)
		return
	}
	m := s.meterOf(j)
	if m == nil {
		return
	}
	if j.meter == nil {
		defer func() { _ = m.Close() }() // only read from
	}
	var c cgroup.Counters
	if err := m.Read(&c, &s.buf); err != nil {
		s.complain(j, err)
		return
	}
	pids, err := m.Procs(s.reader.PIDs[:0], maxPids, &s.buf)
	s.reader.PIDs = pids[:0]
	if err != nil {
		s.complain(j, err)
		return
	}
	u := &j.use
	u.UserMS, u.SysMS = max(u.UserMS, c.UserCPU.Milliseconds()), max(u.SysMS, c.SysCPU.Milliseconds())
	u.PeakKB, u.RSSKB = max(u.PeakKB, c.MemBytes>>10), max(u.RSSKB, c.RSSBytes>>10)
	j.nowKB, j.memKB = c.RSSBytes>>10, c.MemBytes>>10
	u.Faults = max(u.Faults, c.Faults)
	j.hasIO = c.HasIO
	s.sampleOwn(j, &c)
	s.look(j, pids, c.HasIO)
	if c.HasIO {
		u.ReadB, u.WriteB = max(u.ReadB, c.ReadB), max(u.WriteB, c.WriteB)
	}
	u.Samples++
	j.dirty, j.at = true, s.now()
}

// meterOf gives the counters of what is sampled, nil where it can't be. The caller closes them unless they stay with j.
func (s *sampler) meterOf(j *sampled) *cgroup.Meter {
	if j.meter != nil {
		return j.meter
	}
	group := s.groupOf(j.key)
	if group == nil {
		return nil
	}
	m, err := group.Meter()
	if err != nil {
		s.complain(j, err)
		return nil
	}
	if s.open < maxOpenMeters {
		j.meter = m
		s.open++
	}
	return m
}

// look goes through the job's processes.
func (s *sampler) look(j *sampled, pids []int, ioKnown bool) {
	t := s.reader.Read(&j.procs, pids, !ioKnown)
	u := &j.use
	u.Procs = max(u.Procs, int32(len(pids)))
	u.VMKB = max(u.VMKB, t.VMKB)
	if !s.groups.root.Can().Memory { // no counter: the sum over the processes is what there is
		u.RSSKB, j.nowKB, j.memKB = max(u.RSSKB, t.RSSKB), t.RSSKB, t.RSSKB
		u.PeakKB = max(u.PeakKB, t.RSSKB)
	}
	if !ioKnown {
		u.ReadB, u.WriteB = max(u.ReadB, j.procs.ReadB), max(u.WriteB, j.procs.WriteB)
	}
}

func (s *sampler) complain(j *sampled, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // it is just ending
	}
	s.log.Debug("a job was not sampled", "job", j.key.job.Job, "attempt", j.key.job.Attempt, "step", j.key.step,
		"err", err)
}

func (s *sampler) procsOf(j *sampled) []int {
	if !s.groups.root.Can().Track {
		s.tree.Look(&s.reader, s.now())
		return s.tree.Below(j.heads)
	}
	group := s.groupOf(j.key)
	if group == nil {
		return nil
	}
	list, err := group.Procs()
	if err != nil {
		return nil // it has just been removed
	}
	return list
}

// live takes a sample of an attempt and its steps now and gives their usage and processes; nothing if the attempt does
// not run here.
func (s *sampler) live(key proto.Attempt) []proto.StatOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []proto.StatOf
	for of, j := range s.jobs {
		if of.job != key || proto.IsAside(of.step) {
			continue
		}
		s.sample(j)
		if group := s.groupOf(of); group != nil {
			// What the kernel keeps; a group that is just being removed has been sampled.
			if u, err := group.Usage(); err == nil {
				j.use.PeakKB = max(j.use.PeakKB, u.MemPeakBytes>>10)
				j.use.OOMKills = int32(u.OOMKills)
			}
		}
		stat := proto.StatOf{Job: key.Job, Attempt: key.Attempt, Step: of.step, Use: j.record().Use,
			Tasks: slices.Clone(j.tasks)}
		if of.step == stepBatch {
			stat.Step = proto.StepBatch
			s.showOwn(j, stat.Use)
		}
		procs := s.procsOf(j)
		for _, pid := range procs[:min(len(procs), maxPids)] {
			stat.Pids = append(stat.Pids, int32(pid))
		}
		slices.Sort(stat.Pids)
		list = append(list, stat)
	}
	return list
}

// sampleTree takes one sample of a job that has no group.
func (s *sampler) sampleTree(j *sampled) {
	s.tree.Look(&s.reader, s.now())
	mine := s.tree.Of(j.heads)
	if len(mine) == 0 {
		return // it has just ended
	}
	slices.SortFunc(mine, func(a, b procs.Proc) int { return a.PID - b.PID })
	pids := s.reader.PIDs[:0]
	var user, sys int64
	for _, p := range mine {
		pids = append(pids, p.PID)
		user, sys = user+p.UserMS, sys+p.SysMS
	}
	s.reader.PIDs = pids[:0]
	u := &j.use
	u.UserMS, u.SysMS = max(u.UserMS, user), max(u.SysMS, sys)
	s.look(j, pids, false)
	u.Samples++
	j.dirty, j.at = true, s.now()
}

// stepsHere lists the steps that have tasks here, and the jobs' scripts, in order.
func (s *sampler) stepsHere() (list []proto.StepHere) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.jobs {
		switch {
		case proto.IsAside(key.step):
		case key.step == stepBatch:
			list = append(list, proto.StepHere{Job: key.job.Job, Step: proto.StepBatch})
		default:
			list = append(list, proto.StepHere{Job: key.job.Job, Step: key.step})
		}
	}
	slices.SortFunc(list, func(a, b proto.StepHere) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Step, b.Step))
	})
	return list
}
