package model

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gbatch/internal/wire"
)

// Range is the task indices Lo, Lo+Step, ... up to and including Hi.
type Range struct {
	Lo, Hi, Step int32
}

func (x *Range) Wire(c *wire.C) {
	wire.Int(c, &x.Lo)
	wire.Int(c, &x.Hi)
	wire.Int(c, &x.Step)
}

// TaskSet is the task indices of an array that have not started yet: ascending, disjoint ranges. An array of a
// million tasks costs one Range. A published TaskSet is never edited.
type TaskSet []Range

// MaxTaskRanges bounds how many ranges one array specification may have.
const MaxTaskRanges = 4096

func (r Range) count() int { return int((r.Hi-r.Lo)/r.Step) + 1 }

func (r Range) has(i int32) bool { return i >= r.Lo && i <= r.Hi && (i-r.Lo)%r.Step == 0 }

// Count gives the number of tasks.
func (s TaskSet) Count() int {
	n := 0
	for _, r := range s {
		n += r.count()
	}
	return n
}

// Has reports whether task i is in the set.
func (s TaskSet) Has(i int32) bool {
	k := sort.Search(len(s), func(k int) bool { return s[k].Hi >= i })
	return k < len(s) && s[k].has(i)
}

// Min gives the smallest task, or -1 for the empty set.
func (s TaskSet) Min() int32 {
	if len(s) == 0 {
		return -1
	}
	return s[0].Lo
}

// Max gives the largest task, or -1 for the empty set.
func (s TaskSet) Max() int32 {
	m := int32(-1)
	for _, r := range s {
		m = max(m, r.Lo+(r.Hi-r.Lo)/r.Step*r.Step)
	}
	return m
}

// MinusSet gives the set without the tasks of o, in as few ranges as one pass over both finds: what is left of 0-9
// without 0-9:2 is 1-9:2.
func (s TaskSet) MinusSet(o TaskSet) TaskSet {
	var out TaskSet
	i := 0
	for _, r := range s {
		for ; i < len(o) && o[i].Hi < r.Lo; i++ { // it ends before this range, so before all that follow
		}
		from := int64(r.Lo) // the first member of r that may be left
		for k := i; k < len(o) && o[k].Lo <= r.Hi; k++ {
			o[k].within(r, func(task int32) {
				if int64(task) > from {
					out = out.joined(norm(Range{int32(from), task - r.Step, r.Step}))
				}
				from = int64(task) + int64(r.Step)
			})
		}
		if from <= int64(r.Hi) {
			out = out.joined(norm(Range{int32(from), r.Hi, r.Step}))
		}
	}
	return out
}

// within calls f for the tasks that are in both ranges, in ascending order.
func (r Range) within(o Range, f func(task int32)) {
	from := int64(r.Lo)
	if o.Lo > r.Lo {
		from += (int64(o.Lo) - from + int64(r.Step) - 1) / int64(r.Step) * int64(r.Step)
	}
	for i := from; i <= int64(min(r.Hi, o.Hi)); i += int64(r.Step) {
		if o.has(int32(i)) {
			f(int32(i))
		}
	}
}

// joined adds a range above all others: to the last one if it goes on in its steps, or with the last two tasks if all
// three are as far from each other.
func (s TaskSet) joined(r Range) TaskSet {
	n := len(s)
	if n == 0 {
		return append(s, r)
	}
	last := s[n-1]
	gap := r.Lo - last.Hi
	single := r.Lo == r.Hi
	switch {
	case last.Lo < last.Hi && gap == last.Step && (single || r.Step == gap):
		s[n-1].Hi = r.Hi
	case last.Lo == last.Hi && !single && r.Step == gap:
		s[n-1] = Range{last.Lo, r.Hi, gap}
	case last.Lo == last.Hi && single && gap == 1:
		s[n-1] = Range{last.Lo, r.Hi, 1}
	case n > 1 && last.Lo == last.Hi && single && s[n-2].Lo == s[n-2].Hi && last.Lo-s[n-2].Hi == gap:
		s[n-2].Hi, s[n-2].Step = r.Hi, gap
		return s[:n-1]
	default:
		return append(s, r)
	}
	return s
}

