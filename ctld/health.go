package ctld

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// health.go checks nodes: what one has when it registers, against the configuration; and by HealthCheckProgram, which
// it runs when that is due, in the states of HealthCheckNodeState. It drains nodes that report a problem until they
// report none.

const (
	// maxSkew is how far a node's clock may be from the controller's. Time limits, accounting and certificates rely on it.
	maxSkew = 30 * time.Second
	// healthPace is how often checkHealth looks for nodes whose check is due.
	healthPace = time.Second
)

// healthTime has a node's last health check.
type healthTime struct {
	asked   time.Time
	problem string // its last reported problem that is in the log
	known   bool
}

// skewed gives the sentence about a node whose clock is wrong, or "".
func skewed(theirs, ours model.Time) string {
	d := time.Duration(theirs-ours) * time.Millisecond
	if theirs == 0 || d.Abs() <= maxSkew {
		return "" // a daemon of before sends none
	}
	return fmt.Sprintf("Clock is %s off the controller's; set it by NTP", d.Abs().Round(time.Second))
}

// onHealth puts a node's problem into the log if it has changed: less hardware than the present configuration says, a
// problem from its registration, or a problem that the node itself reports.
func (c *Controller) onHealth(ctx context.Context, s *session, own string) {
	n := c.machine.View().Node(s.node)
	if n == nil {
		return
	}
	problem := cmp.Or(lacks(n.Def, &s.hw), s.skew, leavingText(s.leaving), state.Brief(own))
	if s.health.known && s.health.problem == problem {
		return
	}
	if !s.health.known && n.Problem == problem {
		s.health.known, s.health.problem = true, problem
		return
	}
	if _, err := c.propose(ctx, &state.NodeHealth{Node: s.node, Problem: problem}); err != nil {
		if ctx.Err() == nil {
			c.log.Warn("a node's health was not recorded; its next heartbeat repeats it", "node", s.node, "err", err)
		}
		return
	}
	s.health.known, s.health.problem = true, problem
	if problem != "" {
		c.log.Warn("a node has a problem and takes no more jobs", "node", s.node, "problem", problem)
	} else {
		c.log.Info("a node's problem is over", "node", s.node)
	}
}

// checkHealth makes nodes run HealthCheckProgram.
func (c *Controller) checkHealth(ctx context.Context) {
	for ctx.Err() == nil {
		v := c.machine.View()
		r := &v.Config().Params.Rules
		if r.HealthProgram != "" {
			now := time.Now()
			for _, s := range c.nodes.all() {
				n := v.Node(s.node)
				if n != nil && s.checkDue(n, r, now) {
					s.send(&proto.Orders{Epoch: s.epoch, Health: true})
				}
			}
		}
		pause(ctx, healthPace)
	}
}

// checkDue reports whether a node's check is due, and records that it is ordered. With CYCLE nodes are spread over the
// interval.
func (s *session) checkDue(n *model.Node, r *model.NodeRules, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := time.Duration(r.HealthIntervalS) * time.Second
	first := s.health.asked.IsZero()
	switch {
	case slices.Contains(r.HealthStates, "START_ONLY"):
		if !first {
			return false
		}
	case every == 0, !healthState(n, r.HealthStates):
		return false
	case first && slices.Contains(r.HealthStates, "CYCLE"):
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.node)) // a hash never fails
		s.health.asked = now.Add(-time.Duration(uint64(h.Sum32()) % uint64(every)))
		return false
	case !first && now.Sub(s.health.asked) < every:
		return false
	}
	s.health.asked = now
	return true
}

// healthState reports whether a node is in one of the states in which it checks itself.
func healthState(n *model.Node, states []string) bool {
	any := true
	for _, st := range states {
		switch st {
		case "ANY", "CYCLE", "START_ONLY":
			if st == "ANY" {
				return true
			}
			continue
		case "IDLE":
			if len(n.Jobs) == 0 {
				return true
			}
		case "NONDRAINED_IDLE":
			if len(n.Jobs) == 0 && n.Admin == model.NodeUp {
				return true
			}
		case "ALLOC":
			if len(n.Jobs) > 0 && n.FullCPUs() {
				return true
			}
		case "MIXED":
			if len(n.Jobs) > 0 && !n.FullCPUs() {
				return true
			}
		}
		any = false
	}
	return any
}

// all gives the sessions that are up.
func (n *nodeSet) all() []*session {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*session, 0, len(n.sessions))
	for _, s := range n.sessions {
		out = append(out, s)
	}
	return out
}

// retell makes every node get the rules again.
func (n *nodeSet) retell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = ""
	for _, s := range n.sessions {
		s.config = ""
	}
	close(n.woken)
	n.woken = make(chan struct{})
}

// stale gives the sessions that have not got the rules of the configuration with this hash, and records that they get
// them now.
func (n *nodeSet) stale(hash string) []*session {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules == hash {
		return nil
	}
	n.rules = hash
	var out []*session
	for _, s := range n.sessions {
		if s.config != hash {
			s.config = hash
			s.heard(time.Now()) // with the old heartbeat interval it may be late for the new timeout
			out = append(out, s)
		}
	}
	return out
}

// lacks says what a node has less of than the configuration says, or "".
func lacks(def *model.NodeDef, hw *proto.Hardware) string {
	switch virtual := hw.Virtual || def.Virtual; {
	case virtual: // its hardware is taken from the configuration, except for devices that the node searches for
	case hw.CPUs < def.CPUs:
		return fmt.Sprintf("Low CPUs (reported:%d < configured:%d)", hw.CPUs, def.CPUs)
	case hw.MemMiB < def.MemMiB:
		return fmt.Sprintf("Low RealMemory (reported:%d < configured:%d)", hw.MemMiB, def.MemMiB)
	case hw.TmpMiB < def.TmpMiB:
		return fmt.Sprintf("Low TmpDisk (reported:%d < configured:%d)", hw.TmpMiB, def.TmpMiB)
	}
	gres := lacksGres(def, hw)
	switch {
	case hw.Problem == "":
		return gres
	case gres == "":
		return cut(hw.Problem, maxProblem)
	}
	return gres + ": " + cut(hw.Problem, maxProblem)
}

// maxProblem bounds the node's own text in its reason, bytes.
const maxProblem = 400

// cut shortens a text.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// connections keeps only the properties of units from a node's list of resources.
func connections(list []model.GresDef) []model.GresDef {
	var out []model.GresDef
	for _, g := range list {
		if len(g.Near)+len(g.Links)+len(g.Dist) > 0 || g.MemMiB > 0 {
			out = append(out, g)
		}
	}
	return out
}

// lacksGres says of which resources a node has fewer units than the configuration says, or "".
func lacksGres(def *model.NodeDef, hw *proto.Hardware) string {
	for _, g := range def.Gres {
		if len(g.Over) > 0 {
			continue // shares of GPUs: the GPUs themselves are checked
		}
		n := int32(0)
		for _, have := range hw.Gres {
			if have.Name == g.Name && (g.Type == "" || have.Type == g.Type) {
				n += have.Count
			}
		}
		if n < g.Count {
			return fmt.Sprintf("gres/%s count reported lower than configured (%d < %d)", g.Name, n, g.Count)
		}
	}
	return ""
}
