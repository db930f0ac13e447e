package state

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/price"
)

// samples gives one command of every kind with every field set that exists in format v1. Never change a value here:
// testdata/commands/v1.hex holds these commands as the first version wrote them, and must decode to them forever.
func samples() []Body {
	spec := &model.Spec{Name: "train", UID: 1000, GID: 100, Groups: []uint32{100, 101}, User: "ann", Group: "users",
		Account: "vision",
		QOS:     "normal", Partitions: []string{"gpu", "long"}, Comment: "c", Script: "s1", Env: "e1",
		Args: []string{"-x", "1"}, Command: "/home/ann/t.sh",
		Submit: "gsubmit t.sh", WorkDir: "/home/ann", StdIn: "/dev/null", StdOut: "%j.out", StdErr: "%j.err", Append: true,
		Umask:  0o22,
		Limits: []model.RLimit{{Resource: 7, Soft: 1024, Hard: ^uint64(0)}}, Host: "login1", MinNodes: 1, MaxNodes: 2,
		Tasks: 4, TasksPerNode: 2,
		CPUsPerTask: 8, MemPerNode: 1000, MemPerCPU: 10, TmpMiB: 5,
		Gres:      []model.GresReq{{Name: "gpu", Type: "a100", Count: 2, Per: model.PerTask}},
		Exclusive: true, Features: "ib&ssd", ReqNodes: []string{"n1"}, ExcNodes: []string{"n9"}, LimitS: 3600, Nice: -5,
		PrioReq: 77, HoldReq: true,
		Begin: 1_700_000_000_000, Deadline: 1_700_000_100_000, Requeue: true, KillOnDep: true, DepText: "afterok:3",
		DepAny: true,
		Deps: []model.Dep{{Kind: model.DepAfterOK, Job: 3, Task: -1},
			{Kind: model.DepAfter, Job: 4, Task: 2, DelayS: 60}},
		ArrayText: "0-9%2",
		Tasklist:  model.TaskSet{{Lo: 0, Hi: 9, Step: 1}, {Lo: 20, Hi: 30, Step: 5}}, Throttle: 2, Overcommit: true,
		NoRequeue: true, MinCPUs: 3}
	alloc := &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(70), MemMiB: 512, Tasks: 2,
		Gres: []model.GresAlloc{{Name: "gpu", Type: "a100", Index: model.UpTo(2)}}}}}
	exit := model.Exit{Code: 3, Signal: 9, Unknown: true, OOM: true, UserMS: 11, SysMS: 12, MaxRSSKB: 13, Text: "t"}
	targets := []model.JobRef{{Job: 5, Task: -1}, {Job: 6, Task: 3},
		{Job: 7, Task: -1, Tasks: model.TaskSet{{Lo: 1, Hi: 3, Step: 1}}}}
	config := &model.Config{Cluster: "lab", Hash: "h", Accounts: []string{"vision"},
		Show: []model.KV{{Key: "k", Value: "v"}},
		Nodes: []*model.NodeDef{{Name: "n1", Addr: "10.0.0.1", CPUs: 128, Boards: 1, Sockets: 2, CoresPerSocket: 32,
			ThreadsPerCore: 2, MemMiB: 500_000,
			TmpMiB: 1000, Features: []string{"ib"}, Gres: []model.GresDef{{Name: "gpu", Type: "a100", First: 0, Count: 8}},
			Weight: 5, Virtual: true}},
		Partitions: []*model.Partition{{Name: "gpu", Nodes: []string{"n1"}, Default: true, Hidden: true,
			State: model.PartDrain, MaxTimeS: 86400, DefTimeS: 3600,
			MinNodes: 1, MaxNodes: 4, DefMemPerCPU: 1, DefMemPerNode: 2, MaxMemPerCPU: 3, MaxMemPerNode: 4, MaxCPUsPerNode: 64,
			PriorityTier:      2,
			PriorityJobFactor: 3, AllowAccounts: []string{"a"}, DenyAccounts: []string{"b"}, AllowGroups: []string{"g"},
			AllowQOS: []string{"q"},
			DenyQOS:  []string{"r"}, RootOnly: true, DisableRoot: true, ExclusiveUser: true, OverSubscribe: "NO",
			Show: []model.KV{{Key: "a", Value: "b"}}}},
		Params: model.Params{KillWaitS: 30, MinJobAgeS: 300, NodeTimeoutS: 60, HeartbeatS: 10, MaxJobs: 10000,
			MaxArraySize: 1001, JobRequeue: true,
			DefMemPerCPU: 1, DefMemPerNode: 2, MaxMemPerCPU: 3, MaxMemPerNode: 4, MemConsumed: true, WholeCores: true,
			EnforceLimits:   "ALL",
			ReturnToService: 1, QueueDepth: 100, NeedAccount: true, MaxScript: 4 << 20, DefaultAccount: "root"}}
	return []Body{
		&Submit{RequestID: "r1", Spec: spec,
			Script: model.Blob{Key: "s1", Data: []byte("#!/bin/sh\n"), Size: 10, Packed: true, Refs: 1},
			Env:    model.Blob{Key: "e1", Data: []byte("A=b"), Size: 3}, Priority: 1000, Hold: model.HeldByUser},
		&Starts{Epoch: 9, Plan: model.Plan{Starts: []model.Start{{Job: 5, Task: 3, Partition: "gpu", LimitS: 3600,
			Alloc: alloc}},
			Reasons: []model.ReasonSet{{Job: 6, Reason: model.ReasonResources, Why: "w"}}}},
		&Reports{Reports: []Report{{Kind: Ended, Job: 5, Attempt: 2, At: 1_700_000_000_500, Exit: exit, Text: "x"}}},
		&Stop{Targets: targets, Event: model.EvRequeue, Hold: true, UID: 1000},
		&Edit{Targets: targets, Set: []Field{SetHold, SetPriority, SetBegin, SetLimit, SetThrottle, SetDeps, SetSpec,
			SetAdminComment}, Spec: spec,
			Hold: model.HeldByAdmin, Priority: 5, Begin: 1_700_000_000_000, LimitS: 60, Throttle: 3, Deps: spec.Deps,
			Comment: "why"},
		&Join{Node: "n1", BootID: "b", BootAt: 1, UpSince: 2, Version: "0.1", OS: "linux", Arch: "amd64", Problem: "p",
			Known: []Report{{Job: 5, Attempt: 2}}},
		&Lost{Nodes: []string{"n1", "n2"}},
		&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeDrain, Keep: true, Reason: "disk", By: "root"},
		&SetConfig{Config: config, Instance: 1<<63 + 5},
		&Trim{Seq: 1 << 40},
		&Tick{Limit: 100},
	}
}

