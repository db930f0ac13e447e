package price

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const gpu = "gres/gpu"

// worked is the table of the worked figures: 2.0 an hour and GPU, 60 s, three discounts.
func worked() *Table {
	return &Table{Lines: []Line{{Rates: []Rate{{gpu, 2_000_000, 1}}}}, MinS: 60,
		Discounts: []Discount{{100, 900_000}, {500, 800_000}, {1000, 700_000}}}
}

func charge(t *Table, units, seconds int64) Money {
	return t.total(&Session{Start: 1000, Seconds: seconds, Has: []Amount{{gpu, units}}})
}

func TestWorkedFigures(t *testing.T) {
	table := worked()
	for _, x := range []struct {
		units, seconds int64
		exact, shown   string
	}{
		{4, 2, "0.133333", "0.13"},
		{8, 24 * 3600, "345.60", "345.60"},
		{8, 7 * 24 * 3600, "1881.60", "1881.60"},
		{1, 60, "0.033333", "0.03"},
		{1, 61, "0.033889", "0.03"},
		{1, 100*3600 - 1, "199.999444", "200.00"}, // one second below a threshold
		{1, 100 * 3600, "180.00", "180.00"},
		{0, 3600, "0.00", "0.00"},
	} {
		got := charge(table, x.units, x.seconds)
		if got.Exact() != x.exact || got.String() != x.shown {
			t.Errorf("%d GPUs for %d s: %s shown as %s, want %s and %s", x.units, x.seconds, got.Exact(), got, x.exact, x.shown)
		}
	}
	w := &Wallet{Prepaid: true, Credit: 1000 * One}
	if got := w.Pay(charge(table, 4, 2), 0).Balance(); got.String() != "999.87" {
		t.Errorf("the balance is %s (%s)", got, got.Exact())
	}
	if got := table.total(&Session{Seconds: 3600, Has: []Amount{{"gres/tpu", 4}}}); got != 0 {
		t.Errorf("what has no price costs %s", got)
	}
}

// By period, three sessions of 64 GPU-hours each reach the first threshold together, and none does by itself.
func TestPeriod(t *testing.T) {
	table := worked()
	three := func() (Money, []Bill) {
		sums := NewSums(table)
		var months []Month
		owed, more := Money(0), Money(0)
		for i := range 3 {
			s := &Session{Start: int64(i) * 86400, Seconds: 8 * 3600, Has: []Amount{{gpu, 8}}}
			sums.Add("physics", "", s)
			months, more = table.Change(months, nil, s)
			owed = owed.Add(more)
		}
		return owed, sums.Bills()
	}
	for _, x := range []struct {
		period bool
		want   string
	}{{false, "384.00"}, {true, "345.60"}} {
		table.ByPeriod = x.period
		owed, bills := three()
		if len(bills) != 1 || bills[0].Net.Exact() != x.want || owed != bills[0].Net || bills[0].Sessions != 3 {
			t.Errorf("by period %v: %s owed, bills %+v, want %s", x.period, owed, bills, x.want)
		}
	}
}

