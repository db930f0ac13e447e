package conf

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// nearest returns the word that was probably meant by v, or "". The distance is Levenshtein's, with upper and lower
// case alike; a third of the letters may be wrong.
func nearest(v string, words []string) string {
	if len(v) > 64 {
		return ""
	}
	best, bestDistance := "", max(len(v)/3, 1)+1
	for _, w := range words {
		if diff := len(w) - len(v); diff >= bestDistance || -diff >= bestDistance {
			continue
		}
		if d := distance(strings.ToLower(v), strings.ToLower(w)); d < bestDistance {
			best, bestDistance = w, d
		}
	}
	return best
}

// distance is the number of letters to insert, drop or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

func byName(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

func sortKeys(keys []KeyInfo) {
	slices.SortFunc(keys, func(a, b KeyInfo) int { return byName(a.Name, b.Name) })
}

func sortKVs(kvs []model.KV) {
	slices.SortFunc(kvs, func(a, b model.KV) int { return byName(a.Key, b.Key) })
}
