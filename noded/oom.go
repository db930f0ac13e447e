package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
	"gbatch/noded/asuser"
	"gbatch/noded/gpuoom"
	"gbatch/noded/procs"
	"gbatch/noded/shim"
)

// oom.go explains the end of a job whose processes the kernel killed for lack of memory: the limit, the peak, the
// killed processes, and what to ask for next time, as far as known. The kernel counts its kills, and gnoded reads the
// kernel's log, if it may, when a job with such kills has ended. Only steps that end at their first kill
// (--oom-kill-step) are watched. A lack of GPU memory is told from the output of a job that has failed: package gpuoom.

const (
	maxOOMKills  = 256 // kills of the node that are remembered
	maxOOMNamed  = 4   // processes named in one sentence
	maxKmsgReads = 1 << 16

	oomPrefix = "gbatch: " // of the line in the job's standard error

	oomLook = 100 * time.Millisecond // between two looks at the kills of a step with --oom-kill-step
)

// oomKill is one process that the kernel killed.
type oomKill struct {
	group  string // where it was in the memory hierarchy, as the kernel says
	pid    int
	name   string
	rssKB  int64
	global bool // the node was out of memory, not the group
}

// oomLog reads the kernel's log as far as it has not been read.
type oomLog struct {
	mu    sync.Mutex
	fd    int // 0: not opened yet, -1: it can't be read here
	kills []oomKill
	buf   [8192]byte
}

// of gives the kills in a group, such as "gbatch/n1-0a/job_17.1", and below.
func (o *oomLog) of(group string) []oomKill {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd == 0 {
		fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			fd = -1 // not for us; samples have to do
		}
		o.fd = fd
	}
	o.read()
	var list []oomKill
	for _, k := range o.kills {
		if at := strings.Index(k.group+"/", "/"+group+"/"); at >= 0 {
			list = append(list, k)
		}
	}
	return list
}

func (o *oomLog) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	fd := o.fd
	o.fd = -1
	if fd <= 0 {
		return nil
	}
	return unix.Close(fd)
}

// read takes what has come since the last time, a record of the log at each call.
func (o *oomLog) read() {
	for range maxKmsgReads {
		if o.fd <= 0 {
			return
		}
		n, err := unix.Read(o.fd, o.buf[:])
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE): // EPIPE: the log has gone on over what was next
			continue
		case err != nil || n <= 0:
			return // EAGAIN: all has been read
		}
		o.take(o.buf[:n])
	}
}

// take looks for the two lines that the kernel writes about a kill. The second has the process's memory.
func (o *oomLog) take(record []byte) {
	_, text, ok := bytes.Cut(record, []byte(";"))
	if !ok {
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if list, ok := strings.CutPrefix(line, "oom-kill:"); ok {
		k := oomKill{}
		for word := range strings.SplitSeq(list, ",") {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "constraint":
				k.global = value != "CONSTRAINT_MEMCG"
			case "task_memcg":
				k.group = value
			case "task":
				k.name = value
			case "pid":
				k.pid, _ = strconv.Atoi(value) // 0 names nobody
			}
		}
		if len(o.kills) == maxOOMKills {
			o.kills = append(o.kills[:0], o.kills[1:]...)
		}
		o.kills = append(o.kills, k)
		return
	}
	_, killed, ok := strings.Cut(line, "Killed process ")
	if !ok || len(o.kills) == 0 {
		return
	}
	digits, rest, _ := strings.Cut(killed, " ")
	last := &o.kills[len(o.kills)-1]
	if pid, err := strconv.Atoi(digits); err != nil || pid != last.pid {
		return
	}
	for _, label := range []string{"anon-rss:", "file-rss:", "shmem-rss:"} {
		if _, v, ok := strings.Cut(rest, label); ok {
			last.rssKB += procs.Digits([]byte(v))
		}
	}
}

// oomStory is the data about a job that ran out of memory.
type oomStory struct {
	step    string // "12.batch"
	node    string
	limitKB int64 // 0: none, or unknown
	peakKB  int64
	kills   []oomKill
	bigPID  int // the largest process of all samples, if the log has nothing
	bigName string
	bigKB   int64
	option  string // what the job asked for its memory with
	units   int64  // how many of that option's units it has on this node
	memMiB  int64  // memory that it got here; 0: no limit of its own
}

