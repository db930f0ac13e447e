package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// money.go has the reports of money: usage (what runs that began in a time cost, by account and resource), invoice (the
// same for one account, as a draft, made, or made before) and balance.

// ofMoney reports whether a report is one of these, which have no second word.
func ofMoney(kind string) bool { return kind == "usage" || kind == "invoice" || kind == "balance" }

// money is run for the reports of money.
func (r *call) money(kind string, words []string) error {
	if err := r.keys(words); err != nil {
		return err
	}
	now := time.Now()
	if r.start.IsZero() {
		r.start = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location())
	}
	if r.end.IsZero() {
		r.end = now.Truncate(time.Second).Add(time.Second) // with the present second
	}
	if !r.start.Before(r.end) {
		return errors.New("the report's time ends before it begins")
	}
	r.rq.Start, r.rq.End = model.Time(r.start.Unix()*1000), model.Time(r.end.Unix()*1000)
	switch {
	case len(r.clusters) > 0:
		return errors.New("prices are those of this cluster: leave out the clusters")
	case len(r.rq.GIDs)+len(r.rq.Jobs)+len(r.rq.Nodes)+len(r.rq.Resvs) > 0:
		return fmt.Errorf("%s is by Accounts=, Users=, QOS= and Partitions=; the others are for the other reports", kind)
	case kind != "invoice" && (r.issued || r.number > 0):
		return errors.New("Issued and Number= are of invoice")
	case kind != "usage" && r.current:
		return errors.New("Current is of usage")
	}
	var err error
	if r.c, err = r.Connect(); err != nil {
		return err
	}
	defer r.c.Close()
	if r.cluster, err = env.ClusterName(r.c); err != nil {
		return err
	}
	switch kind {
	case "usage":
		return r.costs()
	case "invoice":
		return r.invoice()
	}
	return r.balance()
}

// purse asks the controller for prices, balances and invoices.
func (r *call) purse(rq proto.MoneyRequest) (*proto.MoneyChunk, error) {
	all := &proto.MoneyChunk{}
	rq.Accounts = r.rq.Accounts
	err := r.c.Stream(proto.KindMoney, &rq, func(body []byte) error {
		var c proto.MoneyChunk
		if err := r.c.Decode(body, &c); err != nil {
			return err
		}
		if c.Cluster != "" {
			all.Cluster, all.Prices = c.Cluster, c.Prices
		}
		all.Wallets, all.Use = append(all.Wallets, c.Wallets...), append(all.Use, c.Use...)
		all.Invoices = append(all.Invoices, c.Invoices...)
		return nil
	})
	return all, err
}

// amountOf writes an amount: with the currency and two digits for people, all digits where programs read.
func (r *call) amountOf(m price.Money, currency string) string {
	if r.style.Parsable {
		return m.Exact()
	}
	return currency + m.String()
}

// hoursOf writes units times seconds as hours.
func (r *call) hoursOf(n, per int64) string { return r.amountOf(price.Hours(n, per), "") }

// resource names what has a price, with its unit where that is not one of it.
func resource(x price.Rate) string {
	switch {
	case x.TRES == "mem" && x.Per <= 1:
		return "mem(M)"
	case x.TRES == "mem" && x.Per == 1<<10:
		return "mem(G)"
	case x.TRES == "mem" && x.Per == 1<<20:
		return "mem(T)"
	case x.Per > 1:
		return x.TRES + "(" + strconv.FormatInt(x.Per, 10) + ")"
	}
	return x.TRES
}

// moneyColumns are the fields of the reports of money; those that others have too are in columns.
var moneyColumns = []column{
	{"Partition", "Partition", 10, true}, {"Hours", "Hours", 10, true}, {"Price", "Unit Price", 10, true},
	{"Sessions", "Sessions", 8, true}, {"Cost", "Cost", 10, true}, {"Gross", "Gross", 10, true},
	{"Balance", "Balance", 12, true}, {"Credit", "Credit", 12, true}, {"Charged", "Charged", 12, true},
	{"Month", "This Month", 12, true}, {"Budget", "Budget", 12, true}, {"Count", "Count", 8, true},
	{"Key", "Resource:Account", 20, true}, {"Number", "Invoice", 8, true}, {"Total", "Total", 12, true},
	{"Made", "Made", 19, true}, {"By", "By", 9, true},
}

