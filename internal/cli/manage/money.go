package manage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/clustertext"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// money.go is the money of accounts: add credit, add budget, delete budget, add invoice; show balance, price and
// invoice.

// moneyKeys are the words of each entity.
var moneyKeys = map[string][]string{
	"credit":  {"account", "amount", "description"},
	"budget":  {"account", "amount", "description"},
	"invoice": {"account", "start", "end", "unfinished", "number"},
	"balance": {"account", "format"},
	"price":   {"format"},
}

// moneyOf gives the entity that a word means, or "".
func moneyOf(entity string) string {
	for _, e := range []string{"credit", "budget", "invoice", "balance", "price"} {
		if len(entity) >= 3 && strings.HasPrefix(e+"s", entity) {
			return e
		}
	}
	return ""
}

// moneyWords is what a command about money says.
type moneyWords struct {
	account, amount, text, fields string
	start, end                    model.Time
	unfinished                    bool
	number                        uint64
}

func readMoneyWords(entity string, words []string, now time.Time) (w moneyWords, err error) {
	moment := func(v string) model.Time {
		t, bad := walltime.ParsePastDate(v, now)
		if bad != nil {
			err = fmt.Errorf(" Invalid time specification: %w", bad)
		}
		return model.Time(t.Unix() * 1000)
	}
	for _, word := range words {
		low := strings.ToLower(word)
		if low == "where" || low == "set" {
			continue
		}
		key, value, has := strings.Cut(word, "=")
		name := ""
		for _, k := range moneyKeys[entity] {
			if low, _, _ := strings.Cut(low, "="); low != "" && (low == k+"s" || strings.HasPrefix(k, low)) {
				name = k
				break
			}
		}
		if has == (name == "unfinished") {
			name = ""
		}
		value = strings.Trim(value, `'"`)
		switch name {
		case "account":
			w.account = model.AccountName(value)
		case "amount":
			w.amount = value
		case "description":
			w.text = value
		case "format":
			w.fields = value
		case "start":
			w.start = moment(value)
		case "end":
			w.end = moment(value)
		case "unfinished":
			w.unfinished = true
		case "number":
			if w.number, err = strconv.ParseUint(strings.TrimPrefix(strings.ToUpper(value), "INV-"), 10, 64); err != nil {
				return w, fmt.Errorf(" number=%s is no number of an invoice", value)
			}
		default:
			return w, fmt.Errorf(" Unknown option: %s\n The words of %s are %s", key, entity,
				strings.Join(moneyKeys[entity], ", "))
		}
	}
	return w, err
}

