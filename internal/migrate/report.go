package migrate

import (
	"fmt"
	"strings"
)

// Kind says what became of something.
type Kind uint8

// The kinds, in the order of the sums.
const (
	Kept        Kind = iota // as it is
	Translated              // it is written otherwise
	Ignored                 // it has no meaning here
	Unsupported             // gbatch does not do it: a person decides what to do instead
	Person                  // it could not be carried over
	kinds
)

func (k Kind) String() string {
	return [kinds]string{"kept", "translated", "ignored", "not supported", "to be done"}[k]
}

// Item is one line of the report.
type Item struct {
	Kind Kind   `json:"-"`
	What string `json:"kind"`
	File string `json:"file"`
	Line int    `json:"line"` // 0: the file as a whole
	Key  string `json:"key"`
	Text string `json:"text"` // why, and what to do
}

// maxItems bounds the items of one kind that a report keeps; all are counted.
const maxItems = 10000

// Report is what became of everything that was read.
type Report struct {
	Items  []Item
	Counts [kinds]int
	More   int // items that are counted and not kept
}

// Add enters an item.
func (r *Report) Add(kind Kind, file string, line int, key, format string, args ...any) {
	r.Counts[kind]++
	if r.Counts[kind] > maxItems {
		r.More++
		return
	}
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	r.Items = append(r.Items, Item{kind, kind.String(), file, line, key, text})
}

// Lost reports whether something needs a person.
func (r *Report) Lost() bool { return r.Counts[Unsupported]+r.Counts[Person] > 0 }

// String gives "file:line: kind: key: text".
func (i Item) String() string {
	var b strings.Builder
	b.WriteString(i.File)
	if i.Line > 0 {
		fmt.Fprintf(&b, ":%d", i.Line)
	}
	b.WriteString(": " + i.Kind.String())
	for _, s := range []string{i.Key, i.Text} {
		if s != "" {
			b.WriteString(": " + s)
		}
	}
	return b.String()
}

// Sum gives the counts in one line.
func (r *Report) Sum() string {
	out := make([]string, 0, kinds)
	for k := range kinds {
		out = append(out, fmt.Sprintf("%d %s", r.Counts[k], k))
	}
	return strings.Join(out, ", ")
}

// Join adds the items of another report.
func (r *Report) Join(of *Report) {
	r.Items, r.More = append(r.Items, of.Items...), r.More+of.More
	for k, n := range of.Counts {
		r.Counts[k] += n
	}
}