// TestSizes: the sizes of a run cost what the run would, with one minimum, one price and the discounts of its hours.
func TestSizes(t *testing.T) {
	table := &Table{MinS: 60, Discounts: []Discount{{Hours: 24, Keep: 900_000}},
		Lines: []Line{{Rates: []Rate{{gpu, 2_000_000, 1}}}, {From: 5000, Rates: []Rate{{gpu, 9_000_000, 1}}}}}
	total := func(list ...*Session) (sum Money, n int64) {
		sums := NewSums(table)
		for _, s := range list {
			sums.Add("physics", "", s)
			sum = sum.Add(table.total(s))
		}
		bills := sums.Bills()
		if len(bills) != 1 || bills[0].Net != sum {
			t.Errorf("%s owed, and bills %+v", sum.Exact(), bills)
		}
		return sum, bills[0].Sessions
	}
	size := func(start, seconds int64, last bool) *Session {
		return &Session{Start: start, Seconds: seconds, Has: []Amount{{gpu, 2}}, Since: 1, Before: start - 1,
			Earlier: []Amount{{gpu, 2 * (start - 1)}}, Open: !last}
	}
	first := func(seconds int64) *Session {
		return &Session{Start: 1, Seconds: seconds, Has: []Amount{{gpu, 2}}, Open: true}
	}
	whole := func(seconds int64) *Session { return &Session{Start: 1, Seconds: seconds, Has: []Amount{{gpu, 2}}} }
	for _, seconds := range []int64{1, 30, 100, 20_000, 100_000} {
		want, _ := total(whole(seconds))
		got, n := total(first(seconds/3), size(1+seconds/3, seconds/3, false),
			size(1+seconds/3*2, seconds-seconds/3*2, true))
		if d := got.Add(-want); d > 3 || d < -3 || n != 1 {
			t.Errorf("%d seconds cost %s in %d sessions, want %s", seconds, got.Exact(), n, want.Exact())
		}
	}
}

func TestPriceOfItsTime(t *testing.T) {
	table := &Table{Lines: []Line{
		{Rates: []Rate{{gpu, 1, 1}, {"cpu", 5, 1}}},
		{From: 100, Rates: []Rate{{gpu, 2, 1}}},
		{From: 200, Partition: "big", Rates: []Rate{{gpu, 3, 1}}},
		{From: 100, Rates: []Rate{{"gres/gpu:h100", 4, 1}}},
	}}
	for _, x := range []struct {
		tres, part string
		at         int64
		want       int64
		pool       string
	}{
		{gpu, "", 0, 1, ""}, {gpu, "", 99, 1, ""}, {gpu, "", 100, 2, ""}, {gpu, "big", 199, 2, ""},
		{gpu, "big", 200, 3, "big"}, {gpu, "small", 200, 2, ""}, {"cpu", "big", 500, 5, ""},
		{"GRES/GPU:H100", "", 100, 4, ""}, {"gres/gpu:h100", "", 50, 1, ""}, {"gres/gpu:a100", "", 100, 2, ""},
		{"gres/gpu:h100", "big", 200, 3, "big"}, {"mem", "", 100, 0, ""},
	} {
		got, pool, _ := table.find(x.tres, x.part, x.at)
		if got.Micro != x.want || pool != x.pool {
			t.Errorf("%s in %q at %d costs %d of %q, want %d of %q", x.tres, x.part, x.at, got.Micro, pool, x.want, x.pool)
		}
	}
}

func TestMoneyText(t *testing.T) {
	for in, want := range map[string]string{"2": "2.00", "0.05": "0.05", "-12.5": "-12.50", ".5": "0.50",
		"0.000001": "0.000001", "1000000000000": "1000000000000.00", "007": "7.00"} {
		m, err := Parse(in)
		if err != nil || m.Exact() != want {
			t.Errorf("%s is read as %s (%v), want %s", in, m.Exact(), err, want)
		}
		if back, err := Parse(m.Exact()); err != nil || back != m {
			t.Errorf("%s becomes %s (%v)", m.Exact(), back, err)
		}
	}
	for _, in := range []string{"", ".", "1.", "-", "1,5", "1e3", "0.0000001", "1000000000001",
		"99999999999999999999", "1 ", "+1", "--1"} {
		if m, err := Parse(in); err == nil {
			t.Errorf("%q is read as %s", in, m)
		}
	}
	for m, want := range map[Money]string{4999: "0.00", 5000: "0.01", -4999: "0.00", -5000: "-0.01",
		999_866_667: "999.87"} {
		if m.String() != want {
			t.Errorf("%d is shown as %s, want %s", m, m, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12.5")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Parse(s)
		if err != nil {
			return
		}
		if back, err := Parse(m.Exact()); err != nil || back != m {
			t.Fatalf("%q is %s, which is read as %s (%v)", s, m.Exact(), back, err)
		}
	})
}

// Costs agree with arithmetic without bounds.
func TestCostIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	most := new(big.Int).SetInt64(1<<63 - 1)
	for range 20_000 {
		billed, micro := r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63)
		per, keep := int64(1+r.IntN(2048)), int64(r.IntN(Whole+1))
		den := big.NewInt(per * HourS * Whole)
		want := new(big.Int).Mul(big.NewInt(billed), big.NewInt(micro))
		want.Mul(want, big.NewInt(keep)).Add(want, new(big.Int).Rsh(den, 1)).Quo(want, den)
		if want.Cmp(most) > 0 {
			want = most
		}
		if got := cost(billed, Rate{"x", micro, per}, keep); want.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("%d x %d / %d x %d is %d, want %s", billed, micro, per, keep, got, want)
		}
	}
}

