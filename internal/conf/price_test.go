package conf

import (
	"strings"
	"testing"
	"time"

	"gbatch/internal/price"
)

// The keys beside the Price lines have a From as these do; without one a value holds always.
func TestPriceTerms(t *testing.T) {
	c := mustLoad(t, `Price=cpu=1
PriceMinimumTime=60
PriceDiscounts=100:0.9 From=always
PriceMinimumTime=120 PriceDiscounts=10:0.5 From=2027-01-01
PriceDiscountBy=month From=2028-01-01T12:00:00`)
	at := func(text string) int64 {
		x, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return x.Unix()
	}
	p := &c.Price
	if p.MinS != 60 || len(p.Discounts) != 1 || p.ByPeriod || len(p.Terms) != 3 ||
		p.Terms[0].Of != price.TermMinimum || p.Terms[0].MinS != 120 || p.Terms[0].From != at("2027-01-01T00:00:00") ||
		p.Terms[1].Of != price.TermDiscounts || p.Terms[1].Discounts[0].Keep != 500_000 ||
		p.Terms[2].Of != price.TermBy || !p.Terms[2].ByPeriod || p.Terms[2].From != at("2028-01-01T12:00:00") {
		t.Errorf("%+v", p)
	}
	for _, kv := range c.KeyValues() {
		if want := map[string]string{price.KeyMinimum: "60 sec; 120 sec From=2027-01-01T00:00:00",
			price.KeyDiscountBy: "session; month From=2028-01-01T12:00:00"}[kv.Key]; want != "" && kv.Value != want {
			t.Errorf("%s is shown as %s", kv.Key, kv.Value)
		}
	}
	for text, want := range map[string]string{
		"PriceMinimumTime=60 From=soon":                                          `PriceMinimumTime: From: "soon" is no date`,
		"PriceMinimumTime=x From=2027-01-01":                                     "PriceMinimumTime: ",
		"PriceMinimumTime=6 From=2027-01-01\nPriceMinimumTime=7 From=2027-01-01": "set twice from the same moment on",
		"PriceDiscounts=1.5:0.9":                                                 "are not a whole number",
		"PriceCurrency=EUR From=2027-01-01":                                      "From",
		"GpuCacheTagTTL=60":                                                      "did you mean GpuCacheTagTime?",
	} {
		if _, problems := LoadFS(files(text), MainFile); !strings.Contains(lines(problems), want) {
			t.Errorf("%s: %s", text, lines(problems))
		}
	}
}

// A configuration whose nodes share GPUs that have a price says what their shares should cost.
func TestSharePrices(t *testing.T) {
	const nodes = "GresTypes=gpu,shard,mps\nNodeName=g1 CPUs=1 Gres=gpu:a100:2,shard:8,mps:200\n" +
		"PartitionName=shared Nodes=g1\n"
	for prices, want := range map[string][2]bool{"Price=gres/gpu=2.0": {true, true},
		"Price=gres/gpu:a100=2.0": {true, true}, "Price=gres/gpu=2.0,gres/shard=0.5": {false, true}, "Price=cpu=1": {}} {
		_, problems := LoadFS(files(nodes+prices), MainFile)
		text := lines(problems)
		if got := strings.Contains(text, "here gres/shard=0.50"); got != want[0] {
			t.Errorf("%s: %s", prices, text)
		}
		if got := strings.Contains(text, "here gres/mps=0.02"); got != want[1] {
			t.Errorf("%s: %s", prices, text)
		}
	}
}

// What an error advises is taken.
func TestReserveAdvice(t *testing.T) {
	_, problems := LoadFS(files("NodeName=n1 CPUs=1\nPartitionName=p Nodes=n1 ReservePercent=100"), MainFile)
	text := lines(problems)
	if !strings.Contains(text, "from 0 to 99") || strings.Contains(text, "such as 100") {
		t.Errorf("%s", text)
	}
}

// Under an order of its own gbatch names none of Slurm's.
func TestPriorityTypeShown(t *testing.T) {
	for text, want := range map[string]string{"": "(null)", "PriorityType=priority/basic": "priority/basic",
		"PriorityWeightAge=5": "priority/multifactor"} {
		for _, kv := range mustLoad(t, text).KeyValues() {
			if kv.Key == "PriorityType" && kv.Value != want {
				t.Errorf("%q: PriorityType is %s, want %s", text, kv.Value, want)
			}
		}
	}
}
