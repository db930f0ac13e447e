// Package quietlog keeps a daemon's log readable when an error repeats: a warning or error that has just been logged,
// with the same message and the same first attributes, is counted, and the count is logged later in its place.
//
// It owns what was said lately, in bounded memory. It doesn't own levels, formats or files: it hands what it lets
// through to another slog.Handler. handler.go has it.
//
// Invariants: the first of a kind is logged at once; nothing below LevelWarn is held back; a count is never lost while
// the message goes on, and at most one period late; no goroutine runs.
package quietlog
