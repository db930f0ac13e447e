package peaks

import (
	"cmp"
	"slices"
	"sync"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	lastJobs = 8       // of a user and name that count
	maxNames = 1 << 14 // users' names of jobs that are remembered
)

// Peaks is what is known. It is safe for concurrent use.
type Peaks struct {
	mu     sync.Mutex
	cursor state.Cursor
	jobs   map[name][]peak
	order  []name // as they were first seen; the oldest makes room
}

type name struct {
	uid  uint32
	name string
}

// peak is what one run of a job needed.
type peak struct {
	job     model.JobID
	attempt uint32
	mib     int64
}

// New gives an empty one.
func New() *Peaks { return &Peaks{jobs: map[name][]peak{}} }

// Of gives the memory that a job of a user with this name is likely to need of each GPU, MiB; 0: nothing is known.
func (p *Peaks) Of(v *state.View, uid uint32, job string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh(v)
	most := int64(0)
	for _, x := range p.jobs[name{uid, job}] {
		most = max(most, x.mib)
	}
	return model.MoreGPUMem(most)
}

// refresh learns from the jobs that have ended since the last view.
func (p *Peaks) refresh(v *state.View) {
	changes, next, known := v.Changes(p.cursor)
	p.cursor = next
	if known {
		for _, c := range changes {
			if j := v.Job(c.Job); c.Job != 0 && j != nil {
				p.learnJob(v, j)
			}
		}
		return
	}
	var ended []*model.Job
	v.Jobs(func(j *model.Job) bool {
		if j.End != nil {
			ended = append(ended, j)
		}
		return true
	})
	slices.SortFunc(ended, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(a.End.At, b.End.At), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range ended {
		p.learnJob(v, j)
	}
}

func (p *Peaks) learnJob(v *state.View, j *model.Job) {
	if j.End == nil || j.Run == nil || j.Run.Alloc == nil {
		return
	}
	_, _, gres := j.Run.Alloc.Totals()
	had := max(j.Spec.Extra().GPUMemMiB, v.GPUMem(j))
	p.learn(name{j.Spec.UID, j.Spec.Name}, peak{j.ID, j.Attempt, needed(&j.End.Exit, gres, had)})
}

// Recall learns from records, the oldest first.
func (p *Peaks) Recall(list []Old) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range list {
		p.learn(o.name, o.peak)
	}
}

// Old is what a record tells.
type Old struct {
	name name
	peak peak
}

// OfRecord gives what a record tells; ok is false if that is nothing. The memory of whole GPUs is what its nodes have
// now.
func OfRecord(v *state.View, r *model.Record) (Old, bool) {
	had := int64(0)
	if r.Asked != nil {
		had = r.Asked.GPUMemMiB
	}
	if r.Exit.GPUOOM {
		had = max(had, wholeMem(v, r))
	}
	mib := needed(&r.Exit, r.AllocGres, had)
	return Old{name{r.UID, r.Name}, peak{r.Job, r.Attempt, mib}}, mib > 0
}

// wholeMem gives the memory of the smallest GPU of those that a run could have had for itself, MiB; 0: it had none, or
// that is not known any more.
func wholeMem(v *state.View, r *model.Record) (least int64) {
	names, err := hostlist.Expand(r.Nodes)
	if err != nil {
		return 0
	}
	for _, g := range r.AllocGres {
		for _, name := range names {
			n := v.Node(name)
			if g.Name != model.GPUName || n == nil {
				continue
			}
			for i := range n.Def.Gres {
				d := &n.Def.Gres[i]
				if d.Name == g.Name && (g.Type == "" || d.Type == g.Type) && d.MemMiB > 0 && (least == 0 || d.MemMiB < least) {
					least = d.MemMiB
				}
			}
		}
	}
	return least
}

// needed gives the most memory that a run needed of one GPU: what its own processes used there at most or, if the GPU
// was its alone, what was in use. A run that was short of memory needed more than it had. 0: not known.
func needed(x *model.Exit, gres []model.GresCount, had int64) int64 {
	shared := slices.ContainsFunc(gres, func(g model.GresCount) bool { return model.IsShare(g.Name) })
	most := int64(0)
	if x.GPUOOM {
		most = had
	}
	if x.Use == nil {
		return most
	}
	for i := range x.Use.Nodes {
		for k := range x.Use.Nodes[i].GPUs {
			g := &x.Use.Nodes[i].GPUs[k]
			most = max(most, g.OwnMaxMiB)
			if g.OwnMaxMiB <= 0 && !shared {
				most = max(most, g.MemMaxMiB)
			}
			if x.GPUOOM && !shared {
				most = max(most, g.MemMiB)
			}
		}
	}
	return most
}

func (p *Peaks) learn(n name, x peak) {
	if x.mib <= 0 {
		return
	}
	list, seen := p.jobs[n]
	if slices.ContainsFunc(list, func(o peak) bool { return o.job == x.job && o.attempt == x.attempt }) {
		return
	}
	if !seen {
		if len(p.order) >= maxNames {
			delete(p.jobs, p.order[0])
			p.order = p.order[1:]
		}
		p.order = append(p.order, n)
	}
	if list = append(list, x); len(list) > lastJobs {
		list = list[len(list)-lastJobs:]
	}
	p.jobs[n] = list
}
