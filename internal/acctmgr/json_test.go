package acctmgr

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
	add("account", slurmjson.Describe(accountJSON()))
	add("user", slurmjson.Describe(userJSON()))
	add("association", slurmjson.Describe(assocJSON()))
	add("qos", slurmjson.Describe(qosJSON()))
	add("tres", slurmjson.Describe(tresJSON()))
	add("cluster", slurmjson.Describe(clusterJSON()))
	golden.Compare(t, "testdata/jsonfields.golden", []byte(b.String()))
}
