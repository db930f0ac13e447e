package format

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
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
			after = DefaultDelimiter
		}
		p.between = after
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

// DefaultDelimiter is between the fields of parsable lines.
const DefaultDelimiter = "|"

// written are the fields that have what users write, by their names in small letters.
var written = map[string]bool{"jobname": true, "comment": true, "admincomment": true, "systemcomment": true,
	"extra": true, "wckey": true, "container": true, "submitline": true, "workdir": true, "stdout": true, "stdin": true,
	"stderr": true, "constraints": true, "reason": true, "description": true, "organization": true}

// Parted replaces a delimiter in a value by question marks: a value that has one would be two fields for the program
// that reads the line, so that a job's name could forge the columns behind it.
func Parted(value, delimiter string) string {
	if delimiter == "" || !strings.Contains(value, delimiter) {
		return value
	}
	return strings.ReplaceAll(value, delimiter, strings.Repeat("?", utf8.RuneCountInString(delimiter)))
}

// part is Parted for the cell that begins at start. No value has the default delimiter unless a user has written it;
// others, such as a comma or a blank, are in values of all kinds, as in Slurm, and only users' texts can't have them.
func (p *Printer[T]) part(b []byte, start int, f *Field[T]) []byte {
	if p.between == "" || !bytes.Contains(b[start:], []byte(p.between)) ||
		p.between != DefaultDelimiter && !written[strings.ToLower(f.Name)] {
		return b
	}
	return append(b[:start], Parted(string(b[start:]), p.between)...)
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
