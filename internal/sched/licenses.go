package sched

import (
	"slices"

	"gbatch/internal/model"
)

// Licenses are counted on a calendar of their own, as if they were the generic resources of one more node: jobs give
// them back at their expected ends, reservations take them ahead.

// licenseDef gives the node that stands for all licenses of a configuration, nil without any.
func licenseDef(cfg *model.Config) *model.NodeDef {
	if len(cfg.Licenses) == 0 {
		return nil
	}
	d := &model.NodeDef{}
	for _, l := range cfg.Licenses[:min(len(cfg.Licenses), model.MaxLicenses)] {
		d.Gres = append(d.Gres, model.GresDef{Name: l.Name, Count: int32(min(l.Count, model.MaxFeatureCount))})
	}
	return d
}

// buildLicenses derives the calendar from the jobs that hold licenses.
func (p *Planner) buildLicenses() {
	p.lic, p.licHeld, p.licBooked = nil, nil, nil
	d := licenseDef(p.cfg)
	if d == nil {
		return
	}
	p.lic = &node{def: d, free: counts{gres: make([]int, len(d.Gres))}}
	for i := range d.Gres {
		p.lic.free.gres[i] = int(d.Gres[i].Count)
	}
	p.licHeld = map[model.JobID]*hold{}
	for _, n := range p.nodes {
		if n.rec == nil {
			continue
		}
		for _, id := range n.rec.Jobs {
			if p.licHeld[id] == nil {
				p.holdLicenses(id, p.v.Job(id))
			}
		}
	}
}

// holdLicenses records the licenses that a job holds now.
func (p *Planner) holdLicenses(id model.JobID, j *model.Job) {
	if h := p.licHeld[id]; h != nil {
		p.lic.free.add(h, 1)
		p.lic.dropRelease(id)
		delete(p.licHeld, id)
	}
	if j == nil || j.Run == nil || len(j.Run.Licenses) == 0 || !j.State.HasResources() {
		return
	}
	h := p.licenseHold(j.Run.Licenses)
	h.resv = j.Run.Resv
	p.lic.free.add(h, -1)
	p.licHeld[id] = h
	if at := p.endOf(j); at != forever {
		p.lic.insertRelease(release{at: at, id: id, hold: *h})
		p.nextEnd = min(p.nextEnd, at)
	}
}

func (p *Planner) licenseHold(list []model.LicenseCount) *hold {
	h := &hold{gres: make([]int, len(p.lic.def.Gres))}
	for _, l := range list {
		for i := range p.lic.def.Gres {
			if p.lic.def.Gres[i].Name == l.Name {
				h.gres[i] += int(l.Count)
			}
		}
	}
	return h
}

// forgetLicenses takes the last plan's starts and reservations off the calendar: the View shows which of them happened.
func (p *Planner) forgetLicenses() {
	if p.lic == nil {
		return
	}
	for _, h := range p.licBooked {
		p.lic.free.add(h, 1)
	}
	p.licBooked = p.licBooked[:0]
	p.lic.steps, p.lic.resvs = p.lic.steps[:0], 0
}

// lateLicenses computes new expected ends for jobs that have outlived theirs.
func (p *Planner) lateLicenses() {
	for p.lic != nil && len(p.lic.rel) > 0 && p.lic.rel[0].at <= p.now {
		id := p.lic.rel[0].id
		p.holdLicenses(id, p.v.Job(id))
	}
}

// licenseSets gives alternative sets of licenses: a request needs one of them.
func (rq *Request) licenseSets() [][]model.LicenseCount {
	if !rq.AnyLicense {
		return [][]model.LicenseCount{rq.Licenses}
	}
	var out [][]model.LicenseCount
	for i := range rq.Licenses {
		out = append(out, rq.Licenses[i:i+1])
	}
	return out
}

// licenseNeed gives a set of licenses as a need, as if of a node.
func (p *Planner) licenseNeed(set []model.LicenseCount) nodeNeed {
	nd := nodeNeed{}
	if p.lic == nil {
		nd.never = true
		return nd
	}
	for _, l := range set {
		k := slices.IndexFunc(p.lic.def.Gres, func(g model.GresDef) bool { return g.Name == l.Name })
		if k < 0 || l.Count > int64(p.lic.def.Gres[k].Count) {
			nd.never = true
			return nd
		}
		nd.gres = append(nd.gres, gresNeed{1 << uint(k), int(l.Count)})
	}
	return nd
}

