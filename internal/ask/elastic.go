package ask

import (
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// ElasticWish is what is said of a job that grows into what is free: --elastic and the options beside it.
type ElasticWish struct {
	Text     string
	Min, Max int32
	GPUs     bool // they are counted, not nodes

	Signal    int32 // with HasSignal; 0: none
	Batch     bool
	HasSignal bool
	GraceS    int64
	HasGrace  bool
}

// elasticSignal tells a script of its nodes where the job names no signal: SIGWINCH, which nobody dies of.
const elasticSignal = 28

// Read reads MIN-MAX or gpus:MIN-MAX.
func (w *ElasticWish) Read(text string) error {
	rest, gpus := strings.CutPrefix(strings.ToLower(text), "gpus:")
	if !gpus {
		rest = strings.TrimPrefix(rest, "nodes:")
	}
	lo, hi, both := strings.Cut(rest, "-")
	least, err := strconv.ParseInt(lo, 10, 32)
	most, err2 := strconv.ParseInt(hi, 10, 32)
	if err != nil || err2 != nil || !both || least < 1 || most <= least || most > MaxCount {
		return refuse(Request, "%s: write the least and the most number of nodes, as in 2-8, or of GPUs of whole "+
			"nodes, as in gpus:16-64", text)
	}
	w.Text, w.Min, w.Max, w.GPUs = text, int32(least), int32(most), gpus
	return nil
}

// elastic makes an elastic job one of its least number of nodes that may have more.
func (d *Draft) elastic() error {
	w, sp := &d.Elastic, &d.Spec
	switch {
	case w.Max == 0 && w.HasSignal:
		return refuse(Request, "--elastic-signal is for elastic jobs: give --elastic=MIN-MAX too, or leave it out")
	case w.Max == 0 && w.HasGrace:
		return refuse(Request, "--elastic-grace is for elastic jobs: give --elastic=MIN-MAX too, or leave it out")
	case w.Max == 0:
		return nil
	case sp.Tasks > 0:
		return refuse(Request, "--ntasks=%d is a number for all nodes, and --elastic=%s changes their number: give "+
			"--ntasks-per-node instead", sp.Tasks, w.Text)
	case sp.MinNodes > 0 || sp.MaxNodes > 0:
		return refuse(Request, "--elastic=%s says how many nodes the job has: leave --nodes out", w.Text)
	}
	e := &model.Elastic{Signal: elasticSignal, Batch: true}
	least := w.Min
	if e.Max = w.Max; w.GPUs {
		each := int32(0)
		for i := range sp.Gres {
			if g := &sp.Gres[i]; g.Name == model.GPUName && g.Per == model.PerNode {
				each += g.Count
			}
		}
		switch {
		case each == 0:
			return refuse(Request, "--elastic=%s counts the GPUs of whole nodes: give --gpus-per-node=N too", w.Text)
		case w.Min%each != 0 || w.Max%each != 0:
			return refuse(Request, "--elastic=%s: each node has %d GPUs (--gpus-per-node), and nodes come and go as a whole: "+
				"write multiples of %[2]d", w.Text, each)
		}
		least, e.Max, e.GPUs = w.Min/each, w.Max/each, each
	}
	if w.HasSignal {
		e.Signal, e.Batch = w.Signal, w.Batch
	}
	if e.GraceS = w.GraceS; w.HasGrace && w.GraceS == 0 {
		e.GraceS = model.NoGrace
	}
	sp.MinNodes, sp.MaxNodes, d.More.Elastic = least, least, e
	return nil
}

// maxElasticGraceS is the longest grace, a day.
const maxElasticGraceS = 86400

// checkElastic holds that each node of an elastic job has the same part of it, so that nodes can come and go.
func checkElastic(sp *model.Spec, m *model.Needs) error {
	e := m.Elastic
	if e == nil {
		return nil
	}
	switch {
	case sp.MinNodes < 1 || sp.MaxNodes != sp.MinNodes || e.Max < sp.MinNodes || e.Max > MaxCount:
		return refuse(Request, "an elastic job has from %d to %d nodes, and is asked to start with %d to %d: its least "+
			"number is one number, below its most", sp.MinNodes, e.Max, sp.MinNodes, sp.MaxNodes)
	case sp.Tasks > 0:
		return refuse(Request, "--ntasks is a number for all nodes of an elastic job: give --ntasks-per-node instead")
	case m.Reboot:
		return refuse(Request, "--reboot is for nodes that a job begins with, and an elastic one gets more: leave one of "+
			"both out")
	case m.Contiguous || m.Spread || m.FewNodes:
		return refuse(Request, "--contiguous, --spread-job and --use-min-nodes choose all nodes together, and nodes of an "+
			"elastic job come later: leave them out; --switches=N bounds its leaf switches, --segment=N keeps N nodes in one "+
			"block")
	case m.Segment > 0 && (sp.MinNodes%m.Segment != 0 || e.Max%m.Segment != 0):
		return refuse(Request, "an elastic job of %d to %d nodes with --segment=%d: segments come and go as a whole, so "+
			"that the least and the most number of nodes are multiples of %[3]d", sp.MinNodes, e.Max, m.Segment)
	case int32(len(sp.ReqNodes)) > sp.MinNodes:
		return refuse(Request, "--nodelist names %d nodes, and the elastic job starts with %d", len(sp.ReqNodes), sp.MinNodes)
	case e.Signal < 0 || e.Signal > model.MaxSignal || e.Signal == 9 || e.Signal == 19:
		return refuse(Request, "--elastic-signal: signal %d can't tell a job anything; USR2 or another one from 1 to 64, or "+
			"NONE", e.Signal)
	case e.GraceS < model.NoGrace || e.GraceS > maxElasticGraceS:
		return refuse(Request, "--elastic-grace=%d: write seconds from 0 to %d", e.GraceS, maxElasticGraceS)
	}
	for i := range sp.Gres {
		if g := &sp.Gres[i]; g.Per == model.PerJob && (g.Count > 0 || g.Milli > 0) {
			return refuse(Request, "%s for the whole job, and an elastic job's nodes come and go: give --gpus-per-node or "+
				"--gres, which are for each node", GresText(g))
		}
	}
	for _, d := range sp.Deps {
		if d.Kind == model.DepExpand {
			return refuse(Request, "a job with --dependency=expand gives its nodes away: leave --elastic out")
		}
	}
	return nil
}
