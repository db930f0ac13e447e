package walltime

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	dateForms = "now[+N[seconds|minutes|hours|days|weeks]], today, tomorrow, midnight, noon, elevenses, fika, teatime, " +
		"HH:MM[:SS] [AM|PM], MMDD[YY], MM/DD[/YY] or YYYY-MM-DD[THH:MM[:SS]]; +N[unit] may follow each of them"
	// maxDateBytes is longer than every date that makes sense.
	maxDateBytes = 64
	// maxOffsetSec is how far from now a date may be: 1,000 years.
	maxOffsetSec = 1000 * 366 * secPerDay
)

// ParseDate reads a point in time to come (--begin, --deadline). A time without
// a date is its next occurrence; a date without a year is its next occurrence;
// a date without a time is 00:00. The result is in now's location.
func ParseDate(s string, now time.Time) (time.Time, error) {
	return parseDate(s, now, false)
}

// FromNow reports whether a date counts from now: now, now+1hour.
func FromNow(s string) bool {
	const now = "now"
	s = strings.TrimSpace(s)
	return len(s) >= len(now) && strings.EqualFold(s[:len(now)], now)
}

// ParsePastDate reads a point in time for reports (sacct -S and -E): a time
// without a date is today's, a date without a year is this year's, or last
// year's where the month is still to come.
func ParsePastDate(s string, now time.Time) (time.Time, error) {
	return parseDate(s, now, true)
}

// dateReader reads a date from left to right. year, month and day are 0 and
// hour is -1 until they are known.
type dateReader struct {
	rest             string
	now              time.Time
	year, month, day int
	hour, min, sec   int
	hasYear, hasDate bool
	// exact is the result of a form that says everything, such as now+1hour.
	exact *time.Time
	// later is what follows a moment: the day of noon+1day, seconds.
	later int64
}

func parseDate(s string, now time.Time, past bool) (time.Time, error) {
	wrong := func(why string) (time.Time, error) {
		return time.Time{}, &Error{What: "date", Value: s, Why: why, Forms: dateForms}
	}
	if len(s) > maxDateBytes {
		return wrong("too long")
	}
	r := &dateReader{rest: s, now: now, hour: -1}
	r.skip()
	if r.rest == "" {
		return wrong("nothing given")
	}
	for r.rest != "" {
		if why := r.next(); why != "" {
			return wrong(why)
		}
		if r.exact != nil {
			if strings.TrimSpace(r.rest) != "" {
				return wrong(fmt.Sprintf("%q is too much", r.rest))
			}
			return *r.exact, nil
		}
		r.skip()
	}
	t, why := r.resolve(past)
	if why != "" {
		return wrong(why)
	}
	return t.Add(time.Duration(r.later) * time.Second), nil
}

// skip drops what may stand between a date and a time: blanks, "-" and "T". Before a word only "-" may
// stand, as in noon-tomorrow.
func (r *dateReader) skip() {
	r.rest = strings.TrimLeft(r.rest, " \t")
	if r.hasDate || r.hour >= 0 {
		if len(r.rest) > 1 && strings.IndexByte("-Tt", r.rest[0]) >= 0 && r.rest[1] >= '0' && r.rest[1] <= '9' ||
			len(r.rest) > 1 && r.rest[0] == '-' && (r.rest[1]|0x20) >= 'a' && (r.rest[1]|0x20) <= 'z' {
			r.rest = r.rest[1:]
		}
	}
}

// dayTimes are the names of times of day.
var dayTimes = []struct {
	word string
	hour int
}{
	{"midnight", 0}, {"elevenses", 11}, {"noon", 12}, {"fika", 15}, {"teatime", 16},
}

