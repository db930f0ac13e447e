package up

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// cutter is a socket before a controller's. When the answer to the first request arrives from the controller, the
// change has been made: then fault is called, the answer is thrown away and the connection is cut.
type cutter struct {
	dir   string
	fault func()

	mu   sync.Mutex
	cuts int
	wg   sync.WaitGroup
}

// newCutter gives a cutter before the socket at to, for one request. The connections after the first go through.
func newCutter(t *testing.T, to string, fault func()) *cutter {
	t.Helper()
	x := &cutter{dir: t.TempDir(), fault: fault}
	ln, err := net.Listen("unix", filepath.Join(x.dir, "ctld.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ln.Close() // the test is over
		x.wg.Wait()
	})
	x.wg.Go(func() {
		for first := true; ; first = false {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			x.wg.Go(func() { x.pass(in, to, first) })
		}
	})
	return x
}

// pass carries one connection.
func (x *cutter) pass(in net.Conn, to string, cut bool) {
	defer in.Close()
	out, err := net.Dial("unix", to)
	if err != nil {
		return // the client sees it
	}
	defer out.Close()
	x.wg.Go(func() {
		_, _ = io.Copy(out, in) // the client's end, or the controller's
		_ = out.(*net.UnixConn).CloseWrite()
	})
	if !cut {
		_, _ = io.Copy(in, out) // as above
		return
	}
	const preface = 8 // bytes that open a connection
	if _, err := io.CopyN(in, out, preface); err != nil {
		return
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return
	}
	x.fault()
	x.mu.Lock()
	x.cuts++
	x.mu.Unlock()
}

// onceTest is a cluster, and what the cases share.
type onceTest struct {
	t *testing.T
	c *Cluster
	n int // of the case, for names

	lead string // the leader's name when the case began
}

// onceCase is one change. do makes it with the client that it is given, and says what is wrong with the answer or with
// what was made.
type onceCase struct {
	kind uint16
	do   func(o *onceTest, cl *client.Client) error
}

func (o *onceTest) name(what string) string { return fmt.Sprintf("%s%d", what, o.n) }

// recorded runs a job, and waits until gdbd has the record of its end.
func (o *onceTest) recorded() model.JobID {
	o.t.Helper()
	id := submit(o.t, o.c, "true\n", nil)
	until(o.t, "the job's record is there", func() bool {
		for _, r := range records(o.t, o.c) {
			if r.Job == id && r.State.Finished() {
				return true
			}
		}
		return false
	})
	return id
}

