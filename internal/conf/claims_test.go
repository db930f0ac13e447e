package conf

import (
	"strings"
	"testing"
)

// TestNotesPointToWhatIsThere: a note that refers to another key names one that has an effect.
func TestNotesPointToWhatIsThere(t *testing.T) {
	table := mainSettings()
	check := func(of, note string) {
		for _, w := range strings.FieldsFunc(note, func(r rune) bool { return strings.ContainsRune(" ,;:()", r) }) {
			key, _, _ := strings.Cut(w, "=")
			s := table.byName[strings.ToLower(key)]
			if s == nil || len(key) < 6 || strings.ToLower(key) == key { // a plain word
				continue
			}
			if s.status != Effective {
				t.Errorf("%s: %q names %s, which is of status %d itself", of, note, s.name, s.status)
			}
		}
	}
	for i := range table.list {
		check(table.list[i].name, table.list[i].note)
		check(table.list[i].name, table.list[i].instead)
	}
	for _, u := range unusedLineKeys {
		check(u.name, u.instead)
	}
	for _, s := range schedParams() {
		check(s.name, s.note)
	}
}
