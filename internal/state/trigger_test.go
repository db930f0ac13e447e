package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// trig sets a trigger and gives its number.
func (s *session) trig(t model.Trigger) uint32 {
	s.t.Helper()
	if t.Program == "" {
		t.Program = "/p"
	}
	next := s.st.triggers.next
	if res := s.apply(&Triggers{Op: SetTrigger, Set: &t}); res.Refusal != OK {
		s.t.Fatalf("%+v: %s", t, res.Refusal)
	}
	return next
}

// fired gives what a trigger waits to tell its program: "" if there is no such trigger, - if nothing has happened.
func (s *session) fired(id uint32) string {
	t := s.st.View().Trigger(id)
	if t == nil {
		return ""
	}
	out := []string{}
	for _, h := range t.Hits {
		out = append(out, strings.Trim(h.Name+" "+h.Events.String(), " "))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, "; ")
}

func (s *session) wantFired(id uint32, want string) {
	s.t.Helper()
	if got := s.fired(id); got != want {
		s.t.Errorf("trigger %d: %q, want %q", id, got, want)
	}
}

// ran says that a trigger's program was told of all that has happened by now.
func (s *session) ran(id uint32) {
	s.apply(&Triggers{Op: RanTriggers, Ran: []TriggerRan{{ID: id, Gen: s.st.gen}}})
}

func (s *session) submitted(limitS int64) model.JobID {
	s.t.Helper()
	sub := entry(7, 1, 0)
	sub.Spec.Cron, sub.RequestID, sub.Spec.LimitS = nil, fmt.Sprint("rq", s.st.gen), limitS
	res := s.apply(&sub)
	if res.Refusal != OK {
		s.t.Fatal(res.Refusal)
	}
	return res.Job
}

// TestTriggersOfJobs: a job's end and its limit are told once; the triggers are gone when the job is forgotten, and not
// before their programs have run.
func TestTriggersOfJobs(t *testing.T) {
	s := cronSession(t)
	id := s.submitted(60)
	fini := s.trig(model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnFini, OffsetS: 5})
	limit := s.trig(model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnTime})
	before := s.trig(model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnTime, OffsetS: -20})
	unused := s.trig(model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnDown})
	for _, bad := range []struct {
		t    model.Trigger
		want Refusal
	}{
		{model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnFini, OffsetS: 5}, NameTaken},
		{model.Trigger{UID: 7, Of: model.TriggerJob, Job: 99, Events: model.OnFini}, NoSuchJob},
	} {
		bad.t.Program = "/p"
		if r := s.apply(&Triggers{Op: SetTrigger, Set: &bad.t}); r.Refusal != bad.want {
			t.Errorf("%+v: %s, want %s", bad.t, r.Refusal, bad.want)
		}
	}
	j := s.begin(id)
	s.apply(&Triggers{Op: HitTriggers, Hits: []TimeHit{{ID: before, By: s.now}}})
	s.wantFired(before, "time")
	s.wantFired(limit, "-")
	s.ran(before)
	s.wantFired(before, "")
	s.now += 60_000
	s.apply(&Tick{})
	s.wantFired(limit, "time")
	s.wantFired(fini, "-")
	s.end(j, model.Exit{Signal: 15})
	s.wantFired(fini, "fini")
	if got := s.st.View().Trigger(fini); got.Due != s.now.Add(5) {
		t.Errorf("due at %d, it is %d", got.Due, s.now)
	}
	bad := model.Trigger{UID: 7, Of: model.TriggerJob, Job: id, Events: model.OnFini, Program: "/q"}
	if r := s.apply(&Triggers{Op: SetTrigger, Set: &bad}); r.Refusal != AlreadyDone {
		t.Errorf("a job that is over: %s", r.Refusal)
	}
	s.ran(limit)
	s.now += 400_000
	s.apply(&Tick{})
	if s.st.View().Job(id) != nil {
		t.Fatal("the job is not forgotten")
	}
	s.wantFired(unused, "")
	s.wantFired(fini, "fini") // its program has not run yet
	s.ran(fini)
	s.wantFired(fini, "")
	if n := s.st.triggers.all.Len(); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
	s.replicas()
}

