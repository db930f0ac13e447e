package acctmgr

import (
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: what programs can rely on in the objects of --json. A line that goes or changes breaks them.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("account", accountJSON()) +
		slurmjson.Described("user", userJSON()) +
		slurmjson.Described("association", assocJSON()) +
		slurmjson.Described("qos", qosJSON()) +
		slurmjson.Described("tres", tresJSON()) +
		slurmjson.Described("cluster", clusterJSON())
	golden.Compare(t, "testdata/jsonfields.golden", []byte(text))
}
