package control

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// showassocs.go is gcontrol show assoc_mgr: users, associations and QOS with their limits, and in parentheses what is
// held or used now, as programs read it that tell users what they may still start.

// assocsAsked is what of it is asked for; no list: all.
type assocsAsked struct {
	accounts, users, qos []string
	flags                []string // users, assoc, qos
}

// maxAssocNames bounds each list.
const maxAssocNames = 1000

func parseAssocsAsked(words []string) (*assocsAsked, error) {
	a := &assocsAsked{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		low := strings.ToLower(k)
		if v == "" {
			return nil, fmt.Errorf("show assoc_mgr %s: no value; write accounts=, users=, qos= or flags= with a list", w)
		}
		names := strings.Split(v, ",")
		if len(names) > maxAssocNames {
			return nil, fmt.Errorf("show assoc_mgr %s=: more than %d names", k, maxAssocNames)
		}
		switch {
		case low != "" && strings.HasPrefix("accounts", low):
			a.accounts = append(a.accounts, names...)
		case low != "" && strings.HasPrefix("users", low):
			a.users = append(a.users, names...)
		case low != "" && strings.HasPrefix("qos", low):
			a.qos = append(a.qos, names...)
		case low != "" && strings.HasPrefix("flags", low):
			for _, f := range names {
				switch f := strings.ToLower(strings.TrimSpace(f)); f {
				case "users", "assoc", "qos":
					a.flags = append(a.flags, f)
				default:
					return nil, plain{fmt.Errorf("invalid flag '%s', valid options are 'Assoc, QOS, and/or Users'", f)}
				}
			}
		default:
			return nil, plain{fmt.Errorf("invalid entity: %s for keyword:show assoc_mgr; it has accounts=, users=, qos= and "+
				"flags=", w)}
		}
	}
	return a, nil
}

func (a *assocsAsked) part(flag string) bool {
	return len(a.flags) == 0 || slices.Contains(a.flags, flag)
}

func wanted(list []string, name string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(w string) bool { return strings.EqualFold(w, name) })
}

// assocs is the answer, and how it is printed.
type assocs struct {
	chunks  []*proto.AccountsChunk
	users   map[string]*model.User
	limits  map[model.AssocKey]*model.Association
	shares  map[model.AssocKey]*proto.ShareRow
	levels  map[string]int64 // the shares of all in an account
	uids    map[string]uint32
	tres    []string // of the cluster, in order
	cluster string
	out     io.Writer
	line    string // what begins a line of a record
}

func (c *control) showAssocs(words []string) error {
	asked, err := parseAssocsAsked(words)
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	a := &assocs{users: map[string]*model.User{}, limits: map[model.AssocKey]*model.Association{},
		shares: map[model.AssocKey]*proto.ShareRow{}, levels: map[string]int64{}, uids: map[string]uint32{}, out: c.Stdout,
		line: "\n    "}
	if c.oneLine {
		a.line = " "
	}
	err = cl.Stream(proto.KindAccounts, &proto.AccountsRequest{InUse: true}, func(body []byte) error {
		chunk := new(proto.AccountsChunk)
		if err := cl.Decode(body, chunk); err != nil {
			return err
		}
		a.chunks = append(a.chunks, chunk)
		return nil
	})
	var shares proto.SharesReply
	if err == nil {
		err = cl.Call(proto.KindShares, &proto.SharesRequest{}, &shares)
	}
	if err != nil {
		return plain{fmt.Errorf("slurm_load_assoc_mgr_info error: %s", env.Text(err))}
	}
	for _, chunk := range a.chunks {
		if len(a.tres) == 0 { // not every part has them
			a.tres, a.cluster = chunk.TRES, chunk.Cluster
		}
		for _, u := range chunk.Users {
			a.users[u.Name] = u
		}
		for _, l := range chunk.Assocs {
			a.limits[model.AssocKey{Account: l.Account, User: l.User, Partition: l.Partition}] = l
		}
	}
	for i := range shares.Rows {
		r := &shares.Rows[i]
		a.shares[model.AssocKey{Account: r.Account, User: r.User, Partition: r.Partition}] = r
		if !r.UseParent {
			a.levels[above(r)] += r.RawShares
		}
	}
	a.print(asked)
	return nil
}

