package walltime

import (
	"errors"
	"strings"
	"testing"
)

func TestParseMemMiB(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "4000": 4000, "4G": 4096, "4GB": 4096, "4g": 4096, "4gb": 4096, "4Gb": 4096, "16384M": 16384,
		"4MB": 4,
		"12K": 1, "1024K": 1, "1025K": 2, "0K": 0, "500k": 1, "1KB": 1, "1T": 1 << 20, "1048576T": 1 << 40,
	} {
		if got, err := ParseMemMiB(in); err != nil || got != want {
			t.Errorf("ParseMemMiB(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "nothing given", "G": "doesn't start with a number", "-1": "negative", "1.5G": "only whole numbers",
		"1P": `unknown unit "P"`,
		"5X": `unknown unit "X"`, "4 G": `unknown unit " G"`, "64GiB": `unknown unit "GiB"`,
		"99999999999999999999": "too large", "1048577T": "too large",
	} {
		_, err := ParseMemMiB(in)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Why, why) || !strings.Contains(e.Error(), "4G") {
			t.Errorf("ParseMemMiB(%q): %v; want %q", in, err, why)
		}
	}
}

func TestFormatMem(t *testing.T) {
	for mib, want := range map[int64]string{0: "0", 1: "1M", 4000: "4000M", 4096: "4G", 1025: "1025M", 1 << 20: "1T",
		1 << 30: "1P"} {
		if got := FormatMem(mib); got != want {
			t.Errorf("FormatMem(%d) = %q; want %q", mib, got, want)
		}
	}
	for mib, want := range map[int64]string{0: "0", 1: "1M", 1023: "1023M", 64000: "62.50G", 256000: "250G",
		3 << 20: "3T"} {
		if got := FormatRounded(mib); got != want {
			t.Errorf("FormatRounded(%d) = %q; want %q", mib, got, want)
		}
	}
	for _, c := range []struct {
		n    int64
		unit byte
		want string
	}{{12345, 'K', "12345K"}, {2048, 'K', "2M"}, {1023, 0, "1023"}, {1024, 0, "1K"}, {0, 'K', "0"}, {1024, 'E', "1024E"}} {
		if got := FormatExact(c.n, c.unit); got != c.want {
			t.Errorf("FormatExact(%d, %c) = %q; want %q", c.n, c.unit, got, c.want)
		}
	}
	for _, c := range []struct {
		n        int64
		from, to byte
		want     string
	}{{12345, 'K', 'G', "0.01G"}, {4096, 'M', 'G', "4G"}, {4, 'G', 'M', "4096M"}, {0, 'K', 'G', "0"},
		{1536, 'K', 'M', "1.50M"}} {
		if got := FormatIn(c.n, c.from, c.to); got != c.want {
			t.Errorf("FormatIn(%d, %c, %c) = %q; want %q", c.n, c.from, c.to, got, c.want)
		}
	}
}

func TestParseCount(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "1k": 1024, "2K": 2048, "1m": 1 << 20, "2147483647": maxCount} {
		if got, err := ParseCount(in); err != nil || got != want {
			t.Errorf("ParseCount(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "k", "1x", "1g", "1kk", "-1", "1.5", "2147483648", "2048m", "+1", " 1"} {
		if got, err := ParseCount(in); err == nil {
			t.Errorf("ParseCount(%q) = %d", in, got)
		}
	}
	for in, want := range map[string][2]int64{"1": {1, 1}, "1-2": {1, 2}, "1-2k": {1, 2048}, "-3": {1, 3}, "4-4": {4, 4},
		"0": {0, 0}} {
		if least, most, err := ParseCountRange(in); err != nil || least != want[0] || most != want[1] {
			t.Errorf("ParseCountRange(%q) = %d, %d, %v", in, least, most, err)
		}
	}
	for _, in := range []string{"", "-", "1-", "2-1", "1,2", "1-2-3", "2:4"} {
		if least, most, err := ParseCountRange(in); err == nil {
			t.Errorf("ParseCountRange(%q) = %d, %d", in, least, most)
		}
	}
}

func FuzzParseMemMiB(f *testing.F) {
	for _, s := range []string{"4G", "1025K", "4000", "1T", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mib, err := ParseMemMiB(s)
		if err != nil {
			return
		}
		if mib < 0 {
			t.Fatalf("%q: %d", s, mib)
		}
		if text := FormatMem(mib); !strings.ContainsAny(text, "PE") { // sizes that --mem doesn't take
			if again, err := ParseMemMiB(text); err != nil || again != mib {
				t.Fatalf("%q: %d, %q, %d, %v", s, mib, text, again, err)
			}
		}
	})
}

func FuzzParseCount(f *testing.F) {
	for _, s := range []string{"1", "1k", "1-2m", "-3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseCount(s); err == nil && (n < 0 || n > maxCount) {
			t.Fatalf("%q: %d", s, n)
		}
		if least, most, err := ParseCountRange(s); err == nil && (least > most || least < 0) {
			t.Fatalf("%q: %d-%d", s, least, most)
		}
	})
}
