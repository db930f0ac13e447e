package allocate

import (
	"sync"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/proto"
)

// attend.go keeps an allocation bound to the command that has it: when galloc or grun is killed, the daemon of its
// host, which sees the end of a connection that is there for nothing else, gives the allocation back.

const attendPace = time.Second // between two tries to tell the daemon of this host

// attendance is that connection.
type attendance struct {
	mu   sync.Mutex
	c    *client.Client // nil: there is none just now
	left bool           // the allocation is no longer needed
}

// attend tells this host's daemon of the allocation that a submission makes, before it is sent: a command that is
// killed right after it has submitted leaves nothing behind. It tells it again when the daemon has been restarted.
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

// enter notes the connection, unless it is no longer needed.
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

// drop notes that the connection has ended, and reports whether that is right.
func (at *attendance) drop() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.c = nil
	return at.left
}

// leave says that the allocation has been given back.
func (at *attendance) leave() {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.left = true; at.c != nil {
		_ = at.c.Leave() // the daemon has gone, which gives nothing back
	}
}
