package ctld

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// ship sends accounting records to gdbd in the order of the outbox, and trims the acknowledged ones. gdbd ignores
// records that it has already, so a batch may be sent again after any failure.
func (c *Controller) ship(ctx context.Context) {
	if c.opts.DbdAddr == "" {
		c.dropRecords(ctx)
		return
	}
	retry := outboxRetryMin
	for ctx.Err() == nil {
		err := c.shipOn(ctx)
		if ctx.Err() != nil {
			return
		}
		c.dbdSays.Store(&dbdSays{why: err})
		if c.dbdUp.Swap(false) || retry == outboxRetryMin {
			c.log.Warn("gdbd does not take records; they wait in the outbox", "addr", c.opts.DbdAddr, "waiting",
				c.machine.View().OutboxLen(), "err", err)
		}
		pause(ctx, retry)
		retry = min(2*retry, outboxRetryMax)
		if c.dbdUp.Load() {
			retry = outboxRetryMin
		}
	}
}

// dropRecords keeps the outbox empty in a cluster without an accounting daemon.
func (c *Controller) dropRecords(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		last := uint64(0)
		c.machine.View().Outbox(0, func(seq uint64, _ *model.Job, _ *model.Step) bool {
			last = seq
			return true
		})
		if last > 0 {
			if _, err := c.propose(ctx, &state.Trim{Seq: last}); err != nil {
				pause(ctx, time.Second)
				continue
			}
		}
		select {
		case <-changed:
			pause(ctx, time.Second)
		case <-ctx.Done():
		}
	}
}

// shipOn ships over one connection until it fails.
func (c *Controller) shipOn(ctx context.Context) error {
	m, err := c.dialDbd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // the failed call has returned its error
	sent, err := c.standOf(ctx, m)
	if err != nil {
		return err
	}
	for {
		changed := c.machine.Changed()
		v := c.machine.View()
		put := putOf(v)
		err := v.Records(sent, func(seq uint64, j *model.Job, step *model.Step) bool {
			if step != nil {
				put.Records = append(put.Records, stepRecord(v.Config(), seq, j, step))
			} else {
				put.Records = append(put.Records, c.recordOf(v, seq, j))
			}
			return len(put.Records) < outboxBatch
		})
		if err != nil {
			return err
		}
		if len(put.Records) == 0 {
			c.setDbdUp()
			select {
			case <-changed:
				pause(ctx, outboxPace)
			case <-m.Done():
				return m.Err()
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		reply, err := putRecords(ctx, m, put)
		if err != nil {
			return err
		}
		last := put.Records[len(put.Records)-1].Seq
		if reply.Seq < last {
			return errors.New("gdbd acknowledged fewer records than it was sent")
		}
		c.setDbdUp()
		c.counts.shipped.Add(int64(len(put.Records)))
		from, keep := sent, &v.Config().Params.Ship
		if sent = last; last <= put.Acked {
			continue // they were sent again
		}
		if _, err := c.propose(ctx, &state.Trim{Seq: last, Acked: true, From: from, Keep: keep.KeepRecords,
			KeepBytes: keep.KeepBytes, KeepS: keep.KeepS}); err != nil {
			return err
		}
	}
}

// putOf gives a request without records.
func putOf(v *state.View) *proto.Put {
	k := v.Shipped()
	return &proto.Put{Cluster: v.Config().Cluster, Instance: v.Instance(), Eras: v.Eras(), Acked: k.Acked,
		Dropped: k.Dropped}
}

func putRecords(ctx context.Context, m *rpc.Mux, put *proto.Put) (reply proto.PutReply, err error) {
	body, err := proto.Encode(put)
	if err != nil {
		return reply, err
	}
	f, err := m.Call(ctx, proto.KindPut, body)
	if err != nil {
		return reply, err
	}
	return reply, proto.Decode(f.Body, &reply)
}

// standOf asks gdbd for the number of the last record that it has. If it has records that these controllers have not
// made yet, their state is an old copy: an era begins, so that gdbd takes what follows for what it is, and numbers of
// jobs that it knows are not given again.
func (c *Controller) standOf(ctx context.Context, m *rpc.Mux) (uint64, error) {
	for {
		v := c.machine.View()
		asked := putOf(v)
		reply, err := putRecords(ctx, m, asked)
		if err != nil {
			return 0, err
		}
		c.dbdSays.Store(&dbdSays{notes: reply.Notes})
		v = c.machine.View()
		known := reply.LastJob < v.NextJob() || reply.LastJob >= state.MaxJobID
		if reply.Seq < v.NextRecord() && known {
			if reply.Seq < asked.Acked {
				c.log.Warn("gdbd lacks records that it had, and gets them again: it was put back to an older copy", "its last",
					reply.Seq, "acknowledged", asked.Acked, "lost for good up to", asked.Dropped)
			}
			return reply.Seq, nil
		}
		c.log.Error("gdbd has records that are newer than the controllers' state: it was put back to an older one; a new"+
			" era begins, jobs that were submitted since are unknown", "records", reply.Seq, "ours", v.NextRecord()-1,
			"last job on record", reply.LastJob)
		number := uint64(c.now().Seconds())
		if _, err := c.propose(ctx, &state.NewEra{Number: number, NextJob: reply.LastJob + 1}); err != nil {
			return 0, err
		}
	}
}

func (c *Controller) setDbdUp() {
	if !c.dbdUp.Swap(true) {
		c.log.Info("gdbd takes records", "addr", c.opts.DbdAddr)
	}
}
