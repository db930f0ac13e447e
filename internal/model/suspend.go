package model

import (
	"math"
	"slices"

	"gbatch/internal/wire"
)

// SleepKind says why a job is suspended, and so what resumes it. The numbers are stored: append only.
type SleepKind uint8

// The kinds. A job that is suspended for time slicing keeps its CPUs, which it shares with other jobs of its partition.
// With the other kinds the job has given its CPUs back. All keep memory, GPUs and licenses.
const (
	Awake         SleepKind = iota
	SleepsByAdmin           // gcontrol suspend: until an operator resumes it
	SleepsForRoom           // preempted, or resumed while other jobs have its CPUs: it goes on as soon as they are free
	SleepsInTurn            // time slicing: it goes on when its turn comes
)

var sleepNames = [...]string{"awake", "by admin", "for room", "in turn"}

func (k SleepKind) String() string {
	if int(k) >= len(sleepNames) {
		return "unknown"
	}
	return sleepNames[k]
}

// OffCPUs reports whether the job has given its CPUs back while it is suspended. A job that is ended while suspended
// does not get them back.
func (r *Run) OffCPUs() bool { return r.Sleep == SleepsByAdmin || r.Sleep == SleepsForRoom }

// Idles reports whether the job's time stands still: it is suspended and not being ended.
func (r *Run) Idles() bool { return r.Sleep != Awake && r.Stop == NoStop && r.Over == nil }

// SleptMS gives how long the job has been suspended up to a moment, milliseconds.
func (r *Run) SleptMS(now Time) int64 {
	if r.Idles() {
		return r.SleepMS + max(0, int64(now-r.SleepAt))
	}
	return r.SleepMS
}

// SpentBy gives what the run has used up to a moment, billing units included, in units times milliseconds.
func (r *Run) SpentBy(at Time) []TRESCount {
	ms := max(0, int64(at-r.SizedAt())-(r.SleptMS(at)-r.SizedSleepMS))
	out := slices.Clone(r.Spent)
	for _, c := range r.Alloc.TRES() {
		out = AddTRES(out, c.TRES, min(Scale(c.Count, ms, 1), maxSpent))
	}
	return AddTRES(out, "billing", min(Scale(r.Billing(), ms, 1), maxSpent))
}

// maxSpent bounds what one size adds to a run's use, so that the sum of all sizes stays in range.
const maxSpent = math.MaxInt64 / (MaxSizes + 1)

// Holds reports whether the job has its CPUs: it has resources and has not given the CPUs back.
func (j *Job) Holds() bool { return j.State.HasResources() && !j.Run.OffCPUs() }

// Turn is a decision of time slicing: jobs to suspend, and jobs to resume.
type Turn struct {
	Sleep []JobID
	Wake  []JobID
}

func (x *Turn) Wire(c *wire.C) {
	wire.Ints(c, &x.Sleep, MaxMany)
	wire.Ints(c, &x.Wake, MaxMany)
}

// CPUShare is the CPUs of a node that one partition's jobs share.
type CPUShare struct {
	Part   string
	Layers []Bits // Layers[i] has the CPUs that more than i jobs have; none is empty
}

func (x *CPUShare) Wire(c *wire.C) {
	wire.Text(c, &x.Part, MaxName)
	wire.Each(c, &x.Layers, MaxFew, func(c *wire.C, e *Bits) { wire.Ints(c, e, MaxFew) })
}

// AddShare gives the list after a job of part has got cpus, in order of partition.
func AddShare(list []CPUShare, part string, cpus Bits) []CPUShare {
	out := make([]CPUShare, 0, len(list)+1)
	done := false
	for _, s := range list {
		if !done && s.Part >= part {
			done = true
			if s.Part == part {
				s.Layers = layOn(s.Layers, cpus)
			} else {
				out = append(out, CPUShare{part, layOn(nil, cpus)})
			}
		}
		out = append(out, s)
	}
	if !done {
		out = append(out, CPUShare{part, layOn(nil, cpus)})
	}
	return out
}

