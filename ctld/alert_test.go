package ctld

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gbatch/ctld/alarm"
	"gbatch/ctld/deadletter"
	"gbatch/ctld/program"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/store"
)

// TestMain is for the processes that become a program.
func TestMain(m *testing.M) {
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// TestTroubles: records that pile up and that gdbd refuses, and a scheduler that completes no pass while jobs wait, are
// troubles as long as they last.
func TestTroubles(t *testing.T) {
	dir := t.TempDir()
	c := &Controller{log: slog.New(slog.DiscardHandler), machine: newMachine(), nodes: newNodeSet(), people: someUsers(),
		clocks: newClocks()}
	c.opts = Options{Name: "c1", DbdAddr: "gdbd:1", Dir: dir}
	c.dead = deadletter.Box{Dir: filepath.Join(dir, "refused")}
	c.issuer = c.newIssuer()
	var err error
	c.store, err = store.Open(store.Options{ID: "c1", Peers: []store.Peer{{ID: "c1", Addr: "c1"}}, Begin: true,
		Net: store.NewMemNet(), Machine: newMachine()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	index := uint64(0)
	apply := func(b state.Body) {
		t.Helper()
		data, err := state.Encode(model.Time(time.Now().UnixMilli()), b)
		if err != nil {
			t.Fatal(err)
		}
		index++
		c.machine.Apply(index, [][]byte{data})
	}
	cfg := &model.Config{Cluster: "c", Partitions: []*model.Partition{{Name: "p", Default: true}}}
	cfg.Params.MaxJobs, cfg.Params.Ship.MaxWaiting = 100, 8
	cfg.Params.Alerts = model.AlertRules{PassS: 60, RecordsPct: 50}
	apply(&state.SetConfig{Config: cfg, Instance: 1})

	w, now := alarm.NewWatch(nil, time.Time{}), time.Now()
	is := func(when string, want ...string) {
		t.Helper()
		got := []string{}
		for _, tr := range c.troubles(c.machine.View(), w, now, now) {
			got = append(got, tr.Event)
		}
		w.Step(now, c.troubles(c.machine.View(), w, now, now))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	is("nothing is wrong")
	submit := func(records int) {
		t.Helper()
		for c.machine.View().OutboxLen() < records {
			had := c.machine.View().OutboxLen()
			apply(&state.Submit{Spec: &model.Spec{Name: "j", User: "ann", UID: 1000, WorkDir: "/", Partitions: []string{"p"},
				MinNodes: 1, MaxNodes: 1, LimitS: 60}, Script: model.Blob{Key: "s", Data: []byte("#!/bin/sh\n")}})
			if c.machine.View().OutboxLen() == had {
				t.Fatal("a submission leaves no record")
			}
		}
	}
	submit(4)
	is("a pass is due and half of the records", "records_waiting", "scheduler_stuck")
	c.passes.completed(c.machine.View())
	is("the pass is complete", "records_waiting")
	submit(8)
	c.passes.completed(c.machine.View())
	is("all records that may wait", "records_discarded", "records_waiting")
	seqs := func(left int) uint64 {
		var all []uint64
		c.machine.View().Outbox(0, func(e state.Event) bool { all = append(all, e.Seq); return true })
		return all[len(all)-1-left]
	}
	apply(&state.Trim{Seq: seqs(7)})
	c.passes.completed(c.machine.View())
	is("not quite all", "records_discarded", "records_waiting") // what was told once is over below four fifths
	apply(&state.Trim{Seq: seqs(2)})
	c.passes.completed(c.machine.View())
	is("few")

	if err := c.dead.Put("one", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	is("gdbd has refused one", "records_refused")
	var own []proto.Trouble
	if own = c.ownTroubles(c.machine.View()); len(own) != 1 || own[0].Text != c.refusedNote(1, nil) {
		t.Error(fmt.Sprint(own))
	}
}
