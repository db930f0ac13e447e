package devcluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// The storm: jobs with steps are ended in every way at random moments, in their first milliseconds above all. However
// that goes, everything ends: no job is left in the queue, no record is open, no process and no control group remains,
// nothing is held and no daemon keeps a file open.
//
//	GBATCH_STORM=3000 go test ./internal/devcluster -run Storm       jobs
//	GBATCH_STORM=1h go test ./internal/devcluster -run Storm         storms of 3,000 jobs, each of another seed
//	GBATCH_STORM_SEED=17 go test ./internal/devcluster -run Storm    what each job is and when what happens to it
//
// What a seed doesn't say is how fast the machine is, so a failure may need some tries.

const (
	stormShort    = 100              // jobs where GBATCH_STORM says nothing
	stormLong     = 3000             // of each storm of an hour of them
	stormWidth    = 12               // jobs at a time
	stormPatience = 90 * time.Second // for one job to end when it was told to
)

func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it takes half a minute")
	}
	seed := rand.Uint64() >> 1
	if text := os.Getenv("GBATCH_STORM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("GBATCH_STORM_SEED=%s: %v", text, err)
		}
		seed = n
	}
	jobs, until := stormShort, time.Time{}
	if text := os.Getenv("GBATCH_STORM"); text != "" {
		n, err := strconv.Atoi(text)
		d, derr := time.ParseDuration(text)
		switch {
		case err == nil && n > 0:
			jobs = n
		case derr == nil && d > 0:
			jobs, until = stormLong, time.Now().Add(d)
		default:
			t.Fatalf("GBATCH_STORM=%s: write a number of jobs, or a time such as 1h", text)
		}
	}
	for round := uint64(0); ; round++ {
		t.Run(fmt.Sprint("seed=", seed+round), func(t *testing.T) {
			t.Logf("the storm's seed is %d: GBATCH_STORM=%d GBATCH_STORM_SEED=%d go test ./internal/devcluster -run Storm",
				seed+round, jobs, seed+round)
			newStorm(t, seed+round).run(jobs)
		})
		if t.Failed() || !time.Now().Before(until) {
			return
		}
	}
}

// stormScripts are what the jobs do.
var stormScripts = []struct {
	name, script string
	change       func(*model.Spec)
}{
	{"step", "srun sleep 300\n", nil},
	{"twenty", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do srun --overlap -n1 sleep " +
		"300 & done; wait\n", nil},
	{"loop", "while :; do srun true; done\n", nil},
	{"short", "srun true; srun true\n", nil},
	{"deaf", `srun sh -c 'trap "" TERM; while :; do sleep 1; done'` + "\n", nil},
	{"deafer", `trap "" TERM; srun sh -c 'trap "" TERM; while :; do sleep 1; done' & while :; do sleep 1; done` +
		"\n", nil},
	{"background", "srun sleep 300 & sleep 0.05\n", nil},
	{"setsid", "setsid sleep 300 </dev/null >/dev/null 2>&1 & srun setsid sleep 300\n", nil},
	{"two", "srun -N2 -n2 sleep 300\n", func(sp *model.Spec) { sp.MinNodes, sp.MaxNodes = 2, 2 }},
	{"twoloop", "while :; do srun -N2 -n2 true; done\n", func(sp *model.Spec) { sp.MinNodes, sp.MaxNodes = 2, 2 }},
	{"gpu", "srun --gpus=1 sleep 300\n", func(sp *model.Spec) {
		sp.Gres = []model.GresReq{{Name: "gpu", Count: 1}}
		sp.More = &model.Needs{Licenses: []model.LicenseCount{{Name: "lic", Count: 1}}}
	}},
	{"plain", "sleep 300\n", nil},
	{"array", "srun sleep 300\n", func(sp *model.Spec) {
		sp.ArrayText, sp.Tasklist = "0-3", model.TaskSet{{Lo: 0, Hi: 3, Step: 1}}
	}},
}

type storm struct {
	t    *testing.T
	c    *devcluster.Cluster
	seed uint64
	bin  string
	next atomic.Int64

	mu    sync.Mutex
	story map[model.JobID]string // what each job was and what was done to it
}

