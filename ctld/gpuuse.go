package ctld

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// gpuuse.go is what follows from the readings of GPUs: the cost of each one, for GpuSelectPolicy, and GpuIdlePolicy, by
// which jobs whose whole GPUs are all idle are warned, and then cancelled. Only the leader has readings, and only the
// leader plans.
//
// It measures idle time by the GPU readings of each heartbeat. A GPU without a process is idle too. GPUs whose driver
// gives no reading, and shares of GPUs, count as in use, and a new leader starts counting from 0: no job is cancelled
// on a guess.

// idlePrune is how often jobs that have ended are forgotten.
const idlePrune = time.Minute

type idleWatch struct {
	mu     sync.Mutex
	jobs   map[model.JobID]*idleJob // running jobs with GPUs
	pruned time.Time
	mails  chan struct{} // a slot for each mail that is being sent
}

func newIdleWatch() idleWatch { return idleWatch{mails: make(chan struct{}, mailers)} }

// idleJob says since when all GPUs of a job have been idle.
type idleJob struct {
	attempt uint32
	since   time.Time
	last    time.Time            // last heartbeat of any of its nodes
	heard   map[string]time.Time // last heartbeat of each node on which it has GPUs
	warned  bool
}

// hearUse handles a node's GPU readings.
func (c *Controller) hearUse(ctx context.Context, node string, readings []proto.UnitReading) {
	v := c.machine.View()
	n := v.Node(node)
	if n == nil || len(n.Jobs) == 0 || !watchesIdle(v.Config()) {
		return
	}
	now := time.Now()
	for _, id := range n.Jobs {
		j := v.Job(id)
		if j == nil || j.State != model.Running || j.Run == nil || j.Run.Launched == 0 {
			continue
		}
		policy := idlePolicy(v, j.Run.Partition)
		if policy == (model.GPUIdle{}) || j.Spec.Extra().NeverIdle {
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			if na := &j.Run.Alloc.Nodes[i]; na.Node == node && holdsGPUs(na) {
				idle, warn := c.idle.note(j, node, busyGPUs(na, readings) || slices.Contains(n.Asleep, id), now, policy)
				c.onIdle(ctx, j, idle, warn, policy)
			}
		}
	}
	c.idle.prune(v, now)
}

// note gives how long all GPUs of the job have been idle, and whether to warn now.
func (w *idleWatch) note(j *model.Job, node string, busy bool, now time.Time, policy model.GPUIdle) (idle time.Duration,
	warn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.jobs[j.ID]
	if x == nil || x.attempt != j.Attempt {
		if w.jobs == nil {
			w.jobs = map[model.JobID]*idleJob{}
		}
		x = &idleJob{attempt: j.Attempt, since: now, heard: map[string]time.Time{}}
		w.jobs[j.ID] = x
	}
	x.heard[node], x.last = now, now
	if busy {
		x.since, x.warned = now, false
	}
	for i := range j.Run.Alloc.Nodes { // a node without recent heartbeats may be busy
		if na := &j.Run.Alloc.Nodes[i]; holdsGPUs(na) && now.Sub(x.heard[na.Node]) > idlePrune {
			return 0, false
		}
	}
	idle = now.Sub(x.since)
	if policy.WarnS > 0 && !x.warned && idle >= time.Duration(policy.WarnS)*time.Second {
		x.warned, warn = true, true
	}
	return idle, warn
}

// onIdle warns or cancels an idle job by the policy.
func (c *Controller) onIdle(ctx context.Context, j *model.Job, idle time.Duration, warn bool, policy model.GPUIdle) {
	node := j.Run.Alloc.Nodes[0].Node
	text := "none of its GPUs has done anything for " + walltime.Elapsed(int64(idle/time.Second)) + " (GpuIdlePolicy)"
	switch {
	case policy.CancelS > 0 && idle >= time.Duration(policy.CancelS)*time.Second:
		c.log.Info("a job with idle GPUs is cancelled", "job", j.ID, "user", j.Spec.User, "why", text)
		if _, err := c.propose(ctx,
			&state.Stop{Targets: []model.JobRef{j.Ref()}, Event: model.EvCancel,
				Why: text}); err != nil && ctx.Err() == nil {
			c.log.Warn("a job with idle GPUs could not be cancelled; it is tried again", "job", j.ID, "err", err)
		}
	case warn:
		if policy.CancelS > 0 {
			text += "; it is cancelled when that has been so for " + walltime.Elapsed(policy.CancelS)
		}
		c.log.Info("a job is warned of its idle GPUs", "job", j.ID, "user", j.Spec.User, "why", text)
		c.nodes.stop(node, &proto.Stop{Job: j.ID, Attempt: j.Attempt, Tell: true,
			Line: fmt.Sprintf("gbatch: warning: job %d: %s", j.ID, text)})
		c.mailIdle(ctx, j, text, policy)
	}
}

