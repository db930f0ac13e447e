package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Filled is the result of Fill: how full the machine was when its jobs had requested all of it.
type Filled struct {
	Machine   string  `json:"machine"`
	Scheduler string  `json:"scheduler"`
	Seed      uint64  `json:"seed"`
	GPUs      int     `json:"gpus"`
	Jobs      int     `json:"jobs"`      // drawn
	Placed    int     `json:"placed"`    // of them
	Demand    int     `json:"demand"`    // GPUs that they asked for
	Allocated int     `json:"allocated"` // GPUs that they got
	Share     float64 `json:"allocated_share"`
	Shared    int     `json:"shared_in_trace"` // placed jobs that share a GPU
}

// maxFill is the most jobs drawn.
const maxFill = 2_000_000

// Fill draws jobs from a workload at random, with repetition, and submits one after the other to a machine on which no
// job ends, until they have requested as many GPUs as it has. A job without a place is removed. The final share of
// allocated GPUs shows how little the placement fragments the machine.
//
// Source: Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
// USENIX ATC 2023, section 6.2. Jobs that share a GPU in the trace do so here, in hundredths. CPUs are whole ones.
func Fill(ctx context.Context, s Setup, seed uint64) (*Filled, error) {
	if slices.ContainsFunc(s.Work.Jobs, func(j Job) bool { return j.Milli > 0 }) {
		s.Machine = s.Machine.shared()
	}
	r := &replay{Outcome: &Outcome{Setup: s}, st: state.New(), specs: newSpecs(s.Machine), base: defaultEpoch}
	r.specs.shares = true
	f := &Filled{Machine: s.Machine.Text, Scheduler: s.Scheduler.Name, Seed: seed}
	_, f.GPUs = s.Machine.units()
	if f.GPUs == 0 {
		return nil, errors.New("--fill: the machine has no GPUs: give --gpus-per-node, or a trace that names its nodes")
	}
	wants, demand, allocated := 0, int64(0), int64(0) // the last two in thousandths of a GPU
	for i := range s.Work.Jobs {
		wants += int(s.Work.Jobs[i].GPUs)
	}
	if wants == 0 {
		return nil, errors.New("--fill: no job of the trace asks for GPUs")
	}
	r.boot(0)
	plan := s.Scheduler.New()
	rng := rand.New(rand.NewPCG(seed, 0x66696c6c))
	for at := int64(1); demand < int64(f.GPUs)*wholeGPU; at++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.Jobs >= maxFill {
			return nil, fmt.Errorf("--fill: %d jobs have asked for %d of %d GPUs only", f.Jobs, f.Demand, f.GPUs)
		}
		j := s.Work.Jobs[rng.IntN(len(s.Work.Jobs))]
		j.Request = model.Unlimited - 1
		f.Jobs++
		milli := int64(j.GPUs) * wholeGPU
		if j.GPUs == 1 && j.Milli > 0 {
			milli = int64(j.Milli)
		}
		demand += milli
		f.Demand = int(demand / wholeGPU)
		if s.Progress != nil && f.Jobs%progressEvery == 0 {
			s.Progress(min(f.Demand, f.GPUs), f.GPUs)
		}
		sp := r.specs.of(&j, 0)
		if r.impossible(sp) != "" {
			continue
		}
		id := r.apply(at, &state.Submit{Spec: sp, Priority: 1}).Job
		p := plan.Plan(r.st.Peek(), r.time(at))
		p.Reasons = nil
		started := false
		if len(p.Starts) > 0 {
			for _, refusal := range r.apply(at, &state.Starts{Epoch: 1, Plan: p}).Each {
				started = refusal == state.OK
			}
		}
		if !started {
			r.apply(at, &state.Stop{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}, Event: model.EvCancel})
			continue
		}
		f.Placed++
		allocated += milli
		if j.Milli > 0 {
			f.Shared++
		}
		if f.Jobs%sweepEvery == 0 {
			r.apply(at, &state.Trim{Seq: 1<<64 - 1})
			r.apply(at, &state.Tick{})
		}
	}
	f.Allocated = int(allocated / wholeGPU)
	f.Share = float64(allocated) / float64(f.GPUs*wholeGPU)
	return f, nil
}

// fill is `gbatch sim --fill`.
func fill(ctx context.Context, o *Options, w *Workload) error {
	s, err := o.setup(w, o.Conf, o.Scheduler)
	if err != nil {
		return err
	}
	if o.Scheduler == "" { // nothing waits, so nothing has to be predicted
		s.Scheduler = Weighed()
	}
	bar := newBar(o.Err, "fill")
	s.Progress = bar.show
	f, err := Fill(ctx, s, o.Seed)
	bar.clear()
	if err != nil {
		return err
	}
	if o.JSON {
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(f)
	}
	fmt.Fprintf(o.Out, "%s, filled on %s\n\n", w.Name, f.Machine)
	fmt.Fprintf(o.Out, "  %s jobs asked for %s GPUs, %s were placed\n", group(int64(f.Jobs)), group(int64(f.Demand)),
		group(int64(f.Placed)))
	fmt.Fprintf(o.Out, "  %.2f %% of %s GPUs are allocated\n", f.Share*100, group(int64(f.GPUs)))
	if f.Shared > 0 {
		fmt.Fprintf(o.Out, "  %s of the jobs placed share a GPU\n",
			group(int64(f.Shared)))
	}
	return nil
}
