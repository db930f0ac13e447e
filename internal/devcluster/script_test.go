package devcluster_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"gbatch/ctld/program"
	"gbatch/internal/devcluster"
	"gbatch/internal/golden"
	"gbatch/noded/cgroup"
	"gbatch/noded/image"
	"gbatch/noded/steppmix"
)

// atOnce is how many sessions run side by side at least: two leave half of two CPUs idle, since they wait much.
const atOnce = 3

func TestMain(m *testing.M) {
	// Nodes get images by a process of their own program.
	if status, handled := image.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(status)
	}
	// They serve the tasks of Open MPI's programs by another.
	if status, handled := steppmix.Main(os.Args, os.Stderr); handled {
		os.Exit(status)
	}
	// Controllers run users' programs by another.
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	flag.Parse()
	if runtime.GOMAXPROCS(0) < atOnce {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // the flag is testing's own
	}
	rc := m.Run()
	devcluster.RemoveBinaries()
	os.Exit(rc)
}

// TestScripts runs the sessions in testdata/script: commands and their output, each session with its own cluster and
// real commands as processes. words_test.go has the words that testscript lacks.
//
//	go test ./internal/devcluster -run TestScripts/array
//	go test ./internal/devcluster -run TestScripts/array -rewrite    puts what was printed into the sessions' cmp files
func TestScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: what needs another user's jobs is skipped")
	}
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		UpdateScripts: golden.Rewriting(),
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "idmaps": // root, and a kernel that shows an image's files as a user's
				var u unix.Utsname
				var major, minor int
				if err := unix.Uname(&u); err != nil {
					return false, err
				}
				_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
				return os.Getuid() == 0 && (major > 5 || major == 5 && minor >= 19), err
			case "runc":
				_, err := exec.LookPath("runc")
				_, none := exec.LookPath("busybox")
				return os.Getuid() == 0 && err == nil && none == nil, nil
			case "hybrid": // both cgroup versions are there
				_, err := os.Stat("/sys/fs/cgroup/unified/cgroup.controllers")
				return err == nil, nil
			case "freezer1":
				_, err := os.Stat("/sys/fs/cgroup/freezer/cgroup.procs")
				return os.Getuid() == 0 && err == nil, nil
			case "memcg": // root, and the memory controller of one of the cgroup versions
				v1, _ := os.Stat("/sys/fs/cgroup/memory")
				v2, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
				return os.Getuid() == 0 && (v1 != nil || strings.Contains(string(v2), "memory")), nil
			case "devices": // root, and something that holds jobs to their devices
				root, err := cgroup.Open("gbatch/test-probe")
				if err != nil {
					return false, err
				}
				can := root.Can().Devices
				return can, root.Close()
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Setup: setup,
		Cmds:  words(),
	})
}
