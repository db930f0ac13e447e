package clustertext

import (
	"bytes"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/price"
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

// TestHoursOfInvoice: hours are of the unit that the price is for, so that hours by unit price is the subtotal.
func TestHoursOfInvoice(t *testing.T) {
	bills := []price.Bill{{Account: "physics", Rate: price.Rate{TRES: "mem", Micro: 500_000, Per: 1024},
		Used: 1024 * 2 * 3600, Net: price.One}}
	text := func(write func(w *slurmjson.Writer)) string {
		var b bytes.Buffer
		w := slurmjson.New(&b, "v0.0.44")
		write(w)
		w.Flush(true)
		return strings.Join(strings.Fields(b.String()), "")
	}
	got := text(func(w *slurmjson.Writer) {
		slurmjson.Write(w, "", InvoiceJSON(), &price.Invoice{Account: "physics", Bills: bills})
	})
	for _, want := range []string{`"hours":2.00,`, `"unit_price":0.50,`, `"subtotal":1.00,`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	got = text(func(w *slurmjson.Writer) { slurmjson.Write(w, "", CostJSON(), &CostOf{Bills: bills}) })
	if want := `"total_hours":2.00,`; !strings.Contains(got, want) {
		t.Errorf("no %s in %s", want, got)
	}
}
