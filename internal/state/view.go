package state

import (
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// View is the facts at one moment. It never changes and needs no lock.
type View struct {
	facts
	queues map[string]*btree.BTreeG[readyKey]
	stored *btree.Map[uint32, int64] // bytes of content, by user
}

// View gives the facts as they are now. It costs a handful of pointer copies: later Applies copy what they change.
func (s *State) View() *View {
	if s.last != nil && s.last.gen == s.gen {
		return s.last
	}
	v := &View{facts: s.facts, queues: s.copyQueues()}
	v.jobs, v.nodes, v.blobs, v.usage = s.jobs.Copy(), s.nodes.Copy(), s.blobs.Copy(), s.usage.Copy()
	v.arrays, v.elems, v.groups, v.outbox = s.arrays.Copy(), s.elems.Copy(), s.groups.Copy(), s.outbox.Copy()
	v.outSteps, v.outTrail, v.mails = s.outSteps.Copy(), s.outTrail.Copy(), s.mails.Copy()
	v.moving, v.shares, v.owned = s.moving.Copy(), s.shares.Copy(), s.owned.Copy()
	v.accounts, v.users, v.assocs, v.qos, v.qosUse, v.acctUse = s.accounts.Copy(), s.users.Copy(), s.assocs.Copy(),
		s.qos.Copy(), s.qosUse.Copy(), s.acctUse.Copy()
	v.requests, v.tallies = s.requests.Copy(), s.tallies.Copy()
	v.resvs, v.answers.byKey = s.resvs.Copy(), s.answers.byKey.Copy()
	v.crontabs, v.undue = s.crontabs.Copy(), s.undue.Copy()
	v.triggers.all = s.triggers.all.Copy()
	v.wallets, v.invoices, v.wckeys = s.wallets.Copy(), s.invoices.Copy(), s.wckeys.Copy()
	v.givenUp, v.shipped.packs = s.givenUp.Copy(), s.shipped.packs.Copy()
	v.certs = s.certs.copy()
	v.stored = s.held.bytes.Copy()
	s.last = v
	// These go on changing; a snapshot takes its own copies.
	v.ready, v.outSeq, v.reqQueue, v.answers.order, v.live = nil, nil, nil, nil, nil
	return v
}

// copyQueues gives a copy of each partition's queue; queues that have not changed since the last View are shared.
func (s *State) copyQueues() map[string]*btree.BTreeG[readyKey] {
	same := len(s.queues) == s.ready.Len()
	s.ready.Scan(func(_ string, q *queue) bool {
		same = same && q.copy != nil
		return same
	})
	if same {
		return s.queues
	}
	s.queues = make(map[string]*btree.BTreeG[readyKey], s.ready.Len())
	s.ready.Scan(func(part string, q *queue) bool {
		if q.copy == nil {
			q.copy = q.tree.Copy()
		}
		s.queues[part] = q.copy
		return true
	})
	return s.queues
}

// Peek gives the present facts without any copy, for a caller that is the only user of the State and needs them only
// until the next Apply (a simulator). The next Apply changes them.
func (s *State) Peek() *View {
	s.peek.facts = s.facts
	s.peek.queues = nil
	return &s.peek
}

// queue gives a partition's queue, or nil.
func (v *View) queue(part string) *btree.BTreeG[readyKey] {
	if v.queues != nil {
		return v.queues[part]
	}
	if v.ready == nil {
		return nil
	}
	if q, ok := v.ready.Get(part); ok {
		return q.tree
	}
	return nil
}

// Gen grows with every command: equal generations are equal facts.
func (v *View) Gen() uint64 { return v.gen }

// Instance identifies this history of the cluster: a cluster of the same name that starts over has another; 0 before
// the first configuration.
func (v *View) Instance() uint64 { return v.instance }

// Config gives the configuration; empty before the first.
func (v *View) Config() *model.Config { return v.cfg }

// Partition gives a partition by name, or nil.
func (v *View) Partition(name string) *model.Partition { return v.parts[name] }

// Job gives a job by its own ID, or nil.
func (v *View) Job(id model.JobID) *model.Job {
	j, _ := v.jobs.Get(id)
	return j
}

// Task gives a task of an array that has a record of its own, or nil.
func (v *View) Task(array model.JobID, task int32) *model.Job {
	id, ok := v.elems.Get(elemKey(array, task))
	if !ok {
		return nil
	}
	return v.Job(id)
}

// Jobs calls f for every job in order of ID until it returns false.
func (v *View) Jobs(f func(*model.Job) bool) {
	v.jobs.Scan(func(_ model.JobID, j *model.Job) bool { return f(j) })
}

// JobsOf calls f for every job of a user that is in one of these phases, in order of ID, until it returns false.
func (v *View) JobsOf(uid uint32, phases Phase, f func(*model.Job) bool) {
	var lists [][]model.JobID
	walk := func(p Phase, each func(model.JobID) bool) {
		v.owned.Ascend(ownedKey{uid: uid, phase: p}, func(k ownedKey) bool {
			return k.uid == uid && k.phase == p && each(k.id)
		})
	}
	give := func(id model.JobID) bool {
		j, ok := v.jobs.Get(id)
		return !ok || f(j)
	}
	for _, p := range []Phase{Waits, Holds, IsOver} {
		switch phases & p {
		case phases: // no other list has to be merged with this one
			walk(p, give)
			return
		case 0:
		default:
			var ids []model.JobID
			walk(p, func(id model.JobID) bool {
				ids = append(ids, id)
				return true
			})
			lists = append(lists, ids)
		}
	}
	ids := slices.Concat(lists...)
	slices.Sort(ids)
	for _, id := range ids {
		if !give(id) {
			return
		}
	}
}

// JobOrTask gives a job, or of an array whose own record was forgotten one of the others, which says whose it is; nil:
// there is none.
func (v *View) JobOrTask(id model.JobID) *model.Job {
	j := v.Job(id)
	if j == nil && v.Array(id) != nil {
		v.Tasks(id, func(task *model.Job) bool { j = task; return false })
	}
	return j
}

// Tasks calls f for every record of an array except the array's own: single tasks in order of task, then groups of
// pending tasks that were split off (held or cancelled together), in order of ID. The last tasks keep the array's own
// record, which then is one of these.
func (v *View) Tasks(array model.JobID, f func(*model.Job) bool) {
	more := true
	for _, tree := range []*btree.Map[uint64, model.JobID]{v.elems, v.groups} {
		tree.Ascend(elemKey(array, 0), func(k uint64, id model.JobID) bool {
			if model.JobID(k>>32) != array {
				return false
			}
			if j, ok := v.jobs.Get(id); ok {
				more = f(j)
			}
			return more
		})
		if !more {
			return
		}
	}
}

// TaskRecord gives the record of a task, its own or one that it shares with other tasks, or nil.
func (v *View) TaskRecord(array model.JobID, task int32) *model.Job { return v.taskRecord(array, task) }

// taskRecord gives the record of a task of an array: its own, a group's or the array's; nil if there is none.
func (f *facts) taskRecord(array model.JobID, task int32) *model.Job {
	if id, ok := f.elems.Get(elemKey(array, task)); ok {
		j, _ := f.jobs.Get(id)
		return j
	}
	if j, ok := f.jobs.Get(array); ok && j.ArrayID == array && j.Tasks.Has(task) {
		return j
	}
	var found *model.Job
	f.groups.Ascend(groupKey(array, 0), func(k uint64, id model.JobID) bool {
		if model.JobID(k>>32) != array {
			return false
		}
		if j, ok := f.jobs.Get(id); ok && j.Tasks.Has(task) {
			found = j
		}
		return found == nil
	})
	return found
}

// Array gives an array's counters, or nil.
func (v *View) Array(id model.JobID) *Array {
	a, _ := v.arrays.Get(id)
	return a
}

// Node gives a node by name, or nil.
func (v *View) Node(name string) *model.Node {
	n, _ := v.nodes.Get(name)
	return n
}

// NodeDef gives a node's definition in the configuration, or nil. It is cheaper than Node.
func (v *View) NodeDef(name string) *model.NodeDef { return v.defs[name] }

// Made gives a configured node's definition, completed with what the node has found (WithFound); nil if it isn't
// configured.
func (v *View) Made(name string) *model.NodeDef {
	def := v.defs[name]
	if n, ok := v.nodes.Get(name); ok && def != nil {
		return n.Def
	}
	return def
}

// Nodes calls f for every node in order of name until it returns false.
func (v *View) Nodes(f func(*model.Node) bool) {
	v.nodes.Scan(func(_ string, n *model.Node) bool { return f(n) })
}

// Ready calls f for the jobs that may start in a partition if there is room, best first, until it returns false.
func (v *View) Ready(part string, f func(*model.Job) bool) { v.ReadyAfter(part, nil, f) }

// ReadyAfter is Ready for the jobs behind one job; nil for all.
func (v *View) ReadyAfter(part string, after *model.Job, f func(*model.Job) bool) {
	q := v.queue(part)
	if q == nil {
		return
	}
	give := func(k readyKey) bool {
		j, ok := v.jobs.Get(k.id)
		return !ok || f(j)
	}
	if after == nil {
		q.Scan(give)
		return
	}
	q.Ascend(readyKey{after.Priority, after.ID}, func(k readyKey) bool { return k.id == after.ID || give(k) })
}

// InQueue reports whether Ready gives a job for a partition.
func (v *View) InQueue(part string, j *model.Job) bool {
	q := v.queue(part)
	if q == nil {
		return false
	}
	_, ok := q.Get(readyKey{j.Priority, j.ID})
	return ok
}

// ReadyParts names the partitions with jobs in their queues, including partitions that have left the configuration.
func (v *View) ReadyParts() []string {
	var out []string
	if v.queues == nil && v.ready != nil {
		v.ready.Scan(func(name string, q *queue) bool {
			if q.tree.Len() > 0 {
				out = append(out, name)
			}
			return true
		})
		return out
	}
	for name, q := range v.queues {
		if q.Len() > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ReadyLen counts the records that wait in a partition's queue.
func (v *View) ReadyLen(part string) int {
	if q := v.queue(part); q != nil {
		return q.Len()
	}
	return 0
}

// Sharing calls f for the jobs with resources that share CPUs or are suspended, in order of ID, until it returns false.
func (v *View) Sharing(f func(*model.Job) bool) {
	v.shares.Scan(func(id model.JobID, _ struct{}) bool {
		j, ok := v.jobs.Get(id)
		return !ok || f(j)
	})
}

// Moving calls f for the jobs for which a node may still need orders (CONFIGURING, COMPLETING, ever suspended, ever
// resized, or not ready on all nodes), in order of ID, until it returns false.
func (v *View) Moving(f func(*model.Job) bool) {
	v.moving.Scan(func(id model.JobID, _ model.JobState) bool {
		j, ok := v.jobs.Get(id)
		return !ok || f(j)
	})
}

// HasBlob reports whether content with this key is stored.
func (v *View) HasBlob(key string) bool {
	_, ok := v.blobs.Get(key)
	return ok
}

// Stored is how many bytes of scripts and environments the user's jobs have stored, small ones aside.
func (v *View) Stored(uid uint32) int64 {
	n, _ := v.stored.Get(uid)
	return n
}

// Blob gives stored content; its Key is "" when there is none.
func (v *View) Blob(key string) model.Blob {
	if b, ok := v.blobs.Get(key); ok {
		return *b
	}
	return model.Blob{}
}

// NextDue gives the moment from which a Tick has something to do, or 0.
func (v *View) NextDue() model.Time { return v.nextDue }

// JobCount counts all job records.
func (v *View) JobCount() int { return v.jobs.Len() }

// Active counts jobs with resources.
func (v *View) Active() int { return v.active }

// Pending counts pending records; an array is one.
func (v *View) Pending() int { return v.pending }

// OutboxLen counts accounting events that are not acknowledged yet.
func (v *View) OutboxLen() int { return v.outbox.Len() }

// Outbox calls f for the events after seq, in order, until it returns false.
func (v *View) Outbox(after uint64, f func(e Event) bool) {
	v.outbox.Ascend(after+1, func(seq uint64, j *model.Job) bool { return f(v.event(seq, j)) })
}

func (v *View) event(seq uint64, j *model.Job) Event {
	e := Event{Seq: seq, Job: j}
	e.Step, _ = v.outSteps.Get(seq)
	e.Audit, _ = v.outTrail.Get(seq)
	return e
}

// NextRecord is the number that the next accounting event gets.
func (v *View) NextRecord() uint64 { return v.nextSeq }

// NextJob is the number that the next submission gets.
func (v *View) NextJob() model.JobID { return v.nextID }

// Eras gives the eras of this history after its first, oldest first.
func (v *View) Eras() []model.Era { return v.eras }

// Latest gives the latest moment that the facts name as past: the cluster's time is not before it. It looks at all jobs
// and nodes.
func (v *View) Latest() model.Time {
	var at model.Time
	v.nodes.Scan(func(_ string, n *model.Node) bool { at = max(at, n.LinkAt, n.BusyAt, n.ReasonAt); return true })
	v.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		at = max(at, j.Submit)
		if j.Run != nil {
			at = max(at, j.Run.Start, j.Run.Launched, j.Run.StopAt, j.Run.Sized)
		}
		if j.End != nil {
			at = max(at, j.End.At)
		}
		return true
	})
	return at
}

// Usages calls f for every account and user with usage, in order.
func (v *View) Usages(f func(*Usage) bool) {
	v.usage.Scan(func(_ string, u *Usage) bool { return f(u) })
}

// Request gives the job of a RequestID, or 0.
func (v *View) Request(id string) model.JobID {
	return v.taken(id)
}
