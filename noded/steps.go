package noded

import (
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/noded/shim"
	"gbatch/noded/steplayout"
)

// steps.go is this node as the manager of its jobs' steps: the daemon of the node that runs a job's batch script
// numbers the job's steps, gives them resources of the job, and lets them wait for each other. All of it belongs to the
// loop.
//
// A step is in the spool before anything of it runs, but without an fsync: after a loss of power nothing of it runs
// anyway. Its command's open files are not in the spool; a command whose connection broke comes back with the same
// RequestID and sends them again, for the tasks that gshim does not know. The tasks' ends are in gshim's journal, and
// the step's end is in a report, like an attempt's.

const (
	// maxSteps is how many steps of one job may be there at once, waiting ones included.
	maxSteps = 4096
	// lonelyStep is how long a step whose command is gone is kept for it after a restart of this daemon.
	lonelyStep = 30 * time.Second
	// filesWait is how long a step waits for the files of a command that is connected.
	filesWait = time.Minute
	// copyWait is the same while the command sends its program to the nodes (--bcast), or waits for a step of another
	// component.
	copyWait = time.Hour
	// missedStep is how long the end of a step is kept for a command that has no connection, and maxMissed how many of a
	// job.
	missedStep = 2 * time.Minute
	maxMissed  = 64
	// stepRetry is how often a request is looked at, stepTries times, that came before gshim listed what it runs.
	stepRetry = 50 * time.Millisecond
	stepTries = 600
)

// step is one step of a job whose batch script runs here.
type step struct {
	job    *attempt
	id     int32
	number int32              // the id that a waiting step has been promised, or StepNone
	req    *proto.StepRequest // nil after a restart, until the command is back
	conn   *stepConn          // nil while the command is away
	rec    *placedStep        // nil while waiting
	here   int                // this node's index in rec.Nodes, -1 if it has no part
	phase  stepPhase
	said   string // the last reason for waiting that the command was told

	tasks []stepTask // tasks of this node, by local number
	files []*os.File // held until all tasks have been started
	paid  []*paidFiles
	began model.Time // when the first task started
	cause model.StopCause
	uid   uint32 // who cancelled it
	oom   bool   // the kernel killed processes of it for lack of memory
	alert bool   // its kills are watched (--oom-kill-step)

	deadline deadline    // of its phase
	leave    func()      // phase stepPreparing, waiting for an image: nobody waits for its orders any more
	limit    *time.Timer // its time limit
	drain    *time.Timer // runs out some time after the last task's end, while something is beside
	lonely   *time.Timer // runs out when its command has not come back
	killed   time.Time   // when it was first sent SIGKILL
	cleared  time.Time   // when clearing it away began
	tries    int         // tries to remove it

	parts   []*part // parts of other nodes, if this node manages the step
	relays  []*relayed
	drained bool         // it is drainFor since the last task's end
	final   *model.Exit  // phase stepOverHere: exit and usage of this node's part
	used    *model.Usage // its usage, once its end has been reported
	outputs []taskOutput // files that its tasks here write to, if they have GPUs
	gpuSaid string       // what its tasks here say of too little GPU memory; "": nothing
	failed  bool         // some task of it has failed
	status  int32        // of one that failed: Exit.Status
	gpuOOM  string       // a GPU had too little memory for it, and why that is known; "": none had

	done   *proto.StepEvent // its end, when it has been reported
	missed time.Time        // when it ended while its command had no connection
}

// stepTask is one task.
type stepTask struct {
	order *shim.Launch
	began bool
	pid   int
	since model.Time // when it began
	ended *shim.Event
}

// The messages about steps.
type (
	msgStep struct { // a command asks for a step
		conn  *stepConn
		uid   uint32
		req   *proto.StepRequest
		tries int // while the job is taken up again
	}
	msgAdopt struct { // a login of a user is to be put into one of the user's jobs
		conn  *stepConn
		uid   uint32
		asker int // the process that asks; its parent is the login
	}
	msgAdopted   struct{ key proto.Attempt } // that was done
	msgStepFiles struct {
		conn  *stepConn
		files []proto.StepFile
		io    *proto.StepIO
		het   *proto.StepHet
		pmi   *proto.StepIO
		x11   *proto.StepIO
		given [3][]*os.File
		paid  *paidFiles // the claim of them
	}
	msgStepSignal struct {
		conn *stepConn
		sig  *proto.StepSignal
	}
	msgStepGone     struct{ conn *stepConn } // the command is gone
	msgStepPrepared struct {
		key    proto.Attempt
		id     int32
		orders []*shim.Launch
		relays []*shim.Launch // processes beside the tasks
		writes []taskOutput
		lines  []string
		err    error
	}
	msgStepCleared struct {
		key  proto.Attempt
		id   int32
		use  usage
		seen *sampled
		oom  string // the sentence about processes that were killed for lack of memory
		gpu  string // what the files of failed tasks say of too little GPU memory
		left error
	}
	msgStepOOM struct { // a process of it was killed for lack of memory
		key proto.Attempt
		id  int32
	}
	msgStepDeadline struct { // its phase has taken too long
		key  proto.Attempt
		id   int32
		turn uint64
	}
	msgStepTimer struct { // a timer of the step has run out
		key  proto.Attempt
		id   int32
		what stepTimer
	}
)