// noted counts the changes of a job's record in the audit trail.
func (o *onceTest) noted(id model.JobID) (n int) {
	o.t.Helper()
	cl := client.New(filepath.Join(o.c.Dir, "run"))
	defer cl.Close()
	err := cl.Stream(proto.KindReport, &proto.ReportRequest{What: proto.ReportTrail, Job: id}, func(body []byte) error {
		var chunk proto.ReportChunk
		err := proto.Decode(body, &chunk)
		for _, r := range chunk.Trail {
			if r.Noted != nil {
				n++
			}
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

// list gives the jobs of a name.
func (o *onceTest) list(name string) (out []*model.Job) {
	o.t.Helper()
	cl := client.New(filepath.Join(o.c.Dir, "run"))
	defer cl.Close()
	err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
		var chunk proto.JobsChunk
		err := proto.Decode(body, &chunk)
		for _, j := range chunk.Jobs {
			if j.Spec.Name == name {
				out = append(out, j)
			}
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

// held submits a job that waits.
func (o *onceTest) held() model.JobID {
	o.t.Helper()
	return submit(o.t, o.c, "true\n", func(sp *model.Spec) { sp.Name, sp.HoldReq, sp.LimitS = o.name("held"), true, 600 })
}

func ref(id model.JobID) []model.JobRef { return []model.JobRef{{Job: id, Task: model.NoTask}} }

// allOK says which target of an answer was refused.
func allOK(reply *proto.TargetsReply, n int) error {
	if len(reply.Results) != n {
		return fmt.Errorf("%d results, want %d", len(reply.Results), n)
	}
	for _, r := range reply.Results {
		if r.Code != 0 {
			return fmt.Errorf("job %d: %s", r.Ref.Job, r.Text)
		}
	}
	return nil
}

// triggers gives the numbers of the triggers with a program.
func (o *onceTest) triggers(program string) (out []uint32) {
	o.t.Helper()
	err := client.New(filepath.Join(o.c.Dir, "run")).Stream(proto.KindTriggers, &proto.Empty{}, func(body []byte) error {
		var chunk proto.TriggersChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, t := range chunk.Triggers {
			if t.Program == program {
				out = append(out, t.ID)
			}
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

// onceCases has every kind of request that changes something at the leader.
var onceCases = []onceCase{
	{proto.KindEditTokens, func(_ *onceTest, cl *client.Client) error {
		key := []byte("0123456789abcdef0123456789abcdef")
		var reply proto.EditTokensReply
		if err := cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{NewKey: true, Key: key}, &reply); err != nil {
			return err
		}
		err := cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{Export: true}, &reply)
		if err == nil && string(reply.Key) != string(key) {
			err = fmt.Errorf("the key is %q", reply.Key)
		}
		return err
	}},
	{proto.KindSubmit, func(o *onceTest, cl *client.Client) error {
		var reply proto.SubmitReply
		err := cl.Call(proto.KindSubmit, o.submission(), &reply)
		if jobs := o.list(o.name("sub")); err == nil && (len(jobs) != 1 || jobs[0].ID != reply.Job) {
			err = fmt.Errorf("%d jobs, the answer is %d", len(jobs), reply.Job)
		}
		return err
	}},
	{proto.KindSubmit, func(o *onceTest, cl *client.Client) error { // a heterogeneous job
		rq := o.submission()
		rest := *rq.Spec
		rq.Rest = []*model.Spec{&rest}
		var reply proto.SubmitReply
		err := cl.Call(proto.KindSubmit, rq, &reply)
		if jobs := o.list(o.name("sub")); err == nil && (len(jobs) != 2 || jobs[0].ID != reply.Job) {
			err = fmt.Errorf("%d jobs, the answer is %d", len(jobs), reply.Job)
		}
		return err
	}},
	{proto.KindSubmitEach, func(o *onceTest, cl *client.Client) error {
		var reply proto.SubmitEachReply
		err := cl.Call(proto.KindSubmitEach,
			&proto.SubmitEachRequest{Submit: o.submission(), Args: [][]string{{"a"}, {"b"}, {"c"}}}, &reply)
		if jobs := o.list(o.name("sub")); err == nil && (len(jobs) != 3 || len(reply.Jobs) != 3 ||
			jobs[2].ID != reply.Jobs[2]) {
			err = fmt.Errorf("%d jobs, the answer is %v", len(jobs), reply.Jobs)
		}
		return err
	}},
	{proto.KindCancel, func(o *onceTest, cl *client.Client) error {
		id := o.held()
		var reply proto.TargetsReply
		if err := cl.Call(proto.KindCancel, &proto.CancelRequest{Targets: ref(id)}, &reply); err != nil {
			return err
		}
		if j := job(o.t, o.c, id); j != nil && j.State != model.Cancelled {
			return fmt.Errorf("the job is %s", j.State)
		}
		return allOK(&reply, 1) // a second one would find it ended
	}},
	{proto.KindSignal, func(o *onceTest, cl *client.Client) error {
		dir := o.t.TempDir()
		count := filepath.Join(dir, "count")
		id := submit(o.t, o.c,
			fmt.Sprintf("trap 'echo >>%s' USR1\necho >%[1]s.set\nwhile :; do sleep 0.1; done\n", count), nil)
		until(o.t, "the job runs", func() bool { return lines(o.t, count+".set") != "" })
		var reply proto.TargetsReply
		rq := &proto.CancelRequest{Targets: ref(id), Signal: 10, Batch: true}
		if err := cl.Call(rq.Kind(), rq, &reply); err != nil {
			return err
		}
		until(o.t, "the signal has arrived", func() bool { return lines(o.t, count) != "" })
		time.Sleep(300 * time.Millisecond) // a second one, if there is one, arrives
		if got := lines(o.t, count); got != "\n" {
			return fmt.Errorf("%d signals", len(got))
		}
		cancel(o.t, o.c, id)
		return allOK(&reply, 1)
	}},
	{proto.KindUpdateJob, func(o *onceTest, cl *client.Client) error {
		var refs []model.JobRef
		for range 40 { // in two log entries
			refs = append(refs, ref(o.held())...)
		}
		var reply proto.TargetsReply
		if err := cl.Call(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: refs,
			Set: []model.KV{{Key: "TimeLimit", Value: "+10"}}}, &reply); err != nil {
			return err
		}
		for _, j := range o.list(o.name("held")) {
			if j.Spec.LimitS != 1200 {
				return fmt.Errorf("job %d has %d s, not 10 minutes more than 600 s", j.ID, j.Spec.LimitS)
			}
		}
		return allOK(&reply, len(refs))
	}},
	{proto.KindUpdateJob, func(o *onceTest, cl *client.Client) error { // of a job that has ended
		id := o.recorded()
		var reply proto.TargetsReply
		if err := cl.Call(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActRecord,
			Records: &proto.AcctRequest{Jobs: ref(id)}, Set: []model.KV{{Key: "Extra", Value: o.name("extra")}}},
			&reply); err != nil {
			return err
		}
		o.recorded()                  // what gdbd gets in order, it has had up to here
		if n := o.noted(id); n != 1 { // both would give the record the same text
			return fmt.Errorf("the trail has %d changes of the record of job %d", n, id)
		}
		return allOK(&reply, 1)
	}},
	{proto.KindUpdateNode, func(o *onceTest, cl *client.Client) error {
		defer resumeNode(o.t, o.c, "n2")
		rq := &proto.UpdateNodeRequest{Names: []string{"n2"},
			Set: []model.KV{{Key: "State", Value: "DRAIN"}, {Key: "Reason", Value: o.name("why")}}}
		if err := cl.Call(proto.KindUpdateNode, rq, &proto.Empty{}); err != nil {
			return err
		}
		if n := node(o.t, o.c, "n2"); n.Admin != model.NodeDrain || n.Reason != o.name("why") {
			return fmt.Errorf("the node is %d for %q", n.Admin, n.Reason)
		}
		return nil
	}},
	{proto.KindReserve, func(o *onceTest, cl *client.Client) error {
		var reply proto.ReserveReply
		account := o.name("acct") // a reservation without a name is called after it
		if err := o.addAccount(client.New(filepath.Join(o.c.Dir, "run")), account); err != nil {
			return err
		}
		if err := cl.Call(proto.KindReserve, &proto.ReserveRequest{Action: proto.CreateReservation,
			Set: []model.KV{{Key: "Accounts", Value: account}, {Key: "Nodes", Value: "n1"}, {Key: "Flags", Value: "OVERLAP"},
				{Key: "StartTime", Value: "@" + strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)},
				{Key: "Duration", Value: "60"}}}, &reply); err != nil {
			return err
		}
		if got := o.reservations(account); len(got) != 1 || got[0] != reply.Name {
			return fmt.Errorf("reservations %v, the answer is %s", got, reply.Name)
		}
		return nil
	}},
	{proto.KindSetCrontab, func(o *onceTest, cl *client.Client) error {
		job := o.submission()
		job.Spec.Name, job.Spec.Cron = o.name("cron"), &model.Cron{Times: "0 0 1 1 *", First: 1, Last: 1}
		var reply proto.SetCrontabReply
		if err := cl.Call(proto.KindSetCrontab, &proto.SetCrontabRequest{Text: []byte("0 0 1 1 * true\n"),
			Jobs: []proto.SubmitRequest{*job}}, &reply); err != nil || reply.Refused != "" {
			return fmt.Errorf("%w%s", err, reply.Refused)
		}
		if n := len(o.list(job.Spec.Name)); n != 1 {
			return fmt.Errorf("the crontab's entry is %d jobs", n)
		}
		return nil
	}},
	{proto.KindSetTrigger, func(o *onceTest, cl *client.Client) error {
		program := "/bin/true " + o.name("trigger")
		if err := cl.Call(proto.KindSetTrigger, &proto.SetTriggerRequest{Of: model.TriggerNode, Events: model.OnFail,
			Program: program}, &proto.Empty{}); err != nil {
			return err
		}
		if got := o.triggers(program); len(got) != 1 {
			return fmt.Errorf("the triggers are %v", got)
		}
		return nil
	}},
	{proto.KindClearTriggers, func(o *onceTest, cl *client.Client) error {
		program := "/bin/true " + o.name("cleared")
		if err := client.New(filepath.Join(o.c.Dir, "run")).Call(proto.KindSetTrigger, &proto.SetTriggerRequest{
			Of: model.TriggerNode, Events: model.OnFail, Program: program}, &proto.Empty{}); err != nil {
			return err
		}
		was := o.triggers(program)
		if len(was) != 1 {
			return fmt.Errorf("the triggers are %v", was)
		}
		var reply proto.ClearTriggersReply
		if err := cl.Call(proto.KindClearTriggers, &proto.ClearTriggersRequest{ID: was[0]}, &reply); err != nil {
			return err
		}
		if got := o.triggers(program); len(got) != 0 || !slices.Equal(reply.IDs, was) {
			return fmt.Errorf("%v are left of %v, the answer is %v", got, was, reply.IDs)
		}
		return nil
	}},
	{proto.KindMIG, func(o *onceTest, cl *client.Client) error {
		setNode(o.t, o.c, "n2", "drain")
		defer resumeNode(o.t, o.c, "n2")
		before := o.divided()
		var reply proto.MIGReply
		if err := cl.Call(proto.KindMIG, &proto.MIGRequest{Nodes: []string{"n2"}, Layout: "1g.10gb"}, &reply); err != nil {
			return err
		}
		if n := o.divided() - before; n != 1 || len(reply.Nodes) != 1 {
			return fmt.Errorf("the node was asked %d times, the answer is %+v", n, reply)
		}
		return nil
	}},
	{proto.KindReconfigure, func(o *onceTest, cl *client.Client) error {
		path := filepath.Join(o.c.Dir, "gbatch.conf")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Split(string(text), "KillWait=")[0]+
				fmt.Sprintf("KillWait=%d\n", 100+o.n)), 0o644)
		}
		var reply proto.ReconfigureReply
		if err == nil {
			err = cl.Call(proto.KindReconfigure, &proto.ReconfigureRequest{}, &reply)
		}
		if err == nil && (!reply.Applied || len(reply.Changes) == 0) {
			err = fmt.Errorf("%+v", reply) // a second one would find nothing to change
		}
		return err
	}},
	{proto.KindEditAccounts, func(o *onceTest, cl *client.Client) error {
		return o.addAccount(cl, o.name("new")) // a second one would come from outdated facts
	}},
	{proto.KindEditMoney, func(o *onceTest, cl *client.Client) error {
		other, account := client.New(filepath.Join(o.c.Dir, "run")), o.name("paid")
		defer other.Close()
		if err := o.addAccount(other, account); err != nil {
			return err
		}
		if err := cl.Call(proto.KindEditMoney, &proto.EditMoneyRequest{Ledger: &price.Ledger{Op: price.AddCredit,
			Account: account, Amount: 5 * price.One}}, &proto.EditMoneyReply{}); err != nil {
			return err
		}
		var credit price.Money
		err := other.Stream(proto.KindMoney, &proto.MoneyRequest{Accounts: []string{account}}, func(body []byte) error {
			var chunk proto.MoneyChunk
			err := proto.Decode(body, &chunk)
			for _, w := range chunk.Wallets {
				credit += w.Credit
			}
			return err
		})
		if err == nil && credit != 5*price.One {
			err = fmt.Errorf("a credit of 5 became %d millionths", credit)
		}
		return err
	}},
	{proto.KindTakeover, func(o *onceTest, cl *client.Client) error {
		var reply proto.TakeoverReply
		err := cl.Call(proto.KindTakeover, &proto.TakeoverRequest{From: o.lead}, &reply)
		if err == nil && (reply.Leader == o.lead || reply.Leader == "") {
			err = fmt.Errorf("%s leads after %s", reply.Leader, o.lead)
		}
		return err
	}},
	{proto.KindEditCerts, func(o *onceTest, cl *client.Client) error {
		id := o.name("t")
		err := cl.Call(proto.KindEditCerts, &proto.EditCertsRequest{LifeS: 600,
			Offer: []model.CertToken{{ID: id, Hash: make([]byte, 32), Role: "node", Name: "n1"}}}, &proto.EditCertsReply{})
		if err != nil {
			return err
		}
		read := client.New(filepath.Join(o.c.Dir, "run"))
		defer read.Close()
		var reply proto.CertsReply
		if err := read.Call(proto.KindCerts, &proto.Empty{}, &reply); err != nil {
			return err
		}
		n := 0
		for _, t := range reply.Tokens {
			if t.ID == id {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%d tokens %s", n, id)
		}
		return nil
	}},
	{proto.KindUpdatePartition, func(o *onceTest, cl *client.Client) error {
		return cl.Call(proto.KindUpdatePartition, &proto.UpdatePartitionRequest{Action: proto.CreatePartition,
			Name: o.name("part"), Set: []model.KV{{Key: "Nodes", Value: "n1"}}}, &proto.Empty{})
	}},
	{proto.KindSetDebug, func(o *onceTest, cl *client.Client) error {
		return cl.Call(proto.KindSetDebug, &proto.SetDebugRequest{Level: "info"}, &proto.Empty{})
	}},
	{proto.KindDiagReset, func(o *onceTest, cl *client.Client) error {
		return cl.Call(proto.KindDiagReset, &proto.Empty{}, &proto.DiagReply{})
	}},
}

func (o *onceTest) submission() *proto.SubmitRequest {
	return &proto.SubmitRequest{RequestID: o.name("once"), Script: []byte("#!/bin/sh\n"),
		Spec: &model.Spec{Name: o.name("sub"), WorkDir: "/", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, HoldReq: true,
			LimitS: model.NotSet}}
}

// addAccount is gacctmgr add account.
func (o *onceTest) addAccount(cl *client.Client, name string) error {
	gen := uint64(0)
	read := client.New(filepath.Join(o.c.Dir, "run"))
	defer read.Close()
	err := read.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var chunk proto.AccountsChunk
		err := proto.Decode(body, &chunk)
		gen = max(gen, chunk.Gen)
		return err
	})
	if err != nil {
		return err
	}
	return cl.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: gen, Edits: []model.AcctEdit{
		{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: "root"}},
		{Op: model.PutAssoc, Assoc: &model.Association{Account: name, Shares: 1}}}}, &proto.Empty{})
}

