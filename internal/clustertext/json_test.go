package clustertext

import (
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: what programs can rely on in the objects of --json. A line that goes or changes breaks them.
func TestJSONFields(t *testing.T) {
	var b strings.Builder
	add := func(name string, lines []string) {
		b.WriteString(name + "\n  " + strings.Join(lines, "\n  ") + "\n")
	}
	add("ping", slurmjson.Describe(PingJSON()))
	add("license", slurmjson.Describe(LicenseJSON()))
	add("share", slurmjson.Describe(ShareJSON()))
	add("statistics", slurmjson.Describe(StatisticsJSON()))
	golden.Compare(t, "testdata/json.txt", []byte(b.String()))
}
