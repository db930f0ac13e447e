package multifactor

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Order gives the priorities of all jobs at one moment. It is a sched.Order. Only one goroutine may use it at a time.
type Order struct {
	epoch  uint64
	gen    uint64
	now    model.Time
	conf   *model.Priority
	cfg    *model.Config
	tree   *Tree
	totals *totals
	qos    map[string]qosClass
	assoc  float64 // the highest priority of an association
	part   float64 // the highest PriorityJobFactor
	floor  map[floorKey]uint32

	// The last partition that was looked up: callers go through the queues one by one.
	last *model.Partition
	have []float64 // its totals

	ruled *model.Partition // the partition of rules
	rules model.AskRules
}

// qosClass is the priority of a QOS.
type qosClass struct {
	raw  float64
	norm float64
	rank uint32 // from the lowest; equal priorities have the same rank
}

// totals is the capacity of the cluster: it changes with the configuration only.
type totals struct {
	cpus  float64
	nodes float64
	parts map[string][]float64 // each partition's amount of each weighted TRES
	kinds []kind               // the weighted TRES
}

// kind is the name of a TRES, parsed.
type kind struct{ tres, gres, typ, license string }

type floorKey struct {
	job  model.JobID
	part string
}

// Factors are the parts of a job's priority. Those that end in N are normalized, 0 to 1 unless a NO_NORMAL flag is set;
// the others are already multiplied by their weights.
type Factors struct {
	AgeN, AssocN, FairShareN, JobSizeN, PartitionN, QOSN float64
	TRESN                                                []float64 // one for each weight, in its order
	Age, Assoc, FairShare, JobSize, Partition, QOS       float64
	TRES                                                 []float64
	Site, Nice                                           int64
	Priority                                             uint32
}

// Highest is the highest priority that is computed.
const Highest = 1<<32 - 2

// New makes an Order from the shares, usage and totals at one moment. prev is the order that it follows, or nil.
//
// With PriorityFlags=INCR_ONLY, no pending job gets a lower priority than prev gave it. Only with that flag does New
// look at every pending job.
func New(v *state.View, now model.Time, prev *Order) *Order {
	cfg := v.Config()
	o := &Order{epoch: 1, gen: v.Gen(), now: now, cfg: cfg, conf: &cfg.Params.Priority}
	var old *Tree
	if prev != nil {
		o.epoch, old = prev.epoch+1, prev.tree
	}
	o.tree = NewTree(v, now, old)
	if prev != nil && prev.cfg == cfg {
		o.totals = prev.totals
	} else {
		o.totals = totalsOf(cfg)
	}
	o.classes(v)
	for i := range o.tree.worth {
		o.assoc = max(o.assoc, o.tree.worth[i].prio)
	}
	for _, p := range cfg.Partitions {
		o.part = max(o.part, float64(p.PriorityJobFactor))
	}
	if o.conf.Flags&model.PrioIncrOnly != 0 && prev != nil {
		o.raise(v, prev)
	}
	return o
}

func (o *Order) classes(v *state.View) {
	o.qos = map[string]qosClass{}
	var ladder []uint32
	v.AllQOS(func(q *model.QOS) bool { ladder = append(ladder, q.Priority); return true })
	slices.Sort(ladder)
	ladder = slices.Compact(ladder)
	top := 0.0
	if len(ladder) > 0 {
		top = float64(ladder[len(ladder)-1])
	}
	v.AllQOS(func(q *model.QOS) bool {
		rank, _ := slices.BinarySearch(ladder, q.Priority)
		c := qosClass{raw: float64(q.Priority), rank: uint32(rank)}
		if top > 0 {
			c.norm = c.raw / top
		}
		o.qos[q.Name] = c
		return true
	})
}