// reservations gives the names of an account's reservations.
func (o *onceTest) reservations(account string) (out []string) {
	o.t.Helper()
	cl := client.New(filepath.Join(o.c.Dir, "run"))
	defer cl.Close()
	var reply proto.ReservationsReply
	if err := cl.Call(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		o.t.Fatal(err)
	}
	for _, r := range reply.List {
		if len(r.Accounts) > 0 && r.Accounts[0] == account {
			out = append(out, r.Name)
		}
	}
	return out
}

// divided counts the times that a leader had a node divide its GPUs.
func (o *onceTest) divided() int {
	o.t.Helper()
	return o.logged("the MIG layout of GPUs is changed")
}

// logged counts the lines of the controllers' logs that have a text.
func (o *onceTest) logged(text string) (n int) {
	o.t.Helper()
	logs, err := filepath.Glob(filepath.Join(o.c.Dir, "log", "*ctl*"))
	if err != nil || len(logs) == 0 {
		o.t.Fatal("no logs", err)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil {
			o.t.Fatal(err)
		}
		n += strings.Count(string(b), text)
	}
	return n
}

// leader gives the process of the leader, and the socket of another controller.
func (o *onceTest) leader() (process, string) {
	o.t.Helper()
	cl := client.New(filepath.Join(o.c.Dir, "run"))
	defer cl.Close()
	var reply proto.PingReply
	until(o.t, "all controllers are up", func() bool {
		if err := cl.Call(proto.KindPing, &proto.Empty{}, &reply); err != nil {
			return false
		}
		up := 0
		for _, ctl := range reply.Controllers {
			if ctl.Up {
				up++
			}
		}
		return up == 3 && reply.Ready
	})
	o.lead = reply.Leader
	until(o.t, "both others vote", func() bool { // before that none of them can follow a leader that dies
		return o.logged("this controller has everything that the others have; from now on it votes") >= 2
	})
	sockets, err := client.Sockets(filepath.Join(o.c.Dir, "run"))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, path := range sockets {
		if base := filepath.Base(path); strings.HasPrefix(base, "ctld") && !strings.Contains(base, reply.Leader) {
			return daemonOf(o.t, o.c.Dir, RoleController, reply.Leader), path
		}
	}
	o.t.Fatalf("no follower beside %s in %v", reply.Leader, sockets)
	return process{}, ""
}