func newStorm(t *testing.T, seed uint64) *storm {
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	prolog := program("prolog", "case $SLURM_JOB_ID in *3) sleep 0.05;; *7) sleep 0.3;; esac\n")
	epilog := program("epilog", "case $SLURM_JOB_ID in *4) sleep 0.05;; *8) sleep 0.3;; esac\n")
	c := devcluster.Start(t, devcluster.Options{Nodes: 4, CPUs: 8, MemMiB: 8000, Gres: "gpu:a100:2",
		Conf: "KillWait=1\nLicenses=lic:4\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n" +
			"MaxJobCount=100000\nProlog=" + prolog + "\nEpilog=" + epilog,
		Partitions: "PartitionName=main Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00 PriorityTier=1\n" +
			"PartitionName=high Nodes=ALL MaxTime=7-0 DefaultTime=1:00:00 PriorityTier=9"})
	return &storm{t: t, c: c, seed: seed, bin: devcluster.Commands(t), story: map[model.JobID]string{}}
}

// run has the storm pass and looks at what it leaves.
func (s *storm) run(jobs int) {
	s.pass(stormWidth) // so that whatever daemons open once is open
	s.check()
	before, threads := s.files(), runtime.NumGoroutine()
	s.pass(jobs)
	s.check()
	s.settles("the daemons' open files", func() error {
		if now := s.files(); now > before+stormSlack {
			return fmt.Errorf("%d files are open, before the storm %d", now, before)
		}
		return nil
	})
	s.settles("the daemons' goroutines", func() error {
		if now := runtime.NumGoroutine(); now > threads+stormSlack {
			return fmt.Errorf("%d run, before the storm %d", now, threads)
		}
		return nil
	})
	if s.t.Failed() && os.Getenv("GBATCH_STORM_STACKS") != "" {
		buf := make([]byte, 4<<20)
		s.t.Logf("%s", buf[:runtime.Stack(buf, true)])
	}
}

// stormSlack is how many files and goroutines may be more than before: timers and idle connections come and go, with
// three goroutines for each connection between daemons.
const stormSlack = 16

// pass runs that many jobs, some at a time.
func (s *storm) pass(jobs int) {
	until := s.next.Load() + int64(jobs)
	var all sync.WaitGroup
	for range stormWidth {
		all.Go(func() {
			cl := s.c.Client()
			defer cl.Close()
			for {
				i := s.next.Add(1) - 1
				if i >= until {
					s.next.Add(-1)
					return
				}
				s.one(cl, rand.New(rand.NewPCG(s.seed, uint64(i))), i)
			}
		})
	}
	all.Wait()
}

// one is the life of one job.
func (s *storm) one(cl *client.Client, r *rand.Rand, i int64) {
	if r.IntN(8) == 0 {
		s.command(cl, r, i)
		return
	}
	kind := &stormScripts[r.IntN(len(stormScripts))]
	sp := &model.Spec{Name: kind.name, UID: uint32(os.Getuid()), WorkDir: "/tmp", StdOut: "/dev/null", Umask: 0o22,
		MinNodes: 1, MaxNodes: 1,
		LimitS: model.NotSet, Requeue: r.IntN(2) == 0, Command: kind.name}
	if r.IntN(6) == 0 {
		sp.LimitS = 1 + int64(r.IntN(2))
	}
	if kind.change != nil {
		kind.change(sp)
	}
	rq := &proto.SubmitRequest{RequestID: fmt.Sprintf("storm%d-%d-%d", s.seed, i, time.Now().UnixNano()), Spec: sp,
		Script: []byte("#!/bin/sh\n" + kind.script),
		Env:    []byte("PATH=" + s.bin + ":/usr/bin:/bin\x00")}
	var reply proto.SubmitReply
	if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
		s.wrong("submit %s: %v", kind.name, err)
		return
	}
	id := reply.Job
	s.tell(id, "number %d, %s, limit %d s, requeue %v", i, kind.name, sp.LimitS, sp.Requeue)
	switch fate := r.IntN(10); {
	case sp.LimitS > 0 && r.IntN(2) == 0: // its time limit ends it
	case fate == 0 && kind.name == "short": // it ends by itself
	case fate == 1:
		s.after(r, id, "requeue")
		s.update(cl, id, proto.ActRequeue)
		s.after(r, id, "cancel")
		s.cancel(cl, id, 0, false)
	case fate == 2:
		s.after(r, id, "suspend")
		s.update(cl, id, proto.ActSuspend)
		if r.IntN(2) == 0 {
			s.after(r, id, "resume")
			s.update(cl, id, proto.ActResume)
		}
		s.after(r, id, "cancel")
		s.cancel(cl, id, 0, false)
	case fate == 3:
		s.after(r, id, "kill all of it")
		s.cancel(cl, id, int32(syscall.SIGKILL), true)
	case fate == 4:
		s.after(r, id, "kill its steps")
		s.cancel(cl, id, int32(syscall.SIGKILL), false)
	case fate == 5:
		s.after(r, id, "preempt")
		s.preempt(cl, id)
	case fate == 6:
		s.after(r, id, "cancel")
		s.cancel(cl, id, 0, false)
		s.after(r, id, "cancel again and kill")
		s.cancel(cl, id, 0, false)
		s.cancel(cl, id, int32(syscall.SIGKILL), true)
	default:
		s.after(r, id, "cancel")
		s.cancel(cl, id, 0, false)
	}
	s.ends(cl, id)
}

