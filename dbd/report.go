package dbd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/usage"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
	"gbatch/internal/wire"
)

// report.go answers questions about usage (proto.ReportRequest). A report reads the database in one transaction, so
// that a job which ends meanwhile counts once: rows of whole hours, days and months, the records of ended jobs for the
// parts of hours at both ends of the window, and the unfinished jobs.

const (
	// maxRows bounds the rows of an answer.
	maxRows = 200_000
	// rowsPerChunk is how many rows one part of an answer has.
	rowsPerChunk = 500
	// maxHours bounds the window of a report of a cluster's time: fifty years.
	maxHours = 50 * 366 * 24
)

// lapse is a span of time in whole seconds: [from, to).
type lapse struct{ from, to usage.Second }

// report is one question in progress.
type report struct {
	*db
	q    *proto.UsageQuery
	rq   *proto.ReportRequest
	win  lapse
	now  usage.Second
	tx   *bolt.Tx
	sets struct{ clusters, users, accounts, qos, parts, resvs map[string]bool }
	of   map[ofKey]*usage.Of // properties, as the report needs them; nil: they don't fit
	are  renames
	sums map[usage.Of]*tally
}

// ofKey is the number of properties, and how many users have got another name since.
type ofKey struct {
	number uint32
	later  int
}

// tally is a sum, with the jobs that it counts.
type tally struct {
	usage.Sum
	jobs int64
}

// usageReport answers one question, in parts.
func (d *Daemon) usageReport(ctx context.Context, r *server.Request) error {
	var q proto.UsageQuery
	if err := proto.Decode(r.Body, &q); err != nil {
		return badRequest("a question that can't be read: %v", err)
	}
	if err := d.lost(ctx); err != nil {
		return err
	}
	if err := d.follow.ready(ctx); err != nil {
		return err
	}
	d.fresh.Wait(ctx)
	send := func(c *proto.ReportChunk) error {
		body, err := proto.Encode(c)
		if err != nil {
			return err
		}
		return r.ReplyMore(body)
	}
	note, err := d.db.report(ctx, &q, send)
	if err != nil {
		return err
	}
	if note == "" {
		note = d.follow.note()
	}
	body, err := proto.Encode(&proto.ReportChunk{Note: note})
	if err != nil {
		return err
	}
	return r.Reply(body)
}