type stepTimer uint8

const (
	timerLimit  stepTimer = iota // its time limit is over
	timerLonely                  // runs out when its command has not come back
	timerDrain                   // the tasks have ended, and something beside them has not
)

func (l *loop) handleStep(m any) (handled bool, err error) {
	switch m := m.(type) {
	case msgStep:
		if r := l.n.rules.Load(); r != nil {
			if !m.req.Interactive {
				steplayout.Defaults(&m.req.Bind, r.GPUBind)
				own := ""
				if a := l.runningJob(m.req.Job); a != nil {
					own = a.rec.Order.CPUBind
				}
				steplayout.DefaultCPUs(&m.req.Bind, own, &r.CPUBind)
			}
		}
		return true, l.onStepRequest(m)
	case msgAdopt:
		l.onAdopt(m)
	case msgAdopted:
		l.onAdopted(m)
	case msgStepFiles:
		defer m.conn.turnOver()
		l.onStepFiles(m)
	case msgStepSignal:
		l.onStepSignal(m)
	case msgStepGone:
		return true, l.onStepGone(m.conn)
	case msgStepPrepared:
		l.onStepPrepared(m)
	case msgStepCleared:
		l.onStepCleared(m)
	case msgStepTimer:
		l.onStepTimer(m)
	case msgStepDeadline:
		l.onStepDeadline(m)
	case msgStepOOM:
		l.onStepOOM(m)
	case msgStepList:
		l.onStepList(m)
	case msgPart:
		return true, l.onPart(m)
	case msgStepWords:
		defer m.conn.turnOver()
		l.onStepWords(m)
	case msgPartForget:
		defer m.conn.turnOver()
		return true, l.onPartForget(m)
	case msgPartUp:
		l.onPartUp(m)
	case msgPartEvent:
		defer m.c.turnOver()
		l.onPartEvent(m)
	case msgPartLost:
		l.onPartLost(m)
	case msgPartRetry:
		l.onPartRetry(m)
	default:
		return false, nil
	}
	return true, nil
}

// stepCrashed ends the step that a message was about, whose handling has crashed, and its command's connection.
func (l *loop) stepCrashed(m any, crashed error) error {
	var c *stepConn
	var s *step
	switch m := m.(type) {
	case msgStep:
		c = m.conn
	case msgStepFiles:
		c = m.conn
	case msgStepSignal:
		c = m.conn
	case msgPart:
		c = m.conn
	case msgPartForget:
		c = m.conn
	case msgStepWords:
		c = m.conn
	case msgStepPrepared:
		s = l.step(m.key, m.id)
	case msgPartEvent:
		s = m.p.step
	}
	if c != nil {
		s = c.step
		l.refuseStep(c, "internal error of gnoded on node %s, whose log says more", l.n.opts.Name)
	}
	if s == nil {
		return nil
	}
	if s.rec == nil {
		s.job.queue = slices.DeleteFunc(s.job.queue, func(o *step) bool { return o == s })
		return nil
	}
	return l.guard(func() error {
		l.stopStep(s, model.StopCancel, s.job.rec.UID, true, "slurmstepd: error: internal error of gnoded: "+crashed.Error())
		return nil
	}, nil)
}

// runningJob finds the attempt of a job whose script runs here.
func (l *loop) runningJob(id model.JobID) *attempt {
	for key, a := range l.attempts {
		if key.Job == id && a.will == wanted && (a.phase >= ordered && a.phase <= killing) && a.rec != nil &&
			a.rec.Order != nil {
			return a
		}
	}
	return nil
}

