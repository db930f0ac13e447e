package conf

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Severity is the severity of a problem.
type Severity uint8

// The severities. Only an Error keeps a configuration from being used.
const (
	Note    Severity = iota // accepted; says what it means here
	Warning                 // accepted, but a request in the file won't be fulfilled
	Error                   // refused
)

func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	default:
		return "error"
	}
}

// Problem is one remark about a configuration, at the place where it arises.
type Problem struct {
	File     string
	Line     int // 0: the file as a whole
	Severity Severity
	Text     string // what is wrong
	Hint     string // what to write or do instead; may be empty
}

// String gives "file:line: text; hint", with the severity in front of the text
// where it isn't an error.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(p.Line))
	}
	b.WriteString(": ")
	if p.Severity != Error {
		b.WriteString(p.Severity.String())
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// HasErrors reports whether one of the problems is an Error.
func HasErrors(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == Error })
}

// Limits of what is reported.
const (
	// MaxProblems is how many problems one Load reports.
	MaxProblems = 1000
	// maxLinesNamed is how many further lines a repeated remark names.
	maxLinesNamed = 8
	// maxShown is how much of a value a problem repeats.
	maxShown = 120
)

// shown prepares a value for a message: quoted, and shortened if it is too long.
func shown(v string) string {
	if len(v) > maxShown {
		v = strings.ToValidUTF8(v[:maxShown], "") + "…"
	}
	return strconv.Quote(v)
}

// pos is a place in a file.
type pos struct {
	file string
	line int
}

// problems collects problems in any order.
type problems struct {
	list []Problem
	// files gives each file its place in the order of reading.
	files map[string]int
	full  bool
}

func (p *problems) add(at pos, sev Severity, hint, format string, args ...any) {
	if len(p.list) >= MaxProblems*4 { // repeated remarks are merged later
		p.full = true
		return
	}
	p.list = append(p.list, Problem{at.file, at.line, sev, fmt.Sprintf(format, args...), hint})
}

func (p *problems) errorf(at pos, hint, format string, args ...any) {
	p.add(at, Error, hint, format, args...)
}

func (p *problems) warnf(at pos, hint, format string, args ...any) {
	p.add(at, Warning, hint, format, args...)
}

func (p *problems) notef(at pos, hint, format string, args ...any) {
	p.add(at, Note, hint, format, args...)
}

// reading tells the collector that a file is being read.
func (p *problems) reading(file string) {
	if p.files == nil {
		p.files = map[string]int{}
	}
	if _, known := p.files[file]; !known {
		p.files[file] = len(p.files)
	}
}

// hasErrors reports whether there are errors in a file of that name.
func (p *problems) hasErrors(name string) bool {
	return slices.ContainsFunc(p.list, func(q Problem) bool { return q.Severity == Error && path.Base(q.File) == name })
}

// sorted returns the problems by file, in reading order, and line; the same
// remark about several lines of a file becomes one that names them.
func (p *problems) sorted() []Problem {
	list := slices.Clone(p.list)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(p.order(a.File), p.order(b.File)), strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line))
	})
	type remark struct {
		file, text string
		sev        Severity
	}
	first := map[remark]int{}
	more := map[int][]int{}
	var out []Problem
	for _, q := range list {
		key := remark{q.File, q.Text, q.Severity}
		if i, repeated := first[key]; repeated {
			if lines := more[i]; q.Line != out[i].Line && !slices.Contains(lines, q.Line) {
				more[i] = append(lines, q.Line)
			}
			continue
		}
		if len(out) == MaxProblems {
			p.full = true
			break
		}
		first[key] = len(out)
		out = append(out, q)
	}
	for i, lines := range more {
		if len(lines) == 0 {
			continue
		}
		named := make([]string, 0, maxLinesNamed)
		for _, n := range lines[:min(len(lines), maxLinesNamed)] {
			named = append(named, strconv.Itoa(n))
		}
		text := "also line"
		if len(lines) > 1 {
			text += "s"
		}
		text += " " + strings.Join(named, ", ")
		if rest := len(lines) - len(named); rest > 0 {
			text += fmt.Sprintf(" and %d more", rest)
		}
		out[i].Text += " (" + text + ")"
	}
	if p.full {
		out = append(out, Problem{File: list[0].File, Severity: Error,
			Text: fmt.Sprintf("more than %d problems; the rest isn't shown", MaxProblems)})
	}
	return out
}

func (p *problems) order(file string) int {
	if n, ok := p.files[file]; ok {
		return n
	}
	return len(p.files)
}
