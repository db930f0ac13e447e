package walltime

import (
	"errors"
	"strings"
	"testing"
)

func TestParseLimit(t *testing.T) {
	for _, c := range []struct {
		in        string
		seconds   int64
		unlimited bool
	}{
		{"5", 300, false},
		{"90", 5400, false},
		{"1:30", 90, false},
		{"0:86400", 86400, false}, // toil
		{"0:59", 59, false},
		{"1:2:3", 3723, false},
		{"26:00:00", 93600, false}, // nextflow
		{"1:90:00", 9000, false},
		{"1-0", 86400, false},
		{"1-", 86400, false},
		{"1-2", 93600, false},
		{"1-2:3", 93780, false},
		{"1-2:3:4", 93784, false},
		{"1-25:61:61", 86400 + 25*3600 + 61*60 + 61, false},
		{"7-00:00:00", 7 * 86400, false},
		{"0", 0, true},
		{"00", 0, true},
		{"0:0", 0, true},
		{"-1", 0, true},
		{"INFINITE", 0, true},
		{"infinite", 0, true},
		{"Unlimited", 0, true},
		{"4294967295", 0, true},
		{"4294967293", MaxLimitSec, false},
	} {
		seconds, unlimited, err := ParseLimit(c.in)
		if err != nil || seconds != c.seconds || unlimited != c.unlimited {
			t.Errorf("ParseLimit(%q) = %d, %v, %v; want %d, %v", c.in, seconds, unlimited, err, c.seconds, c.unlimited)
		}
	}
	for in, why := range map[string]string{
		"": "nothing given", " ": "not a whole number", "unlim": "not a whole number", "1.5": "not a whole number",
		"5m": `"5m" is not a whole number`, "5 ": "not a whole number", "+5": "not a whole number",
		":5": "a number is missing", "5:": "a number is missing", "1:-5": "not a whole number",
		"1:2:3:4": "too many colons", "1-2-3": "not a whole number", "-5": "negative", "-": "negative",
		"4294967294": "too long", "99999999999": "too long", "9999999999-0": "too long",
	} {
		_, _, err := ParseLimit(in)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Why, why) {
			t.Errorf("ParseLimit(%q): %v; want %q", in, err, why)
		}
	}
	_, _, err := ParseLimit("5m")
	want := `invalid time limit "5m": "5m" is not a whole number; write minutes, minutes:seconds, ` +
		`hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds or UNLIMITED`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if n, err := ParseDuration("0"); n != 0 || err != nil {
		t.Errorf("ParseDuration(0) = %d, %v", n, err)
	}
	if n, err := ParseDuration("14-0"); n != 14*86400 || err != nil {
		t.Errorf("ParseDuration(14-0) = %d, %v", n, err)
	}
	if _, err := ParseDuration("UNLIMITED"); err == nil {
		t.Error("ParseDuration takes UNLIMITED")
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		seconds        int64
		short, elapsed string
	}{
		{0, "0:00", "00:00:00"},
		{5, "0:05", "00:00:05"},
		{303, "5:03", "00:05:03"},
		{3723, "1:02:03", "01:02:03"},
		{183845, "2-03:04:05", "2-03:04:05"},
		{864000, "10-00:00:00", "10-00:00:00"},
		{-1, "INVALID", "INVALID"},
	} {
		if got := Short(c.seconds); got != c.short {
			t.Errorf("Short(%d) = %q; want %q", c.seconds, got, c.short)
		}
		if got := Elapsed(c.seconds); got != c.elapsed {
			t.Errorf("Elapsed(%d) = %q; want %q", c.seconds, got, c.elapsed)
		}
	}
	for _, c := range []struct {
		microseconds int64
		want         string
	}{
		{0, "00:00:00"},
		{999, "00:00:00"},
		{12_000, "00:00.012"},
		{3_271_499, "00:03.271"},
		{60_000_000, "00:01:00"},
		{59*60_000_000 + 59_999_999, "59:59.999"},
		{3600_000_000 + 5_000, "01:00:00"},
		{54375_000_000, "15:06:15"},
		{684768_500_000, "7-22:12:48"},
		{-1, "INVALID"},
	} {
		if got := TotalCPU(c.microseconds); got != c.want {
			t.Errorf("TotalCPU(%d) = %q; want %q", c.microseconds, got, c.want)
		}
	}
	if Limit(60, true) != "UNLIMITED" || Limit(60, false) != "1:00" || ElapsedLimit(60, true) != "UNLIMITED" ||
		ElapsedLimit(60, false) != "00:01:00" {
		t.Error("limits")
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"5", "1:30", "1-2:3:4", "UNLIMITED", "-1", "0:86400",
		"9999999999-9999999999:9999999999:9999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seconds, unlimited, err := ParseLimit(s)
		if err != nil {
			return
		}
		if seconds < 0 || seconds > MaxLimitSec || unlimited && seconds != 0 {
			t.Fatalf("%q: %d, %v", s, seconds, unlimited)
		}
		for _, text := range []string{Limit(seconds, unlimited), ElapsedLimit(seconds, unlimited)} {
			again, unlimited2, err := ParseLimit(text)
			if err != nil || again != seconds || unlimited2 != unlimited {
				t.Fatalf("%q: %d, %v; %q: %d, %v, %v", s, seconds, unlimited, text, again, unlimited2, err)
			}
		}
	})
}
