package getopt

import (
	"errors"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

// Precedence: command line, environment, directives, configuration.
func TestSources(t *testing.T) {
	for _, c := range []struct {
		name       string
		args       string
		env        []string
		directives []string
		config     string // partition
		want       func(r *request) string
		expect     string
	}{
		{"all four", "-p cli", []string{"SBATCH_PARTITION=env"}, []string{"-p script"}, "conf",
			func(r *request) string { return r.partition }, "cli"},
		{"environment over script", "", []string{"SBATCH_PARTITION=env"}, []string{"-p script"}, "conf",
			func(r *request) string { return r.partition }, "env"},
		{"script over configuration", "", nil, []string{"-p script"}, "conf",
			func(r *request) string { return r.partition }, "script"},
		{"configuration", "", nil, nil, "conf", func(r *request) string { return r.partition }, "conf"},
		{"the later line of a script", "", nil, []string{"-p a", "-p b"}, "",
			func(r *request) string { return r.partition }, "b"},
		{"lists aren't mixed between sources", "--switches 1", nil, []string{"--switches 2"}, "",
			func(r *request) string { return strings.Join(r.switches, "+") }, "1"},
		{"lists add up within a script", "", nil, []string{"--switches 2", "--switches 3,4"}, "",
			func(r *request) string { return strings.Join(r.switches, "+") }, "2+3+4"},
		{"a pair of options", "--requeue", nil, []string{"--no-requeue"}, "",
			func(r *request) string { return r.requeue }, "yes"},
		{"a pair, environment", "", []string{"SBATCH_NO_REQUEUE=1"}, []string{"--requeue"}, "",
			func(r *request) string { return r.requeue }, "no"},
		{"a slot", "--mem=1", nil, []string{"--mem-per-cpu=2"}, "", func(r *request) string { return r.mem }, "1"},
		{"an overridden wrong value is nobody's concern", "-t 5", []string{"SBATCH_TIMELIMIT=garbage"},
			[]string{"-t garbage"}, "", func(r *request) string { return r.time }, "5"},
		{"flag on: empty", "", []string{"SBATCH_REQUEUE="}, nil, "", func(r *request) string { return r.requeue }, "yes"},
		{"flag on: yes", "", []string{"SBATCH_REQUEUE=YES"}, nil, "", func(r *request) string { return r.requeue }, "yes"},
		{"flag on: 2", "", []string{"SBATCH_REQUEUE=2"}, nil, "", func(r *request) string { return r.requeue }, "yes"},
		{"flag off: 0", "", []string{"SBATCH_REQUEUE=0"}, nil, "", func(r *request) string { return r.requeue }, ""},
		{"flag off: no", "", []string{"SBATCH_REQUEUE=no"}, nil, "", func(r *request) string { return r.requeue }, ""},
		{"optional value, none", "", []string{"SBATCH_EXCLUSIVE="}, nil, "", func(r *request) string { return r.exclusive },
			"exclusive"},
		{"optional value", "", []string{"SBATCH_EXCLUSIVE=user"}, nil, "",
			func(r *request) string { return r.exclusive }, "user"},
		{"empty variable", "", []string{"SBATCH_PARTITION="}, []string{"-p a"}, "",
			func(r *request) string { return r.partition }, "a"},
		{"two variables, the first", "", []string{"SLURM_CLUSTERS=b", "SBATCH_CLUSTERS=a"}, nil, "",
			func(r *request) string { return r.clusters }, "a"},
		{"two variables, the second", "", []string{"SLURM_CLUSTERS=b"}, nil, "",
			func(r *request) string { return r.clusters }, "b"},
	} {
		var r request
		p := sbatch(&r)
		_, err := p.Args(strings.Fields(c.args))
		for i, d := range c.directives {
			err = errors.Join(err, p.Directive(strings.Fields(d), "job.sh line "+string(rune('2'+i))))
		}
		err = errors.Join(err, p.Env(env(c.env...)))
		if c.config != "" {
			err = errors.Join(err, p.Default("partition", c.config, "gbatch.conf"))
		}
		if err = errors.Join(err, p.Apply()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := c.want(&r); got != c.expect {
			t.Errorf("%s: %q, want %q", c.name, got, c.expect)
		}
	}
}

func TestComplaintsNameTheirSource(t *testing.T) {
	for _, c := range []struct {
		directive string
		env       string
		want      string
	}{
		{"--tiem=5", "", "sbatch: unrecognized option '--tiem=5' (from job.sh line 3)\nsbatch: did you mean --time?\n" +
			"Try \"sbatch --help\" for more information"},
		{"-J", "", "sbatch: option requires an argument -- 'J' (from job.sh line 3)\n" +
			"Try \"sbatch --help\" for more information"},
		{"-J a foo", "", "sbatch: error: Invalid directive found in batch script: foo (from job.sh line 3)"},
		{"-J a -- -t 5", "", "sbatch: error: Invalid directive found in batch script: -t (from job.sh line 3)"},
		{"--wrap=x", "", "sbatch: error: --wrap can only be given on the command line (from job.sh line 3)"},
		{"--help", "", "sbatch: error: --help can only be given on the command line (from job.sh line 3)"},
		{"--time-min=3", "", "sbatch: error: --time-min is not supported by gbatch yet: a shorter --time gets the job " +
			"started sooner by backfill (from job.sh line 3)"},
		{"--time=garbage", "", "sbatch: error: Invalid --time specification (from job.sh line 3)"},
		{"", "SBATCH_TIMELIMIT=garbage", "sbatch: error: Invalid --time specification (from SBATCH_TIMELIMIT)"},
		{"--ntasks=x", "SBATCH_TIMELIMIT=garbage", "sbatch: error: Invalid numeric value \"x\" for --ntasks. (from job.sh " +
			"line 3)\nsbatch: error: Invalid --time specification (from SBATCH_TIMELIMIT)"},
	} {
		var r request
		p := sbatch(&r)
		err := p.Directive(strings.Fields(c.directive), "job.sh line 3")
		if err == nil {
			err = p.Env(env(c.env))
		}
		if err == nil {
			err = p.Apply()
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%q %q:\n got %v\nwant %s", c.directive, c.env, err, c.want)
		}
		var e *Error
		if !errors.As(err, &e) || e.Origin.Source == NotGiven {
			t.Errorf("%q: %#v", c.directive, err)
		}
	}
	var r request
	if err := sbatch(&r).Default("partitoin", "x", "gbatch.conf"); err == nil {
		t.Error("an unknown default is taken")
	}
}

func TestGivenAndNotes(t *testing.T) {
	var r request
	p := sbatch(&r)
	if _, err := p.Args(strings.Fields("--wrap=a --wrap b --bb x -t 9")); err != nil {
		t.Fatal(err)
	}
	if v, ok := p.Value("wrap"); !ok || v != "b" {
		t.Errorf("wrap %q %v", v, ok)
	}
	if err := p.Directive([]string{"-t", "5", "-J", "x"}, "job.sh line 2"); err != nil {
		t.Fatal(err)
	}
	if o := p.Given("time"); o.Source != FromArgs {
		t.Errorf("time %v", o)
	}
	if o := p.Given("job-name"); o != (Origin{FromDirective, "job.sh line 2"}) {
		t.Errorf("job-name %v", o)
	}
	if o := p.Given("mem"); o.Source != NotGiven {
		t.Errorf("mem %v", o)
	}
	if n := p.Notes(); len(n) != 1 || n[0] != "sbatch: note: --bb has no effect in gbatch: there are no burst buffers" {
		t.Errorf("%q", n)
	}
}

func TestLimits(t *testing.T) {
	var r request
	if _, err := sbatch(&r).Args(strings.Fields(strings.Repeat("-v ", MaxOccurrences+1))); err == nil {
		t.Error("any number of options is taken")
	}
	p := sbatch(&r)
	if _, err := p.Args(strings.Fields(strings.Repeat("-n x ", 2*MaxProblems))); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(); err == nil || strings.Count(err.Error(), "\n") != MaxProblems-1 {
		t.Errorf("%v", err)
	}
}
