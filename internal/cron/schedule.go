package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Schedule says when an entry is due, in minutes of a time zone.
type Schedule struct {
	minutes  uint64 // bit n: minute n; the same for the others
	hours    uint64
	days     uint64 // of the month, from 1
	months   uint64 // from 1
	weekdays uint64 // 0 is Sunday

	anyDay, anyWeekday bool // the field is *

	fields [fieldCount]string
}

// Error is about a place in a line of a crontab.
type Error struct {
	Column int // from 1
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Text) }

// field is one of the five fields.
type field struct {
	name   string
	lo, hi int
	names  []string // of lo, lo+1, ...
}

const fieldCount = 5

var fields = [fieldCount]field{
	{name: "minute", hi: 59},
	{name: "hour", hi: 23},
	{name: "day of the month", lo: 1, hi: 31},
	{name: "month", lo: 1, hi: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct",
		"nov", "dec"}},
	{name: "day of the week", hi: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// words are short for five fields.
var words = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

const wordList = "@yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly"

// MaxTimes bounds the text of the five fields, bytes.
const MaxTimes = 1024

// Parse reads the times at the beginning of an entry's line, and gives the column at which the rest of it begins. An
// error is an *Error.
func Parse(line string) (s *Schedule, rest int, err error) {
	at := blanks(line, 0)
	if strings.HasPrefix(line[at:], "@") {
		end := at + len(firstWord(line[at:]))
		five, ok := words[strings.ToLower(line[at:end])]
		if !ok {
			return nil, 0, &Error{at + 1, "'" + line[at:end] + "' is no time: the words are " + wordList}
		}
		s, _, err = Parse(five)
		return s, blanks(line, end), err
	}
	s = &Schedule{}
	starts := [fieldCount]int{}
	for i := range fields {
		f := &fields[i]
		word := firstWord(line[at:])
		if word == "" {
			return nil, 0, &Error{at + 1, fmt.Sprintf("the %s is missing: an entry has minute, hour, day of the month, month, "+
				"day of the week, and a command", f.name)}
		}
		set, err := f.read(word, at+1)
		if err != nil {
			return nil, 0, err
		}
		*s.set(i), s.fields[i], starts[i] = set, strings.ToLower(word), at
		at = blanks(line, at+len(word))
	}
	if at > MaxTimes {
		return nil, 0, &Error{1, fmt.Sprintf("the times are longer than %d characters", MaxTimes)}
	}
	s.weekdays = s.weekdays&0x7f | s.weekdays>>7&1 // 7 is Sunday too
	s.anyDay, s.anyWeekday = s.fields[2] == "*", s.fields[4] == "*"
	if !s.possible() {
		return nil, 0, &Error{starts[2] + 1, fmt.Sprintf("there is no day %s in month %s: the entry would never run",
			s.fields[2], s.fields[3])}
	}
	return s, at, nil
}

// ParseTimes reads the five fields alone.
func ParseTimes(text string) (*Schedule, error) {
	s, rest, err := Parse(text)
	if err == nil && rest != len(text) {
		err = &Error{rest + 1, "there is more than five fields"}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// String gives the five fields.
func (s *Schedule) String() string { return strings.Join(s.fields[:], " ") }

func (s *Schedule) set(i int) *uint64 {
	return [fieldCount]*uint64{&s.minutes, &s.hours, &s.days, &s.months, &s.weekdays}[i]
}

// longest are the days of each month, from 1, in a leap year.
var longest = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// possible reports whether there is such a day.
func (s *Schedule) possible() bool {
	if s.anyDay || !s.anyWeekday {
		return true
	}
	first := bits.TrailingZeros64(s.days)
	for month := 1; month <= 12; month++ {
		if s.months>>month&1 != 0 && first <= longest[month] {
			return true
		}
	}
	return false
}

// read reads a field: a list of *, numbers, names and ranges, each range and * with a step if there is one.
func (f *field) read(word string, column int) (set uint64, err error) {
	bad := func(at int, format string, a ...any) error {
		return &Error{column + at, fmt.Sprintf("%s '%s': ", f.name, word) + fmt.Sprintf(format, a...)}
	}
	at := 0
	for part := range strings.SplitSeq(word, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		lo, hi := f.lo, f.hi
		from, to, ranged := strings.Cut(span, "-")
		switch {
		case span == "*":
			if f.hi == 7 {
				hi = 6
			}
		default:
			var ok bool
			if lo, ok = f.value(from); !ok {
				return 0, bad(at, "'%s' is not %s", from, f.range1())
			}
			if hi = lo; ranged {
				if hi, ok = f.value(to); !ok {
					return 0, bad(at+len(from)+1, "'%s' is not %s", to, f.range1())
				}
			}
			if f.hi == 7 && hi == 0 && lo > 0 {
				hi = 7 // fri-sun
			}
			if hi < lo {
				return 0, bad(at, "the range goes down; write %s-%d,%d-%s", from, f.hi, f.lo, to)
			}
			if stepped && !ranged {
				return 0, bad(at, "a step follows * or a range: write %s-%d/%s", from, f.hi, stepText)
			}
		}
		step := 1
		if stepped {
			n, err := strconv.Atoi(stepText)
			if err != nil || n < 1 || n > f.hi {
				return 0, bad(at+len(span)+1, "the step '%s' is not a number from 1 to %d", stepText, f.hi)
			}
			step = n
		}
		for n := lo; n <= hi; n += step {
			set |= 1 << n
		}
		at += len(part) + 1
	}
	return set, nil
}

// value reads a number or a name.
func (f *field) value(text string) (int, bool) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.lo + i, true
		}
	}
	if text == "" || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= f.lo && n <= f.hi
}

// range1 says what one value is.
func (f *field) range1() string {
	text := fmt.Sprintf("a number from %d to %d", f.lo, f.hi)
	if len(f.names) > 0 {
		text += fmt.Sprintf(" or one of %s to %s", f.names[0], f.names[len(f.names)-1])
	}
	return text
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// blanks gives the index of the first character from at on that is no blank.
func blanks(line string, at int) int {
	for at < len(line) && blank(line[at]) {
		at++
	}
	return at
}

// firstWord gives what comes before the first blank.
func firstWord(text string) string {
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i]
	}
	return text
}