// layOn adds cpus as one more user of each CPU.
func layOn(layers []Bits, cpus Bits) []Bits {
	out := make([]Bits, 0, len(layers)+1)
	for _, l := range layers {
		out = append(out, l.Or(cpus))
		cpus = cpus.And(l)
	}
	if !cpus.Empty() {
		out = append(out, cpus)
	}
	return out
}

// DropShare gives the list after a job of part has given cpus back; nil if nothing is left.
func DropShare(list []CPUShare, part string, cpus Bits) []CPUShare {
	var out []CPUShare
	for _, s := range list {
		if s.Part == part {
			layers := make([]Bits, len(s.Layers))
			for i := len(layers) - 1; i >= 0; i-- {
				top := s.Layers[i].And(cpus)
				layers[i], cpus = s.Layers[i].Minus(top), cpus.Minus(top)
			}
			for len(layers) > 0 && layers[len(layers)-1].Empty() {
				layers = layers[:len(layers)-1]
			}
			s.Layers = layers
		}
		if len(s.Layers) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// SharedCPUs gives the CPUs that jobs of any partition share.
func SharedCPUs(list []CPUShare) Bits {
	var all Bits
	for i := range list {
		all = all.Or(list[i].Layers[0])
	}
	return all
}

// AwakeJobs counts the jobs that have CPUs here.
func (n *Node) AwakeJobs() int { return len(n.Jobs) - len(n.Asleep) }

// CPUsFor reports whether a job may have these CPUs beside the jobs on the node. share is how many jobs of its
// partition may share each CPU; alone means that no other job may be on the node. Jobs that share CPUs and jobs that
// don't are never on one node, as in Slurm, and jobs of different partitions share no CPUs.
func (n *Node) CPUsFor(cpus Bits, part string, share int32, alone bool) bool {
	switch {
	case n.Exclusive != 0 || alone && n.AwakeJobs() > 0:
		return false
	case share <= 1:
		return len(n.CPUShares) == 0 && !cpus.Overlaps(n.UsedCPUs)
	}
	for _, s := range n.CPUShares {
		switch {
		case s.Part != part:
			if s.Layers[0].Overlaps(cpus) {
				return false
			}
		case len(s.Layers) >= int(share) && s.Layers[share-1].Overlaps(cpus):
			return false
		}
	}
	return SharedCPUs(n.CPUShares).Contains(n.UsedCPUs)
}

// GiveCPUs records that a job gets CPUs.
func (n *Node) GiveCPUs(id JobID, cpus Bits, run *Run) {
	n.UsedCPUs = n.UsedCPUs.Or(cpus)
	if run.Share > 1 {
		n.CPUShares = AddShare(n.CPUShares, run.Partition, cpus)
	}
	if run.Alone {
		n.Exclusive = id
	}
}

// TakeCPUs records that a job gives its CPUs back.
func (n *Node) TakeCPUs(id JobID, cpus Bits, run *Run) {
	n.UsedCPUs = n.UsedCPUs.Minus(cpus)
	if run.Share > 1 {
		n.CPUShares = DropShare(n.CPUShares, run.Partition, cpus)
		n.UsedCPUs = n.UsedCPUs.Or(SharedCPUs(n.CPUShares))
	}
	if n.Exclusive == id {
		n.Exclusive = 0
	}
}

// CPUsOf gives how many of a node's CPUs the partition's jobs can have.
func (p *Partition) CPUsOf(cpus int32) int32 {
	if p.MaxCPUsPerNode > 0 {
		cpus = min(cpus, p.MaxCPUsPerNode)
	}
	if most := int64(p.MaxCPUsPerSocket) * int64(p.NodeSockets); most > 0 {
		cpus = int32(min(int64(cpus), most))
	}
	return cpus
}

// Shared gives how many jobs of the partition may share a CPU of a job with this Spec; 1: its CPUs are its own.
func (p *Partition) Shared(sp *Spec) int32 {
	if p.ShareMax <= 1 || !p.ShareForced && (sp.More == nil || !sp.More.Share) || sp.Exclusive {
		return 1
	}
	return p.ShareMax
}
