package clitest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// Fake is a controller that answers from what a test put into it, over a real socket.
type Fake struct {
	t    testing.TB
	main func(*env.Env) int // the commands under test
	Env  map[string]string

	Stdin string // of the commands

	now     model.Time
	Jobs    []*model.Job
	Chunks  [][]byte // instead of jobs: the list's frames as they are sent
	Parts   []*model.Partition
	Nodes   []*proto.NodeInfo
	Records []*model.Record
	Shares  []proto.ShareRow
	Diag    *proto.DiagReply
	Resets  int
	Prio    *proto.PrioChunk
	Accts   *proto.AccountsChunk
	Edits   []proto.EditAccountsRequest // what was asked for
	Why     *proto.WhyReply
	Scripts map[model.JobID]string
	Fail    map[uint16]*rpc.Error
	Answers map[uint16]proto.Message // what is answered to other kinds

	Meanwhile func() // what somebody else does before the next change of accounts arrives

	mu    sync.Mutex
	calls int
	AccQ  []proto.AcctRequest // what was asked
}

// DemoNow is the controller's clock in tests.
const DemoNow model.Time = 1_700_100_000_000

func New(t testing.TB, main func(*env.Env) int) *Fake {
	t.Helper()
	zone := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = zone })
	dir := t.TempDir()
	conf := filepath.Join(dir, "gbatch.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=demo\nLocalSocketDir="+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &Fake{t: t, main: main, now: DemoNow, Env: map[string]string{"GBATCH_CONF": conf}, Fail: map[uint16]*rpc.Error{}}
	f.Answers = map[uint16]proto.Message{proto.KindConfig: &proto.ConfigReply{
		Config: &model.Config{Cluster: "demo", Params: model.Params{HoldLimits: true}}}}
	ln, err := server.ListenUnix(filepath.Join(dir, "ctld.sock"), 0o666)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx, ln, f.serve, server.Options{Log: slog.New(slog.DiscardHandler)}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// Run calls a command as a user would.
func (f *Fake) Run(name string, args ...string) (stdout, stderr string, rc int) {
	f.t.Helper()
	f.mu.Lock() // for the memory order between the test and serve
	f.calls++
	f.mu.Unlock()
	var out, errOut bytes.Buffer
	e := &env.Env{Program: name, Args: args, Stdin: strings.NewReader(f.Stdin), Stdout: &out, Stderr: &errOut,
		Lookup: func(k string) (string, bool) { v, ok := f.Env[k]; return v, ok }, Dir: "/"}
	rc = f.main(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	return out.String(), errOut.String(), rc
}

// Want calls a command and compares everything; errText "" means that standard error stays empty.
func (f *Fake) Want(stdout, stderr string, rc int, name string, args ...string) {
	f.t.Helper()
	out, errOut, code := f.Run(name, args...)
	if out != stdout || errOut != stderr || code != rc {
		f.t.Errorf("%s %q: rc %d, want %d\n--- stdout\n%s--- want\n%s--- stderr\n%s--- want\n%s", name, args, code, rc, out,
			stdout, errOut, stderr)
	}
}

func (f *Fake) serve(_ context.Context, r *server.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(m proto.Message, err error) {
		var body []byte
		if err == nil {
			body, err = proto.Encode(m)
		}
		if err != nil {
			err = r.Fail(err)
		} else {
			err = r.Reply(body)
		}
		if err != nil {
			f.t.Logf("answer to kind %d: %v", r.Kind, err)
		}
	}
	var once proto.Once
	if r.Kind == proto.KindOnce && proto.Decode(r.Body, &once) == nil { // it shows as what is in it
		r.Kind, r.Body = once.Kind, once.Body
	}
	if e := f.Fail[r.Kind]; e != nil {
		answer(nil, e)
		return
	}
	if m := f.Answers[r.Kind]; m != nil {
		answer(m, nil)
		return
	}
	switch r.Kind {
	case proto.KindPing:
		answer(&proto.PingReply{Cluster: "demo", Now: f.now}, nil)
	case proto.KindJobs:
		var q proto.JobsRequest
		err := proto.Decode(r.Body, &q)
		for _, c := range f.Chunks {
			if err == nil {
				err = r.ReplyMore(c)
			}
		}
		if err == nil {
			err = f.sendJobs(&q, r)
		}
		answer(&proto.JobsChunk{Now: f.now}, err)
	case proto.KindNodes:
		var q proto.NodesRequest
		if err := proto.Decode(r.Body, &q); err != nil {
			answer(nil, err)
			return
		}
		out := &proto.NodesChunk{Now: f.now}
		for _, n := range f.Nodes {
			if len(q.Names) == 0 || slices.Contains(q.Names, n.Node.Def.Name) {
				out.Nodes = append(out.Nodes, n)
			}
		}
		if len(out.Nodes) < len(q.Names) {
			answer(nil, rpc.Errorf(proto.CodeInvalidNode, "node is not defined"))
			return
		}
		answer(out, nil)
	case proto.KindPartitions:
		answer(&proto.PartitionsReply{Now: f.now, Partitions: f.Parts, TotalCPUs: f.PartCPUs()}, nil)
	case proto.KindAcct:
		var q proto.AcctRequest
		err := proto.Decode(r.Body, &q)
		f.AccQ = append(f.AccQ, q)
		answer(&proto.RecordsChunk{Records: f.pickRecords(&q)}, err)
	case proto.KindWhy:
		answer(f.Why, nil)
	case proto.KindDiag:
		answer(f.Diag, nil)
	case proto.KindDiagReset:
		f.Resets++
		answer(f.Diag, nil)
	case proto.KindShares:
		answer(&proto.SharesReply{Rows: f.Shares}, nil)
	case proto.KindPrio:
		answer(f.Prio, nil)
	case proto.KindAccounts:
		answer(cmp.Or(f.Accts, &proto.AccountsChunk{}), nil)
	case proto.KindEditAccounts:
		answer(&proto.Empty{}, f.edit(r.Body))
	case proto.KindScript:
		var q proto.ScriptRequest
		err := proto.Decode(r.Body, &q)
		s, ok := f.Scripts[q.Job]
		if err == nil && !ok {
			err = rpc.Errorf(proto.CodeInvalidJob, "Invalid job id specified")
		}
		answer(&proto.ScriptReply{Script: []byte(s)}, err)
	default:
		answer(nil, rpc.Errorf(proto.CodeBadRequest, "the fake knows no kind %d", r.Kind))
	}
}

// PartCPUs counts the CPUs of each partition.
func (f *Fake) PartCPUs() []int64 {
	out := make([]int64, len(f.Parts))
	for k, p := range f.Parts {
		for _, n := range f.Nodes {
			if slices.Contains(p.Nodes, n.Node.Def.Name) {
				out[k] += int64(n.Node.Def.CPUs)
			}
		}
	}
	return out
}

// edit takes a change of accounts, unless it was made from others.
func (f *Fake) edit(body []byte) error {
	var q proto.EditAccountsRequest
	err := proto.Decode(body, &q)
	if meanwhile := f.Meanwhile; meanwhile != nil {
		f.Meanwhile = nil
		meanwhile()
	}
	if err == nil && q.Gen != f.Accts.Gen {
		return rpc.Errorf(proto.CodeOutdated, "accounts have been changed by somebody else")
	}
	f.Edits = append(f.Edits, q)
	return err
}

// sendJobs filters as ctld does, and gives each job a frame of its own.
func (f *Fake) sendJobs(q *proto.JobsRequest, r *server.Request) error {
	fits := func(j *model.Job) bool {
		x := &q.Filter
		return (len(x.Users) == 0 || slices.Contains(x.Users, j.Spec.UID)) && !slices.Contains(x.NotUsers, j.Spec.UID) &&
			(len(x.States) == 0 || j.In(x.States)) &&
			(len(x.Names) == 0 || slices.Contains(x.Names, j.Spec.Name)) &&
			(len(x.Accounts) == 0 || slices.Contains(x.Accounts, j.Spec.Account)) &&
			(len(x.Partitions) == 0 ||
				slices.ContainsFunc(j.Partitions(), func(p string) bool { return slices.Contains(x.Partitions, p) })) &&
			!(q.Default && len(x.States) == 0 && j.State.Finished())
	}
	send := func(j *model.Job) error {
		body, err := proto.Encode(&proto.JobsChunk{Now: f.now, Jobs: []*model.Job{j}})
		if err != nil {
			return err
		}
		return r.ReplyMore(body)
	}
	known := 0
	for _, j := range f.Jobs {
		if len(q.Filter.Jobs) > 0 {
			continue
		}
		if fits(j) {
			if err := send(j); err != nil {
				return err
			}
		}
	}
	for _, ref := range q.Filter.Jobs {
		for _, j := range f.Jobs {
			named := ref.Job == j.ID || j.ArrayID != 0 && ref.Job == j.ArrayID
			if ref.Task != model.NoTask || len(ref.Tasks) > 0 {
				in := func(i int32) bool { return i == ref.Task || ref.Tasks.Has(i) }
				has := j.Task != model.NoTask && in(j.Task)
				j.Tasks.Each(func(i int32) bool { has = has || in(i); return true })
				named = named && has
			}
			if !named {
				continue
			}
			known++
			if fits(j) {
				if err := send(j); err != nil {
					return err
				}
			}
		}
	}
	if known == 0 && len(q.Filter.Jobs) == 1 {
		return rpc.Errorf(proto.CodeInvalidJob, "Invalid job id specified")
	}
	return nil
}

func (f *Fake) pickRecords(q *proto.AcctRequest) (out []*model.Record) {
	for _, r := range f.Records {
		if len(q.Jobs) == 0 || slices.ContainsFunc(q.Jobs, func(ref model.JobRef) bool {
			if ref.Task != model.NoTask {
				return ref.Job == r.ArrayID && ref.Task == r.Task
			}
			return ref.Job == r.Job || r.ArrayID != 0 && ref.Job == r.ArrayID
		}) {
			out = append(out, r)
		}
	}
	return out
}

// Indent checks that text is JSON and makes it readable.
func Indent(t *testing.T, text string) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, text)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return []byte(b.String())
}
