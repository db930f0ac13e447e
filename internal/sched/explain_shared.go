package sched

import (
	"fmt"

	"gbatch/internal/model"
)

// asleep says why a job is suspended and when it goes on.
func (x *explainer) asleep() string {
	j := x.j
	text := fmt.Sprintf("It has been suspended since %s on %s", at(j.Run.SleepAt), names(j.Run.Alloc.NodeNames()))
	switch j.Run.Sleep {
	case model.SleepsByAdmin:
		return text + fmt.Sprintf(", by an operator: gcontrol resume %d lets it go on.", j.ID)
	case model.SleepsInTurn:
		return text + fmt.Sprintf(": it shares CPUs and takes turns of %d s with %s (PreemptMode=GANG); it goes on when its turn comes.",
			max(x.v.Config().Params.Preempt.SliceS, minSliceS), x.sharers())
	}
	p := x.p
	p.sync(x.v, x.now, x.pol)
	back, ids := p.backAt(j)
	switch {
	case len(ids) == 0:
		return text + "; its CPUs are free again, and it goes on with the next scheduling pass."
	case back >= x.now.Add(unlimitedS/2):
		text += fmt.Sprintf(": %s its CPUs, without a time limit", x.haveThem(ids))
	default:
		text += fmt.Sprintf(": %s its CPUs, until %s at the latest", x.haveThem(ids), at(back))
	}
	return text + "; it keeps its memory and GPUs, and its time limit stands still meanwhile."
}

func (x *explainer) haveThem(ids []model.JobID) string {
	if len(ids) == 1 {
		return x.jobList(ids, 1) + " has"
	}
	return x.jobList(ids[:min(len(ids), maxNamed)], len(ids)) + " have"
}

// sharers names the jobs that have some of the job's CPUs.
func (x *explainer) sharers() string {
	var ids []model.JobID
	mine := map[string]model.Bits{}
	for i := range x.j.Run.Alloc.Nodes {
		na := &x.j.Run.Alloc.Nodes[i]
		mine[na.Node] = na.CPUs
	}
	x.v.Sharing(func(k *model.Job) bool {
		t := turner{j: k}
		if k.ID != x.j.ID && k.Run != nil && !t.free(mine) {
			ids = append(ids, k.ID)
		}
		return true
	})
	if len(ids) == 0 {
		return "others"
	}
	return x.jobList(ids[:min(len(ids), maxNamed)], len(ids))
}

// mixesText says on how many of the nodes that are not free now jobs run beside which this one may not: those that share their
// CPUs and those that don't are never on one node. "" where it is none.
func mixesText(sh *shape, nodes []*node) string {
	var found []string
	for _, n := range nodes {
		if n.room.busy && (sh.rq.Share > 1 && n.room.plain > 0 || sh.rq.Share <= 1 && n.room.sharers > 0) {
			found = append(found, n.def.Name)
		}
	}
	switch {
	case len(found) == 0:
		return ""
	case sh.rq.Share > 1:
		return "; it shares its CPUs (OverSubscribe), and not beside jobs that don't, which run on " + names(found)
	}
	return "; it shares no CPUs, and may not be beside jobs that do (OverSubscribe), which run on " + names(found)
}
