package hostlist

import (
	"fmt"
	"strings"
)

// Limits of one expression.
const (
	// MaxHosts is the number of names that one expression may stand for.
	MaxHosts = 65536
	// MaxExprBytes is the length of one expression.
	MaxExprBytes = 1 << 20
	// MaxBrackets is the number of bracketed range lists in one name.
	MaxBrackets = 8

	// maxDigits keeps every number inside an int64.
	maxDigits = 18
	// maxShown is how much of an expression an error repeats.
	maxShown = 80
)

// Error says what is wrong with an expression and where.
type Error struct {
	Expr   string // the expression as given
	Pos    int    // byte offset in Expr, counted from 0
	Reason string // what is wrong and what to write
}

func (e *Error) Error() string {
	return fmt.Sprintf("%q at character %d: %s", shorten(e.Expr), e.Pos+1, e.Reason)
}

// shorten keeps an error readable when the expression is a page long.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// span is one range of a bracket, or one number where lo == hi. Numbers with
// fewer digits than width are padded with zeros.
type span struct {
	lo, hi int64
	width  int
}

// part is a piece of a name: literal text, or the ranges of one bracket.
type part struct {
	text  string
	spans []span
}

// name is one comma-separated element of an expression.
type name []part

// count returns how many hosts the name stands for, at most MaxHosts+1.
func (n name) count() int {
	total := int64(1)
	for _, p := range n {
		if p.spans == nil {
			continue
		}
		var here int64
		for _, s := range p.spans {
			here += s.hi - s.lo + 1
			if here > MaxHosts {
				return MaxHosts + 1
			}
		}
		total *= here
		if total > MaxHosts {
			return MaxHosts + 1
		}
	}
	return int(total)
}

func isSeparator(c byte) bool {
	return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

// parse reads a whole expression and refuses one that stands for too many hosts.
func parse(expr string) ([]name, error) {
	if len(expr) > MaxExprBytes {
		return nil, &Error{expr, MaxExprBytes, fmt.Sprintf("the list is longer than %d bytes; split it", MaxExprBytes)}
	}
	var names []name
	total := 0
	for i := 0; i < len(expr); {
		if isSeparator(expr[i]) {
			i++
			continue
		}
		start := i
		n, next, err := parseName(expr, i)
		if err != nil {
			return nil, err
		}
		i = next
		total += n.count()
		if total > MaxHosts {
			return nil, &Error{expr, start, fmt.Sprintf("the list stands for more than %d hosts; split it", MaxHosts)}
		}
		names = append(names, n)
	}
	return names, nil
}

// parseName reads one name from position i up to the next separator.
func parseName(expr string, i int) (name, int, error) {
	var n name
	brackets, text := 0, i
	flush := func() {
		if text < i {
			n = append(n, part{text: expr[text:i]})
		}
	}
	for i < len(expr) && !isSeparator(expr[i]) {
		switch c := expr[i]; {
		case c == '[':
			flush()
			if brackets++; brackets > MaxBrackets {
				return nil, 0, &Error{expr, i, fmt.Sprintf("more than %d brackets in one name", MaxBrackets)}
			}
			spans, next, err := parseBracket(expr, i)
			if err != nil {
				return nil, 0, err
			}
			n = append(n, part{spans: spans})
			i, text = next, next
		case c == ']':
			return nil, 0, &Error{expr, i, `"]" without "["; write n[1-4]`}
		case c < 0x20 || c == 0x7f:
			return nil, 0, &Error{expr, i, fmt.Sprintf("control character 0x%02x in a host name", c)}
		default:
			i++
		}
	}
	flush()
	return n, i, nil
}

// parseBracket reads "[1-3,07]" with its opening bracket at position open.
func parseBracket(expr string, open int) ([]span, int, error) {
	var spans []span
	i := open + 1
	for {
		lo, next, err := parseNumber(expr, i, open)
		if err != nil {
			return nil, 0, err
		}
		s := span{lo: lo, hi: lo, width: next - i}
		if next < len(expr) && expr[next] == '-' {
			from := i
			if s.hi, next, err = parseNumber(expr, next+1, open); err != nil {
				return nil, 0, err
			}
			if s.hi < s.lo {
				return nil, 0, &Error{expr, from, fmt.Sprintf("range %d-%d runs backwards; write %d-%d", s.lo, s.hi, s.hi, s.lo)}
			}
		}
		spans = append(spans, s)
		i = next
		if i >= len(expr) {
			return nil, 0, unclosed(expr, open)
		}
		switch expr[i] {
		case ']':
			return spans, i + 1, nil
		case ',':
			i++
		default:
			return nil, 0, &Error{expr, i,
				fmt.Sprintf("%q inside a bracket; only numbers, \"-\" and \",\" may stand there, as in n[1-3,7]", expr[i])}
		}
	}
}

func unclosed(expr string, open int) error {
	return &Error{expr, open, `"[" is never closed; write n[1-4]`}
}

// parseNumber reads the digits at position i.
func parseNumber(expr string, i, open int) (int64, int, error) {
	start := i
	var v int64
	for i < len(expr) && expr[i] >= '0' && expr[i] <= '9' {
		if i-start >= maxDigits {
			return 0, 0, &Error{expr, start, fmt.Sprintf("number with more than %d digits", maxDigits)}
		}
		v = v*10 + int64(expr[i]-'0')
		i++
	}
	if i > start {
		return v, i, nil
	}
	if i >= len(expr) {
		return 0, 0, unclosed(expr, open)
	}
	return 0, 0, &Error{expr, i, fmt.Sprintf("a number is expected here, not %q; write n[1-3,7]", expr[i])}
}
