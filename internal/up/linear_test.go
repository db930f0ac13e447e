package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// These tests look at the cluster from outside: what users ask, what they are answered, and when, while the leader
// changes. A history is linearizable if there is one order of all its requests, each between its call and its answer,
// in which every answer is true. A change whose outcome is unknown may stand anywhere after its call, or nowhere.

// deedKind is what a user does to a job.
type deedKind uint8

const (
	doHold deedKind = iota
	doRelease
	doSet  // TimeLimit=N
	doMore // TimeLimit=+1
	doCancel
	doShow
	doSubmit // by a request id that all users share
	doFind   // the job of that submission, by its name
)

// looks reports whether it changes nothing.
func (k deedKind) looks() bool { return k == doShow || k == doFind }

// jobFacts are a job's facts as the model has them. Jobs wait for their begin time all along.
type jobFacts struct {
	held, cancelled bool
	limitS          int64

	made model.JobID // of a submission: its number; 0: there is none, madeSome: there is one, nobody knows which
}

const madeSome = ^model.JobID(0)

// asked is a request.
type asked struct {
	what   deedKind
	job    model.JobID
	limitS int64
	key    string // of doSubmit and doFind
}

// told is an answer.
type told struct {
	unknown, refused bool
	facts            jobFacts // of doShow
}

