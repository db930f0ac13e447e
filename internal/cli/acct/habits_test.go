package acct

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
)

// TestSeffUser: a table for each name, no line too wide, and the same in JSON.
func TestSeffUser(t *testing.T) {
	f := clitest.New(t, Gseff)
	for i := range model.JobID(4) {
		r := *clitest.DemoRecords()[1]
		r.Job, r.Name, r.LimitS = i+1, strings.Repeat("long\x1b", 20), 86400*30
		f.Records = append(f.Records, &r)
	}
	out, errText, rc := f.Run("gseff", "--user", "-S", "2023-11-01", "-E", "2023-11-30")
	if rc != 0 || errText != "" {
		t.Fatalf("%d %q", rc, errText)
	}
	for _, want := range []string{"User: alice\n", "from 2023-11-01T00:00:00 to 2023-11-30T00:00:00: 4\n",
		"\nlong?long?long?long?l... in gpu: 4 jobs, all completed\n",
		fmt.Sprintf("\n  %-16s %12s %12s %12s %12s\n", "Time", "30-00:00:00", "01:00:00", "01:00:00", "01:00:00"),
		"\n  Held: 8.0 GPU hours (their use was not read), 16.0 core hours (16.0 were idle, 100%)\n",
		"\n  Ask for: --time=01:30:00 (you ask for 30-00:00:00; 9 of 10 end within 01:00:00, the longest took 01:00:00)\n",
		"\n  Ask for: --mem=20M (you ask for 4G; no job used more than 12.06 MB on a node)\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, line := range strings.Split(out, "\n") {
		if len(line) > 120 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	q := f.AccQ[len(f.AccQ)-1]
	if len(q.Users) != 1 || len(q.States) == 0 || q.Start != 1698796800000 || q.End != 1701302400000 {
		t.Errorf("asked %+v", q)
	}
	var got struct {
		User   string
		Groups []struct {
			Jobs   int
			Used   map[string]struct{ Jobs, P90 int }
			Advice []string
		}
	}
	out, _, rc = f.Run("gseff", "--user", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || rc != 0 || len(got.Groups) != 1 || got.User != "alice" ||
		got.Groups[0].Jobs != 4 || got.Groups[0].Used["time_seconds"].P90 != 3600 || len(got.Groups[0].Advice) < 2 {
		t.Errorf("rc %d, %v: %s", rc, err, out)
	}
	if q := f.AccQ[len(f.AccQ)-1]; q.End-q.Start < 28*86400_000 || q.End-q.Start > 32*86400_000 {
		t.Errorf("no month: %+v", q)
	}
	f.Records = nil
	if out, _, rc := f.Run("gseff", "-u"); rc != 0 || !strings.Contains(out, ": 0\nNo job that ran") {
		t.Errorf("%d %s", rc, out)
	}
	f.Want("", "gseff: error: Invalid user id: no-such-user\n", 1, "gseff", "--user", "no-such-user")
	f.Want("", "gseff: error: --user takes one user and no job: 2\n", 1, "gseff", "--user=root", "2")
	f.Want("", "gseff: error: -S, -E, --json and --yaml need --user; gacct --json has a job's numbers\n", 1, "gseff", "-S",
		"now", "2")
}
