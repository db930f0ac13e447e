package plain

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// instead stands for a character that is not plain.
const instead = '?'

// Error is the first character of a text that is not plain.
type Error struct {
	Rune    rune // utf8.RuneError: the text is not UTF-8 there
	Invalid byte // the byte that belongs to no character, with utf8.RuneError
}

func (e *Error) Error() string {
	switch {
	case e.Rune == utf8.RuneError:
		return fmt.Sprintf("a byte that is not UTF-8 (0x%02x)", e.Invalid)
	case e.Rune == '\n' || e.Rune == '\r' || e.Rune == '\u2028' || e.Rune == '\u2029':
		return fmt.Sprintf("a line break (%U)", e.Rune)
	case e.Rune < ' ' || e.Rune >= 0x7f && e.Rune < 0xa0:
		return fmt.Sprintf("a control character (%U)", e.Rune)
	}
	return fmt.Sprintf("a character that changes the direction of writing (%U)", e.Rune)
}

// Check gives an *Error for the first character that is not plain, or nil.
func Check(s string) error {
	i := fine(s)
	if i == len(s) {
		return nil
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return &Error{Rune: r, Invalid: s[i]}
	}
	return &Error{Rune: r}
}

// Line gives s with ? in place of each character that is not plain; s itself if all are.
func Line(s string) string { return replace(s, false) }

// Lines is Line for a text of several lines: line feeds and tabs stay.
func Lines(s string) string { return replace(s, true) }

func replace(s string, lines bool) string {
	i := fine(s)
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:i])
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == utf8.RuneError && size == 1 || hostile(r):
			b.WriteRune(instead)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// fine is the number of bytes before the first character that is not plain.
func fine(s string) int {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || hostile(r) {
			return i
		}
		i += size
	}
	return len(s)
}

// hostile reports whether a character acts on more than its own place.
func hostile(r rune) bool {
	switch {
	case r < ' ' || r >= 0x7f && r < 0xa0:
	case r == '\u2028' || r == '\u2029':
	case r == '\u061c' || r == '\u200e' || r == '\u200f' || r >= '\u202a' && r <= '\u202e' ||
		r >= '\u2066' && r <= '\u2069':
	default:
		return false
	}
	return true
}
