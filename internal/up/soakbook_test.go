package up

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// soakbook_test.go compares what was acknowledged, what ran and what is on record, also if the controllers went on
// from a saved snapshot in between. Then these hold as well:
//
//   - What was acknowledged before the snapshot was saved is in it. A number that it does not know is forgotten: it is
//     not given again, nothing of it starts, and its record ends.
//   - A job that had ended on record when the restored controllers began does not run again, and its record stays.
//   - A job that waited in the snapshot, and whose end is not on record, may run a second time, once, and has a record
//     of its own for that. No other run is repeated.
//   - Only the record of a run that began between the saving and the restoration may be missing: the lost controllers
//     had it, and gdbd did not.

// moment is seconds of this host's uptime: scripts and the test read the same clock, which nobody sets.
type moment float64

func now(t *testing.T) moment {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	return momentOf(t, strings.Fields(string(text))[0])
}

func momentOf(t *testing.T, text string) moment {
	t.Helper()
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return moment(s)
}

// noteRun is a script's line that notes its run.
func noteRun(ran string) string {
	return "read up idle < /proc/uptime\necho $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $up >> " + ran + "\n"
}

// soakBook has what was acknowledged, and the restorations.
type soakBook struct {
	ran string // the file of noteRun

	mu       sync.Mutex
	acks     map[model.JobID][]moment // of each number that was given out
	restored []restoration
}

func newSoakBook(ran string) *soakBook { return &soakBook{ran: ran, acks: map[model.JobID][]moment{}} }

// ack notes a number that was given out now; 0: none was, and the test has failed.
func (l *soakBook) ack(t *testing.T, id model.JobID) {
	if id == 0 {
		return
	}
	at := now(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks[id] = append(l.acks[id], at)
}

func (l *soakBook) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acks)
}

// restoration is one time that the controllers went on from a snapshot.
type restoration struct {
	saving  moment                      // when the saving began
	killed  moment                      // no controller ran any more
	started moment                      // the first one of the restored starts
	well    moment                      // all are well again
	next    model.JobID                 // the first number that the snapshot does not know
	begin   model.JobID                 // the first number of the restored controllers
	begun   map[ranAs]bool              // runs that the controllers knew to have begun, before the saving
	ended   map[attemptOf]*model.Record // on record when no controller ran
}

// overs gives the jobs whose last attempt had ended on record.
func (r *restoration) overs() map[model.JobID]bool {
	last := map[model.JobID]*model.Record{}
	for k, rec := range r.ended {
		if last[k.job] == nil || k.attempt > last[k.job].Attempt {
			last[k.job] = rec
		}
	}
	out := make(map[model.JobID]bool, len(last))
	for id, rec := range last {
		out[id] = rec.State.Finished()
	}
	return out
}

// lost reports whether a run began after the snapshot and before the restored controllers.
func (l *soakBook) lost(run moment) bool {
	return slices.ContainsFunc(l.restored, func(r restoration) bool { return r.saving <= run && run < r.started })
}

// forgotten gives the restoration that has forgotten a job, or nil. A number belongs to the controllers that begin with
// one that is not above it.
func (l *soakBook) forgotten(id model.JobID) *restoration {
	for i := range l.restored {
		if r := &l.restored[i]; r.next <= id && id < r.begin {
			return r
		}
	}
	return nil
}

// check waits until accounting knows how every job ended, and holds the rules.
func (l *soakBook) check(t *testing.T, c *Cluster) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkNumbers(t)
	all := l.settled(t, c)
	l.checkRecords(t, all)
	runs := l.runs(t)
	l.checkRuns(t, runs)
	l.checkRunsAndRecords(t, runs, all)
	states := map[string]int{}
	for _, r := range all {
		states[r.State.String()]++
	}
	t.Logf("%d records, %d scripts ran; %v", len(all), len(runs), states)
}

// checkNumbers: every number was given once, and those of before a restoration are not given after it.
func (l *soakBook) checkNumbers(t *testing.T) {
	t.Helper()
	forgotten := 0
	for id, at := range l.acks {
		if len(at) != 1 {
			t.Errorf("job number %d was given out %d times", id, len(at))
		}
		if l.forgotten(id) != nil {
			forgotten++
		}
		for i, r := range l.restored {
			switch {
			case at[0] < r.saving && id >= r.next:
				t.Errorf("job %d was acknowledged before snapshot %d was saved, which knows jobs up to %d only", id, i,
					r.next-1)
			case at[0] < r.killed && id >= r.begin:
				t.Errorf("job %d was given before restoration %d, whose numbers begin with %d", id, i, r.begin)
			case at[0] > r.started && id >= r.next && id < r.begin:
				t.Errorf("job %d was given after restoration %d, whose numbers begin with %d", id, i, r.begin)
			}
		}
	}
	if len(l.restored) > 0 {
		t.Logf("%d of %d jobs were forgotten in %d restorations", forgotten, len(l.acks), len(l.restored))
	}
}

// settled waits until every job that is not forgotten has ended on record, and no record is open, and gives all.
func (l *soakBook) settled(t *testing.T, c *Cluster) []*model.Record {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // the pace of looking
		all, err := allRecords(c)
		last := map[model.JobID]*model.Record{}
		for _, r := range all {
			if last[r.Job] == nil || r.Attempt >= last[r.Job].Attempt {
				last[r.Job] = r
			}
		}
		var open []model.JobID
		for id := range l.acks {
			if r := last[id]; l.forgotten(id) == nil && (r == nil || !r.State.Finished()) {
				open = append(open, id)
			}
		}
		for _, r := range all {
			if !r.State.Finished() {
				open = append(open, r.Job)
			}
		}
		if err == nil && len(open) == 0 {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d jobs have not ended on record, %v among them (%v)", len(open), len(l.acks),
				open[:min(len(open), 5)], err)
		}
	}
}

