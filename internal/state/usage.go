package state

import (
	"maps"
	"math"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Usage is the usage of one user under one account, or of all jobs of one QOS. The record changes when a job starts,
// changes or ends; Fade gives its value at other moments. Immutable.
type Usage struct {
	Account string
	User    string
	UID     uint32
	CPUMS   int64 // CPU-milliseconds allocated to jobs that have ended; never decays
	GPUMS   int64

	Partition string     // for an association for one partition
	QOS       string     // for a QOS's record; the names above are empty then
	Stamp     model.Time // when Bill, Wall and TRES were brought up to date
	Bill      Meter      // billing units: TRESBillingWeights and UsageFactor
	Wall      Meter      // running jobs
	TRES      []TRESUse  // in order of name

	Stray bool // its account did not exist when it was made: it is deleted with its last running job
}

func (x *Usage) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.CPUMS)
	wire.Int(c, &x.GPUMS)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Text(c, &x.QOS, model.MaxName)
	wire.Int(c, &x.Stamp)
	wire.Struct(c, &x.Bill)
	wire.Struct(c, &x.Wall)
	wire.List(c, &x.TRES, model.MaxFew)
	wire.Bool(c, &x.Stray)
}

// TRESUse is the usage of one resource: CPUs, MiB, nodes, or units of a generic resource.
type TRESUse struct {
	TRES  string
	Meter Meter
}

func (x *TRESUse) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, model.MaxName)
	wire.Struct(c, &x.Meter)
}

func usageKey(account, user, part string) string {
	if part != "" {
		return account + "\x00" + user + "\x00" + part
	}
	return account + "\x00" + user
}

// fade gives the configured decay.
func (f *facts) fade() Fade {
	return Fade{HalfMS: f.cfg.Params.Priority.HalfLifeS * 1000, ResetAt: f.resetAt}
}

// fadeOf gives the decay of one record: none for a QOS with NoDecay.
func (f *facts) fadeOf(u *Usage) Fade {
	out := f.fade()
	if u.QOS != "" {
		if q, ok := f.qos.Get(u.QOS); ok && q.Flags&model.QOSNoDecay != 0 {
			out.HalfMS = 0
		}
	}
	return out
}

// bring gives u with its meters brought up to date.
func (f Fade) bring(u *Usage, at model.Time) *Usage {
	n := *u
	n.Bill.Value = f.At(n.Bill, n.Stamp, at)
	n.Wall.Value = f.At(n.Wall, n.Stamp, at)
	n.TRES = slices.Clone(n.TRES)
	for i := range n.TRES {
		n.TRES[i].Meter.Value = f.At(n.TRES[i].Meter, n.Stamp, at)
	}
	n.Stamp = max(n.Stamp, at)
	return &n
}

// turn begins (sign 1) or ends (sign -1) to count a job in u, at moment at. If the job ended late milliseconds earlier,
// its charge for that time is given back.
func (f Fade) turn(u *Usage, at, late model.Time, sign int64, bill, factor int64, tres []model.TRESCount) *Usage {
	n := f.bring(u, at)
	change := func(m *Meter, rate int64) {
		if sign < 0 {
			m.Value = max(0, m.Value-f.grown(rate, late))
		}
		m.Rate = max(0, addSat(m.Rate, sign*rate))
	}
	change(&n.Bill, bill)
	change(&n.Wall, factor)
	for _, c := range tres {
		i, found := slices.BinarySearchFunc(n.TRES, c.TRES,
			func(t TRESUse, name string) int { return strings.Compare(t.TRES, name) })
		if !found {
			n.TRES = slices.Insert(n.TRES, i, TRESUse{TRES: c.TRES})
		}
		change(&n.TRES[i].Meter, rateOf(c.Count, factor))
	}
	return n
}

// rateOf gives the rate of count units under a UsageFactor, bounded so that sums of rates stay in range.
func rateOf(count, factor int64) int64 { return min(model.Scale(count, factor, 1), maxRate) }

