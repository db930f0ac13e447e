package shim

import (
	"bytes"
	"fmt"
	"testing"

	"gbatch/internal/golden"
)

// TestJournalIsReadForever: a gshim reads the journal of an earlier version. v1/shim.journal.gz is of commit 4b95a0e,
// with a script and a step that run; it is never rewritten.
func TestJournalIsReadForever(t *testing.T) {
	old := golden.Unpack(t, "testdata/v1/shim.journal.gz")
	boot, known, good, why := replay(old)
	if why != nil || good != len(old) {
		t.Fatalf("%d of %d bytes are sound: %v", good, len(old), why)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "boot %s\n", boot)
	for _, r := range known {
		e := &r.event
		fmt.Fprintf(&b, "%+v: kind %d, pid %d at %d, %d:%d, in %s\n", r.key, e.Kind, e.PID, e.StartTicks, e.Code, e.Signal,
			r.cgroup.V2)
	}
	golden.Compare(t, "testdata/v1/shim.txt", b.Bytes())
	if _, again, _, why := replay(image(boot, known)); why != nil || fmt.Sprint(again) != fmt.Sprint(known) {
		t.Errorf("rewritten in today's form: %v\n%v\nnot\n%v", why, again, known)
	}
}
