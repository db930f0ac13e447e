package dbd

import (
	"math"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// This file decides which records a request selects. The rules, after sacct's manual page:
//
//   - Every list that is not empty must contain the record's value.
//   - Without states, a job fits if the cluster knew it at some moment of the window: it was submitted no later than
//     the window's end and did not end before the window's start. One that was never eligible to run (held, say) is
//     left out, unless the request names jobs.
//   - With states, it fits if it was in one of them in the window: PENDING from when it was eligible to its start,
//     RUNNING from start to end, a final state at its end, and the passing states (CONFIGURING, SUSPENDED, COMPLETING)
//     as long as the record says so now.
//   - A bound of 0 is no bound. Users see whole seconds, so a window that ends on a second includes that second.
//   - Of several attempts of a job that fit, only the last is given, unless duplicates are asked for, and of its sizes
//     only the last, unless they are. The same holds if a cluster that has started over has used a job's number again.

// window is a span of time with both its ends.
type window struct{ from, to model.Time }

func newWindow(start, end model.Time) (window, error) {
	w := window{max(0, start), math.MaxInt64}
	if end > 0 {
		w.to = end
		if end%1000 == 0 {
			w.to = end + 999
		}
	}
	if w.from > w.to {
		return w, badRequest("the time window ends before it starts")
	}
	return w, nil
}

// meets reports whether [from, to) overlaps the window; to = 0 means no end.
func (w window) meets(from, to model.Time) bool {
	return from <= w.to && (to == 0 || to > w.from) && from != to
}

// knew reports whether the job was known to the cluster in the window.
func (w window) knew(h *head) bool {
	return h.submit <= w.to && (!h.ended() || h.end >= w.from)
}

// stateSet has a bit per state.
type stateSet uint32

func (s stateSet) has(x model.JobState) bool { return x < 32 && s&(1<<x) != 0 }

func (s stateSet) without(x model.JobState) stateSet { return s &^ (1 << x) }

// final reports whether only final states are asked for: such records ended in the window.
func (s stateSet) final() bool {
	for _, x := range model.JobStates() {
		if s.has(x) && !x.Finished() {
			return false
		}
	}
	return s != 0
}

// was reports whether the job was in one of the states in the window, for a job that was eligible from a moment on; 0:
// from its submission.
func (w window) was(h *head, states stateSet, eligible model.Time) bool {
	start, end := h.start, h.end
	if !h.ended() {
		switch {
		case h.state == model.Pending:
			start = 0
		case start == 0:
			start = h.submit
		}
	}
	waited := end // moment until which it was pending
	if start != 0 {
		waited = start
	}
	switch {
	case states.has(model.Pending) && !h.waits && (waited == 0 || eligible < waited) &&
		w.meets(max(h.submit, eligible), waited):
	case states.has(model.Running) && start != 0 && w.meets(start, end):
	case h.ended() && states.has(h.state) && w.from <= h.end && h.end <= w.to:
	case !h.ended() && states.has(h.state) && h.state != model.Pending && h.state != model.Running && w.knew(h):
	default:
		return false
	}
	return true
}

// tasks are the tasks of one job or array that a request asks for.
type tasks struct {
	all  bool
	self bool // only the job of that number itself: a component of a heterogeneous job
	one  map[int32]bool
	sets []model.TaskSet
}

func (t *tasks) has(task int32) bool {
	return t.all || t.one[task] || slices.ContainsFunc(t.sets, func(s model.TaskSet) bool { return s.Has(task) })
}

// meets reports whether one of the tasks is in set.
func (t *tasks) meets(set model.TaskSet) bool {
	for task := range t.one {
		if set.Has(task) {
			return true
		}
	}
	for _, s := range t.sets {
		found := false
		s.Each(func(i int32) bool {
			found = set.Has(i)
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// filter decides about one record. It belongs to one query and one goroutine.
type filter struct {
	window
	states     stateSet
	jobs       map[model.JobID]*tasks
	users      map[uint32]bool
	groups     map[uint32]bool
	accounts   map[string]bool
	partitions map[string]bool
	names      map[string]bool
	qos        map[string]bool
	wckeys     []string
	nodes      []string
	duplicates bool
	sizes      bool

	deep  bool            // the request asks for fields that are not in the head
	lists map[string]bool // hostlist -> whether it has one of nodes
}

// accountsOf gives a set of accounts' names; nil if any account fits.
func accountsOf(names []string) map[string]bool {
	low := make([]string, len(names))
	for i, name := range names {
		low[i] = model.AccountName(name)
	}
	return setOf(low)
}

func newFilter(req *proto.AcctRequest) (*filter, error) {
	for _, n := range []int{
		len(req.Jobs), len(req.Users), len(req.Groups), len(req.Accounts), len(req.Partitions), len(req.Names),
		len(req.QOS), len(req.Nodes), len(req.States), len(req.WCKeys),
	} {
		if n > proto.MaxTargets {
			return nil, badRequest("%d values for one option; at most %d", n, proto.MaxTargets)
		}
	}
	w, err := newWindow(req.Start, req.End)
	if err != nil {
		return nil, err
	}
	f := &filter{
		window: w, duplicates: req.Duplicates, sizes: req.Sizes,
		users: setOf(req.Users), groups: setOf(req.Groups), accounts: accountsOf(req.Accounts),
		partitions: setOf(req.Partitions), names: setOf(req.Names), qos: setOf(req.QOS),
		wckeys: req.WCKeys,
		lists:  map[string]bool{},
	}
	for _, expr := range req.Nodes {
		hosts, err := hostlist.Expand(expr)
		if err != nil {
			return nil, badRequest("nodes: %v", err)
		}
		f.nodes = append(f.nodes, hosts...)
		if len(f.nodes) > proto.MaxTargets {
			return nil, badRequest("more than %d nodes asked for", proto.MaxTargets)
		}
	}
	for _, s := range req.States {
		if s == model.Expediting || s == model.SpecialExit { // no record has it
			f.states |= 1 << 31
			continue
		}
		if s < model.Pending || s.String() == model.JobState(0).String() {
			return nil, badRequest("there is no job state %d", s)
		}
		f.states |= 1 << s
	}
	for i := range req.Jobs {
		if f.jobs == nil {
			f.jobs = map[model.JobID]*tasks{}
		}
		j := &req.Jobs[i]
		if j.Het < 0 || j.Het > model.MaxHet {
			return nil, badRequest("there is no component %d", j.Het-1)
		}
		id := j.Job + model.JobID(max(0, j.Het-1))
		t := f.jobs[id]
		if t == nil {
			t = &tasks{one: map[int32]bool{}}
			f.jobs[id] = t
		}
		switch {
		case j.Het > 0:
			t.self = true
		case len(j.Tasks) > 0:
			if err := checkTasks(j.Tasks); err != nil {
				return nil, err
			}
			t.sets = append(t.sets, j.Tasks)
		case j.Task != model.NoTask:
			t.one[j.Task] = true
		default:
			t.all = true
		}
	}
	f.deep = f.accounts != nil || f.partitions != nil || f.names != nil || f.qos != nil || f.nodes != nil ||
		len(f.wckeys) > 0
	return f, nil
}

// checkTasks refuses endless ranges, which a forged message may have.
func checkTasks(set model.TaskSet) error {
	if len(set) > model.MaxTaskRanges {
		return badRequest("more than %d ranges of tasks", model.MaxTaskRanges)
	}
	for _, r := range set {
		if r.Lo < 0 || r.Hi < r.Lo || r.Step < 1 || r.Hi > math.MaxInt32-r.Step {
			return badRequest("%d-%d:%d is no range of tasks", r.Lo, r.Hi, r.Step)
		}
	}
	return nil
}

func setOf[T comparable](list []T) map[T]bool {
	if len(list) == 0 {
		return nil
	}
	m := make(map[T]bool, len(list))
	for _, x := range list {
		m[x] = true
	}
	return m
}

// seenBy leaves out what a user may not see: only their own jobs are looked at.
func (f *filter) seenBy(see *eye) {
	if see != nil {
		own := map[uint32]bool{}
		if f.users == nil || f.users[see.uid] {
			own[see.uid] = true
		}
		f.users = own
	}
}

// fits decides about the record with head h, and decodes the record itself only if the head is not enough. An error
// says that the record can't be decoded.
func (f *filter) fits(h *head, r ref, record []byte) (bool, error) {
	if !f.knew(h) ||
		f.states != 0 && !f.was(h, f.states, 0) ||
		f.states == 0 && f.jobs == nil && h.waits ||
		f.users != nil && !f.users[h.uid] ||
		f.groups != nil && !f.groups[h.gid] {
		return false, nil
	}
	ownRecord := false
	if f.jobs != nil {
		var in bool
		if in, ownRecord = f.wants(h, r.job); !in && !ownRecord {
			return false, nil
		}
	}
	// The head doesn't say from when on a job was eligible.
	waited := f.states.has(model.Pending) && !f.was(h, f.states.without(model.Pending), 0)
	if !f.deep && !ownRecord && !waited {
		return true, nil
	}
	var rec model.Record
	if err := wire.Unmarshal(record, &rec); err != nil {
		return false, err
	}
	if waited && !f.was(h, f.states, rec.Eligible) {
		return false, nil
	}
	if ownRecord {
		set, _, err := model.ParseTaskSet(rec.TaskText, math.MaxInt32)
		if err != nil || !f.jobs[h.array].meets(set) {
			return false, nil // an array's record without readable tasks does not fit
		}
	}
	return f.fitsDeep(&rec), nil
}

// wants reports whether the request names this job. maybe means that it is an array's own record, and that its pending
// tasks decide.
func (f *filter) wants(h *head, job model.JobID) (in, maybe bool) {
	if t := f.jobs[job]; t != nil && (t.all || t.self) {
		return true, false
	}
	if h.array == 0 {
		return false, false
	}
	t := f.jobs[h.array]
	switch {
	case t == nil:
		return false, false
	case t.all:
		return true, false
	case h.task == model.NoTask:
		return false, true
	}
	return t.has(h.task), false
}

func (f *filter) fitsDeep(r *model.Record) bool {
	return (f.accounts == nil || f.accounts[model.AccountName(r.Account)]) &&
		(f.names == nil || f.names[r.Name]) &&
		(f.qos == nil || f.qos[r.QOS]) &&
		(len(f.wckeys) == 0 || model.HasWCKey(f.wckeys, r.WCKey)) &&
		(f.partitions == nil || f.inPartition(r.Partition)) &&
		(f.nodes == nil || f.onNode(r.Nodes))
}

// inPartition reports whether a record's partitions fit: a job that is pending in several has all of them in its
// record, with commas.
func (f *filter) inPartition(list string) bool {
	for list != "" {
		var one string
		one, list, _ = strings.Cut(list, ",")
		if f.partitions[one] {
			return true
		}
	}
	return false
}

func (f *filter) onNode(list string) bool {
	if list == "" {
		return false
	}
	in, known := f.lists[list]
	if !known {
		in = slices.ContainsFunc(f.nodes, func(n string) bool {
			has, err := hostlist.Contains(list, n)
			return err == nil && has // an unreadable list has no nodes
		})
		f.lists[list] = in
	}
	return in
}