// TestTriggersOfNodes: what becomes of nodes is told to the triggers about them, or about the job that has them, with
// all that happens until the program begins.
func TestTriggersOfNodes(t *testing.T) {
	s := cronSession(t)
	s.cfg.Nodes = append(s.cfg.Nodes, &model.NodeDef{Name: "n2", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000},
		&model.NodeDef{Name: "n3", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000})
	cfg := s.cfg
	s.apply(&SetConfig{Config: &cfg, Instance: 1})
	for _, n := range []string{"n2", "n3"} {
		s.apply(&Join{Node: n, BootID: "b", Version: "1"})
	}
	job := s.submitted(600)
	j := s.begin(job)
	down := s.trig(model.Trigger{Of: model.TriggerNode, Events: model.OnDown})
	some := s.trig(model.Trigger{Of: model.TriggerNode, Nodes: "n[2-3]", Events: model.OnDown | model.OnUp, Perm: true})
	died := s.trig(model.Trigger{Of: model.TriggerJob, Job: job, Events: model.OnDown, Program: "/died"})
	drain := s.trig(model.Trigger{Of: model.TriggerNode, Nodes: "n1", Events: model.OnDraining})
	drained := s.trig(model.Trigger{Of: model.TriggerNode, Nodes: "n1", Events: model.OnDrained})
	resumed := s.trig(model.Trigger{Of: model.TriggerNode, Nodes: "n1", Events: model.OnResume})
	fails := s.trig(model.Trigger{Of: model.TriggerNode, Events: model.OnFail})
	admin := func(a model.NodeAdmin, failing bool, nodes ...string) {
		s.apply(&NodeEdit{Nodes: nodes, Admin: a, Reason: "x", By: "root", Failing: failing})
	}
	admin(model.NodeDrain, false, "n1")
	s.wantFired(drain, "n1 draining")
	s.wantFired(drained, "-")
	s.end(j, model.Exit{})
	s.wantFired(drained, "n1 drained")
	s.wantFired(resumed, "-")
	admin(model.NodeUp, false, "n1")
	s.wantFired(resumed, "n1 resume")
	s.wantFired(died, "-")

	job = s.submitted(600)
	s.begin(job)
	died = s.trig(model.Trigger{Of: model.TriggerJob, Job: job, Events: model.OnDown, Program: "/died"})
	s.apply(&Lost{Nodes: []string{"n3", "n1"}})
	s.wantFired(down, "n1 down; n3 down")
	s.wantFired(some, "n3 down")
	s.wantFired(died, "n1 down") // it had it before the command
	if got := s.st.View().Trigger(down); got.Due != s.now.Add(gatherS) {
		t.Errorf("due at %d, it is %d", got.Due, s.now)
	}
	admin(model.NodeDown, false, "n2")
	s.wantFired(down, "n1 down; n2 down; n3 down")
	admin(model.NodeUp, false, "n2")
	s.wantFired(some, "n2 up,down; n3 down")
	gen := s.st.gen
	admin(model.NodeDown, false, "n2")
	s.apply(&Triggers{Op: RanTriggers, Ran: []TriggerRan{{ID: some, Gen: gen}}})
	s.wantFired(some, "n2 up,down")
	s.ran(some)
	s.wantFired(some, "-")
	admin(model.NodeUp, false, "n2")
	if got := s.st.View().Trigger(some); got.Due != s.now.Add(againS) {
		t.Errorf("a permanent one is due at %d, it is %d", got.Due, s.now)
	}
	admin(model.NodeDrain, true, "n2")
	s.wantFired(fails, "n2 fail")
	s.replicas()
}

// TestTriggersFollow: a program that sets its trigger again misses nothing, whenever it does so.
func TestTriggersFollow(t *testing.T) {
	s := cronSession(t)
	watch := model.Trigger{UID: 7, Of: model.TriggerNode, Events: model.OnDown}
	change := func(a model.NodeAdmin) {
		s.apply(&NodeEdit{Nodes: []string{"n1"}, Admin: a, Reason: "x", By: "root"})
	}
	first := s.trig(watch)
	change(model.NodeDown)
	began := s.st.gen
	change(model.NodeUp)
	change(model.NodeDown) // while its program runs
	second := s.trig(watch)
	s.wantFired(second, "-")
	s.apply(&Triggers{Op: RanTriggers, Ran: []TriggerRan{{ID: first, Gen: began}}})
	s.wantFired(first, "")
	s.wantFired(second, "n1 down")
	s.ran(second)
	change(model.NodeUp)
	change(model.NodeDown) // after its program, before the next one is set
	s.now += 10_000
	s.apply(&Tick{})
	third := s.trig(watch)
	s.wantFired(third, "n1 down")
	s.ran(third)
	change(model.NodeUp)
	change(model.NodeDown)
	s.now += 16_000
	s.apply(&Tick{})
	if n := s.st.triggers.all.Len(); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
	s.wantFired(s.trig(watch), "-") // too late
	s.replicas()
}

