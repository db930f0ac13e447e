package noded

import (
	"context"
	"testing"

	"gbatch/noded/pool"
)

// testLoop makes a node whose loop nobody runs: the test hands it its messages. gshim doesn't run.
func testLoop(t testing.TB) *loop {
	t.Helper()
	n, err := New(testOptions(t, newPKI(t), "127.0.0.1:1"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	n.ctx = ctx
	n.openPools(ctx)
	must(t, n.loop.recover())
	t.Cleanup(func() {
		cancel()
		for _, p := range []*pool.Pool{n.workers, n.stops, n.chills, n.imports} {
			p.Wait()
		}
		must(t, n.Close())
	})
	return n.loop
}