// report answers a question; note is what its reader has to know.
func (d *db) report(ctx context.Context, q *proto.UsageQuery, send func(*proto.ReportChunk) error) (note string,
	err error) {
	p := &report{db: d, q: q, rq: &q.Report, now: d.cluster().Unix(), of: map[ofKey]*usage.Of{},
		sums: map[usage.Of]*tally{}}
	p.win = lapse{int64(q.Report.Start) / 1000, int64(q.Report.End) / 1000}
	if q.Report.End == 0 {
		p.win.to = p.now + 1 // with the present second
	}
	if p.win.from > p.win.to {
		return "", badRequest("the time window ends before it starts")
	}
	p.sets.clusters, p.sets.users, p.sets.qos = setOf(p.rq.Clusters), setOf(p.rq.Users), setOf(p.rq.QOS)
	p.sets.accounts, p.sets.parts, p.sets.resvs = accountsOf(p.rq.Accounts), setOf(p.rq.Partitions), setOf(p.rq.Resvs)
	select {
	case d.querying <- struct{}{}:
		defer func() { <-d.querying }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	var out []*proto.ReportChunk
	err = d.view(func(tx *bolt.Tx) error {
		p.tx, p.are = tx, renamesOf(tx)
		switch p.rq.What {
		case proto.ReportUsage:
			out, err = p.usage(ctx)
		case proto.ReportCluster:
			out, err = p.clusterUse(ctx)
		case proto.ReportResvs:
			out, err = p.reservations(ctx)
		case proto.ReportBills:
			out, err = p.bills(ctx)
		case proto.ReportEvents:
			out = p.outages()
		case proto.ReportTrail:
			out = p.entries()
		default:
			return badRequest("a report of kind %d is not known to this accounting daemon; is it older than the controller?",
				p.rq.What)
		}
		if top := tx.Bucket(keyUsage); top != nil && len(top.Get(keyMark)) > 0 && p.rq.What <= proto.ReportResvs {
			note = "the accounting daemon still sums up records of before it kept sums; ask again in a few minutes"
		}
		return err
	})
	if err != nil {
		return "", err
	}
	for _, c := range out {
		if err := send(c); err != nil {
			return "", err
		}
	}
	return note, nil
}

// fits reports whether jobs with these properties are asked for.
func (p *report) fits(o *usage.Of) bool {
	in := func(set map[string]bool, s string) bool { return set == nil || set[s] }
	return in(p.sets.clusters, o.Cluster) && in(p.sets.users, o.User) &&
		(p.sets.accounts == nil || p.sets.accounts[model.AccountName(o.Account)]) && in(p.sets.qos, o.QOS) &&
		in(p.sets.parts, o.Partition) && in(p.sets.resvs, o.Resv) &&
		(len(p.rq.WCKeys) == 0 || model.HasWCKey(p.rq.WCKeys, o.WCKey)) && (!p.q.Only || o.User == p.q.User)
}

// asked drops the properties by which the report does not sum.
func (p *report) asked(o *usage.Of) usage.Of {
	n := usage.Of{Cluster: o.Cluster}
	for _, x := range []struct {
		by       proto.ReportBy
		to, from *string
	}{{proto.ByAccount, &n.Account, &o.Account}, {proto.ByUser, &n.User, &o.User}, {proto.ByQOS, &n.QOS, &o.QOS},
		{proto.ByPartition, &n.Partition, &o.Partition}, {proto.ByWCKey, &n.WCKey, &o.WCKey},
		{proto.ByResv, &n.Resv, &o.Resv}} {
		if p.rq.By&x.by != 0 {
			*x.to = *x.from
		}
	}
	if p.rq.By&proto.BySize != 0 {
		n.CPUs = o.CPUs
	}
	return n
}

// add adds a sum of a part of the window; first says that it is the window's first part, so that jobs which ran before
// count as well.
func (p *report) add(o usage.Of, s *usage.Sum, first bool) {
	if s.Zero() {
		return
	}
	t := p.sums[o]
	if t == nil {
		t = &tally{}
		p.sums[o] = t
	}
	t.Add(s, 1)
	t.jobs += s.Began
	if first {
		t.jobs += s.Over
	}
}

// usage sums jobs' usage.
func (p *report) usage(ctx context.Context) ([]*proto.ReportChunk, error) {
	each := len(p.rq.GIDs) > 0 || len(p.rq.Jobs) > 0 || len(p.rq.Nodes) > 0
	if each {
		err := p.records(ctx, p.win, func(r *model.Record) { p.addRecord(r, p.win, true) })
		if err != nil {
			return nil, err
		}
	} else if err := p.parts(ctx, p.win, p.addRecord, func(first, next uint32, begins bool) error {
		return p.rows(ctx, first, next, begins)
	}); err != nil {
		return nil, err
	}
	if err := p.live(each, func(r *model.Record) { p.addRecord(r, p.win, true) }); err != nil {
		return nil, err
	}
	keys := slices.SortedFunc(maps.Keys(p.sums), func(a, b usage.Of) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Account, b.Account), cmp.Compare(a.User, b.User),
			cmp.Compare(a.QOS, b.QOS), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Resv, b.Resv),
			cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.WCKey, b.WCKey))
	})
	if len(keys) > maxRows {
		return nil, badRequest("the report has %d rows; ask for fewer accounts or users", len(keys))
	}
	var out []*proto.ReportChunk
	for _, k := range keys {
		t := p.sums[k]
		row := proto.ReportRow{Cluster: k.Cluster, Account: k.Account, User: k.User, QOS: k.QOS, Partition: k.Partition,
			WCKey: k.WCKey, Resv: k.Resv, CPUs: int64(k.CPUs), TRES: t.TRES, Jobs: t.jobs, Started: t.Began, WaitS: t.WaitS}
		if t.Began > 0 {
			row.Waits = t.Waits[:]
		}
		if t.Ended != [usage.States]int64{} {
			row.Ended = t.Ended[:]
		}
		if n := len(out); n == 0 || len(out[n-1].Rows) >= rowsPerChunk {
			out = append(out, &proto.ReportChunk{})
		}
		out[len(out)-1].Rows = append(out[len(out)-1].Rows, row)
	}
	return out, nil
}

func (p *report) addRecord(r *model.Record, in lapse, first bool) {
	of := usage.OfRecord(r)
	of.User = p.are.now(of.Cluster, of.User, r.Submit)
	if !p.fits(&of) {
		return
	}
	s := usage.Within(r, in.from, in.to, p.now)
	p.add(p.asked(&of), &s, first)
}

// parts divides a window into the parts of hours at its ends, for which it reads records, and whole hours, of which
// there are rows.
func (p *report) parts(ctx context.Context, win lapse, record func(r *model.Record, in lapse, first bool),
	rows func(first, next uint32, begins bool) error) error {
	first, next := (win.from+usage.Hour-1)/usage.Hour, win.to/usage.Hour
	edge := func(in lapse) error {
		return p.records(ctx, in, func(r *model.Record) { record(r, in, in.from == win.from) })
	}
	if first > next { // within an hour
		return edge(win)
	}
	if head := (lapse{win.from, first * usage.Hour}); head.from < head.to {
		if err := edge(head); err != nil {
			return err
		}
	}
	if first < next {
		if err := rows(hourOf(first*usage.Hour), hourOf(next*usage.Hour), first*usage.Hour == win.from); err != nil {
			return err
		}
	}
	if tail := (lapse{next * usage.Hour, win.to}); tail.from < tail.to {
		return edge(tail)
	}
	return nil
}

