package facade

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/clustertext"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// money.go has what greport's balance, invoice and usage have, from the same tables, for those who may see it there.

// moneyQuery are the parameters of costs: whose, and from when to when.
var moneyQuery = [][2]string{{"account", "names, with commas between; those below count too"},
	{"user", "names, with commas between"}, {"qos", "likewise"}, {"partition", "likewise"},
	{"start", "a time; the first of this month"}, {"end", "a time; now"}}

// told is an answer whose objects tables of fields write, as --json of commands has them.
type told struct {
	schema map[string]any
	raw    json.RawMessage
}

func (t told) MarshalJSON() ([]byte, error) { return t.raw, nil }

// listOf describes an answer with a list; more are members that it may have beside it.
func listOf[T any](name string, fields []slurmjson.Field[T], more map[string]any) told {
	members := map[string]any{name: map[string]any{"type": "array", "items": slurmjson.Schema(fields, slurmjson.Default)}}
	maps.Copy(members, more)
	return told{schema: map[string]any{"type": "object", "required": []string{name}, "properties": members}}
}

// besideUsage are the members that usage may have beside its list.
func besideUsage() map[string]any {
	integer := map[string]any{"type": "integer"}
	return map[string]any{"running_jobs": integer,
		"current_usage": map[string]any{"type": "object", "additionalProperties": integer}}
}

// tell writes an answer with a list; more writes members behind it, and may be nil.
func tell[T any](name string, fields []slurmjson.Field[T], list []T, more func(*slurmjson.Writer)) told {
	return object(func(j *slurmjson.Writer) {
		j.Open(name, '[')
		for i := range list {
			slurmjson.Write(j, "", fields, &list[i])
		}
		j.Close(']')
		if more != nil {
			more(j)
		}
	})
}

// object writes an answer.
func object(members func(*slurmjson.Writer)) told {
	var out bytes.Buffer
	j := slurmjson.New(&out, slurmjson.Default)
	j.Open("", '{')
	members(j)
	j.Close('}')
	j.Flush(true)
	return told{raw: out.Bytes()}
}

// words gives the values of a parameter.
func (q *request) words(name string) (out []string) {
	for _, v := range q.r.URL.Query()[name] {
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); w != "" {
				out = append(out, w)
			}
		}
	}
	return out
}

