package getopt

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTableIsSound(t *testing.T) {
	if err := Check(sbatchTable(&request{})); err != nil {
		t.Error(err)
	}
	bad := []Option{{}, {Name: "a", Help: "x"}, {Name: "b", Aliases: []string{"a"}, Help: "x"}, {Name: "c", Short: 'x'},
		{Name: "d", Short: 'x', Help: "x"},
		{Name: "e", Refused: "no", Set: func(string) error { return nil }}, {Name: "f=", Help: "x"},
		{Name: "g", Help: "x", Immediate: true}, {Name: "h", Help: "x", ArgsOnly: true, Env: "H"}}
	err := Check(bad)
	for _, want := range []string{"option 0", "--a is declared twice", "option 3 (--c): has no help",
		"-x is declared twice", "refused and has a Set", `"f=" is no long name`, "immediate", "command line only"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check doesn't find %q in: %v", want, err)
		}
	}
}

// The command lines that clients of Slurm give to sbatch (CLI.md section 2).
func TestSbatchShapes(t *testing.T) {
	for _, c := range []struct {
		name     string
		args     []string
		want     request
		operands []string
	}{
		{"snakemake",
			[]string{"--parsable", "--job-name", "UUID", "--output", "LOG", "--export=ALL", "--comment", "X", "-A", "acc", "-p",
				"part", "--clusters", "c", "-t", "120", "-C", "", "--qos=q", "--mem", "4096", "--nodes=1", "--requeue",
				"--reservation=", "--exclude=a,b", "--ntasks-per-gpu=", "--ntasks=1", "--cpus-per-task=4", "--gpus=a100:1",
				"--gres=gpu:1", "-D", "dir", "--array=1-100", "--wrap=python x -j 1"},
			request{parsable: true, jobName: "UUID", output: "LOG", export: "ALL", comment: "X", account: "acc",
				partition: "part", clusters: "c", time: "120", qos: "q", mem: "4096", nodes: "1", requeue: "yes", exclude: "a,b",
				ntasks: 1, cpus: 4, gpus: "a100:1", gres: "gpu:1", chdir: "dir", array: "1-100", wrap: "python x -j 1"}, nil},
		{"nextflow directives",
			strings.Fields("--array 0-99 -J nf-p_(1) -o /w/.command.log --no-requeue --signal B:USR2@30 -c 4 -t 26:00:00 " +
				"--mem 4096M -p q -A a"),
			request{array: "0-99", jobName: "nf-p_(1)", output: "/w/.command.log", requeue: "no", signal: "B:USR2@30", cpus: 4,
				time: "26:00:00", mem: "4096M", partition: "q", account: "a"}, nil},
		{"toil",
			[]string{"-J", "toil_job_1_x", "--signal=B:INT@30", "--export=ALL,K='v'", "--partition=p", "--qos=q", "--gres=gpu:1",
				"--mem=2048", "--cpus-per-task=2", "--time=0:7200", "-o", "/tmp/%j.out", "-e", "/tmp/%j.err",
				"--wrap=exec _toil_worker a b"},
			request{jobName: "toil_job_1_x", signal: "B:INT@30", export: "ALL,K='v'", partition: "p", qos: "q", gres: "gpu:1",
				mem: "2048", cpus: 2, time: "0:7200", output: "/tmp/%j.out", errFile: "/tmp/%j.err", wrap: "exec _toil_worker a b"},
			nil},
		{"OOD",
			strings.Fields("-H --requeue -D dir --mail-user a,b --mail-type ALL -J n -i f -o f -e f --reservation r -p q " +
				"--priority 5 --begin 2026-01-01T00:00:00 -A a -t 02:00:00 -a 1-3 --qos q --gpus-per-node g -n 4 -d " +
				"after:1,afterok:2 --export ALL,A,B --parsable -M cluster"),
			request{hold: true, requeue: "yes", chdir: "dir", mailUser: "a,b", mailType: "ALL", jobName: "n", input: "f",
				output: "f", errFile: "f", reservation: "r", partition: "q", prio: "5", begin: "2026-01-01T00:00:00", account: "a",
				time: "02:00:00", array: "1-3", qos: "q", gpusPerNode: "g", ntasks: 4, dep: "after:1,afterok:2", export: "ALL,A,B",
				parsable: true, clusters: "cluster"}, nil},
		{"cromwell",
			[]string{"-J", "n", "-D", "cwd", "-o", "out", "-e", "err", "-t", "600", "-p", "q", "-n", "2", "--mem-per-cpu=8000",
				"--wrap", "/usr/bin/env bash script"},
			request{jobName: "n", chdir: "cwd", output: "out", errFile: "err", time: "600", partition: "q", ntasks: 2,
				mem: "8000", wrap: "/usr/bin/env bash script"}, nil},
		{"torchx", strings.Fields("--parsable --mail-user=u --chdir=d path"),
			request{parsable: true, mailUser: "u", chdir: "d"}, []string{"path"}},
		{"buildkite: the script's own options",
			strings.Fields("--parsable --job-name=buildkite --comment=URL --output=P script --parsable -x arg"),
			request{parsable: true, jobName: "buildkite", comment: "URL", output: "P"},
			[]string{"script", "--parsable", "-x", "arg"}},
		{"batchspawner", strings.Fields("--parsable --export=PATH,HOME --get-user-env=L"),
			request{parsable: true, export: "PATH,HOME", userEnv: "L"}, nil},
		{"aiida", strings.Fields("-H --requeue --nice=10 --get-user-env script"),
			request{hold: true, requeue: "yes", nice: "10"}, []string{"script"}},
		{"dashes", strings.Fields("-WHO -- --script -a"), request{wait: true, hold: true, overcommit: true},
			[]string{"--script", "-a"}},
		{"stdin", strings.Fields("-v -vv - a"), request{verbose: 3}, []string{"-", "a"}},
		{"attached", strings.Fields("-Jname -n4 -t5 -Ho%j -pa=b"),
			request{jobName: "name", ntasks: 4, time: "5", hold: true, output: "%j", partition: "a=b"}, nil},
		{"prefixes", strings.Fields("--job=x --part q --cluster=c --exclusive --tasks=3 --nodes 2"),
			request{jobName: "x", partition: "q", clusters: "c", exclusive: "exclusive", perNode: 3, nodes: "2"}, nil},
		{"a value like an option", strings.Fields("-J --hold --comment -x"), request{jobName: "--hold", comment: "-x"}, nil},
		{"optional values aren't words", strings.Fields("--exclusive=user --nice script"), request{exclusive: "user"},
			[]string{"script"}},
		{"last wins", strings.Fields("-J a --job-name=b --mem=1 --mem-per-cpu=2"), request{jobName: "b", mem: "2"}, nil},
		{"lists add up", strings.Fields("--switches 1,,2 --switches=3"), request{switches: []string{"1", "2", "3"}}, nil},
	} {
		var got request
		operands, err := sbatch(&got).Parse(c.args, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
		if !slices.Equal(operands, c.operands) {
			t.Errorf("%s: operands %q, want %q", c.name, operands, c.operands)
		}
	}
}

// squeue's, sacct's and sinfo's shapes: permuted, clustered, attached.
func TestQueryShapes(t *testing.T) {
	type query struct {
		format, long, user, start, delimiter       string
		jobs, states                               []string
		noheader, all, array, parsable, perNode, x bool
	}
	parse := func(program, words string) (query, []string, error) {
		var q query
		p := New(Config{Program: program, Options: []Option{
			{Name: "format", Short: 'o', Arg: Required, Set: Text(&q.format)},
			{Name: "Format", Short: 'O', Arg: Required, Set: Text(&q.long)},
			{Name: "user", Short: 'u', Arg: Required, Set: Text(&q.user)},
			{Name: "starttime", Short: 'S', Arg: Required, Set: Text(&q.start)},
			{Name: "delimiter", Arg: Required, Set: Text(&q.delimiter)},
			{Name: "jobs", Short: 'j', Arg: Required, Set: List(&q.jobs)},
			{Name: "states", Short: 't', Arg: Required, Set: List(&q.states)},
			{Name: "noheader", Short: 'h', Set: Flag(&q.noheader)},
			{Name: "noconvert", Set: nil},
			{Short: 'n', Set: Flag(&q.noheader)},
			{Name: "all", Short: 'a', Set: Flag(&q.all)},
			{Name: "array", Short: 'r', Set: Flag(&q.array)},
			{Name: "parsable2", Short: 'P', Set: Flag(&q.parsable)},
			{Name: "Node", Short: 'N', Set: Flag(&q.perNode)},
			{Name: "allocations", Short: 'X', Set: Flag(&q.x)},
		}})
		operands, err := p.Parse(strings.Split(words, "·"), nil)
		return q, operands, err
	}
	for _, c := range []struct {
		words    string
		want     query
		operands []string
	}{
		{"-aho·%F/%C", query{all: true, noheader: true, format: "%F/%C"}, nil},
		{"-ahNO·nodehost:100,gres:512", query{all: true, noheader: true, perNode: true, long: "nodehost:100,gres:512"}, nil},
		{"-nP", query{noheader: true, parsable: true}, nil},
		{"-o%R,%C·-h", query{format: "%R,%C", noheader: true}, nil},
		{"-ualice", query{user: "alice"}, nil},
		{"-S1970-01-01-00:00:01", query{start: "1970-01-01-00:00:01"}, nil},
		{"-a·-r·-h·-o %A|%a|%T|%C", query{all: true, array: true, noheader: true, format: " %A|%a|%T|%C"}, nil},
		{`-h·-o "%n %G"`, query{noheader: true, format: ` "%n %G"`}, nil},
		{"--noheade·--job=1,1·--format=%i^^^%t", query{noheader: true, jobs: []string{"1", "1"}, format: "%i^^^%t"}, nil},
		{"-j·1·-j·2,3·x·-h·y", query{jobs: []string{"1", "2", "3"}, noheader: true}, []string{"x", "y"}},
		{"123_4·-X", query{x: true}, []string{"123_4"}},
		{"-X·--·-j·5", query{x: true}, []string{"-j", "5"}},
		{"--delimiter·\x1f·-P", query{delimiter: "\x1f", parsable: true}, nil},
		{"--delimiter=^|^", query{delimiter: "^|^"}, nil},
		{`-o·{"a": "%a", "id": %A}`, query{format: `{"a": "%a", "id": %A}`}, nil},
	} {
		got, operands, err := parse("squeue", c.words)
		if err != nil || !reflect.DeepEqual(got, c.want) || !slices.Equal(operands, c.operands) {
			t.Errorf("%q:\n got %+v %q %v\nwant %+v %q", c.words, got, operands, err, c.want, c.operands)
		}
	}
}

// The first line of each error is that of sbatch 22.05, word for word, if it has the option.
func TestComplaints(t *testing.T) {
	const try = "\nTry \"sbatch --help\" for more information"
	for _, c := range []struct{ args, want string }{
		{"--foo", "sbatch: unrecognized option '--foo'" + try},
		{"--foo=bar", "sbatch: unrecognized option '--foo=bar'" + try},
		{"--tiem=5", "sbatch: unrecognized option '--tiem=5'\nsbatch: did you mean --time?" + try},
		{"--job-nmae x", "sbatch: unrecognized option '--job-nmae'\nsbatch: did you mean --job-name?" + try},
		{"--=x", "sbatch: unrecognized option '--=x'" + try},
		{"--time", "sbatch: option '--time' requires an argument" + try},
		{"--job", "sbatch: option '--job-name' requires an argument" + try},
		{"-N", "sbatch: option requires an argument -- 'N'" + try},
		{"-HN", "sbatch: option requires an argument -- 'N'" + try},
		{"-z", "sbatch: invalid option -- 'z'" + try},
		{"-Hz", "sbatch: invalid option -- 'z'" + try},
		{"-é", "sbatch: invalid option -- 'é'" + try},
		{"-memory=4", "sbatch: invalid option -- 'm'\nsbatch: did you mean --mem?" + try},
		{"--no x", "sbatch: option '--no' is ambiguous; possibilities: '--no-kill' '--no-requeue' '--nodefile' " +
			"'--nodelist' '--nodes'" + try},
		{"--tim=x", "sbatch: option '--tim=x' is ambiguous; possibilities: '--time' '--time-min'" + try},
		{"--parsable=3", "sbatch: option '--parsable' doesn't allow an argument" + try},
		{"--version=3", "sbatch: option '--version' doesn't allow an argument" + try},
		{"--time-min=5", "sbatch: error: --time-min is not supported by gbatch yet: a shorter --time gets the job started " +
			"sooner by backfill"},
		{"--nodefile", "sbatch: error: --nodefile is not supported by gbatch yet: --nodelist takes a file " +
			"name with a / in it"},
		{"-F x", "sbatch: error: --nodefile is not supported by gbatch yet: --nodelist takes a file name with a / in it"},
		{"--include h1", "sbatch: error: --include is not supported by gbatch yet: --nodelist names the hosts to use"},
		{"--time=garbage", "sbatch: error: Invalid --time specification"},
		{"-n x", `sbatch: error: Invalid numeric value "x" for --ntasks.`},
		{"-n 0", `sbatch: error: Invalid numeric value "0" for --ntasks: it must be at least 1.`},
		{"-n 99999999999999999999", `sbatch: error: Invalid numeric value "99999999999999999999" for --ntasks.`},
		{"-n 65537", `sbatch: error: Invalid numeric value "65537" for --ntasks: it can be at most 65536.`},
		{"--open-mode=x", `sbatch: error: Invalid --open-mode specification: "x" is none of append, truncate`},
		{"-t garbage -n x", "sbatch: error: Invalid --time specification\n" +
			`sbatch: error: Invalid numeric value "x" for --ntasks.`},
	} {
		var r request
		_, err := sbatch(&r).Parse(strings.Fields(c.args), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %v", c.args, err, c.want)
		}
	}
}

func TestImmediateOptions(t *testing.T) {
	var r request
	for args, want := range map[string]error{"--help": ErrHelp, "-h": ErrHelp, "--usage": ErrUsage, "-V": ErrVersion,
		"--vers": ErrVersion, "-Hh": ErrHelp, "--help --foo": ErrHelp} {
		if _, err := sbatch(&r).Args(strings.Fields(args)); !errors.Is(err, want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"--time=5 -n 4 x", "-Hn4", "--no", "--=", "-", "--", "--export ALL", "-\xff", "--nice",
		"--mem\x00=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		var r request
		operands, err := sbatch(&r).Parse(args, nil)
		if err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
		if err == nil && len(operands) > len(args) {
			t.Fatalf("%d operands from %d words", len(operands), len(args))
		}
		// An operand in StopAtOperand order is followed by all the rest, untouched.
		if err == nil && len(operands) > 0 && !slices.Equal(operands, args[len(args)-len(operands):]) {
			t.Fatalf("operands %q of %q", operands, args)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	args := strings.Fields("-J toil_job_1_x --signal=B:INT@30 --export=ALL --partition=p --qos=q --gres=gpu:1 " +
		"--mem=2048 --cpus-per-task=2 --time=0:7200 -o /tmp/%j -e /tmp/%j script")
	b.ReportAllocs()
	for b.Loop() {
		var r request
		if _, err := sbatch(&r).Parse(args, func(string) (string, bool) { return "", false }); err != nil {
			b.Fatal(err)
		}
	}
}
