package rest

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/acctmgr"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/walltime"
)

// acctedit.go changes accounts, users, associations and QOS. Each change is planned by gacctmgr's own code from the
// same words that a person would write, so it means the same and is refused for the same reasons.

const (
	replans   = 64 // times that a plan is made anew because others have changed accounts
	replanFor = 50 * time.Millisecond
)

// plan thinks of a change and makes it. Nothing to do is no error.
func (q *request) plan(think func(*acctmgr.Facts) (*acctmgr.Plan, error)) (*acctmgr.Plan, error) {
	for n := 1; ; n++ {
		f, err := q.accountFacts()
		if err != nil {
			return nil, err
		}
		p, err := think(f)
		if err != nil {
			return nil, &fault{Number: errUnexpected, Text: "Invalid change of accounts",
				Detail: strings.TrimSpace(err.Error())}
		}
		for _, note := range p.Notes {
			q.warn(strings.TrimSpace(note))
		}
		if len(p.Edits) == 0 {
			return p, nil
		}
		err = q.ask(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: f.Gen, Edits: p.Edits}, &proto.Empty{})
		var said *rpc.Error
		if err == nil || !errors.As(err, &said) || said.Code != proto.CodeOutdated || n == replans {
			return p, err
		}
		select {
		case <-time.After(rand.N(replanFor)): // others who have lost the race come at other moments
		case <-q.ctx.Done():
			return nil, q.ctx.Err()
		}
	}
}

// change adds or changes what words name, as gacctmgr add or modify: where are the words that name it.
func (q *request) change(entity string, exists func(*acctmgr.Facts) bool, where, set, add []string) error {
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		if exists(f) {
			if len(set) == 0 {
				return &acctmgr.Plan{}, nil
			}
			words := append(append([]string{"where"}, where...), "set")
			return acctmgr.Modify(f, entity, append(words, set...))
		}
		return acctmgr.Add(f, entity, append(append(append([]string{}, where...), set...), add...))
	})
	return err
}

// settings are words such as GrpJobs=5, from members of objects.
type settings []string

func (s *settings) add(key, value string) { *s = append(*s, key+"="+value) }

// text adds a member that is there and not empty.
func (s *settings) text(o *object, name, key string) {
	if v, ok := o.text(name); ok && v != "" {
		s.add(key, v)
	}
}

// limit adds a number. One that is there without a value clears the limit.
func (s *settings) limit(o *object, name, key string) {
	if o == nil {
		return
	}
	switch n := o.number(name); {
	case n.set:
		s.add(key, strconv.FormatInt(n.int(), 10))
	case n.given:
		s.add(key, "-1")
	}
}

// minutes is limit for a span.
func (s *settings) minutes(o *object, name, key string) {
	if o == nil {
		return
	}
	switch n := o.number(name); {
	case n.set:
		s.add(key, walltime.Elapsed(n.int()*60))
	case n.given:
		s.add(key, "-1")
	}
}

// amounts adds a list of resources.
func (s *settings) amounts(o *object, name, key string) {
	if o == nil {
		return
	}
	if list := o.objects(name); len(list) > 0 {
		s.add(key, tresWords(list))
	}
}

// in gives an object inside of others; nil: there is none.
func (o *object) at(names ...string) *object {
	for _, n := range names {
		if o == nil {
			return nil
		}
		o = o.object(n)
	}
	return o
}

