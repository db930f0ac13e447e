// Package walltime owns how times, durations, memory sizes and counts are
// written and read in Slurm's language: "1-12:00:00", "now+2hours", "4G", "1k".
//
// Everything here is a pure function: no clock is read (now is an argument, and
// its location is the time zone in which dates are read and printed), no
// environment, no locale. Seconds and MiB are int64; a time limit is whole
// seconds, although Slurm itself keeps whole minutes.
//
// Errors are *Error: they carry what was given and the forms that are accepted.
//
// Invariants, held by tests and fuzzing: ParseLimit(Limit(x)) == x,
// ParseMemMiB(FormatMem(x)) == x, ParseDate(Timestamp(t)) == t to the second;
// nothing panics on any input.
//
// Reference: the real programs of Slurm 22.05.8. Accepted beyond them:
// elevenses, "min", "hour" and the like shortened to a unique prefix, four-digit
// years in MM/DD/YYYY, @SECONDS. Refused although Slurm accepts them: dates
// that don't exist (02/30), negative time limits other than -1.
//
// Files: limit.go, date.go, timestamp.go, mem.go, count.go.
package walltime

import (
	"fmt"
	"strings"
)

// Error says what couldn't be read and what could have been.
type Error struct {
	What  string // "time limit", "date", "memory size", "count"
	Value string // as given
	Why   string // what is wrong with it; may be empty
	Forms string // the accepted forms
}

func (e *Error) Error() string {
	value := e.Value
	if len(value) > maxShown {
		value = strings.ToValidUTF8(value[:maxShown], "") + "…"
	}
	why := ""
	if e.Why != "" {
		why = ": " + e.Why
	}
	return fmt.Sprintf("invalid %s %q%s; write %s", e.What, value, why, e.Forms)
}

// maxShown is how much of a wrong value an error repeats.
const maxShown = 80
