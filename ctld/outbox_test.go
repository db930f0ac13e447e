package ctld

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TestHungDbd checks that a gdbd which has taken records and then does not answer, though its connection stays, counts
// as away until it answers, for alerts, triggers, pings and the choice of whom to ask.
func TestHungDbd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &Controller{log: slog.New(slog.DiscardHandler)}, &dbd{}
		d.up.Store(true)
		d.says.Store(&dbdSays{notes: []string{"its copy lags"}})
		goOn := make(chan error)
		ended := make(chan error)
		put := func() {
			_, err := c.watched(d, func() (proto.PutReply, error) { return proto.PutReply{}, <-goOn })
			ended <- err
		}
		go put()
		time.Sleep(putPatience - time.Second)
		synctest.Wait()
		if !d.up.Load() {
			t.Error("a slow answer is taken for none")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if says := d.says.Load(); d.up.Load() || says == nil || says.why == nil {
			t.Error("a gdbd that hangs counts as up")
		}
		goOn <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if says := d.says.Load(); says.why != nil || len(says.notes) != 1 {
			t.Errorf("once it answers: %v", says)
		}
		go put()
		goOn <- rpc.ErrSilent
		if err := <-ended; err == nil {
			t.Error("a failure is no answer")
		}
	})
}
