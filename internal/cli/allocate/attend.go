package allocate

import (
	"errors"
	"sync"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// attend.go ties an allocation to its command: when galloc or grun is killed, the daemon of its host notices the end of
// a connection made for this purpose, and cancels the job.

const (
	attendPace = time.Second // between two tries to tell the daemon of this host

	// presentAgain is the pause after a try to tell the leader that failed: a new leader does not wait long.
	presentAgain = time.Second
	// presentRefused is the pause after a leader has refused to hear it.
	presentRefused = 10 * time.Second
	// presentWithin bounds a try.
	presentWithin = 4 * time.Second
)

// attendance is that connection.
type attendance struct {
	mu   sync.Mutex
	c    *client.Client // nil: there is none just now
	left bool           // the allocation is no longer needed
}

// attend tells this host's daemon about the allocation before the submission is sent, so that a command that is killed
// right after it leaves nothing behind. It tells the daemon again after a restart.
func (a *Allocation) attend(request string) {
	told := make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	go func() {
		for at := &a.attendance; ; time.Sleep(attendPace) {
			c, err := a.Connect()
			if err == nil {
				err = c.Attend(&proto.AttendRequest{RequestID: request})
			}
			ours := err == nil && at.enter(c)
			tell()
			if at.isOver() {
				return
			}
			if ours {
				c.Attended()
				if at.drop() {
					return
				}
			}
			if c != nil {
				c.Close()
			}
		}
	}()
	<-told
}

// present tells the leader again and again that the command is there: with InactiveLimit the allocation of one that is
// stopped, or whose host is gone, is ended.
func (a *Allocation) present(job model.JobID) {
	if a.Keep { // it stays without its command
		return
	}
	for !a.attendance.isOver() {
		every := presentAgain
		if c, err := a.Connect(); err == nil {
			c.Within(presentWithin)
			c.WhenOld(nil) // only a leader hears it, and the user is told nothing
			var r proto.PresentReply
			var refused *rpc.Error
			err := c.Call(proto.KindPresent, &proto.PresentRequest{Job: job}, &r)
			if err == nil && r.EveryS > 0 {
				every = time.Duration(r.EveryS) * time.Second
			} else if errors.As(err, &refused) && proto.Settled(refused.Code) {
				every = presentRefused
			}
			c.Close()
		}
		time.Sleep(every)
	}
}

// enter keeps the connection, unless it is no longer needed.
func (at *attendance) enter(c *client.Client) bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.left {
		_ = c.Leave() // the process ends, which says the same but for the log
		return false
	}
	at.c = c
	return true
}

func (at *attendance) isOver() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.left
}

// drop records the end of the connection, and reports whether that is expected.
func (at *attendance) drop() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.c = nil
	return at.left
}

// leave tells the daemon that the allocation has been released.
func (at *attendance) leave() {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.left = true; at.c != nil {
		_ = at.c.Leave() // the daemon has gone, which gives nothing back
	}
}
