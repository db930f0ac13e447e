package model

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

// TestStateTable prints the whole table of states and events: "." is an event without effect in that state.
func TestStateTable(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-14s", "")
	for _, e := range Events() {
		fmt.Fprintf(&b, "%-15s", e)
	}
	for _, s := range JobStates() {
		fmt.Fprintf(&b, "\n%-14s", s)
		for _, e := range Events() {
			next, ok := Next(s, e)
			text := next.String()
			switch {
			case !ok && next != s:
				t.Errorf("%s in %s is refused and gives %s", e, s, next)
			case !ok:
				text = "."
			}
			fmt.Fprintf(&b, "%-15s", text)
		}
	}
	b.WriteByte('\n')
	var trimmed []byte
	for line := range bytes.Lines(b.Bytes()) {
		trimmed = append(append(trimmed, bytes.TrimRight(line, " \n")...), '\n')
	}
	golden.Compare(t, "testdata/jobstates.txt", trimmed)
}

// TestStateTableSound: a job that has ended can only go back to the queue, and a job that is being ended never runs
// again as the same attempt.
func TestStateTableSound(t *testing.T) {
	for _, s := range JobStates() {
		if s.Finished() && s.HasResources() || s == Pending && (s.Finished() || s.HasResources()) {
			t.Errorf("%s is of two kinds", s)
		}
		if !s.Finished() && !s.HasResources() && s != Pending {
			t.Errorf("%s is of no kind", s)
		}
		for _, e := range Events() {
			next, ok := Next(s, e)
			switch {
			case !ok:
			case s.Finished() && next != Pending:
				t.Errorf("%s + %s gives %s", s, e, next)
			case s == Completing && next.HasResources() && next != Completing:
				t.Errorf("%s + %s gives %s", s, e, next)
			case next.HasResources() && !s.HasResources() && e != EvAllocate:
				t.Errorf("%s + %s gives %s without an allocation", s, e, next)
			}
		}
	}
}

func TestStateNames(t *testing.T) {
	short := map[string]bool{}
	for _, s := range JobStates() {
		for _, text := range []string{s.String(), s.Short(), strings.ToLower(s.String()), strings.ToLower(s.Short())} {
			if got, ok := ParseJobState(text); !ok || got != s {
				t.Errorf("%q reads as %s", text, got)
			}
		}
		if short[s.Short()] || s.Short() == "" {
			t.Errorf("%s has the short name %q of another", s, s.Short())
		}
		short[s.Short()] = true
	}
	for _, text := range []string{"", "RUNNIN", "RUNNINGG", "@"} {
		if s, ok := ParseJobState(text); ok {
			t.Errorf("%q reads as %s", text, s)
		}
	}
	if JobState(0).String() != "UNKNOWN" || JobState(99).Short() != "?" || Event(0).String() != "unknown" {
		t.Error("numbers outside the table have names")
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range numReasons {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
	for k := range numLimitKinds {
		for _, tres := range []string{"cpu", "mem", "node", "gres/gpu", "license/x", "billing", "energy", "fs/disk"} {
			r := LimitReason(k, tres)
			if r < limitReasons || r.String() == "None" || tres == "cpu" && seen[r.String()] {
				t.Errorf("reason %d for %s is called %q", r, tres, r)
			}
			seen[r.String()] = true
		}
	}
	if r := LimitReason(QOSPerUser, "gres/gpu:h100"); r.String() != "QOSMaxGRESPerUser" {
		t.Errorf("a user's limit on GPUs is called %s", r)
	}
	if Reason(250).String() != "None" || limitReasons <= numReasons {
		t.Error("a reason outside the table has a name")
	}
}

func TestExitState(t *testing.T) {
	for _, c := range []struct {
		e      Exit
		state  JobState
		reason Reason
	}{
		{Exit{}, Completed, ReasonNone},
		{Exit{Code: 3}, Failed, ReasonNonZeroExitCode},
		{Exit{Signal: 9}, Failed, ReasonRaisedSignal},
		{Exit{Signal: 53, NoStart: true}, Failed, ReasonJobLaunchFailure},
		{Exit{Code: 1, Signal: 9}, Failed, ReasonRaisedSignal},
		{Exit{Signal: 9, OOM: true}, OutOfMemory, ReasonOutOfMemory},
		{Exit{Unknown: true, OOM: true, Code: 1}, Failed, ReasonSystemFailure},
	} {
		if s, r := c.e.State(); s != c.state || r != c.reason {
			t.Errorf("%+v gives %s (%s), want %s (%s)", c.e, s, r, c.state, c.reason)
		}
	}
}

func TestJobDerived(t *testing.T) {
	sp := &Spec{Partitions: []string{"a", "b"}}
	j := &Job{Spec: sp}
	if j.Partition() != "a" || j.ElapsedS(5000) != 0 || j.IsArray() || (&Job{Spec: &Spec{}}).Partition() != "" {
		t.Error("a pending job")
	}
	j.Run = &Run{Partition: "b", Start: 10_000, LimitS: 60}
	if j.Partition() != "b" || j.ElapsedS(12_999) != 2 || j.ElapsedS(9_000) != 0 || j.Run.Deadline() != 70_000 {
		t.Error("a running job")
	}
	j.End = &End{At: 15_000}
	if j.ElapsedS(99_000) != 5 {
		t.Error("a job that has ended")
	}
	j.Run.LimitS = Unlimited
	if j.Run.Deadline() != 0 {
		t.Error("a job without limit has a deadline")
	}
}

func TestAllocTotals(t *testing.T) {
	var none *Alloc
	if cpus, mem, gres := none.Totals(); cpus != 0 || mem != 0 || gres != nil || none.NodeNames() != nil {
		t.Error("no allocation holds something")
	}
	a := &Alloc{Nodes: []NodeAlloc{
		{Node: "n1", CPUs: UpTo(4), MemMiB: 100,
			Gres: []GresAlloc{{Name: "gpu", Type: "a100", Index: UpTo(2)},
				{Name: "gpu", Type: "v100", Index: UpTo(5).Minus(UpTo(4))}}},
		{Node: "n2", CPUs: UpTo(2), MemMiB: 50, Gres: []GresAlloc{{Name: "gpu", Type: "a100", Index: UpTo(1)}}},
	}}
	cpus, mem, gres := a.Totals()
	if cpus != 6 || mem != 150 || fmt.Sprint(gres) != "[{gpu a100 3} {gpu v100 1}]" ||
		fmt.Sprint(a.NodeNames()) != "[n1 n2]" {
		t.Errorf("%d CPUs, %d MiB, %v, %v", cpus, mem, gres, a.NodeNames())
	}
}