// recovering reports whether gshim has not yet listed a job from before this daemon's start.
func (l *loop) recovering(id model.JobID) bool {
	for key, a := range l.attempts {
		if key.Job == id && (a.phase == accepted || a.phase == belated) && a.will == wanted && a.rec != nil && a.rec.Ordered {
			return true
		}
	}
	return false
}

// onStepRequest handles a command's request: for a new step, or for its earlier step after a broken connection.
func (l *loop) onStepRequest(m msgStep) error {
	rq := m.req
	refuse := func(format string, args ...any) error {
		l.refuseStep(m.conn, format, args...)
		return nil
	}
	a := l.runningJob(rq.Job)
	if a == nil && l.recovering(rq.Job) && m.tries < stepTries {
		m.tries++
		time.AfterFunc(stepRetry, func() {
			if !m.conn.isClosed() {
				l.n.inbox.post(m)
			}
		})
		return nil
	}
	foreign := a != nil && ((m.uid != 0 || m.conn.door) && m.uid != a.rec.UID || m.conn.door &&
		m.conn.role == pki.RoleNode && !slices.Contains(a.rec.Order.Alloc.NodeNames(), m.conn.from))
	switch r := l.n.rules.Load(); {
	case a == nil || foreign && r != nil && r.HideJobs:
		return refuse("Unable to create step for job %d: Invalid job id specified: no batch script of job %d runs on node "+
			"%s; a step starts on the node of the job's batch script (BatchHost in gcontrol show job %[1]d)",
			rq.Job, rq.Job, l.n.opts.Name)
	case foreign:
		return refuse("Unable to create step for job %d: Access/permission denied", rq.Job)
	case a.doomed():
		return refuse("Unable to create step for job %d: Job/step already completing or completed", rq.Job)
	}
	if rq.Attach != nil {
		return l.attachTo(a, m)
	}
	if rq.Receive != nil && rq.Parent != proto.StepNone && a.steps[rq.Parent] == nil {
		return refuse("Invalid job id specified: step %s does not run", proto.StepID(rq.Job, rq.Parent))
	}
	for _, s := range a.steps {
		if rq.RequestID != "" &&
			(s.rec != nil && s.rec.RequestID == rq.RequestID || s.req != nil && s.req.RequestID == rq.RequestID) {
			return l.rejoin(s, m)
		}
	}
	if s := a.takeMissed(rq.RequestID, l.now()); s != nil {
		return l.rejoin(s, m)
	}
	if rq.Had {
		return refuse("The step of job %d ended while its command had no connection to node %s; its exit code is in "+
			"accounting: gacct -j %[1]d", rq.Job, l.n.opts.Name)
	}
	if len(a.steps)+len(a.queue) >= maxSteps {
		return refuse("Unable to create step for job %d: %d steps of it run or wait already; wait for some of them to end",
			rq.Job, maxSteps)
	}
	if rq.Interactive && a.hasShell() {
		return refuse("Unable to create step for job %d: Duplicate job step id: it has its interactive step, which an "+
			"allocation has once; grun --overlap --pty starts another shell", rq.Job)
	}
	if limit := l.n.configured().MaxSteps; limit > 0 && rq.Receive == nil && !rq.Interactive &&
		int64(a.nextStep)+int64(len(a.queue)) >= limit {
		return refuse("Unable to create step for job %d: Step limit reached for this job: it has had %d, and MaxStepCount "+
			"is %d; let one step do the work of several", rq.Job, a.nextStep, limit)
	}
	if host, err := os.Hostname(); rq.Addr == "" && err == nil && host == rq.Host {
		rq.Addr = ownAddress()
	}
	s := &step{job: a, req: rq, conn: m.conn, id: proto.StepNone, here: -1, number: proto.StepNone}
	m.conn.step = s
	a.queue = append(a.queue, s)
	if rq.Async && rq.Receive == nil && !rq.Interactive {
		if err := l.numberStep(s); err != nil {
			return err
		}
	}
	return l.placeSteps(a)
}

// refuseStep tells a command, or a step's manager, that there is no step. Nothing more is read from it.
func (l *loop) refuseStep(c *stepConn, format string, args ...any) {
	l.refusePart(c, proto.PartRefused, format, args...)
}

// refusePart is refuseStep with the reason as a number, for a manager.
func (l *loop) refusePart(c *stepConn, code int32, format string, args ...any) {
	ev := &proto.StepEvent{Kind: proto.StepRefused, Code: code, Text: fmt.Sprintf(format, args...)}
	l.soon(func() { c.refuse(ev) })
}