// maxRate bounds the rate of one job in micro-units: 2^40 units.
const maxRate = math.MaxInt64 >> 4 / 1_000_000

// begin begins to charge a job that gets its resources at moment at.
func (s *State) begin(j *model.Job, at model.Time) {
	run := j.Run
	tres := run.Alloc.TRES()
	run.Factor = model.FactorOne
	if q, ok := s.qos.Get(j.Spec.QOS); ok {
		run.Factor = q.UsageFactor
	}
	s.price(run)
	if _, ok := s.assocs.Get(assocKey(j.Spec.Account, j.Spec.User, run.Partition)); ok {
		run.AssocPart = run.Partition
	}
	if p := s.parts[run.Partition]; p != nil && p.QOS != j.Spec.QOS && has(s.qos, p.QOS) {
		run.PartQOS = p.QOS
	}
	s.meter(j, at, 0, 1, tres)
}

// price sets the charge for what a run holds.
func (s *State) price(run *model.Run) {
	var weights []model.TRESWeight
	if p := s.parts[run.Partition]; p != nil {
		weights = p.Billing
	}
	bill := model.BillMicros(run.TRES(), weights, s.cfg.Params.Priority.Flags)
	run.Bill = bill / model.FactorOne
	run.BillRate = min(model.Scale(bill, run.Factor, model.FactorOne), maxRate)
}

// meter changes the records of usage in which a job counts.
func (s *State) meter(j *model.Job, at, late model.Time, sign int64, tres []model.TRESCount) {
	key := usageKey(j.Spec.Account, j.Spec.User, j.Run.AssocPart)
	u, ok := s.usage.Get(key)
	if !ok {
		u = &Usage{Account: j.Spec.Account, User: j.Spec.User, UID: j.Spec.UID, Partition: j.Run.AssocPart, Stamp: at,
			Stray: !s.KnownAccount(j.Spec.Account)}
	}
	s.usage.Set(key, s.fade().turn(u, at, late, sign, j.Run.BillRate, j.Run.Factor, tres))
	if sign > 0 {
		s.rise(OfAssoc, j.Spec.Account, j.Spec.User, j.Run.AssocPart)
	}
	if s.acctUse.Len() > 0 {
		for up := j.Spec.Account; up != ""; up = s.parentOf(up) {
			if u, ok := s.acctUse.Get(up); ok {
				s.acctUse.Set(up, s.fade().turn(u, at, late, sign, j.Run.BillRate, j.Run.Factor, tres))
				if sign > 0 {
					s.rise(OfAccount, up)
				}
			}
		}
	}
	for _, name := range [...]string{j.Spec.QOS, j.Run.PartQOS} {
		if name == "" {
			continue
		}
		if u, ok = s.qosUse.Get(name); !ok {
			u = &Usage{QOS: name, Stamp: at}
		}
		s.qosUse.Set(name, s.fadeOf(u).turn(u, at, late, sign, j.Run.BillRate, j.Run.Factor, tres))
		if sign > 0 {
			s.rise(OfQOS, name)
		}
	}
}

// stopMeter ends the charge of a job whose script has ended as run, a copy of j.Run, says: epilogs are not its use.
func (s *State) stopMeter(j *model.Job, run *model.Run, at model.Time) {
	if s.now.rules < rulesBrief || run.Uncounted {
		return
	}
	if !j.Run.Idles() {
		end := run.Over.At
		if s.now.rules >= rulesWeighed && run.Unbegun(&run.Over.Exit) {
			end = run.Start
		}
		s.meter(j, at, s.lateBy(j.Run, end, at), -1, j.Run.Alloc.TRES())
	}
	run.Uncounted = true
}

// unbegun reports whether an ended run is not charged, because nothing of it was launched.
func (s *State) unbegun(j *model.Job) bool { return s.now.rules >= rulesWeighed && j.Unbegun() }

