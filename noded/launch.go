package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gbatch/internal/blob"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/outpath"
	"gbatch/internal/proto"
	"gbatch/noded/pool"
	"gbatch/noded/shim"
)

// launch.go takes a Launch from the leader to the order that gshim carries out.
//
// The loop decides whether the attempt is new and remembers it; a worker then makes what it needs on this machine
// (script, cgroup, environment) and hands the finished order back; the loop sends it. A known attempt is never started
// again: the answer is its present state.

const (
	// envCache is how many unpacked environments are kept: the tasks of an array share one.
	envCache = 16
	// envCacheBytes is the largest that is worth keeping, bytes.
	envCacheBytes = 256 << 10
)

// onLaunch accepts an attempt, or reports a known one again.
func (l *loop) onLaunch(launch *proto.Launch) error {
	key := proto.Attempt{Job: launch.Job, Attempt: launch.Attempt}
	e := evLaunch
	if launch.Prepare {
		e = evPrepare
	}
	a := l.attempts[key]
	since := uint32(0)
	if launch.Alloc != nil && launch.Node >= 0 && int(launch.Node) < len(launch.Alloc.Nodes) {
		since = launch.Since()
	}
	switch {
	case a != nil && a.outdated(since):
		return nil
	case a != nil && a.phase == over && a.will == wanted && since > a.since:
		if err := l.replaced(a); err != nil {
			return err
		}
	case a != nil:
		l.n.peers.learn(launch)
		return l.happens(a, e, news{launch: launch})
	}
	l.n.peers.learn(launch)
	delete(l.foreign, key) // it is a job of this cluster, even if another instance used its number
	if last, gone := l.gone.last(key); gone && since <= last {
		l.log.Info("a launch came late and is ignored", "job", key.Job, "attempt", key.Attempt)
		return nil
	}
	if err := l.n.mayLaunch(launch); err != nil {
		return l.refuseLaunch(launch, err)
	}
	if l.spool.broken != nil {
		return l.refuseLaunch(launch, taken{l.spool.broken})
	}
	if len(l.attempts) >= maxAttempts {
		return l.refuseLaunch(launch,
			fmt.Errorf("node %s holds %d jobs that run or whose end the controller has not acknowledged, and takes no more",
				l.n.opts.Name, len(l.attempts)))
	}
	s := launch.Spec
	rec := &launched{Job: key.Job, Attempt: key.Attempt, UID: s.UID, GID: s.GID, Groups: s.Groups, At: l.stamp(),
		Order: orderFacts(launch), Since: since}
	_, _, rec.StdErr = l.n.outputs(launch)
	rec.Use = l.n.sampler.shape(launch)
	rec.MemOpt, rec.MemUnits = memoryOption(s, rec.Use)
	rec.Facts = l.n.factsOf(launch)
	if err := l.spool.add(recLaunch, rec, true); err != nil {
		return l.refuseLaunch(launch, fmt.Errorf("node %s can't keep the job's data: its arguments, paths and other texts "+
			"are too long: %w; pass long data in files", l.n.opts.Name, err))
	}
	a = &attempt{key: key, rec: rec, phase: accepted, since: since}
	l.attempts[key] = a
	if rec.Use != nil {
		l.n.sampler.give(rec.Use)
	}
	return l.happens(a, e, news{launch: launch})
}

// maxFactNodes bounds the nodes of a job in the spool, whose records have a limit. Jobs with more nodes have no steps.
const maxFactNodes = 4096

// maxFactAddrs bounds the nodes' addresses there.
const maxFactAddrs = 512

// orderFacts gives the data of a job that its steps need; nil for a job with too many nodes.
func orderFacts(l *proto.Launch) *proto.Launch {
	if len(l.Alloc.Nodes) > maxFactNodes {
		return nil
	}
	f := *l
	f.Script, f.Env, f.Others = model.Blob{}, model.Blob{}, nil
	if len(f.Addrs) > maxFactAddrs {
		f.Addrs = nil // the controller is asked
	}
	return &f
}

