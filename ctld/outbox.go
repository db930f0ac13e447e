package ctld

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/ctld/asked"
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

const notTaken = "gdbd does not take records; they wait in the outbox" // in the log

// shipTo sends accounting records to one gdbd until ctx ends.
func (c *Controller) shipTo(ctx context.Context, d *dbd) {
	d.has.Store(hasUnknown)
	retry := outboxRetryMin
	for ctx.Err() == nil {
		err := c.shipOn(ctx, d)
		if ctx.Err() != nil {
			return
		}
		d.says.Store(&dbdSays{why: err})
		if d.up.Swap(false) || retry == outboxRetryMin {
			c.log.Warn(notTaken, "addr", d.addr, "waiting",
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
		c.machine.View().Outbox(0, func(e state.Event) bool {
			last = e.Seq
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

// errUnencoded says that records can't be sent at all: one of them is over a limit.
var errUnencoded = errors.New("accounting records can't be encoded")

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
	questions := asked.Hear(ctx, m, func() uint64 { return c.machine.View().NextRecord() - 1 })
	defer questions.Close()
	var begun time.Time // the latest Put
	for batch := outboxBatch; ; {
		questions.Look()
		changed := c.machine.Changed()
		v := c.machine.View()
		put := c.putOf(v)
		bytes := 0
		err := v.Records(sent, func(e state.Event) bool {
			var r *model.Record
			switch {
			case e.Audit != nil:
				r = &model.Record{Seq: e.Seq, Cluster: v.Config().Cluster, Audit: e.Audit}
			case e.Step != nil:
				r = stepRecord(v.Config(), e.Seq, e.Job, e.Step)
			default:
				r = c.recordOf(v, e.Seq, e.Job)
			}
			put.Records = append(put.Records, r)
			bytes += recordBytes(r)
			return len(put.Records) < batch && bytes < outboxBytes
		})
		if err != nil {
			return err
		}
		d.has.Store(int64(sent))
		if len(put.Records) == 0 {
			c.setUp(d)
			questions.End()
			if err := questions.Wait(ctx, changed, outboxPace, begun); err != nil {
				return err
			}
			continue
		}
		begun = time.Now()
		reply, err := c.watched(d, func() (proto.PutReply, error) { return d.put(ctx, m, put) })
		switch {
		case !refusedRecords(err):
			if err != nil {
				return err
			}
			batch = min(2*batch, outboxBatch)
		case len(put.Records) > 1: // it is one of them
			batch = len(put.Records) / 2
			continue
		default:
			why := err
			if _, err := c.watched(d, func() (proto.PutReply, error) { return d.put(ctx, m, c.putOf(v)) }); err != nil {
				return err // it is not the record
			}
			c.putAside(put.Records[0], why)
			reply.Seq, batch = put.Records[0].Seq, outboxBatch // as if it had taken it
		}
		last := put.Records[len(put.Records)-1].Seq
		if reply.Seq < last {
			return errors.New("gdbd acknowledged fewer records than it was sent")
		}
		c.setUp(d)
		c.counts.shipped.Add(int64(len(put.Records)))
		c.waits.Shipped(len(put.Records), time.Since(begun))
		questions.Sent(last)
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

// refusedRecords reports whether records were refused for what they are: sending them again does not help.
func refusedRecords(err error) bool {
	var e *rpc.Error
	return errors.Is(err, errUnencoded) ||
		errors.As(err, &e) && (e.Code == proto.CodeBadRequest || e.Code == rpc.CodeTooLarge)
}

// putAside keeps a record that gdbd does not take in a file: it must not hold up the others. If there is no room for
// it, or the disk fails, only the log has it.
func (c *Controller) putAside(r *model.Record, why error) {
	data, err := json.Marshal(r)
	if err == nil {
		err = c.dead.Put(fmt.Sprintf("record-%d-job-%d", r.Seq, r.Job), data)
	}
	c.log.Error("gdbd refuses an accounting record; it is put aside, and the others go on", "record", r.Seq, "job", r.Job,
		"attempt", r.Attempt, "user", r.User, "state", r.State.String(), "why", why, "dir", c.dead.Dir, "err", err)
}

// recordBytes is about the length of a record, bytes.
func recordBytes(r *model.Record) int {
	const fixed, perNode, perGPU = 512, 128, 64
	n := fixed + len(r.SubmitLine) + len(r.Nodes) + len(r.Comment) + len(r.AdminComment) + len(r.WorkDir) +
		len(r.Command) + len(r.StdOut) + len(r.StdErr) + len(r.TaskText) + len(r.Why) + len(r.Constraints)
	if r.Audit != nil {
		n += len(r.Audit.Text) + len(r.Audit.Nodes)
		if r.Audit.Noted != nil {
			for _, kv := range r.Audit.Noted.Set {
				n += len(kv.Value)
			}
		}
	}
	uses := []*model.Usage{r.Exit.Use}
	if r.Step != nil {
		uses = append(uses, r.Step.Exit.Use)
	}
	for _, u := range uses {
		if u == nil {
			continue
		}
		for i := range u.Nodes {
			n += perNode + perGPU*len(u.Nodes[i].GPUs)
		}
	}
	return n
}

// putOf gives a request without records.
func (c *Controller) putOf(v *state.View) *proto.Put {
	k := v.Shipped()
	return &proto.Put{Cluster: v.Config().Cluster, Instance: v.Instance(), Eras: v.Eras(), Acked: k.Acked,
		Dropped: k.Dropped, Now: c.now()}
}

func (d *dbd) put(ctx context.Context, m *rpc.Mux, put *proto.Put) (reply proto.PutReply, err error) {
	body, err := proto.Encode(put)
	if err != nil {
		return reply, fmt.Errorf("%w: %w", errUnencoded, err)
	}
	begun := time.Now()
	f, err := m.Call(ctx, proto.KindPut, body)
	if err != nil {
		return reply, err
	}
	d.took.Store(max(1, time.Since(begun).Microseconds()))
	return reply, proto.Decode(f.Body, &reply)
}

// watched waits for the answer to a Put. A gdbd whose disk hangs acknowledges beats all the same, so its connection
// stays: after putPatience it counts as away until it answers. It gets no second Put meanwhile, which would only wait
// behind the first.
func (c *Controller) watched(d *dbd, put func() (proto.PutReply, error)) (proto.PutReply, error) {
	type result struct {
		reply proto.PutReply
		err   error
	}
	answered := make(chan result, 1)
	go func() { // ends with ctx or the connection
		reply, err := put()
		answered <- result{reply, err}
	}()
	late := time.NewTimer(putPatience)
	defer late.Stop()
	select {
	case r := <-answered:
		return r.reply, r.err
	case <-late.C:
	}
	was := d.says.Load()
	why := fmt.Errorf("gdbd is connected, and has not answered for %s: its disk or its database hangs", putPatience)
	d.says.Store(&dbdSays{why: why})
	if d.up.Swap(false) {
		c.log.Warn(notTaken, "addr", d.addr, "err", why)
	}
	r := <-answered
	if r.err == nil || refusedRecords(r.err) {
		d.says.Store(was)
	}
	return r.reply, r.err
}

// standOf asks gdbd for the number of the last record that it has. If it has records that these controllers have not
// made yet, their state is an old copy: an era begins, so that gdbd takes what follows for what it is, and numbers of
// jobs that it knows are not given again.
func (c *Controller) standOf(ctx context.Context, d *dbd, m *rpc.Mux) (uint64, error) {
	for {
		v := c.machine.View()
		asked := c.putOf(v)
		reply, err := c.watched(d, func() (proto.PutReply, error) { return d.put(ctx, m, asked) })
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
