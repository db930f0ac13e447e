package jobtext

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The states of nodes as users see them. An idle node in a reservation for maintenance is maint; any other state gets a
// $. An idle node in another reservation is reserved. Both are as in Slurm.

// shortState gives the compact state: idle, mix$, resv, drain*.
func shortState(n *proto.NodeInfo) string {
	return inReservation(n, n.Node.ShortState(), "maint", "resv")
}

// longState gives the full state: idle, mixed$, reserved, drained*.
func longState(n *proto.NodeInfo) string {
	s := strings.ToLower(n.Node.StateName()) + n.Node.StateMark()
	return inReservation(n, s, "maint", "reserved")
}

// inReservation gives a state as shown for a node in a reservation.
func inReservation(n *proto.NodeInfo, state, maint, reserved string) string {
	plain, silent := strings.CutSuffix(state, "*")
	idle := n.Node.StateName() == "IDLE"
	switch {
	case n.Maint && !idle:
		return plain + "$"
	case n.Maint:
		plain = maint
	case n.Resv != "" && idle:
		plain = reserved
	default:
		return state
	}
	if silent {
		plain += "*"
	}
	return plain
}

// stateComplete gives the base state and all flags: idle+drain.
func stateComplete(n *proto.NodeInfo) string {
	base, drain, silent := NodeState(n.Node)
	s := base.String()
	switch {
	case drain && n.Node.Failing:
		s += "+fail"
	case drain:
		s += "+drain"
	}
	switch {
	case n.Node.Reboot == nil:
	case n.Node.Rebooting():
		s += "+reboot_issued"
	default:
		s += "+reboot_requested"
	}
	s += strings.ToLower(n.Node.PowerFlags())
	if n.Node.Def.External {
		s += "+" + strings.ToLower(model.ExternalText)
	}
	if n.Node.Problem != "" {
		s += "+invalid_reg"
	}
	if n.Maint {
		s += "+maintenance"
	}
	if silent {
		s += "+not_responding"
	}
	if n.Resv != "" && !n.Maint {
		s += "+reserved"
	}
	return s
}

// controlState gives the state as scontrol shows it: IDLE+RESERVED.
func controlState(n *proto.NodeInfo) string {
	switch s := n.Node.BaseState(); {
	case n.Maint:
		return s + "+MAINTENANCE"
	case n.Resv != "":
		return s + "+RESERVED"
	default:
		return s
	}
}

// NodeStateText gives a node's whole state, as sinfo's StateComplete has it.
func NodeStateText(n *proto.NodeInfo) string { return stateComplete(n) }
