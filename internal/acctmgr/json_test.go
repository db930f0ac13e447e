package acctmgr

import (
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: the members of --json that programs can rely on. A removed or changed line breaks programs.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("account", accountJSON()) +
		slurmjson.Described("user", userJSON()) +
		slurmjson.Described("association", assocJSON()) +
		slurmjson.Described("qos", qosJSON()) +
		slurmjson.Described("tres", tresJSON()) +
		slurmjson.Described("cluster", clusterJSON())
	golden.Compare(t, "testdata/jsonfields.golden", []byte(text))
}