// Sums don't depend on the order of sessions, the charges of a month are its invoice, and a session that is put in and
// taken out leaves nothing.
func TestSumsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		table := worked()
		table.ByPeriod = round%2 == 0
		table.Lines = append(table.Lines, Line{From: 500_000, Rates: []Rate{{gpu, r.Int64N(5_000_000), 1},
			{"mem", r.Int64N(9000), 1024}}}, Line{Partition: "p", Rates: []Rate{{gpu, r.Int64N(5_000_000), 1}}})
		var list []*Session
		for range 40 {
			list = append(list, &Session{Start: r.Int64N(2_000_000), Seconds: r.Int64N(200_000),
				Partition: []string{"", "p"}[r.IntN(2)], Has: []Amount{{gpu, r.Int64N(9)}, {"mem", r.Int64N(1 << 20)}}})
		}
		add := func() []Bill {
			sums := NewSums(table)
			for _, s := range list {
				sums.Add("a", "", s)
			}
			return sums.Bills()
		}
		bills := add()
		r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		if again := add(); !slices.Equal(bills, again) {
			t.Fatalf("another order gives\n%v\nand not\n%v", again, bills)
		}
		var months []Month
		owed, more := Money(0), Money(0)
		for _, s := range list {
			wrong := *s
			wrong.Seconds += r.Int64N(1000)
			months, more = table.Change(months, nil, &wrong)
			owed = owed.Add(more)
			months, more = table.Change(months, &wrong, s)
			owed = owed.Add(more)
		}
		if total := Total(bills); owed != total {
			t.Fatalf("round %d: %s charged, %s on the invoice", round, owed.Exact(), total.Exact())
		}
	}
}

func TestMonthOf(t *testing.T) {
	for day := int64(0); day < 80_000; day += 7 {
		at := time.Unix(day*86400+3600, 0).UTC()
		if got, want := MonthOf(at.Unix()), int32(at.Year()*12+int(at.Month())-1); got != want {
			t.Fatalf("%s is in month %d, want %d", at, got, want)
		}
	}
}

func TestHold(t *testing.T) {
	had, empty, owes := &Wallet{Prepaid: true, Credit: 10}, &Wallet{Prepaid: true, Credit: 10, Charged: 10},
		&Wallet{Charged: 10}
	for _, x := range []struct {
		hold Hold
		w    *Wallet
		want bool
	}{{HoldNone, empty, true}, {HoldCredit, had, true}, {HoldCredit, empty, false}, {HoldCredit, owes, true},
		{HoldCredit, nil, true}, {HoldAll, nil, false}, {HoldAll, owes, false}, {HoldAll, had, true}} {
		if got := (&Table{Hold: x.hold}).Spends(x.w); got != x.want {
			t.Errorf("hold %d, %+v: %v", x.hold, x.w, got)
		}
	}
}