// TestEveryChangeOnce: the answer to a change is lost after the change was made, alone or together with the leader that
// made it, which is killed or stopped. The command gets the true answer, and the change was made once. Every kind of
// change is among the cases.
func TestEveryChangeOnce(t *testing.T) {
	tested := map[uint16]bool{}
	for _, c := range onceCases {
		tested[c.kind] = true
	}
	// Raft's list of controllers is its own memory: TestControllersChangeUnderLoad asks for a change a second time.
	tested[proto.KindEditControllers] = true
	for kind := proto.KindPing; kind < proto.KindForward; kind++ {
		if row := proto.RequestOf(kind); row.Name != "REQUEST_OTHER" && row.Effect == proto.Changes &&
			row.At == proto.AtLeader && kind != proto.KindOnce && !tested[kind] {
			t.Errorf("%s changes something, and nothing here shows that it does so once", row.Name)
		}
	}
	if testing.Short() {
		t.Skip("skipped by -short: it takes a minute")
	}
	dir := filepath.Join(t.TempDir(), "once")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000, Controllers: 3})
	addConf(t, c, "ScronParameters=enable\n")
	o := &onceTest{t: t, c: c}
	whole := t // the cluster is taken down when this one ends
	for _, how := range []string{"answer lost", "leader killed", "leader stopped"} {
		for _, k := range onceCases {
			row := proto.RequestOf(k.kind)
			t.Run(how+"/"+row.Name, func(t *testing.T) {
				o.t, o.n = t, o.n+1
				leader, follower := o.leader()
				x := newCutter(t, follower, func() {
					switch how {
					case "leader killed":
						_ = leader.signal(syscall.SIGKILL) // the test fails by what follows
					case "leader stopped":
						_ = leader.signal(syscall.SIGSTOP) // as above
					}
				})
				cl := client.New(x.dir)
				err := k.do(o, cl)
				cl.Close()
				if how == "leader stopped" {
					if err := leader.signal(syscall.SIGCONT); err != nil {
						t.Error(err)
					}
				}
				if err != nil {
					t.Error(err)
				}
				x.mu.Lock()
				if x.cuts != 1 {
					t.Errorf("%d answers were lost", x.cuts)
				}
				x.mu.Unlock()
				if how == "leader killed" {
					if _, _, err := tryUp(whole, Options{Dir: dir}); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// TestBegunIsToldSo: a leader is killed while it waits for a node that does something for a request. Nobody knows what
// the node does; the request is not made again, and the command is told so.
func TestBegunIsToldSo(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it waits for an election")
	}
	dir := filepath.Join(t.TempDir(), "begun")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000, Controllers: 3})
	o := &onceTest{t: t, c: c}
	setNode(t, c, "n2", "drain")
	leader, _ := o.leader()
	gnoded := gnodedOf(t, dir, "n2")
	if err := gnoded.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gnoded.signal(syscall.SIGCONT) }() // it may have gone on
	done := make(chan error, 1)
	go func() {
		cl := client.New(filepath.Join(dir, "run"))
		defer cl.Close()
		done <- cl.Call(proto.KindMIG, &proto.MIGRequest{Nodes: []string{"n2"}, Layout: "1g.10gb"}, &proto.MIGReply{})
	}()
	until(t, "the leader asks the node", func() bool { return o.divided() == 1 })
	if err := leader.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var e *rpc.Error
	if err := <-done; !errors.As(err, &e) || e.Code != proto.CodeBegun ||
		!strings.Contains(e.Text, "it is not known whether the change was made: look at gcontrol show node") {
		t.Errorf("%v", err)
	}
	if n := o.divided(); n != 1 {
		t.Errorf("the node was asked %d times", n)
	}
	if err := gnoded.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
}
