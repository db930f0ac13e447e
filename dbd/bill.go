package dbd

import (
	"context"
	"runtime"
	"sync"

	"gbatch/dbd/usage"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// bill.go sums up what runs cost: those that began in the window and have ended, wherever their end lies. The prices
// come with the question, because they are the controllers' (package price). It reads the records one after the other
// in one transaction and keeps only the sums; a few workers decode them.

const (
	maxBillers = 4
	billBatch  = 512 // rows that a worker takes at a time
)

// billRow is a record as it is stored.
type billRow struct {
	row []byte
	of  ref
}

// biller is one worker.
type biller struct {
	p       *report
	by      proto.ReportBy
	names   bool // records' users, QOS and reservations matter
	sums    *price.Sums
	running int64
	over    bool // there are too many lines
}

// bills answers proto.ReportBills.
func (p *report) bills(ctx context.Context) ([]*proto.ReportChunk, error) {
	if p.q.Prices == nil {
		return nil, badRequest("a question about costs without prices; is the controller older than this accounting daemon?")
	}
	flt, err := newFilter(&proto.AcctRequest{Start: p.rq.Start, End: p.rq.End, Duplicates: true})
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	work := make(chan []billRow, maxBillers)
	all := make([]*biller, min(maxBillers, runtime.GOMAXPROCS(0)))
	for i := range all {
		b := &biller{p: p, by: p.rq.By, sums: price.NewSums(p.q.Prices)}
		b.names = p.q.Only || p.rq.By&proto.ByUser != 0 || p.sets.users != nil || p.sets.qos != nil || p.sets.resvs != nil
		all[i] = b
		wg.Go(func() {
			for batch := range work {
				for i := range batch {
					b.add(&batch[i])
				}
			}
		})
	}
	err = p.hand(ctx, flt, work)
	close(work)
	wg.Wait() // the rows are valid until then
	if err != nil {
		return nil, err
	}
	sums, out := all[0].sums, []*proto.ReportChunk{{}}
	for i, b := range all {
		if i > 0 {
			sums.Merge(b.sums)
		}
		out[0].Running += b.running
		if b.over || sums.Len() > maxRows {
			return nil, badRequest("the report has more than %d rows; ask for fewer accounts or users", maxRows)
		}
	}
	for _, b := range sums.Bills() {
		if n := len(out) - 1; len(out[n].Bills) >= rowsPerChunk {
			out = append(out, &proto.ReportChunk{})
		}
		last := out[len(out)-1]
		last.Bills = append(last.Bills, b)
	}
	return out, nil
}

// hand gives the workers all rows that may count.
func (p *report) hand(ctx context.Context, flt *filter, work chan<- []billRow) error {
	batch := make([]billRow, 0, billBatch)
	q := &query{db: p.db, filter: flt}
	q.each = func(row []byte, of ref) {
		if batch = append(batch, billRow{row, of}); len(batch) == billBatch {
			work <- batch
			batch = make([]billRow, 0, billBatch)
		}
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if done, err = q.scanSome(p.tx); err != nil {
			return err
		}
	}
	work <- batch
	return nil
}

// add counts a record.
func (b *biller) add(x *billRow) {
	h, record, ok := parseRow(x.row, x.of)
	if !ok {
		b.p.leaveOut(x.of, "its checksum is wrong")
		return
	}
	if s := h.start.Seconds(); h.start == 0 || s < b.p.win.from || s >= b.p.win.to || b.over {
		return
	}
	r := leanRecord{names: b.names}
	if err := wire.Unmarshal(record, &r); err != nil {
		b.p.leaveOut(x.of, err.Error())
		return
	}
	r.User = b.p.are.now(r.Cluster, r.User, h.submit)
	what := usage.OfRecord(&r.Record)
	if !b.p.fits(&what) {
		return
	}
	if !h.ended() {
		b.running++
		return
	}
	r.End = h.end
	s := r.Session()
	if s == nil {
		return
	}
	user := ""
	if b.by&proto.ByUser != 0 {
		user = r.User
	}
	b.sums.Add(r.Account, user, s)
	b.over = b.sums.Len() > maxRows
}

// leanRecord is a record of which only the fields are read that its price needs. It is never written.
type leanRecord struct {
	model.Record
	names bool // with the user, the QOS and the reservation
}

func (x *leanRecord) Wire(c *wire.C) {
	skip := func(n int) {
		for range n {
			wire.Retired(c)
		}
	}
	name := func(s *string) {
		if x.names {
			wire.Text(c, s, model.MaxText)
		} else {
			wire.Retired(c)
		}
	}
	skip(1)
	wire.Text(c, &x.Cluster, model.MaxName)
	skip(6)
	name(&x.User)
	skip(3)
	wire.Text(c, &x.Account, model.MaxName)
	name(&x.QOS)
	wire.Text(c, &x.Partition, model.MaxName)
	skip(4)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	skip(2)
	wire.Int(c, &x.NumNodes)
	skip(1)
	wire.Int(c, &x.AllocCPUs)
	skip(1)
	wire.Int(c, &x.AllocMemMiB)
	skip(1)
	wire.List(c, &x.AllocGres, model.MaxFew)
	skip(15)
	name(&x.Reservation)
	skip(1)
	wire.Int(c, &x.SuspendMS)
	wire.Int(c, &x.SuspendAt)
	skip(2)
	wire.Ptr(c, &x.Asked)
	skip(7)
	wire.Ptr(c, &x.Earlier)
	wire.Bool(c, &x.Open)
	wire.Bool(c, &x.Unbegun)
}
