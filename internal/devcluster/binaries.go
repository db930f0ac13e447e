package devcluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built holds the programs that tests need as real processes, each built once per test process.
var built struct {
	sync.Mutex
	dir  string
	done map[string]error
}

// EnvBin names a directory in which the programs are already, for a user who can't build them.
const EnvBin = "DEVCLUSTER_BIN"

// program builds cmd/name once and gives its path.
func program(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(EnvBin); dir != "" {
		return filepath.Join(dir, name)
	}
	built.Lock()
	defer built.Unlock()
	makeDir(t)
	path := filepath.Join(built.dir, name)
	err, ok := built.done[name]
	if !ok {
		cmd := exec.Command("go", "build", "-o", path, "gbatch/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, berr := cmd.CombinedOutput(); berr != nil {
			err = fmt.Errorf("build %s: %w: %s", name, berr, out)
		}
		built.done[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// makeDir makes the directory of programs, with built locked.
func makeDir(t testing.TB) {
	if built.dir != "" {
		return
	}
	dir, err := os.MkdirTemp("", "gbatch-bin-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // jobs of other users call commands
	}
	if err != nil {
		t.Fatal(err)
	}
	built.dir, built.done = dir, map[string]error{}
}

// self gives this program by a name that other users can run: go test's own directory is closed to them.
func self(t testing.TB) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	makeDir(t)
	path := filepath.Join(built.dir, "self")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	from, err := os.Executable()
	if err == nil && os.Link(from, path) != nil { // another file system
		var b []byte
		if b, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(path, b, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Shim builds the launcher and gives its path.
func Shim(t testing.TB) string { return program(t, "gshim") }

// Gbatch builds the command gbatch and gives its path.
func Gbatch(t testing.TB) string { return program(t, "gbatch") }

// Commands builds the user commands and gives a directory with a link for each of their names.
func Commands(t testing.TB) string {
	t.Helper()
	gcli := program(t, "gcli")
	dir := filepath.Join(filepath.Dir(gcli), "commands")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gsubmit", "gqueue", "gcancel", "gacct", "ginfo", "gcontrol", "gshare", "grun",
		"galloc", "gprio",
		"gacctmgr", "gdiag", "gstat", "gseff", "seff", "greport", "sbatch", "squeue", "scancel", "sacct", "sinfo", "scontrol",
		"srun", "salloc",
		"sshare", "sprio", "sacctmgr", "sdiag", "sstat", "sreport", "gbcast", "sbcast", "strigger", "scrontab",
		"gattach", "sattach", "gcrontab", "gtrigger"} {
		if err := os.Symlink(gcli, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// RemoveBinaries removes what was built. A TestMain calls it at the end.
func RemoveBinaries() {
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // in the temporary directory anyway
		built.dir = ""
	}
}
