package sched

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/state"
)

// Barred gives the reason why a partition is closed to jobs of an account and QOS, whatever is free; ReasonNone: it is
// open to them. The partition's lists may exclude them (AccountNotAllowed, QOSNotAllowed; AllowQos not root's), or the
// job is in no reservation although the partition (ReqResv) or its QOS (RequiresReservation) requires one
// (Reservation). A job that was pending before the rule changed waits with the same reason, as in Slurm. Lists of
// groups and root-only partitions are checked at submission only.
func Barred(v *state.View, sp *model.Spec, part *model.Partition) model.Reason {
	in := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "ALL")
	}
	account := func(list []string) bool { return model.HasAccount(list, sp.Account) || model.HasAccount(list, "ALL") }
	switch {
	case len(part.AllowAccounts) > 0 && !account(part.AllowAccounts), account(part.DenyAccounts):
		return model.ReasonAccountNotAllowed
	case len(part.AllowQOS) > 0 && sp.UID != 0 && !in(part.AllowQOS, sp.QOS), in(part.DenyQOS, sp.QOS):
		return model.ReasonQOSNotAllowed
	case sp.Reservation == "" && (part.ReqResv || requiresReservation(v.QOS(sp.QOS))):
		return model.ReasonReservation
	}
	return model.ReasonNone
}

func requiresReservation(q *model.QOS) bool {
	return q != nil && q.Flags&model.QOSRequiresReservation != 0
}

// barred says in words why a partition keeps the job out.
func (x *explainer) barred(r model.Reason, part *model.Partition) string {
	sp := x.j.Spec
	switch {
	case r == model.ReasonAccountNotAllowed:
		return fmt.Sprintf("account %s may not use partition %s (AllowAccounts, DenyAccounts)", sp.Account, part.Name)
	case r == model.ReasonQOSNotAllowed:
		return fmt.Sprintf("QOS %s may not be used in partition %s (AllowQos, DenyQos)", sp.QOS, part.Name)
	case r == model.ReasonReservation && part.ReqResv:
		return fmt.Sprintf("partition %s takes jobs in reservations only (ReqResv); gcontrol update JobId=%d "+
			"ReservationName= names one", part.Name, x.j.ID)
	case r == model.ReasonReservation:
		return fmt.Sprintf("jobs of QOS %s run in reservations only (RequiresReservation); gcontrol update JobId=%d "+
			"ReservationName= names one", sp.QOS, x.j.ID)
	}
	return ""
}

// mayEnter reports whether a job may be submitted to a partition.
func (x *explainer) mayEnter(part *model.Partition, sp *model.Spec) bool {
	root := sp.UID == 0
	switch {
	case part.RootOnly && !root, part.DisableRoot && root, Barred(x.v, sp, part) != model.ReasonNone:
		return false
	}
	return len(part.AllowGroups) == 0 || root || slices.Contains(part.AllowGroups, sp.Group) ||
		slices.Contains(part.AllowGroups, "ALL")
}

// owing reports whether a job waits because the account that pays for it has no balance (PriceHold). What costs nothing
// starts all the same.
func (p *Planner) owing(l *lane, it *item) bool {
	t := &p.cfg.Params.Price
	sp := it.e.j.Spec
	if t.Hold == price.HoldNone || t.Spends(p.v.Payer(sp.Account)) {
		return false
	}
	all, _ := it.sh.rq.Least()
	all = model.AddTRES(slices.Clone(all), "billing", p.v.BillingOf(all, l.part.Name))
	s := price.Session{Start: p.now.Seconds(), Partition: l.part.Name}
	for _, c := range all {
		s.Has = append(s.Has, price.Amount(c))
	}
	return t.Costs(&s)
}

// owed says in words why a job's account holds it.
func (x *explainer) owed(account string) string {
	w, t := x.v.Payer(account), &x.v.Config().Params.Price
	if w == nil {
		return fmt.Sprintf("account %s has no credit (PriceHold=all); gacctmgr add credit account=%s amount=N gives some",
			account, account)
	}
	return fmt.Sprintf("account %s has no balance left: %s (PriceHold); gacctmgr add credit account=%s amount=N gives "+
		"some", w.Account, w.Balance().In(t.Currency), w.Account)
}
