package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// explain_limits.go says of a limit that holds a job its name, whose it is, what it allows, what is in use and what the job asks
// for, and when others that count in it will have ended.

// maxHolders bounds the running jobs that are looked at to say when there is room under a limit.
const maxHolders = 10_000

// limited replaces what was said of a limit by what the rules say of it in the job's partitions; it gives the moment from which
// there is room under it, 0 where that is not known.
func (x *explainer) limited(c *model.Cause) model.Time {
	for i := range x.spots {
		s := &x.spots[i]
		if x.p.lim == nil || s.it.gate == nil {
			continue
		}
		w := x.p.wantsOf(&s.it, s.l.part.Name)
		limitS := x.j.Spec.LeastS(s.it.limitS)
		k, r := x.p.lim.broken(s.it.gate, w.all, w.node, limitS)
		if r == model.ReasonNone {
			continue
		}
		c.Reason = r // the last pass may have found another one
		if k < 0 {
			c.Text = fmt.Sprintf("asks for %s; %s allows %s a job (%s)", limitText(limitS), s.it.gate.wallOf, limitText(s.it.gate.wallS), s.it.gate.wallBy)
			return 0
		}
		text, when, jobs := x.ruleText(&s.it.gate.rules[k], w, limitS)
		c.Text, c.Jobs = text, jobs
		return when
	}
	return 0
}

// ruleText says how a job breaks a rule.
func (x *explainer) ruleText(r *rule, w *wants, limitS int64) (text string, when model.Time, jobs []model.JobID) {
	lim := x.p.lim
	of := func(list []int64) int64 {
		if r.t < len(list) {
			return list[r.t]
		}
		return 0
	}
	what := ""
	if r.kind != byJobs && r.kind != byWall {
		what = lim.tres[r.t]
	}
	mins := min(limitS, maxMinutesS)
	amount := func(n int64) string {
		if what == "mem" && r.kind != byMins && r.kind != byRunMins && r.kind != jobMins {
			return walltime.FormatMem(n)
		}
		return fmt.Sprint(n)
	}
	never := func(need int64) string {
		if need <= r.limit {
			return ""
		}
		return "; can never start as it is: the limit is " + amount(r.limit)
	}
	switch r.kind {
	case byJobs:
		text = fmt.Sprintf("%d of %d jobs of %s run (%s)", lim.fresh(r.on).jobs, r.limit, r.who, r.name)
		when, jobs = x.roomUnder(r, 1, lim.fresh(r.on).jobs)
		if r.limit < 1 {
			text += "; can never start as it is"
		}
	case byCount:
		n, have := of(w.all), of(lim.fresh(r.on).use)
		text = fmt.Sprintf("%s of %s %s in use by %s (%s); asks for %s%s", amount(have), amount(r.limit), what, r.who, r.name, amount(n), never(n))
		if n <= r.limit {
			when, jobs = x.roomUnder(r, n, have)
		}
	case byRunMins:
		n := of(w.all) * mins / 60
		text = fmt.Sprintf("%d of %d %s-minutes are still to run in %s (%s); asks for %d%s", of(lim.fresh(r.on).run), r.limit, what, r.who, r.name, n, never(n))
	case byMins:
		text = fmt.Sprintf("%d of %d %s-minutes have been used by %s (%s)", of(lim.spent(r.on).used), r.limit, what, r.who, r.name)
		if lim.safe {
			text += fmt.Sprintf("; asks for %d", of(w.all)*mins/60)
		}
	case byWall:
		text = fmt.Sprintf("jobs of %s have run for %s of %s (%s); asks for %s", r.who, limitText(lim.spent(r.on).wallS), limitText(r.limit), r.name, limitText(limitS))
	case perJob:
		text = fmt.Sprintf("asks for %s %s; %s allows %s a job (%s): it can never start as it is", amount(of(w.all)), what, r.who, amount(r.limit), r.name)
	case perNode:
		text = fmt.Sprintf("asks for %s %s on a node; %s allows %s (%s): it can never start as it is", amount(of(w.node)), what, r.who, amount(r.limit), r.name)
	case jobMins:
		text = fmt.Sprintf("asks for %d %s-minutes; %s allows %d a job (%s): it can never start as it is", of(w.all)*mins/60, what, r.who, r.limit, r.name)
	case atLeast:
		text = fmt.Sprintf("asks for %s %s; %s wants at least %s (%s): it can never start as it is", amount(of(w.all)), what, r.who, amount(r.limit), r.name)
	}
	if when != 0 {
		text += fmt.Sprintf("; room by %s, when %s", at(when), x.enough(jobs))
	}
	return text, when, jobs[:min(len(jobs), maxNamed)]
}