// prepare gives an accepted attempt to a worker. Its order can only follow in a later batch, when this one is on disk.
func (l *loop) prepare(a *attempt, launch *proto.Launch) {
	a.launch, a.upTo = launch, running
	if launch.Prepare {
		a.upTo = ready
	}
	had, ordered := a.script, a.rec.Ordered
	reuse := ordered || stage(a.rec.Stage) != stageNone
	work := func(ctx context.Context) {
		defer pool.Or(func(err error) { l.n.inbox.post(msgPrepared{key: a.key, err: err}) })
		if ctx.Err() != nil && !ordered {
			l.n.inbox.post(msgPrepared{key: a.key, script: had, err: jobsFault{errLeft}})
			return
		}
		launch, err := l.n.asKnownHere(ctx, launch)
		if err != nil && !ordered { // with an order that was sent, it runs already as it was known then
			l.n.inbox.post(msgPrepared{key: a.key, script: had, err: err})
			return
		}
		order, script, err := l.n.makeOrder(ctx, launch, had, reuse)
		l.n.inbox.post(msgPrepared{key: a.key, order: order, script: script, err: err})
	}
	if wishOfJob(launch.Spec) == nil && !l.n.helps(launch) {
		l.soon(func() { l.n.workers.Do(work) })
		return
	}
	l.soon(func() {
		leave := l.n.imports.DoFor(launch.Spec.UID, eachImports, work)
		switch {
		case ordered: // it may run, so it is made as it was
		case a.phase == preparing:
			a.leave = leave
		default:
			leave()
		}
	})
}

// errLeft is of a launch that was given up before its turn among its user's came.
var errLeft = errors.New("it was ended before its turn came")

// refuseLaunch reports that an attempt was refused.
func (l *loop) refuseLaunch(launch *proto.Launch, why error) error {
	key := proto.Attempt{Job: launch.Job, Attempt: launch.Attempt}
	r := &proto.Report{Kind: proto.ReportLaunchFailed, Text: why.Error(), Taken: errors.As(why, new(taken))}
	if launch.Alloc != nil && launch.Node >= 0 && int(launch.Node) < len(launch.Alloc.Nodes) {
		r.Since = launch.Since()
	}
	l.log.Warn("launch refused", "job", key.Job, "attempt", key.Attempt, "why", why)
	return l.reportOnly(key, r)
}

// reportOnly makes the only report about an attempt that this node does not have. If the leader acknowledges none of
// these reports, orders beyond a limit are ignored; the leader repeats them in its next session.
func (l *loop) reportOnly(key proto.Attempt, r *proto.Report) error {
	if len(l.attempts) >= 2*maxAttempts {
		l.log.Error("too many reports wait for the controller's acknowledgement; an order is ignored", "job", key.Job,
			"attempt", key.Attempt)
		return nil
	}
	l.attempts[key] = &attempt{key: key, phase: over, since: r.Since}
	r.Job, r.Attempt = key.Job, key.Attempt
	return l.report(r)
}

// mayLaunch refuses what this node can't run at all. It is called on the loop and asks no database: asKnownHere does.
func (n *Noded) mayLaunch(l *proto.Launch) error {
	switch {
	case l.Spec == nil || l.Alloc == nil || l.Job == 0:
		return errors.New("the launch order is incomplete: it has no specification or no allocation")
	case l.Node < 0 || int(l.Node) >= len(l.Alloc.Nodes) || l.Alloc.Nodes[l.Node].Node != n.opts.Name:
		return fmt.Errorf("the launch order is not for node %s", n.opts.Name)
	case n.opts.Login:
		return fmt.Errorf("%s is a login node and runs no jobs", n.opts.Name)
	case !n.root && int(l.Spec.UID) != n.uid:
		return fmt.Errorf("gnoded on node %s runs as uid %d, without root rights: it can't run a job of uid %d (%s); run "+
			"gnoded as root for jobs of other users",
			n.opts.Name, n.uid, l.Spec.UID, l.Spec.User)
	}
	if n.root {
		if err := l.Spec.CheckUser(n.system.ifKnown()); err != nil {
			return fmt.Errorf("node %s runs no such job: %w", n.opts.Name, err)
		}
	}
	return model.CheckLimits(l.Spec.Limits)
}