// lateBy gives how long a run was metered after its end.
func (s *State) lateBy(run *model.Run, end, at model.Time) model.Time {
	late := max(0, at-max(end, run.SizedAt()))
	if s.now.rules >= rulesBrief && run.SleepAt != 0 {
		late = min(late, max(0, at-run.SleepAt)) // before that it was suspended
	}
	return late
}

// unmeter takes back what was charged for a time after a job's end.
func (s *State) unmeter(j *model.Job, late, at model.Time) {
	if late > 0 {
		s.meter(j, at, 0, 1, j.Run.Alloc.TRES())
		s.meter(j, at, late, -1, j.Run.Alloc.TRES())
	}
}

// charge ends the charge of an attempt, or of a size of it, that has ended, and adds it to its user's total usage.
func (s *State) charge(j *model.Job, at model.Time) {
	s.bill(nil, j, at)
	end, ms := j.End.At, max(0, int64(j.End.At-j.Run.SizedAt())-(j.Run.SleptMS(j.End.At)-j.Run.SizedSleepMS))
	if s.unbegun(j) {
		end, ms = j.Run.Start, 0
	}
	if !j.Run.Idles() && !j.Run.Uncounted {
		s.meter(j, at, s.lateBy(j.Run, end, at), -1, j.Run.Alloc.TRES())
	}
	key := usageKey(j.Spec.Account, j.Spec.User, j.Run.AssocPart)
	old, ok := s.usage.Get(key)
	if !ok {
		return // meter has made the record
	}
	if u := *old; u.Stray && s.KnownAccount(u.Account) {
		u.Stray = false
		s.usage.Set(key, &u)
	} else if u.Stray && u.Wall.Rate == 0 && u.Bill.Rate == 0 {
		s.usage.Delete(key)
		return
	}
	s.total(j, ms)
}

// refund takes back what was charged for an attempt from its true end, which is j's, to when it was given up.
func (s *State) refund(j *model.Job, gaveUp, at model.Time) {
	if s.unbegun(j) { // as far as is known: nothing was charged
		return
	}
	was := *j
	was.End = &model.End{At: gaveUp}
	s.bill(&was, j, at)
	from := max(j.End.At, j.Run.SizedAt())
	if gaveUp > from && !j.Run.Idles() {
		s.amend(j, from, gaveUp, at, -1)
		s.total(j, -int64(gaveUp-from))
	}
}

// owe charges an attempt whose end is known now, and that nothing was charged for, as nobody knew that it had begun.
func (s *State) owe(j *model.Job, at model.Time) {
	if s.unbegun(j) {
		return
	}
	s.bill(nil, j, at)
	s.amend(j, j.Run.SizedAt(), j.End.At, at, 1)
	s.total(j, int64(j.End.At-j.Run.SizedAt()))
}

// amend adds what a run uses from one moment to another to the usage in which it counts (sign 1), or takes it back
// (-1).
func (s *State) amend(j *model.Job, from, to, at model.Time, sign int64) {
	tres := j.Run.Alloc.TRES()
	amended := func(u *Usage) *Usage {
		f := s.fadeOf(u)
		n := f.bring(u, at)
		add := func(m *Meter, rate int64) {
			m.Value = max(0, addSat(m.Value, sign*f.keep(f.grown(rate, to-from), at-to)))
		}
		if to < f.ResetAt {
			return n
		}
		add(&n.Bill, j.Run.BillRate)
		add(&n.Wall, j.Run.Factor)
		for _, c := range tres {
			if i, found := slices.BinarySearchFunc(n.TRES, c.TRES,
				func(t TRESUse, name string) int { return strings.Compare(t.TRES, name) }); found {
				add(&n.TRES[i].Meter, rateOf(c.Count, j.Run.Factor))
			}
		}
		return n
	}
	key := usageKey(j.Spec.Account, j.Spec.User, j.Run.AssocPart)
	if u, ok := s.usage.Get(key); ok {
		s.usage.Set(key, amended(u))
	}
	for up := j.Spec.Account; up != "" && s.acctUse.Len() > 0; up = s.parentOf(up) {
		if u, ok := s.acctUse.Get(up); ok {
			s.acctUse.Set(up, amended(u))
		}
	}
	for _, name := range [...]string{j.Spec.QOS, j.Run.PartQOS} {
		if u, ok := s.qosUse.Get(name); ok && name != "" {
			s.qosUse.Set(name, amended(u))
		}
	}
}

