package state

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
)

func acct(name, parent string) model.AcctEdit {
	return model.AcctEdit{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: parent}}
}

func user(name string) model.AcctEdit {
	return model.AcctEdit{Op: model.PutUser, User: &model.User{Name: name}}
}

func assoc(account, user string) model.AcctEdit {
	return model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: account, User: user, Shares: 1}}
}

type acctEdits = []model.AcctEdit

func drop(e model.AcctEdit) model.AcctEdit { e.Op++; return e } // a Drop follows its Put

// A batch of edits is applied whole or not at all, and the answer names the edit that was refused.
func TestAccountsAllOrNothing(t *testing.T) {
	s := newSession(t)
	apply := func(edits ...model.AcctEdit) Result {
		t.Helper()
		return s.apply(&Accounts{Edits: edits})
	}
	if r := apply(acct("science", "root"), acct("physics", "science"), user("ann"),
		assoc("physics", "ann")); r.Refusal != OK {
		t.Fatal(r.Refusal)
	}
	gen := s.st.View().AcctGen()
	high := model.AcctEdit{Op: model.DropQOS, QOS: &model.QOS{Name: "high"}}
	for _, c := range []struct {
		why   string
		edits acctEdits
		want  Refusal
		at    int // how many were taken before
	}{
		{"parent unknown", acctEdits{acct("a", "root"), acct("b", "none")}, NoSuchAccount, 1},
		{"below itself", acctEdits{acct("science", "physics")}, Circular, 0},
		{"user unknown", acctEdits{assoc("science", "bob")}, NoSuchUser, 0},
		{"account unknown", acctEdits{user("bob"), assoc("none", "bob")}, NoSuchAccount, 1},
		{"account with a child", acctEdits{drop(acct("science", ""))}, InUse, 0},
		{"account with a user", acctEdits{drop(acct("physics", ""))}, InUse, 0},
		{"user with an association", acctEdits{drop(user("ann"))}, InUse, 0},
		{"association unknown", acctEdits{drop(assoc("science", "ann"))}, NoSuchAssoc, 0},
		{"QOS unknown", acctEdits{{Op: model.PutAssoc,
			Assoc: &model.Association{Account: "physics", User: "ann", QOS: []string{"none"}}}}, NoSuchQOS, 0},
		{"the default QOS", acctEdits{high, {Op: model.DropQOS, QOS: &model.QOS{Name: "normal"}}}, InUse, 1},
		{"root", acctEdits{drop(acct("root", ""))}, InUse, 0},
	} {
		r := apply(c.edits...)
		if r.Refusal != c.want || len(r.Each) != c.at+1 || r.Changed {
			t.Errorf("%s: %v after %d edits, want %v after %d", c.why, r.Refusal, len(r.Each)-1, c.want, c.at)
		}
	}
	v := s.st.View()
	if v.AcctGen() != gen || v.Account("a") != nil || v.User("bob") != nil || v.QOS("high") == nil {
		t.Error("a refused batch has left something behind")
	}
	if r := s.apply(&Accounts{Gen: gen - 1, Edits: acctEdits{user("eve")}}); r.Refusal != Outdated {
		t.Errorf("edits made from old facts: %v", r.Refusal)
	}
	id := v.Association("physics", "ann", "").ID
	if r := apply(assoc("physics", "ann"), drop(assoc("physics", "ann")), drop(user("ann")), drop(acct("physics", "")),
		high); r.Refusal != OK {
		t.Error(r.Refusal)
	}
	if r := apply(acct("physics", "science"), user("ann"), assoc("physics", "ann")); r.Refusal != OK {
		t.Error(r.Refusal)
	}
	if got := s.st.View().Association("physics", "ann", "").ID; got == id {
		t.Error("a new association has the number of an old one")
	}
}

// A user with unfinished jobs can't lose the association that they run under.
func TestAccountsOfActiveJobs(t *testing.T) {
	s := newSession(t)
	s.apply(&SetConfig{Config: &model.Config{Cluster: "c", Partitions: []*model.Partition{{Name: "p"}}}})
	s.apply(&Accounts{Edits: acctEdits{acct("physics", "root"), user("ann"), assoc("physics", "ann")}})
	s.apply(&Submit{Spec: &model.Spec{Name: "j", Account: "physics", User: "ann", QOS: "high", Partitions: []string{"p"}}})
	if r := s.apply(&Accounts{Edits: acctEdits{drop(assoc("physics", "ann"))}}); r.Refusal != JobsActive {
		t.Errorf("the association goes away under the job: %v", r.Refusal)
	}
	if r := s.apply(&Accounts{Edits: acctEdits{{Op: model.DropQOS,
		QOS: &model.QOS{Name: "high"}}}}); r.Refusal != JobsActive {
		t.Errorf("the QOS goes away under the job: %v", r.Refusal)
	}
}

