package state

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// ran lets a job of an account run on n1 for some seconds.
func ran(s *session, account string, seconds model.Time) model.JobID {
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Account: account, User: "ann", Partitions: []string{"p"}}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 6000,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(4), Tasks: 1}}}}}}})
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
	s.now += seconds * 1000
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, At: s.now}}})
	return id
}

// The worked figures: 4 units at 2.0 an hour for 2 s are billed for 60 s, and 1000 of credit become 999.87. The account
// above pays where it has the credit.
func TestCharges(t *testing.T) {
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	s.cfg.Params.Price = price.Table{MinS: 60, Lines: []price.Line{{Rates: []price.Rate{{TRES: "cpu", Micro: 2_000_000,
		Per: 1}}}}}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	for _, name := range []string{"physics", "sub"} {
		parent := map[string]string{"physics": "root", "sub": "physics"}[name]
		s.apply(&Accounts{Edits: acctEdits{{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: parent}}}})
	}
	if r := s.apply(&Credit{price.Ledger{Op: price.AddCredit, Account: "nobody", Amount: 5}}); r.Refusal != NoSuchAccount {
		t.Errorf("credit for nobody: %s", r.Refusal)
	}
	balance := func(account, want string) {
		t.Helper()
		if w := s.st.View().Payer(account); w == nil || w.Balance().String() != want {
			t.Errorf("%s has %v, want %s", account, w, want)
		}
	}
	ran(s, "physics", 2)
	balance("physics", "-0.13") // nobody has credit: it is owed
	s.apply(&Credit{price.Ledger{Op: price.AddCredit, Account: "physics", Amount: 1000 * price.One}})
	balance("physics", "999.87")
	ran(s, "sub", 3600)
	balance("sub", "991.87")
	s.apply(&Credit{price.Ledger{Op: price.AddCredit, Account: "sub", Amount: price.One}})
	ran(s, "sub", 3600)
	balance("sub", "-7.00")
	balance("physics", "991.87")
	ran(s, "unknown", 3600) // no such account: the records have it
	if w := s.st.View().Payer("unknown"); w != nil {
		t.Errorf("an unknown account has %+v", w)
	}
}

// Numbers of invoices have no gaps, and a time is on one invoice only.
func TestInvoiceNumbers(t *testing.T) {
	s := newSession(t)
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	issue := func(number uint64, start, end int64, want Refusal) {
		t.Helper()
		r := s.apply(&Issue{price.Invoice{Number: number, Account: "root", Start: start, End: end}})
		if r.Refusal != want {
			t.Errorf("invoice %d of [%d, %d): %s, want %s", number, start, end, r.Refusal, want)
		}
	}
	issue(2, 100, 200, Outdated)
	issue(1, 100, 200, OK)
	issue(1, 200, 300, Outdated)
	issue(2, 150, 300, Overlapping)
	issue(2, 200, 300, OK)
	for n := uint64(3); n < maxInvoices+10; n++ {
		issue(n, int64(n)*100, int64(n)*100+100, OK)
	}
	kept := 0
	s.st.View().Invoices(func(x *price.Invoice) bool { kept++; return true })
	if kept != maxInvoices || s.st.View().NextInvoice() != maxInvoices+10 {
		t.Errorf("%d invoices are kept, the next is %d", kept, s.st.View().NextInvoice())
	}
}