// jobModel is one job, step by step.
var jobModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		type of struct {
			job model.JobID
			key string
		}
		byJob := map[of][]porcupine.Operation{}
		for _, op := range history {
			in := op.Input.(asked)
			byJob[of{in.job, in.key}] = append(byJob[of{in.job, in.key}], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byJob {
			out = append(out, ops)
		}
		return out
	},
	Init: func() []any { return []any{jobFacts{limitS: linearLimitS}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(jobFacts), input.(asked), output.(told)
		switch {
		case in.what == doSubmit && out.unknown && s.made == 0:
			return []any{s, jobFacts{limitS: s.limitS, made: madeSome}}
		case in.what == doSubmit && out.unknown:
			return []any{s}
		case in.what == doFind && out.facts.made == 0 && s.made == 0:
			return []any{s}
		case in.what == doSubmit && s.made == 0 && out.facts.made != 0,
			(in.what == doSubmit || in.what == doFind) && s.made != 0 && (s.made == madeSome || s.made == out.facts.made) &&
				out.facts.made != 0:
			return []any{jobFacts{limitS: s.limitS, made: out.facts.made}}
		case in.what == doSubmit || in.what == doFind:
			return nil // a second job, or none where there is one
		}
		if in.what == doShow {
			if out.unknown || out.facts == s {
				return []any{s}
			}
			return nil
		}
		next := s
		switch in.what {
		case doHold:
			next.held = true
		case doRelease:
			next.held = false
		case doSet:
			next.limitS = in.limitS
		case doMore:
			next.limitS += 60
		case doCancel:
			next.cancelled = true
		}
		switch {
		case s.cancelled && (out.refused || out.unknown):
			return []any{s}
		case s.cancelled || out.refused:
			return nil // a job that waits can be changed, an ended one can't
		case out.unknown:
			return []any{s, next}
		}
		return []any{next}
	},
}

const (
	linearLimitS  = 600 // of a new job
	linearUsers   = 6
	linearJobs    = 3 // that are asked about at the same time
	linearNewJob  = 1200 * time.Millisecond
	linearChecked = 2 * time.Minute // for the checker
)

// linear records a history.
type linear struct {
	t     *testing.T
	begun time.Time

	mu      sync.Mutex
	jobs    []model.JobID
	key     string // of the submission that all make
	history []porcupine.Operation
	unknown int
	undone  int // requests with the promise that nothing was done
}

// promised are the codes with the promise that nothing was done.
var promised = []proto.Code{proto.CodeNotLeader, proto.CodeNoController, proto.CodeBusy}

// one makes a request and records it.
func (l *linear) one(user int, cl *client.Client, in asked) {
	call := time.Since(l.begun)
	out, err := l.ask(cl, in)
	op := porcupine.Operation{ClientId: user, Input: in, Call: int64(call), Output: out,
		Return: int64(time.Since(l.begun))}
	l.mu.Lock()
	defer l.mu.Unlock()
	var e *rpc.Error
	switch {
	case err == nil:
	case in.what.looks() || errors.As(err, &e) && slices.Contains(promised, e.Code):
		l.undone++
		return
	case errors.As(err, &e) && e.Code == proto.CodeUnknown:
		l.unknown++
		op.Output, op.Return = told{unknown: true}, int64(1<<62)
	case errors.As(err, &e) && (e.Code == proto.CodeAlreadyDone || e.Code == proto.CodeInvalidJob):
		op.Output = told{refused: true}
	default:
		l.t.Errorf("%+v: %v", in, err)
		return
	}
	l.history = append(l.history, op)
}

func (l *linear) ask(cl *client.Client, in asked) (told, error) {
	var reply proto.TargetsReply
	update := func(action proto.JobAction, set ...model.KV) (told, error) {
		rq := &proto.UpdateJobRequest{Action: action, Targets: ref(in.job), Set: set}
		err := cl.Call(proto.KindUpdateJob, rq, &reply)
		return told{refused: err == nil && reply.Results[0].Code != 0}, err
	}
	switch in.what {
	case doHold:
		return update(proto.ActUserHold)
	case doRelease:
		return update(proto.ActRelease)
	case doSet:
		return update(proto.ActUpdate, model.KV{Key: "TimeLimit", Value: fmt.Sprint(in.limitS / 60)})
	case doMore:
		return update(proto.ActUpdate, model.KV{Key: "TimeLimit", Value: "+1"})
	case doCancel:
		err := cl.Call(proto.KindCancel, &proto.CancelRequest{Targets: ref(in.job)}, &reply)
		return told{refused: err == nil && reply.Results[0].Code != 0}, err
	}
	if in.what == doSubmit {
		sp := specOf(l.t, func(sp *model.Spec) { sp.Name, sp.Begin = in.key, inTenHours() })
		rq := &proto.SubmitRequest{RequestID: in.key, Spec: sp, Script: []byte("#!/bin/sh\n"), Env: []byte("PATH=/bin\x00")}
		var made proto.SubmitReply
		err := cl.Call(proto.KindSubmit, rq, &made)
		return told{facts: jobFacts{made: made.Job}}, err
	}
	var out told
	if in.what == doFind {
		rq := &proto.JobsRequest{Filter: proto.JobFilter{Names: []string{in.key}}}
		err := cl.Stream(proto.KindJobs, rq, func(body []byte) error {
			var chunk proto.JobsChunk
			err := proto.Decode(body, &chunk)
			for _, j := range chunk.Jobs {
				if out.facts.made != 0 {
					l.t.Errorf("the submission %s has made the jobs %d and %d", in.key, out.facts.made, j.ID)
				}
				out.facts.made = j.ID
			}
			return err
		})
		return out, err
	}
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Jobs: ref(in.job)}}
	err := cl.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		err := proto.Decode(body, &chunk)
		for _, j := range chunk.Jobs {
			out.facts = jobFacts{held: j.Hold != model.NotHeld, cancelled: j.State == model.Cancelled,
				limitS: j.Spec.LimitS}
		}
		return err
	})
	return out, err
}

// flaky is a socket before a controller's that loses answers: the connection breaks when one arrives.
type flaky struct {
	dir  string
	lost func() bool // whether this answer is lost
	wg   sync.WaitGroup
}

func newFlaky(t *testing.T, dir string, lost func() bool) string {
	t.Helper()
	socks, err := client.Sockets(dir)
	if err != nil || len(socks) != 1 {
		t.Fatalf("%v, %v", socks, err)
	}
	f := &flaky{dir: t.TempDir(), lost: lost}
	ln, err := net.Listen("unix", filepath.Join(f.dir, filepath.Base(socks[0])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ln.Close() // the test is over
		f.wg.Wait()
	})
	f.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { f.pass(in, socks[0]) })
		}
	})
	return f.dir
}

