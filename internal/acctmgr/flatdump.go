package acctmgr

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// The flat file of "sacctmgr dump" and "load": a line for the cluster, then for every account a Parent line with the
// users and the accounts below it. Slurm's file has no QOS: here they are in comments that begin with #QOS, which load
// reads and other programs ignore.

const flatHead = `# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:MaxTRESMins=cpu=20:FairShare=399:MaxWallDurationPerJob=40:Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY
# BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:FairShare=1:MaxWallDurationPerJob=1:Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# User - 'lipari':MaxTRESPerJob=node=2:MaxJobs=3:MaxTRESMins=cpu=4:FairShare=1:MaxWallDurationPerJob=1
# Lines that begin with #QOS are gbatch's own: a QOS with its settings.
`

// flat is one option of a line: its name and its value, "" to leave it out.
type flat[T any] struct {
	label string
	get   func(*T) string
}

// flatTRES writes limits so that nothing is lost, in quotes where a colon would end the option.
func flatTRES(list []model.TRESLimit) string {
	var out []string
	for _, l := range list {
		n := showTRESCount(l)
		if l.TRES == "mem" && !l.Percent {
			n = walltime.FormatExact(l.Count, 'M')
		}
		out = append(out, l.TRES+"="+n)
	}
	text := strings.Join(out, ",")
	if strings.Contains(text, ":") {
		return "'" + text + "'"
	}
	return text
}

// flatMinutes writes a span, which is whole minutes.
func flatMinutes(l model.Limit) string {
	if s, set := l.Value(); set {
		return strconv.FormatInt(s/60, 10)
	}
	return ""
}

// flatText quotes a text; quotes within become the other kind.
func flatText(s string) string {
	if s == "" {
		return ""
	}
	return "'" + strings.ReplaceAll(s, "'", "\"") + "'"
}

func flatList(list []string) string { return flatText(strings.Join(list, ",")) }

func flatFactor(n int64, set bool) string {
	if !set {
		return ""
	}
	return strconv.FormatFloat(float64(n)/float64(model.FactorOne), 'f', -1, 64)
}

// assocFlat are the options of clusters, accounts and users that belong to their associations.
func assocFlat() []flat[assoc] {
	return []flat[assoc]{
		{"DefaultQOS", func(a *assoc) string { return flatText(a.DefQOS) }},
		{"Fairshare", showShares},
		{"GrpTRESMins", func(a *assoc) string { return flatTRES(a.GrpTRESMins) }},
		{"GrpTRESRunMins", func(a *assoc) string { return flatTRES(a.GrpTRESRunMins) }},
		{"GrpTRES", func(a *assoc) string { return flatTRES(a.GrpTRES) }},
		{"GrpJobs", func(a *assoc) string { return showLimit(a.GrpJobs) }},
		{"GrpSubmitJobs", func(a *assoc) string { return showLimit(a.GrpSubmit) }},
		{"GrpWall", func(a *assoc) string { return flatMinutes(a.GrpWallS) }},
		{"MaxTRESMinsPerJob", func(a *assoc) string { return flatTRES(a.MaxTRESMins) }},
		{"MaxTRESRunMins", func(a *assoc) string { return flatTRES(a.MaxTRESRunMins) }},
		{"MaxTRESPerJob", func(a *assoc) string { return flatTRES(a.MaxTRESPerJob) }},
		{"MaxTRESPerNode", func(a *assoc) string { return flatTRES(a.MaxTRESPerNode) }},
		{"MaxJobs", func(a *assoc) string { return showLimit(a.MaxJobs) }},
		{"MaxSubmitJobs", func(a *assoc) string { return showLimit(a.MaxSubmit) }},
		{"MaxWallDurationPerJob", func(a *assoc) string { return flatMinutes(a.MaxWallS) }},
		{"Priority", func(a *assoc) string { return showLimit(a.Priority) }},
		{"QOS", func(a *assoc) string { return flatList(a.QOS) }},
		{"GuaranteedTRES", func(a *assoc) string { return flatTRES(a.GuaranteedTRES) }},
	}
}

