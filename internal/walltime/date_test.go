package walltime

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// sat is Saturday 21 November 2026, 10:01:58; the expectations below are what
// Slurm 22.05.8 made of the same texts at that second.
var sat = time.Date(2026, 11, 21, 10, 1, 58, 500, time.UTC)

func TestParseDate(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"now", "2026-11-21T10:01:58"},
		{"NOW", "2026-11-21T10:01:58"},
		{"now+1", "2026-11-21T10:01:59"},
		{"now+60", "2026-11-21T10:02:58"},
		{"now+1hour", "2026-11-21T11:01:58"},
		{"Now+1Hour", "2026-11-21T11:01:58"},
		{"now+2hours", "2026-11-21T12:01:58"},
		{"now + 2 hours", "2026-11-21T12:01:58"},
		{"now - 2hours", "2026-11-21T08:01:58"},
		{"now-7days", "2026-11-14T10:01:58"},
		{"now-2days", "2026-11-19T10:01:58"},
		{"now+1week", "2026-11-28T10:01:58"},
		{"now+5minutes", "2026-11-21T10:06:58"},
		{"now+5min", "2026-11-21T10:06:58"},
		{"now+5m", "2026-11-21T10:06:58"},
		{"today", "2026-11-21T00:00:00"},
		{"tomorrow", "2026-11-22T00:00:00"},
		{"midnight", "2026-11-22T00:00:00"},
		{"elevenses", "2026-11-21T11:00:00"},
		{"noon", "2026-11-21T12:00:00"},
		{"fika", "2026-11-21T15:00:00"},
		{"teatime", "2026-11-21T16:00:00"},
		{"teatime tomorrow", "2026-11-22T16:00:00"},
		{"16:00", "2026-11-21T16:00:00"},
		{"16:00:30", "2026-11-21T16:00:30"},
		{"9:05", "2026-11-22T09:05:00"},
		{"04:00PM", "2026-11-21T16:00:00"},
		{"4:00pm", "2026-11-21T16:00:00"},
		{"4:00 PM", "2026-11-21T16:00:00"},
		{"12:00AM", "2026-11-22T00:00:00"},
		{"12:30pm", "2026-11-21T12:30:00"},
		{"112226", "2026-11-22T00:00:00"},
		{"1122", "2026-11-22T00:00:00"},
		{"112220", "2020-11-22T00:00:00"},
		{"011527", "2027-01-15T00:00:00"},
		{"0101", "2027-01-01T00:00:00"},
		{"11/23", "2026-11-23T00:00:00"},
		{"11/23/26", "2026-11-23T00:00:00"},
		{"11/23/2026", "2026-11-23T00:00:00"},
		{"11/20", "2027-11-20T00:00:00"},
		{"1/1", "2027-01-01T00:00:00"},
		{"12.01", "2026-12-01T00:00:00"},
		{"11/23-10:30", "2026-11-23T10:30:00"},
		{"11/21 09:00", "2027-11-21T09:00:00"},
		{"11/21 11:00", "2026-11-21T11:00:00"},
		{"2026-12-01", "2026-12-01T00:00:00"},
		{"2026-12-1", "2026-12-01T00:00:00"},
		{"2026-12-01T10:00", "2026-12-01T10:00:00"},
		{"2026-12-01T10:00:11", "2026-12-01T10:00:11"},
		{"2026-12-01t10:00:11", "2026-12-01T10:00:11"},
		{"2026-12-01 10:00", "2026-12-01T10:00:00"},
		{"  2026-12-01  10:00  ", "2026-12-01T10:00:00"},
		{"1970-01-01-00:00:01", "1970-01-01T00:00:01"}, // torchx
		{"tomorrow 10:00", "2026-11-22T10:00:00"},
		{"noon+1day", "2026-11-22T12:00:00"},
		{"noon-tomorrow", "2026-11-22T12:00:00"},
		{"tomorrow-noon", "2026-11-22T12:00:00"},
		{"tomorrow + 2 hours", "2026-11-22T02:00:00"},
		{"teatime+1week", "2026-11-28T16:00:00"},
		{"2026-12-01T10:00+30", "2026-12-01T10:00:30"},
		{"tomorrowT10:00", "2026-11-22T10:00:00"},
		{"16:00T2026-12-01", "2026-12-01T16:00:00"},
		{"10:00 2026-12-01", "2026-12-01T10:00:00"},
		{"010127T10:00", "2027-01-01T10:00:00"},
		{"uts1800000000", "2027-01-15T08:00:00"},
		{"@1800000000", "2027-01-15T08:00:00"},
		{"@0", "1970-01-01T00:00:00"},
		{"2028-02-29", "2028-02-29T00:00:00"},
	} {
		got, err := ParseDate(c.in, sat)
		if err != nil || Timestamp(got, sat, "") != c.want {
			t.Errorf("ParseDate(%q) = %s, %v; want %s", c.in, Timestamp(got, sat, ""), err, c.want)
		}
	}
}