// later gives one command of every kind that came after version 1.
func later() []Body {
	limits := []model.TRESLimit{{TRES: "gres/gpu", Count: 7000, Percent: true}}
	return []Body{
		&Accounts{Gen: 3, Edits: acctEdits{
			{Op: model.PutAccount, Account: &model.Account{Name: "vision", Parent: "root", Description: "d", Organization: "o",
				Coordinators: []string{"ann"}}},
			{Op: model.PutUser, User: &model.User{Name: "ann", DefaultAccount: "vision", Admin: model.AdminOperator}},
			{Op: model.PutAssoc, Assoc: &model.Association{ID: 5, Account: "vision", User: "ann", Partition: "gpu", Shares: 10,
				Priority: 2, QOS: []string{"high"},
				DefQOS: "high", GrpJobs: 3, MaxWallS: 61, GrpTRES: limits}},
			{Op: model.PutQOS, QOS: &model.QOS{ID: 3, Name: "high", Priority: 9, Flags: model.QOSDenyOnLimit,
				Preempt:        []string{"low"},
				UsageFactor:    1_500_000,
				GuaranteedTRES: limits}},
		}},
		&Reserve{Op: CreateResv, Resv: &model.Reservation{Name: "maint", Start: 1_700_000_000_000, End: 1_700_000_600_000,
			Nodes:     []string{"n1", "n2"},
			Partition: "gpu", Features: "ib", Users: []string{"ann"}, Accounts: []string{"vision"},
			Flags: model.ResvMaint | model.ResvDaily, Begun: true}},
		&Suspend{Targets: []model.JobRef{{Job: 5, Task: model.NoTask}}, Resume: true,
			Turn: model.Turn{Sleep: []model.JobID{3}, Wake: []model.JobID{4}}},
		&Units{Node: "n1", Tells: []model.UnitTell{{Name: "gpu", Index: 3, Kind: model.OutFault, Text: "XID 79", Stamp: 5}}},
		&NodeHealth{Node: "n1", Problem: "spool is not writable"},
		&Mailed{Seq: 7},
		&Once{Key: "rs:0123456789abcdef", Step: OnceMake,
			Parts: [][]byte{[]byte("\x11\xcf\x00\x00\x01\x8b\xcf\xe5\x68\x00\x91\x07")}, Reply: []byte("reply"),
			Spots: []int32{3}},
		&NewEra{Number: 1_700_000_000, NextJob: 5000},
		&Certs{Op: CertOffer, Tokens: []model.CertToken{{ID: "t1", Hash: []byte{1}, Role: "node", Name: "n1",
			At: 1_700_000_000_000, Until: 1_700_000_600_000, By: "root"}}},
		&SubmitHet{RequestID: "r2", Parts: []HetPart{{Spec: &model.Spec{Name: "a", Partitions: []string{"gpu"}}, Priority: 7,
			Hold: model.HeldByUser}, {Spec: &model.Spec{Name: "b"}}}, Script: model.Blob{Key: "s1", Data: []byte("#!/bin/sh\n")},
			Holder: model.Blob{Key: "h1", Data: []byte("h")}, Env: model.Blob{Key: "e1", Data: []byte("A=b")}, Most: 9},
		&Tokens{Op: TokenFirst, Key: []byte("0123456789abcdef"), Users: []string{"ann"}},
		&Define{Parts: []*model.Partition{{Name: "fast", Nodes: []string{"n1"}, Expr: "ALL", Set: []string{"Nodes"},
			Made: true}}, DropParts: []string{"old"},
			Nodes: []*model.NodeDef{{Name: "d1", CPUs: 4, Features: []string{"a"}, Available: []string{"a", "b"},
				Set: []string{"ActiveFeatures"}, Made: true}}, DropNodes: []string{"d2"}, Create: true},
		&Reboots{Nodes: []string{"n1"}, Op: AskReboot, ASAP: true, Next: model.RebootDown, Reason: "new kernel",
			By: "root"},
		&Audits{List: []*model.Audit{{Event: "task_cancelled", What: "job", Name: "12", UID: 1000, By: "ann", ByUser: true,
			Text: "cancelled", Owner: 1001, Job: 12}}},
		&Powers{Nodes: []string{"n1"}, Op: AskPower, Want: model.PowerDownForce, By: "root"},
		&Resize{Job: 5, Attempt: 2, Keep: []string{"n1", "n3"}, GraceS: 10, Give: 4},
		&Credit{price.Ledger{Op: price.AddCredit, Account: "vision", Amount: 1000 * price.One, Text: "grant 7"}},
		&Issue{price.Invoice{Number: 7, Account: "vision", Start: 1_700_000_000, End: 1_702_592_000, At: 1_702_600_000,
			By: "root", Currency: "$", Total: 133_333, Bills: []price.Bill{{Account: "vision", User: "ann", Pool: "gpu",
				Rate: price.Rate{TRES: "gres/gpu", Micro: 2_000_000, Per: 1}, Used: 8, Billed: 240, Sessions: 1,
				Gross: 133_333, Net: 133_333}}}},
		&ResvTold{Seqs: []uint64{7, 9}},
		&Crontab{UID: 1000, By: 1001, Text: []byte("# x\n5 4 * * * /home/ann/t.sh\n"), Jobs: []Submit{{
			Spec: &model.Spec{Name: "t", UID: 1000, User: "ann", Partitions: []string{"gpu"}, Begin: 1_700_000_100_000,
				Cron: &model.Cron{Times: "5 4 * * *", First: 2, Last: 2}},
			Script: model.Blob{Key: "s2", Data: []byte("#!/bin/sh\n")}, Env: model.Blob{Key: "e2", Data: []byte("A=b\x00")},
			Priority: 5, Hold: model.HeldByUser, Most: 9}}},
		&Triggers{Op: SetTrigger, Set: &model.Trigger{UID: 1000, GID: 100, Of: model.TriggerNode, Nodes: "n[1-3]",
			Events: model.OnDown | model.OnDrained, OffsetS: 60, Perm: true, Program: "/usr/bin/logger down"},
			Seen: &model.Daemons{Controllers: []string{"c1", "c2"}, PrimarySince: 1_700_000_000_000, Leader: "c1",
				Lost: []string{"c2"}, Full: true, DbdLost: true, DatabaseLost: true},
			Hits: []TimeHit{{ID: 3, Nodes: []string{"n1"}, By: 1_700_000_000_500}}, IDs: []uint32{4},
			Ran: []TriggerRan{{ID: 3, Gen: 77}}},
	}
}

