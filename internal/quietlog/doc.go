// Package quietlog keeps a daemon's log readable when an error repeats: a warning or error that has
// just been logged, with the same message and attributes, is counted. The count is logged with
// the next one after a period, or before the next warning of another kind.
//
// It owns what was said lately, in bounded memory. It doesn't own levels, formats or files: what
// it lets through it hands to another slog.Handler. handler.go has it.
//
// Invariants: the first of a kind is logged at once; nothing below LevelWarn is held back; no
// goroutine runs.
package quietlog
