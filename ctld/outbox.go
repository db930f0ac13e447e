package ctld

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// ship sends accounting records to each gdbd in the order of the outbox, and trims those that one has acknowledged. A
// gdbd ignores records that it has already, so a batch may be sent again after any failure.
func (c *Controller) ship(ctx context.Context) {
	if len(c.dbds) == 0 {
		c.dropRecords(ctx)
		return
	}
	var each sync.WaitGroup
	for _, d := range c.dbds {
		each.Go(func() { c.shipTo(ctx, d) })
	}
	each.Wait()
}

// shipTo sends accounting records to one gdbd until ctx ends.
func (c *Controller) shipTo(ctx context.Context, d *dbd) {
	d.behind.Store(behindUnknown)
	retry := outboxRetryMin
	for ctx.Err() == nil {
		err := c.shipOn(ctx, d)
		if ctx.Err() != nil {
			return
		}
		d.says.Store(&dbdSays{why: err})
		if d.up.Swap(false) || retry == outboxRetryMin {
			c.log.Warn("gdbd does not take records; they wait in the outbox", "addr", d.addr, "waiting",
				c.machine.View().OutboxLen(), "err", err)
		}
		pause(ctx, retry)
		retry = min(2*retry, outboxRetryMax)
		if d.up.Load() {
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
func (c *Controller) shipOn(ctx context.Context, d *dbd) error {
	m, err := c.dialDbd(ctx, d)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // the failed call has returned its error
	sent, err := c.standOf(ctx, d, m)
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
		d.lags(v, sent)
		if len(put.Records) == 0 {
			c.setUp(d)
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
		c.setUp(d)
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
func (c *Controller) standOf(ctx context.Context, d *dbd, m *rpc.Mux) (uint64, error) {
	for {
		v := c.machine.View()
		asked := putOf(v)
		reply, err := putRecords(ctx, m, asked)
		if err != nil {
			return 0, err
		}
		d.says.Store(&dbdSays{notes: reply.Notes})
		v = c.machine.View()
		known := reply.LastJob < v.NextJob() || reply.LastJob >= state.MaxJobID
		if reply.Seq < v.NextRecord() && known {
			switch {
			case reply.Seq >= asked.Acked:
			case len(c.dbds) > 1:
				c.log.Info("gdbd gets the records that it lacks", "addr", d.addr, "its last", reply.Seq, "acknowledged",
					asked.Acked)
			default:
				c.log.Warn("gdbd lacks records that it had, and gets them again: it was put back to an older copy", "its last",
					reply.Seq, "acknowledged", asked.Acked, "lost for good up to", asked.Dropped)
			}
			return reply.Seq, nil
		}
		if err := c.beginEra(ctx, asked.Eras, d, &reply); err != nil {
			return 0, err
		}
	}
}

// beginEra begins an era, unless one has begun since gdbd was told of eras: the other gdbd may have had newer records
// too.
func (c *Controller) beginEra(ctx context.Context, told []model.Era, d *dbd, has *proto.PutReply) error {
	c.beginning.Lock()
	defer c.beginning.Unlock()
	v := c.machine.View()
	if !slices.Equal(told, v.Eras()) {
		return nil
	}
	c.log.Error("gdbd has records that are newer than the controllers' state: it was put back to an older one; a new"+
		" era begins, jobs that were submitted since are unknown", "addr", d.addr, "records", has.Seq, "ours",
		v.NextRecord()-1, "last job on record", has.LastJob)
	_, err := c.propose(ctx, &state.NewEra{Number: uint64(c.now().Seconds()), NextJob: has.LastJob + 1})
	return err
}

func (c *Controller) setUp(d *dbd) {
	if !d.up.Swap(true) {
		c.log.Info("gdbd takes records", "addr", d.addr)
	}
}
