package getopt

import (
	"errors"
	"strings"

	"gbatch/internal/suggest"
)

// ErrHelp, ErrUsage and ErrVersion come out of Args when the option of that name was given: print it to
// stdout and exit 0.
var (
	ErrHelp    = errors.New("help asked for")
	ErrUsage   = errors.New("usage asked for")
	ErrVersion = errors.New("version asked for")
)

// Error is a complaint about an option. Error() is the whole text for stderr, of one to three lines,
// each with the program's name where Slurm's commands have it.
type Error struct {
	Program string
	Option  string // long name of the option in question, where there is one
	Text    string // the complaint, without the program's name
	Hint    string // "did you mean --time?", or ""
	Origin  Origin
	Err     error // what Set said, or nil

	Fatal  bool // "fatal: " stands before it
	severe bool // "error: " stands before it
	help   bool // `Try "x --help" ...` stands after it
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Program)
	b.WriteString(": ")
	// A complaint of several lines has the program's name on each.
	for i, line := range strings.Split(e.Text, "\n") {
		if i > 0 {
			b.WriteString("\n" + e.Program + ": ")
		}
		switch {
		case e.Fatal:
			b.WriteString("fatal: ")
		case e.severe:
			b.WriteString("error: ")
		}
		b.WriteString(line)
	}
	if e.Origin.Text != "" {
		b.WriteString(" (from " + e.Origin.Text + ")")
	}
	if e.Hint != "" {
		b.WriteString("\n" + e.Program + ": " + e.Hint)
	}
	if e.help {
		b.WriteString("\nTry \"" + e.Program + " --help\" for more information")
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// NumberError is what a Set function returns for a value that is no number or not one it takes. The
// user sees: Invalid numeric value "x" for --ntasks.
type NumberError struct {
	Value string
	Why   string // "it must be at least 1"; "" where it is no number at all
}

func (e *NumberError) Error() string {
	s := `invalid numeric value "` + e.Value + `"`
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// TextError is what a Set function returns to choose the whole sentence itself. Submission says that Slurm finds the
// mistake when it submits, and says first what failed (Config.Failure).
type TextError struct {
	Text       string
	Submission bool
}

func (e *TextError) Error() string { return e.Text }

func (p *Parser) fail(from Origin, text string) *Error {
	return &Error{Program: p.c.Program, Text: text, Origin: from}
}

// usage is an error about the form of the command line.
func (p *Parser) usage(from Origin, text string) *Error {
	e := p.fail(from, text)
	e.help = true
	return e
}

// invalid is an error about a value, made from Set's error.
func (p *Parser) invalid(o *Option, f *occurrence, err error) *Error {
	var number *NumberError
	var text *TextError
	e := p.fail(f.origin, "")
	e.severe, e.Option, e.Err = true, o.Name, err
	switch {
	case errors.As(err, &text):
		if e.Text = text.Text; text.Submission {
			e.Text = p.c.Failure + e.Text
		}
	case errors.As(err, &number) && number.Why != "":
		e.Text = `Invalid numeric value "` + number.Value + `" for ` + o.display() + ": " + number.Why + "."
	case errors.As(err, &number):
		e.Text = `Invalid numeric value "` + number.Value + `" for ` + o.display() + "."
	default:
		e.Text = "Invalid " + o.display() + " specification: " + err.Error()
	}
	return e
}

// ambiguous lists, in the table's order, the names that begin with name.
func (p *Parser) ambiguous(name, arg string, from Origin) *Error {
	var b strings.Builder
	b.WriteString("option '--" + arg + "' is ambiguous; possibilities:")
	for i := range p.c.Options {
		for n := range p.c.Options[i].names {
			if strings.HasPrefix(n, name) {
				b.WriteString(" '--" + n + "'")
			}
		}
	}
	return p.usage(from, b.String())
}

func (p *Parser) unknownLong(name, arg string, from Origin) *Error {
	e := p.usage(from, "unrecognized option '--"+arg+"'")
	e.Hint = suggest.Question("--", suggest.Nearest(name, p.suggestable()))
	return e
}

// unknownShort also recognizes a long option written with one dash: -job-name=x.
func (p *Parser) unknownShort(letter, arg string, from Origin) *Error {
	e := p.usage(from, "invalid option -- '"+letter+"'")
	word, _, _ := strings.Cut(arg[1:], "=")
	if len(word) > 2 {
		e.Hint = suggest.Question("--", suggest.Nearest(word, p.suggestable()))
	}
	return e
}

// suggestable are the long names worth proposing: those that work.
func (p *Parser) suggestable() []string {
	var names []string
	for i := range p.c.Options {
		o := &p.c.Options[i]
		if o.Refused == "" && !o.Hidden {
			for n := range o.names {
				names = append(names, n)
			}
		}
	}
	return names
}
