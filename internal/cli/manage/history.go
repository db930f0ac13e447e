package manage

import (
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/trail"
	"gbatch/internal/walltime"
)

// history.go is show transaction (who changed what) and show event (when nodes took no jobs), from gdbd's trail.

// past is one call of show transaction or show event.
type past struct {
	*manage
	cluster string
	times   jobtext.Times
	rq      proto.ReportRequest
	now     time.Time
	fields  string

	actions, users, accounts, actors, states, reasons []string
	kinds                                             []string // of events: cluster, node
	allTime, started                                  bool
}

// pastKeys are the words of both tables, for completion and errors.
var pastKeys = map[string][]string{
	"transaction": {"accounts", "action", "actor", "clusters", "end", "format", "nodes", "start", "users"},
	"event": {"all_clusters", "all_time", "clusters", "end", "event", "format", "nodes", "reason", "start", "states",
		"user"},
}

// historyOf names the table that an entity means, or "".
func historyOf(entity string) string {
	switch {
	case entity == "txn" || len(entity) >= 3 && strings.HasPrefix("transactions", entity):
		return "transaction"
	case len(entity) >= 1 && strings.HasPrefix("events", entity):
		return "event"
	}
	return ""
}

// showPast prints one of the tables.
func (m *manage) showPast(c *client.Client, cluster, table string, words []string) error {
	now := time.Now()
	p := &past{manage: m, cluster: cluster, now: now, times: m.Times(now)}
	p.rq.Clusters = []string{cluster}
	for _, w := range words {
		if low := strings.ToLower(w); low == "where" || low == "set" {
			continue
		}
		key, value, has := strings.Cut(w, "=")
		if err := p.word(table, strings.ToLower(strings.TrimSpace(key)), strings.Trim(value, `'"`), has); err != nil {
			return err
		}
	}
	if m.json != "" {
		return fmt.Errorf(" show %s has no JSON; -P prints fields with | between", table)
	}
	if table == "event" {
		return p.events(c)
	}
	return p.transactions(c)
}

// word reads one word of the command.
func (p *past) word(table, key, value string, has bool) (err error) {
	name := ""
	for _, k := range pastKeys[table] {
		if key != "" && (k == key || strings.HasPrefix(k, key) && (name == "" || len(key) > 2) || k+"s" == key ||
			k == key+"s") && (name == "" || k == key) {
			name = k
		}
	}
	switch key {
	case "nodename", "nodenames":
		name = "nodes"
	case "withassocinfo", "withassoc":
		return nil // transactions have their accounts and users in Where
	}
	if !has && name != "all_clusters" && name != "all_time" {
		return fmt.Errorf(" Unknown condition: %s\n The words are %s", key, strings.Join(pastKeys[table], "=, ")+"=")
	}
	list := strings.FieldsFunc(strings.ToLower(value), func(r rune) bool { return r == ',' })
	switch name {
	case "start":
		p.started = true
		p.rq.Start, err = p.moment(value)
	case "end":
		p.rq.End, err = p.moment(value)
	case "format":
		p.fields += "," + value
	case "nodes":
		hosts, err := hostlist.Expand(value)
		p.rq.Nodes = append(p.rq.Nodes, hosts...)
		return err
	case "clusters":
		p.rq.Clusters = strings.Split(value, ",")
	case "all_clusters":
		p.rq.Clusters = nil
	case "all_time":
		p.allTime = true
	case "accounts":
		p.accounts = append(p.accounts, list...)
	case "users":
		p.users = append(p.users, list...)
	case "actor", "user":
		p.actors = append(p.actors, list...)
	case "action":
		p.actions = append(p.actions, list...)
	case "event":
		p.kinds = append(p.kinds, list...)
	case "states":
		p.states = append(p.states, list...)
	case "reason":
		p.reasons = append(p.reasons, list...)
	default:
		return fmt.Errorf(" Unknown condition: %s\n The words are %s", key, strings.Join(pastKeys[table], "=, ")+"=")
	}
	return err
}

func (p *past) moment(v string) (model.Time, error) {
	t, err := walltime.ParsePastDate(v, p.now)
	if err != nil {
		return 0, fmt.Errorf(" Invalid time specification: %w", err)
	}
	return model.Time(t.UnixMilli()), nil
}

