package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// money.go answers about money. Credit, budgets and invoices are facts (state/acctuse.go); what runs cost in a time is
// asked of gdbd, which has the records. An invoice keeps the lines that gdbd gave for it.

// money sends prices, and the balances, invoices and present use of the accounts that the caller may see.
func (c *Controller) money(_ context.Context, who *caller, rq *proto.MoneyRequest, send stream) error {
	v := c.machine.View()
	sees := c.sees(v, who)
	if sees.hides("usage") { // only accounts that the caller has something to do with
		sees.hid = append(slices.Clip(sees.hid), "accounts")
	}
	shown := func(account string) bool {
		return (len(rq.Accounts) == 0 || model.HasAccount(rq.Accounts, account)) && sees.usage(account, "")
	}
	chunk := &proto.MoneyChunk{Cluster: v.Config().Cluster, Prices: v.Config().Params.Price}
	var err error
	rows := 0
	full := func() bool {
		if rows++; rows%proto.ChunkJobs == 0 {
			err = send(chunk)
			chunk = &proto.MoneyChunk{}
		}
		return err == nil
	}
	if rq.Invoices {
		v.Invoices(func(x *price.Invoice) bool {
			if (rq.Number == 0 || x.Number == rq.Number) && shown(x.Account) {
				chunk.Invoices = append(chunk.Invoices, x)
				rows += len(x.Bills)
				return full()
			}
			return true
		})
	} else {
		v.Wallets(func(w *price.Wallet) bool {
			if shown(w.Account) {
				n := *w
				n.Months = nil
				chunk.Wallets = append(chunk.Wallets, &n)
				return full()
			}
			return true
		})
		for _, u := range presentUse(v) {
			if err == nil && shown(u.Account) {
				chunk.Use = append(chunk.Use, u)
				full()
			}
		}
	}
	if err != nil {
		return err
	}
	return send(chunk)
}

// presentUse gives what the running jobs of each account hold, in order of account and resource: of generic resources
// with types each type, and all of them.
func presentUse(v *state.View) []proto.AccountUse {
	type key struct{ account, tres string }
	sums := map[key]*proto.AccountUse{}
	eachRun(v, func(j *model.Job) {
		last := map[key]bool{}
		add := func(tres string, count int64) {
			k := key{j.Spec.Account, tres}
			if sums[k] == nil {
				sums[k] = &proto.AccountUse{Account: k.account, TRES: k.tres}
			}
			sums[k].Count += count
			if !last[k] { // it may hold several types
				sums[k].Jobs++
			}
			last[k] = true
		}
		for _, a := range j.Run.Priced() {
			add(a.TRES, a.Count)
			if plain, _, typed := strings.Cut(a.TRES, ":"); typed && strings.HasPrefix(plain, "gres/") {
				add(plain, a.Count)
			}
		}
	})
	var out []proto.AccountUse
	for _, u := range sums {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b proto.AccountUse) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.TRES, b.TRES))
	})
	return out
}

// eachRun calls f for every job that holds resources.
func eachRun(v *state.View, f func(j *model.Job)) {
	v.Nodes(func(n *model.Node) bool {
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil && j.Run.Alloc.Nodes[0].Node == n.Def.Name {
				f(j) // once, at its first node
			}
		}
		return true
	})
}

// editMoney gives credit, sets a budget, or makes an invoice.
func (c *Controller) editMoney(ctx context.Context, who *caller, rq *proto.EditMoneyRequest) (*proto.EditMoneyReply,
	error) {
	if !c.operator(who) {
		return nil, refuse(proto.CodeAccess, "only operators may give credit and make invoices")
	}
	if (rq.Ledger == nil) == (rq.Invoice == nil) {
		return nil, refuse(proto.CodeBadRequest, "a request about money names either credit or an invoice")
	}
	if rq.Invoice != nil {
		return c.issue(ctx, who, rq.Invoice)
	}
	v := c.machine.View()
	led := *rq.Ledger
	led.Account = accountName(v, led.Account)
	switch {
	case led.Op != price.AddCredit && led.Op != price.SetBudget:
		return nil, refuse(proto.CodeBadRequest, "a request about money gives credit or sets a budget; %d is neither", led.Op)
	case led.Account == "":
		return nil, refuse(proto.CodeBadRequest, "a request about money names no account")
	case led.Op == price.AddCredit && led.Amount == 0:
		return nil, refuse(proto.CodeBadRequest, "an amount of 0 gives no credit; a negative one takes some back")
	case led.Amount > price.MaxMoney || led.Amount < -price.MaxMoney:
		return nil, refuse(proto.CodeBadRequest, "amount %s is beyond %d", led.Amount.Exact(), price.MaxMoney/price.One)
	}
	what := "Add Credit; amount=" + led.Amount.Exact()
	if led.Op == price.SetBudget {
		what = "Modify Budget; amount=" + led.Amount.Exact()
	}
	if led.Text != "" {
		what += " " + led.Text
	}
	deed := c.by(who).One(trail.AccountChanged, trail.Account, led.Account, what)
	deed[0].Ledger = &led
	res, err := c.change(events.With(ctx, deed), &proto.EditMoneyReply{}, nil, &state.Credit{Ledger: led})
	if err != nil {
		return nil, err
	}
	return &proto.EditMoneyReply{}, moneyRefusal(res, led.Account)
}

