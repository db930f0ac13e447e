package main

// The differential fuzz: random command lines (fuzz-lines.go, fuzz-queries.go) on both clusters. What differs is
// grouped by a signature, which has no numbers and no quoted words, so that one cause is one group; each has the
// seeds that repeat it.
//
// A line's output is compared in stages, and the first stage that differs is all that is said: a step that one side
// refuses has no environment to compare.

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// The sorts of lines; -of names one.
const (
	queries     = "queries"
	submissions = "submissions"
)

// shownLines are the lines of each group that are printed.
const shownLines = 3

// group is what differs for one cause, as far as texts tell.
type group struct {
	signature string
	examples  []string
	count     int    // of lines
	last      uint64 // the last line's seed
}

type fuzz struct {
	*comparison
	all    options
	groups map[string]*group
	work   string // where tasks and output files of submissions are
}

// fuzzing runs n lines of each sort, of the seeds from seed on. The workload is there; queries come before
// submissions, which want idle nodes and end all jobs.
func (c *comparison) fuzzing(tables, of string, n int, seed uint64) error {
	all, err := readOptions(filepath.Join(tables, "fuzz-options.txt"))
	if err != nil {
		return err
	}
	if err := c.readDifferences(filepath.Join(tables, "fuzz-differences.txt")); err != nil {
		return err
	}
	work, err := os.MkdirTemp("/tmp", "gbf.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary directory that stays does no harm
	f := &fuzz{comparison: c, all: all, groups: map[string]*group{}, work: work}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // what was found until then is reported
	if of != submissions {
		for i := uint64(0); i < uint64(n) && ctx.Err() == nil; i++ {
			f.line(queries, seed+i)
		}
	}
	if of != queries {
		if err := f.makeTasks(); err != nil {
			return err
		}
		for i := uint64(0); i < uint64(n) && ctx.Err() == nil; i++ {
			f.submit(seed + i)
		}
	}
	return f.report()
}

// line compares one line on both.
func (f *fuzz) line(of string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(of))))
	line := f.all.query
	if of == submissions {
		line = f.all.submission
	}
	text := line(r)
	if f.verbose {
		fmt.Fprintf(f.out, "%d %s\n", seed, text)
		_ = f.out.Flush() // a report that can't be written has no reader
	}
	whole := text
	if of == submissions {
		whole += "; e=$?; $LOOK; exit $e"
	}
	var outputs [2]output
	kind := ""
	switch command, _, _ := strings.Cut(text, " "); {
	case of == submissions:
	case command == "scontrol":
		kind = "keys"
	case command == "squeue" || command == "sinfo":
		kind = "set" // the comparison's cases sort by keys that leave nothing to chance
	}
	var both sync.WaitGroup
	for i, s := range []*side{&f.real, &f.ours} {
		both.Go(func() { outputs[i] = told(s.sh(whole), f.work, kind) })
	}
	both.Wait()
	name := strings.NewReplacer(wait, "", waitBatch, "").Replace(text)
	for stage := range outputs[0] {
		if f.stage(name, of, seed, stage, outputs) {
			return
		}
	}
}

// stage compares one stage and says whether it differs so that what follows need not be looked at.
func (f *fuzz) stage(name, of string, seed uint64, stage int, outputs [2]output) bool {
	a, b := f.without(name, outputs[0][stage], outputs[1][stage])
	if stage == ends && a[0] != b[0] {
		// One goes on where the other doesn't: its first error tells why.
		tell := func(l []string) string {
			i := max(1, slices.IndexFunc(l, refusal.MatchString))
			return l[0] + strings.Join(l[i:min(len(l), i+1)], "")
		}
		p := [2]string{tell(a), tell(b)}
		if !f.onPurpose(name, p) {
			f.add(name, of, seed, p)
		}
		return true
	}
	kind := ""
	if stage == rest && (of == submissions || strings.HasPrefix(name, "scontrol")) {
		kind = "keys"
	}
	found := false
	for _, p := range align(a, b, kind) {
		switch {
		case p[0] == p[1]:
			f.same++
			continue
		case f.onPurpose(name, p):
			f.meant++
			continue
		}
		f.add(name, of, seed, p)
		found = true
		if kind == "" {
			break // the other rows of a table differ alike
		}
	}
	return found
}

// without leaves out what only one side prints, on purpose.
func (f *fuzz) without(name string, a, b []string) (left, right []string) {
	for _, l := range a {
		if slices.Contains(b, l) || !f.onPurpose(name, [2]string{l, nothing}) {
			left = append(left, l)
		}
	}
	for _, l := range b {
		if slices.Contains(a, l) || !f.onPurpose(name, [2]string{nothing, l}) {
			right = append(right, l)
		}
	}
	f.meant += len(a) + len(b) - len(left) - len(right)
	return left, right
}

// The stages: exit code and errors, tasks and files, the rest.
const (
	ends = iota
	tasksRun
	rest
	stages
)

// output is what a line printed, by stages. The first stage begins with the exit code.
type output [stages][]string