// enough says that jobs have ended.
func (x *explainer) enough(jobs []model.JobID) string {
	if len(jobs) == 1 {
		return x.jobList(jobs, 1) + " ends"
	}
	return x.jobList(jobs[:min(len(jobs), maxNamed)], len(jobs)) + " end"
}

// roomUnder gives the moment at which jobs that count in a rule have ended, as they are planned to, so that need more units fit
// under it, and which jobs those are; 0 where some have no time limit, or too many run.
func (x *explainer) roomUnder(r *rule, need, have int64) (model.Time, []model.JobID) {
	type end struct {
		at model.Time
		id model.JobID
		n  int64
	}
	var list []end
	seen := map[model.JobID]bool{}
	for _, n := range x.p.nodes {
		for i := range n.rel {
			l := &n.rel[i]
			if seen[l.id] || l.asleep || l.takes {
				continue
			}
			seen[l.id] = true
			if len(seen) > maxHolders {
				return 0, nil
			}
			j := x.v.Job(l.id)
			if j == nil || j.Run == nil || !x.counts(r.on, j) {
				continue
			}
			e := end{l.at, l.id, 1}
			if r.kind == byCount {
				e.n = 0
				all, _ := allocTRES(x.v, j.Run.Alloc, j.Run.Partition)
				if list := x.p.lim.vector(all); r.t < len(list) {
					e.n = list[r.t]
				}
			}
			if e.n > 0 {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b end) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	var jobs []model.JobID
	for _, e := range list {
		if e.at >= x.now.Add(unlimitedS/2) {
			return 0, nil
		}
		have -= e.n
		jobs = append(jobs, e.id)
		if have+need <= r.limit {
			return e.at, jobs
		}
	}
	return 0, nil
}

// counts reports whether a running job counts in a holding.
func (x *explainer) counts(h *holding, j *model.Job) bool {
	ofQOS := func() bool { return j.Spec.QOS == h.names[0] || j.Run.PartQOS == h.names[0] }
	switch h.scope {
	case state.OfQOS:
		return ofQOS()
	case state.OfQOSUser:
		return ofQOS() && j.Spec.User == h.names[1]
	case state.OfQOSAccount:
		return ofQOS() && j.Spec.Account == h.names[1]
	case state.OfAssoc:
		return j.Spec.Account == h.names[0] && j.Spec.User == h.names[1] && (h.names[2] == "" || j.Run.AssocPart == h.names[2])
	case state.OfAccount:
		g := x.v.Govern(j.Spec.Account, "", "", "")
		return j.Spec.Account == h.names[0] || slices.ContainsFunc(g.Chain, func(a *model.Association) bool { return a.Account == h.names[0] })
	}
	return false
}

// limitNames are what gacctmgr calls the limits of a QOS or an association, by the names that rules are told apart by.
var limitNames = map[string]string{"Grp": "GrpTRES", "GrpMins": "GrpTRESMins", "GrpRunMins": "GrpTRESRunMins", "PerJob": "MaxTRESPerJob",
	"PerNode": "MaxTRESPerNode", "JobMins": "MaxTRESMinsPerJob", "Min": "MinTRESPerJob", "PerUser": "MaxTRESPerUser", "PerAccount": "MaxTRESPerAccount",
	"RunMinsUser": "MaxTRESRunMinsPerUser", "RunMinsAccount": "MaxTRESRunMinsPerAccount", "MaxJobsPA": "MaxJobsPerAccount", "MaxJobs": "MaxJobs", "GrpJobs": "GrpJobs",
	"GrpWall": "GrpWall"}

// limitName gives what gacctmgr calls a limit on jobs.
func limitName(name string, on *holding) string {
	if name == "MaxJobs" && on.scope == state.OfQOSUser {
		return "MaxJobsPerUser"
	}
	return limitNames[name]
}

// ofWhom says whose a limit is: "QOS x", "user bob in QOS x", "account a", "user bob in account a".
func ofWhom(on *holding, otherwise string) string {
	if on == nil {
		return otherwise
	}
	switch on.scope {
	case state.OfQOS:
		return "QOS " + on.names[0]
	case state.OfQOSUser:
		return "user " + on.names[1] + " in QOS " + on.names[0]
	case state.OfQOSAccount:
		return "account " + on.names[1] + " in QOS " + on.names[0]
	case state.OfAssoc:
		text := "user " + on.names[1] + " in account " + on.names[0]
		if on.names[2] != "" {
			text += " and partition " + on.names[2]
		}
		return text
	case state.OfAccount:
		return "account " + on.names[0]
	}
	return strings.Join(on.names, " ")
}
