package report

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/clustertext"
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
		clustertext.AddMoney(all, &c)
		return nil
	})
	return all, err
}

// amountOf writes an amount: with the currency and two digits for people, all digits where programs read.
func (r *call) amountOf(m price.Money, currency string) string {
	if r.style.Parsable {
		return m.Exact()
	}
	return m.In(currency)
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
		clustertext.PutUse(j, all.Use)
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
	return writeJSON(r, "usage", clustertext.CostJSON(), clustertext.CostsOf(bills, r.start.Unix(), r.end.Unix()))
}

// writeJSON writes a list.
func writeJSON[T any](r *call, name string, fields []slurmjson.Field[T], list []T) error {
	j := slurmjson.New(r.ListOut(), r.json)
	j.Open("", '{')
	j.Open(name, '[')
	for i := range list {
		slurmjson.Write(j, "", fields, &list[i])
		j.Flush(false)
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
	return r.showInvoices(clustertext.Drafts(bills, strings.Join(r.rq.Accounts, ","), price.Invoice{Start: r.start.Unix(),
		End: r.end.Unix(), At: time.Now().Unix(), Currency: all.Prices.Currency}))
}

// stamp writes a moment.
func stamp(s int64) string { return time.Unix(s, 0).Format("2006-01-02T15:04:05") }

// issuedList lists invoices, a line each.
func (r *call) issuedList(list []*price.Invoice) error {
	var rows []*row
	for _, x := range list {
		l := newRow()
		l.text["Number"], l.text["Accounts"] = clustertext.InvoiceID(x), x.Account
		l.text["Start"], l.text["End"] = stamp(x.Start), stamp(x.End)
		l.text["Total"], l.text["Made"], l.text["By"] = r.amountOf(x.Total, x.Currency), stamp(x.At), x.By
		rows = append(rows, l)
	}
	return r.table("Number,Accounts,Start,End,Total,Made,By", rows, moneyColumns...)
}

// showInvoices writes whole invoices.
func (r *call) showInvoices(list []*price.Invoice) error {
	if r.json != "" {
		whole := make([]price.Invoice, len(list))
		for i, x := range list {
			whole[i] = *x
		}
		return writeJSON(r, "invoices", clustertext.InvoiceJSON(), whole)
	}
	if r.csv { // one table
		var rows []*row
		for _, x := range list {
			for k := range x.Bills {
				b := r.billRow(&x.Bills[k], x.Currency)
				b.text["Number"] = clustertext.InvoiceID(x)
				rows = append(rows, b)
			}
		}
		return r.table("Number,Accounts,TresName,Partition,Hours,Price,Sessions,Cost", rows, moneyColumns...)
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
			fmt.Fprintf(r.Stdout, "%s\nInvoice %s for account %s\n%s - %s, %s\n%s\n", line, clustertext.InvoiceID(x), x.Account,
				stamp(x.Start), stamp(x.End), made, line)
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

// balance lists the money of accounts.
func (r *call) balance() error {
	all, err := r.purse(proto.MoneyRequest{})
	if err != nil {
		return err
	}
	now := time.Now().Unix()
	if r.json != "" {
		list := make([]clustertext.BalanceOf, len(all.Wallets))
		for i, w := range all.Wallets {
			list[i] = clustertext.BalanceOf{Wallet: w, Now: now, Currency: all.Prices.Currency}
		}
		return writeJSON(r, "balances", clustertext.BalanceJSON(), list)
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
