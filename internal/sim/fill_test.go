package sim

import (
	"testing"
)

// fillWork is a small workload with shared and whole GPUs, on nodes of two sorts.
func fillWork() *Workload {
	w := &Workload{Name: "fill"}
	for i := range 30 {
		k := NodeKind{Name: "a" + string(rune('a'+i)), CPUs: 96, MemMiB: 393216, GPUs: 8}
		if i >= 15 {
			k = NodeKind{Name: "b" + string(rune('a'+i-15)), CPUs: 104, MemMiB: 524288, GPUs: 2}
		}
		w.Nodes = append(w.Nodes, k)
	}
	add := func(n int, j Job) {
		for range n {
			j.ID, j.Nodes, j.Run = int64(len(w.Jobs)), 1, 1
			w.add(j)
		}
	}
	add(40, Job{CPUs: 12, MemMiB: 49152, GPUs: 1})
	add(11, Job{CPUs: 4, MemMiB: 5600, GPUs: 1, Milli: 810})
	add(11, Job{CPUs: 12, MemMiB: 30517, GPUs: 1, Milli: 470})
	add(4, Job{CPUs: 4, MemMiB: 16000, GPUs: 1, Milli: 160})
	add(4, Job{CPUs: 4, MemMiB: 22888, GPUs: 1, Milli: 320})
	add(13, Job{CPUs: 16, MemMiB: 57344})
	add(1, Job{CPUs: 64, MemMiB: 262144, GPUs: 8})
	return w
}

// filled gives the mean share over seeds.
func filled(t *testing.T, w *Workload, with Scheduler, seeds uint64) float64 {
	t.Helper()
	m, err := NewMachine(w, Size{})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for seed := range seeds {
		f, err := Fill(t.Context(), Setup{Work: w, Machine: m, Scheduler: with}, seed+1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, seed %d: %.2f %%, %d of %d jobs", with.Text, seed+1, f.Share*100, f.Placed, f.Jobs)
		sum += f.Share
	}
	return sum / float64(seeds)
}

// TestFill: a machine that jobs have asked all of is fuller if each gets the node where it spoils least.
func TestFill(t *testing.T) {
	first, weighed := filled(t, fillWork(), FIFO(), 4), filled(t, fillWork(), Weighed(), 4)
	if weighed < first+0.05 || weighed < 0.87 {
		t.Errorf("%.4f of the GPUs are allocated, %.4f on the first node that holds a job", weighed, first)
	}
}

// TestFillOpenb fills Alibaba's machine.
func TestFillOpenb(t *testing.T) {
	w, err := Open(traces(t, "openb_pod_list_default.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if got := filled(t, w, Weighed(), 3); got < 0.955 {
		t.Errorf("%.4f of the GPUs are allocated", got)
	}
}
