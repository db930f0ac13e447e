package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Range is the task indices Lo, Lo+Step, ... up to and including Hi.
//
//gbatch:codec
type Range struct {
	Lo, Hi, Step int32
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
	for _, r := range s {
		if r.has(i) {
			return true
		}
	}
	return false
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

// Without gives the set without task i.
func (s TaskSet) Without(i int32) TaskSet {
	out := make(TaskSet, 0, len(s)+1)
	for _, r := range s {
		if !r.has(i) {
			out = append(out, r)
			continue
		}
		if i > r.Lo {
			out = append(out, norm(Range{r.Lo, i - r.Step, r.Step}))
		}
		if i+r.Step <= r.Hi {
			out = append(out, norm(Range{i + r.Step, r.Hi, r.Step}))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
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
		for i := r.Lo; i <= r.Hi; i += r.Step {
			if !f(i) {
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
		return nil, 0, fmt.Errorf("%w: '%s': %s", ErrTaskSet, text, fmt.Sprintf(format, a...))
	}
	spec, throttle := text, int32(0)
	if at := strings.IndexByte(text, '%'); at >= 0 {
		n, err := strconv.ParseInt(text[at+1:], 10, 32)
		if err != nil || n < 1 {
			return bad("after %% stands how many tasks may run at once, a number from 1; write for example 0-15%%4")
		}
		spec, throttle = text[:at], int32(n)
	}
	spec = strings.TrimSuffix(strings.TrimPrefix(spec, "["), "]")
	if spec == "" {
		return bad("no task index; write for example 0-15, 1,3,5 or 0-30:5")
	}
	var set TaskSet
	for _, part := range strings.Split(spec, ",") {
		r, err := parseRange(part)
		if err != nil {
			return bad("%s", err.Error())
		}
		if r.Hi >= maxSize {
			return bad("index %d is not below MaxArraySize (%d)", r.Hi, maxSize)
		}
		if set, err = set.insert(r); err != nil {
			return bad("%s", err.Error())
		}
		if len(set) > MaxTaskRanges {
			return bad("more than %d ranges", MaxTaskRanges)
		}
	}
	return set, throttle, nil
}

func parseRange(part string) (Range, error) {
	span, stepText, hasStep := strings.Cut(part, ":")
	loText, hiText, hasHi := strings.Cut(span, "-")
	num := func(t string) (int32, error) {
		n, err := strconv.ParseInt(t, 10, 32)
		if err != nil || n < 0 || t[0] == '+' {
			return 0, fmt.Errorf("'%s' is not a task index (a whole number from 0)", t)
		}
		return int32(n), nil
	}
	lo, err := num(loText)
	if err != nil {
		return Range{}, err
	}
	r := Range{lo, lo, 1}
	if hasHi {
		if r.Hi, err = num(hiText); err != nil {
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
		if r.Step, err = num(stepText); err != nil || r.Step == 0 {
			return Range{}, fmt.Errorf("the step '%s' is not a whole number from 1", stepText)
		}
	}
	return norm(r), nil
}

// insert adds r, keeping ranges ascending and disjoint; an index given twice is one task.
func (s TaskSet) insert(r Range) (TaskSet, error) {
	if n := len(s); n == 0 || s[n-1].Hi < r.Lo {
		return append(s, r), nil
	}
	const maxMerge = 1 << 20 // a bound on the work that overlapping ranges may cause
	if s.Count()+r.count() > maxMerge {
		return nil, fmt.Errorf("overlapping ranges with more than %d tasks; write each index once", maxMerge)
	}
	var b Bits
	mark := func(i int32) bool {
		for int(i)>>6 >= len(b) {
			b = append(b, make(Bits, len(b)+1)...)
		}
		b[i>>6] |= 1 << (uint(i) & 63)
		return true
	}
	s.Each(mark)
	TaskSet{r}.Each(mark)
	var out TaskSet
	b.Each(func(i int) bool {
		t := int32(i)
		if n := len(out); n > 0 {
			last := &out[n-1]
			switch {
			case last.Lo == last.Hi:
				last.Hi, last.Step = t, t-last.Lo
				return true
			case t == last.Hi+last.Step:
				last.Hi = t
				return true
			case last.Hi-last.Lo == last.Step && last.Step > 1: // two tasks make no progression: give the second back
				second := last.Hi
				last.Hi, last.Step = last.Lo, 1
				out = append(out, Range{second, t, t - second})
				return true
			}
		}
		out = append(out, Range{t, t, 1})
		return true
	})
	return out, nil
}
