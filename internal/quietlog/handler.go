package quietlog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// Period is how long a repeated message is counted before it is logged again.
	Period = 10 * time.Second
	// maxKinds bounds the messages that are remembered. If there are more, the count of the one that was logged longest
	// ago is logged, and it is forgotten.
	maxKinds = 256
	// maxKey bounds the text by which a message is recognized, bytes.
	maxKey = 256
	// moreKey is the attribute with the count.
	moreKey = "more_like_this"
)

// Handler passes records on, repeated ones once in a Period.
type Handler struct {
	next slog.Handler
	at   string // attributes and groups of With, as text
	said *said
}

// said is shared by a handler and those made of it.
type said struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

// kind is a message that was logged lately.
type kind struct {
	logged time.Time
	more   int
	last   slog.Record
	next   slog.Handler
}

// New gives a handler in front of next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, said: &said{kinds: map[string]*kind{}}}
}

// Enabled asks the next handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs gives a handler that adds attributes.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	at := h.at
	for _, a := range attrs {
		at += "\x00" + a.String()
	}
	return &Handler{h.next.WithAttrs(attrs), at, h.said}
}

// WithGroup gives a handler that groups what follows.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.at + "\x00" + name + "{", h.said}
}

// Handle logs a record, or counts it if it was logged within Period. The time of the record counts, not the clock.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	key := h.key(&r)
	h.said.mu.Lock()
	k, again := h.said.kinds[key]
	if again && r.Time.Sub(k.logged) < Period {
		k.more++
		k.last, k.next = r.Clone(), h.next
		h.said.mu.Unlock()
		return nil
	}
	var late []*kind
	more := 0
	if again {
		more, k.more = k.more, 0
		k.logged = r.Time
	} else {
		late = h.said.settle(r.Time)
		h.said.kinds[key] = &kind{logged: r.Time}
	}
	h.said.mu.Unlock()
	for _, k := range late {
		last := k.last
		last.AddAttrs(slog.Int(moreKey, k.more-1))
		if err := k.next.Handle(ctx, last); err != nil {
			return err
		}
	}
	if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int(moreKey, more))
	}
	return h.next.Handle(ctx, r)
}

// settle forgets what was logged longer than a Period ago, and the oldest if there is no room for another. It gives
// those of which repetitions are still to be logged.
func (s *said) settle(now time.Time) (late []*kind) {
	var oldest string
	drop := func(key string) {
		if k := s.kinds[key]; k.more > 0 {
			late = append(late, k)
		}
		delete(s.kinds, key)
	}
	for key, k := range s.kinds {
		if now.Sub(k.logged) >= Period {
			drop(key)
		} else if oldest == "" || k.logged.Before(s.kinds[oldest].logged) {
			oldest = key
		}
	}
	if len(s.kinds) >= maxKinds {
		drop(oldest)
	}
	return late
}

// key gives the text by which a record is recognized: level, message, attributes. Numbers in it don't count, because
// ports, times and counts differ between messages about the same thing.
func (h *Handler) key(r *slog.Record) string {
	var b strings.Builder
	put := func(text string) {
		for i := 0; i < len(text) && b.Len() < maxKey; i++ {
			if c := text[i]; c < '0' || c > '9' {
				b.WriteByte(c)
			}
		}
		b.WriteByte(0)
	}
	b.WriteString(r.Level.String())
	put(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		put(a.Key)
		switch a.Key {
		case "node", "job", "user", "name", "attempt": // these say what it is about
			b.WriteString(a.Value.String())
		default:
			put(a.Value.String())
		}
		return b.Len() < maxKey
	})
	b.WriteString(h.at)
	return b.String()
}
