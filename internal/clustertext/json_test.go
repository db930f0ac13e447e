package clustertext

import (
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: what programs can rely on in the objects of --json. A line that goes or changes breaks them.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("ping", PingJSON()) +
		slurmjson.Described("license", LicenseJSON()) +
		slurmjson.Described("share", ShareJSON()) +
		slurmjson.Described("statistics", StatisticsJSON())
	golden.Compare(t, "testdata/json.txt", []byte(text))
}
