package allocate

import (
	"sync/atomic"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// hear.go asks a controller for the end of an allocation, and for what is said to its command meanwhile (gcontrol
// notify), also while it waits for its resources.

// hearing is that.
type hearing struct {
	over  chan struct{} // closed when the job has ended
	quiet atomic.Bool   // what is said comes by another way: to the command's step
}

// hear begins to listen, and says when. It ends with the job, or with this process.
func (a *Allocation) hear(id model.JobID) time.Time {
	h := &hearing{over: make(chan struct{})}
	a.heard = h
	go func() {
		rq := &proto.WaitRequest{Job: id, Hears: true}
		for {
			var r proto.WaitReply
			c, err := a.Connect()
			if err == nil {
				err = c.Call(proto.KindWait, rq, &r)
				c.Close()
			}
			if err != nil { // no controller leads just now
				time.Sleep(askSlow)
				continue
			}
			if rq.Heard = r.Said; !h.quiet.Load() {
				for _, line := range r.Words {
					a.say("%s", line)
				}
			}
			if r.Done {
				close(h.over)
				return
			}
		}
	}()
	return time.Now()
}

// Watch returns true when the job has ended, false when done is closed before.
func (a *Allocation) Watch(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	case <-a.heard.over:
		return true
	}
}
