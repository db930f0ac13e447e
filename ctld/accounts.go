package ctld

import (
	"context"
	"slices"
	"strings"

	"gbatch/ctld/events"
	"gbatch/ctld/inuse"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/state"
)

// accounts sends, in parts, everything that gacctmgr shows and the caller may see.
func (c *Controller) accounts(_ context.Context, who *caller, rq *proto.AccountsRequest, send stream) error {
	v := c.machine.View()
	cfg := v.Config()
	sees := c.sees(v, who)
	chunk := &proto.AccountsChunk{}
	var has []model.TRESCount
	for _, d := range cfg.Nodes {
		has = model.AddNodeTRES(has, d)
	}
	for _, l := range cfg.Licenses {
		has = model.AddTRES(has, model.LicenseTRES(l.Name), l.Count)
	}
	tres, nodes := cfg.TRES(), ""
	if !sees.hides("nodes") {
		nodes = nodeList(cfg)
	}
	reset := func() {
		*chunk = proto.AccountsChunk{Gen: v.AcctGen(), Cluster: cfg.Cluster, TRES: tres, Addr: c.Addr(), Has: has,
			TrackWCKey: cfg.Params.TrackWCKey, Nodes: nodes}
	}
	reset()
	nodes = "" // the other parts have none
	n := 0
	var err error
	full := func() bool {
		if n++; n%proto.ChunkJobs == 0 {
			err = send(chunk)
			reset()
		}
		return err == nil
	}
	v.Accounts(func(a *model.Account) bool {
		if sees.account(a.Name) {
			chunk.Accounts = append(chunk.Accounts, a)
		}
		return full()
	})
	for _, name := range cfg.Accounts {
		if v.Account(name) == nil && err == nil && sees.account(name) {
			chunk.Accounts = append(chunk.Accounts,
				&model.Account{Name: name, Parent: model.RootAccount, Description: name, Organization: name})
			chunk.Assocs = append(chunk.Assocs, &model.Association{Account: name, Shares: 1})
			full()
		}
	}
	if err != nil {
		return err
	}
	v.Users(func(u *model.User) bool {
		if !sees.hides("users") || u.Name == sees.me {
			chunk.Users = append(chunk.Users, u)
		}
		return full()
	})
	v.Associations(func(a *model.Association) bool {
		if sees.assoc(a) {
			chunk.Assocs = append(chunk.Assocs, a)
		}
		return full()
	})
	v.AllQOS(func(q *model.QOS) bool { chunk.QOS = append(chunk.QOS, q); return full() })
	v.WCKeys(func(w *model.WCKey) bool {
		if !sees.hides("users") || w.User == sees.me {
			chunk.WCKeys = append(chunk.WCKeys, w)
		}
		return full()
	})
	if err != nil {
		return err
	}
	if rq.InUse {
		now := c.now()
		for _, x := range inuse.Of(v, multifactor.NewTree(v, now, nil), now, sees.usage) {
			if chunk.InUse = append(chunk.InUse, x); !full() {
				return err
			}
		}
	}
	return send(chunk)
}

// nodeList gives the cluster's nodes; "" where they are too many for one text.
func nodeList(cfg *model.Config) string {
	var names []string
	for _, d := range cfg.Nodes {
		names = append(names, d.Name)
	}
	text := hostlist.Compress(names)
	if len(text) > model.MaxText {
		return ""
	}
	return text
}

// editAccounts changes accounts, users, associations and QOS, in one step or not at all.
func (c *Controller) editAccounts(ctx context.Context, who *caller, rq *proto.EditAccountsRequest) error {
	v := c.machine.View()
	if len(rq.Edits) > state.MaxAcctEdits {
		return refuse(proto.CodeBadRequest, "%d changes in one request, the limit is %d", len(rq.Edits), state.MaxAcctEdits)
	}
	cmd := &state.Accounts{Gen: rq.Gen}
	made := map[string]bool{}
	for i := range rq.Edits {
		spelled := spellAccounts(v, rq.Edits[i])
		e := &spelled
		if err := c.mayEdit(v, who, e); err != nil {
			return err
		}
		if err := countedHere(v, e); err != nil {
			return err
		}
		if w := e.WCKey; e.Op == model.PutWCKey && w != nil {
			if err := model.CheckWCKey(w.Name); err != nil {
				return refuse(proto.CodeBadRequest, "%v", err)
			}
		}
		for _, name := range accountsOf(e) { // accounts that the configuration lists become facts with their first change
			if !made[name] && v.Account(name) == nil && slices.Contains(v.Config().Accounts, name) {
				made[name] = true
				cmd.Edits = append(cmd.Edits,
					model.AcctEdit{Op: model.PutAccount,
						Account: &model.Account{Name: name, Parent: model.RootAccount, Description: name, Organization: name}},
					model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: name, Shares: 1}})
			}
		}
		cmd.Edits = append(cmd.Edits, *e)
	}
	if _, err := c.encode(cmd); err != nil { // before an entry of the trail is made of it
		return err
	}
	ctx = events.With(ctx, c.by(who).Accounts(v, cmd.Edits))
	res, err := c.change(ctx, &proto.Empty{}, nil, cmd)
	if err != nil || res.Refusal == state.OK {
		return err
	}
	return acctRefusal(res, cmd)
}

