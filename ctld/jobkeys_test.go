package ctld

import (
	"slices"
	"strings"
	"testing"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// TestJobKeys: the words that completion offers for gcontrol update job are those that it can set.
func TestJobKeys(t *testing.T) {
	for _, key := range ask.JobKeys {
		known := false
		for _, f := range editable {
			known = known || slices.Contains(f.words, strings.ToLower(key))
		}
		if needed, err := editNeeds(&model.Spec{}, key, ""); !known && !needed && err == nil {
			t.Errorf("%s is offered, and can't be set", key)
		}
	}
	for _, f := range editable {
		for name := range strings.SplitSeq(f.shown, ", ") {
			if name, _, _ = strings.Cut(name, " "); !slices.Contains(ask.JobKeys, name) {
				t.Errorf("%s can be set, and is not in ask.JobKeys", name)
			}
		}
	}
}