var (
	// A job's number differs from side to side as soon as one refuses what the other takes.
	jobNumber = regexp.MustCompile(`\b((?:[Jj]ob|JobId|ArrayJobId|StepId|SLURM_JOB_?ID|SLURM_ARRAY_JOB_ID|` +
		`SLURM_HET_JOB_ID|job_id|allocation|` +
		`slurm|SLURM_CPU_BIND_JOB|Step|step)[ =-]|[a-z]\.)\d{2,}\b`)
	submitted = regexp.MustCompile(`(?m)^Submitted batch job (\d+)`)
	number    = regexp.MustCompile(`\d+`)
	quotation = regexp.MustCompile(`"[^"]*"|'[^']*'|\([^)]*\)`)
	sideDir   = regexp.MustCompile(`/(slurm|gbatch)\b`)
	refusal   = regexp.MustCompile(`error: |fatal: |unrecognized option`)
	message   = regexp.MustCompile(`^(?:srun|slurmstepd|sbatch|salloc): `)
	// How long a job has run or waited: of the same width, as tables are.
	length     = regexp.MustCompile(`\b(?:\d+-)?(?:\d+:)?\d+:\d\d(?:\.\d+)?\b`)
	stepd      = regexp.MustCompile(`slurmstepd-n\d:`) // several slurmd on one host say who they are
	heldJob    = regexp.MustCompile(`(\b(?:after\w*):)\d+`)
	onlyNumber = regexp.MustCompile(`(?m)^\d{2,}$`) // sbatch --parsable
	shellLine  = regexp.MustCompile(`/bin/sh: \d+: |sh: \d+: `)
)

// ofNode is a node's name in a file's, which with real Slurm is this machine's: all its nodes are here.
var ofNode = func() *regexp.Regexp {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return regexp.MustCompile(`^(file .*?)(?:` + regexp.QuoteMeta(name) + `|n[1-4])`)
}()

// told sorts what a line printed into stages, without what must differ.
func told(text, work, kind string) output {
	text = strings.ReplaceAll(text, work, "WORK")
	if m := submitted.FindStringSubmatch(text); m != nil {
		text = regexp.MustCompile(`(?m)^(file .*?)0*`+m[1]).ReplaceAllString(text, "${1}N")
	}
	text = sideDir.ReplaceAllString(text, "/SIDE")
	text = jobNumber.ReplaceAllString(text, "${1}N")
	text = moment.ReplaceAllString(text, "<moment>")
	text = length.ReplaceAllStringFunc(text, func(s string) string { return number.ReplaceAllString(s, "9") })
	text = stepd.ReplaceAllString(text, "slurmstepd:")
	text = heldJob.ReplaceAllString(text, "${1}N")
	text = onlyNumber.ReplaceAllString(text, "N")
	text = shellLine.ReplaceAllString(text, "sh: ")
	code := "exit code 0 "
	var o output
	for _, l := range lines(text, kind) {
		switch {
		case strings.HasPrefix(l, "exit code "):
			code = l + " "
		case strings.HasPrefix(l, "stderr: "):
			o[ends] = append(o[ends], strings.TrimSuffix(l, "."))
		case message.MatchString(l):
			o[ends] = append(o[ends], "stderr: "+strings.TrimSuffix(l, ".")) // in the output file of a job
		case strings.HasPrefix(l, "task "), strings.HasPrefix(l, "file "):
			o[tasksRun] = append(o[tasksRun], ofNode.ReplaceAllString(l, "${1}NODE"))
		case strings.HasPrefix(l, "JobId="):
			o[rest] = append(o[rest], pairs(l)...)
		default:
			o[rest] = append(o[rest], l)
		}
	}
	if len(o[tasksRun]) > 0 || kind == "set" {
		slices.Sort(o[rest]) // tasks write at once
	}
	slices.Sort(o[ends])
	slices.Sort(o[tasksRun])
	o[ends] = append([]string{code}, o[ends]...)
	return o
}

// add puts a difference into its group.
func (f *fuzz) add(name, of string, seed uint64, p [2]string) {
	command, _, _ := strings.Cut(name, " ")
	plain := func(s string) string {
		s = quotation.ReplaceAllString(s, "(..)")
		return manyGaps.ReplaceAllString(number.ReplaceAllString(s, "9"), " ")
	}
	signature := command + ": " + plain(p[0]) + "  ->  " + plain(p[1])
	key, _, keyed := strings.Cut(cmp.Or(strings.Replace(p[0], nothing, "", 1), p[1]), "=")
	if keyed && !strings.HasPrefix(key, "stderr") {
		signature = command + ": " + number.ReplaceAllString(key, "9") + "="
		for i, s := range []string{"only gbatch has it", "only slurm has it"} {
			if p[i] == nothing {
				signature += " " + s
			}
		}
	}
	g := f.groups[signature]
	if g == nil {
		g = &group{signature: signature}
		f.groups[signature] = g
	}
	if g.last == seed {
		return // the tasks of a step differ alike
	}
	g.count, g.last = g.count+1, seed
	if len(g.examples) < shownLines {
		g.examples = append(g.examples,
			fmt.Sprintf("  %s %d: %s\n    slurm:  %s\n    gbatch: %s", of, seed, name, p[0], p[1]))
	}
}

// report prints the groups, the greatest first.
func (f *fuzz) report() error {
	var list []*group
	for _, g := range f.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int {
		return cmp.Or(b.count-a.count, strings.Compare(a.signature, b.signature))
	})
	total := 0
	for _, g := range list {
		total += g.count
		fmt.Fprintf(f.out, "%d x %s\n%s\n", g.count, g.signature, strings.Join(g.examples, "\n"))
	}
	fmt.Fprintf(f.out, "%d lines of output are equal, %d differ on purpose, %d differ in %d ways\n", f.same,
		f.meant, total, len(list))
	if len(list) > 0 {
		return fmt.Errorf("%d ways in which random lines differ", len(list))
	}
	return nil
}