func TestParsePastDate(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"09:00", "2026-11-21T09:00:00"},
		{"16:00", "2026-11-21T16:00:00"},
		{"midnight", "2026-11-21T00:00:00"},
		{"11/20", "2026-11-20T00:00:00"},
		{"1122", "2026-11-22T00:00:00"},
		{"12/24", "2025-12-24T00:00:00"},
		{"010126", "2026-01-01T00:00:00"}, // reportseff
		{"2026-11-18T10:00", "2026-11-18T10:00:00"},
		{"now", "2026-11-21T10:01:58"},
	} {
		got, err := ParsePastDate(c.in, sat)
		if err != nil || Timestamp(got, sat, "") != c.want {
			t.Errorf("ParsePastDate(%q) = %s, %v; want %s", c.in, Timestamp(got, sat, ""), err, c.want)
		}
	}
}

func TestParseDateErrors(t *testing.T) {
	for in, why := range map[string]string{
		"": "nothing given", " \t": "nothing given", "foo": `"foo" is not understood`, "yesterday": "not understood",
		"now+": "no number", "now+-1": "no number", "now+1hourx": `"hourx" is not a unit`,
		"now+1month": `"month" is not a unit`,
		"now 16:00":  "after now", "16:00 now": "two points in time", "now+99999999999weeks": "too far",
		"nowhere": `"here" after now`, "tomorrow+": "no number",
		"24:00": "no hour 24", "9:5": "two digits", "23:60": "two digits", "10:00:00.5": "not understood",
		"13:00pm": "no hour 13",
		"4pm":     "not understood", "12-01": "not understood", "2026-13-01": "no month 13",
		"2026-02-30": "2026-02 has no day 30",
		"02/30":      "2027-02 has no day 30", "2026-12": "YYYY-MM-DD", "2026-12-": "YYYY-MM-DD", "12/": "a day is missing",
		"12/1/1": "two or four digits", "2026-12-01T10": "not understood", "2026-12-01T10:00:00Z": "not understood",
		"10:00 11:00": "two times of day", "11/11 12/12": "two dates", "1800000000": "not understood",
		"@x":                "seconds since 1970",
		"uts99999999999999": "seconds since 1970", "@1 x": `is too much`, strings.Repeat("1", 65): "too long",
		"00/00": "no month 0", "01/00": "has no day 0",
	} {
		got, err := ParseDate(in, sat)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Why, why) {
			t.Errorf("ParseDate(%q) = %v, %v; want %q", in, got, err, why)
		}
	}
}

func TestDatesKeepTheZone(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := sat.In(zone)
	for _, in := range []string{"16:00", "2026-12-01T16:00", "now+1hour", "@1800000000", "teatime"} {
		got, err := ParseDate(in, now)
		if err != nil || got.Location() != zone {
			t.Errorf("ParseDate(%q) is in %v, %v", in, got.Location(), err)
		}
	}
	if got := Timestamp(sat, now, ""); got != "2026-11-21T11:01:58" {
		t.Errorf("Timestamp in another zone: %s", got)
	}
}

