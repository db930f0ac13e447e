package state

import "gbatch/internal/model"

// Rules are the QOS and associations whose limits apply to jobs of one user, account and QOS in one partition. If
// several set the same limit, the first counts (https://slurm.schedmd.com/resource_limits.html); but all Grp limits of
// associations apply.
type Rules struct {
	QOS []*model.QOS // the partition's QOS, then the job's; in reverse order with OverPartQOS
	// From the user's association, if there is one, up to the root account's; an account's association for the partition
	// comes before its own.
	Chain []*model.Association
	User  bool   // Chain begins with the user's association
	Part  string // partition of the user's association; "" for all
}

// Govern gives the rules for jobs, whether limits are enforced or not.
func (v *View) Govern(account, user, qos, part string) Rules {
	return v.govern(account, user, qos, part)
}

func (f *facts) govern(account, user, qos, part string) Rules {
	var r Rules
	own, _ := f.qos.Get(qos)
	if p := f.parts[part]; p != nil && p.QOS != "" && p.QOS != qos {
		if q, ok := f.qos.Get(p.QOS); ok {
			r.QOS = append(r.QOS, q)
		}
	}
	if own != nil {
		if own.Flags&model.QOSOverPartQOS != 0 {
			r.QOS = append([]*model.QOS{own}, r.QOS...)
		} else {
			r.QOS = append(r.QOS, own)
		}
	}
	if user != "" {
		a, ok := f.assocs.Get(assocKey(account, user, part))
		if ok && part != "" {
			r.Part = part
		} else {
			a, ok = f.assocs.Get(assocKey(account, user, ""))
		}
		if ok {
			r.Chain, r.User = append(r.Chain, a), true
		}
	}
	for up := account; up != ""; {
		if a, ok := f.assocs.Get(assocKey(up, "", part)); ok && part != "" {
			r.Chain = append(r.Chain, a)
		}
		if a, ok := f.assocs.Get(assocKey(up, "", "")); ok {
			r.Chain = append(r.Chain, a)
		}
		acct, ok := f.accounts.Get(up)
		if !ok {
			break
		}
		up = acct.Parent
	}
	return r
}

// Scope names the tally in which jobs count for the limits of Chain[i].
func (r *Rules) Scope(i int) (Scope, []string) {
	switch a := r.Chain[i]; {
	case a.User != "":
		return OfAssoc, []string{a.Account, a.User, a.Partition}
	case a.OfPool():
		return OfPool, []string{a.Account, a.Partition}
	default:
		return OfAccount, []string{a.Account}
	}
}

// Inherited gives the first of the associations' limits that is set.
func (r *Rules) Inherited(of func(*model.Association) model.Limit) (n int64, set bool) {
	for _, a := range r.Chain {
		if n, set = of(a).Value(); set {
			return n, true
		}
	}
	return 0, false
}

// SubmitLimit gives the limit on unfinished jobs that a submission would break; ReasonNone if none.
func (v *View) SubmitLimit(sp *model.Spec) model.Reason { return v.submitLimit(sp, 0) }

// submitLimit is SubmitLimit behind a number of other jobs that are submitted together with this one.
func (f *facts) submitLimit(sp *model.Spec, others int) model.Reason {
	if !f.cfg.Params.HoldLimits {
		return model.ReasonNone
	}
	more, part := int64(1+others), ""
	if len(sp.Tasklist) > 0 {
		more = int64(sp.Tasklist.Count())
	}
	if len(sp.Partitions) > 0 {
		part = sp.Partitions[0]
	}
	over := func(l model.Limit, sc Scope, names ...string) bool {
		n, set := l.Value()
		if !set {
			return false
		}
		if t, ok := f.tallies.Get(tallyKey(sc, names...)); ok {
			return t.Submit+more > n
		}
		return more > n
	}
	r := f.govern(sp.Account, sp.User, sp.QOS, part)
	var group, user, account bool // a QOS sets the limit, so the associations' limit does not count
	for _, q := range r.QOS {
		switch {
		case !group && over(q.GrpSubmit, OfQOS, q.Name):
			return model.ReasonQOSGrpSubmitJobsLimit
		case !account && over(q.MaxSubmitPerAccount, OfQOSAccount, q.Name, sp.Account):
			return model.ReasonMaxSubmitJobsPerAccount
		case !user && over(q.MaxSubmitPerUser, OfQOSUser, q.Name, sp.User):
			return model.ReasonQOSMaxSubmitJobPerUserLimit
		}
		group, user, account = group || q.GrpSubmit != 0, user || q.MaxSubmitPerUser != 0, account ||
			q.MaxSubmitPerAccount != 0
	}
	if n, set := r.Inherited(func(a *model.Association) model.Limit { return a.MaxSubmit }); set && !user &&
		over(model.LimitOf(n), OfAssoc, sp.Account, sp.User, r.Part) {
		return model.ReasonAssocMaxSubmitJobLimit
	}
	for i, a := range r.Chain {
		sc, names := r.Scope(i)
		if !group && over(a.GrpSubmit, sc, names...) {
			return model.ReasonAssocGrpSubmitJobsLimit
		}
	}
	return model.ReasonNone
}
