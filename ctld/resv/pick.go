package resv

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// pick chooses the nodes or parts of nodes: the named ones, or ones that are free in time.
func (d *draft) pick() error {
	r := d.r
	whole := d.fresh && d.nodes == "" && d.count == 0 && !d.partial() // all of the partition
	if d.follows && (r.Partition == "" || !whole && !strings.EqualFold(d.nodes, "ALL")) {
		return refuse(proto.CodeReservation, "Flags=PART_NODES goes with PartitionName= and Nodes=ALL")
	}
	if !d.sized {
		if d.fresh {
			return refuse(proto.CodeReservation, "Nodes, NodeCnt, CoreCnt, TRES, Licenses or PartitionName must be specified")
		}
		return nil
	}
	if !d.partial() && d.count == 0 && d.nodes == "" && r.Partition == "" {
		return d.pickNone()
	}
	if r.Flags&model.ResvAnyNodes != 0 && len(r.Licenses) > 0 && d.nodes == "" && !d.partial() {
		d.count = 0 // as in Slurm: which nodes there are is left to the jobs
		return d.pickNone()
	}
	if r.Flags&model.ResvAnyNodes != 0 {
		return refuse(proto.CodeReservation,
			"Flags=ANY_NODES is for reservations of licenses only; leave Nodes, NodeCnt, CoreCnt and TRES out")
	}
	if d.fresh && d.nodes == "" && r.Partition == "" {
		r.Partition = defaultPartition(d.View) // as Slurm: a choice is made among the nodes of one partition
	}
	all := strings.EqualFold(d.nodes, "ALL") || d.nodes == "" && d.count == 0 && !d.partial()
	if d.fresh && all && r.Partition != "" && r.Features == "" { // as scontrol does
		r.Flags |= model.ResvPartNodes
		d.nodes = "ALL"
	}
	pool, err := d.pool()
	if err != nil {
		return err
	}
	r.Parts, r.Count = nil, 0
	switch {
	case all:
		r.Nodes = pool
		r.Flags |= model.ResvSpecNodes
		if r.Flags &^= model.ResvAllNodes; r.Flags&model.ResvPartNodes == 0 {
			r.Flags |= model.ResvAllNodes
		}
	case d.nodes != "":
		names, err := hostlist.Expand(d.nodes)
		if err != nil {
			return refuse(proto.CodeInvalidNode, "Nodes=%s: %v", d.nodes, err)
		}
		for _, n := range names {
			if d.View.NodeDef(n) == nil {
				return refuse(proto.CodeInvalidNode, "%s", n)
			}
			if !slices.Contains(pool, n) {
				return refuse(proto.CodeNodeConfig, "node %s is not in partition %s, or lacks the features %s", n, r.Partition,
					r.Features)
			}
		}
		r.Nodes = names
		r.Flags = r.Flags&^(model.ResvAllNodes|model.ResvPartNodes) | model.ResvSpecNodes
	default:
		return d.pickFree(pool)
	}
	if len(r.Nodes) == 0 {
		return refuse(proto.CodeNodeConfig, "no node fits the request")
	}
	if len(d.cores) <= 1 { // otherwise nodes are in the order of the core counts
		slices.Sort(r.Nodes)
		r.Nodes = slices.Compact(r.Nodes)
	}
	return d.named()
}

// pickNone makes a reservation of licenses only.
func (d *draft) pickNone() error {
	r := d.r
	switch {
	case len(r.Licenses) == 0:
		return refuse(proto.CodeReservation, "Nodes, NodeCnt, CoreCnt, TRES or Licenses must be specified")
	case !d.fresh && len(r.Nodes) > 0: // the reservation keeps its nodes
	case r.Flags&model.ResvAnyNodes == 0:
		return refuse(proto.CodeReservation,
			"a reservation of licenses alone needs Flags=ANY_NODES: its jobs may then use any nodes")
	}
	return nil
}

// partial reports whether parts of nodes were asked for.
func (d *draft) partial() bool {
	return len(d.cores)+len(d.units)+len(d.percent) > 0 || d.cpus > 0 || d.mem > 0
}