// next reads one element; it returns what is wrong.
func (r *dateReader) next() string {
	for _, w := range dayTimes {
		if r.word(w.word) {
			return r.setTime(w.hour, 0, 0)
		}
	}
	switch {
	case r.word("today"):
		y, m, d := r.now.Date()
		return r.setDate(y, int(m), d, true)
	case r.word("tomorrow"):
		y, m, d := r.now.AddDate(0, 0, 1).Date()
		return r.setDate(y, int(m), d, true)
	case r.word("now"):
		return r.readOffset()
	case r.word("uts"), r.word("@"):
		digits := r.digits(12)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > r.now.Unix()+maxOffsetSec {
			return "it isn't a number of seconds since 1970"
		}
		return r.done(time.Unix(n, 0))
	}
	if (r.hasDate || r.hour >= 0) && r.word("+") {
		var why string
		r.later, why = r.readSpan()
		return why
	}
	n := len(r.rest) - len(strings.TrimLeft(r.rest, "0123456789"))
	if n == 0 {
		return fmt.Sprintf("%q is not understood", r.rest)
	}
	after := byte(0)
	if n < len(r.rest) {
		after = r.rest[n]
	}
	switch {
	case n == 4 && after == '-' && len(r.rest) > 5 && r.rest[5] >= '0' && r.rest[5] <= '9':
		return r.readISO()
	case after == ':':
		return r.readClock()
	case n <= 2 && (after == '/' || after == '.'):
		return r.readMonthDay(after)
	case n == 4 || n == 6:
		month, day := atoi(r.rest[:2]), atoi(r.rest[2:4])
		year := 0
		if n == 6 {
			year = 2000 + atoi(r.rest[4:6])
		}
		r.rest = r.rest[n:]
		return r.setDate(year, month, day, n == 6)
	}
	return fmt.Sprintf("%q is not understood", r.rest)
}

// word takes w from the front, in any case.
func (r *dateReader) word(w string) bool {
	if len(r.rest) < len(w) || !strings.EqualFold(r.rest[:len(w)], w) {
		return false
	}
	r.rest = r.rest[len(w):]
	return true
}

func (r *dateReader) digits(most int) string {
	n := 0
	for n < len(r.rest) && n < most && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	digits := r.rest[:n]
	r.rest = r.rest[n:]
	return digits
}

func (r *dateReader) done(t time.Time) string {
	if r.hasDate || r.hour >= 0 {
		return "two points in time"
	}
	t = t.In(r.now.Location())
	r.exact = &t
	return ""
}

// offsetUnits are the units of now+N, by their full names; a prefix of one will do.
var offsetUnits = []struct {
	name    string
	seconds int64
}{
	{"seconds", 1}, {"minutes", secPerMin}, {"hours", secPerHour}, {"days", secPerDay}, {"weeks", 7 * secPerDay},
}

// readOffset reads what follows "now": nothing, or +N[unit], with blanks anywhere.
func (r *dateReader) readOffset() string {
	now := r.now.Truncate(time.Second)
	r.rest = strings.TrimLeft(r.rest, " \t")
	if r.rest == "" {
		return r.done(now)
	}
	sign := int64(1)
	switch {
	case r.word("+"):
	case r.word("-"):
		sign = -1
	default:
		return fmt.Sprintf("%q after now; write now+1hour", r.rest)
	}
	span, why := r.readSpan()
	if why != "" {
		return why
	}
	return r.done(now.Add(time.Duration(sign*span) * time.Second))
}

// readSpan reads what follows + or - to the end: a number and a unit, with blanks anywhere.
func (r *dateReader) readSpan() (seconds int64, why string) {
	r.rest = strings.TrimLeft(r.rest, " \t")
	n, err := strconv.ParseInt(r.digits(12), 10, 64)
	if err != nil {
		return 0, "no number after + or -"
	}
	unit := strings.ToLower(strings.Trim(r.rest, " \t"))
	r.rest = ""
	for _, u := range offsetUnits {
		if strings.HasPrefix(u.name, unit) {
			seconds = u.seconds
			break // no unit at all is seconds, the first
		}
	}
	if seconds == 0 {
		return 0, fmt.Sprintf("%q is not a unit", unit)
	}
	if n > maxOffsetSec/seconds {
		return 0, "too far from now"
	}
	return n * seconds, ""
}

