package policy

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestPast: the early and the late planned time come from the smallest and the largest part that the user's last jobs
// used, a running job's only from parts that it has not outlived.
func TestPast(t *testing.T) {
	c := newCluster(t, 10, New(Options{LeastS: 3600}))
	past := NewPast()
	refresh := func() { past.Refresh(c.st.View(), c.now) }
	runtimes := func(id model.JobID) [2]int64 {
		t.Helper()
		j := c.st.View().Job(id)
		frozen := past.Frozen()
		return [2]int64{frozen.Early().RuntimeS(j, limitOf(j.Spec, c.cfg.Partitions[0]), c.now),
			frozen.Late().RuntimeS(j, limitOf(j.Spec, c.cfg.Partitions[0]), c.now)}
	}
	want := func(id model.JobID, early, late int64) {
		t.Helper()
		if got := runtimes(id); got != [2]int64{early, late} {
			t.Errorf("job %d is planned with %v, want %d to %d seconds", id, got, early, late)
		}
	}
	refresh()
	if past.Knows() {
		t.Error("it knows something of an empty cluster")
	}
	for _, s := range []int64{100, 200, 900} { // of 1,000 each
		id := c.submit(7, 1, 1000)
		c.refresh()
		c.start(id)
		c.refresh()
		refresh()
		c.after(s)
		c.end(id)
		c.refresh()
		refresh()
		refresh() // learns it only once
	}
	if past.users.ended != 3 {
		t.Fatalf("it has learnt %d jobs, want 3", past.users.ended)
	}
	same, other, stranger := c.submit(7, 1, 1000), c.submit(7, 2, 2000), c.submit(8, 1, 1000)
	c.refresh()
	refresh()
	want(same, 101, 901) // parts and times are rounded up
	want(other, 201, 1801)
	want(stranger, 401, 1000) // early: the mean of all users' jobs
	c.start(same)
	c.refresh()
	c.after(500)
	refresh()
	want(same, 901, 901)
	c.after(430) // it has outlived them all
	refresh()
	want(same, 1000, 1000)

	// A view that comes after a gap: the job that ran has ended meanwhile.
	c.end(same)
	c.refresh()
	past.cursor = state.Cursor{}
	refresh()
	if past.users.ended != 4 {
		t.Errorf("it has learnt %d jobs, want 4", past.users.ended)
	}
}

// TestRecall: what accounting knows of earlier jobs comes before what has been seen, of each user the last eight count,
// and waiting jobs are planned anew.
func TestRecall(t *testing.T) {
	c := newCluster(t, 10, New(Options{LeastS: 3600}))
	id := c.submit(7, 1, 1000)
	c.refresh()
	c.start(id)
	c.refresh()
	c.after(700)
	c.end(id)
	waits := c.submit(7, 2, 1000)
	c.refresh()
	past := NewPast()
	past.Refresh(c.st.View(), c.now)
	var olds []Old
	for i := range int64(9) {
		olds = append(olds, Old{7, 100 * (i + 1), 10_000}) // 1 to 9 per cent
	}
	olds = append(olds, Old{8, 5000, 10_000}, Old{Nobody, 1, 10_000})
	past.Recall(olds)
	c.p.Recall(olds)
	c.refresh()
	if got := past.users.users[7].parts[:]; got[0] != partOfLimit(300, 10_000) || got[7] != partOfLimit(700, 1000) {
		t.Errorf("the user's parts are %v, want those of the last seven old jobs and of the new one", got)
	}
	if past.users.users[8] == nil || past.users.users[Nobody] != nil {
		t.Error("user 8 is not known, or nobody is")
	}
	if got := c.planS(waits); got < 130 || got > 150 { // from 700 before: the mean of 3 to 9 and 70 per cent
		t.Errorf("the waiting job is planned with %d seconds", got)
	}
}