// sentence gives the explanation in one line.
func (o *oomStory) sentence() string {
	var b strings.Builder
	fmt.Fprintf(&b, oomPrefix+"step %s node %s: ", o.step, o.node)
	global := len(o.kills) > 0
	for _, k := range o.kills {
		global = global && k.global
	}
	var said []string
	if o.limitKB > 0 {
		said = append(said, "limit "+sizeText(o.limitKB))
	}
	if o.peakKB > 0 {
		said = append(said, "peak "+sizeText(o.peakKB))
	}
	switch named := o.kills[:min(len(o.kills), maxOOMNamed)]; {
	case len(named) > 0:
		var who []string
		for _, k := range named {
			text := fmt.Sprintf("pid %d (%s", k.pid, k.name)
			if k.rssKB > 0 {
				text += ", rss " + sizeText(k.rssKB)
			}
			who = append(who, text+")")
		}
		if more := len(o.kills) - len(named); more > 0 {
			who = append(who, fmt.Sprintf("%d more", more))
		}
		said = append(said, "killed "+strings.Join(who, " and "))
	case o.bigKB > 0:
		said = append(said, fmt.Sprintf("the largest process in samples was pid %d (%s, rss %s)", o.bigPID, o.bigName,
			sizeText(o.bigKB)))
	}
	b.WriteString(strings.Join(said, ", "))
	switch {
	case global:
		b.WriteString("; the node itself had no memory left")
	case o.memMiB > 0 && o.option != "":
		b.WriteString("; try " + o.option + "=" + walltime.FormatMem(moreMemory((o.memMiB+o.units-1)/max(o.units, 1))))
	}
	return b.String()
}

// moreMemory gives the next amount to try, MiB: a quarter more, in round numbers.
func moreMemory(mib int64) int64 {
	step := int64(10)
	switch {
	case mib >= 4<<10:
		step = 1 << 10
	case mib >= 1<<10:
		step = 256
	case mib >= 100:
		step = 50
	}
	return (mib*5/4 + step - 1) / step * step
}

// sizeText writes KiB as people would: 812K, 400M, 3.70G.
func sizeText(kib int64) string {
	if kib < 1<<10 {
		return walltime.FormatExact(kib, 'K')
	}
	return walltime.FormatRounded((kib + 512) >> 10)
}

// memoryOption gives the option with which a job asked for memory, and the number of CPUs or GPUs of this node that
// count for it.
func memoryOption(s *model.Spec, use *model.NodeUsage) (option string, units int32) {
	switch {
	case s.MemPerCPU > 0:
		return "--mem-per-cpu", max(use.CPUs, 1)
	case s.Extra().MemPerGPU > 0:
		return "--mem-per-gpu", max(int32(len(use.GPUs)), 1)
	}
	return "--mem", 1
}

// oomSentence gives the sentence about a job that ran out of memory.
func (n *Noded) oomSentence(c *clearing, use usage, seen *sampled) string {
	o := oomStory{step: fmt.Sprintf("%d.batch", c.key.Job), node: n.opts.Name, limitKB: use.limitKB, peakKB: use.peakKB,
		kills: n.oom.of(n.groups.path(c.key)), option: c.rec.MemOpt, units: int64(c.rec.MemUnits)}
	if c.rec.Use != nil {
		o.memMiB = c.rec.Use.MemMiB
	}
	o.sawIn(seen)
	return o.sentence()
}

// sawIn takes over what samples found, where there were any.
func (o *oomStory) sawIn(seen *sampled) {
	if seen != nil {
		o.bigPID, o.bigName, o.bigKB = seen.procs.BigPID, seen.procs.BigName, seen.procs.BigKB
	}
}

// watchOOM calls kill when the kernel has killed a process for lack of memory in a step or, with stepBatch, of a job's
// script. It looks at the counter, which both versions of control groups have, also after a restart of gnoded; v2's
// memory.oom.group would leave a step's other nodes alive, and take the steps with the script. It ends with the group.
func (n *Noded) watchOOM(key sampleKey, kill func(context.Context)) {
	time.AfterFunc(oomLook, func() {
		n.stops.Do(func(ctx context.Context) {
			group := n.sampler.groupOf(key)
			if group == nil || ctx.Err() != nil {
				return
			}
			switch kills, err := group.OwnOOMKills(); {
			case err != nil: // it has just been removed
			case kills > 0:
				kill(ctx)
			default:
				n.watchOOM(key, kill)
			}
		})
	})
}

