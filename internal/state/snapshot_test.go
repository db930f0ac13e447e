package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// weathered gives a state after commands of every kind.
func weathered(steps int) *State {
	g := &storm{rng: rand.New(rand.NewPCG(11, 12)), now: epoch}
	st := New()
	st.Apply(Command{At: g.now, Body: g.config()})
	for _, n := range []string{"n0", "n1", "n2"} {
		st.Apply(Command{At: g.now, Body: &Join{Node: n, BootID: "b0"}})
	}
	for range steps {
		b := g.next(st)
		st.Apply(Command{At: g.now, Body: b})
	}
	return st
}

func TestRestoreRefusesDamage(t *testing.T) {
	st := weathered(150)
	data := snapshot(t, st)
	before := weathered(20)
	want := snapshot(t, before)
	for cut := range data {
		if err := before.Restore(bytes.NewReader(data[:cut])); err == nil {
			t.Fatalf("%d of %d bytes are taken for a snapshot", cut, len(data))
		}
	}
	if err := before.Restore(bytes.NewReader(append(bytes.Clone(data), 0))); err == nil ||
		!strings.Contains(err.Error(), "after its end") {
		t.Errorf("a byte too much: %v", err)
	}
	head := &snapHead{Format: snapshotFormat + 1, Config: &model.Config{}}
	newer, err := wire.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Restore(bytes.NewReader(newer)); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("a newer format: %v", err)
	}
	if !bytes.Equal(want, snapshot(t, before)) {
		t.Error("a failed Restore changed the state")
	}
	if err := before.Check(); err != nil {
		t.Error(err)
	}
	// facts that contradict each other
	broken := restored(t, st)
	broken.arrays.Scan(func(id model.JobID, a *Array) bool {
		n := *a
		n.Waiting++
		broken.arrays.Set(id, &n)
		return false
	})
	if err := before.Restore(bytes.NewReader(snapshot(t, broken))); err == nil ||
		!strings.Contains(err.Error(), "contradict") {
		t.Errorf("a wrong counter: %v", err)
	}
}

// TestRestoreBoundsMemory: a snapshot that claims huge lists needs no more memory than its bytes.
func TestRestoreBoundsMemory(t *testing.T) {
	head := &snapHead{Format: snapshotFormat, Config: &model.Config{}, NextID: 1, Nodes: 1 << 60, Jobs: 1 << 60}
	data, err := wire.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, 0xdd, 0xff, 0xff, 0xff, 0xff) // an array of four billion
	data = append(data, bytes.Repeat([]byte{0x91}, 1<<20)...)
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	if err := New().Restore(bytes.NewReader(data)); err == nil {
		t.Error("garbage is taken for a snapshot")
	}
	runtime.ReadMemStats(&b)
	if used := b.TotalAlloc - a.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes allocated for %d bytes of garbage", used, len(data))
	}
}

// FuzzRestore: garbage is refused, or restores a state that keeps all invariants and writes the same bytes.
func FuzzRestore(f *testing.F) {
	for _, steps := range []int{0, 5, 30, 60} {
		st := weathered(steps)
		var b bytes.Buffer
		if err := st.Freeze()(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st := New()
		if err := st.Restore(bytes.NewReader(data)); err != nil {
			return
		}
		again := snapshot(t, st)
		st2 := New()
		if err := st2.Restore(bytes.NewReader(again)); err != nil {
			t.Fatalf("its own snapshot is refused: %v", err)
		}
		if !bytes.Equal(again, snapshot(t, st2)) {
			t.Fatal("a snapshot of a snapshot differs")
		}
	})
}

// TestRestoreForgetsStrays: usage that an older version kept for an unknown account is dropped at a restart, but not
// before its last job has ended.
func TestRestoreForgetsStrays(t *testing.T) {
	st := New()
	for name, rate := range map[string]int64{"gone": 0, "runs": 1} {
		st.usage.Set(usageKey(name, "u", ""), &Usage{Account: name, User: "u", Stamp: epoch, Wall: Meter{Rate: rate}})
	}
	st.usage.Set(usageKey("root", "u", ""), &Usage{Account: "root", User: "u", Stamp: epoch})
	st.forgetStrays()
	var left []string
	st.View().Usages(func(u *Usage) bool {
		left = append(left, fmt.Sprintf("%s %v", u.Account, u.Stray))
		return true
	})
	if want := []string{"root false", "runs true"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

// TestRestoredKnowsTheSameUsage: a replica that was restored from a snapshot after a change of the accounts that
// gbatch.conf names is the same as one that was not, whatever the next change is. A log of before replays as it was.
func TestRestoredKnowsTheSameUsage(t *testing.T) {
	accounts := [][]string{{"phys", "chem"}, {"phys"}, {"phys", "chem"}, nil, {"chem"}}
	for _, home := range []string{"", "chem"} {
		for _, runs := range []bool{false, true} {
			s := newSession(t)
			s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}}
			s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
			s.cfg.Accounts, s.cfg.Params.HoldLimits = accounts[0], true
			s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
			s.apply(&Join{Node: "n1", BootID: "b"})
			id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Account: "chem", User: "ann", Partitions: []string{"p"}}}).Job
			s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 6000,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
			s.tell(id, Report{Kind: Started})
			s.now += 3_600_000
			if !runs {
				s.tell(id, Report{Kind: Ended, At: s.now})
			}
			for i, list := range accounts[1:] {
				cfg := s.cfg
				cfg.Accounts, cfg.Params.DefaultAccount = list, home
				s.at = fmt.Sprintf("change %d, DefaultAccount=%s, a job runs: %v", i, home, runs)
				s.apply(&SetConfig{Config: &cfg})
				s.heir = restored(t, s.heir)
				if !bytes.Equal(snapshot(t, s.st), snapshot(t, s.heir)) {
					t.Errorf("%s: the replicas differ", s.at)
				}
			}
			s.tell(id, Report{Kind: Ended, At: s.now})
			s.replicas()
		}
	}
}
