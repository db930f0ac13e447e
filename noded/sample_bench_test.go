package noded

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"gbatch/noded/cgroup"
)

// BenchmarkSample takes one sample of a job with one process whose files are open.
func BenchmarkSample(b *testing.B) {
	root, err := cgroup.Open("gbatch/test-sample")
	must(b, err)
	if !root.Can().Track {
		b.Skip("needs root and control groups: " + root.Why())
	}
	defer func() { _ = root.Close() }() // the groups are gone
	group, err := root.Create("job_1.1", cgroup.Limits{MemBytes: 1 << 30})
	must(b, err)
	defer func() { must(b, group.Remove(b.Context())) }()
	cmd := exec.Command("sleep", "1000")
	v1, v2 := group.JoinDirs()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	must(b, cmd.Start())
	for _, dir := range append(v1, v2) {
		if dir != "" {
			must(b, writeProc(dir, cmd.Process.Pid))
		}
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	m, err := group.Meter()
	must(b, err)
	defer func() { must(b, m.Close()) }()
	s := &sampler{groups: &groups{root: root}}
	j := &sampled{meter: m}
	b.ReportAllocs()
	for b.Loop() {
		s.sample(j)
	}
	if j.use.VMKB == 0 || j.use.Procs != 1 {
		b.Errorf("%+v", j.use)
	}
}

func writeProc(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}