// assocSettings reads the limits of an association.
func assocSettings(o *object) (s settings) {
	s.text(o.at("default"), "qos", "DefaultQOS")
	if list, ok := o.list("qos"); ok && len(list) > 0 {
		s.add("QosLevel", strings.Join(list, ","))
	}
	if n := o.number("shares_raw"); n.set && n.v > 0 {
		s.add("Fairshare", strconv.FormatInt(n.int(), 10))
	}
	s.limit(o, "priority", "Priority")
	s.text(o, "comment", "Comment")
	jobs := o.at("max", "jobs")
	s.limit(jobs, "active", "MaxJobs")
	s.limit(jobs, "total", "MaxSubmitJobs")
	s.limit(jobs, "accruing", "MaxJobsAccrue")
	per := jobs.at("per")
	s.limit(per, "count", "GrpJobs")
	s.limit(per, "submitted", "GrpSubmitJobs")
	s.limit(per, "accruing", "GrpJobsAccrue")
	s.minutes(per, "wall_clock", "MaxWall")
	tres := o.at("max", "tres")
	s.amounts(tres, "total", "GrpTRES")
	s.amounts(tres.at("group"), "minutes", "GrpTRESMins")
	s.amounts(tres.at("group"), "active", "GrpTRESRunMins")
	s.amounts(tres.at("minutes"), "total", "MaxTRESRunMins")
	s.amounts(tres.at("minutes", "per"), "job", "MaxTRESMins")
	s.amounts(tres.at("per"), "job", "MaxTRES")
	s.amounts(tres.at("per"), "node", "MaxTRESPerNode")
	s.minutes(o.at("max", "per", "account"), "wall_clock", "GrpWall")
	s.limit(o.at("min"), "priority_threshold", "MinPrioThreshold")
	o.ignore("id", "lineage", "is_default", "accounting", "flags", "cluster", "account", "user", "partition",
		"parent_account")
	return s
}

// recordSettings reads assoc_rec_set, the flat form.
func recordSettings(o *object) (s settings) {
	if o == nil {
		return nil
	}
	s.text(o, "defaultqos", "DefaultQOS")
	if list, ok := o.list("qoslevel"); ok && len(list) > 0 {
		s.add("QosLevel", strings.Join(list, ","))
	}
	for _, x := range [][2]string{{"grpjobs", "GrpJobs"}, {"grpjobsaccrue", "GrpJobsAccrue"}, {"grpsubmitjobs",
		"GrpSubmitJobs"},
		{"maxjobs", "MaxJobs"}, {"maxjobsaccrue", "MaxJobsAccrue"}, {"maxsubmitjobs", "MaxSubmitJobs"},
		{"minpriothresh", "MinPrioThreshold"}, {"priority", "Priority"}} {
		s.limit(o, x[0], x[1])
	}
	for _, x := range [][2]string{{"grpwall", "GrpWall"}, {"maxwalldurationperjob", "MaxWall"}} {
		s.minutes(o, x[0], x[1])
	}
	for _, x := range [][2]string{{"grptres", "GrpTRES"}, {"grptresmins", "GrpTRESMins"}, {"grptresrunmins",
		"GrpTRESRunMins"},
		{"maxtresminsperjob", "MaxTRESMins"}, {"maxtresrunmins", "MaxTRESRunMins"}, {"maxtresperjob", "MaxTRES"},
		{"maxtrespernode", "MaxTRESPerNode"}} {
		s.amounts(o, x[0], x[1])
	}
	s.text(o, "comment", "Comment")
	if n := o.number("fairshare"); n.set && n.v != 0 {
		s.add("Fairshare", strconv.FormatInt(n.int(), 10))
	}
	return s
}

// addAccount makes an account, or changes it.
func (q *request) addAccount(name, parent, description, organization string, more settings) error {
	var set settings
	if description != "" {
		set.add("Description", description)
	}
	if organization != "" {
		set.add("Organization", organization)
	}
	set = append(set, more...)
	if parent != "" {
		set.add("Parent", parent)
	}
	return q.change("account", func(f *acctmgr.Facts) bool { return f.Accounts[strings.ToLower(name)] != nil },
		[]string{"name=" + name}, set, nil)
}

func postAccounts(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, a := range b.objects("accounts") {
		name := a.str("name")
		a.ignore("flags", "associations")
		if name == "" {
			return &fault{Number: errUnexpected, Text: "Invalid change of accounts", Detail: "an account needs a name"}
		}
		if err := q.addAccount(name, "", a.str("description"), a.str("organization"), nil); err != nil {
			return err
		}
		if err := q.coordinators(a.objects("coordinators"), name); err != nil {
			return err
		}
	}
	return q.done(b)
}

// coordinators adds coordinators of an account.
func (q *request) coordinators(list []*object, account string) error {
	for _, c := range list {
		c.ignore("direct")
		user := c.str("name")
		if _, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
			return acctmgr.Add(f, "coordinator", []string{"account=" + account, "names=" + user})
		}); err != nil {
			return err
		}
	}
	return nil
}