// mailIdle mails the warning if the user asked for mail about failures, or if the policy always sends it.
func (c *Controller) mailIdle(ctx context.Context, j *model.Job, text string, policy model.GPUIdle) {
	v := c.machine.View()
	wish := j.Spec.Mail()
	if v.Config().Params.MailProg == "" || !policy.Mail && (wish == nil || wish.Types&model.MailFail == 0) {
		return
	}
	told := *j
	if wish == nil {
		sp, more := *j.Spec, j.Spec.Extra()
		more.Mail = &model.MailWish{Types: model.MailFail}
		sp.More = &more
		if err := addressMail(v, &sp); err != nil {
			c.log.Warn("a warning of idle GPUs was not mailed", "job", j.ID, "err", err)
			return
		}
		told.Spec = &sp
	}
	select {
	case c.idle.mails <- struct{}{}:
	default:
		c.log.Warn("a warning of idle GPUs was not mailed: too many mails are being sent", "job", j.ID)
		return
	}
	go func() { // MailProg has a time limit
		defer func() { <-c.idle.mails }()
		subject := fmt.Sprintf("Slurm Job_id=%d Name=%s GPUs idle", j.ID, plain.Line(j.Spec.Name))
		c.runMailProg(ctx, v, &told, subject, []string{"SLURM_JOB_MAIL_TYPE=GPUs idle", "SLURM_JOB_STATE=" + stateWord(j)},
			text+"\n")
	}()
}

// idleFor gives how long the GPUs of a running job had been idle at its nodes' last heartbeats, seconds; 0 if they are
// busy or not watched.
func (w *idleWatch) idleFor(j *model.Job) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.jobs[j.ID]; x != nil && x.attempt == j.Attempt {
		return int64(x.last.Sub(x.since) / time.Second)
	}
	return 0
}

// prune forgets jobs that have ended.
func (w *idleWatch) prune(v *state.View, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.pruned) < idlePrune {
		return
	}
	w.pruned = now
	for id, x := range w.jobs {
		if j := v.Job(id); j == nil || j.Attempt != x.attempt || j.State != model.Running {
			delete(w.jobs, id)
		}
	}
}

// watchesIdle reports whether the cluster or any partition has a GpuIdlePolicy.
func watchesIdle(cfg *model.Config) bool {
	if cfg.Params.GPUIdle != (model.GPUIdle{}) {
		return true
	}
	for _, p := range cfg.Partitions {
		if p.GPUIdle != nil && *p.GPUIdle != (model.GPUIdle{}) {
			return true
		}
	}
	return false
}

func idlePolicy(v *state.View, part string) model.GPUIdle {
	if p := v.Partition(part); p != nil && p.GPUIdle != nil {
		return *p.GPUIdle
	}
	return v.Config().Params.GPUIdle
}

// holdsGPUs reports whether a job has whole GPUs, or instances, of a node.
func holdsGPUs(na *model.NodeAlloc) bool {
	for i := range na.Gres {
		if g := &na.Gres[i]; g.Share == nil && (g.Name == model.GPUName || g.Name == "mig") && !g.Index.Empty() {
			return true
		}
	}
	return false
}

// busyGPUs reports whether one of the GPUs is in use or has no reading.
func busyGPUs(na *model.NodeAlloc, readings []proto.UnitReading) bool {
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Share != nil {
			return true
		}
		if g.Name != model.GPUName && g.Name != "mig" {
			continue
		}
		quiet := 0
		for k := range readings {
			if r := &readings[k]; r.Name == g.Name && r.UtilPct == 0 && !r.Lost && g.Index.Has(int(r.Index)) {
				quiet++
			}
		}
		if quiet < g.Index.Count() {
			return true
		}
	}
	return false
}

// idleFull is the idle time after which an idle GPU costs least, seconds.
const idleFull = 3600

// idleUnits has the moments since which a node's units have been idle. The session's mu guards it.
type idleUnits map[proto.UnitHolder]time.Time

// note updates it from a heartbeat's readings.
func (u idleUnits) note(readings []proto.UnitReading, now time.Time) {
	for i := range readings {
		r := &readings[i]
		key := proto.UnitHolder{Name: r.Name, Index: r.Index}
		switch _, idle := u[key]; {
		case r.UtilPct != 0:
			delete(u, key)
		case !idle && len(u) < proto.MaxUnits:
			u[key] = now
		}
	}
}

// gpuCost gives a function for the costs of a node's GPUs by number; nil if there are no readings.
func (c *Controller) gpuCost(how model.GPUSelect) func(node string) []int32 {
	return func(node string) []int32 {
		s := c.nodes.session(node)
		if s == nil {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []int32
		for i := range s.beat.Readings {
			r := &s.beat.Readings[i]
			if r.Name != model.GPUName || r.Index < 0 || r.Index >= proto.MaxUnits {
				continue
			}
			for int(r.Index) >= len(out) {
				out = append(out, 0)
			}
			out[r.Index] = unitCost(r, s.idle[proto.UnitHolder{Name: r.Name, Index: r.Index}], how, time.Now())
		}
		return out
	}
}

// unitCost gives the cost of a reading. A value that is not known counts half.
func unitCost(r *proto.UnitReading, idle time.Time, how model.GPUSelect, now time.Time) int32 {
	percent := func(n, of int64) int32 {
		if n < 0 || of <= 0 {
			return 50
		}
		return int32(min(100, n*100/of))
	}
	busy := int32(100)
	if !idle.IsZero() {
		busy -= percent(int64(now.Sub(idle)/time.Second), idleFull)
	}
	return how.Mem*percent(r.MemUsedMiB, r.MemTotalMiB) + how.Util*percent(int64(r.UtilPct), 100) +
		how.Temp*percent(int64(r.TempC), 100) + how.Idle*busy
}

// loadedNow gives a node with those models that its GPUs are still taken to have loaded.
func loadedNow(n *model.Node, v *state.View, now model.Time) *model.Node {
	if len(n.Tags) == 0 {
		return n
	}
	out := *n
	out.Tags = n.Loaded(now, &v.Config().Params.Cache)
	return &out
}
