package jobtext

import (
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: the members of --json that programs can rely on. A removed or changed line breaks programs.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("job", JobJSON()) +
		slurmjson.Described("record", RecordJSON()) +
		slurmjson.Described("node", NodeJSON()) +
		slurmjson.Described("sinfo", SinfoJSON()) +
		slurmjson.Described("partition", PartitionJSON()) +
		slurmjson.Described("reservation", ReservationJSON()) +
		slurmjson.Described("gpu", GPUJSON()) +
		slurmjson.Described("why", WhyJSON())
	golden.Compare(t, "testdata/json.txt", []byte(text))
}