func totalsOf(cfg *model.Config) *totals {
	t := &totals{parts: map[string][]float64{}}
	defs := make(map[string]*model.NodeDef, len(cfg.Nodes))
	for _, n := range cfg.Nodes {
		t.cpus += float64(n.CPUs)
		t.nodes++
		defs[n.Name] = n
	}
	weights := cfg.Params.Priority.WeightTRES
	if len(weights) == 0 {
		return t
	}
	for i := range weights {
		k := kind{tres: weights[i].TRES}
		k.gres, k.typ, _ = model.TRESGres(k.tres)
		k.license, _ = model.TRESLicense(k.tres)
		t.kinds = append(t.kinds, k)
	}
	for _, p := range cfg.Partitions {
		var have []model.TRESCount
		for _, name := range p.Nodes {
			if d := defs[name]; d != nil {
				have = model.AddNodeTRES(have, d)
			}
		}
		for _, l := range cfg.Licenses { // every partition's jobs may take them
			have = model.AddTRES(have, model.LicenseTRES(l.Name), l.Count)
		}
		rules := ask.RulesOf(p, &cfg.Params)
		have = model.AddTRES(have, "billing", ask.Bill(have, &rules))
		counts := make([]float64, len(weights))
		for i := range weights {
			counts[i] = float64(model.CountTRES(have, weights[i].TRES))
		}
		t.parts[p.Name] = counts
	}
	return t
}

// raise keeps priorities from falling below those of prev.
func (o *Order) raise(v *state.View, prev *Order) {
	floor := map[floorKey]uint32{}
	for _, part := range v.Config().Partitions {
		v.Ready(part.Name, func(j *model.Job) bool {
			if prio := uint32(prev.Priority(j, part)); prio > 0 && !j.Direct {
				floor[floorKey{j.ID, part.Name}] = prio
			}
			return true
		})
	}
	o.floor = floor
}

// Reader gives a copy of the order for another goroutine.
func (o *Order) Reader() *Order {
	n := *o
	n.last, n.have = nil, nil
	return &n
}

// Of gives a job's priority: the highest in any of its partitions or, once it runs, the one in the partition where it
// runs.
func (o *Order) Of(v *state.View, j *model.Job) uint32 {
	if fixed, ok := o.fixed(j); ok {
		return fixed
	}
	best := uint64(0)
	for _, name := range j.Spec.Partitions {
		p := v.Partition(name)
		if p == nil || j.Run != nil && name != j.Run.Partition {
			continue
		}
		best = max(best, o.Priority(j, p))
	}
	return uint32(best)
}

// Made reports whether the order was made from the accounts and the configuration that v has.
func (o *Order) Made(v *state.View) bool { return o.cfg == v.Config() && o.tree.gen == v.AcctGen() }

// Epoch grows with every New.
func (o *Order) Epoch() uint64 { return o.epoch }

// At gives the moment of the order.
func (o *Order) At() model.Time { return o.now }

// Tree gives the shares at that moment.
func (o *Order) Tree() *Tree { return o.tree }

// Priority gives a job's priority in one of its partitions: 0 for a held job, otherwise the priority that was set by
// hand, or a computed one of at least 1.
func (o *Order) Priority(j *model.Job, part *model.Partition) uint64 {
	if fixed, ok := o.fixed(j); ok {
		return uint64(fixed)
	}
	var f Factors
	o.weigh(j, part, &f, false)
	return uint64(f.Priority)
}

// Factors gives the parts of a job's priority in a partition. A priority that was set by hand has none.
func (o *Order) Factors(j *model.Job, part *model.Partition) Factors {
	f := Factors{Site: int64(j.Site), Nice: int64(j.Spec.Nice)}
	o.weigh(j, part, &f, true)
	if fixed, ok := o.fixed(j); ok {
		if f.Priority = fixed; j.Direct || fixed == 0 || o.conf.InOrder() {
			return Factors{Priority: fixed}
		}
	}
	return f
}

// fixed gives a priority that is not computed.
func (o *Order) fixed(j *model.Job) (uint32, bool) {
	switch {
	case j.State == model.Pending && j.Hold != model.NotHeld:
		return 0, true
	case !j.Direct && o.conf.InOrder():
		return arrival(j), true
	case j.Direct, !o.conf.Weighted():
		return j.Priority, true
	case j.State != model.Pending && o.conf.Flags&model.PrioCalculateRunning == 0 && j.Run != nil && j.Run.Priority != 0:
		return j.Run.Priority, true
	}
	return 0, false
}

