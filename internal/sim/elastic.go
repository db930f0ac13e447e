package sim

import (
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Elastic jobs (--elastic-share, --elastic-segment). A share of the jobs on whole nodes, drawn with the seed, may have
// from half to twice as many as the trace says, and give back what others ask for at once. Their work is the trace's:
// with twice the nodes a job runs half as long. That is the best case; what a program loses by being resized is not in
// a trace.

// ElasticUse counts what elastic jobs did.
type ElasticUse struct {
	Jobs   int     `json:"jobs"`
	Grown  int     `json:"grown"`  // times that a running job got nodes
	Shrunk int     `json:"shrunk"` // times that one gave nodes back
	Nodes  float64 `json:"nodes"`  // mean number of nodes over the number in the trace, by time
}

// elastics are a replay's elastic jobs.
type elastics struct {
	ElasticUse
	share float64
	seed  uint64
	cpus  int32              // of each node; 0: nodes differ
	of    map[int32]*stretch // by place in the workload
	had   float64            // node-seconds of all
	asked float64            // node-seconds that the trace's numbers would have had in that time
}

// stretch is the work of one elastic job.
type stretch struct {
	own   int32   // nodes in the trace
	size  int     // nodes that it has now
	left  float64 // node-seconds
	since int64   // second up to which left is right
	sleep bool
}

// eachCPUs gives the CPUs of each node, where all have as many; 0: they don't, or the machine is one pool.
func (m *Machine) eachCPUs() int32 {
	cpus := m.Config.Nodes[0].CPUs
	if m.Pool || slices.ContainsFunc(m.Config.Nodes, func(d *model.NodeDef) bool { return d.CPUs != cpus }) {
		return 0
	}
	return cpus
}

// wholeNodes gives how many nodes of a machine with so many CPUs each a job fills exactly; 0: it doesn't.
func (m *Machine) wholeNodes(j *Job, cpus int32) int32 {
	gpus := int32(m.gpus)
	switch {
	case cpus == 0:
		return 0
	case j.GPUs > 0 && gpus > 0 && j.GPUs%gpus == 0 && (j.Nodes == 0 || j.Nodes == j.GPUs/gpus) &&
		j.CPUs%(j.GPUs/gpus) == 0:
		return j.GPUs / gpus
	case j.GPUs == 0 && j.CPUs%cpus == 0 && (j.Nodes == 0 || j.Nodes == j.CPUs/cpus):
		return j.CPUs / cpus
	}
	return 0
}

// draw says whether a job is elastic: of how many nodes, or 0.
func (e *elastics) draw(m *Machine, j *Job) int32 {
	if e.share <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendUint(strconv.AppendInt(nil, j.ID, 10), e.seed, 36)) // it never fails
	if float64(h.Sum64()>>11)/(1<<53) >= e.share {
		return 0
	}
	return m.wholeNodes(j, e.cpus)
}

// stretched makes a specification on whole nodes an elastic one.
func (s *specs) stretched(sp *model.Spec, j *Job, nodes int32) {
	least := (nodes + 1) / 2
	sp.MinNodes, sp.MaxNodes = least, least
	sp.Tasks, sp.CPUsPerTask, sp.TasksPerNode = 0, 1, s.m.Config.Nodes[0].CPUs
	if j.GPUs > 0 {
		sp.TasksPerNode = max(j.CPUs/nodes, 1)
		sp.Gres = []model.GresReq{{Name: model.GPUName, Type: sp.Gres[0].Type, Count: j.GPUs / nodes, Per: model.PerNode}}
	}
	sp.LimitS = min(sp.LimitS*int64(nodes)/int64(least)+1, model.Unlimited-1) // it may have the least all the time
	sp.More = &model.Needs{Elastic: &model.Elastic{Max: min(2*nodes, int32(len(s.m.Config.Nodes)))}}
	if n := s.segment; n > 0 && nodes >= n { // whole segments
		least = (least + n - 1) / n * n
		sp.MinNodes, sp.MaxNodes, sp.More.Segment = least, least, n
		sp.More.Elastic.Max = max(least, sp.More.Elastic.Max/n*n)
	}
}

// hasBlocks reports whether jobs of all partitions are placed by blocks.
func (m *Machine) hasBlocks() bool {
	nets := m.Config.Networks()
	return !slices.ContainsFunc(m.Config.Partitions, func(p *model.Partition) bool {
		return nets[m.Config.NetworkOf(p)].Blocks == nil
	})
}

// began notes the start of an elastic job with some nodes, and gives the seconds that it would run with them.
func (e *elastics) began(k int32, j *Job, own int32, size int, at int64) int64 {
	e.Jobs++
	e.of[k] = &stretch{own: own, size: size, left: float64(own) * float64(j.Run), since: at}
	return e.of[k].seconds()
}

func (s *stretch) seconds() int64 { return int64(math.Ceil(s.left / float64(s.size))) }

// upTo counts what was done until a moment.
func (e *elastics) upTo(s *stretch, at int64) {
	if !s.sleep {
		t := float64(at - s.since)
		s.left = max(0, s.left-t*float64(s.size))
		e.had, e.asked = e.had+t*float64(s.size), e.asked+t*float64(s.own)
	}
	s.since = at
}

// resized follows the sizes of elastic jobs that a plan has changed, and reports whether any gave nodes back.
func (r *replay) resized(plan *model.Plan, at int64) (room bool) {
	follow := func(id model.JobID) int {
		k := r.begun[id]
		s, j := r.elastic.of[k], r.st.Peek().Job(id)
		if s == nil || j == nil || j.Run == nil || j.State != model.Running || len(j.Run.Alloc.Nodes) == s.size {
			return 0
		}
		e, ok := r.ends.take(id)
		if !ok {
			return 0
		}
		more := len(j.Run.Alloc.Nodes) - s.size
		before := r.holds(k)
		r.elastic.upTo(s, at)
		s.size += more
		r.busy += r.holds(k) - before
		if !e.killed {
			e.at = at + s.seconds()
		}
		r.ends.push(e)
		return more
	}
	for i := range plan.Grow {
		if follow(plan.Grow[i].Job) > 0 {
			r.elastic.Grown++
		}
	}
	for i := range plan.Ask {
		a := &plan.Ask[i]
		r.apply(at, &state.Resize{Job: a.Job, Attempt: a.Attempt, Agree: true}) // refused where there was no grace
		if follow(a.Job) < 0 {
			r.elastic.Shrunk++
			room = true
		}
	}
	return room
}

// holds gives the units that a running job has.
func (r *replay) holds(k int32) int64 {
	units := r.unitsOf(&r.Work.Jobs[k])
	if s := r.elastic.of[k]; s != nil {
		return units / int64(s.own) * int64(s.size)
	}
	return units
}

// over forgets an elastic job that has ended, or was ended to begin anew.
func (e *elastics) over(k int32, at int64) {
	if s := e.of[k]; s != nil {
		e.upTo(s, at)
		delete(e.of, k)
	}
}

func (e *elastics) result() *ElasticUse {
	if e.share <= 0 {
		return nil
	}
	u := e.ElasticUse
	if e.asked > 0 {
		u.Nodes = e.had / e.asked
	}
	return &u
}