// command is an srun or salloc outside of a job.
func (s *storm) command(cl *client.Client, r *rand.Rand, i int64) {
	list := [][]string{{"srun", "sleep", "300"}, {"srun", "-N2", "-n2", "sleep", "300"}, {"srun", "true"},
		{"salloc", "srun", "sleep", "300"},
		{"salloc", "-K", "sleep", "300"}, {"srun", "sh", "-c", `trap "" TERM INT; while :; do sleep 1; done`}}
	words := list[r.IntN(len(list))]
	name := fmt.Sprintf("s%d-%d", s.seed, i)
	cmd := exec.Command(filepath.Join(s.bin, words[0]), append([]string{"-J", name}, words[1:]...)...)
	cmd.Env, cmd.Dir = append(s.c.Env(), "PATH="+s.bin+":/usr/bin:/bin"), "/tmp"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Start(); err != nil {
		s.wrong("%v: %v", words, err)
		return
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // how it ends is not looked at
	time.Sleep(moment(r) + time.Duration(r.IntN(100))*time.Millisecond)
	what, killed := "cancel", false
	switch r.IntN(4) {
	case 0:
		what, killed = "kill -9 of the command", true
		_ = cmd.Process.Kill() // it may have ended
	case 1:
		what = "SIGTERM to the command"
		_ = cmd.Process.Signal(syscall.SIGTERM) // as above
	case 2:
		what = "SIGINT to the command, twice"
		_ = cmd.Process.Signal(syscall.SIGINT) // as above
		time.Sleep(moment(r))
		_ = cmd.Process.Signal(syscall.SIGINT) // as above
	}
	byName := proto.JobFilter{Names: []string{name}}
	for end := time.Now().Add(stormPatience); ; {
		if !killed { // of one that was killed nothing may be left without that
			var reply proto.TargetsReply
			_ = cl.Call(proto.KindCancel, &proto.CancelRequest{Filter: byName}, &reply) // there may be none, or none yet
		}
		select {
		case <-ended:
			if len(s.jobs(cl, byName)) == 0 {
				return
			}
		case <-time.After(500 * time.Millisecond):
		}
		time.Sleep(100 * time.Millisecond) // the pace of looking
		if time.Now().After(end) {
			s.wrong("number %d, %v, %s: the command does not end, or its job; it said %q", i, words, what, said.String())
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the test has failed
			return
		}
	}
}

// moment is when something happens to a job: mostly in its first milliseconds.
func moment(r *rand.Rand) time.Duration {
	most := []int{5, 20, 40, 40, 80, 300, 1500}[r.IntN(7)]
	return time.Duration(r.IntN(most*1000)) * time.Microsecond
}

func (s *storm) after(r *rand.Rand, id model.JobID, what string) {
	d := moment(r)
	time.Sleep(d)
	s.tell(id, "after %v %s", d.Round(time.Millisecond/10), what)
}

func target(id model.JobID) []model.JobRef { return []model.JobRef{{Job: id, Task: model.NoTask}} }

// cancel ends a job or signals it. It may be over.
func (s *storm) cancel(cl *client.Client, id model.JobID, sig int32, full bool) {
	kind := proto.KindCancel
	if sig != 0 {
		kind = proto.KindSignal
	}
	var reply proto.TargetsReply
	if err := cl.Call(kind, &proto.CancelRequest{Targets: target(id), Signal: sig, Full: full}, &reply); err != nil {
		s.tell(id, "refused: %v", err)
	}
}

// update requeues, suspends or resumes a job. It may be too early or too late.
func (s *storm) update(cl *client.Client, id model.JobID, what proto.JobAction) {
	var reply proto.TargetsReply
	if err := cl.Call(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: what, Targets: target(id)},
		&reply); err != nil {
		s.tell(id, "refused: %v", err)
	}
}