// Valid reports whether s is what the methods expect: ascending, disjoint ranges of indices >= 0 with a step >= 1. A
// set from a connection or a file is checked with it once.
func (s TaskSet) Valid() bool {
	last := int32(-1)
	for _, r := range s {
		if r.Step < 1 || r.Lo <= last || r.Hi < r.Lo {
			return false
		}
		last = r.Hi
	}
	return true
}

// norm makes Hi a member and a single task's step 1.
func norm(r Range) Range {
	r.Hi = r.Lo + (r.Hi-r.Lo)/r.Step*r.Step
	if r.Hi == r.Lo {
		r.Step = 1
	}
	return r
}

// Each calls f for the tasks in ascending order of range until f returns false.
func (s TaskSet) Each(f func(i int32) bool) {
	for _, r := range s {
		for i := int64(r.Lo); i <= int64(r.Hi); i += int64(r.Step) { // int64, because the last step may overflow int32
			if !f(int32(i)) {
				return
			}
		}
	}
}

// String gives the set as Slurm prints it: "0-9,20-30:2,45".
func (s TaskSet) String() string {
	var b []byte
	for i, r := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r.Lo), 10)
		if r.Hi > r.Lo {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(r.Hi), 10)
			if r.Step > 1 {
				b = append(b, ':')
				b = strconv.AppendInt(b, int64(r.Step), 10)
			}
		}
	}
	return string(b)
}

// ErrTaskSet is what every error of ParseTaskSet wraps.
var ErrTaskSet = errors.New("invalid array specification")

// ParseTaskSet reads an --array value such as "0-15", "1,3,5-7", "0-30:4" or "0-99%8". It gives the tasks and the
// limit on how many may run at once (0: none). Indices must be below maxSize.
func ParseTaskSet(text string, maxSize int32) (TaskSet, int32, error) {
	bad := func(format string, a ...any) (TaskSet, int32, error) {
		return nil, 0, fmt.Errorf("%w: '%s': %s", ErrTaskSet, clip(text), fmt.Sprintf(format, a...))
	}
	spec, throttle := unbracket(text), int32(0)
	if before, after, found := strings.Cut(spec, "%"); found {
		n, err := parseIndex(after)
		if err != nil {
			return bad("after %% stands how many tasks may run at once, 0 for any number; write for example 0-15%%4")
		}
		spec, throttle = unbracket(before), n
	}
	if spec == "" {
		return bad("no task index; write for example 0-15, 1,3,5 or 0-30:5")
	}
	if strings.Count(spec, ",") >= MaxTaskRanges {
		return bad("more than %d ranges", MaxTaskRanges)
	}
	var ranges []Range
	for part := range strings.SplitSeq(spec, ",") {
		r, err := parseRange(part)
		if err != nil {
			return bad("%s", err.Error())
		}
		if r.Hi >= maxSize {
			return bad("index %d is not below MaxArraySize (%d)", r.Hi, maxSize)
		}
		ranges = append(ranges, r)
	}
	set, err := order(ranges)
	if err != nil {
		return bad("%s", err.Error())
	}
	if len(set) > MaxTaskRanges {
		return bad("more than %d ranges", MaxTaskRanges)
	}
	return set, throttle, nil
}

// unbracket removes the brackets that commands show around tasks: [0-15] or [0-15%4].
func unbracket(text string) string {
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return text[1 : len(text)-1]
	}
	return text
}

// clip shortens a text for an error message.
func clip(text string) string {
	const most = 80 // bytes
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}

