package quietlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// logged feeds messages with times of their own and gives the lines of the log.
type logged struct {
	t   *testing.T
	buf bytes.Buffer
	h   *Handler
	now time.Time
}

func newLogged(t *testing.T) *logged {
	l := &logged{t: t, now: time.Unix(1_700_000_000, 0)}
	l.h = New(slog.NewTextHandler(&l.buf, nil))
	return l
}

func (l *logged) say(level slog.Level, msg string, args ...any) {
	l.t.Helper()
	r := slog.NewRecord(l.now, level, msg, 0)
	r.Add(args...)
	if err := l.h.Handle(context.Background(), r); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) lines() int { return strings.Count(l.buf.String(), "\n") }

// TestRepeatedErrorsAreCounted: 791 identical errors within ten seconds are one line, and the next one has the count.
func TestRepeatedErrorsAreCounted(t *testing.T) {
	l := newLogged(t)
	for i := range 791 {
		l.say(slog.LevelError, "can't accept a connection",
			"err", fmt.Sprintf("accept4 127.0.0.1:%d: too many open files", i))
		l.now = l.now.Add(Period / 800)
	}
	if l.lines() != 1 {
		t.Fatalf("%d lines:\n%s", l.lines(), &l.buf)
	}
	l.now = l.now.Add(Period)
	l.say(slog.LevelError, "can't accept a connection", "err", "accept4 127.0.0.1:9: too many open files")
	if l.lines() != 2 || !strings.Contains(l.buf.String(), moreKey+"=790") {
		t.Errorf("the count is missing:\n%s", &l.buf)
	}
}

// TestOtherMessages: what differs in kind, node or level, and all that is no warning, is logged as it comes.
func TestOtherMessages(t *testing.T) {
	l := newLogged(t)
	for range 3 {
		l.say(slog.LevelWarn, "node is silent", "node", "n1")
		l.say(slog.LevelWarn, "node is silent", "node", "n2")
		l.say(slog.LevelError, "node is silent", "node", "n1")
		l.say(slog.LevelWarn, "launch failed", "job", 12, "node", "n1")
		l.say(slog.LevelWarn, "launch failed", "job", 13, "node", "n1")
		l.say(slog.LevelInfo, "node registered", "node", "n1")
	}
	if l.lines() != 5+3 {
		t.Errorf("%d lines:\n%s", l.lines(), &l.buf)
	}
	// A count is not lost when the message does not come again: the next of another kind brings it.
	l.now = l.now.Add(Period)
	l.buf.Reset()
	l.say(slog.LevelWarn, "something else")
	if l.lines() != 6 || strings.Count(l.buf.String(), moreKey+"=1") != 5 {
		t.Errorf("%d lines:\n%s", l.lines(), &l.buf)
	}
}

// TestMemoryIsBounded: a flood of different messages is logged whole and not remembered.
func TestMemoryIsBounded(t *testing.T) {
	l := newLogged(t)
	for i := range 10 * maxKinds {
		l.say(slog.LevelError, "failed", "job", i, "text", strings.Repeat("x", 10_000))
	}
	if n := len(l.h.said.kinds); n > maxKinds {
		t.Errorf("%d kinds are remembered", n)
	}
	if l.lines() != 10*maxKinds {
		t.Errorf("%d lines", l.lines())
	}
}

// TestWith: loggers made of one with attributes count on their own.
func TestWith(t *testing.T) {
	l := newLogged(t)
	log := slog.New(l.h)
	for range 3 {
		log.With("daemon", "a").Error("broken")
		log.With("daemon", "b").Error("broken")
		log.WithGroup("g").Error("broken")
	}
	if l.lines() != 3 {
		t.Errorf("%d lines:\n%s", l.lines(), &l.buf)
	}
}
