package logfile

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"gbatch/internal/quietlog"
)

// Levels are Slurm's, by number.
var Levels = []string{"quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}

// Formats are how a line is written: key=value, or an object of JSON for programs that collect logs.
var Formats = []string{"text", "json"}

// Handler writes lines of a format to w, and counts repeated errors.
func Handler(w io.Writer, format string, level slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return quietlog.New(slog.NewJSONHandler(w, o))
	}
	return quietlog.New(slog.NewTextHandler(w, o))
}

// LevelName gives the name of a level that is written as a name or a number from 0 to 9.
func LevelName(text string) (string, error) {
	low := strings.ToLower(text)
	if n, err := strconv.Atoi(low); err == nil && n >= 0 && n < len(Levels) {
		return Levels[n], nil
	}
	for _, l := range Levels {
		if l == low || low == "debug1" && l == "debug" {
			return l, nil
		}
	}
	return "", fmt.Errorf("'%s' is not a level; write %s, or a number from 0 to %d", text, strings.Join(Levels, ", "),
		len(Levels)-1)
}

// levelOf gives the least level that is logged.
func levelOf(name string) slog.Level {
	switch {
	case name == "quiet":
		return slog.LevelError + 100
	case name == "fatal", name == "error":
		return slog.LevelError
	case name == "verbose", strings.HasPrefix(name, "debug"):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Log is one daemon's log.
type Log struct {
	path   string // "": not a file
	format string
	level  slog.LevelVar

	mu sync.Mutex
	to io.Writer
	f  *os.File
}

// Open opens the file, or takes to without one. An unknown level is info; format is one of Formats.
func Open(path string, to io.Writer, level, format string) (*Log, error) {
	l := &Log{path: path, to: to, format: format}
	l.level.Set(levelOf(level))
	if path == "" {
		return l, nil
	}
	return l, l.Reopen()
}

// Logger gives a logger that writes to the log and counts repeated errors.
func (l *Log) Logger() *slog.Logger {
	return slog.New(Handler(l, l.format, &l.level))
}

// IsFile reports whether the log is a file.
func (l *Log) IsFile() bool { return l.path != "" }

// SetLevel changes the level, of which LevelName gives the name.
func (l *Log) SetLevel(name string) { l.level.Set(levelOf(name)) }

// Reopen opens the file anew: it may have been renamed. If that fails, the log goes on in the old one.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.f
	l.f, l.to = f, f
	l.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

// Write writes one line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(line)
}

// Close closes the file; what is logged after that is lost.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f, l.to = nil, io.Discard
	if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
