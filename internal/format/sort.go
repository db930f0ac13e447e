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

// ParseSort reads --sort: letters of -o with commas between, each with + or - before it.
func ParseSort(text, letters string) ([]SortKey, error) {
	var keys []SortKey
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w == "" {
			continue
		}
		name, down := strings.CutPrefix(w, "-")
		name = strings.TrimPrefix(strings.TrimPrefix(name, "+"), "#")
		if len(name) != 1 || !strings.Contains(letters, name) {
			if name == "cluster" {
				continue // there is one
			}
			return nil, fmt.Errorf("Invalid sort specification: %s", w)
		}
		keys = append(keys, SortKey{Letter: name[0], Down: down})
	}
	return keys, nil
}

// SortValue is what a row has for one key: a number, or a text.
type SortValue struct {
	N int64
	S string
}