// watchScript ends a job's script at its first kill, if the job wants that.
func (l *loop) watchScript(a *attempt) {
	if a.rec.Order == nil || !a.rec.Order.Spec.Extra().OOMKill {
		return
	}
	key := a.key
	l.n.watchOOM(wholeJob(key), func(ctx context.Context) { l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree) })
}

// watchStep ends a step on all its nodes at its first kill, if it or its job wants that.
func (l *loop) watchStep(s *step) {
	if !s.rec.OOMKill || s.alert {
		return
	}
	s.alert = true
	m := msgStepOOM{s.job.key, s.id}
	l.n.watchOOM(s.sampleKey(), func(context.Context) { l.n.inbox.post(m) })
}

// onStepOOM ends a step's tasks here, and at once on its other nodes if this node manages it; otherwise the manager
// hears of the kill with the end of this part.
func (l *loop) onStepOOM(m msgStepOOM) {
	if s := l.step(m.key, m.id); s != nil {
		l.stepHappens(s, sevKill, stepNews{})
	}
}

// gpuOOM looks whether a job that has failed says in its output that a GPU had too little memory. If so, it gives the
// sentence about it.
func (n *Noded) gpuOOM(c *clearing, x *model.Exit) string {
	rec := c.rec
	if rec == nil || x.Status() == 0 || x.Unknown || x.OOM || x.NoStart {
		return ""
	}
	if c.gpuOOM != "" || rec.Use == nil || len(rec.Use.GPUs) == 0 {
		return c.gpuOOM
	}
	files := []string{rec.StdErr}
	if o := rec.Order; o != nil && !n.appends(o.Spec) { // with it, nothing tells what earlier runs wrote from this one's
		if _, out, _ := n.outputs(o); out != rec.StdErr {
			files = append(files, out)
		}
	}
	looks := make([]taskOutput, 0, len(files))
	for _, path := range files {
		looks = append(looks, taskOutput{path: path})
	}
	if said := n.gpuSaid(rec, looks); said != "" {
		return gpuStory("the job's", said, x.Use.Node(n.opts.Name))
	}
	return ""
}

// gpuStory says what is known of a lack of GPU memory: of the job's, or the step's.
func gpuStory(whose, said string, use *model.NodeUsage) string {
	text := "a GPU had too little memory: " + whose + " output says " + said
	if use == nil {
		return text
	}
	for _, g := range use.GPUs {
		if used := max(g.OwnMaxMiB, 0); used > 0 && g.MemMiB > 0 {
			text += fmt.Sprintf("; it used %s of %s of GPU %d in samples", sizeText(used<<10), sizeText(g.MemMiB<<10), g.Index)
		}
	}
	return text
}

// taskOutput is a file that a task with GPUs, or a job, writes to.
type taskOutput struct {
	rank int32
	path string
	from int64 // what stands before it was there when the task began
}

// maxLooks is how many files of failed tasks are looked at: a step's tasks say the same, or share a file.
const maxLooks = 8

// gpuSaid looks for a lack of GPU memory at the end of files of a job's user. "": nothing is said of it.
func (n *Noded) gpuSaid(rec *launched, looks []taskOutput) string {
	for _, f := range looks {
		if f.path == "" {
			continue
		}
		tail, err := n.asUser(rec, func() ([]byte, error) { return tailOf(f.path, f.from, gpuoom.TailBytes) })
		if err != nil {
			n.log.Debug("the end of a failed job's output was not read", "job", rec.Job, "file", f.path, "err", err)
			if errors.Is(err, asuser.ErrHangs) {
				break // so do the others, as a rule
			}
			continue
		}
		if said := gpuoom.Said(tail); said != "" {
			return said
		}
	}
	return ""
}

// hasGPU reports whether a step has GPUs, or parts of them, on a node.
func hasGPU(gres []model.GresAlloc) bool {
	return slices.ContainsFunc(gres, func(g model.GresAlloc) bool {
		return g.Name == model.GPUName || g.Name == model.MIGName || model.IsShare(g.Name)
	})
}

