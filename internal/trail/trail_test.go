package trail

import (
	"os"
	"strings"
	"testing"
)

// TestManual holds the table of gctld(8) to Events.
func TestManual(t *testing.T) {
	page, err := os.ReadFile("../../man/gctld.8")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, e := range Events() {
		kept := ""
		if e.Kept {
			kept = " (kept)"
		}
		want.WriteString(".TP\n\\fB" + e.Name + "\\fR\n" + strings.ToUpper(e.Means[:1]) + e.Means[1:] + kept + ".\n")
	}
	_, text, _ := strings.Cut(string(page), ".SH EVENTS\n")
	_, text, _ = strings.Cut(text, ".TP\n")
	text, _, _ = strings.Cut(".TP\n"+text, ".SH ")
	if text != want.String() {
		t.Errorf("the table of events in man/gctld.8 should be:\n%s", want.String())
	}
}
