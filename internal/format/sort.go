package format

import (
	"fmt"
	"strings"
)

// SortKey is one field of --sort.
type SortKey struct {
	Letter byte
	Down   bool
}

// ParseSort reads --sort: letters of -o, each with - before it for descending or + for ascending; commas between them
// are only for the eye, as in Slurm.
func ParseSort(text, letters string) ([]SortKey, error) {
	var keys []SortKey
	for w := range strings.SplitSeq(text, ",") {
		w = strings.TrimSpace(w)
		if strings.TrimLeft(w, "+-#") == "cluster" {
			continue // there is one
		}
		down := false
		for i := range len(w) {
			switch c := w[i]; {
			case c == '-' || c == '+':
				down = c == '-'
			case c == '#':
			case strings.IndexByte(letters, c) >= 0:
				keys = append(keys, SortKey{Letter: c, Down: down})
				down = false
			default:
				return nil, fmt.Errorf("Invalid sort specification: %s", w)
			}
		}
		if strings.HasSuffix(w, "-") || strings.HasSuffix(w, "+") {
			return nil, fmt.Errorf("Invalid sort specification: %s", w)
		}
	}
	return keys, nil
}

// SortValue is what a row has for one key: a number, or a text.
type SortValue struct {
	N int64
	S string
}
