package clustertext

import (
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: the members of --json that programs can rely on. A removed or changed line breaks programs.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("ping", PingJSON()) +
		slurmjson.Described("controller", ControllersJSON()) +
		slurmjson.Described("license", LicenseJSON()) +
		slurmjson.Described("pool", PoolJSON()) +
		slurmjson.Described("balance", BalanceJSON()) +
		slurmjson.Described("invoice", InvoiceJSON()) +
		slurmjson.Described("cost", CostJSON()) +
		slurmjson.Described("share", ShareJSON()) +
		slurmjson.Described("statistics", StatisticsJSON())
	golden.Compare(t, "testdata/json.txt", []byte(text))
}