// parts turns percentages into numbers of what nodes have, rounded up.
func (d *draft) parts(nodes []string) error {
	for key, percent := range d.percent {
		all := int64(0)
		for _, node := range nodes {
			if def := d.View.NodeDef(node); def == nil {
				continue
			} else if key == "cpu" {
				all += int64(def.JobCPUCount())
			} else {
				all += countUnits(def, nil, key)
			}
		}
		n := (all*percent + 99) / 100
		switch {
		case n == 0:
			return refuse(proto.CodeNodeConfig, "%s=%d%%: no node that may be chosen has %s", key, percent,
				strings.TrimPrefix(key, model.GresTRES("", "")))
		case key == "cpu":
			d.cpus = n
		default:
			put(&d.units, key, n)
		}
	}
	return nil
}

func defaultPartition(v *state.View) string {
	for _, p := range v.Config().Partitions {
		if p.Default {
			return p.Name
		}
	}
	return ""
}

// pool gives the nodes that may be chosen, in order.
func (d *draft) pool() (out []string, err error) {
	r, v := d.r, d.View
	want, err := model.ParseFeatures(r.Features)
	if err != nil {
		return nil, refuse(proto.CodeFeature, "Features=%s: %v", r.Features, err)
	}
	p := v.Partition(r.Partition)
	for _, def := range v.Config().Nodes {
		if (p == nil || slices.Contains(p.Nodes, def.Name)) &&
			(want == nil || want.Each == nil || want.Each.Met(def.Features)) {
			out = append(out, def.Name)
		}
	}
	if len(out) == 0 && r.Features != "" {
		return nil, refuse(proto.CodeFeature, "no node that may be chosen has %s", r.Features)
	}
	return out, nil
}

// plural counts things in words.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// named takes parts of the named nodes, or the whole nodes.
func (d *draft) named() error {
	r := d.r
	if len(d.cores) > 0 && len(d.cores) != len(r.Nodes) {
		return refuse(proto.CodeReservation, "Core count for reservation node list is not consistent! CoreCnt has %s, and "+
			"there are %d nodes: write a number for each, or TRES=cpu=N or NodeCnt=%[2]d for all together",
			plural(len(d.cores), "number"), len(r.Nodes))
	}
	if err := d.parts(r.Nodes); err != nil {
		return err
	}
	if d.partial() {
		for i, name := range r.Nodes {
			def := d.View.NodeDef(name)
			part, ok := d.share(def, len(r.Nodes), i)
			if !ok {
				return refuse(proto.CodeNodeConfig, "node %s has fewer cores or generic resources than that", name)
			}
			r.Parts = append(r.Parts, part)
		}
	}
	for i, name := range r.Nodes {
		if id, ok := d.fits(name, r.Part(i)); !ok {
			return refuse(proto.CodeNodesBusy,
				"job %d on %s may run longer than until it starts; Flags=IGNORE_JOBS makes it all the same", id, name)
		}
	}
	return d.order()
}

// order sorts the nodes, each with its part.
func (d *draft) order() error {
	r := d.r
	parts := map[string]model.ResvPart{}
	for i, p := range r.Parts {
		parts[r.Nodes[i]] = p
	}
	slices.Sort(r.Nodes)
	if n := len(r.Nodes); len(slices.Compact(slices.Clone(r.Nodes))) != n {
		return refuse(proto.CodeInvalidNode, "a node is named twice in Nodes=")
	}
	for i := range r.Parts {
		r.Parts[i] = parts[r.Nodes[i]]
	}
	return nil
}

