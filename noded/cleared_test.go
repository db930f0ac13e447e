package noded

import (
	"testing"

	"gbatch/internal/blob"
	"gbatch/internal/proto"
)

// TestScriptsComeBack: a job that ends releases its script file, once, also if it is abandoned with processes that
// survive SIGKILL.
func TestScriptsComeBack(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "exit 3")
	if r := c.run(l); r.Exit.Code != 3 {
		t.Errorf("%+v", r)
	}
	until(t, "its script is back", func() bool { return c.n.scripts.InUse() == 0 })
	// What the loop does when nothing could be cleared away.
	b := blob.Make([]byte("#!/bin/sh\n"))
	name, err := c.n.scripts.Take(&b, uint32(c.n.uid), 0)
	must(t, err)
	again, err := c.n.scripts.Take(&b, uint32(c.n.uid), 0)
	must(t, err)
	if name != again || c.n.scripts.InUse() != 2 {
		t.Fatalf("%s and %s, %d users", name, again, c.n.scripts.InUse())
	}
	lo := &loop{n: c.n, log: c.n.log}
	a := &attempt{script: name, phase: over}
	for range 2 { // the worker that hung may come back later
		must(t, lo.cleared(a, &proto.Report{}))
	}
	for _, f := range lo.early {
		f()
	}
	until(t, "the script is back once", func() bool { return c.n.scripts.InUse() == 1 })
}
