package submit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/script"
	"gbatch/internal/cron"
)

// firstCrontab is what a user without a crontab begins to edit.
const firstCrontab = `# Jobs that gbatch runs at certain times, again and again: an entry a line.
#
# minute hour day-of-month month day-of-week command
#
# Times go by the controllers' clock and time zone. Lines with #SCRON hold options of gsubmit for
# the entry that follows. To run a script at five each morning, for at most ten minutes:
#
# #SCRON --time=10
# 0 5 * * * /home/you/bin/nightly.sh
`

// change lets the user edit the crontab until it can be installed, or they give up.
func (x *crontab) change() error {
	text, r, err := x.fetch()
	if err != nil {
		return err
	}
	if !r.There {
		text = firstCrontab
	}
	for first := true; ; first = false {
		edited, err := x.editor(text)
		if err != nil {
			return err
		}
		if first && edited == text {
			fmt.Fprintf(x.Stderr, "%s: nothing has changed\n", x.Program)
			return nil
		}
		bad := x.install(edited)
		if bad == nil {
			return nil
		}
		x.Errorf("%s", env.Text(bad.err))
		if !x.agrees("The crontab is not installed. Edit it again? (y/n) ") {
			if left, err := x.leave(edited); err == nil {
				x.Errorf("what you have written is in %s", left)
			} else {
				x.Errorf("what you have written could not be kept: %v", err)
			}
			return errTold
		}
		text = edited
		if bad.First > 0 {
			text = cron.Mark(text, "#BAD: ", func(line int) bool { return int(bad.First) <= line && line <= int(bad.Last) })
		}
	}
}

// leave keeps a text that is not installed in a file of its own.
func (x *crontab) leave(text string) (string, error) {
	f, err := os.CreateTemp(x.Getenv("TMPDIR"), "crontab.")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

// agrees asks until the answer is yes or no. It reads byte by byte: what follows is the editor's.
func (x *crontab) agrees(question string) bool {
	for {
		fmt.Fprint(x.Stdout, question)
		if x.Flush() != nil {
			return false
		}
		var line []byte
		for one := make([]byte, 1); ; {
			n, err := x.Stdin.Read(one)
			if n > 0 && one[0] != '\n' {
				line = append(line, one[0])
				continue
			}
			if n > 0 {
				break
			}
			if err != nil {
				return false
			}
		}
		switch strings.ToLower(strings.TrimSpace(string(line))) {
		case "y", "yes":
			return true
		case "n", "no":
			return false
		}
	}
}

// editor has the user's editor change a text. The file is in a directory that only the user can enter.
func (x *crontab) editor(text string) (string, error) {
	words, err := script.Words(cmp.Or(x.Getenv("VISUAL"), x.Getenv("EDITOR"), "vi"))
	if err == nil && len(words) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("VISUAL or EDITOR names no program: %w", err)
	}
	dir, err := os.MkdirTemp(x.Getenv("TMPDIR"), "gcrontab-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing is left to do
	name := filepath.Join(dir, "crontab")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(words[0], append(words[1:], name)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = x.Stdin, os.Stdout, x.Stderr, x.Dir, x.Environ
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("the editor %s failed, and nothing has changed: %w", words[0], env.PlainExec(err))
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	return readCrontab(f)
}