// checkRecords: there is one record of each attempt, of jobs that were submitted, and what had ended stays.
func (l *soakBook) checkRecords(t *testing.T, all []*model.Record) {
	t.Helper()
	seen := map[attemptOf]*model.Record{}
	for _, r := range all {
		key := attemptOf{r.Job, r.Attempt}
		if seen[key] != nil {
			t.Errorf("job %d has two records of attempt %d", r.Job, r.Attempt)
		}
		seen[key] = r
		if l.acks[r.Job] == nil && l.forgotten(r.Job) == nil { // the answer to a forgotten one may never have come
			t.Errorf("a record of job %d, which nobody submitted", r.Job)
		}
	}
	for i, re := range l.restored {
		for key, was := range re.ended {
			is := seen[key]
			if is == nil || is.State != was.State || is.Exit.Code != was.Exit.Code || is.Start != was.Start ||
				is.End != was.End {
				t.Errorf("before restoration %d attempt %d of job %d was on record as %s, and now as %s", i, key.attempt,
					key.job, briefly(was), briefly(is))
			}
		}
	}
}

func briefly(r *model.Record) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v %d:%d from %d to %d (%s)", r.State, r.Exit.Code, r.Exit.Signal, r.Start, r.End, r.Why)
}

// ranAs is a run as its script knows it.
type ranAs struct {
	job     model.JobID
	restart uint32
}

func (l *soakBook) runs(t *testing.T) map[ranAs][]moment {
	t.Helper()
	b, err := os.ReadFile(l.ran)
	if err != nil {
		t.Fatal(err)
	}
	out := map[ranAs][]moment{}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 3 {
			t.Errorf("a script has written %q", line)
			continue
		}
		id, err1 := strconv.ParseUint(f[0], 10, 32)
		restart, err2 := strconv.ParseUint(f[1], 10, 32)
		if err1 != nil || err2 != nil {
			t.Errorf("a script has written %q", line)
			continue
		}
		key := ranAs{model.JobID(id), uint32(restart)}
		out[key] = append(out[key], momentOf(t, f[2]))
	}
	for _, at := range out {
		slices.Sort(at)
	}
	return out
}

// checkRuns: no run is repeated but by a restoration, and then only what the snapshot has as waiting.
func (l *soakBook) checkRuns(t *testing.T, runs map[ranAs][]moment) {
	t.Helper()
	again := 0
	overs := make([]map[model.JobID]bool, len(l.restored))
	for i := range l.restored {
		overs[i] = l.restored[i].overs()
	}
	for key, at := range runs {
		for k := range at[1:] {
			if why := l.repeated(key, at[k], at[k+1]); why != "" {
				t.Errorf("job %d, restart %d, ran at %.2f and at %.2f: %s", key.job, key.restart, at[k], at[k+1], why)
				continue
			}
			again++
		}
		for i, r := range l.restored {
			last := at[len(at)-1]
			switch {
			case last > r.well && key.job >= r.next && key.job < r.begin:
				t.Errorf("job %d ran at %.2f, though restoration %d at %.2f has forgotten it", key.job, last, i, r.well)
			case last >= r.started && overs[i][key.job]:
				t.Errorf("job %d, restart %d, ran at %.2f, though it had ended on record before restoration %d at %.2f",
					key.job, key.restart, last, i, r.started)
			}
		}
	}
	if len(l.restored) > 0 {
		t.Logf("%d runs were repeated by restorations", again)
	}
}

// repeated says why a run may not be repeated; "": it may.
func (l *soakBook) repeated(key ranAs, first, second moment) string {
	for _, r := range l.restored {
		if first >= r.started || second < r.started {
			continue
		}
		switch {
		case key.job >= r.next:
			return "the snapshot does not know it"
		case r.begun[key]:
			return "it had begun before the snapshot was saved"
		}
		return ""
	}
	return "no restoration was in between"
}

// checkRunsAndRecords: every run has a record, and every job on record as having ended has run.
func (l *soakBook) checkRunsAndRecords(t *testing.T, runs map[ranAs][]moment, all []*model.Record) {
	t.Helper()
	attempts, ran, lost := map[model.JobID]int{}, map[model.JobID]int{}, map[model.JobID]int{}
	for _, r := range all {
		if r.Start != 0 {
			attempts[r.Job]++
		}
	}
	for key, at := range runs {
		for _, one := range at {
			if ran[key.job]++; l.lost(one) {
				lost[key.job]++
			}
		}
	}
	for id, n := range ran {
		if n-lost[id] > attempts[id] {
			t.Errorf("job %d ran %d times, %d of them before a restoration, and has %d records with a start", id, n, lost[id],
				attempts[id])
		}
	}
	for _, r := range all {
		if (r.State == model.Completed || r.State == model.Failed) && ran[r.Job] == 0 && r.Exit.Text == "" {
			t.Errorf("job %d is recorded as %v, and never ran", r.Job, r.State)
		}
	}
}

// allRecords gives the records of all attempts.
func allRecords(c *Cluster) (out []*model.Record, err error) {
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	err = cl.Stream(proto.KindAcct, &proto.AcctRequest{Duplicates: true}, func(body []byte) error {
		var chunk proto.RecordsChunk
		err := proto.Decode(body, &chunk)
		out = append(out, chunk.Records...)
		return err
	})
	return out, err
}