// ask asks gdbd.
func (p *past) ask(c *client.Client) (*proto.ReportChunk, error) {
	all := &proto.ReportChunk{}
	err := c.Stream(proto.KindReport, &p.rq, func(body []byte) error {
		var chunk proto.ReportChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			fmt.Fprintf(p.Stderr, "%s: %s\n", p.Program, chunk.Note)
		}
		all.Trail, all.Outages = append(all.Trail, chunk.Trail...), append(all.Outages, chunk.Outages...)
		return nil
	})
	return all, err
}

// transaction is a line of show transaction.
type transaction struct {
	*model.Audit
	p            *past
	action, info string
}

// transactions prints who changed what.
func (p *past) transactions(c *client.Client) error {
	p.rq.What = proto.ReportTrail
	p.rq.Events = []string{trail.TaskCancelled, trail.TaskSignaled, trail.TaskRequeuing, trail.TaskChanged,
		trail.NodeChanged, trail.AccountChanged, trail.ResvChanged, trail.PartChanged, trail.ConfigChanged,
		trail.TriggerSet, trail.TriggerCleared, trail.TriggerRan, trail.TriggerNotRun}
	all, err := p.ask(c)
	if err != nil {
		return err
	}
	var rows []transaction
	for _, a := range all.Trail {
		t := transaction{Audit: a, p: p, action: a.Event, info: a.Text}
		if a.Event == trail.AccountChanged {
			t.action, t.info, _ = strings.Cut(a.Text, "; ")
		}
		if p.fits(&t) {
			rows = append(rows, t)
		}
	}
	lang := &format.Language[transaction]{Noun: "transaction", Fields: []format.Field[transaction]{
		{Name: "TimeStamp", Title: "Time", Width: 19, Get: func(t *transaction) string {
			return string(p.times.Append(nil, t.At, ""))
		}},
		{Name: "Time", Width: 19, Get: func(t *transaction) string { return string(p.times.Append(nil, t.At, "")) }},
		{Name: "Action", Width: 20, Get: func(t *transaction) string { return t.action }},
		{Name: "Actor", Width: 10, Get: func(t *transaction) string { return t.By }},
		{Name: "Where", Width: 20, Get: func(t *transaction) string { return t.where() }},
		{Name: "Info", Width: 20, Get: func(t *transaction) string { return t.info }},
		{Name: "Cluster", Width: 10, Get: func(t *transaction) string { return t.p.cluster }},
	}}
	return printPast(p, lang, "Time,Action,Actor,Where,Info", rows)
}

func (t *transaction) where() string {
	switch {
	case t.What == trail.Account && strings.Contains(t.Name, "="):
		return t.Name
	case t.What == trail.Account:
		return "name=" + t.Name
	}
	return t.What + "=" + t.Name
}

// fits reports whether a transaction is asked for.
func (p *past) fits(t *transaction) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, strings.ToLower(s)) }
	named := func(list []string, key, kind string) bool {
		return len(list) == 0 || t.What == trail.Account && slices.ContainsFunc(list, func(n string) bool {
			return slices.Contains(strings.Fields(t.Name), key+"="+n) || t.Name == n && strings.HasSuffix(t.action, kind)
		})
	}
	if len(p.rq.Nodes) > 0 {
		hosts, err := hostlist.Expand(t.Name)
		if t.What != trail.Node || err != nil || !slices.ContainsFunc(hosts, func(n string) bool {
			return slices.Contains(p.rq.Nodes, n)
		}) {
			return false
		}
	}
	return in(p.actors, t.By) && in(p.actions, t.action) && named(p.accounts, "account", "Accounts") &&
		named(p.users, "user", "Users")
}

// outage is a line of show event.
type outage struct {
	*proto.Outage
	p *past
}