// pass carries one connection.
func (f *flaky) pass(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("unix", to)
	if err != nil {
		return // the client sees it
	}
	defer out.Close()
	f.wg.Go(func() {
		_, _ = io.Copy(out, in) // the client's end, or the controller's
		_ = out.(*net.UnixConn).CloseWrite()
	})
	b := make([]byte, 64<<10)
	for greeted := false; ; greeted = true {
		n, err := out.Read(b)
		if err != nil || greeted && f.lost() {
			return
		}
		if _, err := in.Write(b[:n]); err != nil {
			return
		}
	}
}

// use is a user who does one thing after the other, each at another socket. Changes go to the first changeAt ones, the
// controllers': nodes don't take root's.
func (l *linear) use(ctx context.Context, user int, dirs []string, changeAt int, doing *atomic.Uint32,
	dice *rand.Rand) {
	var cls []*client.Client
	for _, dir := range dirs {
		cl := client.New(dir)
		defer cl.Close()
		cls = append(cls, cl)
	}
	for n := 0; ctx.Err() == nil; n++ {
		l.mu.Lock()
		in, key := asked{job: l.jobs[dice.IntN(len(l.jobs))]}, l.key
		l.mu.Unlock()
		switch k := dice.IntN(1000); {
		case k < 120:
			in.what = doHold
		case k < 240:
			in.what = doRelease
		case k < 340:
			in.what, in.limitS = doSet, int64(60*(1000+user*100_000+n%1000*100))
		case k < 520:
			in.what = doMore
		case k < 523:
			in.what = doCancel
		case k < 580:
			in = asked{what: doSubmit, key: key}
		case k < 680:
			in = asked{what: doFind, key: key}
		default:
			in.what = doShow
		}
		doing.Store(uint32(in.what))
		most := len(cls)
		if !in.what.looks() {
			most = changeAt
		}
		l.one(user, cls[dice.IntN(most)], in)
	}
}

