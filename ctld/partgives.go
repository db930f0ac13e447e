package ctld

import (
	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// partGives gives lists the defaults of partitions for pending jobs that did not ask for a time limit or for memory.
// Jobs of one partition share one value.
type partGives struct {
	v     *state.View
	parts map[string]*model.Expect
}

// add gives e with the defaults of j's partition, or e itself if there are none. It doesn't change stored values.
func (g *partGives) add(j *model.Job, e *model.Expect) *model.Expect {
	sp := j.Spec
	noMem := sp.MemPerCPU == 0 && sp.MemPerNode == 0
	if j.State != model.Pending || len(sp.Partitions) == 0 || sp.LimitS != model.NotSet && !noMem {
		return e
	}
	p := g.of(sp.Partitions[0])
	switch {
	case p == nil:
		return e
	case e != nil:
		with := *e
		with.LimitS, with.MemPerCPU, with.MemPerNode = p.LimitS, p.MemPerCPU, p.MemPerNode
		return &with
	}
	return p
}

func (g *partGives) of(name string) *model.Expect {
	if e, ok := g.parts[name]; ok {
		return e
	}
	if g.parts == nil {
		g.parts = map[string]*model.Expect{}
	}
	p := g.v.Partition(name)
	if p == nil {
		g.parts[name] = nil
		return nil
	}
	e := &model.Expect{LimitS: p.DefTimeS}
	if e.LimitS == model.NotSet {
		e.LimitS = p.MaxTimeS
	}
	rules := ask.RulesOf(p, &g.v.Config().Params)
	e.MemPerCPU, e.MemPerNode = rules.DefMemPerCPU, rules.DefMemPerNode
	g.parts[name] = e
	return e
}
