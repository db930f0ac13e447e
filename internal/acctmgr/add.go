package acctmgr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// Add plans "add ENTITY words...".
func Add(f *Facts, entity string, args []string) (*Plan, error) {
	where, set := split(args)
	words := append(where, set...)
	switch {
	case is(entity, 1, "accounts", "account", "acct"):
		return f.addAccounts(words)
	case is(entity, 1, "users", "user"):
		return f.addUsers(words)
	case is(entity, 1, "qos"):
		return f.addQOS(words)
	case is(entity, 3, "coordinators", "coordinator"):
		return f.coordinators(words, true)
	case is(entity, 3, "clusters", "cluster"):
		return f.addCluster(words)
	case is(entity, 1, "wckeys"):
		return f.addKeys(words)
	}
	return nil, noEntity("add", entity)
}

// addCluster answers the first line of a site's set-up script: this cluster is there already, and there is no other.
func (f *Facts) addCluster(words []word) (*Plan, error) {
	p := &Plan{}
	for _, w := range words {
		if w.key != "" && !is(w.key, 1, "names", "clusters") {
			return nil, fmt.Errorf(" %s of a cluster is its root account's: modify account root set %s=", w.key, w.key)
		}
		for _, name := range names(w.value) {
			if !strings.EqualFold(name, f.Cluster) {
				return nil, noEntity("add", "cluster")
			}
			p.note(" This cluster '%s' already exists.  Not adding.", f.Cluster)
		}
	}
	if len(p.Notes) == 0 {
		return nil, fmt.Errorf(" Need name of cluster to add.")
	}
	return p, nil
}

// noEntity gives the error for an unknown entity, with the known ones.
func noEntity(verb, entity string) error {
	instead := map[string]string{"cluster": "a cluster is made by its configuration, see gbatch.conf(5)",
		"tres":         "resources come from the nodes in gbatch.conf",
		"wckeys":       "add and delete them; a user's default one is modify user ... set DefaultWCKey=KEY",
		"federation":   "one cluster stands alone",
		"resources":    "there are no licences of servers; those of the cluster are Licenses= in gbatch.conf",
		"pools":        "they are partitions, see gcontrol; show pool lists them",
		"events":       "they are made by what happens; show lists them",
		"transactions": "they are made by changes; show lists them",
		"reservations": "see gcontrol", "runawayjobs": "gctld and gdbd agree about jobs by themselves",
		"problems": "show problems lists them",
		"stats":    "show stats prints them", "configuration": "it is in gbatch.conf",
		"archive": "gdbd keeps its own files"}
	for name, text := range instead {
		if len(entity) >= 3 && strings.HasPrefix(name, strings.ToLower(entity)) {
			return fmt.Errorf(" %s %s is not supported by gbatch: %s", verb, name, text)
		}
	}
	if verb == "list" || verb == "show" {
		return errors.New("No valid entity in list command\nInput line must include \"Account\", \"Association\", " +
			"\"Balance\", \"Budget\", \"Cluster\", \"Event\", \"Invoice\", \"Pool\", \"Price\", \"QOS\", \"RunAwayJobs\", " +
			"\"Transaction\", \"TRES\", \"Tree\", \"User\" or \"WCKey\"")
	}
	return fmt.Errorf(" No valid entity in %s command\n"+
		" Input line must include \"Account\", \"User\", \"QOS\" or \"Coordinator\"", verb)
}

