package noded

import (
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The node ignores an order that answers a message older than SlurmdTimeout: it may have been given up since, and the
// job run elsewhere. It registers again instead, and ends the jobs that it then has to forget.
func TestLateOrders(t *testing.T) {
	c := newCluster(t)
	old, late, fresh := c.job(1, "sleep 600"), c.job(2, "true"), c.job(3, "true")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{old}})
	c.ctl.waitStarted(old)
	c.ctl.set(func(f *fakeCtld) {
		f.welcome = func(h *proto.Hello, w *proto.Welcome) { w.TimeoutS, f.beats = 30, 0 }
		_ = f.conn.Close() // the node registers again, and learns of the time limit
	})
	c.ctl.waitNode(2)
	until(t, "a heartbeat that orders may answer", func() bool {
		return c.ctl.is(func(f *fakeCtld) bool { return f.beats > 0 })
	})
	c.ctl.set(func(f *fakeCtld) {
		f.welcome = func(h *proto.Hello, w *proto.Welcome) { w.Forget = h.Known }
	})
	now := model.Time(time.Now().UnixMilli())
	c.ctl.send(&proto.Orders{Heard: now - 31_000, Launch: []*proto.Launch{late}})
	c.ctl.waitNode(3)
	c.ctl.send(&proto.Orders{Heard: now, Launch: []*proto.Launch{fresh}})
	c.ctl.waitEnded(fresh)
	if c.ctl.count(late, proto.ReportStarted)+c.ctl.count(late, proto.ReportEnded) != 0 {
		t.Error("an order was done that had been under way for longer than SlurmdTimeout")
	}
	until(t, "a heartbeat says that nothing is left of what was forgotten", func() bool {
		return c.ctl.is(func(f *fakeCtld) bool { return len(f.beat.Leaving) == 0 && f.beat.Running == 0 })
	})
	if c.ctl.count(old, proto.ReportEnded) != 0 {
		t.Error("the end of a forgotten attempt was reported")
	}
}
