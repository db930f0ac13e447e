package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// counts are gdiag's data of this controller: duration and work of passes, requests by kind and user. The code that
// does the work writes them, with atomic additions and no lock; values that are read together may differ by one
// request. The state counts jobs (state.Outcomes), and reset remembers those counts.
type counts struct {
	main, backfill   passCount
	tried            atomic.Int64 // jobs that backfill looked at, sum
	triedLast        atomic.Int64
	table, tableLast atomic.Int64
	ahead, aheadAll  atomic.Int64
	refused, shipped atomic.Int64
	serving          atomic.Int64 // requests in progress

	kinds [maxCounted]rpcCount
	users sync.Map // uid -> *rpcCount
	known atomic.Int64

	since atomic.Int64
	mark  atomic.Pointer[state.Outcomes]
}

const (
	maxCounted   = 256  // kinds of requests
	maxUsersSeen = 4096 // users that are counted separately; all others count together as nobody
)

type passCount struct {
	n, last, most, sum, depthLast, depth, queueLast, queue, at atomic.Int64
}

type rpcCount struct {
	n, us atomic.Int64
	name  atomic.Pointer[string]
}

func (p *passCount) add(us int64, depth, queue int, at model.Time) {
	p.n.Add(1)
	p.last.Store(us)
	p.most.Store(max(us, p.most.Load())) // only one goroutine plans
	p.sum.Add(us)
	p.depthLast.Store(int64(depth))
	p.depth.Add(int64(depth))
	p.queueLast.Store(int64(queue))
	p.queue.Add(int64(queue))
	p.at.Store(int64(at))
}

func (p *passCount) reply() proto.DiagPass {
	return proto.DiagPass{Count: p.n.Load(), LastUS: p.last.Load(), MaxUS: p.most.Load(), SumUS: p.sum.Load(),
		DepthLast: p.depthLast.Load(),
		DepthSum:  p.depth.Load(), QueueLast: p.queueLast.Load(), QueueSum: p.queue.Load(), At: model.Time(p.at.Load())}
}

func (p *passCount) reset() {
	for _, a := range []*atomic.Int64{&p.n, &p.last, &p.most, &p.sum, &p.depthLast, &p.depth, &p.queueLast,
		&p.queue, &p.at} {
		a.Store(0)
	}
}

// planned counts one pass. Here, starting jobs in order and backfill are one walk; a pass counts as backfill, with all
// of its time, if it looked at jobs behind one that does not fit.
func (c *counts) planned(took time.Duration, p sched.Pass, now model.Time) {
	us := took.Microseconds()
	c.main.add(us, p.Seen-p.Behind, p.Queue, now)
	if p.Behind == 0 && p.Table == 0 {
		return
	}
	c.backfill.add(us, p.Behind, p.Queue, now)
	c.tried.Add(int64(p.Behind))
	c.triedLast.Store(int64(p.Behind))
	c.table.Add(int64(p.Table))
	c.tableLast.Store(int64(p.Table))
	c.ahead.Add(int64(p.Ahead))
	c.aheadAll.Add(int64(p.Ahead))
}

// answered counts one request.
func (c *Controller) answered(kind uint16, who *caller, took time.Duration) {
	c.counts.served(kind, who, took)
	if proto.RequestOf(kind).WaitS == 0 {
		c.waits.Answered(took)
	}
}

// served counts one request.
func (c *counts) served(kind uint16, who *caller, took time.Duration) {
	if proto.RequestOf(kind).WaitS > 0 {
		took = 0 // the time is spent waiting
	}
	us := took.Microseconds()
	if kind < maxCounted {
		c.kinds[kind].n.Add(1)
		c.kinds[kind].us.Add(us)
	}
	u, ok := c.users.Load(who.UID)
	if !ok {
		uid, name := who.UID, who.User
		if c.known.Load() >= maxUsersSeen {
			uid, name = 65534, "nobody"
		}
		n := new(rpcCount)
		n.name.Store(&name)
		if u, ok = c.users.LoadOrStore(uid, n); !ok {
			c.known.Add(1)
		}
	}
	r := u.(*rpcCount)
	r.n.Add(1)
	r.us.Add(us)
}

// reset sets all counts to 0, except those that always count from the beginning.
func (c *counts) reset(v *state.View, now model.Time) {
	t := v.Outcomes()
	c.mark.Store(&t)
	c.since.Store(int64(now))
	c.main.reset()
	c.backfill.reset()
	for _, a := range []*atomic.Int64{&c.tried, &c.triedLast, &c.table, &c.tableLast, &c.ahead, &c.refused, &c.shipped} {
		a.Store(0)
	}
	for i := range c.kinds {
		c.kinds[i].n.Store(0)
		c.kinds[i].us.Store(0)
	}
	c.users.Clear()
	c.known.Store(0)
}

