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

// hear begins to listen. It ends with the job, with this process, or when nobody listens any more.
func (a *Allocation) hear(id model.JobID) {
	h := &hearing{over: make(chan struct{})}
	a.heard = h
	go func() {
		rq := &proto.WaitRequest{Job: id, Hears: true}
		for !h.quiet.Load() { // else the command's step hears it, and looks at the job's end
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
			if h.quiet.Load() {
				return
			}
			rq.Heard = r.Said
			for _, line := range r.Words {
				a.say("%s", line)
			}
			if r.Done {
				close(h.over)
				return
			}
		}
	}()
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
