package state

import "gbatch/internal/model"

// The journal names the records that Apply has replaced lately. A reader that keeps something derived from a View
// (sched.Planner) then looks only at those records in the next View. The journal is not one of the facts: New and
// Restore begin a new one. It reaches back at least maxChanges/2 changes.

// maxChanges bounds the journal, in entries.
const maxChanges = 1 << 16

// Change names a record that was added, replaced or removed: a job's or a node's.
type Change struct {
	Job  model.JobID // 0: a node
	Node string
}

// Cursor is a place in a State's journal. The zero value is before everything.
type Cursor struct {
	of  *journalID
	seq uint64
}

// journalID distinguishes journals by its address.
type journalID struct{ _ byte }

// journal is append-only for a View: entries are never edited in place.
type journal struct {
	id   *journalID
	base uint64 // changes before list[0]
	list []Change
}

func newJournal() journal { return journal{id: new(journalID)} }

func (j *journal) add(c Change) {
	if len(j.list) >= maxChanges {
		keep := j.list[maxChanges/2:]
		j.base += maxChanges / 2
		j.list = append(make([]Change, 0, maxChanges), keep...)
	}
	j.list = append(j.list, c)
}

// Changes gives what has changed since a cursor, oldest first (a record may be in it several times), and the cursor for
// the next call. It reports false if the changes are not known: on the first call, after Restore, or if the cursor is
// too old. Changes of the configuration are not in the journal: compare Config's pointers.
func (v *View) Changes(since Cursor) ([]Change, Cursor, bool) {
	j := &v.journal
	next := Cursor{j.id, j.base + uint64(len(j.list))}
	if since.of != j.id || since.seq < j.base || since.seq > next.seq {
		return nil, next, false
	}
	return j.list[since.seq-j.base:], next, true
}

// putNode replaces a node's record.
func (s *State) putNode(name string, n *model.Node) {
	old, _ := s.nodes.Set(name, n)
	s.tellNode(old, n)
	s.journal.add(Change{Node: name})
}

// dropNode forgets a node.
func (s *State) dropNode(name string) {
	if old, ok := s.nodes.Delete(name); ok {
		s.tellNodeGone(old)
	}
	s.journal.add(Change{Node: name})
}