// rpcs lists the requests by type and by user, the most frequent first.
func (c *counts) rpcs() (types, users []proto.DiagRPC) {
	for k := range c.kinds {
		if n := c.kinds[k].n.Load(); n > 0 {
			row := proto.RequestOf(uint16(k))
			types = append(types, proto.DiagRPC{Name: row.Name, ID: row.Number, Count: n, SumUS: c.kinds[k].us.Load()})
		}
	}
	c.users.Range(func(uid, x any) bool {
		u := x.(*rpcCount)
		users = append(users, proto.DiagRPC{Name: *u.name.Load(), ID: uid.(uint32), Count: u.n.Load(), SumUS: u.us.Load()})
		return true
	})
	for _, list := range [][]proto.DiagRPC{types, users} {
		slices.SortFunc(list, func(a, b proto.DiagRPC) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
		})
	}
	return types, users
}

// diag answers gdiag.
func (c *Controller) diag(_ context.Context, who *caller, _ *proto.Empty) (*proto.DiagReply, error) {
	v := c.machine.View()
	d := c.diagOf(v)
	sees := c.sees(v, who)
	shown := sees.config(v.Config()).Partitions
	d.Backlogs = slices.DeleteFunc(d.Backlogs, func(b proto.DiagBacklog) bool {
		return !slices.ContainsFunc(shown, func(p *model.Partition) bool { return p.Name == b.Partition })
	})
	if sees.hides("users") || sees.hides("jobs") {
		d.ByUser = slices.DeleteFunc(d.ByUser, func(u proto.DiagRPC) bool { return u.ID != who.UID })
		d.Counters = slices.DeleteFunc(d.Counters, func(kv model.KV) bool { return strings.HasPrefix(kv.Key, slowedKey) })
	}
	return d, nil
}

// slowedKey begins the keys of counters that name a user.
const slowedKey = "slowed_"

// diagReset answers with the counts and resets them.
func (c *Controller) diagReset(_ context.Context, who *caller, _ *proto.Empty) (*proto.DiagReply, error) {
	v := c.machine.View()
	d := c.diagOf(v)
	c.counts.reset(v, c.now())
	c.readers.limits.Forget()
	return d, nil
}

// diagOf gives the data of gdiag.
func (c *Controller) diagOf(v *state.View) *proto.DiagReply {
	n := &c.counts
	t := v.Outcomes()
	if m := n.mark.Load(); m != nil {
		t = state.Outcomes{Submitted: t.Submitted - m.Submitted, Started: t.Started - m.Started,
			Completed: t.Completed - m.Completed,
			Canceled:  t.Canceled - m.Canceled, Failed: t.Failed - m.Failed}
	}
	d := &proto.DiagReply{Now: c.now(), Since: model.Time(n.since.Load()), Threads: n.serving.Load(),
		DbdQueue:  int64(v.OutboxLen()),
		RaftQueue: int64(c.store.Stats().Queued), Submitted: t.Submitted, Started: t.Started, Completed: t.Completed,
		Canceled: t.Canceled,
		Failed:   t.Failed, Main: n.main.reply(), Backfill: n.backfill.reply(), Backfilled: n.ahead.Load(),
		BackfilledAll: n.aheadAll.Load(),
		TryDepthSum:   n.tried.Load(), TryDepthLast: n.triedLast.Load(), TableLast: n.tableLast.Load(),
		TableSum: n.table.Load(),
		Running:  int64(v.Active())}
	v.Moving(func(j *model.Job) bool {
		if c.nodes.session(j.Run.Alloc.Nodes[0].Node) == nil {
			d.AgentQueue++
		}
		return true
	})
	v.Jobs(func(j *model.Job) bool {
		if j.State == model.Pending {
			d.Pending += max(1, int64(j.Tasks.Count()))
		}
		return true
	})
	d.ByType, d.ByUser = n.rpcs()
	for i := range d.ByUser {
		u := &d.ByUser[i]
		for _, purse := range []string{payerOf(u.ID), payerOf(u.ID) + smallRequests} {
			n, sum := c.readers.limits.Delayed(purse)
			u.Slowed, u.SlowedMS = u.Slowed+n, u.SlowedMS+sum.Milliseconds()
		}
	}
	d.Counters = c.ownCounters(v)
	d.Backlogs = c.backlogNow()
	for _, u := range d.ByUser {
		if u.Slowed > 0 {
			d.Counters = append(d.Counters, model.KV{Key: slowedKey + u.Name, Value: fmt.Sprintf("%d requests, %d ms", u.Slowed,
				u.SlowedMS)})
		}
	}
	return d
}

// ownCounters are counters that sdiag does not have.
func (c *Controller) ownCounters(v *state.View) []model.KV {
	var out []model.KV
	add := func(key string, value any) { out = append(out, model.KV{Key: key, Value: fmt.Sprint(value)}) }
	st := c.store.Stats()
	asked, made := c.readers.same.Counts()
	add("job_records", v.JobCount())
	add("lists_asked", asked)
	add("lists_made", made)
	add("starts_refused", c.counts.refused.Load())
	add("records_shipped", c.counts.shipped.Load())
	add("log_entries", st.Entries)
	add("log_commands", st.Commands)
	add("log_last_index", st.LastIndex)
	add("log_snapshot_index", st.SnapshotIndex)
	return out
}
