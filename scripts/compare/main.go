package main

// main.go runs the workload and its cases: the same commands on both clusters.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// commandTime bounds one command, waitTime one wait of the workload.
const (
	commandTime = 20 * time.Second
	waitTime    = 60 * time.Second
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(args []string, out *os.File) error {
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	real := fs.String("real", "", "`DIR:CONF` of real Slurm")
	ours := fs.String("ours", "", "`DIR:CONF` of gbatch")
	only := fs.String("only", "", "compare only cases that contain this `WORD`; the workload is there already")
	lines := fs.Int("fuzz", 0, "compare `N` random lines of each sort (fuzz.go) in place of the cases")
	seed := fs.Uint64("seed", 1, "`SEED` of the first random line; those that follow count on")
	of := fs.String("of", "", "only random lines of this `SORT`: queries, of the workload, or submissions")
	there := fs.Bool("there", false, "the workload is there already")
	verbose := fs.Bool("v", false, "print each random line before it is run")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return errors.New("expected the directory of the tables; scripts/compare.sh calls this program")
	}
	c := &comparison{
		real: side{name: "slurm"}, ours: side{name: "gbatch"}, out: bufio.NewWriter(out),
	}
	defer func() { _ = c.out.Flush() }() // a report that can't be written has no reader
	for s, text := range map[*side]string{&c.real: *real, &c.ours: *ours} {
		dir, conf, ok := strings.Cut(text, ":")
		if !ok {
			return fmt.Errorf("%q is not DIR:CONF", text)
		}
		s.dir, s.conf = dir, conf
	}
	dir := fs.Arg(0)
	if err := c.readDifferences(filepath.Join(dir, "differences.txt")); err != nil {
		return err
	}
	c.verbose = *verbose
	if *lines > 0 {
		if !*there && *of != submissions {
			c.withoutCases = true
			if err := c.workload(filepath.Join(dir, "workload.txt")); err != nil {
				return err
			}
			c.same, c.meant, c.bad = 0, 0, nil // the comparison itself is for that
		}
		return c.fuzzing(dir, *of, *lines, *seed)
	}
	if *only == "" {
		if err := c.workload(filepath.Join(dir, "workload.txt")); err != nil {
			return err
		}
	} else if err := c.cases(filepath.Join(dir, "cases.txt"), *only); err != nil {
		return err
	}
	return c.report(*only == "")
}

// side is one of the two clusters.
type side struct {
	name, dir, conf string
	dirs            string   // each command runs in a new directory below it; empty: in /tmp
	env             []string // besides what all have
}

// sh runs one shell command and gives its output, then its errors, then its exit code if that is not 0.
func (s *side) sh(line string) string {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir = "/tmp"
	if s.dirs != "" {
		if err := errors.Join(os.RemoveAll(s.dirs), os.Mkdir(s.dirs, 0o777)); err != nil {
			return err.Error()
		}
		cmd.Dir = s.dirs
	}
	cmd.Env = []string{
		"PATH=" + s.dir + ":/usr/bin:/bin", "SLURM_CONF=" + s.conf, "GBATCH_CONF=" + s.conf, "HOME=/root", "USER=root",
		"TZ=UTC", "LANG=C.UTF-8",
	}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	text := stdout.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for l := range strings.Lines(stderr.String()) {
		text += "stderr: " + l
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		text += "\ntook longer than " + commandTime.String()
	case errors.As(err, &exit):
		text += fmt.Sprintf("exit code %d\n", exit.ExitCode())
	case err != nil:
		text += err.Error() + "\n"
	}
	return text
}

// difference is one on purpose: globs of the case and of both lines, and why.
type difference struct {
	name, real, ours, reason string
	re                       [3]*regexp.Regexp // in place of name, real and ours; nil: that is a glob
	used                     bool
}

func (d *difference) describes(name string, p [2]string) bool {
	fits := func(i int, pattern, s string) bool {
		if d.re[i] != nil {
			return d.re[i].MatchString(s)
		}
		return glob(pattern, s)
	}
	return fits(0, d.name, name) && fits(1, d.real, p[0]) && fits(2, strings.ReplaceAll(d.ours, "@", p[0]), p[1])
}

type comparison struct {
	real, ours  side
	out         *bufio.Writer
	known       []*difference
	same, meant int
	bad         []string

	withoutCases bool // the workload ends where the cases would come
	verbose      bool
}

func tableLines(path string, each func(line string) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := each(line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return nil
}

// readDifferences reads lines "CASE :: SLURM'S LINE :: OURS :: REASON"; @ in OURS is Slurm's line. Each of the first
// three is a text with * for any text or, after re:, a regular expression.
func (c *comparison) readDifferences(path string) error {
	return tableLines(path, func(line string) error {
		p := strings.Split(line, " :: ")
		if len(p) != 4 {
			return errors.New("expected CASE :: SLURM :: OURS :: REASON")
		}
		d := &difference{name: p[0], real: p[1], ours: p[2], reason: p[3]}
		for i := range d.re {
			text, ok := strings.CutPrefix(p[i], "re:")
			if !ok {
				continue
			}
			re, err := regexp.Compile("^(?:" + text + ")$")
			if err != nil {
				return err
			}
			d.re[i] = re
		}
		c.known = append(c.known, d)
		return nil
	})
}

// glob is whether pattern, in which * is any text, describes s.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := len(parts) - 1
	for _, p := range parts[1:last] {
		_, rest, ok := strings.Cut(s, p)
		if !ok {
			return false
		}
		s = rest
	}
	return strings.HasSuffix(s, parts[last])
}

