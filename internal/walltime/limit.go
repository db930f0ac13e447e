package walltime

import (
	"fmt"
	"strings"
)

const (
	secPerMin  = 60
	secPerHour = 60 * secPerMin
	secPerDay  = 24 * secPerHour

	// MaxLimitSec is the longest time limit that isn't unlimited: the minutes
	// that Slurm can count (2^32-3, some 8,000 years).
	MaxLimitSec = (1<<32 - 3) * secPerMin

	// unlimitedMinutes is how Slurm writes "unlimited" as a number of minutes.
	unlimitedMinutes = 1<<32 - 1

	limitForms = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, " +
		"days-hours:minutes:seconds or UNLIMITED"
)

// ParseLimit reads a time limit (--time, MaxTime): minutes, M:S, H:M:S, D-H,
// D-H:M, D-H:M:S, where every number may be as large as it likes (0:86400 is a
// day), or INFINITE, UNLIMITED, -1. No time at all ("0") asks for no limit, as
// in Slurm. seconds is 0 where unlimited is true.
func ParseLimit(s string) (seconds int64, unlimited bool, err error) {
	if s == "-1" || strings.EqualFold(s, "INFINITE") || strings.EqualFold(s, "UNLIMITED") {
		return 0, true, nil
	}
	seconds, why := parseLimit(s)
	if why != "" {
		return 0, false, &Error{What: "time limit", Value: s, Why: why, Forms: limitForms}
	}
	if seconds == 0 || seconds == unlimitedMinutes*secPerMin {
		return 0, true, nil
	}
	if seconds > MaxLimitSec {
		return 0, false, &Error{What: "time limit", Value: s, Why: "too long", Forms: "UNLIMITED"}
	}
	return seconds, false, nil
}

// ParseDuration reads the same forms as [ParseLimit] as a plain length of
// time: 0 is 0, and the words for unlimited are refused.
func ParseDuration(s string) (seconds int64, err error) {
	seconds, why := parseLimit(s)
	if why == "" && seconds > MaxLimitSec {
		why = "too long"
	}
	if why != "" {
		return 0, &Error{What: "duration", Value: s, Why: why, Forms: strings.TrimSuffix(limitForms, " or UNLIMITED")}
	}
	return seconds, nil
}

// parseLimit returns the seconds, or why s can't be read.
func parseLimit(s string) (seconds int64, why string) {
	if s == "" {
		return 0, "nothing given"
	}
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "", s
	} else if days == "" {
		return 0, "negative"
	}
	var fields []int64
	if clock != "" || !hasDays {
		for f := range strings.SplitSeq(clock, ":") {
			if len(fields) == 3 {
				return 0, "too many colons"
			}
			n, why := parseField(f)
			if why != "" {
				return 0, why
			}
			fields = append(fields, n)
		}
	}
	if hasDays {
		n, why := parseField(days)
		if why != "" {
			return 0, why
		}
		seconds = n * secPerDay
		for i, n := range fields {
			seconds += n * [...]int64{secPerHour, secPerMin, 1}[i]
		}
		return seconds, ""
	}
	switch len(fields) {
	case 1:
		seconds = fields[0] * secPerMin
	case 2:
		seconds = fields[0]*secPerMin + fields[1]
	case 3:
		seconds = fields[0]*secPerHour + fields[1]*secPerMin + fields[2]
	}
	return seconds, ""
}

// parseField reads one number of a duration; ten digits keep the sum inside an int64.
func parseField(s string) (int64, string) {
	if s == "" {
		return 0, "a number is missing"
	}
	if len(s) > 10 {
		return 0, "too long"
	}
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Sprintf("%q is not a whole number", s)
		}
		n = n*10 + int64(c-'0')
	}
	return n, ""
}

// invalid is what Slurm prints for a duration that can't be, such as a negative one.
const invalid = "INVALID"

func cut(seconds int64) (days, hours, minutes, secs int64) {
	return seconds / secPerDay, seconds % secPerDay / secPerHour, seconds % secPerHour / secPerMin, seconds % secPerMin
}

// Short writes a duration as squeue does in TIME: "0:00", "5:03", "1:02:03",
// "2-03:04:05".
func Short(seconds int64) string {
	d, h, m, s := cut(seconds)
	switch {
	case seconds < 0:
		return invalid
	case d > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", d, h, m, s)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	default:
		return fmt.Sprintf("%d:%02d", m, s)
	}
}

// Limit writes a time limit as squeue does: like [Short], or "UNLIMITED"
// (sinfo writes "infinite" instead: its caller's choice).
func Limit(seconds int64, unlimited bool) string {
	if unlimited {
		return "UNLIMITED"
	}
	return Short(seconds)
}

// Elapsed writes a duration as sacct and scontrol do: "[D-]HH:MM:SS".
func Elapsed(seconds int64) string {
	d, h, m, s := cut(seconds)
	switch {
	case seconds < 0:
		return invalid
	case d > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", d, h, m, s)
	default:
		return fmt.Sprintf("%02d:%02d:%02d", h, m, s)
	}
}

// ElapsedLimit writes a time limit as sacct and scontrol do: like [Elapsed],
// or "UNLIMITED".
func ElapsedLimit(seconds int64, unlimited bool) string {
	if unlimited {
		return "UNLIMITED"
	}
	return Elapsed(seconds)
}

// TotalCPU writes CPU time, in microseconds, as sacct does: "7-22:12:48",
// "15:06:15"; below an hour with milliseconds, "00:03.271", unless there are
// none, "00:00:00".
func TotalCPU(microseconds int64) string {
	if microseconds < 0 {
		return invalid
	}
	seconds, millis := microseconds/1_000_000, microseconds%1_000_000/1000
	if seconds < secPerHour && millis > 0 {
		_, _, m, s := cut(seconds)
		return fmt.Sprintf("%02d:%02d.%03d", m, s, millis)
	}
	return Elapsed(seconds)
}
