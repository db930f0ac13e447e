package clustertext

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// money.go is about prices: balances, invoices and what runs cost, as greport and HTTP write them. Amounts are decimals
// with all their digits, and whole millionths beside them.

// BalanceOf is the money of an account at a moment.
type BalanceOf struct {
	*price.Wallet
	Now      int64 // seconds since 1970
	Currency string
}

// BalanceJSON is its object.
func BalanceJSON() []slurmjson.Field[BalanceOf] {
	return []slurmjson.Field[BalanceOf]{
		{Name: "account", Str: func(w *BalanceOf) string { return w.Account }},
		{Name: "tenant_id", Str: func(w *BalanceOf) string { return w.Account }},
		{Name: "balance", Digits: func(w *BalanceOf) string { return w.Balance().Exact() }},
		{Name: "balance_micros", Int: func(w *BalanceOf) int64 { return int64(w.Balance()) }},
		{Name: "credit_micros", Int: func(w *BalanceOf) int64 { return int64(w.Credit) }},
		{Name: "charged_micros", Int: func(w *BalanceOf) int64 { return int64(w.Charged) }},
		{Name: "month_micros", Int: func(w *BalanceOf) int64 { return int64(w.SpentIn(w.Now)) }},
		{Name: "budget_micros", Int: func(w *BalanceOf) int64 { return int64(w.Budget) }},
		{Name: "prepaid", Bool: func(w *BalanceOf) bool { return w.Prepaid }},
		{Name: "currency", Str: func(w *BalanceOf) string { return w.Currency }},
	}
}

// InvoiceID names an invoice.
func InvoiceID(x *price.Invoice) string {
	if x.Number == 0 {
		return "draft"
	}
	return fmt.Sprintf("INV-%d", x.Number)
}

// InvoiceJSON is the object of an invoice, made or a draft.
func InvoiceJSON() []slurmjson.Field[price.Invoice] {
	type invoice = price.Invoice
	return []slurmjson.Field[invoice]{
		{Name: "invoice_id", Str: InvoiceID},
		{Name: "number", Int: func(x *invoice) int64 { return int64(x.Number) }},
		{Name: "account", Str: func(x *invoice) string { return x.Account }},
		{Name: "tenant_id", Str: func(x *invoice) string { return x.Account }},
		{Name: "period", Fields: []slurmjson.Field[invoice]{
			{Name: "start", Str: func(x *invoice) string { return iso(x.Start) }},
			{Name: "end", Str: func(x *invoice) string { return iso(x.End) }}}},
		slurmjson.Slice("line_items", func(x *invoice) []price.Bill { return x.Bills }, []slurmjson.Field[price.Bill]{
			{Name: "account", Str: func(b *price.Bill) string { return b.Account }},
			{Name: "resource_type", Str: func(b *price.Bill) string { return b.Rate.TRES }},
			{Name: "partition", Str: func(b *price.Bill) string { return b.Pool }},
			{Name: "hours", Digits: func(b *price.Bill) string { return price.Hours(b.Used, b.Rate.Per).Exact() }},
			{Name: "unit_price", Digits: func(b *price.Bill) string { return price.Money(b.Rate.Micro).Exact() }},
			{Name: "unit_price_micros", Int: func(b *price.Bill) int64 { return b.Rate.Micro }},
			{Name: "unit_price_per", Int: func(b *price.Bill) int64 { return b.Rate.Per }},
			{Name: "subtotal", Digits: func(b *price.Bill) string { return b.Net.Exact() }},
			{Name: "subtotal_micros", Int: func(b *price.Bill) int64 { return int64(b.Net) }},
			{Name: "sessions", Int: func(b *price.Bill) int64 { return b.Sessions }},
		}),
		{Name: "total", Digits: func(x *invoice) string { return x.Total.Exact() }},
		{Name: "total_micros", Int: func(x *invoice) int64 { return int64(x.Total) }},
		{Name: "currency", Str: func(x *invoice) string { return x.Currency }},
		{Name: "generated_at", Str: func(x *invoice) string { return iso(x.At) }},
		{Name: "generated_by", Str: func(x *invoice) string { return x.By }},
	}
}

// CostOf is what the runs of an account cost that began in a time, from Start to End, seconds since 1970.
type CostOf struct {
	Start, End int64
	Bills      []price.Bill // of one account
}

// CostsOf divides lines, which are in order of their accounts.
func CostsOf(bills []price.Bill, start, end int64) (out []CostOf) {
	for len(bills) > 0 {
		n := 1
		for n < len(bills) && bills[n].Account == bills[0].Account {
			n++
		}
		out = append(out, CostOf{start, end, bills[:n]})
		bills = bills[n:]
	}
	return out
}