// firstArrival is above the priority of the first job with priority/basic.
const firstArrival = 4294901760

// arrival is a job's priority with priority/basic: each job's is one less than that of the job before it, so that a
// nice value of 10 puts it behind the next ten, as in Slurm. The tasks of an array have the same one.
func arrival(j *model.Job) uint32 {
	n := firstArrival - int64(cmp.Or(j.ArrayID, j.ID)) - int64(j.Spec.Nice)
	return uint32(min(max(n, 1), math.MaxUint32-2))
}

// weigh computes the factors. It lists the TRES factors one by one only if keep is set, because that allocates.
func (o *Order) weigh(j *model.Job, part *model.Partition, f *Factors, keep bool) {
	c, sp := o.conf, j.Spec
	var q qosClass
	if c.WeightQOS > 0 || c.Flags&model.PrioStrictQOS != 0 {
		q = o.qos[sp.QOS]
	}
	row := -1
	if c.WeightAssoc > 0 || c.WeightFairShare > 0 {
		row = o.tree.Row(sp.Account, sp.User, part.Name)
	}
	var need jobSize
	if c.WeightJobSize > 0 || len(c.WeightTRES) > 0 {
		need = o.sizeOf(j, part)
	}
	sum := float64(j.Site)
	if c.WeightAge > 0 {
		f.AgeN = o.age(j)
		f.Age = f.AgeN * float64(c.WeightAge)
		sum += f.Age
	}
	if c.WeightAssoc > 0 && o.assoc > 0 {
		if row < 0 {
			row = o.tree.Row(sp.Account, "", "")
		}
		if row >= 0 {
			f.AssocN = o.tree.worth[row].prio
		}
		if c.Flags&model.PrioNoNormalAssoc == 0 {
			f.AssocN /= o.assoc
		}
		f.Assoc = f.AssocN * float64(c.WeightAssoc)
		sum += f.Assoc
	}
	if c.WeightFairShare > 0 {
		if row >= 0 {
			f.FairShareN = o.tree.worth[row].fair
		} else {
			f.FairShareN = o.tree.newcomer(sp.Account)
		}
		f.FairShare = f.FairShareN * float64(c.WeightFairShare)
		sum += f.FairShare
	}
	if c.WeightJobSize > 0 {
		f.JobSizeN = o.size(j, &need, part)
		f.JobSize = f.JobSizeN * float64(c.WeightJobSize)
		sum += f.JobSize
	}
	if c.WeightPartition > 0 {
		f.PartitionN = float64(part.PriorityJobFactor)
		if c.Flags&model.PrioNoNormalPart == 0 && o.part > 0 {
			f.PartitionN /= o.part
		}
		f.Partition = f.PartitionN * float64(c.WeightPartition)
		sum += f.Partition
	}
	if c.WeightQOS > 0 {
		f.QOSN = q.norm
		if c.Flags&model.PrioNoNormalQOS != 0 {
			f.QOSN = q.raw
		}
		f.QOS = f.QOSN * float64(c.WeightQOS)
		sum += f.QOS
	}
	if len(c.WeightTRES) > 0 && part != o.last {
		o.last, o.have = part, o.totals.parts[part.Name]
	}
	for i := range c.WeightTRES {
		n, w := o.tres(j, &need, i)
		sum += n * w
		if keep {
			f.TRESN, f.TRES = append(f.TRESN, n), append(f.TRES, n*w)
		}
	}
	sum -= float64(sp.Nice)
	f.Priority = o.bound(sum, q.rank)
	if o.floor != nil {
		f.Priority = max(f.Priority, o.floor[floorKey{j.ID, part.Name}])
	}
}

// bound makes a priority of a sum. With STRICT_QOS each class has its own band of priorities, and no other factor moves
// a job out of it.
func (o *Order) bound(sum float64, rank uint32) uint32 {
	if o.conf.Flags&model.PrioStrictQOS == 0 {
		return uint32(min(max(sum, 1), Highest))
	}
	band := uint32(Highest)
	if n := len(o.qos); n > 0 {
		band /= uint32(n)
	}
	return rank*band + uint32(min(max(sum, 1), float64(band)))
}