// noteOutputs keeps the regular files that a task writes to. A file to which others append says nothing of this task.
func (n *Noded) noteOutputs(p *stepPlan, o *shim.Launch) {
	for i, path := range [...]string{1: o.Stdout, 2: o.Stderr} {
		f := taskOutput{rank: o.Key.Task, path: path}
		switch passed := o.Passed[i]; {
		case i == 0, path == "" && passed == nil, path != "" && p.files[i].Append:
			continue
		case path == "":
			st, err := n.statWithin(p.facts.Spec.UID, passed)
			if err != nil || !st.Mode().IsRegular() {
				continue
			}
			name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", passed.Fd()))
			if err != nil {
				continue
			}
			f.path, f.from = name, st.Size()
		}
		p.writes = append(p.writes, f)
	}
}

// failedAt reports whether a task of this node has failed by itself.
func (s *step) failedAt(i int) bool {
	ev := s.tasks[i].ended
	return ev != nil && ev.Kind == shim.Exited && !ev.Unknown &&
		(ev.Code != 0 || ev.Signal != 0 && s.cause == model.NoStop)
}

func (s *step) someFailed() bool {
	for i := range s.tasks {
		if s.failedAt(i) {
			return true
		}
	}
	return false
}

// failedOutputs gives the files of the tasks here that have failed, each once.
func (s *step) failedOutputs() (looks []taskOutput) {
	for i := range s.tasks {
		if !s.failedAt(i) {
			continue
		}
		for _, f := range s.outputs {
			same := func(x taskOutput) bool { return x.path == f.path }
			if f.rank == s.rec.Nodes[s.here].Ranks[i] && len(looks) < maxLooks && !slices.ContainsFunc(looks, same) {
				looks = append(looks, f)
			}
		}
	}
	return looks
}

// noteFailed keeps for the end of the job how a step failed, and whether the last one that did ran out of GPU memory,
// which it tells the step's command.
func (l *loop) noteFailed(s *step, x *model.Exit) {
	if s.failed = x.Status() != 0; s.failed && !x.Unknown && s.id >= 0 {
		s.status = x.Status()
	}
	if !s.failed || !x.GPUOOM {
		return
	}
	s.gpuOOM = fmt.Sprintf("step %d: %s", s.id, x.Text)
	l.log.Info("a step had too little GPU memory", "job", s.rec.Job, "step", s.id, "why", x.Text)
	s.send(l, &proto.StepEvent{Kind: proto.StepLine,
		Text: fmt.Sprintf("%s StepId=%s: %s; %s", gpuoom.Note, s.name(), x.Text, l.n.moreGPUMem(s))})
}

// moreGPUMem says what a user can do about too little GPU memory.
func (n *Noded) moreGPUMem(s *step) string {
	had := int64(0)
	note := func(mib int64) {
		if mib > 0 && (had == 0 || mib < had) {
			had = mib
		}
	}
	w := n.def.Load()
	var gres []model.GresAlloc
	if s.here >= 0 {
		gres = slices.Clone(s.rec.Nodes[s.here].Gres)
	}
	if all, at := s.job.rec.Order.Alloc, s.job.rec.Order.Alloc.Place(n.opts.Name); at >= 0 { // a step's part has no Share
		gres = append(gres, all.Nodes[at].Gres...)
	}
	for i := range gres {
		switch g := &gres[i]; {
		case g.Share != nil:
			note(g.Share.MemMiB)
		case g.Name == model.GPUName && w != nil && w.def != nil:
			g.Index.Each(func(u int) bool {
				if d := w.def.GPUDef(int32(u)); d != nil {
					note(d.MemMiB)
				}
				return true
			})
		}
	}
	switch {
	case s.job.rec.Order.Spec.Extra().OOMRequeue:
		return "the job is requeued with more if it fails now (--requeue-on-oom)"
	case had > 0:
		return fmt.Sprintf("it had %dM: ask for more with --gpu-mem=%dM, or let the program use less", had,
			model.MoreGPUMem(had))
	}
	return "ask for more with --gpu-mem, or let the program use less"
}
