package format

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// columnWidth is the width of a -O field without a size.
const columnWidth = 20

// Template compiles a -o format: %[[.]size]letter, everything else literal. A point means flush right;
// # in the size's place means as wide as the widest value (see Printer.Fit). Percent signs in a row count
// as one, as in Slurm. "%all" is every field that has a letter, with bars between.
//
// The error may be an *UnknownError, and the Printer still good: what was unknown is copied literally.
func (l *Language[T]) Template(template string) (*Printer[T], error) {
	if template == "%all" {
		return l.all(func(f *Field[T]) bool { return f.Letter != 0 }), nil
	}
	p := &Printer[T]{}
	var unknown *UnknownError
	lead, rest, more := strings.Cut(template, "%")
	p.lead = lead
	for more {
		var spec string
		spec, rest, more = strings.Cut(rest, "%")
		if spec == "" && more {
			continue
		}
		c := cell[T]{}
		s := spec
		if strings.HasPrefix(s, ".") {
			c.right, s = true, s[1:]
		}
		if strings.HasPrefix(s, "#") {
			c.widest, s = true, s[1:]
			p.widest = true
		}
		n, s, err := size(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.invalid("%"+spec), err)
		}
		c.width = n
		if s != "" {
			c.field = l.letter(s[0])
		}
		if c.field == nil {
			unknown = l.unknownLetter(unknown, spec, s)
			p.literal("%" + spec)
			continue
		}
		c.after = s[1:]
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	if unknown != nil {
		return p, unknown
	}
	return p, nil
}

// unknownLetter complains about %spec, of which the letter should be at the head of rest. A letter of the
// other case is what may have been meant.
func (l *Language[T]) unknownLetter(e *UnknownError, spec, rest string) *UnknownError {
	what := "%" + spec
	var near []string
	if rest != "" {
		_, size := utf8.DecodeRuneInString(rest)
		what = rest[:size]
		if c := rest[0]; (c|0x20) >= 'a' && (c|0x20) <= 'z' && l.letter(c^0x20) != nil {
			near = []string{"%" + string(rune(c^0x20))}
		}
	}
	if e == nil {
		e = &UnknownError{text: l.invalid}
	}
	e.Unknown = append(e.Unknown, Unknown{what, near})
	return e
}

// Columns compiles a -O format: field[:[.][size][suffix]] with commas between, names in any case. Without
// a colon a column is 20 wide; with one and no size it is as wide as its value. Flush left, with the
// point flush right. Empty entries (a trailing comma) are passed over. "all" is every named field, with
// bars between.
//
// The error may be an *UnknownError, and the Printer still good: what was unknown is left out.
func (l *Language[T]) Columns(format string) (*Printer[T], error) {
	if strings.EqualFold(format, "all") {
		return l.all(func(f *Field[T]) bool { return f.Name != "" }), nil
	}
	p := &Printer[T]{}
	var unknown *UnknownError
	for entry := range strings.SplitSeq(format, ",") {
		if entry == "" {
			continue
		}
		name, s, sized := strings.Cut(entry, ":")
		c := cell[T]{field: l.name(name), width: columnWidth}
		if c.field == nil {
			unknown = l.unknown(unknown, name, strings.TrimSpace(name), l.invalid)
			continue
		}
		if sized {
			if strings.HasPrefix(s, ".") {
				c.right, s = true, s[1:]
			}
			var err error
			if c.width, c.after, err = size(s); err != nil {
				return nil, fmt.Errorf("%s: %w", l.invalid(entry), err)
			}
		}
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	if unknown != nil {
		return p, unknown
	}
	return p, nil
}

// all is every field that choose takes, as wide as its value, with bars between.
func (l *Language[T]) all(choose func(*Field[T]) bool) *Printer[T] {
	p := &Printer[T]{}
	for i := range l.Fields {
		if f := &l.Fields[i]; choose(f) {
			p.cells = append(p.cells, cell[T]{field: f, after: "|"})
		}
	}
	if n := len(p.cells); n > 0 {
		p.cells[n-1].after = ""
	}
	return p
}
