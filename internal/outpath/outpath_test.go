package outpath

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	batch := Values{JobID: 128, User: "alice", JobName: "train", Node: "n1"}
	array := Values{JobID: 131, ArrayJob: 128, Task: 23, User: "alice", JobName: "a/b", Node: "n2", NodeRank: 1}
	step := Values{JobID: 128, Step: "0", User: "alice", JobName: "train", Node: "n3", NodeRank: 2, TaskRank: 7}
	for _, c := range []struct {
		pattern string
		v       Values
		want    string
	}{
		{"", batch, ""},
		{"out.txt", batch, "out.txt"},
		{"/dev/null", batch, "/dev/null"},
		{"slurm-%j.out", batch, "slurm-128.out"},
		{"slurm-%A_%a.out", array, "slurm-128_23.out"},
		{"log_%A_%a.out", batch, "log_128_4294967294.out"},
		{"%j-%A-%3a-%b", array, "131-128-023-3"},
		// the manual page's own examples
		{"job%J.out", step, "job128.0.out"},
		{"job%4j.out", step, "job0128.out"},
		{"job%j-%2t.out", step, "job128-07.out"},
		// submitit, dask, nextflow, toil
		{"/p/%A_%a_0_log.err", array, "/p/128_23_0_log.err"},
		{"/p/%j_%t_log.out", step, "/p/128_7_log.out"},
		{"dask-worker-%J.err", batch, "dask-worker-128.err"},
		{"/tmp/toil_job_1.%j.std_output.log", batch, "/tmp/toil_job_1.128.std_output.log"},
		{"%x.%u.%N.%n.%s.%t", step, "train.alice.n3.2.0.7"},
		{"%s", batch, "batch"},
		{"%x", array, "a/b"},
		{"%3x|%5u|%4N", batch, "train|alice|n1"},
		{"100%%", batch, "100%"},
		{"%%j", batch, "%j"},
		{"%%%j", batch, "%128"},
		{"%5%", batch, "%"},
		{"%", batch, "%"},
		{"a%", batch, "a%"},
		{"a%12", batch, "a%12"},
		{"%z %3z", batch, "%z %3z"},
		{"%99999999999999999999j", batch, "0000000128"},
		{"%10j", batch, "0000000128"},
		{"%2j", batch, "128"},
		{`\\%j.out`, batch, "%j.out"},
		{`a\%j`, batch, "a%j"},
		{"ö%jé", batch, "ö128é"},
	} {
		if got := Expand(c.pattern, c.v); got != c.want {
			t.Errorf("Expand(%q) = %q, want %q", c.pattern, got, c.want)
		}
	}
}

func TestPerNodePerTask(t *testing.T) {
	for _, c := range []struct {
		pattern    string
		node, task bool
	}{
		{"slurm-%j.out", false, false}, {"%N", true, false}, {"%3n", true, false}, {"%j_%t_log.out", false, true},
		{"%%t %%N", false, false}, {`\\%t`, false, false}, {"%N-%2t", true, true}, {"%", false, false}, {"", false, false},
	} {
		if PerNode(c.pattern) != c.node || PerTask(c.pattern) != c.task {
			t.Errorf("%q: per node %v, per task %v", c.pattern, PerNode(c.pattern), PerTask(c.pattern))
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"slurm-%A_%3a.out", "%%%", `\\%j`, "%9", "%x%x%\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		got := Expand(pattern, Values{JobID: 1, JobName: "n", User: "u", Node: "h"})
		if strings.IndexByte(pattern, '%') < 0 && strings.IndexByte(pattern, '\\') < 0 && got != pattern {
			t.Fatalf("%q became %q", pattern, got)
		}
		// A pattern made of quoted text expands to that text.
		quoted := strings.ReplaceAll(strings.ReplaceAll(pattern, `\`, ""), "%", "%%")
		if got := Expand(quoted, Values{}); got != strings.ReplaceAll(quoted, "%%", "%") {
			t.Fatalf("%q became %q", quoted, got)
		}
	})
}

func BenchmarkExpand(b *testing.B) {
	v := Values{JobID: 128, ArrayJob: 120, Task: 8}
	for b.Loop() {
		Expand("/home/alice/runs/slurm-%A_%3a.out", v)
	}
}