// billRow is a line of costs.
func (r *call) billRow(b *price.Bill, currency string) *row {
	x := newRow()
	x.text["Cluster"], x.text["Accounts"], x.text["Login"] = r.cluster, b.Account, b.User
	x.text["TresName"] = resource(b.Rate)
	x.text["Partition"], x.text["Hours"] = b.Pool, r.hoursOf(b.Used, b.Rate.Per)
	x.text["Price"] = r.amountOf(price.Money(b.Rate.Micro), currency)
	if !r.style.Parsable && price.Money(b.Rate.Micro)%(price.One/100) != 0 {
		x.text["Price"] = currency + price.Money(b.Rate.Micro).Exact()
	}
	x.text["Sessions"], x.num["Sessions"] = strconv.FormatInt(b.Sessions, 10), b.Sessions
	x.text["Cost"], x.text["Gross"] = r.amountOf(b.Net, currency), r.amountOf(b.Gross, currency)
	x.num["CostMicros"], x.num["PriceMicros"], x.num["UnitSeconds"] = int64(b.Net), b.Rate.Micro, b.Used
	return x
}

// costs is usage.
func (r *call) costs() error {
	all, err := r.purse(proto.MoneyRequest{})
	if err != nil {
		return err
	}
	if r.current {
		return r.currentUse(all)
	}
	bills, err := r.bills()
	if err != nil {
		return err
	}
	var rows []*row
	for i := range bills {
		rows = append(rows, r.billRow(&bills[i], all.Prices.Currency))
	}
	if r.json != "" {
		return r.usageJSON(bills)
	}
	fields := "Accounts,TresName,Partition,Hours,Price,Sessions,Cost"
	if r.rq.By&proto.ByUser != 0 {
		fields = "Accounts,Login,TresName,Partition,Hours,Price,Sessions,Cost"
	}
	const note = "Of jobs that began in this time and have ended"
	if err := r.print("Costs", note, fields, rows, moneyColumns...); err != nil {
		return err
	}
	if !r.noHeader && !r.style.Parsable {
		fmt.Fprintf(r.Stdout, "Total %s\n", r.amountOf(price.Total(bills), all.Prices.Currency))
	}
	return nil
}

// bills asks gdbd what runs cost.
func (r *call) bills() ([]price.Bill, error) {
	r.rq.What = proto.ReportBills
	r.rq.By = 0
	if len(r.rq.Users) > 0 || r.tree {
		r.rq.By = proto.ByUser
	}
	all, err := r.ask(r.rq)
	if err == nil && all.Running > 0 && !r.quiet {
		fmt.Fprintf(r.Stderr, "%s: note: %d jobs that began in this time still run, and are not in it\n", r.Program,
			all.Running)
	}
	return all.Bills, err
}

// currentUse is usage Current: what running jobs hold, by RESOURCE:ACCOUNT.
func (r *call) currentUse(all *proto.MoneyChunk) error {
	if r.json != "" {
		j := slurmjson.New(r.ListOut(), r.json)
		j.Open("", '{')
		j.Open("current_usage", '{')
		for _, u := range all.Use {
			j.Num(u.TRES+":"+u.Account, u.Count)
		}
		j.Close('}')
		return r.JSONTail(j, r.cluster, 0)
	}
	var rows []*row
	for _, u := range all.Use {
		x := newRow()
		x.text["Key"], x.text["TresName"], x.text["Accounts"] = u.TRES+":"+u.Account, u.TRES, u.Account
		x.text["Count"], x.text["Jobs"] = strconv.FormatInt(u.Count, 10), strconv.FormatInt(u.Jobs, 10)
		rows = append(rows, x)
	}
	return r.table("Key,Count,Jobs", rows, moneyColumns...)
}