// add submits a job that waits; it takes the place of the oldest one.
func (l *linear) add(c *Cluster) {
	id := submit(l.t, c, "true\n", func(sp *model.Spec) { sp.LimitS, sp.Begin = linearLimitS, inTenHours() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = fmt.Sprintf("after-%d", id)
	if l.jobs = append(l.jobs, id); len(l.jobs) > linearJobs {
		l.jobs = l.jobs[1:]
	}
}

func inTenHours() model.Time { return model.Time(time.Now().Add(10 * time.Hour).UnixMilli()) }

// fresh adds jobs all the time: a history is checked job by job, and stays short.
func (l *linear) fresh(ctx context.Context, c *Cluster) {
	for ; ctx.Err() == nil; pause(ctx, linearNewJob) {
		l.add(c)
	}
}

// TestLinearizable: six users hold, release, change, cancel and look at the same jobs, and make the same submissions,
// at all sockets of a cluster whose leader is killed, stopped and replaced. What they are answered is true in one order
// of it all. It takes 20 s, or as long as $GBATCH_LINEAR says, such as 10m.
func TestLinearizable(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv("GBATCH_LINEAR"))
	if err != nil {
		limit = 15 * time.Second
	}
	if testing.Short() {
		t.Skip("skipped by -short: it takes half a minute")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir := filepath.Join(t.TempDir(), "linear")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000, Controllers: 3})
	submitAt, readAt := ready(t, c)
	slices.Sort(submitAt)
	l := &linear{t: t, begun: time.Now()}
	for range linearJobs {
		l.add(c)
	}

	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var victim atomic.Pointer[process] // who is killed when the next answer arrives
	var answers atomic.Int64
	var users sync.WaitGroup
	users.Go(func() { l.fresh(ctx, c) })
	for user := range linearUsers {
		var doing atomic.Uint32
		var dirs []string
		for _, dir := range submitAt {
			dirs = append(dirs, newFlaky(t, dir, func() bool {
				if deedKind(doing.Load()) == doMore { // the change is made: who leads next must know it
					if p := victim.Swap(nil); p != nil {
						_ = p.signal(syscall.SIGKILL) // the cluster shows whether it worked
						return true
					}
				}
				return answers.Add(1)%50 == 0
			}))
		}
		users.Go(func() {
			l.use(ctx, user, slices.Concat(dirs, readAt), len(dirs), &doing, rand.New(rand.NewPCG(seed, uint64(user))))
		})
	}
	faults := []func(name string, p process){
		func(_ string, p process) { victim.Store(&p) },
		func(_ string, p process) { victim.Store(&p) },
		func(name string, p process) { l.stopped(ctx, &users, name, p, submitAt) },
		func(name string, _ process) { takeover(t, c, name) },
	}
	changes := 0
	for ; ctx.Err() == nil; changes++ {
		pause(ctx, 700*time.Millisecond)
		name, p := leaderOf(t, c)
		faults[changes%len(faults)](name, p)
		pause(ctx, 1200*time.Millisecond)
		if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	users.Wait()
	if len(l.history) < 200 {
		t.Errorf("only %d requests were answered", len(l.history))
	}
	t.Logf("%d requests, %d of them unknown, %d not done, %d changes of the leader", len(l.history), l.unknown, l.undone,
		changes)
	begun := time.Now()
	jm := jobModel.ToModel()
	if res := porcupine.CheckOperationsTimeout(jm, l.history, linearChecked); res != porcupine.Ok {
		t.Errorf("the history is not linearizable (%s)", res)
		l.explain(jm)
	}
	t.Logf("checked in %v", time.Since(begun).Round(time.Millisecond))
}

// explain shows the end of the shortest history that is not linearizable, job by job.
func (l *linear) explain(jm porcupine.Model) {
	for _, part := range jobModel.Partition(l.history) {
		if porcupine.CheckOperationsTimeout(jm, part, linearChecked) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		upTo := func(n int) []porcupine.Operation {
			out := slices.Clone(part[:n])
			for _, op := range part[n:] {
				if op.Call < part[n-1].Return && !op.Input.(asked).what.looks() {
					op.Output, op.Return = told{unknown: true}, int64(1<<62)
					out = append(out, op)
				}
			}
			return out
		}
		n := 1 + sort.Search(len(part)-1, func(k int) bool {
			return porcupine.CheckOperationsTimeout(jm, upTo(k+1), linearChecked) != porcupine.Ok
		})
		for _, op := range part[max(0, n-25):min(len(part), n+3)] {
			l.t.Logf("%9.4f to %9.4f user %d: %+v: %+v", float64(op.Call)/1e9, float64(op.Return)/1e9, op.ClientId, op.Input,
				op.Output)
		}
		return
	}
}

// lateUsers ask a leader that was stopped, while it is, and after its successor has answered others.
const lateUsers = 40

// stopped stops the leader until another one has led for a while, and lets users ask the old one as it goes on, over
// connections that they had before.
func (l *linear) stopped(ctx context.Context, users *sync.WaitGroup, name string, p process, dirs []string) {
	k := slices.IndexFunc(dirs, func(dir string) bool { return strings.HasSuffix(dir, "-"+name) })
	ask := make(chan struct{})
	var connected sync.WaitGroup
	connected.Add(lateUsers)
	for n := range lateUsers {
		users.Go(func() {
			cl := client.New(dirs[k])
			defer cl.Close()
			err := cl.Call(proto.KindPing, &proto.Empty{}, &proto.PingReply{})
			connected.Done()
			<-ask
			if err != nil {
				return
			}
			l.mu.Lock()
			job := l.jobs[n%len(l.jobs)]
			l.mu.Unlock()
			l.one(linearUsers+n, cl, asked{what: doShow, job: job})
		})
	}
	connected.Wait()
	l.must(p.signal(syscall.SIGSTOP))
	pause(ctx, 2500*time.Millisecond)
	close(ask)
	time.Sleep(100 * time.Millisecond) // they have asked
	l.must(p.signal(syscall.SIGCONT))
}

func (l *linear) must(err error) {
	if err != nil {
		l.t.Error(err)
	}
}