// changeMoney is add or delete of credit, a budget or an invoice.
func (m *manage) changeMoney(c *client.Client, verb, entity string, words []string) error {
	now := time.Now()
	w, err := readMoneyWords(entity, words, now)
	switch {
	case err != nil:
		return err
	case verb != "add" && (verb != "delete" || entity != "budget"):
		return fmt.Errorf(" %s can't be changed so: there are add credit, add budget, delete budget and add invoice; "+
			"credit is taken back with a negative amount, and an invoice stays", entity)
	case entity == "balance" || entity == "price":
		return fmt.Errorf(" %s can only be shown: the balance follows from credit and charges, prices are Price lines in "+
			"gbatch.conf", entity)
	case w.account == "":
		return fmt.Errorf(" Name the account: gacctmgr %s %s account=physics", verb, entity)
	}
	rq := &proto.EditMoneyRequest{}
	var say string
	switch {
	case entity == "invoice":
		if w.start == 0 || w.end == 0 {
			return errors.New(" Name the time: gacctmgr add invoice account=physics start=2026-11-01 end=2026-12-01")
		}
		rq.Invoice = &proto.InvoiceOrder{Account: w.account, Start: w.start, End: w.end, Unfinished: w.unfinished}
		say = fmt.Sprintf(" Making an invoice\n  Account   = %s\n  From      = %s\n  Until     = %s", w.account,
			dateOf(w.start), dateOf(w.end))
	default:
		led := &price.Ledger{Op: price.AddCredit, Account: w.account, Text: w.text}
		say = " Giving credit"
		if entity == "budget" {
			led.Op, say = price.SetBudget, " Setting the budget of a month"
		}
		if verb == "add" {
			if led.Amount, err = price.Parse(w.amount); err != nil {
				return fmt.Errorf(" amount: %w", err)
			}
			if led.Amount == 0 && entity == "credit" {
				return errors.New(" amount: 0 gives no credit; a negative amount takes some back")
			}
			if led.Amount <= 0 && entity == "budget" {
				return errors.New(" amount: a budget is above 0; gacctmgr delete budget removes it")
			}
		}
		rq.Ledger = led
		say += fmt.Sprintf("\n  Account   = %s\n  Amount    = %s", w.account, led.Amount.Exact())
	}
	if !m.quiet {
		fmt.Fprintln(m.Stdout, say)
	}
	if !m.immediate && !m.ask("Would you like to commit changes?") {
		fmt.Fprintln(m.Stdout, " Changes Discarded")
		return nil
	}
	var reply proto.EditMoneyReply
	if err := c.Call(proto.KindEditMoney, rq, &reply); err != nil {
		return err
	}
	if x := reply.Invoice; x != nil && !m.quiet {
		fmt.Fprintf(m.Stdout, " Invoice INV-%d: %s\n", x.Number, x.Total.In(x.Currency))
	}
	return nil
}

func dateOf(t model.Time) string { return time.Unix(t.Seconds(), 0).Format("2006-01-02T15:04:05") }

// showMoney lists balances, prices or invoices.
func (m *manage) showMoney(c *client.Client, entity string, words []string) error {
	if m.json != "" {
		return fmt.Errorf(" show %s has no JSON here; greport balance --json and greport invoice issued --json do", entity)
	}
	w, err := readMoneyWords(entity, words, time.Now())
	if err != nil {
		return err
	}
	rq := proto.MoneyRequest{Invoices: entity == "invoice", Number: w.number}
	if w.account != "" {
		rq.Accounts = strings.Split(w.account, ",")
	}
	all := &proto.MoneyChunk{}
	err = c.Stream(proto.KindMoney, &rq, func(body []byte) error {
		var part proto.MoneyChunk
		if err := c.Decode(body, &part); err != nil {
			return err
		}
		if part.Cluster != "" {
			all.Prices = part.Prices
		}
		all.Wallets, all.Invoices = append(all.Wallets, part.Wallets...), append(all.Invoices, part.Invoices...)
		return nil
	})
	if err != nil {
		return err
	}
	switch entity {
	case "price":
		return m.showPrices(&all.Prices, w.fields)
	case "invoice":
		return m.showInvoices(all.Invoices, w.fields)
	}
	return m.showBalances(all, w.fields)
}

// moneyText writes an amount: all digits where programs read.
func (m *manage) moneyText(x price.Money, currency string) string {
	if m.o.Style.Parsable {
		return x.Exact()
	}
	return x.In(currency)
}

func (m *manage) showBalances(all *proto.MoneyChunk, fields string) error {
	now, cur := time.Now().Unix(), all.Prices.Currency
	col := func(name string, get func(w *price.Wallet) price.Money) format.Field[*price.Wallet] {
		return format.Field[*price.Wallet]{Name: name, Width: 14, Get: func(w **price.Wallet) string {
			return m.moneyText(get(*w), cur)
		}}
	}
	lang := &format.Language[*price.Wallet]{Noun: "balance", Fields: []format.Field[*price.Wallet]{
		{Name: "Account", Width: 15, Get: func(w **price.Wallet) string { return (*w).Account }},
		col("Balance", (*price.Wallet).Balance),
		col("Credit", func(w *price.Wallet) price.Money { return w.Credit }),
		col("Charged", func(w *price.Wallet) price.Money { return w.Charged }),
		col("Month", func(w *price.Wallet) price.Money { return w.SpentIn(now) }),
		{Name: "Budget", Width: 14, Get: func(w **price.Wallet) string {
			if (*w).Budget == 0 {
				return ""
			}
			return m.moneyText((*w).Budget, cur)
		}},
	}}
	return printMoney(m, lang, "Account,Balance,Credit,Charged,Month,Budget", fields, all.Wallets)
}

