package format

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// flushAt is how many bytes Write gathers before it writes.
const flushAt = 64 << 10

// cell is one field in one place of a line.
type cell[T any] struct {
	field  *Field[T]
	width  int // runes; 0: as wide as the value
	right  bool
	widest bool   // Fit finds the width
	after  string // literal text up to the next cell
}

// Printer is a compiled format. It may be used for any number of rows, by one goroutine.
type Printer[T any] struct {
	lead   string
	cells  []cell[T]
	widest bool // a cell waits for Fit
	table  bool // headings are names, what is cut ends with +
	dashes bool
	buf    []byte // Fit's

	between string // the delimiter of parsable lines
}

func (p *Printer[T]) add(c cell[T]) error {
	if len(p.cells) == MaxCells {
		return fmt.Errorf("more than %d fields in one format", MaxCells)
	}
	p.cells = append(p.cells, c)
	return nil
}

// literal appends text that is no field.
func (p *Printer[T]) literal(s string) {
	if n := len(p.cells); n > 0 {
		p.cells[n-1].after += s
	} else {
		p.lead += s
	}
}

// Fields calls yield with each field that is shown, in order: for a command that fetches only what it
// needs.
func (p *Printer[T]) Fields(yield func(*Field[T]) bool) {
	for i := range p.cells {
		if !yield(p.cells[i].field) {
			return
		}
	}
}

// Fit makes the columns whose size is # at least as wide as their headings and as rows' values in them.
// It may be called for one lot of rows after the other, before the first line is printed.
func (p *Printer[T]) Fit(rows []T) {
	if !p.widest {
		return
	}
	for i := range p.cells {
		c := &p.cells[i]
		if !c.widest {
			continue
		}
		c.width = max(c.width, utf8.RuneCountInString(p.heading(c)))
		for r := range rows {
			p.buf = c.value(p.buf[:0], &rows[r])
			c.width = min(max(c.width, utf8.RuneCount(p.buf)), MaxWidth)
		}
	}
}

func (p *Printer[T]) heading(c *cell[T]) string {
	switch {
	case p.table && c.field.Title != "":
		return c.field.Title
	case p.table:
		return c.field.Name
	}
	return c.field.Heading
}

// value appends the cell's value as it is.
func (c *cell[T]) value(b []byte, row *T) []byte {
	if c.field.Append != nil {
		return c.field.Append(b, row)
	}
	return append(b, c.field.Get(row)...)
}

// AppendHeader appends the line of headings and, for an aligned table, the line of dashes.
func (p *Printer[T]) AppendHeader(b []byte) []byte {
	b = append(b, p.lead...)
	for i := range p.cells {
		c := &p.cells[i]
		start := len(b)
		b = append(b, p.heading(c)...)
		b = fit(b, start, c.width, c.right, !p.table && c.right && c.field.Whole)
		b = append(b, c.after...)
	}
	b = append(b, '\n')
	if !p.dashes {
		return b
	}
	for i := range p.cells {
		c := &p.cells[i]
		for range c.width {
			b = append(b, '-')
		}
		b = append(b, c.after...)
	}
	return append(b, '\n')
}

// AppendRow appends the line of one row.
func (p *Printer[T]) AppendRow(b []byte, row *T) []byte {
	b = append(b, p.lead...)
	for i := range p.cells {
		c := &p.cells[i]
		start := len(b)
		b = p.part(c.value(b, row), start, c.field)
		if c.width > 0 {
			n := len(b)
			whole := c.field.Whole && (c.right || p.table) && (c.field.Cuts == nil || !c.field.Cuts(row))
			b = fit(b, start, c.width, c.right, whole)
			if p.table && len(b) < n { // fit has cut it
				b = plus(b, start)
			}
		}
		b = append(b, c.after...)
	}
	return append(b, '\n')
}

// Write prints rows to w, with the headings before them if header is set, fitting # columns to them.
func (p *Printer[T]) Write(w io.Writer, rows []T, header bool) error {
	p.Fit(rows)
	b := make([]byte, 0, min(flushAt+4096, 128*(len(rows)+2)))
	if header {
		b = p.AppendHeader(b)
	}
	for i := range rows {
		b = p.AppendRow(b, &rows[i])
		if len(b) >= flushAt {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	_, err := w.Write(b)
	return err
}

// plus puts + in place of the last rune.
func plus(b []byte, start int) []byte {
	_, size := utf8.DecodeLastRune(b[start:])
	return append(b[:len(b)-size], '+')
}

const blanks = "                                "

// fit pads or cuts b[start:] to width runes; width 0 leaves it alone. A value that is too long stays
// where whole is set.
func fit(b []byte, start, width int, right, whole bool) []byte {
	if width == 0 {
		return b
	}
	n := utf8.RuneCount(b[start:])
	switch {
	case n == width:
		return b
	case n > width:
		if whole {
			return b
		}
		if n == len(b)-start {
			return b[:start+width]
		}
		at := start
		for range width {
			_, size := utf8.DecodeRune(b[at:])
			at += size
		}
		return b[:at]
	}
	end := len(b)
	for pad := width - n; pad > 0; {
		k := min(pad, len(blanks))
		b = append(b, blanks[:k]...)
		pad -= k
	}
	if right {
		pad := width - n
		copy(b[start+pad:], b[start:end])
		head := b[start : start+pad]
		for len(head) > 0 {
			head = head[copy(head, blanks):]
		}
	}
	return b
}

// String returns header and rows as text: for tests and small lists.
func (p *Printer[T]) String(rows []T, header bool) string {
	var b bytes.Buffer
	if err := p.Write(&b, rows, header); err != nil {
		return err.Error() // a bytes.Buffer doesn't fail
	}
	return b.String()
}
