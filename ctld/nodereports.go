package ctld

import (
	"context"
	"fmt"
	"iter"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/wire"
)

// serveNode reads a node's messages until its connection ends.
func (c *Controller) serveNode(ctx context.Context, s *session) error {
	var f rpc.Frame
	for {
		if err := s.conn.ReadFrame(&f); err != nil {
			return err
		}
		s.heard(time.Now())
		switch f.Kind {
		case proto.KindHeartbeat:
			var hb proto.Heartbeat
			if err := proto.DecodeWith(f.Body, &hb, wire.Keep); err != nil {
				return err
			}
			hb.Readings = hb.Readings[:min(len(hb.Readings), proto.MaxUnits)]
			s.mu.Lock()
			if len(hb.Uses) > 0 {
				s.uses = hb.Uses[:min(len(hb.Uses), proto.MaxJobUses)]
			}
			hb.Uses = nil
			s.beat = hb
			s.idle.note(hb.Readings, time.Now())
			s.mu.Unlock()
			select {
			case s.beaten <- struct{}{}:
			default: // the one before is about to be acknowledged, and this one in its place
			}
			s.skew = c.hearClock(s, hb.Now, time.Now())
			nowClear := s.notClear(hb.Leaving)
			c.onHealth(ctx, s, hb.Problem)
			if nowClear {
				c.nodes.wakeAll()
			}
			c.hearUse(ctx, s.node, hb.Readings)
			if hb.UnitsKnown {
				c.hearUnits(ctx, s.node, hb.Units, hb.Held)
			}
		case proto.KindReports:
			var r proto.Reports
			if err := proto.DecodeWith(f.Body, &r, wire.Keep); err != nil {
				return err
			}
			for _, one := range r.Reports {
				one.At = c.nodeTime(one.At, r.Now)
				if st := one.Step; st != nil {
					st.Start, st.End = c.nodeTime(st.Start, r.Now), c.nodeTime(st.End, r.Now)
				}
			}
			select {
			case c.reports <- nodeReports{s, r.Reports}:
			case <-ctx.Done():
				return ctx.Err()
			}
		case proto.KindNodeAnswer:
			m := new(proto.NodeAnswer)
			if err := proto.DecodeWith(f.Body, m, wire.Keep); err != nil {
				return err
			}
			s.answered(m)
		default:
			return fmt.Errorf("node %s sent a frame of kind %d, which nodes do not send", s.node, f.Kind)
		}
	}
}

// troubles are the reports that an administrator should see.
var troubles = map[proto.ReportKind]string{
	proto.ReportLaunchFailed: "launch failed", proto.ReportPrologFailed: "prolog failed",
	proto.ReportEpilogFailed: "epilog failed",
	proto.ReportUnkillable:   "processes survive SIGKILL",
}

// nodeReports is one message of reports that waits for the log.
type nodeReports struct {
	s    *session
	list []*proto.Report
}

// collect puts nodes' reports into the log: all reports that have arrived go there together, in few commands, and then
// each node learns which of its reports are safe.
func (c *Controller) collect(ctx context.Context) {
	for {
		var batch []nodeReports
		select {
		case first := <-c.reports:
			batch = append(batch, first)
		case <-ctx.Done():
			return
		}
		n := len(batch[0].list)
		for more := true; more && n < reportBatch; {
			select {
			case next := <-c.reports:
				batch = append(batch, next)
				n += len(next.list)
			default:
				more = false
			}
		}
		list := make([]state.Report, 0, n)
		for _, b := range batch {
			for _, r := range b.list {
				if r.Kind > proto.ReportUnkillable && r.Kind != proto.ReportStep {
					continue // a kind of report that only the leader itself may use
				}
				report := reported(b.s.node, r)
				list = append(list, report)
				if word := troubles[r.Kind]; word != "" {
					c.log.Warn(word, "node", b.s.node, "job", r.Job, "attempt", r.Attempt, "why", report.Text)
				}
			}
		}
		var err error
		for _, part := range inCommands(list) {
			if _, err = c.propose(ctx, &state.Reports{Reports: part, Placed: true}); err != nil {
				break // a repeated report changes nothing
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("nodes' reports were not applied; the nodes send them again", "err", err)
			}
			if !c.store.IsLeader() {
				continue // the nodes are about to be told who leads; there they repeat what was not acknowledged
			}
			for _, b := range batch {
				b.s.hangUp() // the node registers again, and does so here
			}
			continue
		}
		c.acknowledge(batch)
	}
}

// Bounds of reports in the log, bytes. A node's own bound for one is 1 MiB (noded's spool).
const (
	maxReportBytes = 2 << 20 // of one with its details
	commandReports = 4 << 20 // of those of one command; a command may have twice as much
	plainReport    = 256     // of one without details, texts aside
)

