package page

import (
	"fmt"
	"net/http"
	"time"
)

// live.go tells pages when to look again: a line whenever the facts have changed, at most one each second. It carries
// nothing but that, so it needs no rights.

// Limits of streams.
const (
	maxStreams   = 1000
	maxStreamsOf = 20 // of one user
	livePace     = time.Second
	liveBeat     = 20 * time.Second // a line all the same, so that proxies keep the connection
	liveWrite    = 10 * time.Second
)

// live is the stream. It ends with the request's time; a browser begins it anew by itself.
func (q *request) live() {
	if !q.p.open.Take(q.who.UID, maxStreamsOf) {
		q.w.Header().Set("Retry-After", "60")
		http.Error(q.w, "too many pages listen; this one looks again by itself", http.StatusServiceUnavailable)
		return
	}
	defer q.p.open.Leave(q.who.UID)
	h := q.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	c := http.NewResponseController(q.w)
	_ = c.SetReadDeadline(time.Time{}) // a stream without deadlines has its connection's
	tick := time.NewTicker(livePace)
	defer tick.Stop()
	var last any
	for sent := time.Now(); ; {
		text := ""
		if now := q.p.o.Cluster.Facts().Stamp; now != last {
			last, text = now, "event: changed\ndata: 1\n\n"
		} else if time.Since(sent) > liveBeat {
			text = ": still here\n\n"
		}
		if text != "" {
			sent = time.Now()
			_ = c.SetWriteDeadline(sent.Add(liveWrite)) // likewise
			if _, err := fmt.Fprint(q.w, text); err != nil || c.Flush() != nil {
				return // who has gone needs no answer
			}
		}
		select {
		case <-q.ctx.Done():
			return
		case <-tick.C:
		}
	}
}