// all is samples and later.
func all() []Body { return append(samples(), later()...) }

const sampleAt model.Time = 1_700_000_000_123

// TestCommandsDecodeForever: the bytes of version 1 decode to the commands of version 1. v1.hex is never rewritten.
func TestCommandsDecodeForever(t *testing.T) {
	path := filepath.Join("testdata", "commands", "v1.hex")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := samples()
	lines := strings.Fields(string(text))
	if len(lines) != len(want) {
		t.Fatalf("%s holds %d commands, %d kinds are known", path, len(lines), len(want))
	}
	for i, line := range lines {
		data, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Errorf("kind %d: %v", i+1, err)
			continue
		}
		if c.Kind != Kind(i+1) || c.At != sampleAt || !reflect.DeepEqual(c.Body, want[i]) {
			t.Errorf("kind %d decodes to %d at %d:\n%+v\nwanted\n%+v", i+1, c.Kind, c.At, c.Body, want[i])
		}
	}
}

// TestOldCommandsDecode: the bytes of every kind of command of commit 4b95a0e decode to the same values as then. v2.hex
// is never rewritten; the text omits zeros, so that it doesn't show fields that were appended since.
func TestOldCommandsDecode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "commands", "v2.hex"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for i, line := range strings.Fields(string(text)) {
		data, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Fatalf("kind %d: %v", i+1, err)
		}
		flat, err := json.Marshal(c.Body)
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		d := json.NewDecoder(bytes.NewReader(flat))
		d.UseNumber()
		if err := d.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		out, err := json.MarshalIndent(withoutZeros(tree), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%T at %d %s\n", c.Body, c.At, out)
	}
	golden.Compare(t, filepath.Join("testdata", "commands", "v2.txt"), b.Bytes())
}

