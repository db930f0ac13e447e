package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// nothing is a machine that does no work, so that benchmarks measure only the store.
type nothing struct{ *ledger }

func (nothing) Apply(_ uint64, cmds [][]byte) []any { return make([]any, len(cmds)) }

// BenchmarkPropose uses 500-byte commands, real files and fsync; the three voters run in one process, on TCP loopback.
func BenchmarkPropose(b *testing.B) {
	for _, voters := range []int{1, 3} {
		for _, callers := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("voters=%d/c=%d", voters, callers), func(b *testing.B) {
				base := b.TempDir()
				g := newGroup(b, voters, Options{})
				g.opts.Machine = nothing{newLedger()}
				g.startAll(base)
				lead := g.leader()
				cmd := make([]byte, 500)
				before := lead.Stats()
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := lead.Propose(b.Context(), cmd); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				after := lead.Stats()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cmds/s")
				b.ReportMetric(float64(after.Commands-before.Commands)/float64(after.Entries-before.Entries), "cmds/entry")
			})
		}
	}
}

func BenchmarkProposeBatch(b *testing.B) {
	g := newGroup(b, 1, Options{})
	m := g.start(g.peers[0], filepath.Join(b.TempDir(), "raft"))
	g.leader()
	cmds := make([][]byte, 64)
	for i := range cmds {
		cmds[i] = make([]byte, 500)
	}
	for b.Loop() {
		if _, err := m.ProposeBatch(b.Context(), cmds); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(cmds))/b.Elapsed().Seconds(), "cmds/s")
}