func (f *Facts) addAccounts(words []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing new added."}
	var list []string
	var rest []word
	parent, description, organization := model.RootAccount, "", ""
	var parts []string
	for _, w := range words {
		var err error
		switch {
		case w.key == "" || is(w.key, 3, "names", "accounts"):
			list = append(list, names(w.value)...)
		case is(w.key, 1, "clusters"):
			err = f.checkCluster(w.value)
		case is(w.key, 3, "parents"):
			parent = strings.ToLower(w.value)
		case is(w.key, 3, "description"):
			description = w.value
		case is(w.key, 1, "organization"):
			organization = w.value
		case is(w.key, 4, "partitions"):
			parts = append(parts, partNames(w.value)...)
		default:
			rest = append(rest, w)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(" Need name of account to add.")
	}
	if f.Accounts[parent] == nil {
		return nil, fmt.Errorf(" Parent account '%s' doesn't exist on cluster %s\n"+
			"        Contact your admin to add this account.", parent, f.Cluster)
	}
	a := model.Association{Shares: 1}
	ofPools := rest
	if len(parts) > 0 { // the limits are those in the partitions
		rest = nil
	}
	said, err := limited(f, &a, rest)
	if err != nil {
		return nil, err
	}
	var made, lines []string
	for _, name := range list {
		if err := checkName("Account", name); err != nil {
			return nil, err
		}
		if f.Accounts[name] != nil {
			if len(parts) == 0 {
				p.note(" This account '%s' already exists.  Not adding.", name)
			}
			continue
		}
		acct := &model.Account{Name: name, Parent: parent, Description: or(description, name),
			Organization: or(organization, or(notRoot(parent), name))}
		n := a
		n.Account = name
		p.edit(model.AcctEdit{Op: model.PutAccount, Account: acct})
		p.putAssoc(&n)
		made, lines = append(made, "  "+name), append(lines, f.assocLine(&n))
	}
	if len(parts) > 0 {
		var more []string
		if more, said, err = f.addPools(p, list, parts, ofPools); err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	if len(lines) == 0 {
		return p, nil
	}
	if len(made) > 0 {
		p.say(" Adding Account(s)")
		p.Text = append(p.Text, made...)
		p.say(" Settings")
		p.say("  Description     = %s", or(description, "Account Name"))
		p.say("  Organization    = %s", or(organization, "Parent/Account Name"))
	}
	p.say(" Associations")
	p.Text = append(p.Text, lines...)
	if len(made) > 0 && (parent != model.RootAccount || len(said) > 0 || description != "" || organization != "") {
		said = append(said, "  Parent        = "+parent)
	}
	p.settings(ordered(said))
	return p, nil
}

// addPools plans accounts' limits in partitions, and gives the lines about them.
func (f *Facts) addPools(p *Plan, accounts, parts []string, words []word) (lines, said []string, err error) {
	for _, name := range accounts {
		for _, part := range parts {
			if f.assoc(name, "", part) != nil {
				p.note(" Account '%s' has limits in partition '%s'.  Change them with: modify account where name=%s "+
					"partition=%s set ...", name, part, name, part)
				continue
			}
			n := &model.Association{Account: name, Partition: part}
			if said, err = limited(f, n, words); err != nil {
				return nil, nil, err
			}
			p.putAssoc(n)
			lines = append(lines, f.assocLine(n))
		}
	}
	return lines, said, nil
}

func (p *Plan) settings(said []string) {
	if len(said) > 0 {
		p.say(" Settings")
		p.Text = append(p.Text, said...)
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (f *Facts) addQOS(words []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing new added."}
	var list []string
	var rest []word
	for _, w := range words {
		if w.key == "" || is(w.key, 3, "names") {
			list = append(list, names(w.value)...)
			continue
		}
		rest = append(rest, w)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(" Need name of qos to add.")
	}
	q := model.QOS{UsageFactor: model.FactorOne}
	if _, err := apply(f, qosAttrs(), &q, rest); err != nil {
		return nil, err
	}
	var made []string
	for _, name := range list {
		if err := checkName("QOS", name); err != nil {
			return nil, err
		}
		if f.QOS[name] != nil {
			p.note(" This qos '%s' already exists.  Not adding.", name)
			continue
		}
		n := q
		n.Name, n.Description = name, or(q.Description, name)
		p.edit(model.AcctEdit{Op: model.PutQOS, QOS: &n})
		made = append(made, "  "+name)
	}
	if len(made) > 0 {
		p.say(" Adding QOS(s)")
		p.Text = append(p.Text, made...)
		p.say(" Settings")
		p.say("  Description    = %s", or(q.Description, list[len(list)-1]))
		p.Text = append(p.Text, qosSettings(&q, rest)...)
	}
	return p, nil
}

// qosSaid has the settings of a new QOS in Slurm's order, and the names that it prints where they are not ours.
var qosSaid = [][2]string{{"Flags"}, {"GraceTime"}, {"GrpJobs"}, {"GrpJobsAccrue"}, {"GrpSubmitJobs"}, {"GrpTRES"},
	{"GrpTRESMins"}, {"GrpTRESRunMins"}, {"GuaranteedTRES"}, {"GrpWall"}, {"MaxJobsAccruePA", "MaxJobsAccruePerAccount"},
	{"MaxJobsAccruePU", "MaxJobsAccruePerUser"}, {"MaxJobsPA", "MaxJobsPerAccount"}, {"MaxJobsPU", "MaxJobsPerUser"},
	{"MaxSubmitPA", "MaxSubmitJobsPerAccount"}, {"MaxSubmitPU", "MaxSubmitJobsPerUser"},
	{"MaxTRESPA", "MaxTRESPerAccount"}, {"MaxTRES", "MaxTRESPerJob"}, {"MaxTRESPerNode"}, {"MaxTRESPU", "MaxTRESPerUser"},
	{"MinPrioThreshold", "MinPrioThresh"}, {"MinTRES", "MinTRESPerJob"}, {"MaxTRESMins"},
	{"MaxTRESRunMinsPA", "MaxTRESRUNMinsPerAccount"}, {"MaxTRESRunMinsPU", "MaxTRESRUNMinsPerUser"}, {"MaxWall"},
	{"Preempt"}, {"PreemptMode"}, {"PreemptExemptTime"}, {"Priority"}, {"UsageFactor"}, {"UsageThreshold"},
	{"LimitFactor"}}

// qosSettings says what the words set of a new QOS.
func qosSettings(q *qos, words []word) (said []string) {
	attrs, unset := qosAttrs(), &qos{UsageFactor: model.FactorOne}
	for _, name := range qosSaid {
		a := &attrs[slices.IndexFunc(attrs, func(a attr[qos]) bool { return a.label == name[0] })]
		value := a.get(q)
		given := func(w word) bool { return find(attrs, w.key).label == a.label }
		if value == a.get(unset) && !slices.ContainsFunc(words, given) {
			continue
		}
		switch name[0] {
		case "UsageFactor", "UsageThreshold", "LimitFactor":
			value = value[:max(0, len(value)-2)] // four digits
		case "GraceTime":
			value = strconv.FormatInt(q.GraceTimeS, 10)
		case "PreemptMode":
			value = strings.ToUpper(value)
		}
		said = append(said, fmt.Sprintf("  %-24s = %s", or(name[1], name[0]), value))
	}
	return said
}

// coordinators plans that users become coordinators of accounts, or cease to be.
func (f *Facts) coordinators(words []word, add bool) (*Plan, error) {
	p := &Plan{Nothing: " Nothing new added."}
	if !add {
		p.Nothing = " Nothing removed"
	}
	var users, accounts, removed []string
	for _, w := range words {
		switch {
		case w.key == "" || is(w.key, 1, "names", "users"):
			users = append(users, names(w.value)...)
		case is(w.key, 1, "accounts"):
			accounts = append(accounts, names(w.value)...)
		default:
			return nil, unknownCondition(w)
		}
	}
	if len(accounts) == 0 || len(users) == 0 {
		return nil, fmt.Errorf(" You need to specify a user list and an account list here: names=USERS account=ACCOUNTS.")
	}
	for _, u := range users {
		if f.Users[u] == nil {
			return nil, fmt.Errorf(" This user '%s' doesn't exist; add it first with gacctmgr add user", u)
		}
	}
	for _, name := range accounts {
		a := f.Accounts[name]
		if a == nil {
			return nil, fmt.Errorf(" This account '%s' doesn't exist.\n        Contact your admin to add this account.", name)
		}
		n := *a
		n.Coordinators = slices.DeleteFunc(slices.Clone(a.Coordinators),
			func(c string) bool { return slices.Contains(users, c) })
		if add {
			n.Coordinators = append(n.Coordinators, users...)
			slices.Sort(n.Coordinators)
		}
		same := slices.Equal(n.Coordinators, a.Coordinators)
		if same && !add {
			continue
		}
		if len(p.Text) == 0 {
			said := [2]string{" Adding Coordinator User(s)", " To Account(s) and all sub-accounts"}
			if !add {
				said = [2]string{" Removing Coordinators with user name", " From Account(s)"}
			}
			p.say("%s", said[0])
			for _, u := range users {
				p.say("  %s", u)
			}
			p.say("%s", said[1])
		}
		for _, u := range users {
			if !add && slices.Contains(a.Coordinators, u) {
				removed = append(removed, fmt.Sprintf("  U = %-9.9s A = %s", u, name))
			}
		}
		p.say("  %s", name)
		if !same { // who is one already is named too, as in Slurm
			p.edit(model.AcctEdit{Op: model.PutAccount, Account: &n})
		}
	}
	p.list(" Removed Coordinators (sub accounts not listed)...", removed)
	return p, nil
}

// notRoot gives an account's name, "" for root's.
func notRoot(account string) string {
	if account == model.RootAccount {
		return ""
	}
	return account
}
