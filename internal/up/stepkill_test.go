package up

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/model"
)

// TestNodeDaemonsKilledUnderStep: the daemons of both nodes of a step, the one that manages it and the other, are
// killed while it runs, one after the other and both at once, and started again. Each task runs once and to its end,
// its output is complete, and the step's exit code is the greatest of its tasks'.
func TestNodeDaemonsKilledUnderStep(t *testing.T) {
	dir, work := filepath.Join(t.TempDir(), "steps"), t.TempDir()
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000})
	grun := filepath.Join(work, "grun")
	if err := os.Symlink(filepath.Join(programs(t), "gcli"), grun); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(work, name) }
	exists := func(name string) bool { _, err := os.Stat(at(name)); return err == nil }
	task := at("task.sh")
	if err := os.WriteFile(task, []byte(`#!/bin/sh
cd `+work+`
echo started >>started.$SLURM_PROCID
echo line 1 of $SLURM_PROCID
until [ -e go ]; do sleep 0.05; done
echo line 2 of $SLURM_PROCID
exit $((3 + SLURM_PROCID))
`), 0o755); err != nil {
		t.Fatal(err)
	}
	id := submit(t, c, fmt.Sprintf("cd %s\nGBATCH_CONF=%s ./grun -N2 -l %s >out 2>err\necho rc $? >>out\n", work,
		filepath.Join(dir, "gbatch.conf"), task),
		func(sp *model.Spec) { sp.MinNodes, sp.MaxNodes = 2, 2 })
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				b, _ := os.ReadFile(at("err"))
				t.Fatalf("waited a minute for %s; grun says %q", what, b)
			}
		}
	}
	until("both tasks", func() bool { return exists("started.0") && exists("started.1") })
	for _, names := range [][]string{{"n1"}, {"n2"}, {"n1", "n2"}} {
		for _, d := range status(t, dir).Daemons {
			if p, ok := processOf(d.PID); ok && d.Role == "gnoded" && strings.Contains(strings.Join(names, " "), d.Name) {
				if err := p.signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				gone([]process{p}, nodePatience)
			}
		}
		if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
			t.Fatalf("after the end of %v: %v", names, err)
		}
	}
	if err := os.WriteFile(at("go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	untilState(t, c, id, model.Completed)
	out, err := os.ReadFile(at("out"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0: line 1 of 0", "0: line 2 of 0", "1: line 1 of 1", "1: line 2 of 1", "rc 4"} {
		if strings.Count("\n"+string(out), "\n"+want+"\n") != 1 {
			t.Errorf("%q does not stand once in the output:\n%s", want, out)
		}
	}
	for _, name := range []string{"started.0", "started.1"} {
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != "started\n" {
			t.Errorf("%s: %q, %v: not one start", name, b, err)
		}
	}
	b, _ := os.ReadFile(at("err"))
	t.Logf("grun said: %s", b)
}