// age grows from 0 to 1 while a job waits for nothing but its turn.
func (o *Order) age(j *model.Job) float64 {
	from := j.AccrueTime()
	if o.conf.Flags&model.PrioAccrueAlways != 0 {
		from = j.Submit
	}
	until := o.now
	if j.Run != nil {
		until = min(until, j.Run.Start)
	}
	if from == 0 || until <= from {
		return 0
	}
	if o.conf.MaxAgeS <= 0 {
		return 1
	}
	return min(1, float64(until-from)/1000/float64(o.conf.MaxAgeS))
}

// size grows from 0 to 1 with the part of the cluster that a job takes, or falls with PriorityFavorSmall.
func (o *Order) size(j *model.Job, need *jobSize, part *model.Partition) float64 {
	if o.totals.nodes == 0 || o.totals.cpus == 0 {
		return 0
	}
	cpus, nodes := need.cpus, need.nodes
	if o.conf.Flags&model.PrioSizeRelative != 0 {
		minutes := 1.0
		if s := limitS(j, part); s < model.Unlimited {
			minutes = max(1, float64(s)/60)
		} else {
			minutes = float64(model.Unlimited) / 60
		}
		size := max(cpus, nodes*o.totals.cpus/o.totals.nodes) / minutes / o.totals.cpus
		if o.conf.FavorSmall {
			size = 1 - size
		}
		return min(max(size, 0), 1)
	}
	n, c := min(nodes/o.totals.nodes, 1), min(cpus/o.totals.cpus, 1)
	if o.conf.FavorSmall {
		n, c = 1-n, 1-c
	}
	return (n + c) / 2
}

// jobSize is what a job holds or, while it is pending, the least that it asks for.
type jobSize struct {
	cpus, nodes float64
	asked       ask.Counts // of a pending job
	size        ask.Size
}

func (o *Order) sizeOf(j *model.Job, part *model.Partition) jobSize {
	if j.Run != nil {
		n, _, _ := j.Run.Alloc.Totals()
		return jobSize{cpus: float64(n), nodes: float64(len(j.Run.Alloc.Nodes))}
	}
	if part != o.ruled {
		o.ruled, o.rules = part, ask.RulesOf(part, &o.cfg.Params)
	}
	c := ask.Of(j.Spec, &o.rules)
	size := c.Size()
	return jobSize{float64(size.CPUs), float64(size.Nodes), c, size}
}

func limitS(j *model.Job, p *model.Partition) int64 {
	if j.Run != nil {
		return j.Run.LimitS
	}
	return p.LimitS(j.Spec)
}

// tres gives a job's part of its partition's amount of one resource, and the resource's weight.
func (o *Order) tres(j *model.Job, need *jobSize, i int) (n, weight float64) {
	w := &o.conf.WeightTRES[i]
	n = amount(j, need, &o.rules, &o.totals.kinds[i])
	weight = float64(w.Micros) / float64(model.FactorOne)
	if o.conf.Flags&model.PrioNoNormalTRES != 0 {
		return n / float64(max(w.Per, 1)), weight
	}
	if i >= len(o.have) || o.have[i] == 0 {
		return 0, weight
	}
	return min(n/o.have[i], 1), weight
}

// amount gives how much of a resource a job holds or asks for.
func amount(j *model.Job, need *jobSize, rules *model.AskRules, k *kind) float64 {
	if j.Run != nil {
		if k.tres == "billing" {
			return float64(j.Run.Billing())
		}
		return float64(model.CountTRES(j.Run.TRES(), k.tres))
	}
	switch k.tres {
	case "cpu":
		return need.cpus
	case "node":
		return need.nodes
	case "mem":
		return float64(need.size.MemMiB)
	case "billing":
		all, _ := need.asked.Least()
		return float64(ask.Bill(all, rules))
	}
	if k.license != "" {
		for _, l := range need.asked.Certain() {
			if l.Name == k.license {
				return float64(l.Count)
			}
		}
	}
	if k.gres == "" {
		return 0
	}
	return float64(need.asked.UnitsOf(&need.size, k.gres, k.typ))
}