// outputs gives a job's files: absolute, patterns expanded; stdin is "" for none.
func (n *Noded) outputs(l *proto.Launch) (in, out, errs string) {
	s := l.Spec
	v := outpath.Values{JobID: uint32(l.Job), JobName: s.Name, User: s.User, Node: n.opts.Name, NodeRank: int(l.Node)}
	if l.Task != model.NoTask {
		v.ArrayJob, v.Task = uint32(l.ArrayID), uint32(l.Task)
	}
	place := func(pattern string) string {
		path := outpath.Expand(pattern, v)
		if !filepath.IsAbs(path) {
			path = filepath.Join(workDir(s), path)
		}
		return path
	}
	out = s.StdOut
	switch {
	case out != "":
	case l.Task != model.NoTask:
		out = "slurm-%A_%a.out"
	default:
		out = "slurm-%j.out"
	}
	out = place(out)
	errs = out
	if s.StdErr != "" {
		errs = place(s.StdErr)
	}
	if s.StdIn != "" && s.StdIn != os.DevNull {
		in = place(s.StdIn)
	}
	if l.Het != nil && l.Het.Offset > 0 { // the user's script runs in the first component
		return "", os.DevNull, os.DevNull
	}
	return in, out, errs
}

// workDir gives the job's directory; a relative one means nothing here.
func workDir(s *model.Spec) string {
	if filepath.IsAbs(s.WorkDir) {
		return s.WorkDir
	}
	return "/"
}

// makeOrder makes the script, the cgroup and the environment of an attempt, and the order that uses them. With reuse, a
// launch of an earlier gnoded may already use them; then they stay unchanged, and had is the existing script. It runs
// on a worker. On failure it leaves nothing behind.
func (n *Noded) makeOrder(ctx context.Context, l *proto.Launch, had string, reuse bool) (order *shim.Launch,
	script string, err error) {
	if script = had; script == "" && !l.Prepare {
		if script, err = n.scripts.Take(&l.Script, l.Spec.UID, l.Spec.GID); err != nil {
			err = fmt.Errorf("write the job's script on node %s: %w", n.opts.Name, err)
			if outOfSpace(err) {
				err = taken{err}
			}
			return nil, "", err
		}
	}
	if l.Prepare {
		if err = n.gpusTaken(ctx, l); err != nil && !reuse {
			return nil, "", err
		}
		o := &shim.Launch{Limits: n.limits(l.Spec.Limits, l.Spec.OwnLimits)}
		if err = n.place(o, l, reuse); err == nil {
			_, err = n.remote(ctx, l, o, reuse)
		}
		return nil, "", err
	}
	if order, err = n.tryOrder(ctx, l, n.scripts.Path(script), reuse); err == nil || reuse {
		return order, script, err
	}
	key := proto.Attempt{Job: l.Job, Attempt: l.Attempt}
	return nil, "", errors.Join(err, n.groups.remove(key), n.helpers.Remove(helped(key)), n.dropMounts(key),
		n.scripts.Release(script))
}

func (n *Noded) tryOrder(ctx context.Context, l *proto.Launch, path string, reuse bool) (*shim.Launch, error) {
	s := l.Spec
	if el := s.Elastic(); el != nil {
		if err := n.allocs.Write(sizeOf(l, nil)); err != nil {
			return nil, fmt.Errorf("on node %s: %w", n.opts.Name, err)
		}
	}
	submitted, err := n.envs.open(&l.Env)
	if err != nil {
		return nil, fmt.Errorf("the job's environment: %w", err)
	}
	o := &shim.Launch{
		Key: shimKey(proto.Attempt{Job: l.Job, Attempt: l.Attempt}), Path: path, Argv: append([]string{path}, s.Args...),
		Dir: workDir(s), UID: s.UID, GID: s.GID, Groups: s.Groups, Umask: s.Umask & 0o777,
		AsRoot: s.UID == 0 && s.From == model.FromController, Append: n.appends(s), Nice: n.nice,
		PIDVar: "SLURM_TASK_PID",
	}
	o.Stdin, o.Stdout, o.Stderr = n.outputs(l)
	o.Limits = n.limits(s.Limits, s.OwnLimits)
	if err := n.place(o, l, reuse); err != nil {
		return nil, err
	}
	far, err := n.remote(ctx, l, o, reuse)
	if err != nil {
		return nil, err
	}
	if o.Env, err = n.environment(l, submitted, far); err != nil {
		return nil, err
	}
	o.Nice, o.Env = jobenv.Niceness(n.configured().PrioProcess, n.nice, o.UID, o.Env)
	w := wishOfJob(s)
	if w != nil {
		// A container's environment is its image's.
		o.Env = slices.DeleteFunc(o.Env, func(e string) bool { return strings.HasPrefix(e, loginName) })
		r := &room{key: proto.Attempt{Job: l.Job, Attempt: l.Attempt}, step: proto.StepBatch, spec: s, wish: w,
			gres: l.Alloc.Nodes[l.Node].Gres, space: o.Mounts, show: append(n.taskPrograms(false), path)}
		err := n.makeRoom(ctx, r)
		if err == nil {
			err = n.moveIn(o, r)
		}
		if err != nil {
			return nil, jobsFault{fmt.Errorf("on node %s: %w", n.opts.Name, err)}
		}
	}
	n.wrapProgram(o, "", "") // in the container, if there is one
	if w == nil {
		n.withLogin(o, submitted, s.UID)
	}
	if !reuse {
		if err := n.gpusTaken(ctx, l); err != nil {
			return nil, err
		}
	}
	return o, o.Check()
}

