package up

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/snapfile"
)

// soakrestore_test.go restores a snapshot as man gbatch-ha.7 tells it, under load.

// restoreSnapshot saves a snapshot, kills all controllers some time later, restores it on one of them and empties the
// others.
func (k *soak) restoreSnapshot(name string, lasts time.Duration) {
	k.t.Helper()
	re := restoration{begun: k.begun(), saving: now(k.t)}
	file := filepath.Join(k.t.TempDir(), "snapshot")
	if _, errs, err := commandAs(k.t, k.c, 0, "", "gcontrol", "snapshot", "save", file); err != nil {
		k.t.Fatalf("saving a snapshot: %v\n%s", err, errs)
	}
	re.next = nextOf(k.t, file)
	k.wait(lasts)

	all := map[string]process{}
	for _, d := range status(k.t, k.c.Dir).Daemons {
		if d.Role == RoleController {
			p, ok := processOf(d.PID)
			if !ok {
				k.t.Fatalf("%s does not run", d.Name)
			}
			all[d.Name] = p
		}
	}
	for _, p := range all {
		k.send(p, syscall.SIGKILL)
	}
	for of, p := range all {
		if k.ended(of, p); of != name {
			k.empty(of)
		}
	}
	re.killed = now(k.t)
	until(k.t, "gdbd says what has ended", func() bool {
		list, err := allRecords(k.c)
		re.ended = map[attemptOf]*model.Record{}
		for _, r := range list {
			if r.State.Finished() {
				re.ended[attemptOf{r.Job, r.Attempt}] = r
			}
		}
		return err == nil
	})
	gctld := exec.Command(filepath.Join(cmp.Or(k.bin, programs(k.t)), "gctld"), "-f", k.c.Conf, "-N", name,
		"--restore", file, "--replace")
	out, err := gctld.CombinedOutput()
	if err != nil {
		k.t.Fatalf("gctld --restore: %v\n%s", err, out)
	}
	k.t.Logf("%s", out)
	begin := regexp.MustCompile(`new jobs begin at ([0-9]+)`).FindSubmatch(out)
	if begin == nil {
		k.t.Fatal("it does not say where new jobs begin")
	}
	n, err := strconv.ParseUint(string(begin[1]), 10, 32)
	if err != nil {
		k.t.Fatal(err)
	}
	re.begin, re.started = model.JobID(n), now(k.t)
	k.up()
	k.healthy()
	re.well = now(k.t)
	k.tidy(name)
	k.book.mu.Lock()
	k.book.restored = append(k.book.restored, re)
	k.book.mu.Unlock()
}

// tidy removes the states that restored ones have replaced, as an administrator does who has seen that all is well:
// the soak's disks are small.
func (k *soak) tidy(name string) {
	k.t.Helper()
	old, err := filepath.Glob(filepath.Join(layout(k.c.Dir).at("state", "ctld-"+name), "replaced-*"))
	if err != nil || len(old) == 0 {
		k.t.Fatalf("the state that was replaced is not there: %v", err)
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			k.t.Fatal(err)
		}
	}
}

// nextOf gives the first number of a job that a snapshot does not know.
func nextOf(t *testing.T, file string) model.JobID {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := snapfile.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return model.JobID(r.Header.NextJob)
}

// begun lists the runs of which the controllers know that they have begun.
func (k *soak) begun() map[ranAs]bool {
	k.t.Helper()
	out := map[ranAs]bool{}
	cl := client.New(filepath.Join(k.c.Dir, "run"))
	defer cl.Close()
	if err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
		var chunk proto.JobsChunk
		err := proto.Decode(body, &chunk)
		for _, j := range chunk.Jobs {
			if j.Run != nil && j.Run.Launched != 0 {
				out[ranAs{j.ID, j.Restarts}] = true
			}
		}
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return out
}