func postAccountsAssociation(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	cond := b.object("association_condition")
	if cond == nil {
		return &fault{Number: errUnexpected, Text: "Invalid change of accounts",
			Detail: "association_condition says which accounts"}
	}
	names, _ := cond.list("accounts")
	cond.ignore("clusters")
	rec := cond.object("association")
	set := recordSettings(rec)
	parent := ""
	if rec != nil {
		parent = rec.str("parent")
	}
	var description, organization string
	if a := b.object("account"); a != nil {
		description, organization = a.str("description"), a.str("organization")
	}
	if err := b.top().err; err != nil {
		return err
	}
	for _, name := range names {
		if err := q.addAccount(name, parent, description, organization, set); err != nil {
			return err
		}
	}
	if err := q.done(b); err != nil {
		return err
	}
	q.j.Str("added_accounts", strings.Join(names, ","))
	return nil
}

// hasAssoc reports whether there is an association.
func hasAssoc(f *acctmgr.Facts, account, user, part string) bool {
	for _, a := range f.Associations(account, user) {
		if a.User == user && a.Partition == part {
			return true
		}
	}
	return false
}

// addUser makes a user's association with an account, or changes it.
func (q *request) addUser(user, account, part string, set, ofUser settings) error {
	where := []string{"name=" + user, "account=" + account}
	if part != "" {
		where = append(where, "partition="+part)
	}
	return q.change("user", func(f *acctmgr.Facts) bool { return hasAssoc(f, strings.ToLower(account), user, part) },
		where, set, ofUser)
}

func adminLevel(list []string) string {
	for _, l := range list {
		switch strings.ToLower(l) {
		case "not set", "":
		default:
			return l
		}
	}
	return ""
}

func postUsers(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, u := range b.objects("users") {
		name := u.str("name")
		if name == "" {
			return &fault{Number: errUnexpected, Text: "Invalid change of accounts", Detail: "a user needs a name"}
		}
		u.ignore("flags", "associations", "old_name", "wckeys")
		var set settings
		levels, _ := u.list("administrator_level")
		if l := adminLevel(levels); l != "" {
			set.add("AdminLevel", l)
		}
		def := u.object("default")
		s := ""
		if def != nil {
			def.ignore("wckey", "qos")
			s = def.str("account")
		}
		if s != "" {
			set.add("DefaultAccount", s)
		}
		if err := q.change("user", func(f *acctmgr.Facts) bool { return f.Users[name] != nil },
			[]string{"name=" + name}, set, nil); err != nil {
			return err
		}
		for _, c := range u.objects("coordinators") {
			c.ignore("direct")
			account := c.str("name")
			if _, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
				return acctmgr.Add(f, "coordinator", []string{"account=" + account, "names=" + name})
			}); err != nil {
				return err
			}
		}
	}
	return q.done(b)
}

func postUsersAssociation(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	cond := b.object("association_condition")
	if cond == nil {
		return &fault{Number: errUnexpected, Text: "Invalid change of accounts",
			Detail: "association_condition says which users and accounts"}
	}
	users, _ := cond.list("users")
	accounts, _ := cond.list("accounts")
	parts, _ := cond.list("partitions")
	cond.ignore("clusters", "wckeys")
	rec := cond.object("association")
	set := recordSettings(rec)
	if rec != nil {
		rec.ignore("parent")
	}
	var ofUser settings
	if u := b.object("user"); u != nil {
		levels, _ := u.list("adminlevel")
		if l := adminLevel(levels); l != "" {
			ofUser.add("AdminLevel", l)
		}
		if v := u.str("defaultaccount"); v != "" {
			ofUser.add("DefaultAccount", v)
		}
		u.ignore("defaultwckey", "defaultqos")
	}
	if err := b.top().err; err != nil {
		return err
	}
	if len(parts) == 0 {
		parts = []string{""}
	}
	for _, user := range users {
		for _, account := range accounts {
			for _, part := range parts {
				if err := q.addUser(user, account, part, set, ofUser); err != nil {
					return err
				}
			}
		}
		if len(accounts) == 0 {
			if err := q.change("user", func(f *acctmgr.Facts) bool { return f.Users[user] != nil },
				[]string{"name=" + user}, ofUser, nil); err != nil {
				return err
			}
		}
	}
	if err := q.done(b); err != nil {
		return err
	}
	q.j.Str("added_users", strings.Join(users, ","))
	return nil
}

