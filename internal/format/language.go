package format

import (
	"fmt"
	"strings"

	"gbatch/internal/suggest"
)

// Limits of what a format may ask for.
const (
	// MaxWidth is the widest column, in runes.
	MaxWidth = 10_000
	// MaxCells is how many fields one format has at most.
	MaxCells = 1000
)

// Field is one thing that can be shown of a row.
type Field[T any] struct {
	Name    string // for -O and tables, in its canonical spelling; "" where there is only a letter
	Letter  byte   // for -o; 0 where there is only a name
	Old     string // a name of older versions, which still finds it and is not listed; "" for none
	Heading string // for -o and -O; tables show Name
	Title   string // a table's heading where it is not the name
	Width   int    // a table's default width
	Left    bool   // a table's default is flush left; otherwise it is flush right
	// Whole values are not cut where they are flush right: squeue's node lists, a table's numbers.
	Whole bool
	Cuts  func(row *T) bool // with Whole, not nil: the rows whose values are cut all the same

	// Get returns the value; Append, where not nil, is used instead and appends it to b: for values
	// that would have to be allocated.
	Get    func(row *T) string
	Append func(b []byte, row *T) []byte
}

// Language is what one command can show.
type Language[T any] struct {
	Noun   string // "job", "node": for complaints
	Fields []Field[T]
}

// Unknown is a field asked for that there isn't.
type Unknown struct {
	Spec string   // as written
	Near []string // what may have been meant, nearest first
}

// UnknownError lists the unknown fields of a format. The Printer that comes with it works, without them:
// Slurm's squeue and sinfo complain and go on, sacct ends.
type UnknownError struct {
	Unknown []Unknown
	text    func(spec string) string
}

// Error has a line for each, in Slurm's words and without the program's name.
func (e *UnknownError) Error() string {
	var b strings.Builder
	for i, u := range e.Unknown {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.text(u.Spec))
		if len(u.Near) > 0 {
			b.WriteString(" (" + suggest.Question("", u.Near) + ")")
		}
	}
	return b.String()
}

// unknown collects into an UnknownError, made when first needed.
func (l *Language[T]) unknown(e *UnknownError, spec, word string, text func(string) string) *UnknownError {
	if e == nil {
		e = &UnknownError{text: text}
	}
	e.Unknown = append(e.Unknown, Unknown{Spec: spec, Near: suggest.Nearest(word, l.Names())})
	return e
}

func (l *Language[T]) invalid(spec string) string {
	return "Invalid " + l.Noun + " format specification: " + spec
}

// Names returns the names of all fields that have one, in order.
func (l *Language[T]) Names() []string {
	names := make([]string, 0, len(l.Fields))
	for i := range l.Fields {
		if n := l.Fields[i].Name; n != "" {
			names = append(names, n)
		}
	}
	return names
}

// AppendNames appends what --helpformat prints: the names in four columns.
func (l *Language[T]) AppendNames(b []byte) []byte {
	for i, n := range l.Names() {
		switch {
		case i == 0:
		case i%4 == 0:
			b = append(b, '\n')
		default:
			b = append(b, ' ')
		}
		start := len(b)
		b = append(b, n...)
		b = fit(b, start, 19, false, true)
	}
	return append(b, '\n')
}

func (l *Language[T]) letter(c byte) *Field[T] {
	for i := range l.Fields {
		if l.Fields[i].Letter == c && c != 0 {
			return &l.Fields[i]
		}
	}
	return nil
}

// name finds a field by its name, without regard to case.
func (l *Language[T]) name(name string) *Field[T] {
	for i := range l.Fields {
		f := &l.Fields[i]
		if f.Name != "" && strings.EqualFold(f.Name, name) || f.Old != "" && strings.EqualFold(f.Old, name) {
			return f
		}
	}
	return nil
}

// prefix finds a field by its name or else the first one, in the Language's order, whose name begins with
// name: sacct's "job" is JobID, whatever else begins so.
func (l *Language[T]) prefix(name string) *Field[T] {
	if f := l.name(name); f != nil || name == "" {
		return f
	}
	for i := range l.Fields {
		if f := &l.Fields[i]; len(f.Name) >= len(name) && strings.EqualFold(f.Name[:len(name)], name) {
			return f
		}
	}
	return nil
}

// size reads the digits at the head of s.
func size(s string) (n int, rest string, err error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		n = min(n*10+int(s[i]-'0'), MaxWidth+1)
		i++
	}
	if n > MaxWidth {
		return 0, "", fmt.Errorf("column width %s is over the limit of %d", s[:i], MaxWidth)
	}
	return n, s[i:], nil
}
