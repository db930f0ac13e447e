package walltime

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxTimestampBytes is the longest text that a time format may make.
const maxTimestampBytes = 255

// Timestamp writes t as SLURM_TIME_FORMAT asks for: format is "" or "standard"
// (2026-11-20T10:00:00), "relative" (as people say it, seen from now), or a
// strftime format such as "%s". A format that is none of these, or that makes
// more than 255 bytes, counts as standard; [CheckTimeFormat] says so. The time
// zone is now's. The zero time is "Unknown".
func Timestamp(t, now time.Time, format string) string {
	if t.IsZero() {
		return "Unknown"
	}
	t = t.In(now.Location())
	switch {
	case format == "relative":
		return relative(t, now)
	case strings.Contains(format, "%"):
		if text := strftime(format, t); len(text) <= maxTimestampBytes {
			return text
		}
	}
	return t.Format("2006-01-02T15:04:05")
}

// CheckTimeFormat says what is wrong with a value of SLURM_TIME_FORMAT.
func CheckTimeFormat(format string) error {
	if format == "" || format == "standard" || format == "relative" {
		return nil
	}
	wide := time.Date(2026, time.September, 30, 23, 59, 59, 0, time.UTC) // a Wednesday in September: the longest names
	if strings.Contains(format, "%") && len(strftime(format, wide)) <= maxTimestampBytes {
		return nil
	}
	return &Error{What: "SLURM_TIME_FORMAT", Value: format, Forms: "standard, relative or a strftime format such as %s"}
}

// relative writes a time as people say it: the time alone for today, the day's
// name for the coming week, the date for this year, the year otherwise.
func relative(t, now time.Time) string {
	switch days := dayNumber(t) - dayNumber(now); {
	case days == 0:
		return t.Format("15:04:05")
	case days == 1:
		return t.Format("Tomorr 15:04")
	case days == -1:
		return t.Format("Ystday 15:04")
	case days > 1 && days < 7:
		return t.Format("Mon 15:04")
	case t.Year() == now.Year():
		return t.Format("2 Jan 15:04")
	default:
		return t.Format("2 Jan 2006")
	}
}

// dayNumber counts calendar days, whatever hours they have.
func dayNumber(t time.Time) int64 {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / secPerDay
}

// layouts are the conversions that Go's own formats can do (C locale).
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan",
	'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02",
	'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'P': "pm",
	'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05",
	'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

// strftime does what C's strftime does in the C locale. Conversions that it
// doesn't know, and glibc's flags and modifiers, stay as they are written.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if layout, ok := layouts[format[i]]; ok {
			b.WriteString(t.Format(layout))
			continue
		}
		isoYear, isoWeek := t.ISOWeek()
		monday := (int(t.Weekday()) + 6) % 7
		switch c := format[i]; c {
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		case 'C':
			fmt.Fprintf(&b, "%02d", t.Year()/100)
		case 'g':
			fmt.Fprintf(&b, "%02d", isoYear%100)
		case 'G':
			fmt.Fprintf(&b, "%d", isoYear)
		case 'k':
			fmt.Fprintf(&b, "%2d", t.Hour())
		case 'l':
			fmt.Fprintf(&b, "%2d", (t.Hour()+11)%12+1)
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'u':
			fmt.Fprintf(&b, "%d", monday+1)
		case 'w':
			fmt.Fprintf(&b, "%d", int(t.Weekday()))
		case 'U':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-int(t.Weekday()))/7)
		case 'V':
			fmt.Fprintf(&b, "%02d", isoWeek)
		case 'W':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-monday)/7)
		case '%':
			b.WriteByte('%')
		default:
			b.WriteByte('%')
			b.WriteByte(c)
		}
	}
	return b.String()
}