// countedHere refuses values of an association that have no meaning there.
func countedHere(v *state.View, e *model.AcctEdit) error {
	a := e.Assoc
	if e.Op != model.PutAssoc || a == nil {
		return nil
	}
	if text := a.UncountedText(); text != "" {
		return refuse(proto.CodeBadRequest, "%s", text)
	}
	if a.OfPool() && v.Partition(a.Partition) == nil {
		return refuse(proto.CodeBadRequest, "account %s: there is no partition %s; ginfo lists them", a.Account, a.Partition)
	}
	return nil
}

// accountsOf names the accounts that an edit needs.
func accountsOf(e *model.AcctEdit) []string {
	switch {
	case e.Op == model.PutAccount && e.Account != nil:
		return []string{e.Account.Parent}
	case e.Op == model.PutUser && e.User != nil:
		return []string{e.User.DefaultAccount}
	case e.Assoc != nil:
		return []string{e.Assoc.Account}
	}
	return nil
}

// acctRefusal says which edit of a batch was refused, and why.
func acctRefusal(res state.Result, cmd *state.Accounts) error {
	if res.Refusal == state.Outdated || len(res.Each) == 0 {
		return refuse(proto.CodeOutdated,
			"somebody else has changed accounts meanwhile; look again and repeat the command")
	}
	e := &cmd.Edits[len(res.Each)-1]
	what := ""
	switch {
	case e.Account != nil:
		what = "account " + e.Account.Name
	case e.User != nil:
		what = "user " + e.User.Name
	case e.QOS != nil:
		what = "QOS " + e.QOS.Name
	case e.WCKey != nil:
		what = "wckey " + e.WCKey.Name + " of user " + e.WCKey.User
	case e.Assoc != nil:
		what = strings.TrimSpace("the association of account " + e.Assoc.Account + " " + e.Assoc.User)
		if e.Assoc.Partition != "" {
			what += " in partition " + e.Assoc.Partition
		}
	}
	switch res.Refusal {
	case state.JobsActive:
		if e.Op == model.RenameUser {
			return refuse(proto.CodeBadRequest, "%s has jobs that have not ended, or %s has: it can be renamed when they are "+
				"over, and without a crontab (gcrontab -r)", what, e.NewName)
		}
		return refuse(proto.CodeBadRequest, "Error with request: Job(s) active, cancel job(s) before remove (%s)", what)
	case state.NameTaken:
		return refuse(proto.CodeBadRequest, "%s can't become %s: there is a user of that name", what, e.NewName)
	case state.InUse:
		return refuse(proto.CodeBadRequest,
			"%s is still in use: an association, a default or an account below it refers to it; change or remove those first",
			what)
	case state.Circular:
		return refuse(proto.CodeBadRequest, "%s would stand below itself; give another parent", what)
	}
	return refuse(proto.CodeBadRequest, "%s: %s", what, res.Refusal)
}

// notTheirs gives a QOS that an edit newly gives to an association, and that neither its account (the one above, for an
// account's own) nor the coordinator has there; "": there is none.
func notTheirs(v *state.View, coordinator string, e *model.AcctEdit) string {
	if e.Op != model.PutAssoc {
		return ""
	}
	a, account := e.Assoc, e.Assoc.Account
	if a.User == "" {
		account = parentOf(v, account)
	}
	theirs, _ := v.QOSOf(account, coordinator, "")
	inherited, _ := v.QOSOf(account, "", "")
	theirs = slices.Concat(theirs, inherited)
	if old := v.Association(a.Account, a.User, a.Partition); old != nil {
		theirs = append(append(theirs, old.QOS...), old.DefQOS)
	}
	for _, q := range append(slices.Clone(a.QOS), a.DefQOS) {
		if q != "" && !slices.Contains(theirs, q) {
			return q
		}
	}
	return ""
}