// total adds milliseconds of what a run holds to its user's total usage.
func (s *State) total(j *model.Job, ms int64) {
	key := usageKey(j.Spec.Account, j.Spec.User, j.Run.AssocPart)
	old, ok := s.usage.Get(key)
	if !ok {
		return // meter has made the record
	}
	u := *old
	cpus, _, gres := j.Run.Alloc.Totals()
	u.CPUMS = max(0, u.CPUMS+ms*int64(cpus))
	for _, g := range gres {
		if g.Name == model.GPUName {
			u.GPUMS = max(0, u.GPUMS+ms*g.Count)
		}
	}
	s.usage.Set(key, &u)
}

// forgetStrays drops the usage of accounts that don't exist any more; where jobs still run it goes with the last of
// them (charge).
func (s *State) forgetStrays() {
	for _, key := range s.usage.Keys() {
		old, _ := s.usage.Get(key)
		switch {
		case old.Stray, s.KnownAccount(old.Account): // a job may run at no rate: suspended, or of a QOS that is free
		case old.Wall.Rate == 0 && old.Bill.Rate == 0:
			s.usage.Delete(key)
		default:
			u := *old
			u.Stray = true
			s.usage.Set(key, &u)
		}
	}
}

// refade brings every record up to date before the half-life changes.
func (s *State) refade(at model.Time) {
	s.eachUsage(func(u *Usage) *Usage { return s.fadeOf(u).bring(u, at) })
}

// eachUsage replaces every record of usage by the result of change.
func (s *State) eachUsage(change func(*Usage) *Usage) {
	for _, key := range s.usage.Keys() {
		if u, ok := s.usage.Get(key); ok {
			s.usage.Set(key, change(u))
		}
	}
	for _, key := range s.qosUse.Keys() {
		if u, ok := s.qosUse.Get(key); ok {
			s.qosUse.Set(key, change(u))
		}
	}
}

// resetUsage forgets the usage of an account and everything below it, or of one user in an account; with a partition,
// only that of the association for it. Running jobs count from now on. For the root it walks no records.
func (s *State) resetUsage(a *model.Association, at model.Time) {
	if a.Account == model.RootAccount && a.User == "" {
		s.resetAt = at
		return
	}
	below := s.below(a.Account)
	s.eachUsage(func(u *Usage) *Usage {
		if u.QOS != "" || !below[u.Account] || a.User != "" && u.User != a.User ||
			a.Partition != "" && u.Partition != a.Partition {
			return u
		}
		n := s.fade().bring(u, at)
		n.Bill.Value, n.Wall.Value = 0, 0
		for i := range n.TRES {
			n.TRES[i].Meter.Value = 0
		}
		return n
	})
}

// below gives an account and all accounts below it.
func (f *facts) below(account string) map[string]bool {
	out := map[string]bool{account: true}
	for grown := true; grown; {
		grown = false
		f.accounts.Scan(func(name string, a *model.Account) bool {
			if out[a.Parent] && !out[name] {
				out[name], grown = true, true
			}
			return true
		})
	}
	return out
}

// Below gives some accounts and all accounts below them, in order; none for none.
func (v *View) Below(accounts []string) []string {
	all := map[string]bool{}
	for _, a := range accounts {
		for name := range v.below(model.AccountName(a)) {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