// preempt has a job of a higher partition take the node of this one.
func (s *storm) preempt(cl *client.Client, id model.JobID) {
	j := s.job(cl, id)
	if j == nil || j.Run == nil || j.Run.Alloc == nil {
		return
	}
	sp := &model.Spec{Name: "high", UID: uint32(os.Getuid()), WorkDir: "/tmp", StdOut: "/dev/null", Umask: 0o22,
		MinNodes: 1, MaxNodes: 1, Tasks: 8,
		LimitS: model.NotSet, Partitions: []string{"high"}, ReqNodes: []string{j.Run.Alloc.Nodes[0].Node}}
	rq := &proto.SubmitRequest{RequestID: fmt.Sprintf("high%d-%d", s.seed, time.Now().UnixNano()), Spec: sp,
		Script: []byte("#!/bin/sh\ntrue\n"), Env: []byte("PATH=/usr/bin:/bin\x00")}
	var reply proto.SubmitReply
	if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
		s.wrong("submit to the partition high: %v", err)
		return
	}
	s.tell(reply.Job, "high, to take the node of job %d", id)
	s.ends(cl, reply.Job)
}

// ends waits for the end of a job; one that goes on by its nature, or came back to the queue, is cancelled.
func (s *storm) ends(cl *client.Client, id model.JobID) {
	begin, told := time.Now(), time.Time{}
	for {
		open := s.jobs(cl, proto.JobFilter{Jobs: target(id)})
		if len(open) == 0 {
			return
		}
		switch {
		case told.IsZero() && time.Since(begin) > 3*time.Second:
			told = time.Now()
			s.tell(id, "after %v cancel", time.Since(begin).Round(time.Millisecond))
			s.cancel(cl, id, 0, false)
		case !told.IsZero() && time.Since(told) > stormPatience:
			for _, j := range open {
				s.wrong("job %d is %s %v after it was cancelled: %s", j.ID, j.State, stormPatience, s.waits(cl, j))
			}
			return
		}
		time.Sleep(50 * time.Millisecond) // the pace of looking
	}
}

// jobs lists jobs that are not over.
func (s *storm) jobs(cl *client.Client, f proto.JobFilter) []*model.Job {
	var out []*model.Job
	err := cl.Stream(proto.KindJobs, &proto.JobsRequest{Filter: f}, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			if !j.State.Finished() {
				out = append(out, j)
			}
		}
		return nil
	})
	if err != nil {
		s.wrong("list jobs: %v", err)
	}
	return out
}

func (s *storm) job(cl *client.Client, id model.JobID) *model.Job {
	for _, j := range s.jobs(cl, proto.JobFilter{Jobs: target(id)}) {
		return j
	}
	return nil
}

func (s *storm) tell(id model.JobID, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if old := s.story[id]; old != "" {
		text = old + "; " + text
	}
	s.story[id] = text
}

func (s *storm) wrong(format string, args ...any) {
	s.t.Errorf("seed %d: %s", s.seed, fmt.Sprintf(format, args...))
}

// waits says what is known of a job that does not end.
func (s *storm) waits(cl *client.Client, j *model.Job) string {
	s.mu.Lock()
	text := s.story[j.ID]
	if text == "" && j.ArrayID != 0 {
		text = s.story[j.ArrayID]
	}
	s.mu.Unlock()
	if j.Run != nil {
		text += fmt.Sprintf("; it is on %v since %v, its end is asked for since %v (%v), of its nodes %v work for it",
			j.Run.Alloc.NodeNames(), j.Run.Start, j.Run.StopAt, j.Run.Stop, j.Run.Busy)
	}
	why := exec.Command(filepath.Join(s.bin, "gqueue"), "--why", fmt.Sprint(j.ID))
	why.Env = s.c.Env()
	said, err := why.CombinedOutput()
	return fmt.Sprintf("%s; gqueue --why says %q (%v)", text, said, err)
}

