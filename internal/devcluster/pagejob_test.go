package devcluster_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// has reads a page once, and complains about what it lacks and what it has too much.
func (u *pageUser) has(path string, with, without []string) {
	u.t.Helper()
	_, _, text := u.do("GET", path, "")
	for _, s := range with {
		if !strings.Contains(text, s) {
			u.t.Errorf("%s lacks %q: %s", path, s, text)
		}
	}
	for _, s := range without {
		if strings.Contains(text, s) {
			u.t.Errorf("%s has %q", path, s)
		}
	}
}

// The page of a job has the end of its output while the job runs and afterwards, as a terminal would show it, and
// names the file. The page of an array that has ended is about all of its tasks.
func TestJobPage(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 2, Gres: "gpu:a100:2", HTTP: true,
		Partitions: "PartitionName=cpu Nodes=n1 Default=YES\nPartitionName=train Nodes=n2\n" +
			"PartitionName=off Nodes=n2 State=DOWN"})
	u := readPages(t, c)
	dir := filepath.Join(c.Dir, "out")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"word": {u.word}, "job-name": {"talk"}, "directory": {dir},
		"options": {"--error=err.txt --time=30"},
		"script": {"#!/bin/sh\nseq 20000\nprintf \"now $((5*2))\\rnow $((45*2))\\n<b>said $((6*7))\\n\"\n" +
			"echo trouble $((6*8)) >&2\nsleep 300\n"}}
	if status, text := u.send("/submit", form); status != http.StatusSeeOther {
		t.Fatalf("%d %s", status, text)
	}
	u.wait("/job/1", "&lt;b&gt;said 42")
	u.wait("/job/1", "trouble 48")
	with := []string{"<title>Job 1 talk · ", "now 90\n", "said 42", filepath.Join(dir, "slurm-1.out"), "The end of 10",
		filepath.Join(dir, "err.txt")}
	u.has("/job/1", append(with, "grun --jobid=1 --overlap tail"), []string{"now 10\n", "\n1\n2\n3\n", "<b>said"})
	cancel := url.Values{"word": {u.word}, "do": {"cancel"}, "job": {"1"}}
	if status, text := u.send("/act", cancel); status != http.StatusSeeOther {
		t.Fatal(status, text)
	}
	u.wait("/job/1", "Ended CANCELLED")
	u.has("/job/1", append(with, "grun -p cpu -w n1 tail"), []string{"--overlap"})
	if err := os.Remove(filepath.Join(dir, "slurm-1.out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/environ", filepath.Join(dir, "slurm-1.out")); err != nil {
		t.Fatal(err)
	}
	u.has("/job/1", nil, []string{"PATH=", "GOFLAGS"})

	u.submit("sweep", "exit $((SLURM_ARRAY_TASK_ID % 2))\n", "--array=0-3", "--time=30")
	u.wait("/job/2", "4 tasks: 2 completed, 2 failed")
	u.has("/job/2", []string{"<h1>Job 2</h1>", "<title>Job 2 sweep · ", `name="job" value="2"`, ">2_3</a>"},
		[]string{"<h1>Job 2_"})

	// GPUs outside of the default partition: any partition, and one.
	u.has("/timeline?gpus=1&nodes=1&time=30", []string{"It would start", " on n"},
		[]string{`role="alert"`, "<option>off<"})
	u.has("/timeline?gpus=1&nodes=1&time=30&partition=train", []string{" on n2, in partition train."}, nil)
	u.has("/timeline?gpus=9&nodes=1&time=30", []string{`role="alert"`}, []string{"It would start"})

	u.submit("big", "true\n", "--partition=cpu", "--hold")
	u.has("/queue", []string{"Held by its owner"}, []string{"JobHeldUser"})

	// Who has to sign in comes to the page that was asked for.
	status, _, text := u.do("GET", "/job/1?x=1", "", "Cookie", "gbatch_token=nonsense")
	if status != http.StatusSeeOther || !strings.Contains(text, "to=%2Fjob%2F1%3Fx%3D1") {
		t.Errorf("%d %s", status, text)
	}
	u.has("/login?to=%2Fjob%2F1", []string{`name="to" value="/job/1"`}, nil)
	u.has("/login?to=%2F%2Felsewhere", nil, []string{"elsewhere"})
}
