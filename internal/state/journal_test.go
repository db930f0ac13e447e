package state

import (
	"bytes"
	"testing"

	"gbatch/internal/model"
)

// TestChangesNamesWhatChanged follows a state by its journal: reading only the records that it names gives the same
// records.
func TestChangesNamesWhatChanged(t *testing.T) {
	st, logged := full(t, 400)
	jobs, nodes := map[model.JobID]*model.Job{}, map[string]*model.Node{}
	var at Cursor
	follow := func() {
		v := st.View()
		changes, next, ok := v.Changes(at)
		at = next
		if !ok {
			clear(jobs)
			clear(nodes)
			v.Jobs(func(j *model.Job) bool { jobs[j.ID] = j; return true })
			v.Nodes(func(n *model.Node) bool { nodes[n.Def.Name] = n; return true })
		}
		for _, c := range changes {
			if c.Job != 0 {
				jobs[c.Job] = v.Job(c.Job)
			} else {
				nodes[c.Node] = v.Node(c.Node)
			}
		}
		v.Jobs(func(j *model.Job) bool {
			if jobs[j.ID] != j {
				t.Fatalf("job %d changed unseen", j.ID)
			}
			return true
		})
		v.Nodes(func(n *model.Node) bool {
			if nodes[n.Def.Name] != n {
				t.Fatalf("node %s changed unseen", n.Def.Name)
			}
			return true
		})
	}
	for i, data := range logged {
		fold(t, st, data)
		if i%3 == 0 {
			st.Apply(Command{At: epoch, Body: &Starts{Plan: model.Plan{Starts: []model.Start{{Job: model.JobID(i + 1),
				Task: model.NoTask, Partition: "p", LimitS: 60,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n007", CPUs: model.UpTo(i%128 + 1).Minus(model.UpTo(i % 128)),
					MemMiB: 1, Tasks: 1}}}}}}}})
		}
		if i%7 == 0 {
			follow()
		}
		if i == 200 {
			var data bytes.Buffer
			if err := st.Freeze()(&data); err != nil {
				t.Fatal(err)
			}
			if err := st.Restore(&data); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := st.View().Changes(at); ok {
				t.Error("a cursor of the state before it was restored is taken")
			}
		}
	}
	follow()
	if a, b := st.View(), st.View(); a != b {
		t.Error("nothing has changed, and the view is another one")
	}
}

// TestJournalForgets: a cursor that is too old is refused, a recent one is not.
func TestJournalForgets(t *testing.T) {
	j := newJournal()
	v := &View{}
	see := func() *View { v.journal = j; return v }
	_, first, _ := see().Changes(Cursor{})
	for i := range maxChanges + maxChanges/2 {
		j.add(Change{Job: model.JobID(i + 1)})
	}
	if _, _, ok := see().Changes(first); ok {
		t.Error("changes that are forgotten are given")
	}
	_, late, _ := see().Changes(Cursor{})
	j.add(Change{Node: "n"})
	if list, _, ok := see().Changes(late); !ok || len(list) != 1 || list[0].Node != "n" {
		t.Errorf("%v %v", list, ok)
	}
	if len(j.list) > maxChanges {
		t.Errorf("%d entries", len(j.list))
	}
}
