package noded

import (
	"time"

	"gbatch/internal/model"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/ports"
)

// rules.go keeps the cluster's rules for this node. The leader sends them at registration and after each reconfigure,
// so the node's own file need not have them. That file is used until a leader has sent rules, and with a leader of an
// older version, which sends only a part.

// rulesOfFile gives the rules of this host's own file.
func rulesOfFile(o *Options) *model.NodeRules {
	if o.Config == nil {
		return &model.NodeRules{GPUForeign: gpuwatch.Avoid, GPUSampleS: int64(gpuwatch.Every / time.Second)}
	}
	r := o.Config.NodeRules()
	return &r
}

// configured gives the rules in force, never nil.
func (n *Noded) configured() *model.NodeRules {
	if r := n.rules.Load(); r != nil && r.GPUForeign != "" {
		return r
	}
	return n.ownRules
}

// mpi gives MpiDefault and the ports of MpiParams. A leader of an older version tells neither.
func (n *Noded) mpi() (kind string, all ports.Range) {
	switch r := n.configured(); {
	case r.MPI != "":
		return r.MPI, ports.Range{r.FirstPort, r.LastPort}
	case n.opts.Config != nil:
		return n.opts.Config.MpiDefault, n.opts.Config.MpiPorts
	}
	return "", all
}

// takeRules puts a leader's rules into force, also for running attempts.
func (n *Noded) takeRules(r *model.NodeRules) {
	n.rules.Store(r)
	n.followRules()
	n.paceAnew()
}

// paceAnew has the session look how often heartbeats are due.
func (n *Noded) paceAnew() {
	select {
	case n.paced <- struct{}{}:
	default: // the session is about to look
	}
}

func (n *Noded) followRules() {
	r := n.configured()
	n.sampler.setEvery(time.Duration(r.SampleS) * time.Second)
	n.gpus.SetEvery(n.gpuEvery(r))
	n.gpuHealth.Follow(n.foreignPolicy(r), float64(r.GPUForeignPct))
}

// gpuEvery gives the time between readings of the GPUs: as often as jobs are sampled, where that is more often than
// GpuSampleInterval.
func (n *Noded) gpuEvery(r *model.NodeRules) time.Duration {
	if n.opts.GPUEvery > 0 {
		return n.opts.GPUEvery
	}
	every := time.Duration(r.GPUSampleS) * time.Second
	if jobs := time.Duration(r.SampleS) * time.Second; jobs > 0 && (every == 0 || jobs < every) {
		return jobs
	}
	return every
}

// heartbeatPace gives the time between heartbeats. A leader of an older version says it in its Welcome only.
func (n *Noded) heartbeatPace(welcome time.Duration) time.Duration {
	if r := n.rules.Load(); r != nil && r.HeartbeatS > 0 {
		welcome = max(time.Duration(r.HeartbeatS)*time.Second, minHeartbeat)
	}
	return n.fence.Pace(welcome)
}