// licenses gives a set of licenses that a job of a shape can have from now to end; ok is false if there is none.
func (p *Planner) licenses(sh *shape, end model.Time) (set []model.LicenseCount, ok bool) {
	if len(sh.rq.Licenses) == 0 {
		return nil, true
	}
	p.cursor.own = sh.rq.Reservation
	for _, set := range sh.rq.licenseSets() {
		if nd := p.licenseNeed(set); !nd.never && p.cursor.lasts(p.lic, &nd, p.now, end) {
			return set, true
		}
	}
	return nil, false
}

// bookLicenses takes them until a planned end.
func (p *Planner) bookLicenses(g *lodging, end model.Time) {
	if len(g.lic) == 0 {
		return
	}
	h := p.licenseHold(g.lic)
	h.resv = g.resv
	p.lic.free.add(h, -1)
	p.licBooked = append(p.licBooked, h)
	if end != forever {
		p.lic.insertStep(step{end, 1, h, false})
	}
}

// unlicensed reports whether a job has to wait for licenses, and whether it needs more than the cluster has.
func (p *Planner) unlicensed(it *item) (waits, never bool) {
	if len(it.sh.rq.Licenses) == 0 {
		return false, false
	}
	for sh := range it.sh.turns() {
		if _, ok := p.licenses(sh, p.endIn(sh, p.now, it.leastS())); ok {
			return false, false
		}
	}
	for _, set := range it.sh.rq.licenseSets() {
		if nd := p.licenseNeed(set); !nd.never {
			return true, false
		}
	}
	return true, true
}

// maxLicenseTries bounds the moments at which nodes and licenses are looked for together.
const maxLicenseTries = 32

// soonestLicensed finds the earliest moment at which a job fits on nodes and has its licenses. in is the shape for the
// advance reservation that the job uses then.
func (p *Planner) soonestLicensed(sh *shape, planS int64) (at model.Time, alloc *model.Alloc, set []model.LicenseCount,
	in *shape) {
	for one := range sh.turns() {
		t, a, s := p.soonestOf(one, planS)
		if a == nil || sh.attracts(one) && p.until(one.rq.Reservation, t) < p.after(t, planS) {
			continue
		}
		if alloc == nil || t < at {
			at, alloc, set, in = t, a, s, one
		}
	}
	return at, alloc, set, in
}

func (p *Planner) soonestOf(sh *shape, planS int64) (model.Time, *model.Alloc, []model.LicenseCount) {
	if len(sh.rq.Licenses) == 0 {
		at, alloc := p.soonest(sh, planS)
		return at, alloc, nil
	}
	now := p.now
	defer func() { p.now = now }()
	end := func(t model.Time) model.Time { return p.endIn(sh, t, planS) }
	for range maxLicenseTries {
		first, set := forever, []model.LicenseCount(nil)
		p.cursor.own = sh.rq.Reservation
		for _, s := range sh.rq.licenseSets() {
			nd := p.licenseNeed(s)
			if nd.never {
				continue
			}
			if t := p.cursor.earliest(p.lic, &nd, p.now, forever, end); t < first {
				first, set = t, s
			}
		}
		if first == forever {
			return 0, nil, nil
		}
		p.now = first
		at, alloc := p.soonest(sh, planS)
		if alloc == nil {
			return 0, nil, nil
		}
		if nd := p.licenseNeed(set); at == first || p.cursor.lasts(p.lic, &nd, at, end(at)) {
			return at, alloc, set
		}
		p.now = at
	}
	return 0, nil, nil
}

// reserveLicenses takes a reservation's licenses off the calendar.
func (p *Planner) reserveLicenses(b *booking) {
	if len(b.lic) > 0 {
		b.licHold = p.licenseHold(b.lic)
		b.licHold.resv = b.resv
		p.lic.reserve(b.licHold, b.at, b.end)
	}
}

// licensable reports whether the cluster has as many licenses as a request needs.
func licensable(cfg *model.Config, rq *Request) bool {
	if len(rq.Licenses) == 0 {
		return true
	}
	return slices.ContainsFunc(rq.licenseSets(), func(set []model.LicenseCount) bool {
		return !slices.ContainsFunc(set, func(l model.LicenseCount) bool {
			return !slices.ContainsFunc(cfg.Licenses,
				func(c model.LicenseCount) bool { return c.Name == l.Name && c.Count >= l.Count })
		})
	})
}