// parseIndex reads digits and nothing else.
func parseIndex(t string) (int32, error) {
	n, err := strconv.ParseUint(t, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("'%s' is not a task index (a whole number from 0)", clip(t))
	}
	return int32(n), nil
}

func parseRange(part string) (Range, error) {
	span, stepText, hasStep := strings.Cut(part, ":")
	loText, hiText, hasHi := strings.Cut(span, "-")
	lo, err := parseIndex(loText)
	if err != nil {
		return Range{}, err
	}
	r := Range{lo, lo, 1}
	if hasHi {
		if r.Hi, err = parseIndex(hiText); err != nil {
			return Range{}, err
		}
		if r.Hi < r.Lo {
			return Range{}, fmt.Errorf("the range %s runs backwards", span)
		}
	}
	if hasStep {
		if !hasHi {
			return Range{}, fmt.Errorf("the step in %s needs a range before it, as in 0-30:5", part)
		}
		if r.Step, err = parseIndex(stepText); err != nil || r.Step == 0 {
			return Range{}, fmt.Errorf("the step '%s' is not a whole number from 1", stepText)
		}
	}
	return norm(r), nil
}

// maxMerge bounds the work for unsorted or overlapping ranges, in tasks.
const maxMerge = 1 << 20

// order makes ranges ascending and disjoint; an index given twice is one task. It leaves ranges that are already in
// order unchanged.
func order(ranges []Range) (TaskSet, error) {
	ordered, total := true, 0
	for i, r := range ranges {
		ordered = ordered && (i == 0 || ranges[i-1].Hi < r.Lo)
		total += r.count()
	}
	if ordered {
		return TaskSet(ranges), nil
	}
	if total > maxMerge {
		return nil, fmt.Errorf("ranges out of order or overlapping with more than %d tasks; write each index once, in "+
			"ascending order", maxMerge)
	}
	all := make([]int32, 0, total)
	TaskSet(ranges).Each(func(i int32) bool {
		all = append(all, i)
		return true
	})
	slices.Sort(all)
	return ofSorted(slices.Compact(all)), nil
}

// ofSorted gives ascending, distinct indices as ranges: at least three in a row with the same distance make a range
// with a step, two neighbours one without.
func ofSorted(all []int32) TaskSet {
	var out TaskSet
	for i := 0; i < len(all); {
		end := i + 1
		if end < len(all) {
			step := all[end] - all[i]
			for end+1 < len(all) && all[end+1]-all[end] == step {
				end++
			}
			if end-i >= 2 || step == 1 {
				out = append(out, Range{all[i], all[end], step})
				i = end + 1
				continue
			}
		}
		out = append(out, Range{all[i], all[i], 1})
		i++
	}
	return out
}

// TaskSetOf gives ascending, distinct indices as a set.
func TaskSetOf(tasks []int32) TaskSet { return ofSorted(tasks) }

// JobRef names a job, a task of an array, several tasks, a whole array (Task == NoTask, no Tasks), a heterogeneous job,
// or a component of one.
type JobRef struct {
	Job   JobID
	Task  int32
	Tasks TaskSet
	Het   int32 // the component Het-1 of the heterogeneous job Job; 0: all of it
}

func (x *JobRef) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, MaxRanges)
	wire.Int(c, &x.Het)
}

// Ref names exactly one job's record as users do: a task, the tasks that have not started, a component. Jobs of an
// array must not be named by number: the record that keeps the array's is one of many.
func (j *Job) Ref() JobRef {
	switch {
	case j.IsArray():
		return JobRef{Job: j.ArrayID, Task: NoTask, Tasks: j.Tasks}
	case j.ArrayID != 0 && j.Task != NoTask:
		return JobRef{Job: j.ArrayID, Task: j.Task}
	case j.Het != nil:
		return JobRef{Job: j.Het.ID, Task: NoTask, Het: 1 + j.Het.Offset}
	}
	return JobRef{Job: j.ID, Task: NoTask}
}
