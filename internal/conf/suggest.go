package conf

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/suggest"
)

// nearest returns the word that v was probably meant to be, or "".
func nearest(v string, words []string) string {
	near := suggest.Nearest(v, words)
	if len(near) == 0 {
		return ""
	}
	return near[0]
}

func byName(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

func sortKVs(kvs []model.KV) {
	slices.SortFunc(kvs, func(a, b model.KV) int { return byName(a.Key, b.Key) })
}
