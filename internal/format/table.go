package format

import (
	"fmt"
	"strings"
)

// Style is how a table's lines look.
type Style struct {
	// Parsable lines have the Delimiter after every field (-p), with NoTrailing only between them (-P).
	// Otherwise columns are aligned, with a blank after each and a line of dashes under the headings.
	Parsable   bool
	NoTrailing bool
	Delimiter  string // of any length; "" is "|"
}

// Table compiles a --format of sacct, sshare or sacctmgr: field[%[-]width] with commas between. A field may
// be shortened to any prefix: the first field in the Language's order that begins so is meant. A negative
// width is flush left. Blanks around entries and empty entries are passed over; "all" is every field.
//
// The error may be an *UnknownError, and the Printer still good: what was unknown is left out.
func (l *Language[T]) Table(format string, style Style) (*Printer[T], error) {
	p := &Printer[T]{table: true, dashes: !style.Parsable}
	after := " "
	if style.Parsable {
		after = style.Delimiter
		if after == "" {
			after = "|"
		}
	}
	var unknown *UnknownError
	for entry := range strings.SplitSeq(format, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if strings.EqualFold(entry, "all") {
			for i := range l.Fields {
				if f := &l.Fields[i]; f.Name != "" {
					if err := p.add(l.column(f, style, after)); err != nil {
						return nil, err
					}
				}
			}
			continue
		}
		name, width, sized := strings.Cut(entry, "%")
		f := l.prefix(name)
		if f == nil {
			unknown = l.unknown(unknown, name, name, invalidField)
			continue
		}
		c := l.column(f, style, after)
		if sized {
			digits, negative := strings.CutPrefix(width, "-")
			n, rest, err := size(digits)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", invalidField(entry), err)
			}
			if n == 0 || rest != "" {
				return nil, fmt.Errorf("%s: the width is a number, %s%%20 or flush left %s%%-20", invalidField(entry), name, name)
			}
			if !style.Parsable {
				c.width, c.right = n, !negative
			}
		}
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	if n := len(p.cells); n > 0 && style.Parsable && style.NoTrailing {
		p.cells[n-1].after = ""
	}
	if unknown != nil {
		return p, unknown
	}
	return p, nil
}

func invalidField(spec string) string { return `Invalid field requested: "` + spec + `"` }

// column is a field with its default width, or without one where lines are parsable.
func (l *Language[T]) column(f *Field[T], style Style, after string) cell[T] {
	c := cell[T]{field: f, after: after, right: !f.Left, width: f.Width}
	if style.Parsable {
		c.width = 0
	}
	return c
}