// inCommands divides reports, in their order, into those of one command each. The usage of a step on a thousand nodes
// has most of a megabyte, so a number of reports says nothing of their size, and a command that the log refuses would
// cut off each node that has a report in it, again and again. What alone is too large, or can't be written, goes
// without its details, as from a node that has no room for them: a job ends in any case.
func inCommands(list []state.Report) (out [][]state.Report) {
	from, bytes := 0, 0
	for i := range list {
		r := &list[i]
		size := plainReport + len(r.Text) + len(r.Exit.Text)
		if r.Step != nil || r.Exit.Use != nil {
			data, err := wire.Append(nil, r)
			if err != nil || len(data) > maxReportBytes {
				bare(r)
			} else {
				size = len(data)
			}
		}
		if bytes > 0 && bytes+size > commandReports {
			out, from, bytes = append(out, list[from:i]), i, 0
		}
		bytes += size
	}
	if from < len(list) {
		out = append(out, list[from:])
	}
	return out
}

// bare takes out of a report what can be large. What is left says what has ended, and how.
func bare(r *state.Report) {
	r.Exit.Use = nil
	if r.Step != nil {
		s := *r.Step
		s.Name, s.Submit, s.Nodes, s.Gres, s.Exit.Use = cut(s.Name, maxProblem), "", nil, nil, nil
		s.Container = cut(s.Container, maxProblem)
		r.Step = &s
	}
}

// reported gives a node's report for the log. Nodes are brief by themselves; what is not gets no further than here.
func reported(node string, r *proto.Report) state.Report {
	out := state.Report{Kind: state.ReportKind(r.Kind), Job: r.Job, Attempt: r.Attempt, At: r.At, Exit: r.Exit,
		Text: state.Brief(r.Text), Step: r.Step, Node: node, Since: r.Since, Taken: r.Taken}
	out.Exit.Text = state.Brief(r.Exit.Text)
	if r.Step != nil {
		step := *r.Step
		step.Exit.Text = state.Brief(step.Exit.Text)
		out.Step = &step
	}
	return out
}

// acknowledge tells each node which of its reports are safe.
func (c *Controller) acknowledge(batch []nodeReports) {
	for _, b := range batch {
		ack := &proto.ReportAck{Seqs: make([]uint64, 0, len(b.list))}
		for _, r := range b.list {
			ack.Seqs = append(ack.Seqs, r.Seq)
			if r.Kind == proto.ReportEnded || r.Kind == proto.ReportLaunchFailed {
				b.s.forget(partKey{proto.Attempt{Job: r.Job, Attempt: r.Attempt}, r.Since})
			}
		}
		b.s.write(proto.KindReportAck, ack)
	}
}

// chunkUnits is how many nodes with all their units go into one frame.
const chunkUnits = 50

// units fills in a node's own data about its units.
func (n *nodeSet) units(node string, info *proto.NodeInfo) {
	s := n.session(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info.Units, info.Readings = s.units, s.beat.Readings
}

// readings gives the last readings of a node's units; whoever gets them reads them only.
func (n *nodeSet) readings(node string) []proto.UnitReading {
	s := n.session(node)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beat.Readings
}

// idleMS gives for how long GPUs of a node have done nothing, by number.
func (n *nodeSet) idleMS(name string) map[int32]int64 {
	s := n.session(name)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[int32]int64, len(s.idle))
	for unit, since := range s.idle {
		if unit.Name == model.GPUName {
			out[unit.Index] = time.Since(since).Milliseconds()
		}
	}
	return out
}

// allocsOn gives the jobs that hold something of a node, each with what it holds there.
func allocsOn(v *state.View, n *model.Node) iter.Seq2[*model.Job, *model.NodeAlloc] {
	return func(yield func(*model.Job, *model.NodeAlloc) bool) {
		for _, id := range n.Jobs {
			j := v.Job(id)
			if j == nil || j.Run == nil || j.Run.Alloc == nil {
				continue
			}
			for i := range j.Run.Alloc.Nodes {
				if na := &j.Run.Alloc.Nodes[i]; na.Node == n.Def.Name && !yield(j, na) {
					return
				}
			}
		}
	}
}

// holders lists the units of a node that jobs hold, and what shares of GPUs; name names a job.
func holders(v *state.View, n *model.Node, name func(*model.Job) string) []proto.UnitHolder {
	var out []proto.UnitHolder
	for j, na := range allocsOn(v, n) {
		for _, g := range na.Gres {
			if g.Share != nil {
				if len(out) < proto.MaxUnits {
					out = append(out, proto.UnitHolder{Name: g.Name, Index: g.Share.GPU, Job: name(j),
						Shares: int32(g.Index.Count())})
				}
				continue
			}
			g.Index.Each(func(k int) bool {
				out = append(out, proto.UnitHolder{Name: g.Name, Index: int32(k), Job: name(j)})
				return len(out) < proto.MaxUnits
			})
		}
	}
	return out
}
