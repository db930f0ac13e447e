package up

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestRestoreOnOtherHosts: all controllers are lost with their hosts. The snapshot is restored on a host of another
// name and address, with a second and a third one that are new as well, as man gbatch-ha.7 tells: gbatch.conf names
// them, and PKIDir is brought. What runs goes on, and nodes obey once they have the file.
func TestRestoreOnOtherHosts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "other")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 4, MemMiB: 1000})
	untouched := steady(t, c)
	before := submit(t, c, "true\n", func(sp *model.Spec) { sp.HoldReq = true })
	file := filepath.Join(t.TempDir(), "snapshot")
	if _, errs, err := commandAs(t, c, 0, "", "gcontrol", "snapshot", "save", file); err != nil {
		t.Fatal(err, errs)
	}
	kill(t, daemonOf(t, dir, RoleController, "ctl1"))
	ports, err := drawPorts(3)
	if err != nil {
		t.Fatal(err)
	}
	controllersInFile(t, c.Conf, []string{"ctl7", "ctl8", "ctl9"}, append(make([]int, 6), ports...))
	out, err := exec.Command(filepath.Join(programs(t), "gctld"), "-f", c.Conf, "-N", "ctl7", "--restore", file).
		CombinedOutput()
	if err != nil || !strings.Contains(string(out), "issued this controller's certificate") {
		t.Fatalf("%v\n%s", err, out)
	}
	kill(t, daemonOf(t, dir, RoleNode, "n1")) // it is started with the new file
	_, words := mustUp(t, Options{Dir: dir})
	words.has(t, "1 of 5 daemons run already") // gdbd
	until(t, "all vote", func() bool { return voters(t, c) == "ctl7 ctl8 ctl9" })
	setConfig(t, c)
	untouched()
	if _, errs, err := commandAs(t, c, 0, "", "gcontrol", "release", fmt.Sprint(before)); err != nil {
		t.Fatal(err, errs)
	}
	until(t, "the job of before has run, and is on record", func() bool {
		r := lastRecords(t, c)[before]
		return r != nil && r.State == model.Completed
	})
}
