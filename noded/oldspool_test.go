package noded

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/proto"
)

// TestSpoolIsReadForever: a gnoded reads the spool of an earlier version, with its running job and its unacknowledged
// reports. v1/journal.gz is of commit 4b95a0e, with a job and a step that run; it is never rewritten. The text beside
// it is what a person has looked at.
func TestSpoolIsReadForever(t *testing.T) {
	dir := t.TempDir()
	old := golden.Unpack(t, "testdata/v1/journal.gz")
	must(t, os.WriteFile(filepath.Join(dir, spoolFile), old, 0o600))
	s := openTest(t, dir)
	if s.size != int64(len(old)) {
		t.Errorf("%d of %d bytes are taken", s.size, len(old))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "life %d of %s, epoch %d\n", s.mem.opened.Incarnation, s.mem.opened.Node, s.mem.epoch.Epoch)
	keys := slices.SortedFunc(maps.Keys(s.mem.attempts), func(a, b proto.Attempt) int { return cmp.Compare(a.Job, b.Job) })
	for _, key := range keys {
		k := s.mem.attempts[key]
		fmt.Fprintf(&b, "job %d.%d: next step %d, %d reports", key.Job, key.Attempt, k.nextStep, len(k.reports))
		if l := k.launched; l != nil {
			fmt.Fprintf(&b, ", user %d, taken at %d, started at %d, script %s", l.UID, l.At, l.Started, l.Script)
			if l.Order != nil {
				fmt.Fprintf(&b, ", %s on %v", l.Order.Spec.Name, l.Order.Alloc.NodeNames())
			}
		}
		b.WriteByte('\n')
		for _, id := range slices.Sorted(maps.Keys(k.steps)) {
			p := k.steps[id]
			fmt.Fprintf(&b, "  step %d %s, since %d, on %d nodes, of process %d\n", p.ID, p.Name, p.At, len(p.Nodes), p.PID)
		}
	}
	golden.Compare(t, "testdata/v1/journal.txt", b.Bytes())
	// Rewritten in today's form it says the same.
	must(t, s.compact())
	must(t, s.close())
	again := openTest(t, dir)
	defer again.close()
	same(t, &again.mem, &s.mem)
}