// TestWCKeys: users get wckeys by hand and by naming them in jobs, as far as the limit; a job keeps its number when the
// key goes, and a user whose default one goes has none.
func TestWCKeys(t *testing.T) {
	s := newSession(t)
	key := func(user, name string) model.AcctEdit {
		return model.AcctEdit{Op: model.PutWCKey, WCKey: &model.WCKey{User: user, Name: name}}
	}
	preset := func(key string) model.AcctEdit {
		return model.AcctEdit{Op: model.PutUser, User: &model.User{Name: "ann", DefaultWCKey: key}}
	}
	apply := func(want Refusal, edits ...model.AcctEdit) {
		t.Helper()
		if r := s.apply(&Accounts{Edits: edits}); r.Refusal != want {
			t.Fatalf("%v, want %v", r.Refusal, want)
		}
	}
	submit := func(text string) *model.Job {
		t.Helper()
		spec := &model.Spec{Name: "x", User: "ann", Partitions: []string{"main"}, MinNodes: 1, WCKey: text}
		r := s.apply(&Submit{Spec: spec})
		if r.Refusal != OK {
			t.Fatal(r.Refusal)
		}
		return s.st.View().Job(r.Job)
	}
	apply(NoSuchWCKey, preset("ml"))
	apply(NoSuchWCKey, user("ann"), key("ann", "ml"), preset("ml"), drop(key("ann", "bio")))
	if s.st.View().WCKey("ann", "ml") != nil {
		t.Error("a refused batch has left a wckey behind")
	}
	apply(OK, user("ann"), key("ann", "ml"), key("bob", "ml"), preset("ml"))
	if j := submit("ml"); j.WCKeyID != 0 {
		t.Errorf("usage is kept by wckey %d without TrackWCKey", j.WCKeyID)
	}
	cfg := *s.st.View().Config()
	cfg.Params.TrackWCKey = true
	s.apply(&SetConfig{Config: &cfg})
	gen := s.st.View().AcctGen()
	marked, named := submit("*ml"), submit("new")
	v := s.st.View()
	if ml := v.WCKey("ann", "ml"); ml == nil || marked.WCKeyID != ml.ID {
		t.Errorf("job with %+v has wckey %d", ml, marked.WCKeyID)
	}
	if w := v.WCKey("ann", "new"); w == nil || named.WCKeyID != w.ID || v.AcctGen() != gen {
		t.Errorf("job with %+v has wckey %d, generation %d after %d", w, named.WCKeyID, v.AcctGen(), gen)
	}
	sp := *named.Spec
	sp.WCKey = "other"
	if r := s.apply(&Edit{Targets: []model.JobRef{{Job: named.ID, Task: model.NoTask}}, Set: []Field{SetSpec},
		Spec: &sp}); r.Each[0] != OK {
		t.Fatal(r)
	}
	other := s.st.View().WCKey("ann", "other")
	if j := s.st.View().Job(named.ID); other == nil || j.WCKeyID != other.ID {
		t.Errorf("an edited job with %+v has wckey %d", other, j.WCKeyID)
	}
	apply(OK, drop(key("ann", "ml")))
	if v := s.st.View(); v.User("ann").DefaultWCKey != "" || v.Job(marked.ID).WCKeyID != marked.WCKeyID {
		t.Error("the default wckey has gone, and its user still has it, or its job does not")
	}
	for len(s.st.View().WCKeysOf("ann")) < MaxWCKeys {
		submit(fmt.Sprint("k", len(s.st.View().WCKeysOf("ann"))))
	}
	if j := submit("toomany"); j.WCKeyID != 0 || s.st.View().WCKey("ann", "toomany") != nil {
		t.Error("a user has more wckeys than the limit")
	}
	apply(OK, drop(user("ann")))
	if v := s.st.View(); len(v.WCKeysOf("ann")) > 0 || len(v.WCKeysOf("bob")) != 1 {
		t.Error("wckeys of a user that is gone are left, or those of another one are gone")
	}
}