// events prints the times in which nodes took no jobs, and what the cluster had: since yesterday, with States= those
// that go on now, as sacctmgr does.
func (p *past) events(c *client.Client) error {
	p.rq.What = proto.ReportEvents
	current := len(p.states) > 0 && !p.started && !p.allTime
	if !p.started && !p.allTime && !current {
		y, m, d := p.now.AddDate(0, 0, -1).Date()
		p.rq.Start = model.Time(time.Date(y, m, d, 0, 0, 0, 0, p.now.Location()).UnixMilli())
	}
	all, err := p.ask(c)
	if err != nil {
		return err
	}
	has := func(list []string, s string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(w string) bool {
			return strings.HasPrefix(strings.ToLower(s), w)
		})
	}
	var rows []outage
	for i := range all.Outages {
		o := outage{&all.Outages[i], p}
		if current && (o.End != 0 || o.Node == "") || !has(p.states, o.State) || !has(p.kinds, o.kind()) ||
			len(p.reasons) > 0 && !slices.ContainsFunc(p.reasons, func(w string) bool {
				return strings.Contains(strings.ToLower(o.Reason), w)
			}) || len(p.actors) > 0 && !slices.Contains(p.actors, strings.ToLower(o.By)) {
			continue
		}
		rows = append(rows, o)
	}
	stamp := func(t model.Time) string { return string(p.times.Append(nil, t, "Unknown")) }
	text := func(name, title string, width int, get func(o *outage) string) format.Field[outage] {
		return format.Field[outage]{Name: name, Title: title, Width: width, Get: get}
	}
	start := func(o *outage) string { return stamp(o.Start) }
	end := func(o *outage) string { return stamp(o.End) }
	node := func(o *outage) string { return o.Node }
	lang := &format.Language[outage]{Noun: "event", Fields: []format.Field[outage]{
		text("Cluster", "", 10, func(o *outage) string { return o.Cluster }),
		text("ClusterNodes", "Cluster Nodes", 20, func(o *outage) string { return "" }),
		text("NodeName", "", 15, node), text("Nodes", "NodeName", 15, node),
		text("TimeStart", "", 19, start), text("Start", "TimeStart", 19, start),
		text("TimeEnd", "", 19, end), text("End", "TimeEnd", 19, end),
		text("Duration", "", 13, func(o *outage) string {
			till := o.End
			if till == 0 {
				till = model.Time(p.now.UnixMilli())
			}
			return walltime.Elapsed(int64(max(till-o.Start, 0)) / 1000)
		}),
		text("State", "", 6, func(o *outage) string { return o.State }),
		text("StateRaw", "", 8, func(o *outage) string { return o.raw() }),
		text("EventRaw", "", 8, func(o *outage) string {
			if o.Node == "" {
				return "1"
			}
			return "2"
		}),
		text("Event", "", 7, func(o *outage) string { return o.kind() }),
		text("Reason", "", 30, func(o *outage) string {
			if o.Node == "" {
				return "Cluster Registered TRES"
			}
			return o.Reason
		}),
		text("User", "", 10, func(o *outage) string { return withUID(o.By) }),
		text("TRES", "", 20, func(o *outage) string {
			var words []string
			for _, t := range o.TRES {
				words = append(words, t.Text())
			}
			return strings.Join(words, ",")
		}),
	}}
	return printPast(p, lang, "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User", rows)
}

// raw is the state as Slurm's number of a node's state: 1 for DOWN, 2 for IDLE, and 512 more where it drains.
func (o *outage) raw() string {
	switch o.State {
	case trail.Down:
		return "1"
	case trail.Drain:
		return "514"
	}
	return "0"
}

func (o *outage) kind() string {
	if o.Node == "" {
		return "Cluster"
	}
	return "Node"
}

// withUID writes a user as root(0); what is no user of this host stays as it is.
func withUID(name string) string {
	if u, err := user.Lookup(name); err == nil && name != "" {
		return name + "(" + u.Uid + ")"
	}
	return name
}

// printPast prints a table.
func printPast[T any](p *past, lang *format.Language[T], columns string, rows []T) error {
	if p.fields != "" {
		columns = strings.TrimPrefix(p.fields, ",")
	}
	t, err := lang.Table(columns, p.o.Style)
	if err != nil {
		return fmt.Errorf(" Unknown field '%s'",
			strings.Trim(strings.TrimPrefix(err.Error(), "Invalid field requested: "), `"`))
	}
	return t.Write(p.Stdout, rows, !p.noHeader)
}