// mayEdit refuses an edit that the caller may not make. Operators may change accounts, users and associations;
// administrators also QOS and AdminLevels; coordinators everything below their accounts.
func (c *Controller) mayEdit(v *state.View, who *caller, e *model.AcctEdit) error {
	level := c.level(who)
	denied := refuse(proto.CodeAccess, "Your user doesn't have privilege to perform this action")
	switch e.Op {
	case model.PutQOS, model.DropQOS:
		if level < model.AdminFull {
			return denied
		}
		return nil
	case model.PutUser:
		have := model.AdminNone
		if e.User != nil {
			if u := v.User(e.User.Name); u != nil {
				have = u.Admin
			}
			if max(e.User.Admin, have) > level && e.User.Admin != have {
				return denied
			}
		}
	case model.RenameUser: // the new name gets the old one's rights
		if e.User != nil {
			if u := v.User(e.User.Name); u != nil && u.Admin > level {
				return denied
			}
		}
	}
	if level >= model.AdminOperator {
		return nil
	}
	me := c.nameOf(who)
	below := func(account string) bool { return c.coordinates(v, who, account) }
	ok := false
	switch e.Op {
	case model.PutAccount, model.DropAccount:
		ok = e.Account != nil && below(e.Account.Parent) &&
			(v.Account(e.Account.Name) == nil && !slices.Contains(v.Config().Accounts, e.Account.Name) ||
				below(parentOf(v, e.Account.Name)))
	case model.PutUser: // a new user, or another default account for one
		if e.User == nil {
			break
		}
		old := v.User(e.User.Name)
		ok = below(e.User.DefaultAccount) && (old == nil || old.Admin == e.User.Admin) || e.User.Name == me && old != nil &&
			old.Admin == e.User.Admin
	case model.PutAssoc, model.DropAssoc:
		ok = e.Assoc != nil && (below(e.Assoc.Account) && e.Assoc.User != "" || below(parentOf(v, e.Assoc.Account)))
		if !ok {
			break
		}
		if q := notTheirs(v, me, e); q != "" {
			return refuse(proto.CodeAccess, "coordinators give the QOS that they or the account above have: QOS %s is given by "+
				"operators", q)
		}
	}
	if !ok {
		return denied
	}
	return nil
}

// parentOf gives the account above another one: root for accounts that are no facts, configured or not.
func parentOf(v *state.View, account string) string {
	if a := v.Account(account); a != nil {
		return a.Parent
	}
	return model.RootAccount
}

// accountName gives an account's name as the state has it: in lower case. An account that an older version recorded
// with capitals keeps them, and is found in any case.
func accountName(v *state.View, name string) string {
	low, listed := model.AccountName(name), v.Config().Accounts
	if low == "" || v.Account(low) != nil || slices.Contains(listed, low) {
		return low
	}
	if i := slices.IndexFunc(listed, func(n string) bool { return model.SameAccount(n, low) }); i >= 0 {
		return listed[i]
	}
	v.Accounts(func(a *model.Account) bool {
		if model.SameAccount(a.Name, low) {
			low = a.Name
			return false
		}
		return true
	})
	return low
}

// spellAccounts gives a copy of an edit with its accounts' names as the state has them.
func spellAccounts(v *state.View, e model.AcctEdit) model.AcctEdit {
	if e.Account != nil {
		a := *e.Account
		a.Name, a.Parent = accountName(v, a.Name), accountName(v, a.Parent)
		e.Account = &a
	}
	if e.User != nil {
		u := *e.User
		u.DefaultAccount = accountName(v, u.DefaultAccount)
		e.User = &u
	}
	if e.Assoc != nil {
		a := *e.Assoc
		a.Account = accountName(v, a.Account)
		e.Assoc = &a
	}
	return e
}

// defaultAccount gives the account of jobs that name none: the user's own default, DefaultAccount, else the first of
// Accounts.
func defaultAccount(v *state.View, user string) string {
	cfg := v.Config()
	if u := v.User(user); u != nil && u.DefaultAccount != "" &&
		(u.DefaultAccount != model.RootAccount || cfg.Params.NeedAccount) {
		return u.DefaultAccount
	}
	return cfg.HomeAccount()
}

// knownAccount refuses an account that does not exist or, with AccountingStorageEnforce=associations, that the user has
// no association with.
func knownAccount(v *state.View, sp *model.Spec) error {
	cfg := v.Config()
	listed := slices.Contains(cfg.Accounts, sp.Account)
	switch {
	case listed:
		return nil
	case cfg.Params.NeedAccount:
		for _, p := range append([]string{""}, sp.Partitions...) {
			if v.Association(sp.Account, sp.User, p) != nil {
				return nil
			}
		}
		if v.Account(sp.Account) == nil {
			return refuse(proto.CodeInvalidAccount, "--account=%s: there is no such account (AccountingStorageEnforce names "+
				"associations); see gacctmgr show assoc user=%s", sp.Account, sp.User)
		}
		return refuse(proto.CodeInvalidAccount,
			"--account=%s: user %s has no association with it; see gacctmgr show assoc user=%s", sp.Account, sp.User, sp.User)
	case len(cfg.Accounts) > 0 && v.Account(sp.Account) == nil:
		return refuse(proto.CodeInvalidAccount, "--account=%s: the accounts are %s", sp.Account,
			strings.Join(cfg.Accounts, ", "))
	}
	return nil
}