// readISO reads YYYY-MM-DD; month and day may have one digit.
func (r *dateReader) readISO() string {
	year := atoi(r.digits(4))
	r.rest = r.rest[1:]
	month := atoi(r.digits(2))
	if !r.word("-") {
		return "a date is YYYY-MM-DD"
	}
	day := r.digits(2)
	if day == "" {
		return "a date is YYYY-MM-DD"
	}
	return r.setDate(year, month, atoi(day), true)
}

// readMonthDay reads MM/DD[/YY] or MM.DD[.YY].
func (r *dateReader) readMonthDay(sep byte) string {
	month := atoi(r.digits(2))
	r.rest = r.rest[1:]
	day := r.digits(2)
	if day == "" {
		return "a day is missing"
	}
	if !r.word(string(sep)) {
		return r.setDate(0, month, atoi(day), false)
	}
	year := r.digits(4)
	switch len(year) {
	case 2:
		return r.setDate(2000+atoi(year), month, atoi(day), true)
	case 4:
		return r.setDate(atoi(year), month, atoi(day), true)
	}
	return "a year has two or four digits"
}

// readClock reads H:MM[:SS] [AM|PM].
func (r *dateReader) readClock() string {
	hourText := r.digits(3)
	hour := atoi(hourText)
	if len(hourText) > 2 || hour > 23 {
		return fmt.Sprintf("no hour %s", hourText)
	}
	fields := [2]int{}
	for i := 0; i < 2 && r.word(":"); i++ {
		text := r.digits(3)
		if len(text) != 2 || text > "59" {
			return "minutes and seconds have two digits, 00 to 59"
		}
		fields[i] = atoi(text)
	}
	blanks := strings.TrimLeft(r.rest, " \t")
	if len(blanks) >= 2 && strings.EqualFold(blanks[1:2], "m") && strings.ContainsAny(blanks[:1], "aApP") {
		if hour == 0 || hour > 12 {
			return fmt.Sprintf("no hour %d with AM or PM", hour)
		}
		hour %= 12
		if blanks[0] == 'p' || blanks[0] == 'P' {
			hour += 12
		}
		r.rest = blanks[2:]
	}
	return r.setTime(hour, fields[0], fields[1])
}

func (r *dateReader) setTime(hour, minute, second int) string {
	if r.hour >= 0 {
		return "two times of day"
	}
	r.hour, r.min, r.sec = hour, minute, second
	return ""
}

func (r *dateReader) setDate(year, month, day int, hasYear bool) string {
	if r.hasDate {
		return "two dates"
	}
	if month < 1 || month > 12 {
		return fmt.Sprintf("no month %d", month)
	}
	r.year, r.month, r.day, r.hasYear, r.hasDate = year, month, day, hasYear, true
	return ""
}

// resolve fills in what wasn't said.
func (r *dateReader) resolve(past bool) (time.Time, string) {
	at := func(y, m, d int) time.Time {
		return time.Date(y, time.Month(m), d, max(r.hour, 0), r.min, r.sec, 0, r.now.Location())
	}
	nowYear, nowMonth, nowDay := r.now.Date()
	if !r.hasDate {
		t := at(nowYear, int(nowMonth), nowDay)
		if !past && !t.After(r.now) {
			t = at(nowYear, int(nowMonth), nowDay+1)
		}
		return t, ""
	}
	year := r.year
	if !r.hasYear {
		year = nowYear
		switch {
		case past && r.month > int(nowMonth):
			year--
		case !past && !at(year, r.month, r.day).After(r.now):
			year++
		}
	}
	if last := time.Date(year, time.Month(r.month)+1, 0, 0, 0, 0, 0, time.UTC).Day(); r.day < 1 || r.day > last {
		return time.Time{}, fmt.Sprintf("%d-%02d has no day %d", year, r.month, r.day)
	}
	return at(year, r.month, r.day), ""
}

// atoi reads at most a few digits that are known to be digits.
func atoi(digits string) int {
	n := 0
	for _, c := range []byte(digits) {
		n = n*10 + int(c-'0')
	}
	return n
}