func TestTimestamp(t *testing.T) {
	at := func(s string) time.Time {
		tt, err := time.Parse("2006-01-02T15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return tt
	}
	for _, c := range []struct{ at, format, want string }{
		{"2026-11-21T16:00:00", "", "2026-11-21T16:00:00"},
		{"2026-11-21T16:00:00", "standard", "2026-11-21T16:00:00"},
		{"2026-11-21T16:00:00", "STANDARD", "2026-11-21T16:00:00"},
		{"2026-11-21T16:00:00", "relative", "16:00:00"},
		{"2026-11-22T09:05:00", "relative", "Tomorr 09:05"},
		{"2026-11-20T23:59:00", "relative", "Ystday 23:59"},
		{"2026-11-23T00:00:00", "relative", "Mon 00:00"},
		{"2026-11-27T00:00:00", "relative", "Fri 00:00"},
		{"2026-11-28T08:00:00", "relative", "28 Nov 08:00"},
		{"2026-11-19T08:00:00", "relative", "19 Nov 08:00"},
		{"2027-01-05T08:01:00", "relative", "5 Jan 2027"},
		{"2026-11-21T16:00:00", "%s", "1795276800"},
		{"2026-11-21T16:00:00", "%a %d.%m", "Sat 21.11"},
		{"2026-11-21T16:00:00", "%Q %%", "%Q %"},
		{"2026-11-21T16:00:00", "%", "%"},
		{"2026-11-21T16:00:00", strings.Repeat("%Y", 64), "2026-11-21T16:00:00"},
	} {
		if got := Timestamp(at(c.at), sat, c.format); got != c.want {
			t.Errorf("Timestamp(%s, %q) = %q; want %q", c.at, c.format, got, c.want)
		}
	}
	if got := Timestamp(time.Time{}, sat, ""); got != "Unknown" {
		t.Errorf("zero: %q", got)
	}
	for format, ok := range map[string]bool{"": true, "standard": true, "relative": true, "%s": true, "STANDARD": false,
		"Relative": false, strings.Repeat("%Y", 64): false} {
		if err := CheckTimeFormat(format); (err == nil) != ok {
			t.Errorf("CheckTimeFormat(%.20q): %v", format, err)
		}
	}
}

// TestStrftime compares every conversion with GNU date.
func TestStrftime(t *testing.T) {
	date, err := exec.LookPath("date")
	if err != nil {
		t.Skip("no date command here")
	}
	format := "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%s|%S|%T|%u|%U|%V|%w|%W|%x|%X|%y|" +
		"%Y|%z|%Z|%%"
	for _, day := range []string{"2026-11-21 16:04:05", "2027-01-01 00:00:00", "2026-01-04 12:30:09",
		"2028-12-31 01:02:03", "2020-02-29 23:59:59"} {
		cmd := exec.Command(date, "-u", "-d", day, "+"+format)
		cmd.Env = []string{"LC_ALL=C", "TZ=UTC"}
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("date doesn't know -d: %v", err)
		}
		tt, err := time.Parse("2006-01-02 15:04:05", day)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strftime(format, tt), strings.TrimSuffix(string(out), "\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", day, got, want)
		}
	}
}

func FuzzParseDate(f *testing.F) {
	for _, s := range []string{"now+1hour", "tomorrow 10:00", "112226", "11/23", "2026-12-01T10:00:11", "4:00 PM",
		"1970-01-01-00:00:01", "uts1", "fika", "now - 2 hours"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string, time.Time) (time.Time, error){ParseDate, ParsePastDate} {
			got, err := parse(s, sat)
			if err != nil {
				if _, ok := err.(*Error); !ok {
					t.Fatalf("%T is no *Error", err)
				}
				continue
			}
			if got.Year() < 1000 { // no date before the year 1000 has four digits in front
				continue
			}
			again, err := parse(Timestamp(got, sat, ""), sat)
			if err != nil || !again.Equal(got) {
				t.Fatalf("%q: %v, %v, %v", s, got, again, err)
			}
		}
		Timestamp(sat, sat, s)
	})
}
