package state

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
)

// TestSnapshotsRestoreForever: snapshots of earlier versions are restored with all their facts. v1.gz is of commit
// 4b95a0e and is never rewritten; a person has checked the text beside it.
func TestSnapshotsRestoreForever(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "snapshots", "*.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	for _, path := range files {
		st := New()
		if err := st.Restore(bytes.NewReader(golden.Unpack(t, path))); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := st.Check(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		var b bytes.Buffer
		v := st.View()
		fmt.Fprintf(&b, "cluster %s, next job %d\n", v.Config().Cluster, st.nextID)
		v.Nodes(func(n *model.Node) bool {
			fmt.Fprintf(&b, "node %s: %d CPUs, admin %d, link %d, jobs %d\n", n.Def.Name, n.Def.CPUs, n.Admin, n.Link,
				len(n.Jobs))
			return true
		})
		v.Jobs(func(j *model.Job) bool {
			fmt.Fprintf(&b, "job %d: %s of %s, attempt %d, %d tasks, why %s\n", j.ID, j.State, j.Spec.User, j.Attempt,
				j.Spec.Tasks, j.Reason)
			return true
		})
		golden.Compare(t, path[:len(path)-len(".gz")]+".txt", b.Bytes())
		// It goes on from there.
		if r := st.Apply(Command{At: epoch, Body: &Tick{}}); r.Refusal != 0 {
			t.Errorf("%s: the clock is refused: %v", path, r.Refusal)
		}
	}
}