func moneyRefusal(res state.Result, account string) error {
	switch res.Refusal {
	case state.OK:
		return nil
	case state.NoSuchAccount:
		return refuse(proto.CodeBadRequest, "there is no account %s; gacctmgr show account lists them", account)
	case state.Outdated:
		return refuse(proto.CodeOutdated, "another invoice was made at the same moment; repeat the command")
	case state.Overlapping:
		return refuse(proto.CodeBadRequest, "account %s, or one above or below it, has an invoice of that time already; "+
			"greport invoice issued lists them", account)
	}
	return refuse(proto.CodeBadRequest, "account %s: %s", account, res.Refusal)
}

// issue makes an invoice.
func (c *Controller) issue(ctx context.Context, who *caller, o *proto.InvoiceOrder) (*proto.EditMoneyReply, error) {
	v := c.machine.View()
	t := &v.Config().Params.Price
	account := accountName(v, o.Account)
	switch {
	case !v.KnownAccount(account):
		return nil, moneyRefusal(state.Result{Refusal: state.NoSuchAccount}, o.Account)
	case o.Start <= 0 || o.Start >= o.End:
		return nil, refuse(proto.CodeBadRequest, "the invoice's time ends before it begins")
	case o.End > c.now():
		return nil, refuse(proto.CodeBadRequest, "the invoice's time is not over; greport invoice shows what there is so far")
	}
	all := v.Below([]string{account})
	if invoiced(v, all, o) { // applyIssue looks at the accounts above; the invoice's number is of this very view
		return nil, moneyRefusal(state.Result{Refusal: state.Overlapping}, account)
	}
	in := func(j *model.Job) bool { // each size of a job is charged by itself
		return j.Run != nil && j.Run.SizedAt() >= o.Start && j.Run.SizedAt() < o.End && slices.Contains(all, j.Spec.Account)
	}
	running, waiting := int64(0), 0
	eachRun(v, func(j *model.Job) {
		if in(j) {
			running++
		}
	})
	v.Outbox(0, func(e state.Event) bool {
		if e.Audit == nil && e.Step == nil && e.Job.End != nil && in(e.Job) {
			waiting++
		}
		return true
	})
	if waiting > 0 {
		return nil, refuse(proto.CodeBadRequest, "records of that time still wait for gdbd; repeat the command in a moment")
	}
	bills, also, err := c.bills(ctx, &proto.UsageQuery{Prices: t, Report: proto.ReportRequest{What: proto.ReportBills,
		Start: o.Start, End: o.End, Accounts: all, Clusters: []string{v.Config().Cluster}}})
	if err != nil {
		return nil, err
	}
	if running = max(running, also); running > 0 && !o.Unfinished {
		return nil, refuse(proto.CodeBadRequest, "%d jobs that began in that time still run, and would be on no invoice; "+
			"make it when they have ended, or leave them out with the word unfinished", running)
	}
	inv := price.Invoice{Number: v.NextInvoice(), Account: account, Start: o.Start.Seconds(), End: o.End.Seconds(),
		At: c.now().Seconds(), By: c.nameOf(who), Currency: t.Currency, Bills: bills, Total: price.Total(bills)}
	deed := c.by(who).One(trail.AccountChanged, trail.Account, account,
		fmt.Sprintf("Add Invoice; number=%d total=%s", inv.Number, inv.Total.Exact()))
	deed[0].Invoice = &inv
	reply := &proto.EditMoneyReply{Invoice: &inv}
	res, err := c.change(events.With(ctx, deed), reply, nil, &state.Issue{Invoice: inv})
	if err != nil {
		return nil, err
	}
	return reply, moneyRefusal(res, account)
}

// invoiced reports whether one of these accounts is on an invoice about a part of that time. Accounts that were
// removed, and made again or elsewhere, are found by the invoices' lines.
func invoiced(v *state.View, accounts []string, o *proto.InvoiceOrder) (found bool) {
	v.Invoices(func(x *price.Invoice) bool {
		found = x.Start < o.End.Seconds() && x.End > o.Start.Seconds() && (slices.Contains(accounts, x.Account) ||
			slices.ContainsFunc(x.Bills, func(b price.Bill) bool { return slices.Contains(accounts, b.Account) }))
		return !found
	})
	return found
}

// bills asks gdbd what runs cost, and how many of them have not ended.
func (c *Controller) bills(ctx context.Context, q *proto.UsageQuery) (list []price.Bill, running int64, err error) {
	body, err := proto.Encode(q)
	if err != nil {
		return nil, 0, err
	}
	pass := func(part []byte) error {
		var chunk proto.ReportChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		list, running = append(list, chunk.Bills...), running+chunk.Running
		if len(list) > price.MaxBills {
			return refuse(proto.CodeBadRequest, "the invoice would have more than %d lines; make one for each account below",
				price.MaxBills)
		}
		return nil
	}
	acked := int64(c.machine.View().Shipped().Acked)
	for _, d := range c.dbds { // one that lags behind would leave something out
		if d.has.Load() >= acked {
			_, err := c.queryOf(ctx, d, proto.KindUsage, body, pass)
			return list, running, err
		}
	}
	return nil, 0, refuse(proto.CodeNoAccounting,
		"no accounting daemon has all records now; repeat the command in a moment")
}