// usageJSON writes costs by account.
func (r *call) usageJSON(bills []price.Bill) error {
	j := slurmjson.New(r.ListOut(), r.json)
	j.Open("", '{')
	j.Open("usage", '[')
	for len(bills) > 0 {
		n := 1
		for n < len(bills) && bills[n].Account == bills[0].Account {
			n++
		}
		j.Open("", '{')
		j.Str("account", bills[0].Account)
		j.Str("tenant_id", bills[0].Account)
		j.Str("period_start", r.start.UTC().Format(time.RFC3339))
		j.Str("period_end", r.end.UTC().Format(time.RFC3339))
		j.Open("resources", '{')
		list := slices.SortedStableFunc(slices.Values(bills[:n]), func(a, b price.Bill) int {
			return cmp.Compare(a.Rate.TRES, b.Rate.TRES)
		})
		for len(list) > 0 {
			k, used, sessions := 0, int64(0), int64(0)
			for k < len(list) && list[k].Rate.TRES == list[0].Rate.TRES {
				used, sessions = used+list[k].Used, sessions+list[k].Sessions
				k++
			}
			j.Open(list[0].Rate.TRES, '{')
			j.Decimal("total_hours", price.Hours(used, 1).Exact())
			j.Decimal("total_cost", price.Total(list[:k]).Exact())
			j.Num("total_cost_micros", int64(price.Total(list[:k])))
			j.Num("session_count", sessions)
			j.Close('}')
			list = list[k:]
		}
		j.Close('}')
		j.Decimal("total_cost", price.Total(bills[:n]).Exact())
		j.Close('}')
		j.Flush(false)
		bills = bills[n:]
	}
	j.Close(']')
	return r.JSONTail(j, r.cluster, 0)
}

// invoice shows a draft, or invoices that were made.
func (r *call) invoice() error {
	if r.issued || r.number > 0 {
		all, err := r.purse(proto.MoneyRequest{Invoices: true, Number: r.number})
		switch {
		case err != nil:
			return err
		case r.number > 0 && len(all.Invoices) == 0:
			return fmt.Errorf("there is no invoice %d, or it is not among the latest ones, which the controllers keep; "+
				"gacctmgr show transaction action='Add Invoice' finds all", r.number)
		case r.number == 0 && r.json == "":
			return r.issuedList(all.Invoices)
		}
		return r.showInvoices(all.Invoices)
	}
	all, err := r.purse(proto.MoneyRequest{})
	if err != nil {
		return err
	}
	bills, err := r.bills()
	if err != nil {
		return err
	}
	var list []*price.Invoice
	who := strings.Join(r.rq.Accounts, ",")
	draft := func(account string, part []price.Bill) {
		list = append(list, &price.Invoice{Account: account, Start: r.start.Unix(), End: r.end.Unix(), At: time.Now().Unix(),
			Currency: all.Prices.Currency, Bills: part, Total: price.Total(part)})
	}
	if who != "" { // these, with what is below them
		draft(who, bills)
		return r.showInvoices(list)
	}
	for len(bills) > 0 {
		n := 1
		for n < len(bills) && bills[n].Account == bills[0].Account {
			n++
		}
		draft(bills[0].Account, bills[:n])
		bills = bills[n:]
	}
	return r.showInvoices(list)
}

// idOf names an invoice.
func idOf(x *price.Invoice) string {
	if x.Number == 0 {
		return "draft"
	}
	return fmt.Sprintf("INV-%d", x.Number)
}

// stamp writes a moment.
func stamp(s int64) string { return time.Unix(s, 0).Format("2006-01-02T15:04:05") }

// issuedList lists invoices, a line each.
func (r *call) issuedList(list []*price.Invoice) error {
	var rows []*row
	for _, x := range list {
		l := newRow()
		l.text["Number"], l.text["Accounts"] = idOf(x), x.Account
		l.text["Start"], l.text["End"] = stamp(x.Start), stamp(x.End)
		l.text["Total"], l.text["Made"], l.text["By"] = r.amountOf(x.Total, x.Currency), stamp(x.At), x.By
		rows = append(rows, l)
	}
	return r.table("Number,Accounts,Start,End,Total,Made,By", rows, moneyColumns...)
}

