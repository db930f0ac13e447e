package slurmjson

import (
	"bytes"
	"io"
	"strings"
)

// yamlWriter turns the JSON that is written to it into YAML in blocks, as it comes: a list of any length needs no more
// memory than one text of it.
type yamlWriter struct {
	to    io.Writer
	out   bytes.Buffer
	text  []byte // a string, number or word whose end is not there yet
	quote bool   // text is a string that goes on
	slash bool   // the next byte belongs to a backslash
	begun bool
	open  byte // '{' or '[' whose first item, or end, comes next
	space bool // open stands behind a key
	named bool // a key was written: its value comes next
	in    []yamlBlock
}

// yamlBlock is an object or a list that is open.
type yamlBlock struct {
	kind   byte // '{' or '['
	indent int
	inline bool // its first item goes on behind the dash of the list that it is in
	items  int
}

// YAML gives a writer of JSON that passes YAML on to another one.
func YAML(to io.Writer) io.Writer { return &yamlWriter{to: to} }

func (y *yamlWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		y.take(c)
	}
	_, err := y.out.WriteTo(y.to)
	return len(p), err
}

func (y *yamlWriter) take(c byte) {
	switch {
	case y.quote:
		y.text = append(y.text, c)
		switch {
		case y.slash:
			y.slash = false
		case c == '\\':
			y.slash = true
		case c == '"':
			y.quote = false
		}
		return
	case c == '"':
		y.text, y.quote = append(y.text, c), true
		return
	case c == ':':
		y.key()
		return
	case strings.IndexByte(" \t\r\n", c) >= 0:
		return // a value ends with what stands behind it
	case strings.IndexByte("{}[],", c) < 0:
		y.text = append(y.text, c) // a number or a word
		return
	}
	if len(y.text) > 0 {
		y.scalar()
	}
	switch c {
	case '{', '[':
		y.space = y.named && y.open == 0
		y.value()
		y.open = c
	case '}', ']':
		if y.open != 0 {
			if y.space {
				y.out.WriteByte(' ')
			}
			y.out.WriteString(map[byte]string{'{': "{}\n", '[': "[]\n"}[y.open])
			y.open = 0
		} else if n := len(y.in); n > 0 {
			y.in = y.in[:n-1]
		}
	}
}

// item begins a line for the next item of the block that is open, or goes on where its first one belongs.
func (y *yamlWriter) item() {
	if len(y.in) == 0 {
		return
	}
	b := &y.in[len(y.in)-1]
	if b.items++; b.items > 1 || !b.inline {
		y.out.WriteString(strings.Repeat(" ", b.indent))
	}
	if b.kind == '[' {
		y.out.WriteString("- ")
	}
}

// enter makes the block that was opened the innermost one: it has an item.
func (y *yamlWriter) enter() {
	if y.open == 0 {
		return
	}
	b := yamlBlock{kind: y.open}
	if n := len(y.in); n > 0 {
		switch up := y.in[n-1]; {
		case up.kind == '[':
			b.indent, b.inline = up.indent+len("- "), true
		case y.open == '{':
			b.indent = up.indent + 2
		default:
			b.indent = up.indent
		}
		if !b.inline {
			y.out.WriteByte('\n')
		}
	}
	y.open = 0
	y.in = append(y.in, b)
}

func (y *yamlWriter) key() {
	y.enter()
	y.item()
	y.out.Write(yamlScalar(y.text))
	y.out.WriteByte(':')
	y.text, y.named = y.text[:0], true
}

// value begins a value: behind its key, or as an item of a list.
func (y *yamlWriter) value() {
	if !y.begun {
		y.begun = true
		y.out.WriteString("---\n")
	}
	wasOpen := y.open
	y.enter()
	if y.named && wasOpen == 0 {
		y.named = false
		return
	}
	y.item()
}

func (y *yamlWriter) scalar() {
	named := y.named && y.open == 0
	y.value()
	if named {
		y.out.WriteByte(' ')
	}
	y.out.Write(yamlScalar(y.text))
	y.out.WriteByte('\n')
	y.text = y.text[:0]
}

// yamlPlain reports whether a JSON string is one that YAML reads as a text without quotes too.
func yamlPlain(text []byte) bool {
	if len(text) < 3 || text[0] != '"' {
		return false
	}
	for i, c := range text[1 : len(text)-1] {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '/'
		if !letter && (i == 0 || (c < '0' || c > '9') && strings.IndexByte(".()+@=-", c) < 0) {
			return false
		}
	}
	return true
}

var yamlWords = map[string]bool{"true": true, "false": true, "null": true, "yes": true, "no": true, "on": true,
	"off": true, "y": true, "n": true}

// yamlScalar gives a JSON scalar in YAML. Quoted texts are the same in both.
func yamlScalar(text []byte) []byte {
	if !yamlPlain(text) {
		return text
	}
	if plain := text[1 : len(text)-1]; !yamlWords[strings.ToLower(string(plain))] {
		return plain
	}
	return text
}
