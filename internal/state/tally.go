package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Tallies count what unfinished jobs hold together, for limits: by association, by account with all below it, also in a
// partition where it has limits, by QOS, and by QOS and user or account. They are updated with each change of a record,
// and kept only if they are needed (AccountingStorageEnforce=limits, or a QOS or an account with GuaranteedTRES), so a
// cluster without limits pays nothing.

// Scope says whose jobs a tally counts.
type Scope byte

// The scopes, with the names in their tallies' keys.
const (
	OfAssoc      Scope = 'a' // account, user, partition of the association ("" for all)
	OfAccount    Scope = 'c' // account, including the accounts below it
	OfQOS        Scope = 'q' // QOS: jobs of that QOS, and jobs in partitions that have it as their QOS
	OfQOSUser    Scope = 'u' // QOS, user
	OfQOSAccount Scope = 'b' // QOS, account
	OfPool       Scope = 'p' // account with those below it, partition: where the account has an association for it
)

// Tally counts some unfinished jobs and what they hold together. Immutable.
type Tally struct {
	Jobs   int64                   // with resources
	Submit int64                   // unfinished; every task of an array is one
	Aging  int64                   // jobs of Submit that are pending and gain priority by age
	TRES   []Held                  // in order of name
	nodes  *btree.Map[string, int] // how many jobs are on each node; nil unless a limit is on nodes
}

// Nodes gives how many nodes the jobs are on; one that several share counts once. It is the sum of what each job has
// where no limit is on nodes.
func (t *Tally) Nodes() int64 {
	if t.nodes != nil {
		return int64(t.nodes.Len())
	}
	for i := range t.TRES {
		if t.TRES[i].TRES == nodeTRES {
			return t.TRES[i].Count
		}
	}
	return 0
}

// On reports whether a job is on a node; only where a limit is on nodes.
func (t *Tally) On(node string) bool {
	if t.nodes == nil {
		return false
	}
	_, on := t.nodes.Get(node)
	return on
}

// nodeTRES is what limits call nodes.
const nodeTRES = "node"

// nodeLimit reports whether limits on what jobs hold together name nodes.
func nodeLimit(lists ...[]model.TRESLimit) bool {
	return slices.ContainsFunc(lists, func(list []model.TRESLimit) bool {
		return slices.ContainsFunc(list, func(l model.TRESLimit) bool { return l.TRES == nodeTRES })
	})
}

// Held is the amount of one resource that jobs hold: CPUs, MiB, nodes, units, billing units.
type Held struct {
	TRES  string
	Count int64
	rest         // of jobs that are charged as they are
	other []rest // of those with another UsageFactor, in its order
}

// rest is what jobs of one UsageFactor may still use.
type rest struct {
	factor int64 // UsageFactor, millionths; 0 for the jobs that are charged as they are
	timed  int64 // what jobs hold that have an expected end: that are not being ended, not suspended
	ends   int64 // sum over these jobs of their amount times the second at which their time limit ends them, modulo 2^64
}

// RunMins gives how much more the jobs may use up to their time limits, in units times minutes; each job's is
// multiplied by the UsageFactor with which it is charged.
func (h *Held) RunMins(now model.Time) int64 {
	sum := h.leftS(now)
	for i := range h.other {
		sum += model.Scale(h.other[i].leftS(now), h.other[i].factor, model.FactorOne)
	}
	return sum / 60
}

func (r *rest) leftS(now model.Time) int64 { return max(0, r.ends-r.timed*now.Seconds()) }

// ending reports whether any of the jobs will end of itself.
func (h *Held) ending() bool {
	return h.timed > 0 || slices.ContainsFunc(h.other, func(r rest) bool { return r.timed > 0 })
}

// add adds or subtracts what a job holds.
func (h *Held) add(count int64, st *stake, sign int64) {
	h.Count += sign * count
	r := &h.rest
	if st.factor != model.FactorOne {
		h.other = slices.Clone(h.other)
		i, found := slices.BinarySearchFunc(h.other, st.factor,
			func(r rest, factor int64) int { return cmp.Compare(r.factor, factor) })
		if !found {
			h.other = slices.Insert(h.other, i, rest{factor: st.factor})
		}
		r = &h.other[i]
	}
	r.ends += sign * count * st.leftS
	if st.endS != 0 {
		r.timed += sign * count
		r.ends += sign * count * st.endS
	}
	h.other = slices.DeleteFunc(h.other, func(r rest) bool { return r.timed == 0 && r.ends == 0 })
}

// maxSpanS bounds a time limit in sums of minutes, seconds: unlimited jobs count as ten years.
const maxSpanS = 10 * 365 * 86400

func tallyKey(sc Scope, names ...string) string { return string(sc) + strings.Join(names, "\x00") }

// Tally gives a tally, or nil if there are no such jobs or tallies are not kept.
func (v *View) Tally(sc Scope, names ...string) *Tally {
	t, _ := v.tallies.Get(tallyKey(sc, names...))
	return t
}

// Counting reports whether tallies are kept.
func (v *View) Counting() bool { return v.counting }