func (a *assocs) print(asked *assocsAsked) {
	var rows []*proto.InUse
	ofQOS := map[string][]*proto.InUse{}
	for _, c := range a.chunks {
		for i := range c.InUse {
			x := &c.InUse[i]
			if x.UID != 0 {
				a.uids[x.User] = x.UID
			}
			if x.QOS != "" {
				ofQOS[x.QOS] = append(ofQOS[x.QOS], x)
			} else {
				rows = append(rows, x)
			}
		}
	}
	fmt.Fprint(a.out, "Current Association Manager state\n")
	if asked.part("users") {
		a.people(asked)
	}
	if asked.part("assoc") {
		a.associations(asked, rows)
	}
	if asked.part("qos") {
		a.allQOS(asked, ofQOS)
	}
}

// noUID is Slurm's number of a user whose number nobody knows.
const noUID = 1<<32 - 2

// named writes a user with its number.
func (a *assocs) named(name string) string {
	uid, known := a.uids[name]
	if !known {
		var err error
		if uid, err = env.UIDOf(name); err != nil {
			uid = noUID
		}
		a.uids[name] = uid
	}
	return fmt.Sprintf("%s(%d)", name, uid)
}

func (a *assocs) people(asked *assocsAsked) {
	fmt.Fprint(a.out, "\nUser Records\n\n")
	for _, name := range slices.Sorted(maps.Keys(a.users)) {
		if u := a.users[name]; wanted(asked.users, name) {
			fmt.Fprintf(a.out, "UserName=%s DefAccount=%s DefWckey=%s AdminLevel=%s\n", a.named(u.Name), u.DefaultAccount,
				u.DefaultWCKey, u.Admin)
		}
	}
}

// pair is a limit with what counts against it: N for no limit.
func pair(l model.Limit, used int64) string {
	if n, set := l.Value(); set {
		return fmt.Sprintf("%d(%d)", n, used)
	}
	return fmt.Sprintf("N(%d)", used)
}

// some is pair, or nothing where there is no limit.
func some(l model.Limit, used int64) string {
	if _, set := l.Value(); !set {
		return ""
	}
	return pair(l, used)
}

func minutes(l model.Limit) string {
	if n, set := l.Value(); set {
		return strconv.FormatInt(n/60, 10)
	}
	return ""
}

func wall(l model.Limit, usedS int64) string {
	if n, set := l.Value(); set {
		return fmt.Sprintf("%d(%.2f)", n/60, float64(usedS)/60)
	}
	return fmt.Sprintf("N(%.2f)", float64(usedS)/60)
}

