package dbd

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"time"

	"gbatch/dbd/history"
	"gbatch/dbd/jobstats"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/trust"
)

// This file owns gdbd's answers. The port admits only controllers and accounting daemons; the handshake refuses
// everything else.

// handle answers one request.
func (d *Daemon) handle(ctx context.Context, r *server.Request) {
	if err := d.answer(ctx, r); err != nil {
		d.fail(r, err)
	}
}

// fail answers with an error.
func (d *Daemon) fail(r *server.Request, err error) {
	err = forUsers(err)
	if e := (*rpc.Error)(nil); r.Interrupted() && !errors.As(err, &e) {
		err = rpc.Errorf(proto.CodeNoAccounting, "the accounting daemon is stopping; try again")
	}
	if ferr := r.Fail(err); ferr != nil {
		d.opts.Logger.Debug("an answer was not delivered", "peer", r.Peer.String(), "kind", r.Kind, "err", ferr)
	}
}

// forUsers gives an error its code and sentence if the other side can act on it; all other errors are internal.
func forUsers(err error) error {
	var bad *BadRequestError
	var busy *BusyError
	var lost *LostError
	var behind *BehindError
	switch {
	case errors.As(err, &lost):
		return rpc.Errorf(proto.CodeNoAccounting, "%v", lost)
	case errors.As(err, &behind):
		return rpc.Errorf(proto.CodeNoAccounting, "%v", behind)
	case errors.As(err, &busy):
		return rpc.Errorf(proto.CodeBusy, "%v", busy)
	case errors.As(err, &bad):
		return rpc.Errorf(proto.CodeBadRequest, "%s", bad.Text)
	case errors.Is(err, errFull):
		return rpc.Errorf(proto.CodeNoAccounting, "%v", err)
	}
	return err
}

func (d *Daemon) answer(ctx context.Context, r *server.Request) error {
	role, _, _ := r.Peer.Daemon()
	if !trust.Asks(trust.OfRole(role), r.Kind) {
		return rpc.Errorf(proto.CodeAccess, "a daemon with role %s can't ask this of gdbd (kind %d)", role, r.Kind)
	}
	switch r.Kind {
	case proto.KindPing:
		return r.Reply(nil)
	case proto.KindPut:
		var p proto.Put
		if err := proto.Decode(r.Body, &p); err != nil {
			return badRequest("accounting records that can't be read: %v", err)
		}
		if p.Instance != proto.ImportInstance {
			d.follow.heard()
		} else if err := d.complete(ctx); err != nil {
			return err
		}
		r.Body = nil // release it: it can be large, and the records don't refer to it
		var reply proto.PutReply
		var err error
		if len(p.Records) == 0 {
			reply, err = d.db.position(ctx, &p)
		} else {
			reply.Seq, err = d.db.put(ctx, &p)
		}
		if err != nil {
			return err
		}
		if p.Instance != proto.ImportInstance {
			d.clock.Hear(int64(p.Now))
		}
		reply.Now = model.Time(d.clock.Now().UnixMilli())
		body, err := proto.Encode(&reply)
		if err != nil {
			return err
		}
		return r.Reply(body)
	case proto.KindAsked:
		return d.asked(ctx, r)
	case proto.KindQuery:
		return d.query(ctx, r, r.Body, nil)
	case proto.KindUsage:
		return d.usageReport(ctx, r)
	case proto.KindSamples:
		return d.putSamples(r)
	case proto.KindPast:
		return d.past(ctx, r)
	case proto.KindSight:
		return d.setSight(ctx, r)
	case proto.KindBackup:
		return d.backup(ctx, r)
	case proto.KindBeginEmpty:
		return d.beginEmpty(ctx, r)
	case proto.KindDbd:
		return d.state(r)
	}
	return badRequest("the accounting daemon doesn't know the request %d; is it older than the controller?", r.Kind)
}

// asked answers the leader once somebody asks for records.
func (d *Daemon) asked(ctx context.Context, r *server.Request) error {
	var rq proto.Asked
	if err := proto.Decode(r.Body, &rq); err != nil {
		return badRequest("a message of the leader that can't be read: %v", err)
	}
	waiting, stop := context.WithTimeout(ctx, proto.MaxWaitS*time.Second)
	defer stop()
	body, err := proto.Encode(&proto.AskedReply{Round: d.fresh.Next(waiting, rq.Done)})
	if err != nil {
		return err
	}
	return r.Reply(body)
}

// openHistory opens the history of samples. Without it gdbd does what counts.
func (d *Daemon) openHistory() {
	h, err := history.Open(filepath.Join(d.opts.Dir, history.FileName), d.opts.Logger, d.clock.Now)
	if err != nil {
		d.opts.Logger.Error("there is no history of samples; records are not affected", "err", err)
		return
	}
	d.history = h
}

var errNoHistory = rpc.Errorf(proto.CodeNotHere, "the accounting daemon can't use its history of samples; its log says"+
	" why")

// putSamples keeps samples.
func (d *Daemon) putSamples(r *server.Request) error {
	if d.history == nil {
		return errNoHistory
	}
	var p proto.Samples
	if err := proto.Decode(r.Body, &p); err != nil {
		return badRequest("samples that can't be read: %v", err)
	}
	if err := d.history.Put(&p); err != nil {
		return ofHistory(err)
	}
	return r.Reply(nil)
}

// past answers a question about samples.
func (d *Daemon) past(ctx context.Context, r *server.Request) error {
	if d.history == nil {
		return errNoHistory
	}
	var q proto.HistoryQuery
	if err := proto.Decode(r.Body, &q); err != nil {
		return badRequest("a question that can't be read: %v", err)
	}
	err := d.history.Ask(ctx, &q, func(part *proto.HistoryReply) error {
		body, err := proto.Encode(part)
		if err != nil {
			return err
		}
		return r.ReplyMore(body)
	})
	if err != nil {
		return ofHistory(err)
	}
	body, err := proto.Encode(&proto.HistoryReply{})
	if err != nil {
		return err
	}
	return r.Reply(body)
}

// ofHistory makes a refusal of what is wrong with a message.
func ofHistory(err error) error {
	var bad *history.BadError
	if errors.As(err, &bad) {
		return badRequest("%s", bad.Text)
	}
	return err
}

// complete refuses what must wait until the records of the controllers are here.
func (d *Daemon) complete(ctx context.Context) error {
	if err := d.lost(ctx); err != nil {
		return err
	}
	if behind := d.db.lag.Load(); behind != nil {
		return behind
	}
	return nil
}

// appendSummaries adds summaries as a second field to the chunk in b, an array of one field.
func appendSummaries(b []byte, summaries []string) []byte {
	const array2, array16, str16 = 0x92, 0xdc, 0xda
	b[0] = array2
	b = binary.BigEndian.AppendUint16(append(b, array16), uint16(len(summaries)))
	for _, s := range summaries {
		s = s[:min(len(s), jobstats.MaxBytes)]
		b = append(binary.BigEndian.AppendUint16(append(b, str16), uint16(len(s))), s...)
	}
	return b
}

// appendChunk builds a proto.RecordsChunk from stored records without decoding them: an array of one field, which is an
// array of records.
func appendChunk(b []byte, records [][]byte) []byte {
	const array1, array16 = 0x91, 0xdc
	b = append(b, array1, array16)
	b = binary.BigEndian.AppendUint16(b, uint16(len(records)))
	for _, r := range records {
		b = append(b, r...)
	}
	return b
}