// Pledged reports whether any account has GuaranteedTRES.
func (v *View) Pledged() bool { return v.pledged }

// stake is what one record adds to tallies.
type stake struct {
	submit, jobs int64
	aging        int64
	tres         []model.TRESCount
	factor       int64 // UsageFactor with which it is charged, millionths
	endS         int64 // 0: it is being ended or suspended
	leftS        int64 // of a suspended job: the rest of its time limit
	alloc        *model.Alloc
}

// TasksOf counts the tasks of a record.
func TasksOf(j *model.Job) int64 {
	if j.IsArray() {
		return int64(j.Tasks.Count())
	}
	return 1
}

// sameShare reports whether a record adds the same to tallies as its predecessor.
func sameShare(a, b *model.Job) bool {
	if a == nil || b == nil || a.Spec != b.Spec || a.State.Finished() != b.State.Finished() ||
		a.State.HasResources() != b.State.HasResources() ||
		(a.State == model.Completing) != (b.State == model.Completing) || len(a.Tasks) > 0 && TasksOf(a) != TasksOf(b) ||
		len(a.Tasks) == 0 && len(b.Tasks) > 0 || AgingOf(a) != AgingOf(b) {
		return false
	}
	return !a.State.HasResources() || a.Run.Alloc == b.Run.Alloc && a.Run.LimitS == b.Run.LimitS &&
		a.Run.Turns == b.Run.Turns && a.Run.Start == b.Run.Start
}

// moveTally updates tallies when a record changes.
func (s *State) moveTally(old, j *model.Job) {
	if !s.counting || sameShare(old, j) {
		return
	}
	s.tally(old, -1)
	s.tally(j, 1)
}

// tally adds or subtracts a record.
func (s *State) tally(j *model.Job, sign int64) {
	if j == nil || j.State.Finished() {
		return
	}
	sp := j.Spec
	st := stake{submit: TasksOf(j), aging: AgingOf(j)}
	part, assocPart := j.Partition(), ""
	if j.State.HasResources() {
		st.jobs, st.tres, assocPart, st.factor = 1, s.tresOf(j), j.Run.AssocPart, j.Run.Factor
		st.alloc = j.Run.Alloc
		switch end := j.Run.Start.Seconds() + min(j.Run.LimitS, maxSpanS) + j.Run.SleepMS/1000; {
		case j.State == model.Completing:
		case j.Run.Sleep != model.Awake:
			st.leftS = max(0, end-j.Run.SleepAt.Seconds())
		default:
			st.endS = end
		}
	} else if has(s.assocs, assocKey(sp.Account, sp.User, part)) {
		assocPart = part
	}
	s.addTally(tallyKey(OfAssoc, sp.Account, sp.User, assocPart), &st, sign)
	for up := sp.Account; up != ""; {
		s.addTally(tallyKey(OfAccount, up), &st, sign)
		if part != "" && has(s.assocs, assocKey(up, "", part)) {
			s.addTally(tallyKey(OfPool, up, part), &st, sign)
		}
		a, ok := s.accounts.Get(up)
		if !ok {
			break
		}
		up = a.Parent
	}
	for _, q := range s.qosNames(sp.QOS, part) {
		s.addTally(tallyKey(OfQOS, q), &st, sign)
		s.addTally(tallyKey(OfQOSUser, q, sp.User), &st, sign)
		s.addTally(tallyKey(OfQOSAccount, q, sp.Account), &st, sign)
	}
}

// qosNames gives the QOS in which a job counts: its own and its partition's.
func (f *facts) qosNames(qos, part string) []string {
	var out []string
	if qos != "" {
		out = append(out, qos)
	}
	if p := f.parts[part]; p != nil && p.QOS != "" && p.QOS != qos {
		out = append(out, p.QOS)
	}
	return out
}

// tresOf gives a job's resources, billing units included, in order of name.
func (s *State) tresOf(j *model.Job) []model.TRESCount {
	tres := j.Run.Alloc.TRES()
	return model.AddTRES(tres, "billing", j.Run.Billing())
}

func (f *facts) billingOf(tres []model.TRESCount, part string) int64 {
	var weights []model.TRESWeight
	if p := f.parts[part]; p != nil {
		weights = p.Billing
	}
	return model.BillMicros(tres, weights, f.cfg.Params.Priority.Flags) / model.FactorOne
}

// BillingOf gives the billing units of resources in a partition.
func (v *View) BillingOf(tres []model.TRESCount, part string) int64 { return v.billingOf(tres, part) }

