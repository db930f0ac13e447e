package hostlist

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of an index list.
const (
	// MaxIndex is the largest index: the largest that Slurm's MaxArraySize allows.
	MaxIndex = 4_000_000
	// MaxIndexes is the number of indexes that one list may stand for.
	MaxIndexes = 1 << 20
)

// ParseIndexes reads a list such as "0-3,7" (GPU indexes, cores, array tasks
// without a step) and returns its indexes ascending, each once. Blanks around
// numbers are allowed; an empty list has no indexes. Errors are *Error.
func ParseIndexes(list string) ([]int, error) {
	if len(list) > MaxExprBytes {
		return nil, &Error{list, MaxExprBytes, fmt.Sprintf("the list is longer than %d bytes", MaxExprBytes)}
	}
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var indexes []int
	pos := 0
	for item := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		lo, err := parseIndex(list, from, pos)
		if err != nil {
			return nil, err
		}
		hi := lo
		if isRange {
			if hi, err = parseIndex(list, to, pos+len(from)+1); err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, &Error{list, pos, fmt.Sprintf("range %d-%d runs backwards; write %d-%d", lo, hi, hi, lo)}
			}
		}
		if len(indexes)+hi-lo+1 > MaxIndexes {
			return nil, &Error{list, pos, fmt.Sprintf("the list stands for more than %d indexes", MaxIndexes)}
		}
		for v := lo; v <= hi; v++ {
			indexes = append(indexes, v)
		}
		pos += len(item) + 1
	}
	slices.Sort(indexes)
	return slices.Compact(indexes), nil
}

func parseIndex(list, text string, pos int) (int, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return 0, &Error{list, pos, "a number is missing; write a list such as 0-3,7"}
	}
	v := 0
	for _, c := range []byte(trimmed) {
		if c < '0' || c > '9' {
			return 0, &Error{list, pos, fmt.Sprintf("%q is not a number; write a list such as 0-3,7", shorten(trimmed))}
		}
		if v = v*10 + int(c-'0'); v > MaxIndex {
			return 0, &Error{list, pos, fmt.Sprintf("%s is above %d", shorten(trimmed), MaxIndex)}
		}
	}
	return v, nil
}

// FormatIndexes writes indexes as a list such as "0-3,7", ascending and each
// once. The argument is left as it is.
func FormatIndexes(indexes []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(indexes)))
	var b []byte
	for i := 0; i < len(sorted); {
		last := i
		for last+1 < len(sorted) && sorted[last+1] == sorted[last]+1 {
			last++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(sorted[i]), 10)
		if last > i {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(sorted[last]), 10)
		}
		i = last + 1
	}
	return string(b)
}
