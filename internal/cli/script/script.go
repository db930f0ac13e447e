package script

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

const (
	// MaxBytes is the largest accepted script unless the configuration sets another limit (max_script_size).
	MaxBytes = 4 << 20
	// maxWarnings is the most warnings for one script.
	maxWarnings = 20
)

// Directive is one #SBATCH or #GBATCH line.
type Directive struct {
	Line int // from 1
	Args []string
	// Het is set on a line that separates the components of a heterogeneous job ("hetjob", "packjob");
	// Args is then what follows that word.
	Het bool
}

// Warning is about a line of a script that likely does not do what its author intends.
type Warning struct {
	Line int
	Text string // a sentence without the line number
}

// String gives the line number and the sentence.
func (w Warning) String() string { return "line " + strconv.Itoa(w.Line) + ": " + w.Text }

// Script is the result of Parse.
type Script struct {
	Directives []Directive
	// Foreign are #PBS and #BSUB lines, in sbatch's words; Unread what of them has none. They are weaker.
	Foreign  []Directive
	Unread   []string
	Warnings []Warning
	// Command is the line number of the first command, where directives end; 0: there is none.
	Command int
}

// SyntaxError is a directive that can't be read.
type SyntaxError struct {
	Line int
	Text string
}

func (e *SyntaxError) Error() string { return "line " + strconv.Itoa(e.Line) + ": " + e.Text }

// Parse finds the directives of a script. The error, if any, is a *SyntaxError.
func Parse(data []byte) (*Script, error) {
	s := &Script{}
	var late lateLines
	for n := 1; len(data) > 0; n++ {
		var raw []byte
		raw, data, _ = bytes.Cut(data, []byte{'\n'})
		if s.Command > 0 {
			late.line(s, n, raw)
			if len(s.Warnings) >= maxWarnings {
				break
			}
			continue
		}
		line := strings.TrimRight(string(raw), " \t\r")
		rest, directive := cutPrefix(line)
		switch {
		case directive:
			if err := s.directive(n, rest); err != nil {
				return nil, err
			}
		case strings.TrimLeft(line, " \t") == "":
		case strings.TrimLeft(line, " \t")[0] != '#':
			s.Command = n
			late.command(raw)
		default:
			if !s.foreignLine(n, line) {
				s.suspect(n, line)
			}
		}
	}
	return s, nil
}

// cutPrefix returns what follows #SBATCH or #GBATCH.
func cutPrefix(line string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(line, "#SBATCH"); ok {
		return rest, true
	}
	return strings.CutPrefix(line, "#GBATCH")
}

func (s *Script) directive(n int, text string) error {
	args, comment, err := words(text, true)
	if err != "" {
		return &SyntaxError{n, err}
	}
	if comment != "" {
		s.warn(n, "everything after the # in "+strconv.Quote(comment)+
			" is a comment; if it belongs to the value, put the value in quotes")
	}
	if len(args) == 0 {
		return nil
	}
	d := Directive{Line: n, Args: args}
	if args[0] == "hetjob" || args[0] == "packjob" {
		d.Het, d.Args = true, args[1:]
	}
	s.Directives = append(s.Directives, d)
	return nil
}

func (s *Script) warn(n int, text string) {
	if len(s.Warnings) < maxWarnings {
		s.Warnings = append(s.Warnings, Warning{n, text})
	}
}

// Words splits a line into words, quoted as in a directive, except that # is an ordinary character.
func Words(line string) ([]string, error) {
	args, _, problem := words(line, false)
	if problem != "" {
		return nil, errors.New(problem)
	}
	return args, nil
}

// words splits a directive into its words. If # begins comments, comment is the word that an unquoted # cuts in its
// middle.
func words(text string, comments bool) (args []string, comment, problem string) {
	var word []byte
	inWord := false
	var quote byte // the open quote, 0 outside
	opened := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			// A backslash at the end of a line is dropped: it quotes nothing.
			if i++; i < len(text) {
				word, inWord = append(word, text[i]), true
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, opened, inWord = c, i, true
		case c == ' ' || c == '\t' || c == '\r':
			if inWord {
				args, word, inWord = append(args, string(word)), word[:0], false
			}
		case c == '#' && comments:
			if inWord {
				comment = strings.TrimSpace(text[lastBlank(text, i):])
				args = append(args, string(word))
			}
			return args, comment, ""
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, "", "Unmatched `" + string(quote) + "` in [" + text[opened:] + "]"
	}
	if inWord {
		args = append(args, string(word))
	}
	return args, "", ""
}

// lastBlank returns the position of the last blank before i, or 0.
func lastBlank(text string, i int) int { return max(strings.LastIndexAny(text[:i], " \t"), 0) }

// Wrap makes a script of a --wrap command.
func Wrap(command string) []byte {
	return []byte("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + command + "\n")
}
