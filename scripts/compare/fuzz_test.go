package main

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// A seed repeats its line, a shell can read each line, and no word is left that the generator had to fill in.
func TestRandomLines(t *testing.T) {
	all, err := readOptions("fuzz-options.txt")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for seed := range uint64(3000) {
		for _, line := range []func(*rand.Rand) string{all.query, all.submission} {
			one := line(rand.New(rand.NewPCG(seed, 1)))
			if again := line(rand.New(rand.NewPCG(seed, 1))); again != one {
				t.Fatalf("seed %d: %q, then %q", seed, one, again)
			}
			for _, word := range []string{"<letters>", "<names>", "<fields>", "<order>", "<held>"} {
				if strings.Contains(one, word) {
					t.Errorf("seed %d: %q", seed, one)
				}
			}
			text.WriteString(one + "\n")
		}
	}
	sh := exec.Command("/bin/sh", "-n")
	sh.Stdin = strings.NewReader(text.String())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTold(t *testing.T) {
	o := told("Submitted batch job 117\nfile o.00117\ntask 0 is 0 on n1\n0 SLURM_JOB_ID=117\n"+
		"slurmstepd-n2: error: execve(): x\nstderr: srun: error: no.\nexit code 2\n", "/tmp/gbf", "")
	want := output{
		{"exit code 2 ", "stderr: slurmstepd: error: execve(): x", "stderr: srun: error: no"},
		{"file o.N", "task 0 is 0 on n1"},
		{"0 SLURM_JOB_ID=N", "Submitted batch job N"},
	}
	for i := range o {
		if got, want := strings.Join(o[i], "\n"), strings.Join(want[i], "\n"); got != want {
			t.Errorf("stage %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

func TestDifferencesAreRead(t *testing.T) {
	c := &comparison{}
	for _, name := range []string{"differences.txt", "fuzz-differences.txt"} {
		if err := c.readDifferences(name); err != nil {
			t.Error(err)
		}
	}
}
