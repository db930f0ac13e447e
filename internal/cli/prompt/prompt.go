package prompt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/script"
	"gbatch/internal/terminal"
)

// maxLine is the longest line, in bytes.
const maxLine = 64 << 10

// Config is a command that reads commands.
type Config struct {
	Do    func(*env.Env) int // does one: Args are the options that hold, and the words of the line
	Modes []Mode
}

// Mode is a word that changes how the later lines are done.
type Mode struct {
	Word  string
	On    string   // the option that holds from now on; "": none
	Off   []string // the options that hold no longer
	Value bool     // it takes a value: cluster NAME
}

// Run reads and does commands. Its exit code is 1 if one of them failed.
func Run(e *env.Env, c Config) int {
	in := bufio.NewReaderSize(e.Stdin, maxLine) // the one that a command gets which asks a question
	echo := !Typed(e.Stdin)
	holds := slices.Clone(e.Args)
	rc, last := 0, ""
	for {
		fmt.Fprintf(e.Stdout, "%s: ", e.Program)
		flush(e.Stdout)
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			e.Errorf("a line has at most %d bytes", maxLine)
			return 1
		}
		text := strings.TrimRight(string(line), "\r\n")
		if err != nil && text == "" { // the end; an input that fails has ended too
			fmt.Fprintln(e.Stdout)
			return rc
		}
		if echo {
			fmt.Fprintln(e.Stdout, text)
		}
		if strings.TrimSpace(text) == "!!" {
			text = last
		}
		last = text
		words, bad := script.Words(text)
		if bad != nil {
			e.Errorf("%v", bad)
			rc = 1
			continue
		}
		if len(words) == 0 {
			continue
		}
		switch low := strings.ToLower(words[0]); {
		case len(words) == 1 && (low == "quit" || low == "exit" || low == "q"):
			return rc
		case strings.HasPrefix(low, "-"):
			e.Errorf("invalid keyword: %s: options stand behind a command", words[0])
			rc = 1
		default:
			if next, is := mode(c.Modes, holds, words); is {
				holds = next
				break
			}
			one := *e
			one.Stdin, one.Args = in, slices.Concat(holds, words)
			rc = max(rc, c.Do(&one))
		}
		flush(e.Stdout)
	}
}

// mode gives the options that hold after a line, if that is all that it changes.
func mode(modes []Mode, holds, words []string) ([]string, bool) {
	for _, m := range modes {
		if len(words) == 0 || !strings.EqualFold(m.Word, words[0]) || len(words) > 2 || len(words) == 2 != m.Value {
			continue
		}
		next := slices.DeleteFunc(slices.Clone(holds), func(o string) bool {
			return slices.Contains(m.Off, o) || m.On != "" && (o == m.On || m.Value && strings.HasPrefix(o, m.On))
		})
		switch {
		case m.Value && strings.HasPrefix(m.On, "--"):
			next = append(next, m.On+"="+words[1])
		case m.Value:
			next = append(next, m.On+words[1])
		case m.On != "":
			next = append(next, m.On)
		}
		return next, true
	}
	return nil, false
}

// Is reports whether words are one that only changes how later ones are done: alone on a command line it does nothing.
func Is(modes []Mode, words []string) bool {
	_, is := mode(modes, nil, words)
	return is
}

func flush(w io.Writer) {
	if f, ok := w.(interface{ Flush() error }); ok {
		_ = f.Flush() // the last flush reports it
	}
}

// Typed reports whether a person types the lines.
func Typed(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := terminal.ModesOf(int(f.Fd()))
	return err == nil
}
