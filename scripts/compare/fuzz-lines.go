package main

// Random command lines that submit: what jobs and steps ask for, and a program that tells what became of it. Each
// line comes from its seed alone, so that a seed repeats it.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// option is one that a line may have.
type option struct {
	name          string
	values, wrong []string
}

// options is the table of fuzz-options.txt, by command.
type options map[string][]option

// readOptions reads lines "COMMANDS OPTION : VALUES ! WRONG VALUES", and lists "<NAME> : WORDS".
func readOptions(path string) (options, error) {
	all := options{}
	err := tableLines(path, func(line string) error {
		head, list, ok := strings.Cut(line, " : ")
		commands, name, named := strings.Cut(head, " ")
		if !ok || !named && !strings.HasPrefix(head, "<") {
			return errors.New("expected COMMANDS OPTION : VALUES")
		}
		o := option{name: name, values: words(list)}
		if at := slices.Index(o.values, "!"); at >= 0 {
			o.values, o.wrong = o.values[:at], o.values[at+1:]
		}
		if len(o.values)+len(o.wrong) == 0 {
			return errors.New("values are missing")
		}
		for c := range strings.SplitSeq(commands, ",") {
			all[c] = append(all[c], o)
		}
		return nil
	})
	return all, err
}

// One of oneWrong options has a wrong value.
const oneWrong = 12

// pick gives the option with a value, as words of a shell.
func (o option) pick(r *rand.Rand) string {
	from := o.values
	if len(o.wrong) > 0 && (len(from) == 0 || r.IntN(oneWrong) == 0) {
		from = o.wrong
	}
	value := from[r.IntN(len(from))]
	name, joined := o.name, strings.HasSuffix(o.name, "=")
	if short, ok := strings.CutSuffix(name, "+"); ok {
		name, joined = short, true
	}
	switch {
	case value == "-":
		return name
	case joined || strings.HasPrefix(value, "="):
		return name + quoted(value)
	}
	return name + " " + quoted(value)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_=.,:/%+@$-]+$`)

// quoted makes a word for the shell; $HELD is for the shell to fill in.
func quoted(s string) string {
	s = strings.ReplaceAll(s, "<held>", "$HELD")
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// some picks up to most different options of a command, those at the table's top more often: they are what jobs are
// made of.
func (all options) some(r *rand.Rand, command string, most int) []string {
	list, out, taken := all[command], []string{}, map[int]bool{}
	for range r.IntN(most + 1) {
		i := r.IntN(len(list))
		if r.IntN(2) == 0 {
			i = min(i, r.IntN(len(list)))
		}
		if taken[i] || len(list[i].values) == 0 && r.IntN(oneWrong) > 0 {
			continue
		}
		taken[i] = true
		out = append(out, list[i].pick(r))
	}
	return out
}

// wait bounds each command of a line; what waits longer than that on both is no difference. sbatch -W asks seldom.
const (
	wait      = "timeout 10 "
	waitBatch = "timeout 18 "
)

// submission makes one random line of srun, salloc or sbatch.
func (all options) submission(r *rand.Rand) string {
	join := func(parts ...string) string {
		return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	}
	asked := func(command string, most int) string { return strings.Join(all.some(r, command, most), " ") }
	switch r.IntN(10) {
	case 0, 1, 2:
		return join(wait+"srun", asked("srun", 5), task(r))
	case 3, 4:
		return join(wait+"salloc", asked("salloc", 4), "sh -c", quoted(script(r, all)))
	case 5, 6:
		return join(waitBatch+"sbatch -W", asked("sbatch", 4), "--wrap", quoted(script(r, all)))
	case 7:
		return join(waitBatch+"sbatch -W", asked("sbatch", 2), "-o", quoted(pattern(r)), "--wrap", quoted("$PROBE where"))
	}
	// One that waits: lookScript shows it.
	return join(wait+"sbatch -H", asked("sbatch", 4), asked("held", 2), "-o /dev/null --wrap true")
}

// script is what runs in an allocation: the environment there, and a step or two.
func script(r *rand.Rand, all options) string {
	step := func() string {
		return strings.TrimSpace(wait + "srun " + strings.Join(all.some(r, "srun", 3), " ") + " " + task(r))
	}
	switch r.IntN(6) {
	case 0:
		return "$PROBE env"
	case 1:
		return "$PROBE where; " + step() + "; " + step()
	case 2:
		return step() + " & " + step() + " & wait"
	case 3:
		return "srun " + strings.Join(all.some(r, "srun", 2), " ") + " $PROBE where; echo $?"
	}
	return "$PROBE env; " + step()
}

// task is a program that tells where it runs and, mostly, one thing more.
func task(r *rand.Rand) string {
	tasks := []string{
		"$PROBE env", "$PROBE env", "$PROBE env", "$PROBE where", "$PROBE where", "$PROBE where",
		"$PROBE in </dev/null", "$PROBE exit 1 3",
		"$PROBE exit 0 1", "$PROBE signal 1 KILL", "$PROBE signal 0 SEGV", "$PROBE late 0 2", "--multi-prog $PROBES",
		"/nonexistent", "$PROBE in <$PROBES", "$PROBE in <$PROBES",
	}
	return tasks[r.IntN(len(tasks))]
}

// pattern is a random name of an output file.
func pattern(r *rand.Rand) string {
	pieces := []string{
		"%j", "%J", "%A", "%a", "%N", "%n", "%t", "%s", "%u", "%x", "%%", "%5j", "%3t", "%b", "%q", "%", "x",
		"-", ".out", `\%j`, "%04a", "%Z", "%12N",
	}
	var b strings.Builder
	fmt.Fprint(&b, "f")
	for range 1 + r.IntN(3) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}
