package noded

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"gbatch/noded/cgroup"
)

// hosts_test.go shows gnoded on hosts that this one is not: in a mount namespace some hierarchies are taken away, or
// can't be written.

const (
	listMounts = `mounts() { awk -v kind="$1" '{ for (i = 7; i <= NF; i++) if ($i == "-") { if ($(i+1) == kind && (want == "" || index("," $(i+3) ",", want))) print $5; break } }' want="$2" /proc/self/mountinfo; }
`
	noV2       = `mounts cgroup2 | while read -r at; do umount -l "$at" || exit 1; done`
	noMemory   = `mounts cgroup ,memory, | while read -r at; do umount -l "$at" || exit 1; done`
	readOnly   = `{ mounts cgroup; mounts cgroup2; } | while read -r at; do mount -o remount,bind,ro "$at" || exit 1; done`
	readOnlyV2 = `mounts cgroup2 | while read -r at; do mount -o remount,bind,ro "$at" || exit 1; done`
)

// onHost runs tests of this binary once more on such a host.
func onHost(t *testing.T, change, tests string, env ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a mount namespace")
	}
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("unshare", "-m", "sh", "-c", listMounts+change+` || exit 1; exec "$0" -test.run "$1" -test.v`,
		exe, tests)
	cmd.Env = append(os.Environ(), append(env, "NODED_TEST_BINARIES="+binaries)...)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// needHybrid skips on other hosts than the one from which the others can be made.
func needHybrid(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root, err := cgroup.Open("gbatch/test-probe")
	must(t, err)
	mode := root.Mode()
	must(t, root.Close())
	if mode != cgroup.Hybrid {
		t.Skip("the host has ", mode, ": others can be made of a hybrid one")
	}
}

func TestWithoutV2(t *testing.T) {
	needHybrid(t)
	onHost(t, noV2, "^(TestJobsOpenTheirDevicesOnly|TestDeviceRulesOutliveGnoded|TestStepsOpenTheirDevicesOnly|"+
		"TestUsageAndLeftovers)$")
}

// gnoded reports once, in one sentence, what the host does not allow, and runs jobs nevertheless.
func TestHostsThatLackSomething(t *testing.T) {
	needHybrid(t)
	for _, tc := range []struct {
		name, change string
		note         string // in the node's notes; its parts are separated by "..."
		out          string
	}{
		{"read-only", readOnly, "jobs can't be confined to their cores, memory and devices...read-only file system", "2:+++"},
		{"read-only v2", readOnlyV2, "", "0:--+"},
		{"no memory controller", noMemory, "do not cover memory", "0:--+"},
		{"no v2", noV2, "", "0:--+"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onHost(t, tc.change, "^TestOneJobHere$", "NODED_TEST_NOTE="+tc.note, "NODED_TEST_OUT="+tc.out)
		})
	}
}

// TestOneJobHere runs a job with one of three GPUs on this host.
func TestOneJobHere(t *testing.T) {
	note, out := os.Getenv("NODED_TEST_NOTE"), os.Getenv("NODED_TEST_OUT")
	if out == "" {
		t.Skip("is run by TestHostsThatLackSomething")
	}
	dir := deviceDir(t, "nvidia0", "nvidia1", "nvidia2")
	cfg := confOf(t, "Gres=gpu:3", "Name=gpu File="+dir+"/nvidia[0-2]",
		"ConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
	c := newCluster(t, func(o *Options) { o.Config = cfg })
	notes := c.ctl.waitNode(1).Hw.Notes
	found := 0
	for _, n := range notes {
		begin, end, _ := strings.Cut(note, "...")
		if note != "" && strings.Contains(n, begin) && strings.Contains(n, end) {
			found++
		}
	}
	if note == "" && len(notes) != 0 || note != "" && found != 1 {
		t.Errorf("notes %q, want one with %q", notes, note)
	}
	l := c.looking(1, dir+"/nvidia0 "+dir+"/nvidia1 "+dir+"/nvidia2", "printf \"$CUDA_VISIBLE_DEVICES:\"\n",
		gres("gpu", "", 2))
	c.run(l)
	if got := strings.TrimSpace(c.output(l)); got != out {
		t.Errorf("%q, want %q", got, out)
	}
}