func postAssociations(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, a := range b.objects("associations") {
		account, user, part, parent := a.str("account"), a.str("user"), a.str("partition"), a.str("parent_account")
		set := assocSettings(a)
		if err := b.top().err; err != nil {
			return err
		}
		if account == "" {
			return &fault{Number: errUnexpected, Text: "Invalid change of accounts",
				Detail: "an association needs an account"}
		}
		if user == "" {
			err = q.addAccount(account, parent, "", "", set)
		} else {
			err = q.addUser(user, account, part, set, nil)
		}
		if err != nil {
			return err
		}
	}
	return q.done(b)
}

func postQOS(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, x := range b.objects("qos") {
		name := x.str("name")
		if name == "" {
			return &fault{Number: errUnexpected, Text: "Invalid change of accounts", Detail: "a QOS needs a name"}
		}
		set := qosSettings(x)
		if err := b.top().err; err != nil {
			return err
		}
		if err := q.change("qos", func(f *acctmgr.Facts) bool { return f.QOS[strings.ToLower(name)] != nil },
			[]string{"name=" + name}, set, nil); err != nil {
			return err
		}
	}
	return q.done(b)
}

// qosSettings reads a QOS.
func qosSettings(o *object) (s settings) {
	s.text(o, "description", "Description")
	if flags, ok := o.list("flags"); ok && len(flags) > 0 {
		var list []string
		for _, f := range flags {
			if word := acctmgr.QOSFlag(f); word != "" {
				list = append(list, word)
			}
		}
		if len(list) > 0 {
			s.add("Flags", strings.Join(list, ","))
		}
	}
	s.limit(o, "priority", "Priority")
	for _, x := range [][2]string{{"usage_factor", "UsageFactor"}, {"usage_threshold", "UsageThreshold"}} {
		if n := o.number(x[0]); n.set {
			s.add(x[1], strconv.FormatFloat(n.v, 'f', -1, 64))
		}
	}
	if p := o.object("preempt"); p != nil {
		if list, ok := p.list("list"); ok && len(list) > 0 {
			s.add("Preempt", strings.Join(list, ","))
		}
		if modes, ok := p.list("mode"); ok && len(modes) > 0 && modes[0] != "DISABLED" {
			s.add("PreemptMode", strings.ToLower(modes[0]))
		}
		if n := p.number("exempt_time"); n.set {
			s.add("PreemptExemptTime", walltime.Elapsed(n.int()))
		}
	}
	limits := o.object("limits")
	if limits != nil {
		if n := limits.number("grace_time"); n.set && n.v > 0 {
			s.add("GraceTime", strconv.FormatInt(n.int(), 10))
		}
		if n := limits.number("factor"); n.set {
			s.add("LimitFactor", strconv.FormatFloat(n.v, 'f', -1, 64))
		}
	}
	most := limits.at("max")
	s.limit(most.at("active_jobs"), "accruing", "GrpJobsAccrue")
	s.limit(most.at("active_jobs"), "count", "GrpJobs")
	s.limit(most.at("jobs"), "count", "GrpSubmitJobs")
	s.limit(most.at("jobs", "active_jobs", "per"), "account", "MaxJobsPerAccount")
	s.limit(most.at("jobs", "active_jobs", "per"), "user", "MaxJobsPerUser")
	s.limit(most.at("jobs", "per"), "account", "MaxSubmitJobsPerAccount")
	s.limit(most.at("jobs", "per"), "user", "MaxSubmitJobsPerUser")
	s.limit(most.at("accruing", "per"), "account", "MaxJobsAccruePerAccount")
	s.limit(most.at("accruing", "per"), "user", "MaxJobsAccruePerUser")
	tres := most.at("tres")
	s.amounts(tres, "total", "GrpTRES")
	s.amounts(tres.at("minutes"), "total", "GrpTRESMins")
	s.amounts(tres.at("minutes", "per"), "qos", "GrpTRESRunMins")
	s.amounts(tres.at("minutes", "per"), "job", "MaxTRESMins")
	s.amounts(tres.at("minutes", "per"), "account", "MaxTRESRunMinsPerAccount")
	s.amounts(tres.at("minutes", "per"), "user", "MaxTRESRunMinsPerUser")
	s.amounts(tres.at("per"), "account", "MaxTRESPerAccount")
	s.amounts(tres.at("per"), "job", "MaxTRESPerJob")
	s.amounts(tres.at("per"), "node", "MaxTRESPerNode")
	s.amounts(tres.at("per"), "user", "MaxTRESPerUser")
	s.minutes(most.at("wall_clock", "per"), "qos", "GrpWall")
	s.minutes(most.at("wall_clock", "per"), "job", "MaxWall")
	s.limit(limits.at("min"), "priority_threshold", "MinPrioThreshold")
	s.amounts(limits.at("min", "tres", "per"), "job", "MinTRESPerJob")
	o.ignore("id", "name")
	return s
}

