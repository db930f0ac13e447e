// Command compare runs the same commands on real Slurm and on gbatch and compares what they print; scripts/compare.sh
// starts both and calls it.
//
//	compare -real DIR:CONF -ours DIR:CONF [-only WORD] [-table] TABLES
//
// DIR is where the commands are, CONF the configuration (SLURM_CONF and GBATCH_CONF). TABLES is
// the directory with workload.txt (what both clusters are given), cases.txt (what is compared) and differences.txt
// (what differs on purpose, and why). One line of output is one comparison.
package main

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
type side struct{ name, dir, conf string }

// sh runs one shell command and gives its output, then its errors, then its exit code if that is not 0.
func (s *side) sh(line string) string {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir = "/tmp"
	cmd.Env = []string{
		"PATH=" + s.dir + ":/usr/bin:/bin", "SLURM_CONF=" + s.conf, "GBATCH_CONF=" + s.conf, "HOME=/root", "USER=root",
		"TZ=UTC", "LANG=C.UTF-8",
	}
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

func (c *comparison) workload(path string) error {
	return tableLines(path, func(line string) error {
		words := strings.Fields(line)
		switch words[0] {
		case "settle":
			time.Sleep(3 * time.Second) // slurmctld tells slurmdbd in its own time and doesn't say when
			return nil
		case "cases":
			return c.cases(filepath.Join(filepath.Dir(path), "cases.txt"), "")
		case "wait":
			return c.wait(words[1], words[2:])
		}
		c.compare(line, line, "")
		return nil
	})
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

var (
	moment = regexp.MustCompile(`\b202[5-9]-\d\d-\d\dT\d\d:\d\d:\d\d\b|` +
		`\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d 20\d\d`)
	tasks    = regexp.MustCompile(`(?m)(?:^| +)([0-9]+)_\[[0-9][0-9,:%-]*\]?(?: +$)?`)
	digits   = regexp.MustCompile(`[0-9][0-9.:]*[KMGT]?\b`)
	manyGaps = regexp.MustCompile(`  +`)
)

// lines makes comparable lines of a command's output.
func lines(text, kind string) []string {
	text = moment.ReplaceAllString(text, "<moment>")
	text = tasks.ReplaceAllString(text, " ${1}_[tasks]") // 22.05 writes [1,3,5] after an update, newer ones [1-5:2]
	if strings.HasSuffix(kind, "~") {
		text = manyGaps.ReplaceAllString(digits.ReplaceAllString(text, "9"), " ")
	}
	switch strings.TrimSuffix(kind, "~") {
	case "keys":
		return pairs(text)
	case "config":
		var out []string
		for l := range strings.Lines(text) {
			if key, _, ok := strings.Cut(l, " "); ok && strings.Contains(l, "=") {
				out = append(out, key)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	out := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ") // filling at the end of a line is no difference
	}
	return out
}

var keyAt = regexp.MustCompile(`(^| )([A-Za-z][A-Za-z/:&-]*)=`)

// moving are keys whose values differ from run to run or host to host.
var moving = regexp.MustCompile(`^(RunTime|AllocNode:Sid|CPULoad|FreeMem|BootTime|SlurmdStartTime|LastBusyTime|OS|` +
	`Version|NodeAddr|NodeHostName|Port|Arch|Priority|SecsPreSuspend|LastSchedEval|AccrueTime)=`)

// pairs makes of scontrol's text one line for each KEY=VALUE, with the block's number in front.
func pairs(text string) []string {
	var out []string
	for block := range strings.SplitSeq(text, "\n\n") {
		first := len(out)
		for l := range strings.Lines(block) {
			l = strings.TrimSpace(l)
			at := keyAt.FindAllStringSubmatchIndex(l, -1)
			if len(at) == 0 && l != "" {
				out = append(out, l)
			}
			for i, m := range at {
				end := len(l)
				if i+1 < len(at) {
					end = at[i+1][0]
				}
				p := l[m[4]:end]
				if moving.MatchString(p) {
					p, _, _ = strings.Cut(p, "=")
				}
				out = append(out, strings.TrimRight(p, " "))
			}
		}
		out = append(out[:first], oneTRES(out[first:])...)
	}
	return out
}

// oneTRES makes of a job's ReqTRES and AllocTRES the one TRES that Slurm had before 23.02: what the job has, or, before
// it has started, what it asks for.
func oneTRES(block []string) []string {
	req := slices.IndexFunc(block, func(p string) bool { return strings.HasPrefix(p, "ReqTRES=") })
	alloc := slices.IndexFunc(block, func(p string) bool { return strings.HasPrefix(p, "AllocTRES=") })
	if req < 0 || alloc < 0 {
		return block
	}
	tres := strings.TrimPrefix(block[alloc], "Alloc")
	if tres == "TRES=(null)" {
		tres = strings.TrimPrefix(block[req], "Req")
	}
	block[req] = tres
	return slices.Delete(block, alloc, alloc+1)
}

// align pairs lines: equal ones first, by the longest common subsequence, then what belongs together. With a kind only
// lines of the same key do; else all do, in order.
func align(a, b []string, kind string) [][2]string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out [][2]string
	var left, right []string
	flush := func() {
		out = append(out, pairUp(left, right, kind)...)
		left, right = nil, nil
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			flush()
			out = append(out, [2]string{a[i], b[j]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			left, i = append(left, a[i]), i+1
		default:
			right, j = append(right, b[j]), j+1
		}
	}
	flush()
	return out
}

const nothing = "<nothing>"

// pairUp pairs lines of which none is equal.
func pairUp(left, right []string, kind string) [][2]string {
	var out [][2]string
	keyed := strings.HasPrefix(kind, "keys") || kind == "config"
	keyOf := func(line string) string { key, _, _ := strings.Cut(line, "="); return key }
	for k, l := range left {
		same := k
		if keyed {
			same = slices.IndexFunc(right, func(r string) bool { return keyOf(r) == keyOf(l) })
		}
		if same < 0 || same >= len(right) {
			out = append(out, [2]string{l, nothing})
			continue
		}
		out = append(out, [2]string{l, right[same]})
		if keyed {
			right = slices.Delete(right, same, same+1)
		}
	}
	if !keyed {
		right = right[min(len(left), len(right)):]
	}
	for _, r := range right {
		out = append(out, [2]string{nothing, r})
	}
	return out
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