// place makes an attempt's control group and directories, and says so in an order for a process there.
func (n *Noded) place(o *shim.Launch, l *proto.Launch, reuse bool) (err error) {
	if o.Cgroup, o.CPUs, err = n.groups.create(l, reuse); err != nil {
		return fmt.Errorf("make the job's cgroup on node %s: %w", n.opts.Name, err)
	}
	if o.Mounts, err = n.ownMounts(proto.Attempt{Job: l.Job, Attempt: l.Attempt}); err != nil {
		return fmt.Errorf("on node %s: %w", n.opts.Name, err)
	}
	return nil
}

// gpusTaken looks at an attempt's GPUs once more before it begins: if somebody else has one, it is given back.
func (n *Noded) gpusTaken(ctx context.Context, l *proto.Launch) error {
	mine := gpusHeld(&l.Alloc.Nodes[l.Node])
	if len(mine) == 0 || n.gpuHealth == nil {
		return nil
	}
	if who := n.gpuHealth.Taken(n.gpus.Look(ctx), mine); who != "" {
		return taken{errors.New(who)}
	}
	return nil
}

// appends reports whether a job's output goes to the end of files that are there.
func (n *Noded) appends(s *model.Spec) bool {
	r := n.rules.Load()
	return s.Append || !s.OwnMode && r != nil && r.AppendFiles
}

// limits gives a job's or a step's resource limits for gshim. With own its user has said which are taken over; else the
// configuration does. It says too which may be above this node's own.
func (n *Noded) limits(asked []model.RLimit, own bool) []shim.Limit {
	if r := n.rules.Load(); r != nil && !own {
		asked = model.Inherited(asked, r.Uninherited)
	}
	var raise []string
	if n.opts.Config != nil {
		raise = n.opts.Config.RaiseLimits
	}
	out := make([]shim.Limit, 0, len(asked))
	for _, r := range asked {
		l := shim.Limit{Resource: int(r.Resource), Soft: r.Soft, Hard: r.Hard}
		if names := model.LimitNames(); int(r.Resource) < len(names) { // else gshim refuses it
			l.Raise = slices.Contains(raise, "ALL") || slices.Contains(raise, names[r.Resource])
		}
		out = append(out, l)
	}
	return out
}

// jobEnv gives the inputs of a job's environment from the cluster's present configuration.
func (n *Noded) jobEnv() jobenv.Node {
	e := n.env
	if e.Units != nil {
		units := *e.Units
		units.ByUUID = n.configured().GPUByUUID
		e.Units = &units
	}
	return e
}

func (n *Noded) environment(l *proto.Launch, submitted []byte, far *jobenv.Remote) ([]string, error) {
	e := n.jobEnv()
	w := n.def.Load()
	if w != nil {
		e.Cluster = w.cluster
		e.Hidden = e.Units.HiddenOn(w.def)
	}
	if far != nil {
		e.Remotely(far)
	}
	if l.Spec.Elastic() != nil {
		e.AllocFile = n.allocs.Path(proto.Attempt{Job: l.Job, Attempt: l.Attempt})
	}
	return e.Script(l, submitted)
}

