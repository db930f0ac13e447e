package ctld

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/external"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// dispatch sends nodes their orders: launch CONFIGURING jobs, end COMPLETING jobs.
//
// The naive way, sending an order where the decision is made, loses orders when a connection or the leader fails in
// between. Instead, the state has an index of jobs that need orders (View.Moving), and each session remembers the
// orders that it has sent: a new session, or a new leader, sends all orders again. Nodes answer "have it" to a repeated
// order.
func (c *Controller) dispatch(ctx context.Context) {
	pace := pacer{gap: dispatchPace}
	for ctx.Err() == nil {
		pace.wait(ctx)
		wake := c.nodes.wake()
		changed := c.machine.Changed()
		c.sendOrders(c.machine.View())
		select {
		case <-changed:
		case <-wake:
		case <-ctx.Done():
		}
	}
}

func (c *Controller) sendOrders(v *state.View) {
	orders := map[*session]*proto.Orders{}
	of := func(s *session) *proto.Orders {
		o := orders[s]
		if o == nil {
			o = &proto.Orders{Epoch: c.nodes.epoch()}
			orders[s] = o
		}
		return o
	}
	v.Moving(func(j *model.Job) bool {
		run := j.Run
		if run.Program != model.NoCtldProgram {
			return true // the controller's own program comes first (slurmctldprog.go)
		}
		if v.AwaitsPower(j) {
			return true // it begins when all its nodes are up
		}
		if j.State == model.Running || j.State == model.Suspended {
			c.freezeOrders(v, j, of)
			c.warningOrders(j, of)
			c.resizeOrders(v, j, of)
		}
		c.leavingOrders(v, j, of)
		ask := func(place int, what telling) {
			na := &run.Alloc.Nodes[place]
			s := c.nodes.session(na.Node)
			key := partKey{proto.Attempt{Job: j.ID, Attempt: j.Attempt}, na.Since}
			if s == nil || what != toldStop && !s.clear() || !s.tell(key, what) {
				return
			}
			if what == toldStop {
				of(s).Stop = append(of(s).Stop, c.stopOf(v, j, place))
				return
			}
			l, err := c.launchOf(v, j, place, what == toldPrepare)
			if err != nil {
				c.log.Error("a job can't be launched", "job", j.ID, "err", err)
				return
			}
			of(s).Launch = append(of(s).Launch, l)
		}
		if j.State == model.Completing {
			if run.Over == nil && (run.Busy.Empty() || run.Busy.Has(0)) {
				ask(0, toldStop)
			}
			run.Busy.Minus(model.UpTo(1)).Each(func(k int) bool { ask(k, toldStop); return true })
			return true
		}
		run.Unready.Each(func(k int) bool { ask(k, toldPrepare); return true })
		if mayBegin(v, j) {
			ask(0, toldLaunch)
		}
		return true
	})
	hash := v.Config().Hash
	for _, s := range c.nodes.stale(hash) {
		p, o := &v.Config().Params, of(s)
		o.Rules, o.TimeoutS, o.Controllers = &p.Rules, p.NodeTimeoutS, c.votersForNodes()
		o.Revoked = c.issuer.Revoked()
	}
	for s, o := range orders {
		s.send(o)
	}
}

// mayBegin reports whether a job's script may be launched.
func mayBegin(v *state.View, j *model.Job) bool {
	run := j.Run
	return j.State == model.Configuring && !awaits(v, j) &&
		(run.Unready.Empty() || !run.Unready.Has(0) && v.Config().Params.Rules.NoHold)
}

// externalPace is the time between two rounds of answers for nodes without a daemon.
const externalPace = 20 * time.Millisecond