func number(l model.Limit) string {
	if n, set := l.Value(); set {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// pairs is a list of resources: all of the cluster, each with its limit or N, and what counts against it.
func (a *assocs) pairs(limits []model.TRESLimit, used []model.TRESCount) string {
	var out []string
	for _, t := range a.tres {
		limit := "N"
		if i := slices.IndexFunc(limits, func(l model.TRESLimit) bool { return l.TRES == t }); i >= 0 {
			limit = limitText(&limits[i])
		}
		out = append(out, fmt.Sprintf("%s=%s(%d)", t, limit, model.CountTRES(used, t)))
	}
	return strings.Join(out, ",")
}

func limitText(l *model.TRESLimit) string {
	if l.Percent {
		return strconv.FormatFloat(float64(l.Count)/100, 'f', -1, 64) + "%"
	}
	return strconv.FormatInt(l.Count, 10)
}

// limited is a list of the limited resources.
func limited(limits []model.TRESLimit) string {
	var out []string
	for i := range limits {
		out = append(out, limits[i].TRES+"="+limitText(&limits[i]))
	}
	return strings.Join(out, ",")
}

// record prints the lines of a record.
func (a *assocs) record(lines ...string) { fmt.Fprintln(a.out, strings.Join(lines, a.line)) }

func (a *assocs) associations(asked *assocsAsked, rows []*proto.InUse) {
	fmt.Fprint(a.out, "\nAssociation Records\n\n")
	ids, paths := map[string]uint32{}, map[string]string{}
	for _, x := range rows {
		r := a.shares[model.AssocKey{Account: x.Account, User: x.User, Partition: x.Partition}]
		if r == nil {
			r = &proto.ShareRow{}
		}
		path := "/"
		switch {
		case x.User != "":
			path = paths[x.Account] + "0-" + x.User + "/"
			if x.Partition != "" {
				path += x.Partition + "/"
			}
		case r.Parent != "":
			path = paths[r.Parent] + x.Account + "/"
		}
		if x.User == "" {
			ids[x.Account], paths[x.Account] = x.ID, path
		}
		if wanted(asked.accounts, x.Account) && (x.User == "" || wanted(asked.users, x.User)) {
			a.association(x, r, path, ids)
		}
	}
}

func (a *assocs) association(x *proto.InUse, r *proto.ShareRow, path string, ids map[string]uint32) {
	l := a.withInherited(x, r)
	user, parent, own := "", "", "No"
	if x.User != "" {
		user = a.named(x.User)
		if u := a.users[x.User]; u != nil && u.DefaultAccount == x.Account {
			own = "Yes"
		}
	}
	up := r.Parent
	if x.User != "" {
		up = "" // as Slurm has it: a user's account is in the same record
	}
	if up != "" {
		parent = fmt.Sprintf("%s(%d)", up, ids[up])
	}
	prio, _ := l.Priority.Value()
	a.record(
		fmt.Sprintf("ClusterName=%s Account=%s UserName=%s Partition=%s Priority=%d ID=%d", a.cluster, x.Account, user,
			x.Partition, max(prio, 0), x.ID),
		fmt.Sprintf("SharesRaw/Norm/Level/Factor=%d/%.2f/%d/%.2f", r.RawShares, r.NormShares, a.levels[above(r)],
			r.FairShare),
		fmt.Sprintf("UsageRaw/Norm/Efctv=%.2f/%.2f/%.2f", float64(x.UsageS), r.NormUsage, r.Used),
		fmt.Sprintf("ParentAccount=%s Lineage=%s DefAssoc=%s", parent, path, own),
		fmt.Sprintf("GrpJobs=%s GrpJobsAccrue=%s", pair(l.GrpJobs, x.Jobs), pair(l.GrpAccrue, x.Aging)),
		fmt.Sprintf("GrpSubmitJobs=%s GrpWall=%s", pair(l.GrpSubmit, x.Submit), wall(l.GrpWallS, x.WallS)),
		"GrpTRES="+a.pairs(l.GrpTRES, x.Held),
		"GrpTRESMins="+a.pairs(l.GrpTRESMins, x.Mins),
		"GrpTRESRunMins="+a.pairs(l.GrpTRESRunMins, x.RunMins),
		fmt.Sprintf("MaxJobs=%s MaxJobsAccrue=%s MaxSubmitJobs=%s MaxWallPJ=%s", some(l.MaxJobs, x.Jobs),
			some(l.MaxAccrue, x.Aging), some(l.MaxSubmit, x.Submit), minutes(l.MaxWallS)),
		"MaxTRESPJ="+limited(l.MaxTRESPerJob),
		"MaxTRESPN="+limited(l.MaxTRESPerNode),
		"MaxTRESMinsPJ="+limited(l.MaxTRESMins),
		"MinPrioThresh="+number(l.MinPrioThresh))
}

// withInherited gives the limits of an association, with what it has from the accounts above: its priority and the
// limits of each job and user. Those of a group (Grp...) count where they are.
func (a *assocs) withInherited(x *proto.InUse, r *proto.ShareRow) *model.Association {
	var out model.Association
	if l := a.limits[model.AssocKey{Account: x.Account, User: x.User, Partition: x.Partition}]; l != nil {
		out = *l
	}
	up := r.Parent
	if x.User != "" {
		up = x.Account
	}
	for depth := 0; up != "" && depth < len(a.limits)+1; depth++ {
		l := a.limits[model.AssocKey{Account: up}]
		if l == nil {
			l = &model.Association{}
		}
		for _, pair := range [][2]*model.Limit{{&out.Priority, &l.Priority}, {&out.MaxJobs, &l.MaxJobs},
			{&out.MaxAccrue, &l.MaxAccrue}, {&out.MaxSubmit, &l.MaxSubmit}, {&out.MaxWallS, &l.MaxWallS},
			{&out.MinPrioThresh, &l.MinPrioThresh}} {
			if _, set := pair[0].Value(); !set {
				*pair[0] = *pair[1]
			}
		}
		for _, pair := range [][2]*[]model.TRESLimit{{&out.MaxTRESPerJob, &l.MaxTRESPerJob},
			{&out.MaxTRESPerNode, &l.MaxTRESPerNode}, {&out.MaxTRESMins, &l.MaxTRESMins}} {
			for _, t := range *pair[1] {
				if !slices.ContainsFunc(*pair[0], func(own model.TRESLimit) bool { return own.TRES == t.TRES }) {
					*pair[0] = append(slices.Clip(*pair[0]), t)
				}
			}
		}
		next := ""
		if row := a.shares[model.AssocKey{Account: up}]; row != nil {
			next = row.Parent
		}
		up = next
	}
	return &out
}

// above gives the account in which a row has its shares.
func above(r *proto.ShareRow) string {
	if r.User != "" {
		return r.Account
	}
	return r.Parent
}

func (a *assocs) allQOS(asked *assocsAsked, of map[string][]*proto.InUse) {
	fmt.Fprint(a.out, "\nQOS Records\n\n")
	var list []*model.QOS
	for _, c := range a.chunks {
		list = append(list, c.QOS...)
	}
	for _, q := range list {
		if !wanted(asked.qos, q.Name) {
			continue
		}
		x := &proto.InUse{}
		var accounts, users []string
		for _, u := range of[q.Name] {
			switch {
			case u.Account != "" && wanted(asked.accounts, u.Account):
				accounts = append(accounts, a.within(u.Account, "PA", pair(q.MaxJobsPerAccount, u.Jobs),
					pair(q.MaxAccruePerAccount, u.Aging), pair(q.MaxSubmitPerAccount, u.Submit), a.pairs(q.MaxTRESPerAccount, u.Held)))
			case u.User != "" && wanted(asked.users, u.User):
				users = append(users, a.within(a.named(u.User), "PU", pair(q.MaxJobsPerUser, u.Jobs),
					pair(q.MaxAccruePerUser, u.Aging), pair(q.MaxSubmitPerUser, u.Submit), a.pairs(q.MaxTRESPerUser, u.Held)))
			case u.Account == "" && u.User == "":
				x = u
			}
		}
		a.record(fmt.Sprintf("QOS=%s(%d)", q.Name, q.ID),
			fmt.Sprintf("UsageRaw=%.6f", float64(x.UsageS)),
			fmt.Sprintf("GrpJobs=%s GrpJobsAccrue=%s GrpSubmitJobs=%s GrpWall=%s", pair(q.GrpJobs, x.Jobs),
				pair(q.GrpAccrue, x.Aging), pair(q.GrpSubmit, x.Submit), wall(q.GrpWallS, x.WallS)),
			"GrpTRES="+a.pairs(q.GrpTRES, x.Held),
			"GrpTRESMins="+a.pairs(q.GrpTRESMins, x.Mins),
			"GrpTRESRunMins="+a.pairs(q.GrpTRESRunMins, x.RunMins),
			"MaxWallPJ="+minutes(q.MaxWallS),
			"MaxTRESPJ="+limited(q.MaxTRESPerJob),
			"MaxTRESPN="+limited(q.MaxTRESPerNode),
			"MaxTRESMinsPJ="+limited(q.MaxTRESMins),
			"MinPrioThresh="+number(q.MinPrioThresh),
			"MinTRESPJ="+limited(q.MinTRES),
			"PreemptMode="+cmp.Or(q.PreemptMode, "OFF"),
			fmt.Sprintf("Priority=%d", q.Priority),
			a.all("Account Limits", "No Accounts", accounts),
			a.all("User Limits", "No Users", users))
	}
}

// within is what the jobs of an account or a user in a QOS hold, of what they may.
func (a *assocs) within(name, per, jobs, aging, submit, tres string) string {
	counts := fmt.Sprintf("MaxJobs%s=%s MaxJobsAccrue%s=%s MaxSubmitJobs%s=%s", per, jobs, per, aging, per, submit)
	if a.line == " " {
		return fmt.Sprintf("%s={%s MaxTRES%s=%s}", name, counts, per, tres)
	}
	return "\n      " + name + "\n        " + counts + "\n        MaxTRES" + per + "=" + tres
}

func (a *assocs) all(head, none string, list []string) string {
	switch {
	case a.line == " " && len(list) == 0:
		return head + "=" + none
	case a.line == " ":
		return head + "=" + strings.Join(list, ",")
	case len(list) == 0:
		return head + "\n        " + none
	}
	return head + strings.Join(list, "")
}