// settles waits for a condition and says what kept it.
func (s *storm) settles(what string, f func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(stormPatience); ; time.Sleep(100 * time.Millisecond) { // the pace of looking
		if err = f(); err == nil {
			return
		}
		if time.Now().After(end) {
			s.wrong("%s: %v", what, err)
			return
		}
	}
}

// check holds that nothing is left of any job.
func (s *storm) check() {
	s.t.Helper()
	cl := s.c.Client()
	defer cl.Close()
	s.settles("the queue is not empty", func() error {
		var left []string
		for _, j := range s.jobs(cl, proto.JobFilter{}) {
			left = append(left, fmt.Sprintf("job %d is %s: %s", j.ID, j.State, s.waits(cl, j)))
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
	s.settles("accounting", func() error { return s.records(cl) })
	s.settles("processes of jobs", func() error {
		list, err := s.c.JobProcesses()
		if err == nil && len(list) > 0 {
			err = errors.New(strings.Join(list, "\n"))
		}
		return err
	})
	s.settles("control groups of jobs", func() error {
		if list := s.c.JobGroups(); len(list) > 0 {
			return errors.New(strings.Join(list, "\n"))
		}
		return nil
	})
	s.settles("the controller's state", func() error { return s.held(cl) })
}

// records holds that the last record of every job, and of every step, is final.
func (s *storm) records(cl *client.Client) error {
	var open []string
	n := 0
	err := cl.Stream(proto.KindAcct, &proto.AcctRequest{Steps: true}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			n++
			if !r.State.Finished() || r.End == 0 && r.Step == nil {
				s.mu.Lock()
				open = append(open, fmt.Sprintf("the record of job %d, attempt %d, step %v says %v: %s", r.Job, r.Attempt,
					r.Step != nil, r.State, s.story[r.Job]))
				s.mu.Unlock()
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case n == 0:
		return errors.New("there are no records")
	case len(open) > 0:
		return errors.New(strings.Join(open[:min(len(open), 10)], "\n"))
	}
	return nil
}

// held holds that the state is sound and that nothing of nodes and licenses is held.
func (s *storm) held(cl *client.Client) error {
	var dump bytes.Buffer
	err := cl.Stream(proto.KindDump, &proto.Empty{}, func(body []byte) error {
		var chunk proto.DumpChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		_, err := dump.Write(chunk.Data)
		return err
	})
	if err != nil {
		return err
	}
	st, _, err := state.ReadDump(io.Reader(&dump))
	if err != nil {
		return err
	}
	if err := st.Check(); err != nil {
		return err
	}
	v := st.View()
	var wrong []string
	v.Nodes(func(n *model.Node) bool {
		if len(n.Jobs) > 0 || !n.UsedCPUs.Empty() || n.UsedMem != 0 || !n.Used("gpu").Empty() {
			wrong = append(wrong, fmt.Sprintf("node %s holds CPUs %v, %d MiB, GPUs %v for jobs %v", n.Def.Name, n.UsedCPUs,
				n.UsedMem, n.Used("gpu"), n.Jobs))
		}
		if !n.Usable() {
			wrong = append(wrong, fmt.Sprintf("node %s is %s: %s", n.Def.Name, n.StateName(), n.Reason))
		}
		return true
	})
	if k := v.LicensesInUse("lic"); k != 0 {
		wrong = append(wrong, fmt.Sprintf("%d licenses are in use", k))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// files counts what the daemons, which are in this process, and the launchers have open.
func (s *storm) files() int {
	pids, err := s.c.Launchers()
	if err != nil {
		s.wrong("list launchers: %v", err)
	}
	n := 0
	for _, pid := range append(pids, os.Getpid()) {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			s.wrong("files of process %d: %v", pid, err)
		}
		n += len(list)
	}
	return n
}
