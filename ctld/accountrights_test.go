package ctld

import (
	"context"
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/userdb"
)

// The users of these tests, and their ids.
const (
	plainUser, coordUser, operUser, adminUser, systemUID = 1001, 1002, 1003, 1004, 900
)

// someUsers is a user database.
func someUsers() *userdb.DB {
	names := map[uint32]string{0: "root", systemUID: "slurm", plainUser: "ann", coordUser: "coord", operUser: "oper",
		adminUser: "admin", 65534: "nobody"}
	return userdb.NewWith(func(_ context.Context, uid uint32) (userdb.User, error) {
		if names[uid] == "" {
			return userdb.User{}, userdb.ErrUnknown
		}
		return userdb.User{UID: uid, GID: uid, Name: names[uid], Groups: []uint32{0, 4, uid}}, nil
	}, func(_ context.Context, gid uint32) (string, error) { return fmt.Sprint("g", gid), nil })
}

// someAccounts makes account fact, whose coordinator is coord, below it sub, and the users.
func someAccounts() *state.Accounts {
	edits := &state.Accounts{}
	for _, a := range []*model.Account{{Name: "fact", Parent: model.RootAccount, Coordinators: []string{"coord"}},
		{Name: "sub", Parent: "fact"}} {
		edits.Edits = append(edits.Edits, model.AcctEdit{Op: model.PutAccount, Account: a},
			model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: a.Name, Shares: 1}})
	}
	edits.Edits = append(edits.Edits, model.AcctEdit{Op: model.PutQOS, QOS: &model.QOS{Name: "fast"}},
		model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: "fact", Shares: 1,
			QOS: []string{"normal", "fast"}}})
	for name, level := range map[string]model.AdminLevel{"ann": 0, "coord": 0, "oper": model.AdminOperator,
		"admin": model.AdminFull} {
		edits.Edits = append(edits.Edits, model.AcctEdit{Op: model.PutUser, User: &model.User{Name: name,
			DefaultAccount: "fact", Admin: level}})
	}
	return edits
}

// ruled makes a controller without network that knows these users and three accounts: fact, whose coordinator is
// coord, below it sub, and conf, which only the configuration names.
func ruled(t *testing.T) *Controller {
	t.Helper()
	c := &Controller{machine: newMachine(), people: someUsers(), opts: Options{UID: systemUID, Name: "ctl1"}}
	for i, b := range []state.Body{&state.SetConfig{Config: &model.Config{Cluster: "c", Accounts: []string{"conf"}},
		Instance: 1}, someAccounts()} {
		data, err := state.Encode(model.Time(1000+i), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range c.machine.Apply(uint64(i+1), [][]byte{data}) {
			if r, ok := res.(state.Result); ok && r.Refusal != state.OK {
				t.Fatal(r.Refusal)
			}
		}
	}
	if c.machine.View().Account("sub") == nil || c.machine.View().User("admin") == nil {
		t.Fatal("the accounts are not there")
	}
	return c
}

// at is a caller on a controller.
func at(uid uint32) *caller {
	return &caller{Caller: proto.Caller{UID: uid, GID: uid}, most: model.RightsAdministrator, from: model.FromController}
}

// TestWhoEditsAccounts walks every edit of accounts by everybody, of accounts that are facts, that only the
// configuration names, and that nobody knows. What is no fact is below root: no coordinator's, and no user's.
func TestWhoEditsAccounts(t *testing.T) {
	c := ruled(t)
	v := c.machine.View()
	edit := func(op model.AcctOp, account string) *model.AcctEdit {
		e := &model.AcctEdit{Op: op}
		switch op {
		case model.PutAccount, model.DropAccount:
			e.Account = &model.Account{Name: account, Parent: model.RootAccount}
			if a := v.Account(account); a != nil {
				e.Account.Parent = a.Parent
			}
		case model.PutUser, model.DropUser:
			e.User = &model.User{Name: "new", DefaultAccount: account}
		case model.PutAssoc, model.DropAssoc:
			e.Assoc = &model.Association{Account: account}
		case model.PutQOS, model.DropQOS:
			e.QOS = &model.QOS{Name: "q"}
		}
		return e
	}
	coords := map[string]bool{ // of fact and what is below it; not of fact itself, which is below root
		fmt.Sprint(model.PutAccount, "sub"): true, fmt.Sprint(model.DropAccount, "sub"): true,
		fmt.Sprint(model.PutAssoc, "sub"): true, fmt.Sprint(model.DropAssoc, "sub"): true,
		fmt.Sprint(model.PutUser, "sub"): true, fmt.Sprint(model.PutUser, "fact"): true,
	}
	for op := model.PutAccount; op <= model.DropQOS; op++ {
		for _, account := range []string{"fact", "sub", "conf", "unknown"} {
			qos := op == model.PutQOS || op == model.DropQOS
			for uid, want := range map[uint32]bool{plainUser: false, coordUser: coords[fmt.Sprint(op, account)],
				operUser: !qos, adminUser: true, 0: true, systemUID: true} {
				if got := c.mayEdit(v, at(uid), edit(op, account)) == nil; got != want {
					t.Errorf("edit %d of account %s by user %d: allowed %v", op, account, uid, got)
				}
			}
		}
	}
	// A user's own association is below its account.
	for _, x := range []struct {
		uid     uint32
		account string
		want    bool
	}{{coordUser, "fact", true}, {coordUser, "sub", true}, {coordUser, "conf", false}, {coordUser, "unknown", false},
		{plainUser, "fact", false}, {plainUser, "conf", false}} {
		e := &model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: x.account, User: "ann"}}
		if got := c.mayEdit(v, at(x.uid), e) == nil; got != x.want {
			t.Errorf("an association of a user with %s by user %d: allowed %v", x.account, x.uid, got)
		}
	}
	// Nobody gives themselves a level, and a new account does not take the place of a configured one.
	for _, uid := range []uint32{plainUser, coordUser, operUser} {
		e := &model.AcctEdit{Op: model.PutUser,
			User: &model.User{Name: "ann", DefaultAccount: "fact", Admin: model.AdminFull}}
		if c.mayEdit(v, at(uid), e) == nil {
			t.Errorf("user %d makes administrators", uid)
		}
	}
	e := &model.AcctEdit{Op: model.PutAccount, Account: &model.Account{Name: "conf", Parent: "fact"}}
	if c.mayEdit(v, at(coordUser), e) == nil {
		t.Error("a coordinator takes an account that the configuration names")
	}
	// A coordinator gives what the account has, and no other QOS.
	for _, x := range []struct {
		account, user string
		qos           []string
		preset        string
		want          bool
	}{{"sub", "coord", []string{"urgent"}, "", false}, {"sub", "", []string{"normal", "urgent"}, "", false},
		{"sub", "ann", nil, "urgent", false}, {"sub", "ann", []string{"normal"}, "normal", true},
		{"sub", "", []string{"normal"}, "", true}, {"fact", "ann", []string{"fast"}, "", true},
		{"sub", "ann", []string{"fast"}, "fast", true}} {
		e := &model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: x.account, User: x.user, QOS: x.qos,
			DefQOS: x.preset}}
		if got := c.mayEdit(v, at(coordUser), e) == nil; got != x.want {
			t.Errorf("QOS %q and %q for user %q of %s: allowed %v", x.qos, x.preset, x.user, x.account, got)
		}
		if c.mayEdit(v, at(operUser), e) != nil {
			t.Errorf("an operator may not give QOS %q", x.qos)
		}
	}
}