// TestTriggersOfDaemons: changes of what leaders find are told, and not what was so when the first trigger was set.
func TestTriggersOfDaemons(t *testing.T) {
	s := cronSession(t)
	all := []string{"c1", "c2", "c3"}
	seen := &model.Daemons{Controllers: all, PrimarySince: 5, Leader: "c1", Lost: []string{"c3"}}
	set := func(of model.TriggerOf) uint32 {
		s.apply(&Triggers{Op: SetTrigger, Seen: seen, Set: &model.Trigger{Of: of, Events: of.Events(), Perm: true,
			Program: "/p"}})
		return s.st.triggers.next - 1
	}
	ctld, dbd, db := set(model.TriggerCtld), set(model.TriggerDbd), set(model.TriggerDatabase)
	steps := []struct {
		seen          model.Daemons
		ctld, dbd, db string
	}{
		{*seen, "-", "-", "-"},
		{model.Daemons{Controllers: all, Leader: "c2", Lost: []string{"c1"}},
			"c1 primary_slurmctld_failure; c2 backup_slurmctld_assumed_control; c3 backup_slurmctld_resumed_operation", "-",
			"-"},
		{model.Daemons{Controllers: all, Leader: "c2", DbdLost: true}, "c1 primary_slurmctld_resumed_operation",
			"primary_slurmdbd_failure", "-"},
		{model.Daemons{Controllers: all, Leader: "c1", PrimarySince: 6, DatabaseLost: true},
			"c1 primary_slurmctld_resumed_control", "primary_slurmdbd_resumed_operation", "primary_database_failure"},
		{model.Daemons{Controllers: all, Leader: "c1", PrimarySince: 7, Full: true},
			"primary_slurmctld_acct_buffer_full; c1 primary_slurmctld_resumed_operation", "-",
			"primary_database_resumed_operation"},
		{model.Daemons{Controllers: all[:2], Leader: "c1", PrimarySince: 7, Lost: []string{"c2"}},
			"c2 backup_slurmctld_failure", "-", "-"},
	}
	for i, x := range steps {
		s.apply(&Triggers{Op: SeeDaemons, Seen: &x.seen})
		s.wantFired(ctld, x.ctld)
		s.wantFired(dbd, x.dbd)
		s.wantFired(db, x.db)
		for _, id := range []uint32{ctld, dbd, db} {
			s.ran(id)
		}
		if t.Failed() {
			t.Fatalf("step %d", i)
		}
	}
	read := s.trig(model.Trigger{Of: model.TriggerNode, Events: model.OnReconfig})
	s.apply(&Triggers{Op: Reconfigured})
	s.wantFired(read, "reconfig")
	s.wantFired(ctld, "-")
	s.replicas()
}

// TestTriggersIdle: nodes that are idle are told once for each time that they become so.
func TestTriggersIdle(t *testing.T) {
	s := cronSession(t)
	idle := s.trig(model.Trigger{Of: model.TriggerNode, Events: model.OnIdle, OffsetS: 60})
	at := s.now
	s.apply(&Triggers{Op: HitTriggers, Hits: []TimeHit{{ID: idle, Nodes: []string{"n1"}, By: at}}})
	s.wantFired(idle, "n1 idle")
	if got := s.st.View().Trigger(idle); got.Looked != at || got.Due != s.now {
		t.Errorf("%+v", got)
	}
	s.ran(idle)
	again := s.trig(model.Trigger{Of: model.TriggerNode, Events: model.OnIdle, OffsetS: 60})
	if got := s.st.View().Trigger(again); got.Looked != at {
		t.Errorf("one that follows would tell again of what was told: %+v", got)
	}
}

// TestTriggersAreBounded: nobody can have so many that others have none.
func TestTriggersAreBounded(t *testing.T) {
	st := cronSession(t).st
	set := func(uid uint32, n int) Refusal {
		data, err := Encode(epoch, &Triggers{Op: SetTrigger, Set: &model.Trigger{UID: uid, Of: model.TriggerNode,
			Events: model.OnDown, Program: fmt.Sprint("/p", n)}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		return st.Apply(c).Refusal
	}
	for n := range MaxTriggersEach {
		if r := set(7, n); r != OK {
			t.Fatal(r)
		}
	}
	if r := set(7, MaxTriggersEach); r != Full {
		t.Errorf("one too many: %s", r)
	}
	for uid := uint32(100); ; uid++ {
		r := OK
		for n := 0; n < MaxTriggersEach && r == OK; n++ {
			r = set(uid, n)
		}
		if r == Full {
			break
		}
	}
	if r := set(0, 1); r != OK {
		t.Errorf("root after all others: %s", r)
	}
	if r := set(9, 1); r != Full {
		t.Errorf("another user: %s", r)
	}
}

// TestTriggersThatCannotBe: what no controller would send is refused before it is in the log.
func TestTriggersThatCannotBe(t *testing.T) {
	ok := model.Trigger{Of: model.TriggerJob, Job: 1, Events: model.OnFini, Program: "/p"}
	bad := map[string]func(x *model.Trigger){
		"a relative program": func(x *model.Trigger) { x.Program = "p" },
		"no event":           func(x *model.Trigger) { x.Events = 0 },
		"another's event":    func(x *model.Trigger) { x.Events = model.OnIdle },
		"no job":             func(x *model.Trigger) { x.Job = 0 },
		"nodes and a job":    func(x *model.Trigger) { x.Nodes = "n1" },
		"a long offset":      func(x *model.Trigger) { x.OffsetS = MaxTriggerOffsetS + 1 },
		"a long program":     func(x *model.Trigger) { x.Program = "/" + strings.Repeat("x", MaxTriggerProgram) },
	}
	if _, err := Encode(1, &Triggers{Op: SetTrigger, Set: &ok}); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for what, spoil := range bad {
		x := ok
		spoil(&x)
		if _, err := Encode(1, &Triggers{Op: SetTrigger, Set: &x}); err == nil {
			names = append(names, what)
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		t.Errorf("these are taken: %v", names)
	}
}
