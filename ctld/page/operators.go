package page

import (
	"cmp"
	"fmt"
	"slices"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// outLine is a node, or a unit of one, that jobs don't get.
type outLine struct {
	Node, What, State, Why, By, Gres string
	Since                            model.Time
	Jobs                             int
}

// cycleLine is one kind of planning.
type cycleLine struct {
	Name                string
	Last, Mean, Most    string
	Count, Queue, Depth int64
	At                  model.Time
}

// operatorsView is the view.
type operatorsView struct {
	Out         []outLine
	OutMore     bool
	Controllers proto.ControllersReply
	Ping        proto.PingReply
	Diag        proto.DiagReply
	Cycles      []cycleLine
	Waste       []*wasteLine
	WasteMore   bool            // there are more idle GPUs than were looked at
	idle        map[unitOf]bool // GPUs that do next to nothing
	Hidden      []string
	May         bool // take nodes out of service, and back
}

// operators shows what somebody has to look after.
func operators(q *request) (any, error) {
	v := &operatorsView{May: q.operates()}
	for _, step := range []func(*operatorsView) error{q.outOfService, q.daemons, q.cycles, q.waste} {
		if err := step(v); err != nil {
			v.Hidden = append(v.Hidden, env.Text(err))
		}
	}
	return v, nil
}

func (q *request) outOfService(v *operatorsView) error {
	add := func(l outLine) {
		if v.OutMore = len(v.Out) >= maxRows; !v.OutMore {
			v.Out = append(v.Out, l)
		}
	}
	v.idle = map[unitOf]bool{}
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		n := i.Node
		for k := range i.Readings {
			if r := &i.Readings[k]; r.Name == model.GPUName && !r.Lost && r.UtilPct >= 0 && r.UtilPct < model.IdleGPUPct {
				v.idle[unitOf{n.Def.Name, r.Index}] = true
			}
		}
		if !n.Usable() || n.Problem != "" {
			l := outLine{Node: n.Def.Name, What: "node", State: jobtext.NodeStateText(i), By: n.ReasonBy, Since: n.ReasonAt,
				Why: cmp.Or(n.Reason, n.Problem), Jobs: len(n.Jobs)}
			if l.Since == 0 {
				l.Since = n.LinkAt
			}
			add(l)
		}
		for _, u := range jobtext.OutUnits(n, "") {
			add(outLine{Node: n.Def.Name, What: fmt.Sprintf("%s %d", u.Name, u.Index), State: "out", Why: u.Reason, By: u.By,
				Since: u.At, Gres: fmt.Sprintf("%s:%d", u.Name, u.Index)})
		}
	})
	slices.SortStableFunc(v.Out, func(a, b outLine) int { return cmp.Compare(b.Since, a.Since) })
	return err
}

func (q *request) daemons(v *operatorsView) error {
	if err := q.ask(proto.KindControllers, &proto.Empty{}, &v.Controllers); err != nil {
		return err
	}
	return q.ask(proto.KindPing, &proto.Empty{}, &v.Ping)
}

func (q *request) cycles(v *operatorsView) error {
	if err := q.ask(proto.KindDiag, &proto.Empty{}, &v.Diag); err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		p    *proto.DiagPass
	}{{"Main", &v.Diag.Main}, {"Backfill", &v.Diag.Backfill}} {
		ms := func(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
		v.Cycles = append(v.Cycles, cycleLine{Name: x.name, Last: ms(x.p.LastUS), Most: ms(x.p.MaxUS),
			Mean: ms(x.p.SumUS / max(1, x.p.Count)), Count: x.p.Count, Queue: x.p.QueueLast, Depth: x.p.DepthLast, At: x.p.At})
	}
	return nil
}