// CostJSON is its object.
func CostJSON() []slurmjson.Field[CostOf] {
	return []slurmjson.Field[CostOf]{
		{Name: "account", Str: func(x *CostOf) string { return x.Bills[0].Account }},
		{Name: "tenant_id", Str: func(x *CostOf) string { return x.Bills[0].Account }},
		{Name: "period_start", Str: func(x *CostOf) string { return iso(x.Start) }},
		{Name: "period_end", Str: func(x *CostOf) string { return iso(x.End) }},
		{Name: "resources", Put: putCosts},
		{Name: "total_cost", Digits: func(x *CostOf) string { return price.Total(x.Bills).Exact() }},
	}
}

// putCosts writes an object with a member for each resource.
func putCosts(j *slurmjson.Writer, name string, x *CostOf) {
	j.Open(name, '{')
	list := slices.SortedStableFunc(slices.Values(x.Bills), func(a, b price.Bill) int {
		return cmp.Compare(a.Rate.TRES, b.Rate.TRES)
	})
	for len(list) > 0 {
		k, hours, sessions := 0, price.Money(0), int64(0) // hours are of what the price is for, as in an invoice
		for k < len(list) && list[k].Rate.TRES == list[0].Rate.TRES {
			hours, sessions = hours+price.Hours(list[k].Used, list[k].Rate.Per), sessions+list[k].Sessions
			k++
		}
		j.Open(list[0].Rate.TRES, '{')
		j.Decimal("total_hours", hours.Exact())
		j.Decimal("total_cost", price.Total(list[:k]).Exact())
		j.Num("total_cost_micros", int64(price.Total(list[:k])))
		j.Num("session_count", sessions)
		j.Close('}')
		list = list[k:]
	}
	j.Close('}')
}

// PutUse writes what running jobs hold: an object with RESOURCE:ACCOUNT as the members' names.
func PutUse(j *slurmjson.Writer, list []proto.AccountUse) {
	j.Open("current_usage", '{')
	for _, u := range list {
		j.Num(u.TRES+":"+u.Account, u.Count)
	}
	j.Close('}')
}

// Drafts are the invoices that lines would make, which are in order of their accounts: one for each, or with a name one
// for all of them. Its period and moment are those of like.
func Drafts(bills []price.Bill, name string, like price.Invoice) (out []*price.Invoice) {
	draft := func(account string, part []price.Bill) {
		x := like
		x.Account, x.Bills, x.Total = account, part, price.Total(part)
		out = append(out, &x)
	}
	if name != "" {
		draft(name, bills)
		return out
	}
	for _, x := range CostsOf(bills, 0, 0) {
		draft(x.Bills[0].Account, x.Bills)
	}
	return out
}

func iso(s int64) string { return time.Unix(s, 0).UTC().Format(time.RFC3339) }

// AddMoney adds a part of an answer about money to the parts before it.
func AddMoney(all, part *proto.MoneyChunk) {
	if part.Cluster != "" {
		all.Cluster, all.Prices = part.Cluster, part.Prices
	}
	all.Wallets, all.Use = append(all.Wallets, part.Wallets...), append(all.Use, part.Use...)
	all.Invoices = append(all.Invoices, part.Invoices...)
}

// PriceTerms writes what counts beside the prices, a line for each value: the minimum time, and discounts with what
// they are compared with.
func PriceTerms(t *price.Table) (lines []string) {
	since := func(from int64) string {
		if from == 0 {
			return "always"
		}
		return "from " + time.Unix(from, 0).Format("2006-01-02T15:04:05")
	}
	minimum := func(s, from int64) {
		lines = append(lines, fmt.Sprintf("Minimum time (%s): %d s", since(from), s))
	}
	discounts := func(list []price.Discount, from int64) {
		var words []string
		for _, d := range list {
			words = append(words, fmt.Sprintf("%d h: %s of the price", d.Hours, price.Money(d.Keep).Exact()))
		}
		if words == nil {
			words = []string{"none"}
		}
		lines = append(lines, fmt.Sprintf("Discounts (%s): %s", since(from), strings.Join(words, ", ")))
	}
	by := func(month bool, from int64) {
		what := "those of each run by itself"
		if month {
			what = "those of an account in a month together"
		}
		lines = append(lines, fmt.Sprintf("Hours for discounts (%s): %s", since(from), what))
	}
	minimum(t.MinS, 0)
	discounts(t.Discounts, 0)
	by(t.ByPeriod, 0)
	for i := range t.Terms {
		switch x := &t.Terms[i]; x.Of {
		case price.TermMinimum:
			minimum(x.MinS, x.From)
		case price.TermDiscounts:
			discounts(x.Discounts, x.From)
		case price.TermBy:
			by(x.ByPeriod, x.From)
		}
	}
	return lines
}
