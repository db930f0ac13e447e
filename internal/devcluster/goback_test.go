package devcluster_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/ctld"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// runs is a cluster on which jobs of one moment run.
type runs struct {
	*devcluster.Cluster
	t *testing.T
}

// run submits jobs and waits until all have ended. It gives their numbers.
func (r *runs) run(n int) []model.JobID {
	r.t.Helper()
	cl := r.Client()
	defer cl.Close()
	var ids []model.JobID
	for range n {
		var reply proto.SubmitReply
		r.Wait("a submission", func() error {
			return cl.Call(proto.KindSubmit, &proto.SubmitRequest{Script: []byte("#!/bin/sh\n"),
				Spec: &model.Spec{Name: "a", WorkDir: r.Dir, StdOut: "/dev/null", StdErr: "/dev/null"}}, &reply)
		})
		ids = append(ids, reply.Job)
	}
	r.Wait(fmt.Sprintf("%d jobs to end", n), func() error {
		ended := r.ended()
		for _, id := range ids {
			if !slices.Contains(ended, id) {
				return fmt.Errorf("job %d has not ended on record", id)
			}
		}
		return nil
	})
	return ids
}

// ended gives the jobs that have ended on record, one for each run.
func (r *runs) ended() []model.JobID {
	r.t.Helper()
	var out []model.JobID
	r.Wait("gdbd to answer", func() error {
		out = nil
		cl := r.Client()
		defer cl.Close()
		return cl.Stream(proto.KindAcct, &proto.AcctRequest{States: []model.JobState{model.Completed}},
			func(body []byte) error {
				var chunk proto.RecordsChunk
				if err := proto.Decode(body, &chunk); err != nil {
					return err
				}
				for _, rec := range chunk.Records {
					out = append(out, rec.Job)
				}
				return nil
			})
	})
	slices.Sort(out)
	return out
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGdbdFromABackupGetsTheRest: when gdbd's file is put back to an older one, the controller sends again what it has
// acknowledged since, and each run is on record once.
func TestGdbdFromABackupGetsTheRest(t *testing.T) {
	r := &runs{devcluster.Start(t, devcluster.Options{Nodes: 1}), t}
	live := filepath.Join(r.Dir, "state", "dbd", "acct.db")
	backup := filepath.Join(t.TempDir(), "acct.db")
	all := r.run(20)
	r.StopDaemon("dbd")
	copyFile(t, live, backup)
	r.StartDaemon("dbd")
	all = append(all, r.run(20)...)

	r.StopDaemon("dbd")
	copyFile(t, backup, live)
	r.StartDaemon("dbd")
	all = append(all, r.run(5)...)
	if got := r.ended(); !slices.Equal(got, all) {
		t.Errorf("on record are %v, want %v", got, all)
	}
}

// save gives what gcontrol snapshot save writes.
func (r *runs) save() string {
	r.t.Helper()
	cl := r.Client()
	defer cl.Close()
	var b bytes.Buffer
	err := cl.Stream(proto.KindDump, &proto.DumpRequest{What: proto.DumpSnapshot}, func(body []byte) error {
		var part proto.DumpChunk
		if err := proto.Decode(body, &part); err != nil {
			return err
		}
		b.Write(part.Data)
		return nil
	})
	file := filepath.Join(r.t.TempDir(), "saved")
	if err == nil {
		err = os.WriteFile(file, b.Bytes(), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return file
}

// restore is gctld --restore. It gives its words, or its error's.
func (r *runs) restore(name, file string, replace bool) string {
	r.t.Helper()
	var b bytes.Buffer
	s := ctld.Start{Conf: r.Conf, Name: name, Restore: file, Replace: replace}
	if err := s.Run(r.t.Context(), &b); err != nil {
		return "error: " + err.Error()
	}
	return b.String()
}

// stays starts a job that goes on until the test ends, and gives a function that fails if it doesn't.
func (r *runs) stays() func() {
	r.t.Helper()
	cl := r.Client()
	defer cl.Close()
	var reply proto.SubmitReply
	if err := cl.Call(proto.KindSubmit, &proto.SubmitRequest{Script: []byte("#!/bin/sh\nexec sleep 1000\n"),
		Spec: &model.Spec{Name: "stays", WorkDir: r.Dir, StdOut: "/dev/null", StdErr: "/dev/null"}}, &reply); err != nil {
		r.t.Fatal(err)
	}
	attempt := uint32(0)
	look := func() error {
		cl := r.Client()
		defer cl.Close()
		state := model.Pending
		one := proto.JobFilter{Jobs: []model.JobRef{{Job: reply.Job, Task: model.NoTask}}}
		err := cl.Stream(proto.KindJobs, &proto.JobsRequest{Filter: one},
			func(body []byte) error {
				var chunk proto.JobsChunk
				if err := proto.Decode(body, &chunk); err != nil {
					return err
				}
				for _, j := range chunk.Jobs {
					state = j.State
					if attempt == 0 {
						attempt = j.Attempt
					} else if j.Attempt != attempt {
						r.t.Errorf("job %d runs attempt %d after %d", j.ID, j.Attempt, attempt)
					}
				}
				return nil
			})
		if err == nil && state != model.Running {
			err = fmt.Errorf("job %d is %s", reply.Job, state)
		}
		return err
	}
	r.Wait("the job to run", look)
	return func() {
		r.t.Helper()
		r.Wait("the job to be running", look)
	}
}

// TestRestoredStateGivesNoNumberTwice: a cluster goes on from a backup of before. Its nodes obey, what ran goes on, and
// numbers of jobs that were given since are not given again: all runs are on record.
func TestRestoredStateGivesNoNumberTwice(t *testing.T) {
	r := &runs{devcluster.Start(t, devcluster.Options{Nodes: 1}), t}
	running := r.stays()
	all := r.run(50)
	file := r.save()
	for range 3 { // nodes obey later leaders than the saved state knows
		r.StopDaemon("ctld-ctl1")
		r.StartDaemon("ctld-ctl1")
		all = append(all, r.run(1)...)
	}
	all = append(all, r.run(47)...)
	if got := r.restore("ctl1", file, true); !strings.Contains(got, "is in use by another process") {
		t.Errorf("restored under a controller that runs: %s", got)
	}
	r.StopDaemon("ctld-ctl1")
	if got := r.restore("ctl1", file, false); !strings.Contains(got, "there is a cluster's state already; --replace") {
		t.Errorf("restored over a state: %s", got)
	}
	got := r.restore("ctl1", file, true)
	if !strings.Contains(got, "the state that was there is in "+r.Dir) || !strings.Contains(got, "new jobs begin at ") ||
		!strings.Contains(got, "what was revoked since the snapshot stays revoked: 0 daemons or certificates") {
		t.Fatal(got)
	}
	r.StartDaemon("ctld-ctl1")
	all = append(all, r.run(50)...)
	running()
	want := slices.Compact(slices.Sorted(slices.Values(all)))
	if len(want) != 150 {
		t.Errorf("%d numbers for 150 jobs", len(want))
	}
	if got := r.ended(); !slices.Equal(got, want) {
		t.Errorf("on record are %v, want %v", got, want)
	}
	if old, _ := filepath.Glob(filepath.Join(r.Dir, "state", "ctl1", "replaced-*", "raft.db")); len(old) != 1 {
		t.Errorf("the old state is not kept: %v", old)
	}
}

// TestRestoreFromAKeptSnapshot: a controller whose log is lost goes on from a snapshot that is still in its directory.
func TestRestoreFromAKeptSnapshot(t *testing.T) {
	r := &runs{devcluster.Start(t, devcluster.Options{Nodes: 1}), t}
	running := r.stays()
	all := r.run(3)
	kept := func() []string {
		list, _ := filepath.Glob(filepath.Join(r.Dir, "state", "ctl1", "snapshots", "*", "meta.crc32c"))
		return list
	}
	noise := make([]byte, 1<<20)
	for len(kept()) == 0 { // the log grows until a snapshot is due
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		cl := r.Client()
		err := cl.Call(proto.KindSubmit, &proto.SubmitRequest{
			Script: []byte("#!/bin/sh\n#" + base64.StdEncoding.EncodeToString(noise)),
			Spec:   &model.Spec{Name: "big", WorkDir: r.Dir, Begin: model.Time(time.Now().Add(24 * time.Hour).UnixMilli())}},
			new(proto.SubmitReply))
		if cl.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.StopDaemon("ctld-ctl1")
	if err := os.Remove(filepath.Join(r.Dir, "state", "ctl1", "raft.db")); err != nil {
		t.Fatal(err)
	}
	if got := r.restore("ctl1", filepath.Dir(kept()[0]), true); strings.HasPrefix(got, "error") {
		t.Fatal(got)
	}
	r.StartDaemon("ctld-ctl1")
	all = append(all, r.run(3)...)
	running()
	if got := r.ended(); !slices.Equal(got, all) {
		t.Errorf("on record are %v, want %v", got, all)
	}
}

// TestRestoreOnOneOfThree: one of three empty controllers gets a saved state, and the others get it from that one. It
// is refused while another controller runs with a state.
func TestRestoreOnOneOfThree(t *testing.T) {
	r := &runs{devcluster.Start(t, devcluster.Options{Nodes: 1, Controllers: 3}), t}
	running := r.stays()
	all := r.run(3)
	file := r.save()
	r.StopDaemon("ctld-ctl2")
	if got := r.restore("ctl2", file, true); !strings.Contains(got, "runs and has a state") {
		t.Errorf("restored beside controllers that run: %s", got)
	}
	for _, name := range []string{"ctl1", "ctl2", "ctl3"} {
		if name != "ctl2" {
			r.StopDaemon("ctld-" + name)
		}
		if err := os.RemoveAll(filepath.Join(r.Dir, "state", name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.restore("ctl2", file, false); !strings.Contains(got, "must have an empty StateSaveLocation") {
		t.Fatal(got)
	}
	for _, name := range []string{"ctl1", "ctl2", "ctl3"} {
		r.StartDaemon("ctld-" + name)
	}
	all = append(all, r.run(3)...)
	running()
	for _, name := range []string{"ctl1", "ctl3"} {
		r.Wait(name+" to have the state", func() error {
			if r.Joining(name) {
				return fmt.Errorf("not yet")
			}
			return nil
		})
	}
	if got := r.ended(); !slices.Equal(got, all) {
		t.Errorf("on record are %v, want %v", got, all)
	}
}

// TestRestoredTasksRunOnce: the tasks of an array, and the components of a heterogeneous job, that waited in the
// snapshot and have ended since don't run again. A task that runs does, as a restart with its number.
func TestRestoredTasksRunOnce(t *testing.T) {
	r := &runs{devcluster.Start(t, devcluster.Options{Nodes: 1, CPUs: 8}), t}
	command := func(words ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(devcluster.Commands(t), words[0]), words[1:]...)
		cmd.Env, cmd.Dir = r.Env(), r.Dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	ran := filepath.Join(r.Dir, "ran")
	script := filepath.Join(r.Dir, "script")
	what := `#!/bin/sh
echo ${SLURM_ARRAY_TASK_ID:-het}${SLURM_RESTART_COUNT:+ again} $SLURM_JOB_ID >> ran
[ "$SLURM_ARRAY_TASK_ID" = 3 ] && [ -z "$SLURM_RESTART_COUNT" ] && exec sleep 1000
exit 0
`
	if err := os.WriteFile(script, []byte(what), 0o700); err != nil {
		t.Fatal(err)
	}
	array := command("gsubmit", "--parsable", "-H", "--requeue", "-o", "/dev/null", "--array=1-6", script)
	het := command("gsubmit", "--parsable", "-H", "-o", "/dev/null", "-n1", ":", "-n1", script)
	file := r.save()
	for _, task := range []string{"1", "2", "3"} {
		command("gcontrol", "release", array+"_"+task)
	}
	command("gcontrol", "release", het)
	states := func() string {
		list := strings.Fields(command("gacct", "-nXP", "-o", "JobID,State", "-j", array+","+het))
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	begun := fmt.Sprintf("%[1]s_1|COMPLETED %[1]s_2|COMPLETED %[1]s_3|RUNNING %[1]s_[4-6]|PENDING "+
		"%[2]s+0|COMPLETED %[2]s+1|COMPLETED", array, het)
	r.Wait("the records of what has begun", func() error {
		if got := states(); got != begun {
			return fmt.Errorf("%s, want %s", got, begun)
		}
		return nil
	})
	r.StopDaemon("ctld-ctl1")
	if got := r.restore("ctl1", file, true); !strings.Contains(got, "new jobs begin at ") {
		t.Fatal(got)
	}
	r.StartDaemon("ctld-ctl1")
	r.WaitReady()
	command("gcontrol", "release", array+"_[3-6]") // the snapshot has its tasks on hold
	over := strings.NewReplacer("RUNNING", "COMPLETED", "[4-6]|PENDING", "4|COMPLETED "+array+"_5|COMPLETED "+array+
		"_6|COMPLETED").Replace(begun)
	r.Wait("everything to end", func() error {
		if got := states(); got != over {
			return fmt.Errorf("%s, want %s", got, over)
		}
		return nil
	})
	text, err := os.ReadFile(ran)
	if err != nil {
		t.Fatal(err)
	}
	number := map[string]string{}
	var got []string
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		task, id := line[:at], line[at+1:]
		if got = append(got, task); task == "3" || task == "3 again" {
			number[id] = task
		}
	}
	slices.Sort(got)
	if all := strings.Join(got, ", "); all != "1, 2, 3, 3 again, 4, 5, 6, het" {
		t.Errorf("what ran: %s", all)
	}
	if len(number) != 1 {
		t.Errorf("the task that ran twice had the numbers %v", number)
	}
}