// showInvoices writes whole invoices.
func (r *call) showInvoices(list []*price.Invoice) error {
	if r.json != "" {
		return r.invoicesJSON(list)
	}
	for i, x := range list {
		if i > 0 && !r.style.Parsable {
			fmt.Fprintln(r.Stdout)
		}
		if !r.noHeader {
			line := strings.Repeat("-", 80)
			made := "draft of " + stamp(x.At)
			if x.Number > 0 {
				made = "made " + stamp(x.At) + " by " + x.By
			}
			fmt.Fprintf(r.Stdout, "%s\nInvoice %s for account %s\n%s - %s, %s\n%s\n", line, idOf(x), x.Account, stamp(x.Start),
				stamp(x.End-1), made, line)
		}
		var rows []*row
		for k := range x.Bills {
			rows = append(rows, r.billRow(&x.Bills[k], x.Currency))
		}
		total := newRow()
		total.text["Accounts"], total.text["Cost"] = "TOTAL", r.amountOf(x.Total, x.Currency)
		const fields = "Accounts,TresName,Partition,Hours,Price,Sessions,Cost"
		if err := r.table(fields, append(rows, total), moneyColumns...); err != nil {
			return err
		}
	}
	return nil
}

// invoicesJSON writes invoices.
func (r *call) invoicesJSON(list []*price.Invoice) error {
	j := slurmjson.New(r.ListOut(), r.json)
	j.Open("", '{')
	iso := func(s int64) string { return time.Unix(s, 0).UTC().Format(time.RFC3339) }
	j.Open("invoices", '[')
	for _, x := range list {
		j.Open("", '{')
		j.Str("invoice_id", idOf(x))
		j.Num("number", int64(x.Number))
		j.Str("account", x.Account)
		j.Str("tenant_id", x.Account)
		j.Open("period", '{')
		j.Str("start", iso(x.Start))
		j.Str("end", iso(x.End))
		j.Close('}')
		j.Open("line_items", '[')
		for i := range x.Bills {
			b := &x.Bills[i]
			j.Open("", '{')
			j.Str("account", b.Account)
			j.Str("resource_type", b.Rate.TRES)
			j.Str("partition", b.Pool)
			j.Decimal("hours", price.Hours(b.Used, 1).Exact())
			j.Decimal("unit_price", price.Money(b.Rate.Micro).Exact())
			j.Num("unit_price_micros", b.Rate.Micro)
			j.Num("unit_price_per", b.Rate.Per)
			j.Decimal("subtotal", b.Net.Exact())
			j.Num("subtotal_micros", int64(b.Net))
			j.Num("sessions", b.Sessions)
			j.Close('}')
		}
		j.Close(']')
		j.Decimal("total", x.Total.Exact())
		j.Num("total_micros", int64(x.Total))
		j.Str("currency", x.Currency)
		j.Str("generated_at", iso(x.At))
		j.Str("generated_by", x.By)
		j.Close('}')
		j.Flush(false)
	}
	j.Close(']')
	return r.JSONTail(j, r.cluster, 0)
}

// balance lists the money of accounts.
func (r *call) balance() error {
	all, err := r.purse(proto.MoneyRequest{})
	if err != nil {
		return err
	}
	now := time.Now().Unix()
	if r.json != "" {
		j := slurmjson.New(r.ListOut(), r.json)
		j.Open("", '{')
		j.Open("balances", '[')
		for _, w := range all.Wallets {
			j.Open("", '{')
			j.Str("account", w.Account)
			j.Str("tenant_id", w.Account)
			j.Decimal("balance", w.Balance().Exact())
			j.Num("balance_micros", int64(w.Balance()))
			j.Num("credit_micros", int64(w.Credit))
			j.Num("charged_micros", int64(w.Charged))
			j.Num("month_micros", int64(w.SpentIn(now)))
			j.Num("budget_micros", int64(w.Budget))
			j.Bool("prepaid", w.Prepaid)
			j.Str("currency", all.Prices.Currency)
			j.Close('}')
		}
		j.Close(']')
		return r.JSONTail(j, r.cluster, 0)
	}
	var rows []*row
	for _, w := range all.Wallets {
		x := newRow()
		x.text["Accounts"] = w.Account
		for name, m := range map[string]price.Money{"Balance": w.Balance(), "Credit": w.Credit, "Charged": w.Charged,
			"Month": w.SpentIn(now), "Budget": w.Budget} {
			x.text[name] = r.amountOf(m, all.Prices.Currency)
		}
		if w.Budget == 0 {
			x.text["Budget"] = ""
		}
		rows = append(rows, x)
	}
	return r.table("Accounts,Balance,Credit,Charged,Month,Budget", rows, moneyColumns...)
}
