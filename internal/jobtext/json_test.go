package jobtext

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
		b.WriteString(name + "\n")
		for _, l := range lines {
			b.WriteString("  " + l + "\n")
		}
	}
	add("job", slurmjson.Describe(JobJSON()))
	add("record", slurmjson.Describe(RecordJSON()))
	add("node", slurmjson.Describe(NodeJSON()))
	add("sinfo", slurmjson.Describe(SinfoJSON()))
	add("partition", slurmjson.Describe(PartitionJSON()))
	add("reservation", slurmjson.Describe(ReservationJSON()))
	add("gpu", slurmjson.Describe(GPUJSON()))
	add("why", slurmjson.Describe(WhyJSON()))
	golden.Compare(t, "testdata/json.txt", []byte(b.String()))
}