func (s *State) addTally(key string, st *stake, sign int64) {
	if p, ok := s.purses.Get(key); ok {
		s.touch(p)
	}
	n := Tally{}
	if old, ok := s.tallies.Get(key); ok {
		n = *old
	}
	n.Jobs += sign * st.jobs
	n.Submit += sign * st.submit
	n.Aging += sign * st.aging
	if sign < 0 && st.aging != 0 {
		s.ages.free(key)
	}
	if len(st.tres) > 0 {
		n.TRES = slices.Clone(n.TRES)
		for _, c := range st.tres {
			i, found := slices.BinarySearchFunc(n.TRES, c.TRES,
				func(h Held, name string) int { return strings.Compare(h.TRES, name) })
			if !found {
				n.TRES = slices.Insert(n.TRES, i, Held{TRES: c.TRES})
			}
			n.TRES[i].add(c.Count, st, sign)
		}
		n.TRES = slices.DeleteFunc(n.TRES, func(h Held) bool {
			return h.Count == 0 && h.timed == 0 && h.ends == 0 && len(h.other) == 0
		})
	}
	if s.byNode && st.alloc != nil {
		n.nodes = onNodes(n.nodes, st.alloc, sign)
	}
	if n.Submit == 0 && n.Jobs == 0 && len(n.TRES) == 0 {
		s.tallies.Delete(key)
		return
	}
	s.tallies.Set(key, &n)
}

// onNodes adds or subtracts a job on its nodes; old stays as it is.
func onNodes(old *btree.Map[string, int], a *model.Alloc, sign int64) *btree.Map[string, int] {
	m := new(btree.Map[string, int])
	if old != nil {
		m = old.Copy()
	}
	for i := range a.Nodes {
		name := a.Nodes[i].Node
		if n, _ := m.Get(name); n+int(sign) == 0 {
			m.Delete(name)
		} else {
			m.Set(name, n+int(sign))
		}
	}
	return m
}

// recount makes the tallies anew: after a snapshot, and when accounts, QOS or the configuration have changed, because
// the tallies in which a job counts depend on them.
func (s *State) recount() {
	defer s.makePurses() // purses read the tallies
	defer s.makeAges()
	s.tallies = new(btree.Map[string, *Tally])
	s.pledged = s.anyAssoc(func(a *model.Association) bool { return len(a.GuaranteedTRES) > 0 })
	s.counting = s.cfg.Params.HoldLimits || s.pledged
	s.byNode = s.anyAssoc(func(a *model.Association) bool { return nodeLimit(a.GrpTRES) })
	s.qos.Scan(func(_ string, q *model.QOS) bool {
		s.byNode = s.byNode || nodeLimit(q.GrpTRES, q.MaxTRESPerUser, q.MaxTRESPerAccount)
		return !s.byNode
	})
	if !s.counting {
		s.qos.Scan(func(_ string, q *model.QOS) bool {
			s.counting = len(q.GuaranteedTRES) > 0
			return !s.counting
		})
	}
	if !s.counting {
		return
	}
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		s.tally(j, 1)
		return true
	})
}

// Outcomes counts results of jobs since New or Restore. Like the journal it is not one of the facts: replicas may
// differ. Each task counts, also of a record with several tasks of an array.
type Outcomes struct {
	Submitted int64 // submissions; an array is one
	Started   int64
	Completed int64
	Canceled  int64
	Failed    int64 // jobs that ended in any other way
}

// Outcomes gives the counts at the moment of the View.
func (v *View) Outcomes() Outcomes { return v.outcomes }

// note counts the change from one record of a job to the next.
func (t *Outcomes) count(old, j *model.Job) {
	switch {
	case old != nil && old.State == j.State:
	case j.State == model.Configuring:
		t.Started++
	case !j.State.Finished() || old != nil && old.State.Finished():
	case j.State == model.Completed:
		t.Completed++
	case j.State == model.Cancelled:
		t.Canceled += max(1, int64(j.Tasks.Count()))
	default:
		t.Failed++
	}
}

// Licenses belong to the whole cluster. The number in use is derived from the jobs that hold them.

// LicensesInUse gives how many of a license running jobs hold.
func (v *View) LicensesInUse(name string) int64 { return v.licenses[name] }

// licensed checks that licenses exist and are free.
func (s *State) licensed(want []model.LicenseCount) bool {
	for i, l := range want {
		k := slices.IndexFunc(s.cfg.Licenses, func(c model.LicenseCount) bool { return c.Name == l.Name })
		twice := slices.ContainsFunc(want[:i], func(o model.LicenseCount) bool { return o.Name == l.Name })
		if k < 0 || twice || l.Count < 1 || s.licenses[l.Name] > s.cfg.Licenses[k].Count-l.Count {
			return false
		}
	}
	return true
}

// countLicenses updates the counts when a job's record changes from old to j.
func (s *State) countLicenses(old, j *model.Job) {
	was, is := licensesOf(old), licensesOf(j)
	if slices.Equal(was, is) {
		return
	}
	next := maps.Clone(s.licenses)
	if next == nil {
		next = map[string]int64{}
	}
	for _, l := range was {
		next[l.Name] -= l.Count
		if next[l.Name] == 0 {
			delete(next, l.Name)
		}
	}
	for _, l := range is {
		next[l.Name] += l.Count
	}
	s.licenses = next
}

func licensesOf(j *model.Job) []model.LicenseCount {
	if j == nil || j.Run == nil || !j.State.HasResources() {
		return nil
	}
	return j.Run.Licenses
}

func licenseLines(used map[string]int64) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		out = append(out, fmt.Sprintf("%s %d", name, used[name]))
	}
	return out
}
