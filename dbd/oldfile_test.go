package dbd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestFileIsReadForever: gdbd opens the file of an earlier version, finds every record and step in it, and writes on.
// v1/acct.db.gz is of a gdbd of commit 4b95a0e that was killed; it is never rewritten. A person has checked the text
// beside it.
func TestFileIsReadForever(t *testing.T) {
	dir := t.TempDir()
	old := golden.Unpack(t, "testdata/v1/acct.db.gz")
	if err := os.WriteFile(filepath.Join(dir, fileName), old, 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := openTest(t, dir)
	text := func() []byte {
		var b bytes.Buffer
		for _, r := range ask(t, d, &proto.AcctRequest{Duplicates: true, Steps: true}) {
			name := r.Name
			if r.Step != nil {
				name = fmt.Sprintf("step %d %s", r.Step.ID, r.Step.Name)
			}
			fmt.Fprintf(&b, "%d.%d of array %d, task %d, %s: %s %d:%d, %s in %s on %s, from %d to %d, %d CPUs %v, %d KiB, %q\n",
				r.Job, r.Attempt, r.ArrayID, r.Task, name, r.State, r.Exit.Code, r.Exit.Signal, r.User, r.Account, r.Nodes,
				r.Start, r.End, r.AllocCPUs, r.AllocGres, r.Exit.MaxRSSKB, r.SubmitLine)
		}
		return b.Bytes()
	}
	before := text()
	golden.Compare(t, "testdata/v1/acct.txt", before)
	// A cluster that it doesn't know begins its own series beside the old one.
	mustPut(t, d, 1, rec(1, 77))
	if got := ask(t, d, &proto.AcctRequest{Jobs: []model.JobRef{{Job: 77, Task: model.NoTask}}}); len(got) != 1 {
		t.Errorf("a record of today's is not among %d", len(got))
	}
	if d.damaged.Load() != 0 {
		t.Errorf("%d rows were left out", d.damaged.Load())
	}
}
