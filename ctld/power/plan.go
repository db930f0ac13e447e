package power

import (
	"slices"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// due lists the nodes for which something is to be done, by what it is.
type due struct {
	up, down       []string // they begin to be powered up or down
	ask            []string // nobody needs them yet, and they are to be up
	finish, giveUp []string // their time is over
	runUp, runDown []string // the program of their step has not run yet
	runFail        []string
}

// plan says what is due at moment now; clock is the local time, for times of the week.
func plan(v *state.View, now model.Time, clock time.Time) due {
	var d due
	cfg := v.Config()
	rules, spans := &cfg.Params.Power, cfg.PowerSpans()
	var idle []*model.Node // nodes that have been idle for long enough
	v.Nodes(func(n *model.Node) bool {
		name, p := n.Def.Name, n.Power
		span, ok := spans[name]
		if !ok || n.Def.External {
			return true // it has left the configuration, or is another system's
		}
		switch n.PowerStep() {
		case model.PoweredDown:
			if p.Fail {
				d.runFail = append(d.runFail, name)
			}
			if v.WantsPower(n) {
				d.up = append(d.up, name)
			}
		case model.PoweringDown:
			switch told := p.Told || rules.Suspend == ""; {
			case !told:
				d.runDown = append(d.runDown, name)
			case now >= p.At.Add(span.DownS):
				d.finish = append(d.finish, name)
			}
		case model.PoweringUp:
			switch {
			case p.Want == model.PowerDownForce && len(n.Jobs) == 0:
				d.down = append(d.down, name)
			case now >= p.At.Add(span.UpS):
				d.giveUp = append(d.giveUp, name)
			case !p.Told && rules.Resume != "":
				d.runUp = append(d.runUp, name)
			}
		case model.PowerOn:
			switch {
			case len(n.Jobs) > 0 || n.Reboot != nil:
			case p != nil && p.Want.Down():
				d.down = append(d.down, name)
			case p == nil && rules.On() && span.SuspendS >= 0 && now >= idleSince(n).Add(span.SuspendS):
				idle = append(idle, n)
			}
		}
		return true
	})
	if !rules.On() {
		d.up, d.down = nil, nil // who asks for it finds out by ResumeTimeout
		return d
	}
	keep := newKeeping(v, now, clock)
	d.ask = keep.missing()
	for _, n := range idle {
		if !keep.stays(n) {
			d.down = append(d.down, n.Def.Name)
		}
	}
	return d
}

// idleSince gives the moment since which a node has had nothing to do.
func idleSince(n *model.Node) model.Time { return max(n.BusyAt, n.LinkAt) }

// excepted reports whether SuspendExcStates has one of a node's states.
func (k *keeping) excepted(n *model.Node) bool {
	has := func(word string) bool { return slices.Contains(k.rules.SpareStates, word) }
	resv, maint := k.reserved(n.Def.Name)
	return has("CLOUD") && n.Def.Cloud ||
		has("DOWN") && (n.Admin == model.NodeDown || n.Link == model.LinkLost) ||
		has("DRAIN") && n.Draining() && !n.Failing ||
		has("FAIL") && n.Failing ||
		has("INVALID_REG") && n.Problem != "" ||
		has("NOT_RESPONDING") && n.Link != model.LinkUp ||
		has("DYNAMIC_NORM") && n.Def.Made ||
		has("MAINTENANCE") && maint ||
		has("RESERVED") && resv
}