// priceRow is one price of a line.
type priceRow struct {
	*price.Line
	price.Rate
}

func (m *manage) showPrices(t *price.Table, fields string) error {
	var rows []priceRow
	for i := range t.Lines {
		for _, x := range t.Lines[i].Rates {
			rows = append(rows, priceRow{&t.Lines[i], x})
		}
	}
	lang := &format.Language[priceRow]{Noun: "price", Fields: []format.Field[priceRow]{
		{Name: "From", Width: 19, Get: func(x *priceRow) string {
			if x.From == 0 {
				return "always"
			}
			return dateOf(model.Time(x.From * 1000))
		}},
		{Name: "Partition", Width: 12, Get: func(x *priceRow) string { return x.Partition }},
		{Name: "TRES", Width: 20, Get: func(x *priceRow) string { return x.TRES }},
		{Name: "Price", Title: "Price/hour", Width: 14, Get: func(x *priceRow) string {
			if m.o.Style.Parsable {
				return price.Money(x.Micro).Exact()
			}
			return t.Currency + price.Money(x.Micro).Exact()
		}},
		{Name: "Per", Width: 8, Get: func(x *priceRow) string {
			if x.TRES == "mem" {
				return strconv.FormatInt(x.Per, 10) + "M"
			}
			return strconv.FormatInt(x.Per, 10)
		}},
	}}
	if err := printMoney(m, lang, "From,Partition,TRES,Price,Per", fields, rows); err != nil {
		return err
	}
	if m.o.Style.Parsable || m.noHeader || fields != "" || !t.Priced() {
		return nil
	}
	for _, line := range clustertext.PriceTerms(t) {
		fmt.Fprintln(m.Stdout, line)
	}
	return nil
}

func (m *manage) showInvoices(list []*price.Invoice, fields string) error {
	col := func(name string, width int, get func(x *price.Invoice) string) format.Field[*price.Invoice] {
		return format.Field[*price.Invoice]{Name: name, Width: width, Get: func(x **price.Invoice) string { return get(*x) }}
	}
	moment := func(s int64) string { return dateOf(model.Time(s * 1000)) }
	lang := &format.Language[*price.Invoice]{Noun: "invoice", Fields: []format.Field[*price.Invoice]{
		col("Invoice", 10, func(x *price.Invoice) string { return "INV-" + strconv.FormatUint(x.Number, 10) }),
		col("Account", 15, func(x *price.Invoice) string { return x.Account }),
		col("Start", 19, func(x *price.Invoice) string { return moment(x.Start) }),
		col("End", 19, func(x *price.Invoice) string { return moment(x.End) }),
		col("Total", 14, func(x *price.Invoice) string { return m.moneyText(x.Total, x.Currency) }),
		col("Made", 19, func(x *price.Invoice) string { return moment(x.At) }),
		col("By", 10, func(x *price.Invoice) string { return x.By }),
	}}
	return printMoney(m, lang, "Invoice,Account,Start,End,Total,Made,By", fields, list)
}

// printMoney prints a table.
func printMoney[T any](m *manage, lang *format.Language[T], columns, fields string, rows []T) error {
	if fields != "" {
		columns = fields
	}
	t, err := lang.Table(columns, m.o.Style)
	if err != nil {
		return fmt.Errorf(" Unknown field '%s'",
			strings.Trim(strings.TrimPrefix(err.Error(), "Invalid field requested: "), `"`))
	}
	return t.Write(m.Stdout, rows, !m.noHeader)
}