// pickFree takes the requested number of nodes, or parts of nodes, that are free in time.
func (d *draft) pickFree(pool []string) error {
	r := d.r
	r.Nodes, r.Count = nil, int32(d.count)
	r.Flags &^= model.ResvSpecNodes | model.ResvAllNodes | model.ResvPartNodes
	if len(d.cores) > 1 {
		return refuse(proto.CodeReservation, "cores of each node go with Nodes=; with NodeCnt= give CoreCnt= in all")
	}
	if err := d.parts(pool); err != nil {
		return err
	}
	want := d.count
	if want == 0 && d.perNode {
		want = len(pool)
	}
	left := d.wanted()
	for _, name := range pool {
		if n := d.View.Node(name); n == nil || !n.Usable() || want > 0 && len(r.Nodes) == want {
			continue
		}
		def := d.View.NodeDef(name)
		switch {
		case !d.partial():
			if _, ok := d.fits(name, nil); ok && !d.taken(name) {
				r.Nodes = append(r.Nodes, name)
			}
		case want > 0:
			part, ok := d.share(def, want, len(r.Nodes))
			if ok {
				if _, ok = d.fits(name, &part); ok && d.beside(name, &part) {
					r.Nodes, r.Parts = append(r.Nodes, name), append(r.Parts, part)
				}
			}
		default:
			if part, ok := d.some(def, left); ok {
				left.cpus -= int64(part.CPUs)
				for k := range left.units {
					left.units[k] -= countUnits(def, part.Gres, k)
				}
				r.Nodes, r.Parts = append(r.Nodes, name), append(r.Parts, part)
			}
		}
	}
	switch {
	case want > 0 && len(r.Nodes) < want && !(d.perNode && d.count == 0 && len(r.Nodes) > 0):
		return refuse(proto.CodeNodesBusy, "%d of %d nodes are free from then on", len(r.Nodes), want)
	case want == 0 && left.any():
		return refuse(proto.CodeNodesBusy, "too few cores or generic resources are free from then on")
	}
	return d.order()
}

// remainder is the part of a request for which no nodes have been found yet.
type remainder struct {
	cpus  int64
	units map[string]int64
}

func (l *remainder) any() bool {
	for _, n := range l.units {
		if n > 0 {
			return true
		}
	}
	return l.cpus > 0
}

// wanted gives the whole request.
func (d *draft) wanted() *remainder {
	l := &remainder{cpus: d.cpus, units: map[string]int64{}}
	if len(d.cores) == 1 {
		l.cpus = int64(d.cores[0])
		for _, def := range d.View.Config().Nodes[:min(1, len(d.View.Config().Nodes))] {
			l.cpus *= int64(max(1, def.ThreadsPerCore))
		}
	}
	for k, n := range d.units {
		l.units[k] = n
	}
	return l
}

// share computes the part that the i-th of n nodes has to give.
func (d *draft) share(def *model.NodeDef, n, i int) (model.ResvPart, bool) {
	threads := int64(max(1, def.ThreadsPerCore))
	even := func(all int64) int64 {
		if d.perNode {
			return all
		}
		one := all / int64(n)
		if int64(i) < all%int64(n) {
			one++
		}
		return one
	}
	cpus := int64(0)
	switch {
	case len(d.cores) > 1:
		cpus = int64(d.cores[i]) * threads
	case len(d.cores) == 1:
		cpus = even(int64(d.cores[0])) * threads
	case d.cpus > 0:
		cpus = even(d.cpus)
	}
	units := map[string]int64{}
	for k, all := range d.units {
		units[k] = even(all)
	}
	return d.part(def, cpus, even(d.mem), units)
}

// part makes a part of a node: CPUs in whole cores, or the share of CPUs for its units if no CPUs are asked for, and
// the share of memory for its CPUs.
func (d *draft) part(def *model.NodeDef, cpus, mem int64, units map[string]int64) (model.ResvPart, bool) {
	p := model.ResvPart{Gres: make([]int32, len(def.Gres))}
	threads := int64(max(1, def.ThreadsPerCore))
	for k, n := range units {
		name, typ, _ := model.TRESGres(k)
		left, all := n, int64(0)
		for i := range def.Gres {
			g := &def.Gres[i]
			if !strings.EqualFold(g.Name, name) || !model.TypeFits(g.Name, typ, g.Type) {
				continue
			}
			take := min(left, int64(g.Count-p.Gres[i]))
			p.Gres[i] += int32(take)
			left -= take
			all += int64(g.Count)
		}
		if left > 0 {
			return p, false
		}
		if len(d.cores) == 0 && d.cpus == 0 && all > 0 {
			cpus = max(cpus, (int64(def.JobCPUCount())*n+all-1)/all)
		}
	}
	cpus = (cpus + threads - 1) / threads * threads
	if mem == 0 && def.JobCPUCount() > 0 {
		mem = def.JobMemMiB() * cpus / int64(def.JobCPUCount())
	}
	p.CPUs, p.MemMiB = int32(cpus), mem
	return p, cpus <= int64(def.JobCPUCount()) && mem <= def.JobMemMiB() && def.HoldsGres(p.Gres, nil)
}