// onPrepared continues an attempt when a worker has prepared it. If the attempt was given up meanwhile, everything
// prepared is removed.
func (l *loop) onPrepared(m msgPrepared) error {
	a := l.attempts[m.key]
	if a == nil || a.phase != preparing && a.phase != unmaking {
		key, script := m.key, m.script
		l.soon(func() { l.n.workers.Do(func(context.Context) { l.n.discard(key, script) }) })
		return nil
	}
	a.launch, a.script = nil, m.script
	if m.err != nil {
		return l.happens(a, evNotMade, news{text: m.err.Error(), own: errors.As(m.err, new(jobsFault)),
			taken: errors.As(m.err, new(taken))})
	}
	a.order = m.order
	if a.rec.Facts != nil {
		return l.happens(a, evProlog, news{})
	}
	return l.goOn(a)
}

// goOn moves an attempt to the phase that the leader asks for.
func (l *loop) goOn(a *attempt) error {
	if a.upTo == ready {
		return l.happens(a, evReady, news{})
	}
	return l.happens(a, evOrder, news{})
}

// discard removes what was prepared for an attempt that has ended.
func (n *Noded) discard(key proto.Attempt, script string) {
	if err := errors.Join(n.groups.remove(key), n.helpers.Remove(helped(key)), n.dropMounts(key),
		n.scripts.Release(script)); err != nil {
		n.log.Warn("the script or control group of an ended job was not removed", "job", key.Job, "attempt", key.Attempt,
			"err", err)
	}
}

// jobsFault is why a launch failed that is the job's fault, not the node's: what its user names can't be had. Such a
// job has failed; a node that counted it would go out of service for what any user may write.
type jobsFault struct{ error }

// taken is why an attempt is given back: somebody else has its GPUs, or the spool can't be written. It counts against
// neither job nor node: that the node takes no more jobs, and when it does again, is for its health.
type taken struct{ error }

// notMade ends an attempt that could not be launched.
func (l *loop) notMade(a *attempt, in *news) error {
	l.log.Warn("launch failed", "job", a.key.Job, "attempt", a.key.Attempt, "why", in.text)
	if in.own {
		return l.finish(a, &proto.Report{Kind: proto.ReportEnded, Exit: model.Exit{Code: 1, Text: in.text, NoStart: true}})
	}
	return l.finish(a, &proto.Report{Kind: proto.ReportLaunchFailed, Text: in.text, Taken: in.taken})
}

// sendOrder hands an attempt to gshim.
func (l *loop) sendOrder(a *attempt) error {
	if err := l.keep(a, recOrdered, &orderedTo{Job: a.key.Job, Attempt: a.key.Attempt, Script: a.script},
		false); err != nil {
		return err
	}
	order := a.order
	l.then(func() {
		if l.spool.broken != nil {
			l.n.inbox.post(msgEvents{notOrdered(order, l.spool.broken)})
			return
		}
		l.n.link.launch(order)
	})
	return nil
}

// lateStart kills a launch that hangs, usually because of a dead file server: after BatchStartTimeout it counts as
// failed. The spool has this before the kill, so that it stays true if gnoded is restarted meanwhile.
func (l *loop) lateStart(a *attempt) error {
	if err := l.keep(a, recLate, &lateFor{Job: a.key.Job, Attempt: a.key.Attempt}, false); err != nil {
		return err
	}
	l.log.Warn("a script has not started within BatchStartTimeout; its launch is ended", "job", a.key.Job, "attempt",
		a.key.Attempt)
	l.kill(a)
	return nil
}

// envStore unpacks environments and keeps the last few.
type envStore struct {
	mu    sync.Mutex
	plain map[string][]byte
}

func (e *envStore) open(b *model.Blob) ([]byte, error) {
	if b.Packed {
		e.mu.Lock()
		plain, ok := e.plain[b.Key]
		e.mu.Unlock()
		if ok {
			return plain, nil
		}
	}
	plain, err := blob.Open(b, proto.MaxEnvBytes)
	if err != nil || !b.Packed || b.Key == "" || len(plain) > envCacheBytes {
		return plain, err
	}
	e.mu.Lock()
	if e.plain == nil || len(e.plain) >= envCache {
		e.plain = make(map[string][]byte, envCache)
	}
	e.plain[b.Key] = plain
	e.mu.Unlock()
	return plain, nil
}
