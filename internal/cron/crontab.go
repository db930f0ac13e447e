package cron

import (
	"fmt"
	"strings"
)

// Directive begins a line with options of the next entry.
const Directive = "#SCRON"

// Bounds of a crontab.
const (
	MaxText    = 64 << 10 // bytes
	MaxEntries = 256
	MaxCommand = 4 << 10 // bytes of an entry's command, with its variables filled in
)

// Entry is a job of a crontab.
type Entry struct {
	First, Last int // its lines, from 1: those of its options, and the entry's own
	Schedule    *Schedule
	Command     string // with variables filled in
	Options     []Option
}

// Option is a line with options.
type Option struct {
	Line int
	Text string // what follows #SCRON
}

// LineError is about a line of a crontab.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// Lines gives the lines of a crontab. Numbers of lines count from 1 in them.
func Lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// variable is a NAME=value line.
type variable struct{ name, value string }

// Read reads a crontab. An error is a *LineError.
func Read(text string) ([]Entry, error) {
	if len(text) > MaxText {
		return nil, &LineError{1 + strings.Count(text[:MaxText], "\n"),
			fmt.Errorf("a crontab has at most %d bytes", MaxText)}
	}
	var out []Entry
	var options []Option
	var vars []variable
	for i, line := range Lines(text) {
		n, line := i+1, strings.TrimRight(line, " \t\r")
		fail := func(err error) ([]Entry, error) { return nil, &LineError{n, err} }
		at := blanks(line, 0)
		if strings.HasPrefix(line[at:], Directive) {
			if rest := line[at+len(Directive):]; rest == "" || blank(rest[0]) {
				options = append(options, Option{n, rest})
				continue
			}
		}
		if at == len(line) || line[at] == '#' {
			continue
		}
		if v, is := setting(line); is {
			vars = append(vars, v)
			continue
		}
		s, rest, err := Parse(line)
		if err != nil {
			return fail(err)
		}
		e := Entry{First: n, Last: n, Schedule: s, Command: fill(line[rest:], vars), Options: options}
		if len(options) > 0 {
			e.First = options[0].Line
		}
		switch {
		case e.Command == "":
			return fail(&Error{rest + 1, "the command is missing"})
		case len(e.Command) > MaxCommand:
			return fail(&Error{rest + 1, fmt.Sprintf("the command is longer than %d bytes: call a script", MaxCommand)})
		case len(out) == MaxEntries:
			return fail(fmt.Errorf("a crontab has at most %d entries", MaxEntries))
		}
		out, options = append(out, e), nil
	}
	return out, nil
}

// setting reads a line NAME=value: blanks around = don't count, and quotes keep those of the value.
func setting(line string) (v variable, is bool) {
	at := blanks(line, 0)
	end := at
	for end < len(line) && nameByte(line[end], end == at) {
		end++
	}
	eq := blanks(line, end)
	if end == at || eq == len(line) || line[eq] != '=' {
		return v, false
	}
	value := strings.Trim(line[eq+1:], " \t")
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	return variable{line[at:end], value}, true
}

func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9'
}

// fill replaces $NAME and ${NAME} by the variables' values. Names that no line has set are the shell's.
func fill(command string, vars []variable) string {
	if len(vars) == 0 {
		return command
	}
	var out strings.Builder
	for i := 0; i < len(command) && out.Len() <= MaxCommand; i++ {
		if command[i] != '$' {
			out.WriteByte(command[i])
			continue
		}
		from := i + 1
		braced := from < len(command) && command[from] == '{'
		if braced {
			from++
		}
		to := from
		for to < len(command) && nameByte(command[to], to == from) {
			to++
		}
		whole := !braced || to < len(command) && command[to] == '}'
		value, found := "", false
		for _, v := range vars { // the last line counts
			if whole && v.name == command[from:to] {
				value, found = v.value, true
			}
		}
		if !found {
			out.WriteByte('$')
			continue
		}
		out.WriteString(value)
		if i = to - 1; braced {
			i = to
		}
	}
	return out.String()
}

// Mark gives a crontab with a word before some of its lines, which makes them comments.
func Mark(text, word string, marked func(line int) bool) string {
	var out strings.Builder
	for i, line := range Lines(text) {
		if marked(i + 1) {
			out.WriteString(word)
		}
		out.WriteString(line)
		out.WriteByte('\n')
	}
	return out.String()
}