// some gives the part of a node that is free and still needed.
func (d *draft) some(def *model.NodeDef, left *remainder) (model.ResvPart, bool) {
	if !left.any() {
		return model.ResvPart{}, false
	}
	cpus, units := min(left.cpus, int64(def.JobCPUCount())), map[string]int64{}
	for k, n := range left.units {
		units[k] = min(max(n, 0), countUnits(def, nil, k))
	}
	for {
		part, ok := d.part(def, max(0, cpus), 0, units)
		if ok && (part.CPUs > 0 || slices.ContainsFunc(part.Gres, func(n int32) bool { return n > 0 })) {
			if _, free := d.fits(def.Name, &part); free && d.beside(def.Name, &part) {
				return part, true
			}
		}
		cpus /= 2 // try with half as many CPUs
		none := true
		for k := range units {
			units[k] /= 2
			none = none && units[k] == 0
		}
		if cpus <= 0 && none {
			return model.ResvPart{}, false
		}
	}
}

// countUnits counts units of gres/NAME or gres/NAME:TYPE: of a node, or of a part of it.
func countUnits(def *model.NodeDef, of []int32, key string) (n int64) {
	name, typ, _ := model.TRESGres(key)
	for i := range def.Gres {
		g := &def.Gres[i]
		switch {
		case !strings.EqualFold(g.Name, name) || !model.TypeFits(g.Name, typ, g.Type):
		case of == nil:
			n += int64(g.Count)
		default:
			n += int64(of[i])
		}
	}
	return n
}

// fits reports whether jobs that may still run when the reservation begins leave it enough of a node; otherwise id is
// such a job.
func (d *draft) fits(name string, part *model.ResvPart) (id model.JobID, ok bool) {
	n := d.View.Node(name)
	if n == nil || d.r.Flags&model.ResvIgnore != 0 {
		return 0, true
	}
	cpus, mem, gres := int64(0), int64(0), []model.GresAlloc(nil)
	alone := false
	for _, on := range n.Jobs {
		j := d.View.Job(on)
		if j == nil || j.Run == nil || j.Run.Resv == d.r.Name && d.r.Name != "" || j.Spec.YieldsTo(d.r) {
			continue
		}
		if end := j.Run.Deadline(); end != 0 && end <= d.r.Start {
			continue
		}
		id, alone = on, alone || j.Run.Alone
		for i := range j.Run.Alloc.Nodes {
			if na := &j.Run.Alloc.Nodes[i]; na.Node == name {
				cpus, mem, gres = cpus+int64(na.CPUs.Count()), mem+na.MemMiB, append(gres, na.Gres...)
			}
		}
	}
	if part == nil || id == 0 {
		return id, id == 0
	}
	ok = !alone && cpus+int64(part.CPUs) <= int64(n.Def.JobCPUCount()) && mem+part.MemMiB <= n.Def.JobMemMiB()
	return id, ok && n.Def.HoldsGres(part.Gres, gres)
}

// taken reports whether any other reservation, MAINT or not, has the same node at the same time.
func (d *draft) taken(node string) (taken bool) {
	d.View.Reservations(func(o *model.Reservation) bool {
		taken = o.Name != d.r.Name && slices.Contains(o.Nodes, node) && d.r.MeetsEver(o)
		return !taken
	})
	return taken
}

// beside reports whether a part of a node is compatible with all other reservations.
func (d *draft) beside(node string, part *model.ResvPart) bool {
	one := *d.r
	one.Flags &^= model.ResvMaint | model.ResvOverlap
	one.Nodes, one.Parts, one.Licenses = []string{node}, []model.ResvPart{*part}, nil
	return d.View.OverlapsEver(&one) == nil
}
