// Package crash says a panic in one line: what it was, and the functions that led to it. A worker
// that recovers fails the request that it worked for, and logs that line.
package crash

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

const (
	maxFrames = 8   // functions that are named, the innermost first
	maxText   = 512 // bytes of what the panic says
)

// Error is a panic as an error.
type Error struct {
	What  string // what the panic says
	Where string // the functions that led to it, the innermost first
}

// Error gives both on one line.
func (e *Error) Error() string { return "it crashed: " + e.What + " at " + e.Where }

// Recovered makes an error of what recover() gave; nil if that is nil. It is called by the deferred function itself.
func Recovered(p any) error {
	if p == nil {
		return nil
	}
	return &Error{What: line(fmt.Sprint(p)), Where: where()}
}

func line(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.Join(strings.Fields(s), " ")
}

// where names the functions below the panic, without the runtime's own.
func where() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var out []string
	for more := true; more && len(out) < maxFrames; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.Function == "" || strings.HasPrefix(f.Function, "runtime.") {
			continue
		}
		out = append(out, fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line))
	}
	return strings.Join(out, " < ")
}
