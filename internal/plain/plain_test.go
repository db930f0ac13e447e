package plain

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ text, line, lines, why string }{
		{"", "", "", ""},
		{"7 |x|, Übung 训练 e\u0301 \ufffd", "7 |x|, Übung 训练 e\u0301 \ufffd", "7 |x|, Übung 训练 e\u0301 \ufffd", ""},
		{"a\x1b[2Jb", "a?[2Jb", "a?[2Jb", "a control character (U+001B)"},
		{"a\nb\tc", "a?b?c", "a\nb\tc", "a line break (U+000A)"},
		{"a\rb", "a?b", "a?b", "a line break (U+000D)"},
		{"\x7f\x00", "??", "??", "a control character (U+007F)"},
		{"x\u009b31m", "x?31m", "x?31m", "a control character (U+009B)"},
		{"x\x9b31m", "x?31m", "x?31m", "a byte that is not UTF-8 (0x9b)"},
		{"exe.\u202etxt", "exe.?txt", "exe.?txt", "a character that changes the direction of writing (U+202E)"},
		{"a\u2028b", "a?b", "a?b", "a line break (U+2028)"},
		{"a\xed\xa0\x80", "a???", "a???", "a byte that is not UTF-8 (0xed)"}, // a surrogate
	} {
		err := Check(c.text)
		if why := ""; err != nil {
			if why = err.Error(); why != c.why {
				t.Errorf("%q: %s, want %q", c.text, why, c.why)
			}
		} else if c.why != "" {
			t.Errorf("%q is not plain", c.text)
		}
		if got := Line(c.text); got != c.line {
			t.Errorf("%q is %q in a line", c.text, got)
		}
		if got := Lines(c.text); got != c.lines {
			t.Errorf("%q is %q in lines", c.text, got)
		}
	}
	for r := range rune(unicode.MaxRune) { // against Unicode's own tables
		want := unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
		if utf8.ValidRune(r) && hostile(r) != want {
			t.Fatalf("%U: %v", r, hostile(r))
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b\xff\u202eb\n")
	f.Fuzz(func(t *testing.T, s string) {
		line, lines := Line(s), Lines(s)
		if err := Check(line); err != nil || !utf8.ValidString(lines) {
			t.Fatalf("%q: %q (%v), %q", s, line, err, lines)
		}
		if (Check(s) == nil) != (line == s) {
			t.Fatalf("%q: %q", s, line)
		}
		for part := range strings.SplitSeq(lines, "\n") {
			if Check(strings.ReplaceAll(part, "\t", "")) != nil {
				t.Fatalf("%q: %q", s, lines)
			}
		}
	})
}
