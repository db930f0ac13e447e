package jobtext

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// unitsout.go shows single units of nodes that are out of service.

// OutUnits lists a node's units that new jobs don't get, by number; of one resource, or of all ("").
func OutUnits(n *model.Node, gres string) []model.UnitOut {
	var out []model.UnitOut
	for _, o := range n.Out {
		if o.Kind != model.OutCleared && (gres == "" || o.Name == gres) {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b model.UnitOut) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Index) - int(b.Index)
	})
	return out
}

// gresDrainText gives the units that are out of service: gpu:h100(IDX:3); "" for none.
func gresDrainText(n *model.Node) string {
	var out []string
	for _, g := range n.Def.Gres {
		if g.NoConsume {
			continue
		}
		mine := model.UpTo(int(g.First + g.Count)).Minus(model.UpTo(int(g.First)))
		gone := n.OutOf(g.Name)
		gone = gone.And(mine)
		if gone.Empty() || len(g.Over) > 0 {
			continue
		}
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		out = append(out, fmt.Sprintf("%s(IDX:%s)", s, gone))
	}
	return strings.Join(out, ",")
}

// WithUnitReasons adds the reasons of single units to the node's own, for the list of reasons.
func WithUnitReasons(i *proto.NodeInfo) *proto.NodeInfo {
	out := OutUnits(i.Node, "")
	if len(out) == 0 {
		return i
	}
	n := *i.Node
	var words []string
	if n.Reason != "" {
		words = append(words, n.Reason)
	} else {
		n.ReasonBy, n.ReasonAt = out[0].By, out[0].At
	}
	for _, o := range out {
		words = append(words, fmt.Sprintf("%s %d: %s", o.Name, o.Index, o.Reason))
	}
	n.Reason = strings.Join(words, "; ")
	with := *i
	with.Node = &n
	return &with
}
