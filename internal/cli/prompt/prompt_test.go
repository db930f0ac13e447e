package prompt

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/cli/env"
)

// TestRun: lines are done with the options that hold, quoted words stay together, and one failure is the exit code.
func TestRun(t *testing.T) {
	modes := []Mode{{Word: "oneliner", On: "-o"}, {Word: "verbose", Off: []string{"-Q"}}, {Word: "quiet", On: "-Q"},
		{Word: "parsable", On: "-p", Off: []string{"-P"}}, {Word: "parsable2", On: "-P", Off: []string{"-p"}},
		{Word: "all"}, {Word: "cluster", On: "--clusters", Value: true}, {Word: "time", On: "-t", Value: true}}
	for _, c := range []struct {
		in, want string
		rc       int
	}{
		{"", "x: \n", 0},
		{"\n  \nquit\nnever\n", "x: \nx:   \nx: quit\n", 0},
		{"show 'a b'\n", "x: show 'a b'\n[-i] [show] [a b]\nx: \n", 0},
		{"show 1\n!!\nexit", "x: show 1\n[-i] [show] [1]\nx: !!\n[-i] [show] [1]\nx: exit\n", 0},
		{"oneliner\noneliner\nall\na\n", "x: oneliner\nx: oneliner\nx: all\nx: a\n[-i] [-o] [a]\nx: \n", 0},
		{"parsable\nparsable2\na\nquiet\na\nVERBOSE\na\n", "x: parsable\nx: parsable2\nx: a\n" +
			"[-i] [-P] [a]\nx: quiet\nx: a\n[-i] [-P] [-Q] [a]\nx: VERBOSE\nx: a\n[-i] [-P] [a]\nx: \n", 0},
		{"cluster m\ncluster n\ntime Hours\na", "x: cluster m\nx: cluster n\nx: time Hours\nx: a\n" +
			"[-i] [--clusters=n] [-tHours] [a]\nx: \n", 0},
		{"cluster\n", "x: cluster\n[-i] [cluster]\nx: \n", 0},
		{"bad\ngood\n", "x: bad\n[-i] [bad]\nx: good\n[-i] [good]\nx: \n", 1},
		{"-o\n", "x: -o\nx: error: invalid keyword: -o: options stand behind a command\nx: \n", 1},
		{"show 'a\n", "x: show 'a\nx: error: Unmatched `'` in ['a]\nx: \n", 1},
		{strings.Repeat("a", maxLine+1), "x: x: error: a line has at most 65536 bytes\n", 1},
	} {
		var out strings.Builder
		e := &env.Env{Program: "x", Args: []string{"-i"}, Stdin: strings.NewReader(c.in), Stdout: &out, Stderr: &out}
		rc := Run(e, Config{Modes: modes, Do: func(e *env.Env) int {
			for i, a := range e.Args {
				if i > 0 {
					fmt.Fprint(e.Stdout, " ")
				}
				fmt.Fprintf(e.Stdout, "[%s]", a)
			}
			fmt.Fprintln(e.Stdout)
			if e.Args[len(e.Args)-1] == "bad" {
				return 1
			}
			return 0
		}})
		if out.String() != c.want || rc != c.rc {
			t.Errorf("%.40q: %q, exit %d; want %q, exit %d", c.in, out.String(), rc, c.want, c.rc)
		}
	}
	if !Is(modes, []string{"all"}) || Is(modes, []string{"all", "x"}) || Is(modes, nil) {
		t.Error("Is")
	}
}