func TestNear(t *testing.T) {
	table := &Table{WarnPct: 80}
	w := &Wallet{Budget: 100 * One}
	if what, _, _ := table.Near(w.Pay(79*One, 5), 6); what != "" {
		t.Errorf("at 79 %% the %s is near its end", what)
	}
	if what, used, of := table.Near(w.Pay(80*One, 5), 6); what == "" || used != 80*One || of != 100*One {
		t.Errorf("at 80 %% nothing is near its end")
	}
	if what, _, _ := table.Near(w.Pay(80*One, 5), 40*86400); what != "" {
		t.Errorf("the %s of the next month is near its end", what)
	}
	if what, _, _ := table.Near(&Wallet{Prepaid: true, Credit: 10, Charged: 8}, 0); what != "credit" {
		t.Errorf("%q is near its end, not the credit", what)
	}
}

// What holds from a moment on changes nothing that started before, in reports and balances alike.
func TestTerms(t *testing.T) {
	old := worked()
	next := *old
	next.Terms = []Term{{Of: TermMinimum, From: 1000, MinS: 600}, {Of: TermDiscounts, From: 1000,
		Discounts: []Discount{{Hours: 1, Keep: 500_000}}}, {Of: TermBy, From: 2000, ByPeriod: true}}
	cost := func(table *Table, start, seconds int64) Money {
		return table.total(&Session{Start: start, Seconds: seconds, Has: []Amount{{gpu, 1}}})
	}
	for _, seconds := range []int64{1, 100, 7200, 100 * 3600} {
		if a, b := cost(old, 999, seconds), cost(&next, 999, seconds); a != b {
			t.Errorf("%d s cost %s, and %s before", seconds, b, a)
		}
	}
	for _, x := range []struct {
		start, seconds int64
		want           string
	}{{999, 1, "0.033333"}, {1000, 1, "0.333333"}, {999, 7200, "4.00"}, {1000, 7200, "2.00"}} {
		if got := cost(&next, x.start, x.seconds).Exact(); got != x.want {
			t.Errorf("%d s from %d on cost %s, want %s", x.seconds, x.start, got, x.want)
		}
	}
	// By session before 2000, by month from then on: hours under one set of discounts count together.
	var months []Month
	owed, more := Money(0), Money(0)
	sums := NewSums(&next)
	for _, start := range []int64{500, 1500, 2000, 2500} {
		s := &Session{Start: start, Seconds: 1800, Has: []Amount{{gpu, 1}}}
		sums.Add("a", "", s)
		months, more = next.Change(months, nil, s)
		owed = owed.Add(more)
	}
	bills := sums.Bills()
	if len(bills) != 1 || bills[0].Net != owed || owed.Exact() != "3.00" || bills[0].Sessions != 4 {
		t.Errorf("%s owed and bills %+v, want 1 + 1 + 0.50 + 0.50 on one line", owed.Exact(), bills)
	}
}

func TestRewrites(t *testing.T) {
	old, moved := worked(), worked()
	moved.MinS, moved.ByPeriod = 120, true
	moved.Lines = []Line{{Rates: []Rate{{gpu, 3_000_000, 1}}}}
	want := []string{KeyPrice, KeyMinimum, KeyDiscountBy}
	if got := old.Rewrites(moved, 5000); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	later := worked()
	later.Terms = []Term{{Of: TermMinimum, From: 6000, MinS: 120}, {Of: TermDiscounts, From: 4000}}
	later.Lines = append(later.Lines, Line{From: 6000, Rates: []Rate{{gpu, 3_000_000, 1}}})
	if got := old.Rewrites(later, 5000); !slices.Equal(got, []string{KeyDiscounts}) {
		t.Errorf("%v from 4000 on, want the discounts", got)
	}
	if got := (&Table{}).Rewrites(worked(), 5000); got != nil {
		t.Errorf("%v, but nothing was billed", got)
	}
}

func TestIn(t *testing.T) {
	for m, want := range map[Money]string{-1_600_000: "-$1.60", 1_600_000: "$1.60", -1: "$0.00"} {
		if got := m.In("$"); got != want {
			t.Errorf("%d is %s, want %s", m, got, want)
		}
	}
}