// rows adds rows of the hours [first, next): of months where they are whole, else of days and hours. In a span in which
// a user got another name, the old one can be somebody else's in the end: its parts are looked at, and in the hour
// itself the records.
func (p *report) rows(ctx context.Context, first, next uint32, begins bool) error {
	one := func(from, to uint32) bool { return !p.are.within(from, to) }
	for h := first; h < next; {
		table, to := byte(tableHour), min(next, dayOf(h)+24)
		switch {
		case h == monthStart(h) && monthEnd(h) <= next && one(h, monthEnd(h)):
			table, to = tableMonth, monthEnd(h)
		case h == dayOf(h) && h+24 <= next && one(h, h+24):
			table, to = tableDay, h+24
			for to == dayOf(to) && to+24 <= next && to != monthStart(to) && one(to, to+24) {
				to += 24
			}
		case !one(h, h+1):
			in := lapse{int64(h) * usage.Hour, int64(h+1) * usage.Hour}
			if err := p.records(ctx, in, func(r *model.Record) { p.addRecord(r, in, begins && h == first) }); err != nil {
				return err
			}
			h++
			continue
		default:
			for to > h+1 && !one(h, to) {
				to--
			}
		}
		if err := p.table(table, h, to, begins && h == first); err != nil {
			return err
		}
		h = to
	}
	return nil
}

// table adds the rows of one table in [from, to).
func (p *report) table(table byte, from, to uint32, begins bool) error {
	return p.each(table, from, to, func(hour, number uint32, v []byte) error {
		at := model.Time(int64(hour) * usage.Hour * 1000)
		key := ofKey{number, p.are.later(at)}
		of, known := p.of[key]
		if !known {
			if o := p.properties(number); o != nil {
				o.User = p.are.now(o.Cluster, o.User, at)
				if p.fits(o) {
					n := p.asked(o)
					of = &n
				}
			}
			p.of[key] = of
		}
		if of == nil {
			return nil
		}
		var s usage.Sum
		if err := s.AddBytes(v); err != nil {
			return err
		}
		p.add(*of, &s, begins && hour == from)
		return nil
	})
}

// each calls f for the rows of a table in [from, to).
func (p *report) each(table byte, from, to uint32, f func(hour, number uint32, v []byte) error) error {
	top := p.tx.Bucket(keyUsage)
	if top == nil {
		return nil
	}
	c := top.Bucket(keyRow).Cursor()
	end := binary.BigEndian.AppendUint32([]byte{table}, to)
	k, v := c.Seek(binary.BigEndian.AppendUint32([]byte{table}, from))
	for ; k != nil && bytes.Compare(k, end) < 0; k, v = c.Next() {
		if len(k) != 9 {
			continue
		}
		if err := f(binary.BigEndian.Uint32(k[1:]), binary.BigEndian.Uint32(k[5:]), v); err != nil {
			return err
		}
	}
	return nil
}

// properties gives those with a number; nil if they are not known.
func (p *report) properties(number uint32) *usage.Of {
	v := p.tx.Bucket(keyUsage).Bucket(keyName).Get(binary.BigEndian.AppendUint32(nil, number))
	of, err := usage.ReadOf(v)
	if v == nil || err != nil {
		return nil
	}
	return &of
}

// records calls f for the records of ended jobs that may have a part in a span.
func (p *report) records(ctx context.Context, in lapse, f func(r *model.Record)) error {
	rq := &proto.AcctRequest{Start: model.Time(in.from) * 1000, End: model.Time(in.to) * 1000, Duplicates: true}
	if in.from == p.win.from && in.to == p.win.to {
		rq.Groups, rq.Jobs, rq.Nodes = p.rq.GIDs, p.rq.Jobs, p.rq.Nodes
	}
	return p.scan(ctx, rq, true, f)
}

// scan calls f for the records that a request selects, the ended ones or the others.
func (p *report) scan(ctx context.Context, rq *proto.AcctRequest, over bool, f func(r *model.Record)) error {
	flt, err := newFilter(rq)
	if err != nil {
		return err
	}
	q := &query{db: p.db, filter: flt}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err = q.scanSome(p.tx); err != nil {
			return err
		}
	}
	all := openShelves(p.tx)
	var key [refLen]byte
	for _, h := range q.list {
		sh := all.get(q.shelves[h.shelf])
		if sh == nil || sh.rec == nil || (sh.name == liveShelf) == over {
			continue
		}
		hd, record, ok := parseRow(sh.rec.Get(h.append(key[:0])), h.ref)
		if !ok {
			continue
		}
		r := &model.Record{}
		if wire.Unmarshal(record, r) != nil {
			continue
		}
		if r.End == 0 {
			r.End = hd.end
		}
		f(r)
	}
	return nil
}

// live calls f for the records of jobs that have not ended.
func (p *report) live(filtered bool, f func(r *model.Record)) error {
	rq := &proto.AcctRequest{Start: maxTime - 1, Duplicates: true}
	if filtered {
		rq.Groups, rq.Jobs, rq.Nodes = p.rq.GIDs, p.rq.Jobs, p.rq.Nodes
	}
	return p.scan(context.Background(), rq, false, f)
}