// addStep adds a step to its job and to the spool.
func (l *loop) addStep(s *step) error {
	s.rec.OOMKill = s.req.OOMKill > 0 || s.req.OOMKill == 0 && s.job.rec.Order.Spec.Extra().OOMKill
	if err := l.spool.add(recStep, s.rec, false); err != nil {
		return err
	}
	if s.job.steps == nil {
		s.job.steps = map[int32]*step{}
	}
	s.job.steps[s.id] = s
	s.place(l.n.opts.Name)
	l.setStepDeadline(s, l.stepPatienceOf(s))
	return nil
}

// createStep numbers a step and adds it to the spool.
func (l *loop) createStep(s *step, nodes []proto.StepNode, held string) error {
	a := s.job
	s.rec = &placedStep{Job: a.key.Job, Attempt: a.key.Attempt, ID: a.nextStep, RequestID: s.req.RequestID,
		Name:   s.req.Name,
		Submit: s.req.Submit, At: l.stamp(), LimitS: s.req.LimitS, Nodes: nodes, Shared: s.shares(),
		Terminal: s.req.Terminal != nil, Host: s.req.Host, PID: s.req.PID, Container: s.req.Container.Shown(), Ports: held,
		NoKill: s.req.NoKill, Waits: true}
	s.req.Ports = held
	if s.req.Receive != nil {
		s.rec.ID = a.asideNumber()
	} else if s.req.Interactive {
		s.rec.ID = proto.StepInteractive
	} else if s.number != proto.StepNone {
		s.rec.ID = s.number
	}
	s.id, s.phase = s.rec.ID, stepCreated
	if s.req.Torch {
		s.req.Master = l.n.torchMaster(s.rec)
	}
	switch err := l.addStep(s); {
	case tooLarge(err):
		l.refuseStep(s.conn, "Unable to create step for job %d: node %s can't keep its data: its names and texts are too "+
			"long: %v", a.key.Job, l.n.opts.Name, err)
		s.conn.step = nil
		return nil
	case err != nil:
		return err
	}
	if s.id == a.nextStep {
		a.nextStep++
	}
	a.shellMade = a.shellMade || s.req.Interactive
	s.makeParts(l.n.opts.Name)
	for _, p := range s.parts {
		l.partHappens(p, pevAsk, partNews{})
	}
	s.send(l, s.created(l.n))
	return nil
}

// name is its id as users know it.
func (s *step) name() string { return proto.StepID(s.job.key.Job, s.id) }

// place finds this node's part of the step.
func (s *step) place(node string) {
	s.here = slices.IndexFunc(s.rec.Nodes, func(n proto.StepNode) bool { return n.Node == node })
	if s.here >= 0 {
		s.tasks = make([]stepTask, len(s.rec.Nodes[s.here].Ranks))
	}
}

func (s *step) created(n *Noded) *proto.StepEvent {
	f := s.job.rec.Order
	ev := &proto.StepEvent{Kind: proto.StepCreated, Step: s.id, Layout: s.rec.Nodes,
		Job:    &proto.StepJob{Name: f.Spec.Name, User: f.Spec.User},
		Direct: s.conn.direct(n.opts.Name)}
	if ev.Direct != "" {
		s.conn.waitsFor(len(s.tasks))
	}
	r := n.configured()
	ev.Job.MPI, _ = n.mpi()
	ev.Job.KillBad, ev.Job.WaitS, ev.Job.KillWaitS = r.KillBad, r.WaitS, int64(n.killWait()/time.Second)
	if f.Task != model.NoTask {
		ev.Job.ArrayID, ev.Job.Task = f.ArrayID, f.Task
	} else {
		ev.Job.Task = model.NoTask
	}
	return ev
}

// send sends an event to the step's command, once the event's record is written.
func (s *step) send(l *loop, ev *proto.StepEvent) {
	if c := s.conn; c != nil {
		l.soon(func() { c.send(ev) })
	}
}

// onStepSignal passes a signal of the command on, or ends the step.
func (l *loop) onStepSignal(m msgStepSignal) {
	s := m.conn.step
	switch {
	case s == nil || s.rec == nil:
	case m.sig.Signal == 0 || m.sig.Signal == int32(unix.SIGKILL):
		l.stopStep(s, model.StopCancel, s.job.rec.UID, m.sig.Signal == int32(unix.SIGKILL), m.sig.Text)
	default:
		l.signalStep(s, unix.Signal(m.sig.Signal), m.conn.turnOver)
		return
	}
	m.conn.turnOver()
}
