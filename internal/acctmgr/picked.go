package acctmgr

import "gbatch/internal/model"

// Picked are the records of "show ENTITY words...", for programs: the records of its table, as shown.
type Picked struct {
	Entity   string // the list: accounts, users, associations, qos, wckeys, TRES or clusters
	Accounts []*model.Account
	Users    []*model.User
	Assocs   []*model.Association // with inherited values
	QOS      []*model.QOS
	WCKeys   []*model.WCKey
	TRES     []string
}

// Pick gives the records of "show ENTITY words...". Formats don't matter to it.
func Pick(f *Facts, entity string, args []string, o Options) (*Picked, error) {
	_, rows, err := Show(f, entity, args, o)
	if err != nil {
		return nil, err
	}
	p := &Picked{}
	switch {
	case is(entity, 2, "accounts", "acct"):
		p.Entity = "accounts"
	case is(entity, 1, "users"):
		p.Entity = "users"
	case is(entity, 2, "associations") || is(entity, 1, "tree"):
		p.Entity = "associations"
	case is(entity, 1, "qos"):
		p.Entity = "qos"
	case is(entity, 1, "wckeys"):
		p.Entity = "wckeys"
	case is(entity, 2, "tres"):
		p.Entity, p.TRES = "TRES", f.TRES
	default:
		p.Entity = "clusters"
	}
	accounts, users := map[string]bool{}, map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if r.acct != nil && p.Entity == "accounts" && !accounts[r.acct.Name] {
			accounts[r.acct.Name] = true
			p.Accounts = append(p.Accounts, r.acct)
		}
		if r.user != nil && p.Entity == "users" && !users[r.user.Name] {
			users[r.user.Name] = true
			p.Users = append(p.Users, r.user)
		}
		if r.assoc != nil && p.Entity == "associations" {
			p.Assocs = append(p.Assocs, r.assoc)
		}
		if r.wckey != nil {
			p.WCKeys = append(p.WCKeys, r.wckey)
		}
		if r.qos != nil {
			p.QOS = append(p.QOS, r.qos)
		}
	}
	return p, nil
}

// Associations gives an account's associations, or a user's, in the order of the tree.
func (f *Facts) Associations(account, user string) []*model.Association {
	var out []*model.Association
	for _, a := range f.tree() {
		if (account == "" || a.Account == account) && (user == "" || a.User == user) {
			out = append(out, a)
		}
	}
	return out
}

// Parent gives the account above another, or "".
func (f *Facts) Parent(account string) string { return f.parent(account) }

// TRESText writes limits as show has them, such as cpu=4,gres/gpu=2.
func TRESText(list []model.TRESLimit) string { return showTRES(list) }

// TRESID gives a resource's number.
func (f *Facts) TRESID(tres string) int64 { return model.TRESNumber(f.TRES, tres) }