// withoutZeros leaves out the members of objects that are zero or empty.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			if m = withoutZeros(m); m == nil || m == "" || m == json.Number("0") || m == false {
				delete(v, k)
			} else {
				v[k] = m
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = withoutZeros(v[i])
		}
	}
	return v
}

// TestCommandBytes shows a change of the format. If it is intended (an appended field), use -rewrite; v1.hex stays.
func TestCommandBytes(t *testing.T) {
	var b bytes.Buffer
	sampled := map[Kind]bool{}
	for i, body := range all() {
		if sampled[body.kind()] {
			t.Errorf("sample %d is of kind %d again", i+1, body.kind())
		}
		sampled[body.kind()] = true
		data, err := Encode(sampleAt, body)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, hex.EncodeToString(data))
	}
	golden.Compare(t, filepath.Join("testdata", "commands", "now.hex"), b.Bytes())
	for kind := range ^Kind(0) {
		if (newBody(kind) != nil) != sampled[kind] {
			t.Errorf("kind %d is known: %v, and has a sample: %v", kind, newBody(kind) != nil, sampled[kind])
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for i, b := range all() {
		data, err := Encode(sampleAt, b)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range len(data) - 1 { // without its last byte, the rules, it is one of before
			if _, err := Decode(data[:cut]); err == nil {
				t.Errorf("kind %d: %d of %d bytes are taken for a command", i+1, cut, len(data))
			}
		}
	}
	backwards := model.TaskSet{{Lo: 5, Hi: 3, Step: 1}}
	endless := model.TaskSet{{Lo: 0, Hi: 3, Step: 0}}
	for name, b := range map[string]Body{
		"no spec":            &Submit{},
		"endless range":      &Submit{Spec: &model.Spec{Tasklist: endless}},
		"failed dependency":  &Submit{Spec: &model.Spec{Deps: []model.Dep{{Kind: model.DepAfterOK, Job: 1, Failed: true}}}},
		"no dependency kind": &Submit{Spec: &model.Spec{Deps: []model.Dep{{Job: 1}}}},
		"backwards target":   &Stop{Targets: []model.JobRef{{Job: 1, Tasks: backwards}}},
		"endless target":     &Edit{Targets: []model.JobRef{{Job: 1, Tasks: endless}}},
		"edit without spec":  &Edit{Set: []Field{SetSpec}},
		"no configuration":   &SetConfig{},
		"no id":              &Once{Step: OnceMake, Parts: [][]byte{{1}}},
		"no part":            &Once{Key: "k", Step: OnceMake},
		"no such step":       &Once{Key: "k", Step: 4},
		"within itself":      &Once{Key: "k", Step: OnceMake, Parts: [][]byte{{byte(KindOnce)}}},
		"no such credit":     &Credit{Ledger: price.Ledger{Account: "a", Op: 64}},
		"no such edit":       &Accounts{Edits: acctEdits{{Op: 64}}},
	} {
		if _, err := Encode(sampleAt, b); !errors.Is(err, ErrMalformed) { // else it would stop every replica
			t.Errorf("%s is encoded: %v", name, err)
		}
		data, err := encode(sampleAt, b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode([]byte{99, 0}); err == nil || !strings.Contains(err.Error(), "newer gbatch") {
		t.Errorf("an unknown kind: %v", err)
	}
}

// FuzzApply: every command that decodes can be applied, without a panic, and the invariants hold.
func FuzzApply(f *testing.F) {
	for _, b := range samples() {
		data, err := Encode(sampleAt, b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	base := func() *State {
		st := New()
		cfg := &model.Config{Cluster: "c",
			Nodes:      []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 100, Gres: []model.GresDef{{Name: "gpu", Count: 2}}}},
			Partitions: []*model.Partition{{Name: "gpu", Nodes: []string{"n1"}}}, Params: model.Params{MinJobAgeS: 1}}
		for _, b := range []Body{&SetConfig{Config: cfg}, &Join{Node: "n1", BootID: "b"},
			&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"gpu"}}},
			&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"gpu"}, Tasklist: model.TaskSet{{Lo: 0, Hi: 9, Step: 1}}}},
			&Submit{Spec: &model.Spec{Name: "b", Partitions: []string{"gpu"},
				Deps: []model.Dep{{Kind: model.DepAfterOK, Job: 1, Task: -1}}}},
			&Starts{Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: -1, Partition: "gpu", LimitS: 10,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1)}}}}}}},
		} {
			st.Apply(Command{At: 1000, Body: b})
		}
		return st
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			return
		}
		st := base()
		for range 2 {
			st.Apply(c)
			if err := st.Check(); err != nil {
				t.Fatalf("%+v: %v", c.Body, err)
			}
		}
	})
}
