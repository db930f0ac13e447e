package sched

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Barred tells what keeps a job of an account and QOS out of a partition, whatever is free: the partition's lists
// (AccountNotAllowed, QOSNotAllowed), or that the job is in no reservation where the partition (ReqResv) or its QOS
// (RequiresReservation) want one: Reservation. ReasonNone lets it in. Who has waited since before that was so is held
// with the same word, as in Slurm. Lists of groups, and what is root's alone, hold at submission only.
func Barred(v *state.View, sp *model.Spec, part *model.Partition) model.Reason {
	in := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "ALL")
	}
	account := func(list []string) bool { return model.HasAccount(list, sp.Account) || model.HasAccount(list, "ALL") }
	switch {
	case len(part.AllowAccounts) > 0 && !account(part.AllowAccounts), account(part.DenyAccounts):
		return model.ReasonAccountNotAllowed
	case len(part.AllowQOS) > 0 && !in(part.AllowQOS, sp.QOS), in(part.DenyQOS, sp.QOS):
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

// mayEnter reports whether a partition lets a job in that is submitted to it.
func (x *explainer) mayEnter(part *model.Partition, sp *model.Spec) bool {
	root := sp.UID == 0
	switch {
	case part.RootOnly && !root, part.DisableRoot && root, Barred(x.v, sp, part) != model.ReasonNone:
		return false
	}
	return len(part.AllowGroups) == 0 || root || slices.Contains(part.AllowGroups, sp.Group) ||
		slices.Contains(part.AllowGroups, "ALL")
}
