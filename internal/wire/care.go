package wire

import "gbatch/internal/plain"

// Care is what a reader does about texts with characters that are not plain (package plain), which can act on the
// screens and in the records of those who see them.
//
//	          Text      Derived   Lines            Data      ID
//	AsIs      kept      kept      kept             kept      kept
//	Refuse    refused   replaced  refused, lines   kept      kept
//	Keep      replaced  replaced  replaced, lines  kept      kept
//	Show      replaced  replaced  replaced, lines  replaced  kept
//
// "lines": line feeds and tabs are kept.
type Care uint8

// The kinds of care.
const (
	AsIs   Care = iota // a daemon reads what it or another one wrote; JSON, which has a form for every character
	Refuse             // a user's change
	Keep               // what will be kept or passed on, and can't be refused any more
	Show               // what people are shown
)

// NotPlain is the error of a text that is refused.
type NotPlain struct {
	Field string // the path to it: Spec.Comment, Set[3].Value
	Key   string // the word before it, if it is the value of one
	Why   error  // a *plain.Error
}

func (e *NotPlain) Error() string { return "the text has " + e.Why.Error() }

func (e *NotPlain) Unwrap() error { return e.Why }

// Blame names the word whose value was just read, for the error if that is refused.
func (c *C) Blame(key string) {
	if e, ok := c.err.(*NotPlain); ok && c.path == "" && e.Key == "" { //nolint:errorlint // it was just made
		e.Key = key
	}
}

// sort is what a string is for.
type sort uint8

const (
	oneLine sort = iota
	derived
	lines
	data
	anyBytes
)

// cared gives s as it is read with c's care.
func (c *C) cared(s string, is sort) string {
	var out string
	switch {
	case is == anyBytes, is == data && c.care != Show:
		return s
	case is == lines:
		if out = plain.Lines(s); out == s {
			return s
		}
	default:
		if out = plain.Line(s); out == s {
			return s
		}
	}
	if c.care == Refuse && is != derived {
		c.fail(&NotPlain{Why: plain.Check(s)})
		return ""
	}
	c.replaced = true
	return out
}

// ReadMessageWith is ReadMessage with care for the message's texts.
func ReadMessageWith(b []byte, x Coder, care Care) error {
	c := begin(b, false)
	c.message, c.allowed, c.care = true, Worth(len(b), x), care
	defer c.end()
	c.structure(x)
	return c.wrong(x)
}

// ReadValuesWith is ReadValues with care for texts. It reports whether one was replaced.
func ReadValuesWith(b []byte, care Care, f func(*C)) (replaced bool, err error) {
	c := begin(b, false)
	c.care = care
	defer c.end()
	f(c)
	return c.replaced, c.wrong(nil)
}

// More reports whether the struct, or the values, that are being read go on.
func (c *C) More() bool { return c.err == nil && c.n < c.fields && c.in.has(1) }