// errEnough ends a table early.
var errEnough = errors.New("the rest is not wanted")

func (c *comparison) workload(path string) error {
	err := tableLines(path, func(line string) error {
		words := strings.Fields(line)
		switch words[0] {
		case "settle":
			time.Sleep(3 * time.Second) // slurmctld tells slurmdbd in its own time and doesn't say when
			return nil
		case "cases":
			if c.withoutCases {
				return errEnough
			}
			return c.cases(filepath.Join(filepath.Dir(path), "cases.txt"), "")
		case "wait":
			return c.wait(words[1], words[2:])
		}
		c.compare(line, line, "")
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// wait returns when the jobs run, or have ended, on both.
func (c *comparison) wait(state string, jobs []string) error {
	ask := "squeue -h -t all -o %T -j " + strings.Join(jobs, ",")
	if state == "end" {
		ask = "squeue -h -o %T -j " + strings.Join(jobs, ",")
	}
	for _, s := range []*side{&c.real, &c.ours} {
		until := time.Now().Add(waitTime)
		for {
			text := s.sh(ask)
			if state == "end" && text == "" || state == "run" && !strings.Contains(text, "PENDING") &&
				!strings.Contains(text, "CONFIGURING") {
				break
			}
			if time.Now().After(until) {
				// What follows compares all the same, and shows what is wrong.
				c.bad = append(c.bad, fmt.Sprintf("%s: jobs %v did not reach %q: %s", s.name, jobs, state, text))
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

// words splits at blanks; what stands in single quotes is one word.
func words(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		if rest, ok := strings.CutPrefix(s, "'"); ok {
			word, after, _ := strings.Cut(rest, "'")
			out, s = append(out, word), after
			continue
		}
		word, after, _ := strings.Cut(s, " ")
		out, s = append(out, word), after
	}
	return out
}

func (c *comparison) cases(path, only string) error {
	type one struct{ name, line, kind string }
	var all []one
	err := tableLines(path, func(line string) error {
		rest, ok := strings.CutPrefix(line, "each ")
		if !ok {
			return errors.New("expected each COMMAND : WORDS")
		}
		at := strings.LastIndex(rest, " : ")
		if at < 0 {
			return errors.New("the words are missing")
		}
		command, list, kind := rest[:at], rest[at+3:], ""
		for _, k := range []string{"keys", "config", "set"} {
			if after, ok := strings.CutPrefix(command, k+" "); ok {
				command, kind = after, k
			}
		}
		for _, w := range words(list) {
			k := kind
			if after, ok := strings.CutSuffix(w, "~"); ok {
				w, k = after, kind+"~"
			}
			name := strings.ReplaceAll(command, "@", w)
			if only == "" || strings.Contains(name, only) {
				all = append(all, one{name, name, k})
			}
		}
		return nil
	})
	for _, o := range all {
		c.compare(o.name, o.line, o.kind)
	}
	return err
}

// compare runs one case on both and counts its lines.
func (c *comparison) compare(name, line, kind string) {
	var real, ours string
	var both sync.WaitGroup
	both.Go(func() { real = c.real.sh(line) })
	both.Go(func() { ours = c.ours.sh(line) })
	both.Wait()
	a, b := lines(real, kind), lines(ours, kind)
	if strings.HasPrefix(kind, "keys") || strings.HasPrefix(kind, "set") {
		slices.Sort(a)
		slices.Sort(b)
	}
	for _, p := range align(a, b, kind) {
		switch {
		case p[0] == p[1]:
			c.same++
		case c.onPurpose(name, p):
			c.meant++
		default:
			c.bad = append(c.bad, fmt.Sprintf("%s\n    slurm:  %s\n    gbatch: %s", name, p[0], p[1]))
		}
	}
}

func (c *comparison) onPurpose(name string, p [2]string) bool {
	for _, d := range c.known {
		if d.describes(name, p) {
			d.used = true
			return true
		}
	}
	return false
}

// report prints what differs; unused says whether differences that no case has are named too.
func (c *comparison) report(unused bool) error {
	last := ""
	for _, b := range c.bad {
		name, rest, _ := strings.Cut(b, "\n")
		if name != last {
			fmt.Fprintln(c.out, name)
		}
		last = name
		if rest != "" {
			fmt.Fprintln(c.out, rest)
		}
	}
	for _, d := range c.known {
		if unused && !d.used {
			fmt.Fprintf(c.out, "not seen any more: %s :: %s :: %s\n", d.name, d.real, d.ours)
		}
	}
	fmt.Fprintf(c.out, "%d comparisons: %d equal, %d differ on purpose, %d differ\n", c.same+c.meant+len(c.bad), c.same,
		c.meant, len(c.bad))
	if len(c.bad) > 0 {
		return fmt.Errorf("%d differences that differences.txt does not have", len(c.bad))
	}
	return nil
}