// qosFlat are the options of a QOS.
func qosFlat() []flat[qos] {
	return []flat[qos]{
		{"Description", func(q *qos) string { return flatText(q.Description) }},
		{"Priority", func(q *qos) string { return strconv.FormatUint(uint64(q.Priority), 10) }},
		{"Flags", func(q *qos) string { return flatText(q.Flags.String()) }},
		{"Preempt", func(q *qos) string { return flatList(q.Preempt) }},
		{"PreemptMode", func(q *qos) string { return strings.ToLower(q.PreemptMode) }},
		{"GraceTime", func(q *qos) string {
			if q.GraceTimeS == 0 {
				return ""
			}
			return strconv.FormatInt(q.GraceTimeS, 10)
		}},
		{"PreemptExemptTime", func(q *qos) string { return flatMinutes(q.PreemptExemptTimeS) }},
		{"UsageFactor", func(q *qos) string { return flatFactor(q.UsageFactor, true) }},
		{"UsageThreshold", func(q *qos) string { return flatFactor(q.UsageThreshold.Value()) }},
		{"LimitFactor", func(q *qos) string { return flatFactor(q.LimitFactor, q.LimitFactor != 0) }},
		{"GrpTRESMins", func(q *qos) string { return flatTRES(q.GrpTRESMins) }},
		{"GrpTRESRunMins", func(q *qos) string { return flatTRES(q.GrpTRESRunMins) }},
		{"GrpTRES", func(q *qos) string { return flatTRES(q.GrpTRES) }},
		{"GuaranteedTRES", func(q *qos) string { return flatTRES(q.GuaranteedTRES) }},
		{"GrpJobs", func(q *qos) string { return showLimit(q.GrpJobs) }},
		{"GrpSubmitJobs", func(q *qos) string { return showLimit(q.GrpSubmit) }},
		{"GrpWall", func(q *qos) string { return flatMinutes(q.GrpWallS) }},
		{"MaxTRESMinsPerJob", func(q *qos) string { return flatTRES(q.MaxTRESMins) }},
		{"MaxTRESPerJob", func(q *qos) string { return flatTRES(q.MaxTRESPerJob) }},
		{"MaxTRESPerNode", func(q *qos) string { return flatTRES(q.MaxTRESPerNode) }},
		{"MaxTRESPerUser", func(q *qos) string { return flatTRES(q.MaxTRESPerUser) }},
		{"MaxTRESPerAccount", func(q *qos) string { return flatTRES(q.MaxTRESPerAccount) }},
		{"MaxTRESRunMinsPerUser", func(q *qos) string { return flatTRES(q.MaxTRESRunMinsPerUser) }},
		{"MaxTRESRunMinsPerAccount", func(q *qos) string { return flatTRES(q.MaxTRESRunMinsPerAcct) }},
		{"MinTRESPerJob", func(q *qos) string { return flatTRES(q.MinTRES) }},
		{"MaxJobsPerUser", func(q *qos) string { return showLimit(q.MaxJobsPerUser) }},
		{"MaxJobsPerAccount", func(q *qos) string { return showLimit(q.MaxJobsPerAccount) }},
		{"MaxSubmitJobsPerUser", func(q *qos) string { return showLimit(q.MaxSubmitPerUser) }},
		{"MaxSubmitJobsPerAccount", func(q *qos) string { return showLimit(q.MaxSubmitPerAccount) }},
		{"MaxWallDurationPerJob", func(q *qos) string { return flatMinutes(q.MaxWallS) }},
	}
}

func putFlat[T any](b *strings.Builder, list []flat[T], t *T) {
	for _, x := range list {
		if v := x.get(t); v != "" {
			b.WriteString(":" + x.label + "=" + v)
		}
	}
}

// Dump gives the flat file of everything: QOS, accounts, users and their associations.
func Dump(f *Facts) string {
	var b strings.Builder
	b.WriteString(flatHead)
	line := func(what, name string) { b.WriteString(what + " - '" + name + "'") }
	for _, q := range slices.SortedFunc(maps.Values(f.QOS), qosOrder) {
		line("#QOS", q.Name)
		putFlat(&b, qosFlat(), q)
		b.WriteByte('\n')
	}
	line("Cluster", f.Cluster)
	if a := f.assoc(model.RootAccount, "", ""); a != nil {
		putFlat(&b, assocFlat(), a)
	}
	b.WriteByte('\n')
	first := map[string]bool{} // users whose own options have been written
	kids := map[string][]string{}
	for name, a := range f.Accounts {
		if name != model.RootAccount {
			kids[a.Parent] = append(kids[a.Parent], name)
		}
	}
	users, pools := map[string][]*model.Association{}, map[string][]*model.Association{}
	for _, a := range f.tree() {
		switch {
		case a.User != "":
			users[a.Account] = append(users[a.Account], a)
		case a.OfPool():
			pools[a.Account] = append(pools[a.Account], a)
		}
	}
	putPools := func(account string) { // Slurm has no such lines
		for _, a := range pools[account] {
			line("Account", account)
			b.WriteString(":Partition='" + a.Partition + "'")
			putFlat(&b, assocFlat(), a)
			b.WriteByte('\n')
		}
	}
	var walk func(account string, left int)
	walk = func(account string, left int) {
		slices.Sort(kids[account])
		ofRoot := account == model.RootAccount && len(pools[account]) > 0
		if left == 0 || len(kids[account]) == 0 && len(users[account]) == 0 && !ofRoot {
			return
		}
		line("Parent", account)
		b.WriteByte('\n')
		if ofRoot {
			putPools(account)
		}
		for _, a := range users[account] {
			line("User", a.User)
			if a.Partition != "" {
				b.WriteString(":Partition='" + a.Partition + "'")
			}
			if u := f.Users[a.User]; u != nil && !first[a.User] {
				first[a.User] = true
				f.putUser(&b, u)
			}
			putFlat(&b, assocFlat(), a)
			b.WriteByte('\n')
		}
		for _, kid := range kids[account] {
			line("Account", kid)
			putFlat(&b, []flat[model.Account]{{"Description", func(a *model.Account) string { return flatText(a.Description) }},
				{"Organization", func(a *model.Account) string { return flatText(a.Organization) }}}, f.Accounts[kid])
			if a := f.assoc(kid, "", ""); a != nil {
				putFlat(&b, assocFlat(), a)
			}
			b.WriteByte('\n')
			putPools(kid)
		}
		for _, kid := range kids[account] {
			walk(kid, left-1)
		}
	}
	walk(model.RootAccount, len(f.Accounts)+1)
	return b.String()
}

// putUser writes the options of a user that belong to no single association.
func (f *Facts) putUser(b *strings.Builder, u *model.User) {
	var over []string
	for name, a := range f.Accounts {
		if slices.Contains(a.Coordinators, u.Name) {
			over = append(over, name)
		}
	}
	slices.Sort(over)
	putFlat(b, []flat[model.User]{{"DefaultAccount", func(u *model.User) string { return flatText(u.DefaultAccount) }},
		{"DefaultWCKey", func(u *model.User) string { return flatText(u.DefaultWCKey) }},
		{"AdminLevel", func(u *model.User) string {
			if u.Admin == model.AdminNone {
				return ""
			}
			return flatText(u.Admin.String())
		}},
		{"Coordinator", func(*model.User) string { return flatList(over) }},
		{"WCKeys", func(u *model.User) string { return flatList(f.wckeyNames(u.Name)) }}}, u)
}