// chooseQOS fills in the QOS of a job that names none: its association's default, else normal. It refuses a QOS that
// does not exist or, with AccountingStorageEnforce=qos, that the association does not allow.
func (c *Controller) chooseQOS(v *state.View, sp *model.Spec) error {
	part := ""
	if len(sp.Partitions) > 0 {
		part = sp.Partitions[0]
	}
	allowed, preset := v.QOSOf(sp.Account, sp.User, part)
	if sp.QOS == "" {
		if sp.QOS = preset; sp.QOS == "" {
			sp.QOS = model.DefaultQOS
			if q := v.QOS(sp.QOS); sp.Extra().NeverIdle && q.Flags&model.QOSGPUIdleOK == 0 {
				return refuse(proto.CodeInvalidQOS, "--gpu-idle=off: QOS %s does not allow it; use one that does (gacctmgr show "+
					"qos format=name,flags), or an administrator: gacctmgr modify qos %[1]s set flags+=GpuIdleOK", sp.QOS)
			}
			if v.Config().Params.EnforceQOS && len(allowed) > 0 && !slices.Contains(allowed, sp.QOS) {
				sp.QOS = allowed[0]
			}
		}
	}
	if v.QOS(sp.QOS) == nil {
		var names []string
		v.AllQOS(func(q *model.QOS) bool { names = append(names, q.Name); return true })
		return refuse(proto.CodeInvalidQOS, "--qos=%s: the QOS are %s", sp.QOS, strings.Join(names, ", "))
	}
	if q := v.QOS(sp.QOS); q.Flags&model.QOSRequiresReservation != 0 && sp.Reservation == "" {
		return refuse(proto.CodeInvalidQOS,
			"--qos=%s: its jobs run in reservations only (RequiresReservation); name one with --reservation", sp.QOS)
	}
	if q := v.QOS(sp.QOS); sp.Extra().NoPreempt && q.Flags&model.QOSNoPreempt == 0 {
		return refuse(proto.CodeInvalidQOS, "--no-preempt: QOS %s does not allow it; use one that does (gacctmgr show qos "+
			"format=name,flags), or an administrator: gacctmgr modify qos %[1]s set flags+=NoPreempt", sp.QOS)
	}
	if v.Config().Params.EnforceQOS && !slices.Contains(allowed, sp.QOS) {
		return refuse(proto.CodeInvalidQOS, "--qos=%s: account %s may use %s", sp.QOS, sp.Account,
			strings.Join(allowed, ", "))
	}
	return nil
}

// shares lists accounts and their users with their shares and their usage, as of now.
func (c *Controller) shares(_ context.Context, who *caller, rq *proto.SharesRequest) (*proto.SharesReply, error) {
	v, now := c.machine.View(), c.now()
	sees := c.sees(v, who)
	tree := multifactor.NewTree(v, now, nil)
	run := inuse.RunMins(v, tree, now)
	out := &proto.SharesReply{}
	for i := range tree.Rows {
		r := &tree.Rows[i]
		// The id of a user who has had no job is not known, and then 0.
		named := hasUID(rq.Users, r.UID) && r.UID != 0 || hasName(rq.Names, r.User)
		if i > 0 && len(rq.Accounts) > 0 && !model.HasAccount(rq.Accounts, r.Account) || r.User != "" && len(rq.Users) > 0 &&
			!named || !sees.usage(r.Account, r.User) {
			continue
		}
		row := proto.ShareRow{Account: r.Account, Parent: r.Parent, User: r.User, UID: r.UID, Depth: int32(r.Depth),
			RawShares:  r.Shares,
			NormShares: r.Level.Shares, RawUsage: r.RawUsage(), NormUsage: r.NormUsage, Partition: r.Partition,
			UseParent: r.UseParent,
			Used:      r.Used, LevelFS: r.LF, RunMins: run[i]}
		if r.User != "" {
			row.FairShare = r.Factor
			if u := v.UsageOf(r.Account, r.User, r.Partition); u != nil {
				row.TRESMins = inuse.Mins(v.UsageAt(u, now))
			}
		}
		if r.Assoc != nil {
			row.ID, row.GrpTRESMins = r.Assoc.ID, r.Assoc.GrpTRESMins
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}
