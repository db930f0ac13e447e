package store

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// quietPeriod is the time within which a message of raft isn't repeated: raft logs every failed call to a dead peer,
// many per second.
const quietPeriod = 10 * time.Second

// maxQuiet bounds the messages remembered for that; raft has fewer.
const maxQuiet = 128

// logger passes raft's log lines to slog: details at debug, messages for operators at info and warn. Raft's errors are
// mostly about the network (a peer is down), so they become warnings; logFile reports a log that can't be written
// as an error.
type logger struct {
	out  *slog.Logger
	name string
	args []any
	said *said
}

type said struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// expected are raft's warnings that belong to a normal start, end or change of leader.
var expected = map[string]slog.Level{
	"heartbeat timeout reached, starting election":               slog.LevelDebug,
	"Election timeout reached, restarting election":              slog.LevelInfo,
	"rejecting vote request since we have a leader":              slog.LevelDebug,
	"rejecting pre-vote request since we have a leader":          slog.LevelDebug,
	"rejecting vote request since our last index is greater":     slog.LevelDebug,
	"rejecting pre-vote request since our last index is greater": slog.LevelDebug,
	"no known peers, aborting election":                          slog.LevelDebug, // it is joining
	"duplicate requestVote from":                                 slog.LevelDebug,
	"peer has newer term, stopping replication":                  slog.LevelInfo,
	"appendEntries rejected, sending older logs":                 slog.LevelInfo,
	"failed to get previous log":                                 slog.LevelInfo,
	"failed to get log":                                          slog.LevelInfo, // compacted: a snapshot is sent instead
	"found temporary snapshot":                                   slog.LevelDebug,
	"skipping application of old log":                            slog.LevelDebug,
	"election won":                                               slog.LevelInfo,
	"entering follower state":                                    slog.LevelDebug,
	"snapshot complete up to":                                    slog.LevelInfo,
}

func newLogger(out *slog.Logger) *logger {
	return &logger{out: out, name: "raft", said: &said{last: map[string]time.Time{}}}
}

func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	at := slog.LevelDebug
	if level >= hclog.Warn {
		at = slog.LevelWarn
	}
	if e, ok := expected[msg]; ok {
		at = e
	}
	if level <= hclog.Trace || !l.out.Enabled(context.Background(), at) {
		return
	}
	if at >= slog.LevelInfo && !l.said.again(msg) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if format, ok := f[0].(string); ok {
				args[i] = fmt.Sprintf(format, f[1:]...)
			}
		}
	}
	l.out.Log(context.Background(), at, l.name+": "+msg, append(l.args[:len(l.args):len(l.args)], args...)...)
}

// again reports whether msg wasn't logged within quietPeriod.
func (s *said) again(msg string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if t, ok := s.last[msg]; ok && now.Sub(t) < quietPeriod {
		return false
	}
	if len(s.last) >= maxQuiet {
		clear(s.last)
	}
	s.last[msg] = now
	return true
}

func (l *logger) Trace(string, ...any)          {}
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *logger) IsTrace() bool { return false }
func (l *logger) IsDebug() bool { return l.out.Enabled(context.Background(), slog.LevelDebug) }
func (l *logger) IsInfo() bool  { return l.IsDebug() }
func (l *logger) IsWarn() bool  { return l.out.Enabled(context.Background(), slog.LevelWarn) }
func (l *logger) IsError() bool { return l.IsWarn() }

func (l *logger) ImpliedArgs() []any { return l.args }
func (l *logger) Name() string       { return l.name }

func (l *logger) With(args ...any) hclog.Logger {
	return &logger{l.out, l.name, append(l.args[:len(l.args):len(l.args)], args...), l.said}
}

func (l *logger) Named(name string) hclog.Logger {
	return &logger{l.out, l.name + "." + name, l.args, l.said}
}

func (l *logger) ResetNamed(name string) hclog.Logger { return &logger{l.out, name, l.args, l.said} }

// SetLevel does nothing: slog's handler decides.
func (l *logger) SetLevel(hclog.Level) {}

func (l *logger) GetLevel() hclog.Level {
	if l.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

func (l *logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.out.Handler(), slog.LevelDebug)
}

func (l *logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(nil).Writer()
}
