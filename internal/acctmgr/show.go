package acctmgr

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
)

// Row is one line of a table: the records that its fields show, as far as there are any.
type Row struct {
	f     *Facts
	acct  *model.Account
	user  *model.User
	assoc *model.Association
	qos   *model.QOS
	wckey *model.WCKey
	tres  int // 1 and up: a resource
	tree  bool
	coord bool
	wrong string // of a problem
}

// Options are the options before the verb.
type Options struct {
	Style  format.Style
	Assocs bool // -s
}

// Show gives the table of "show ENTITY words...": its rows and how they are printed.
func Show(f *Facts, entity string, args []string, o Options) (*format.Printer[Row], []Row, error) {
	where, set := split(args)
	sh := &show{f: f, Options: o}
	words, err := sh.flags(append(where, set...))
	if err != nil {
		return nil, nil, err
	}
	var rows []Row
	lang, columns := accountFields(), ""
	switch {
	case is(entity, 2, "accounts", "acct"):
		rows, err = sh.accounts(words)
		if columns = "Account,Description,Organization"; sh.coord {
			columns += ",Coordinators"
		}
		if sh.Assocs {
			columns = "Account,Descr,Org,Cluster,ParentName,User,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins," +
				"MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS"
			if slices.ContainsFunc(rows, func(r Row) bool { return r.assoc != nil && r.assoc.OfPool() }) {
				columns = strings.Replace(columns, ",User,", ",User,Partition,", 1)
			}
		}
	case is(entity, 1, "users"):
		rows, err = sh.users(words)
		if columns = "User,DefaultAccount,AdminLevel"; f.Tracks {
			columns = "User,DefaultAccount,DefaultWCKey,AdminLevel"
		}
		if sh.coord {
			columns += ",Coordinators"
		}
		if sh.Assocs {
			columns += ",Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS," +
				"DefaultQOS"
		}
		lang = userFields()
	case is(entity, 2, "associations") || is(entity, 1, "tree"):
		sh.tree = sh.tree || is(entity, 1, "tree")
		rows, err = sh.associations(words)
		columns = "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs," +
			"MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins"
		if sh.noLimits {
			columns = "Cluster,Account,User,Partition"
		}
		if lang = assocFields(); sh.tree { // flush left, so that the depth shows
			lang.Fields[0].Width, lang.Fields[0].Left = 20, true
		}
	case is(entity, 1, "qos"):
		rows, err = sh.allQOS(words)
		columns = "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThreshold," +
			"UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode," +
			"MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxTRESRunMinsPA,MaxTRESRunMinsPU," +
			"MaxJobsPA,MaxSubmitPA,MinTRES"
		lang = qosFields()
	case is(entity, 2, "tres"):
		for i := range f.TRES {
			rows = append(rows, Row{f: f, tres: i + 1})
		}
		columns, lang = "Type,Name,ID", tresFields()
	case is(entity, 2, "clusters"):
		rows, err = sh.cluster(words)
		columns, lang = "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,"+
			"MaxWall,QOS,DefaultQOS", clusterFields()
	case is(entity, 1, "wckeys"):
		rows, err = sh.showKeys(words)
		columns, lang = "WCKey,Cluster,User", wckeyFields()
	case is(entity, 1, "problems"):
		rows, err = sh.problems(words)
		columns, lang = "Cluster,Account,User,Problem", problemFields()
	default:
		if columns, lang = emptyTable(entity, sh.withClusters); lang == nil {
			return nil, nil, noEntity("show", entity)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if sh.columns != "" {
		columns = sh.columns
	}
	p, err := lang.Table(columns, o.Style)
	if err != nil {
		return nil, nil, fmt.Errorf("Unknown field '%s'",
			strings.Trim(strings.TrimPrefix(err.Error(), "Invalid field requested: "), `"`))
	}
	return p, rows, nil
}

// emptyTable gives the columns of a table that Slurm has and this cluster never fills: it has no rows.
func emptyTable(entity string, withClusters bool) (columns string, lang *format.Language[Row]) {
	type column struct {
		name  string
		width int
	}
	tables := []struct {
		names   []string
		least   int
		columns []column
	}{
		{[]string{"federations", "fed"}, 1,
			[]column{{"Federation", -10}, {"Cluster", 10}, {"ID", 2}, {"Features", 20}, {"FedState", 12}}},
		{[]string{"resources"}, 4, []column{{"Name", 10}, {"Server", 10}, {"Type", 8}, {"Count", 6}, {"Allocated", 11},
			{"ServerType", 10}, {"Cluster", 10}, {"Allowed", 10}}},
	}
	for _, t := range tables {
		if !is(entity, t.least, t.names...) {
			continue
		}
		lang = &format.Language[Row]{Noun: "empty"}
		var names []string
		for _, c := range t.columns {
			title := ""
			if strings.HasPrefix(c.name, "All") {
				title = "% " + c.name
			}
			lang.Fields = append(lang.Fields,
				field{Name: c.name, Title: title, Width: max(c.width, -c.width), Left: c.width < 0,
					Get: func(*Row) string { return "" }})
			if names = append(names, c.name); c.name == "ServerType" && !withClusters {
				break
			}
		}
		return strings.Join(names, ","), lang
	}
	return "", nil
}

// show is one call.
type show struct {
	Options
	f                               *Facts
	columns                         string
	tree, coord, noLimits, noParent bool
	subAccounts, onlyDefaults       bool
	withClusters                    bool
}

// flags removes format= and the words that are neither names nor conditions.
func (sh *show) flags(words []word) (rest []word, err error) {
	for _, w := range words {
		v := strings.ToLower(w.value)
		switch {
		case is(w.key, 2, "format"):
			sh.columns += "," + w.value
		case w.key != "":
			rest = append(rest, w)
		case is(v, 4, "tree"):
			sh.tree = true
		case is(v, 5, "withassociations"):
			sh.Assocs = true
		case is(v, 5, "withcoordinators"):
			sh.coord = true
		case is(v, 5, "wolimits"):
			sh.noLimits = true
		case is(v, 4, "wopinformation") || is(v, 4, "woplimits"):
			sh.noParent = true
		case is(v, 5, "withsubaccounts"):
			sh.subAccounts = true
		case is(v, 4, "onlydefaults"):
			sh.onlyDefaults = true
		case is(v, 5, "withclusters"):
			sh.withClusters = true
		// nothing deleted is kept
		case is(v, 5, "withdeleted"), is(v, 5, "withfederations"), is(v, 5, "withrawqoslevel"):
		default:
			rest = append(rest, w)
		}
	}
	sh.columns = strings.TrimPrefix(sh.columns, ",")
	return rest, nil
}

// see gives an association as shown: with inherited values, unless an option says otherwise.
func (sh *show) see(a *model.Association) *model.Association {
	if sh.noParent {
		return a
	}
	return sh.f.effective(a)
}

func (sh *show) row(a *model.Association) Row {
	return Row{f: sh.f, assoc: sh.see(a), acct: sh.f.Accounts[a.Account], user: sh.f.Users[a.User], tree: sh.tree,
		coord: sh.coord}
}

func (sh *show) accounts(words []word) ([]Row, error) {
	var own, limits []word
	for _, w := range words {
		if is(w.key, 3, "users") || is(w.key, 4, "partitions") {
			limits = append(limits, w)
		} else {
			own = append(own, w)
		}
	}
	sel, err := sh.f.pickAccounts(own)
	if err != nil {
		return nil, err
	}
	s, err := sh.f.readPick(limits)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, name := range sel {
		if !sh.Assocs {
			rows = append(rows, Row{f: sh.f, acct: sh.f.Accounts[name], coord: sh.coord})
			continue
		}
		for _, a := range sh.f.tree() {
			if a.Account == name && s.assoc(a) {
				rows = append(rows, sh.row(a))
			}
		}
	}
	return rows, nil
}

func (sh *show) users(words []word) ([]Row, error) {
	s, err := sh.f.readPick(words)
	if err != nil {
		return nil, err
	}
	byUser := map[string][]*model.Association{}
	for _, a := range sh.f.tree() {
		byUser[a.User] = append(byUser[a.User], a)
	}
	var rows []Row
	for _, name := range sh.f.sortedUsers() {
		u := sh.f.Users[name]
		if !s.user(u) || !s.has(sh.f, u) {
			continue
		}
		n := 0
		for _, a := range byUser[name] {
			if s.assoc(a) {
				if n++; sh.Assocs {
					rows = append(rows, sh.row(a))
				}
			}
		}
		if !sh.Assocs && (n > 0 || !s.byAssoc) || sh.Assocs && n == 0 && !s.byAssoc {
			rows = append(rows, Row{f: sh.f, user: u, coord: sh.coord})
		}
	}
	return rows, nil
}

func (sh *show) associations(words []word) ([]Row, error) {
	for i := range words {
		if words[i].key == "" || is(words[i].key, 1, "wckeys") {
			return nil, unknownCondition(words[i])
		}
	}
	s, err := sh.f.readPick(words)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, a := range sh.f.tree() {
		fits := s.assoc(a)
		if !fits && sh.subAccounts && s.accounts != nil {
			wide := *s
			wide.accounts = nil
			fits = wide.assoc(a) && slices.ContainsFunc(s.accounts, func(up string) bool { return sh.f.within(a.Account, up) })
		}
		if u := sh.f.Users[a.User]; fits && sh.onlyDefaults && (u == nil || u.DefaultAccount != a.Account) {
			continue
		}
		if fits {
			rows = append(rows, sh.row(a))
		}
	}
	return rows, nil
}

func (sh *show) allQOS(words []word) ([]Row, error) {
	sel, err := sh.f.pickQOS(words)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, q := range sel {
		rows = append(rows, Row{f: sh.f, qos: q})
	}
	return rows, nil
}

func (sh *show) cluster(words []word) ([]Row, error) {
	for _, w := range words {
		if w.key != "" && !is(w.key, 1, "names", "clusters") {
			return nil, unknownCondition(w)
		}
		if !slices.Contains(names(w.value), strings.ToLower(sh.f.Cluster)) {
			return nil, nil
		}
	}
	r := Row{f: sh.f}
	if a := sh.f.assoc(model.RootAccount, "", ""); a != nil {
		r.assoc = sh.see(a)
	}
	return []Row{r}, nil
}

// problems gives what may not be meant: accounts and users that nobody can use.
func (sh *show) problems(words []word) ([]Row, error) {
	s, err := sh.f.readPick(words)
	if err != nil {
		return nil, err
	}
	used, of := map[string]bool{}, map[string]bool{}
	for key := range sh.f.assocs {
		if key.User != "" {
			used[key.Account], of[key.User] = true, true
		}
	}
	for name, a := range sh.f.Accounts {
		if name != model.RootAccount {
			used[a.Parent] = true // it has accounts below it
		}
	}
	var rows []Row
	for _, a := range sh.f.tree() {
		if a.User == "" && a.Partition == "" && !used[a.Account] && s.assoc(a) {
			rows = append(rows, Row{f: sh.f, assoc: a, wrong: "Account has no users"})
		}
	}
	for _, name := range sh.f.sortedUsers() {
		if u := sh.f.Users[name]; !of[name] && s.user(u) && !s.byAssoc {
			rows = append(rows, Row{f: sh.f, user: u, wrong: "User has no Associations"})
		}
	}
	return rows, nil
}