// answerForExternal is what the daemons of nodes that have none (State=EXTERNAL) would do, until ctx ends.
func (c *Controller) answerForExternal(ctx context.Context) {
	pace := pacer{gap: externalPace}
	var of *model.Config
	var nodes map[string]bool
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		if of != v.Config() {
			of, nodes = v.Config(), external.Nodes(v.Config())
		}
		joins, list := external.Answers(v, nodes, c.now(), func(j *model.Job) bool { return mayBegin(v, j) })
		var bodies []state.Body
		for _, join := range joins {
			bodies = append(bodies, join)
		}
		for _, part := range inCommands(list) {
			bodies = append(bodies, &state.Reports{Reports: part, Placed: true})
		}
		done := true
		for _, b := range bodies {
			res, err := c.propose(ctx, b)
			if err != nil && ctx.Err() == nil {
				c.log.Warn("can't answer for nodes of State=EXTERNAL", "err", err)
				pause(ctx, waitPace)
			}
			done = done && err == nil && !res.Changed
		}
		if !done {
			continue // what has changed may need the next answer
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// What may wait to be written to a node, orders and acknowledgements. One that takes nothing any more, as its host has
// lost its power or it was stopped, has its session ended at once; the others get their orders meanwhile.
const (
	maxOwed      = 256
	maxOwedBytes = 64 << 20
)

// send gives the node orders.
func (s *session) send(o *proto.Orders) {
	s.mu.Lock()
	o.Heard, s.spoke = s.beat.Now, time.Now()
	s.mu.Unlock()
	s.write(proto.KindOrders, o)
}

// owed is a message that waits to be written.
type owed struct {
	kind uint16
	body []byte
}

// write gives a message to the session's writer. A session that can't take it ends: with the next one the node gets all
// of it again.
func (s *session) write(kind uint16, m proto.Message) {
	body, err := proto.Encode(m)
	if err != nil || !s.queue(owed{kind, body}) {
		s.hangUp()
	}
}

// hangUp ends the session: its reader notices. A peer that reads nothing delays that for seconds (TLS).
func (s *session) hangUp() { go func() { _ = s.conn.Close() }() }

// queue reports whether there is room for a message.
func (s *session) queue(m owed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed > 0 && s.owed+len(m.body) > maxOwedBytes {
		return false
	}
	select {
	case s.out <- m:
		s.owed += len(m.body)
		return true
	default:
		return false
	}
}

// writes writes what waits, until the session ends.
func (s *session) writes() {
	for {
		select {
		case m := <-s.out:
			if s.conn.WriteFrame(m.kind, 0, 0, m.body) != nil {
				s.hangUp()
				return
			}
			s.mu.Lock()
			s.owed -= len(m.body)
			s.mu.Unlock()
		case <-s.over:
			return
		}
	}
}

// freezeOrders tells every node of a job that is or has been suspended whether to freeze its processes.
func (c *Controller) freezeOrders(v *state.View, j *model.Job, of func(*session) *proto.Orders) {
	f := &proto.Freeze{Job: j.ID, Attempt: j.Attempt, Frozen: j.State == model.Suspended, Turn: j.Run.Turns,
		GraceMS: 1000 * v.Config().Params.Preempt.StopGraceS}
	for _, name := range j.Run.Alloc.NodeNames() {
		if s := c.nodes.session(name); s != nil && s.turn(proto.Attempt{Job: j.ID, Attempt: j.Attempt}, f.Turn) {
			o := of(s)
			o.Freeze = append(o.Freeze, f)
		}
	}
}

// warningOrders sends the signal that a job wants before its time limit to its first node, which gives it to the script
// or passes it on to the tasks of all steps. A node ignores a repeated order.
func (c *Controller) warningOrders(j *model.Job, of func(*session) *proto.Orders) {
	w := j.Spec.Warning
	if w == nil || j.Run.Warned == 0 {
		return
	}
	first := &j.Run.Alloc.Nodes[0]
	key := partKey{proto.Attempt{Job: j.ID, Attempt: j.Attempt}, first.Since}
	if s := c.nodes.session(first.Node); s != nil && s.tell(key, toldWarning) {
		of(s).Stop = append(of(s).Stop,
			&proto.Stop{Job: j.ID, Attempt: j.Attempt, Signal: w.Signal, Batch: w.Batch, Once: true})
	}
}

// resizeOrders tells the nodes of a job that was resized of the nodes that it can use now. The node of the script gives
// steps their places there; the others show them to their tasks.
func (c *Controller) resizeOrders(v *state.View, j *model.Job, of func(*session) *proto.Orders) {
	if j.Run.Version == 0 {
		return
	}
	key := proto.Attempt{Job: j.ID, Attempt: j.Attempt}
	var all *model.Alloc
	for k := range j.Run.Alloc.Nodes {
		s := c.nodes.session(j.Run.Alloc.Nodes[k].Node)
		if s == nil || j.Run.Unready.Has(k) || !s.sized(key, j.Run.Version) {
			continue
		}
		if all == nil {
			all = usable(j.Run)
		}
		of(s).Resize = append(of(s).Resize, &proto.Resize{Job: j.ID, Attempt: j.Attempt, Version: j.Run.Version,
			Alloc: all, Addrs: c.addrsOf(v, all, k), Broke: j.Run.Broke})
		if q := j.Run.Recall; q != nil {
			last := of(s).Resize[len(of(s).Resize)-1]
			last.Asked, last.Due = q.Nodes, q.Due
		}
	}
}

// usable gives a job's nodes without those that have not run their prologs.
func usable(run *model.Run) *model.Alloc {
	if run.Unready.Empty() {
		return run.Alloc
	}
	out := &model.Alloc{}
	for k := range run.Alloc.Nodes {
		if !run.Unready.Has(k) {
			out.Nodes = append(out.Nodes, run.Alloc.Nodes[k])
		}
	}
	return out
}

// leavingOrders ends a job's parts of nodes that it has given up.
func (c *Controller) leavingOrders(v *state.View, j *model.Job, of func(*session) *proto.Orders) {
	for i := range j.Run.Leaving {
		l := &j.Run.Leaving[i]
		s := c.nodes.session(l.Part.Node)
		if s == nil || !s.tell(partKey{proto.Attempt{Job: j.ID, Attempt: j.Attempt}, l.Part.Since}, toldStop) {
			continue
		}
		st := &proto.Stop{Job: j.ID, Attempt: j.Attempt, Cause: model.StopShrink, Since: l.Part.Since,
			KillWaitS: v.Config().Params.KillWaitS}
		if l.GraceS > 0 {
			st.KillWaitS = l.GraceS
		}
		of(s).Stop = append(of(s).Stop, st)
	}
}

// addrsOf gives the addresses of an allocation's nodes that the node at place needs.
func (c *Controller) addrsOf(v *state.View, a *model.Alloc, place int) (out []string) {
	nodes := a.Nodes
	if len(nodes) < 2 || len(nodes) > proto.MaxTargets {
		return nil
	}
	if place > 0 {
		nodes = nodes[:1] // it only asks the manager of the job's steps
	}
	for k := range nodes {
		out = append(out, c.peerAddr(v, nodes[k].Node))
	}
	return out
}

// cpuBind gives the CpuBind that all nodes of a job have, otherwise its partition's.
func cpuBind(v *state.View, j *model.Job) string {
	nodes, common := j.Run.Alloc.Nodes, ""
	for i := range nodes {
		d := v.NodeDef(nodes[i].Node)
		if d == nil || d.CPUBind == "" || i > 0 && d.CPUBind != common {
			common = ""
			break
		}
		common = d.CPUBind
	}
	if p := v.Partition(j.Run.Partition); common == "" && p != nil {
		return p.CPUBind
	}
	return common
}

// launchOf makes the order for one of a job's nodes; with prepare it has no script.
func (c *Controller) launchOf(v *state.View, j *model.Job, place int, prepare bool) (*proto.Launch, error) {
	l := &proto.Launch{Job: j.ID, Attempt: j.Attempt, ArrayID: j.ArrayID, Task: j.Task, Spec: j.Spec,
		Part: j.Run.Partition, LimitS: j.Run.LimitS,
		Start: j.Run.Start, Restarts: j.Restarts, Alloc: j.Run.Alloc, Resv: j.Run.Resv,
		Node: int32(place), Prepare: prepare, Het: j.Het, Version: j.Run.Version}
	if !prepare {
		l.Others = otherParts(v, j)
		l.Script, l.Env = v.Blob(j.Spec.Script), v.Blob(j.Spec.Env)
	}
	if !prepare && l.Script.Key == "" {
		return nil, fmt.Errorf("its script %.12s is missing", j.Spec.Script)
	}
	l.Addrs = c.addrsOf(v, j.Run.Alloc, place)
	if place == 0 { // the node that makes the job's steps
		l.CPUBind = cpuBind(v, j)
	}
	l.Switches, l.Blocks = c.switchPath(v.Config(), v.Partition(j.Run.Partition), j.Run.Alloc.Nodes[place].Node)
	if a := v.Array(j.ArrayID); a != nil {
		l.Array = proto.ArrayShape{Count: a.Total, Min: a.Min, Max: a.Max, Step: a.Step}
	}
	return l, nil
}

// switchPaths has the switches or blocks above each node, by the topologies of one configuration.
type switchPaths struct {
	mu     sync.Mutex
	of     *model.Config
	paths  []map[string]string
	blocks []bool
}

// switchPath gives the switches above a node, or its block, in the topology of a job's partition; "" for a node in
// none.
func (c *Controller) switchPath(cfg *model.Config, p *model.Partition, node string) (path string, blocks bool) {
	if len(cfg.Switches)+len(cfg.Topologies) == 0 && cfg.Blocks == nil {
		return "", false
	}
	s := &c.switches
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != cfg {
		s.of, s.paths, s.blocks = cfg, nil, nil
		for _, t := range cfg.Networks() {
			if t.Blocks != nil {
				s.paths = append(s.paths, sched.BlockPaths(t.Blocks.List))
			} else {
				s.paths = append(s.paths, sched.SwitchPaths(t.Switches))
			}
			s.blocks = append(s.blocks, t.Blocks != nil)
		}
	}
	at := cfg.NetworkOf(p)
	return s.paths[at][node], s.blocks[at]
}

func (c *Controller) stopOf(v *state.View, j *model.Job, place int) *proto.Stop {
	st := &proto.Stop{Job: j.ID, Attempt: j.Attempt, Cause: j.Run.Stop, KillWaitS: v.Config().Params.KillWaitS,
		Since: j.Run.Alloc.Nodes[place].Since}
	if j.Run.GraceS > 0 {
		st.KillWaitS = j.Run.GraceS
	}
	if place > 0 {
		return st // the script and the user's output file are on the first node
	}
	why := ""
	switch j.Run.Stop {
	case model.StopTimeLimit:
		why = " DUE TO TIME LIMIT"
		if j.Run.StopReason != model.ReasonNone {
			why += ": " + j.Run.StopWhy
		}
	case model.StopCancel:
		if j.Run.StopWhy != "" {
			why = ": " + j.Run.StopWhy
		}
	case model.StopDeadline:
		why = " DUE TO DEADLINE"
	case model.StopPreempt, model.StopPreemptCancel:
		why = " DUE TO PREEMPTION"
	case model.StopNodeFail:
		why = " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
		if j.Run.StopWhy != "" {
			why = " DUE TO NODE FAILURE: " + j.Run.StopWhy
		}
	case model.StopUnitFault:
		why = " DUE TO NODE FAILURE: " + j.Run.StopWhy
	case model.StopProlog, model.StopLaunch, model.StopTaken:
		return st // it has not begun
	case model.StopWithFirst:
		return st // the first component's script has ended
	case model.StopGivenBack:
		st.Code = j.Run.Fate.Code
		return st
	case model.StopGive:
		why = ": IT " + strings.ToUpper(j.Run.StopWhy)
	case model.StopRequeue, model.StopRequeueHold:
		why = " DUE TO JOB REQUEUE"
	}
	at := time.UnixMilli(int64(j.Run.StopAt)).Format("2006-01-02T15:04:05")
	st.Line = fmt.Sprintf("slurmstepd: error: *** JOB %d ON %s CANCELLED AT %s%s ***", j.ID,
		j.Run.Alloc.Nodes[0].Node, at, why)
	return st
}
