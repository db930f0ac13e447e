package getopt

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// complete.go answers a shell that completes a command line, from the table that the command reads its options by: what
// stands at the end of the line, an option, its value or an operand, and which options there are.

// Completing is the first argument of a command that is asked for completions; no shell can give it. The words of the
// line follow. Parse and Args then return ErrComplete.
const Completing = "\x00complete"

// ErrComplete comes out of Args for a line that begins with Completing.
var ErrComplete = errors.New("completion asked for")

// Kind is where the words for a place come from, besides those that are always the same.
type Kind uint8

const (
	Fixed Kind = iota // nowhere: Values.Words are all
	Files
	Dirs
	Commands // programs in PATH
	Jobs
	Nodes
	Partitions
	Accounts
	Users
	QOS
	Reservations
	Features
	Licenses
	Gres
	Clusters
	WCKeys
)

// Word is one that may stand in a place. It is an unfinished one if it ends in "=", ":" or ",".
type Word struct{ Text, Help string }

// Values says what may stand in a place.
type Values struct {
	Kind  Kind
	Words []Word
	List  bool // several, with commas between
	Head  int  // so many bytes of the operand stand before the value: "JobId="
}

// Place is what stands at the end of a command line.
type Place struct {
	Option   *Option  // the last word is its value, or ends in it; nil: it is none
	Names    bool     // it is the beginning of an option's name
	Operands []string // otherwise: the operands before it
	Head     string   // what stands before the value in the last word: "--partition=", "-p"
	Value    string   // what is typed of it
}

// Place finds out what the last of some words is. What is wrong in those before it does not matter.
func (p *Parser) Place(words []string) Place {
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	at := Place{Value: last}
	for len(before) > 0 {
		arg := before[0]
		before = before[1:]
		if arg == "--" {
			at.Operands = append(at.Operands, before...)
			return at
		}
		if len(arg) < 2 || arg[0] != '-' {
			at.Operands = append(at.Operands, arg)
			if p.c.Order == StopAtOperand {
				at.Operands = append(at.Operands, before...)
				return at
			}
			continue
		}
		o, value, attached := p.cut(arg)
		switch {
		case o == nil || o.Arg != Required || attached && (value != "" || strings.HasPrefix(arg, "--")):
		case len(before) == 0:
			at.Option = o
			return at
		default:
			before = before[1:]
		}
	}
	if !strings.HasPrefix(last, "-") {
		return at
	}
	if o, value, attached := p.cut(last); attached && o != nil {
		at.Option, at.Value, at.Head = o, value, strings.TrimSuffix(last, value)
		return at
	}
	at.Names = true
	return at
}

// cut splits a word that begins with a dash into its option, nil if it is unknown, and the value in it. attached says
// that the word has the place of a value in it.
func (p *Parser) cut(arg string) (o *Option, value string, attached bool) {
	if name, isLong := strings.CutPrefix(arg, "--"); isLong {
		name, value, attached = strings.Cut(name, "=")
		if i, err := p.long(name, name, Origin{}); err == nil {
			o = &p.c.Options[i]
		}
		return o, value, attached
	}
	for rest := arg[1:]; rest != ""; {
		letter, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		i := p.short(letter)
		if i < 0 {
			return nil, "", false
		}
		if o = &p.c.Options[i]; o.Arg != None {
			return o, rest, rest != ""
		}
	}
	return o, "", false
}

// Names lists the options that can be given, those with a value with "=" at the end. The value of an optional one may
// follow or not: such a one is there twice.
func (p *Parser) Names() []Word {
	var out []Word
	for o := range p.Options {
		if o.Name == "" {
			out = append(out, Word{o.display(), o.Help})
			continue
		}
		if o.Arg != Required {
			out = append(out, Word{o.display(), o.Help})
		}
		if o.Arg != None {
			out = append(out, Word{o.display() + "=", o.Help})
		}
	}
	return out
}

// Options gives those that can be given and are shown.
func (p *Parser) Options(yield func(*Option) bool) {
	for i := range p.c.Options {
		if o := &p.c.Options[i]; shown(o) && !yield(o) {
			return
		}
	}
}

// ValuesOf gives what the command itself says of an option's value; ok is false if it says nothing.
func (p *Parser) ValuesOf(o *Option) (v Values, ok bool) {
	if p.c.Values == nil {
		return Values{}, false
	}
	return p.c.Values(o.Name)
}

// OperandsAt gives what may stand at the place of an operand.
func (p *Parser) OperandsAt(at *Place) Values {
	if p.c.OperandValues == nil {
		return Values{}
	}
	return p.c.OperandValues(at.Operands, at.Value)
}

// Fields makes names into words, for a list with commas.
func Fields(names ...string) Values {
	v := Values{List: true}
	for _, n := range names {
		v.Words = append(v.Words, Word{Text: n})
	}
	return v
}

// Operands gives the same values for each operand.
func Operands(v Values) func([]string, string) Values {
	return func([]string, string) Values { return v }
}