// remove removes what a name stands for, and lists what was removed.
func (q *request) remove(entity, list, name string, exists func(*acctmgr.Facts) bool) error {
	there := false
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		if there = exists(f); !there {
			return &acctmgr.Plan{}, nil
		}
		return acctmgr.Remove(f, entity, []string{"name=" + name})
	})
	if err != nil {
		return err
	}
	var gone []string
	if there {
		gone = []string{name}
	} else {
		q.warn("Nothing found with query: there is no " + entity + " " + name)
	}
	if list != "" {
		q.j.List(list, gone)
	}
	return nil
}

func deleteAccount(q *request) error {
	return q.remove("account", "removed_accounts", q.name,
		func(f *acctmgr.Facts) bool { return f.Accounts[strings.ToLower(q.name)] != nil })
}

func deleteUser(q *request) error {
	return q.remove("user", "", q.name, func(f *acctmgr.Facts) bool { return f.Users[q.name] != nil })
}

func deleteQOS(q *request) error {
	return q.remove("qos", "removed_qos", q.name,
		func(f *acctmgr.Facts) bool { return f.QOS[strings.ToLower(q.name)] != nil })
}

// deleteAssociations removes the associations that match: users from accounts, and accounts where no user is named.
func deleteAssociations(q *request) error {
	named := false
	for _, p := range []string{"account", "user", "partition", "parent_account", "id", "qos", "cluster", "default_qos"} {
		named = named || q.get(p) != ""
	}
	if !named {
		return &fault{Number: errQuery, Detail: "say which associations: account=, user= ..."}
	}
	var gone []string
	for {
		f, err := q.accountFacts()
		if err != nil {
			return err
		}
		keep := q.assocFilter(f)
		var next *model.Association
		for _, a := range f.Associations("", "") {
			if keep(a) && (a.User != "" || len(q.words("user")) == 0 && a.Account != model.RootAccount) {
				next = a // the last ones first: users before their accounts, and accounts before those above them
			}
		}
		if next == nil || len(gone) >= replans*replans {
			break
		}
		words := []string{"account=" + next.Account}
		entity := "account"
		if next.User != "" {
			entity, words = "user", append(words, "name="+next.User)
			if next.Partition != "" {
				words = append(words, "partition="+next.Partition)
			}
		} else {
			words = []string{"name=" + next.Account}
		}
		p, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) { return acctmgr.Remove(f, entity, words) })
		if err != nil {
			return err
		}
		if len(p.Edits) == 0 {
			break
		}
		line := "C = " + f.Cluster + " A = " + next.Account
		if next.User != "" {
			line += " U = " + next.User
		}
		gone = append(gone, line)
	}
	if len(gone) == 0 {
		q.warn("Nothing found with query: there is no such association")
	}
	q.j.List("removed_associations", gone)
	return nil
}

// postClusters: this cluster is there already.
func postClusters(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, c := range b.objects("clusters") {
		name := c.str("name")
		if name != q.facts.Config().Cluster {
			return unsupported("cluster " + name + ": this accounting is of cluster " + q.facts.Config().Cluster + " alone")
		}
		c.ignore("controller", "flags", "nodes", "select_plugin", "associations", "rpc_version", "tres")
	}
	return q.done(b)
}