// only refuses parameters that are not in a list.
func (q *request) only(list [][2]string) error {
	var names []string
	for _, p := range list {
		names = append(names, p[0])
	}
	for name := range q.r.URL.Query() {
		switch {
		case len(names) == 0:
			return bad("%s: there is no such parameter; this path has none", name)
		case !slices.Contains(names, name):
			return bad("%s: there is no such parameter; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// is reads a parameter that is true or false.
func (q *request) is(name string) (bool, error) {
	v := q.r.URL.Query().Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, bad("%s=%s: it is true or false", name, v)
	}
	return b, nil
}

// moment reads a parameter that is a time.
func (q *request) moment(name string, to *model.Time) error {
	v := q.r.URL.Query().Get(name)
	if v == "" {
		return nil
	}
	if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 && s < 1<<40 {
		*to = model.Time(s * 1000)
		return nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return bad("%s=%s: give a time such as 2026-11-24T10:00:00Z, or seconds since 1970", name, v)
	}
	*to = model.Time(t.UnixMilli())
	return nil
}

// purse asks for prices, balances and invoices.
func (q *request) purse(rq proto.MoneyRequest) (*proto.MoneyChunk, error) {
	all := &proto.MoneyChunk{}
	rq.Accounts = q.words("account")
	err := q.stream(proto.KindMoney, &rq, func(part []byte) error {
		var c proto.MoneyChunk
		if err := proto.Decode(part, &c); err != nil {
			return err
		}
		clustertext.AddMoney(all, &c)
		return nil
	})
	return all, err
}

// balances lists the money of accounts.
func (q *request) balances(string) (any, error) {
	all, err := q.purse(proto.MoneyRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]clustertext.BalanceOf, len(all.Wallets))
	for i, w := range all.Wallets {
		list[i] = clustertext.BalanceOf{Wallet: w, Now: q.f.Cluster.Facts().Now.Seconds(), Currency: all.Prices.Currency}
	}
	return tell("balances", clustertext.BalanceJSON(), list, nil), nil
}

// costs asks gdbd what runs have cost that began in the time of the query.
func (q *request) costs() (rq proto.ReportRequest, bills []price.Bill, running int64, err error) {
	now := q.f.Cluster.Facts().Now
	at := time.UnixMilli(int64(now))
	rq = proto.ReportRequest{What: proto.ReportBills, Accounts: q.words("account"), Users: q.words("user"),
		QOS: q.words("qos"), Partitions: q.words("partition"), End: model.Time(now.Seconds()+1) * 1000,
		Start: model.Time(time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, at.Location()).UnixMilli())}
	if err := q.moment("start", &rq.Start); err != nil {
		return rq, nil, 0, err
	}
	if err := q.moment("end", &rq.End); err != nil {
		return rq, nil, 0, err
	}
	if rq.Start >= rq.End {
		return rq, nil, 0, bad("the time ends before it begins")
	}
	if !q.f.Cluster.Facts().Config().Params.Price.Priced() { // as balances and invoices: nothing has cost anything
		return rq, nil, 0, nil
	}
	if len(rq.Users) > 0 {
		rq.By = proto.ByUser
	}
	err = q.stream(proto.KindReport, &rq, func(part []byte) error {
		var c proto.ReportChunk
		if err := proto.Decode(part, &c); err != nil {
			return err
		}
		bills, running = append(bills, c.Bills...), running+c.Running
		return nil
	})
	return rq, bills, running, err
}

// usage is what runs cost by account and resource, or what running jobs hold.
func (q *request) usage(string) (any, error) {
	if current, err := q.is("current"); err != nil {
		return nil, err
	} else if current {
		all, err := q.purse(proto.MoneyRequest{})
		if err != nil {
			return nil, err
		}
		return object(func(j *slurmjson.Writer) {
			j.List("usage", nil)
			clustertext.PutUse(j, all.Use)
		}), nil
	}
	rq, bills, running, err := q.costs()
	if err != nil {
		return nil, err
	}
	list := clustertext.CostsOf(bills, rq.Start.Seconds(), rq.End.Seconds())
	return tell("usage", clustertext.CostJSON(), list, func(j *slurmjson.Writer) { j.Num("running_jobs", running) }), nil
}

var (
	usageQuery   = [][2]string{{"current", "true: what running jobs hold"}}
	invoiceQuery = [][2]string{{"number", "of an invoice that was made"}, {"draft", "true: what invoices would be now"}}
)

// invoices lists those that were made, or drafts.
func (q *request) invoices(string) (any, error) {
	draft, err := q.is("draft")
	if err != nil {
		return nil, err
	}
	rq := proto.MoneyRequest{Invoices: !draft}
	number := q.r.URL.Query().Get("number")
	if number != "" {
		if rq.Number, err = strconv.ParseUint(number, 10, 64); err != nil || rq.Number == 0 || draft {
			return nil, bad("number=%s: the number of an invoice that was made, without draft", number)
		}
	}
	all, err := q.purse(rq)
	switch {
	case err != nil:
		return nil, err
	case rq.Number > 0 && len(all.Invoices) == 0:
		return nil, &wrong{http.StatusNotFound, "there is no invoice " + number +
			", or it is not among the latest ones, which the controllers keep"}
	}
	if draft {
		asked, bills, _, err := q.costs()
		if err != nil {
			return nil, err
		}
		like := price.Invoice{Start: asked.Start.Seconds(), End: asked.End.Seconds(),
			At: q.f.Cluster.Facts().Now.Seconds(), Currency: all.Prices.Currency}
		all.Invoices = clustertext.Drafts(bills, strings.Join(asked.Accounts, ","), like)
	}
	list := make([]price.Invoice, len(all.Invoices))
	for i, x := range all.Invoices {
		list[i] = *x
	}
	return tell("invoices", clustertext.InvoiceJSON(), list, nil), nil
}
