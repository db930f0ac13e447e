package conf

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// The keys of the main file that are about accounting.

func accountingSettings() []setting {
	return []setting{
		{name: "AccountingStorageType", effect: RestartCtld,
			read: func(c *Config, v string) fault {
				t, f := readWord(v, slices.Concat([]string{accountingDbd, accountingNone}, oldAccounting))
				if f.bad() {
					return fault{f.why, accountingDbd + " or " + accountingNone}
				}
				if c.AccountingStorageType = t; slices.Contains(oldAccounting, t) {
					c.AccountingStorageType = accountingDbd
				}
				return fault{}
			},
			remark: func(_ *Config, v string) (text, hint string) {
				if hasFold(oldAccounting, v) {
					return "AccountingStorageType=" + v + " is taken as " + accountingDbd +
						": gdbd keeps the records in its own database", "write " + accountingDbd
				}
				return "", ""
			},
			show: func(c *Config) string { return orNull(c.AccountingStorageType) }},
		text("AccountingStorageHost", RestartCtld, func(c *Config) *string { return &c.AccountingStorageHost }),
		text("AccountingStorageBackupHost", RestartAll, func(c *Config) *string { return &c.AccountingBackupHost }),
		portSetting("AccountingStoragePort", RestartAll, func(c *Config) *int64 { return &c.AccountingStoragePort }),
		{name: "AccountingStorageTRES", effect: NewJobs,
			read: func(c *Config, v string) fault {
				c.AccountingStorageTRES = nil
				for _, item := range splitList(v) {
					tres, f := readTRES(item)
					if f.bad() {
						return f
					}
					c.AccountingStorageTRES = append(c.AccountingStorageTRES, tres)
				}
				return fault{}
			},
			show: func(c *Config) string {
				return strings.Join(append([]string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"},
					c.AccountingStorageTRES...), ",")
			}},
		{name: "AccountingStorageEnforce", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Enforce, f = readEnforce(v); return f },
			remark: func(_ *Config, v string) (text, hint string) {
				if hasFold([]string{"nojobs", "nosteps"}, v) {
					return "AccountingStorageEnforce=" + v + " has no effect: records of all jobs and steps are kept",
						"leave it out, and set PurgeJobAfter and PurgeStepAfter to keep them for less time"
				}
				return "", ""
			},
			show: func(c *Config) string { return c.Enforce.String() }},
		number("MaxDBDMsgs", AtOnce, func(c *Config) *int64 { return &c.Resend.MaxWaiting }, 0, 10_000_000),
		number("DbdResendRecords", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepRecords }, 0, 1_000_000),
		number("DbdResendBytes", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepBytes }, 0, 1<<30),
		seconds("DbdResendTime", AtOnce, func(c *Config) *int64 { return &c.Resend.KeepS }, 0, 30*86400),
		list("Accounts", NewJobs, func(c *Config) *[]string { return &c.Accounts }),
		text("DefaultAccount", NewJobs, func(c *Config) *string { return &c.DefaultAccount }),
		yesNo("TrackWCKey", NewJobs, func(c *Config) *bool { return &c.TrackWCKey }),
		{name: "JobAcctGatherType", effect: NextStart,
			read: func(c *Config, v string) (f fault) {
				c.JobAcctGatherType, f = readWord(v,
					[]string{"jobacct_gather/cgroup", "jobacct_gather/linux", "jobacct_gather/none"})
				return f
			},
			remark: func(c *Config, v string) (text, hint string) {
				if sameWord(v, "jobacct_gather/none") {
					return "JobAcctGatherType=jobacct_gather/none: CPU time and peak memory are measured all the same, from the " +
						"job's cgroup", "write jobacct_gather/cgroup"
				}
				return "", ""
			},
			show: func(c *Config) string { return c.JobAcctGatherType }},
		sampling(),
	}
}

const (
	accountingDbd  = "accounting_storage/slurmdbd"
	accountingNone = "accounting_storage/none"
)

// oldAccounting are the types of older Slurms.
var oldAccounting = []string{"accounting_storage/mysql", "accounting_storage/filetxt", "accounting_storage/pgsql"}

var enforceWords = []string{"associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys", "all", "none"}

func readEnforce(v string) (Enforce, fault) {
	var e Enforce
	if v == "0" || v == "1" || v == "2" { // Slurm's old numbers
		return Enforce{Associations: v != "0", Limits: v == "2"}, fault{}
	}
	words, f := readWords(v, enforceWords)
	if f.bad() {
		return e, f
	}
	for _, w := range words {
		switch w {
		case "associations":
			e.Associations = true
		case "limits":
			e.Associations, e.Limits = true, true
		case "qos":
			e.Associations, e.QOS = true, true
		case "safe":
			e.Associations, e.Limits, e.Safe = true, true, true
		case "wckeys":
			e.Associations, e.WCKeys = true, true
		case "nojobs":
			e.NoJobs, e.NoSteps = true, true
		case "nosteps":
			e.NoSteps = true
		case "all": // all but nojobs and nosteps, as in Slurm
			e = Enforce{Associations: true, Limits: true, QOS: true, Safe: true, WCKeys: true}
		}
	}
	return e, fault{}
}

// String gives the words as scontrol shows them.
func (e Enforce) String() string {
	var out []string
	for _, w := range []struct {
		set  bool
		word string
	}{{e.Associations, "associations"}, {e.Limits, "limits"}, {e.NoJobs, "nojobs"}, {e.NoSteps, "nosteps"}, {e.QOS, "qos"},
		{e.Safe, "safe"}, {e.WCKeys, "wckeys"}} {
		if w.set {
			out = append(out, w.word)
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ",")
}

// What jobs cost: the Price lines, and the keys beside them, of which some can have a From as they do.

// keyFrom is the moment from which on a line about prices holds.
const keyFrom = "From"

// readFrom reads it: Unix seconds, 0 for always.
func readFrom(v string) (int64, fault) {
	if strings.EqualFold(v, "always") {
		return 0, fault{}
	}
	for _, form := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(form, v, time.Local); err == nil && t.Unix() > 0 {
			return t.Unix(), fault{}
		}
	}
	return 0, fault{shown(v) + " is no date", "2027-01-01 or 2027-01-01T12:00:00"}
}

// termOf says of which kind a key beside the Price lines is; 0: it has no From.
func termOf(key string) price.TermOf {
	switch {
	case strings.EqualFold(key, price.KeyMinimum):
		return price.TermMinimum
	case strings.EqualFold(key, price.KeyDiscounts):
		return price.TermDiscounts
	case strings.EqualFold(key, price.KeyDiscountBy):
		return price.TermBy
	}
	return 0
}

// readTerms reads statements such as PriceMinimumTime=120 PriceDiscounts=100:0.9 From=2027-01-01 at the beginning of a
// line, and gives the rest of it. Without From they are settings as all others.
func (l *loader) readTerms(pairs []pair) []pair {
	n := slices.IndexFunc(pairs, func(p pair) bool { return termOf(p.key) == 0 })
	if n <= 0 || !strings.EqualFold(pairs[n].key, keyFrom) {
		return pairs
	}
	from, f := readFrom(pairs[n].value)
	if f.bad() {
		l.probs.errorf(pairs[n].at, "write "+keyFrom+"="+f.want, "%s: %s: %s", pairs[0].key, keyFrom, f.why)
		return pairs[n+1:]
	}
	for _, p := range pairs[:n] {
		if from == 0 {
			l.apply(p)
			continue
		}
		s, of := l.settings.byName[strings.ToLower(p.key)], termOf(p.key)
		var c Config
		if f := s.read(&c, p.value); f.bad() {
			l.wrongValue(p.at, s.name, f)
			continue
		}
		t := price.Term{Of: of, From: from, MinS: c.Price.MinS, Discounts: c.Price.Discounts, ByPeriod: c.Price.ByPeriod}
		if slices.ContainsFunc(l.cfg.Price.Terms, func(x price.Term) bool { return x.Of == of && x.From == from }) {
			l.probs.warnf(p.at, "keep one of the lines", "%s is set twice from the same moment on; the last one is used",
				s.name)
		}
		if len(l.cfg.Price.Terms) == price.MaxLines {
			l.probs.errorf(p.at, "remove what no record needs", "more than %d lines with From", price.MaxLines)
			continue
		}
		l.cfg.Price.Terms = append(l.cfg.Price.Terms, t)
	}
	return pairs[n+1:]
}

// showTerms shows the values of a key beside the Price lines: the one that always held, and those from a moment on.
func showTerms(of price.TermOf) func(c *Config) string {
	return func(c *Config) string {
		t := &c.Price
		out := termText(&price.Term{Of: of, MinS: t.MinS, Discounts: t.Discounts, ByPeriod: t.ByPeriod})
		for i := range t.Terms {
			if x := &t.Terms[i]; x.Of == of {
				out += "; " + termText(x) + " From=" + time.Unix(x.From, 0).Format("2006-01-02T15:04:05")
			}
		}
		return out
	}
}

func termText(x *price.Term) string {
	switch x.Of {
	case price.TermMinimum:
		return showSeconds(x.MinS)
	case price.TermDiscounts:
		return orNull(showDiscounts(x.Discounts))
	case price.TermBy:
		if x.ByPeriod {
			return discountBy[1]
		}
	}
	return discountBy[0]
}

// priceSettings are the keys beside the Price lines.
func priceSettings() []setting {
	return []setting{
		{name: price.KeyMinimum, effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Price.MinS, f = readSeconds(v, 0, 86400); return f },
			show: showTerms(price.TermMinimum)},
		{name: price.KeyDiscounts, effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Price.Discounts, f = readDiscounts(v); return f },
			show: showTerms(price.TermDiscounts)},
		{name: price.KeyDiscountBy, effect: AtOnce,
			read: func(c *Config, v string) fault {
				w, f := readWord(v, discountBy)
				c.Price.ByPeriod = w == discountBy[1]
				return f
			},
			show: showTerms(price.TermBy)},
		{name: "PriceCurrency", effect: AtOnce,
			read: func(c *Config, v string) fault {
				if len(v) > 8 {
					return fault{shown(v) + " is longer than 8 characters", "EUR"}
				}
				c.Price.Currency = v
				return fault{}
			},
			show: func(c *Config) string { return orNull(c.Price.Currency) }},
		{name: "PriceHold", effect: AtOnce,
			read: func(c *Config, v string) fault {
				w, f := readWord(v, priceHolds)
				c.Price.Hold = price.Hold(max(0, slices.Index(priceHolds, w)))
				return f
			},
			show: func(c *Config) string { return priceHolds[c.Price.Hold] }},
		{name: "PriceWarnPercent", effect: AtOnce,
			read: func(c *Config, v string) fault {
				n, f := readInt(v, 0, 100)
				c.Price.WarnPct = int32(n)
				return f
			},
			show: func(c *Config) string { return strconv.FormatInt(int64(c.Price.WarnPct), 10) }},
	}
}

// The words of PriceDiscountBy, and those of PriceHold in the order of price.Hold.
var (
	discountBy = []string{"session", "month"}
	priceHolds = []string{"no", "credit", "all"}
)

// readDiscounts reads PriceDiscounts: hours times units, and the part of the price that remains from there on.
func readDiscounts(v string) ([]price.Discount, fault) {
	const want = "100:0.9,500:0.8"
	var out []price.Discount
	for _, item := range splitList(v) {
		hours, keep, ok := strings.Cut(item, ":")
		if !ok {
			return nil, fault{shown(item) + " is not HOURS:FACTOR", want}
		}
		n, f := readInt(strings.TrimSpace(hours), 0, 1_000_000_000)
		if f.bad() {
			return nil, fault{"the hours of " + shown(item) + " are not a whole number up to 1000000000", want}
		}
		m, err := price.Parse(strings.TrimSpace(keep))
		if err != nil || m < 0 || m > price.Whole {
			return nil, fault{"the factor " + shown(keep) + " is not a number from 0 to 1", want}
		}
		if slices.ContainsFunc(out, func(d price.Discount) bool { return d.Hours == n }) {
			return nil, fault{"two factors for " + hours + " hours", want}
		}
		if len(out) == price.MaxDiscounts {
			return nil, fault{"more than " + strconv.Itoa(price.MaxDiscounts) + " discounts", want}
		}
		out = append(out, price.Discount{Hours: n, Keep: int64(m)})
	}
	slices.SortFunc(out, func(a, b price.Discount) int { return int(a.Hours - b.Hours) })
	return out, fault{}
}

func showDiscounts(list []price.Discount) string {
	var out []string
	for _, d := range list {
		out = append(out, strconv.FormatInt(d.Hours, 10)+":"+price.Money(d.Keep).Exact())
	}
	return strings.Join(out, ",")
}

// priceLine is a Price line while it is read.
type priceLine struct {
	price.Line
	at pos
}

// priceKeys are what may follow Price= on its line.
func priceKeys() []lineKey[priceLine] {
	return []lineKey[priceLine]{
		{name: keyFrom, read: func(d *priceLine, v string) (f fault) { d.From, f = readFrom(v); return f }},
		{name: "Partition", read: func(d *priceLine, v string) fault { d.Line.Partition = v; return fault{} }},
	}
}

// readPriceLine reads a line such as Price=gres/gpu=2.0,mem=0.01G From=2027-01-01 Partition=big.
func (l *loader) readPriceLine(pairs []pair) {
	line := priceLine{at: pairs[0].at}
	weights, f := readTRESWeights(pairs[0].value)
	if !f.bad() && len(weights) == 0 {
		f = fault{"nothing has a price on this line", ""}
	}
	for _, w := range weights {
		if w.Micros < 0 {
			f = fault{"the price of " + w.TRES + " is below 0", ""}
		}
		line.Rates = append(line.Rates, price.Rate{TRES: w.TRES, Micro: w.Micros, Per: w.Per})
	}
	if len(line.Rates) > price.MaxRates {
		f = fault{"more than " + strconv.Itoa(price.MaxRates) + " prices on one line", ""}
	}
	if f.bad() {
		l.probs.errorf(line.at, "write Price=gres/gpu=2.0,mem=0.01G, the price of an hour", "Price: %s", f.why)
		return
	}
	readKeys(l, priceKeys(), pairs[1:], &line, keyPrice)
	l.priceLines = append(l.priceLines, line)
}

// checkPrices takes the Price lines into the configuration.
func (l *loader) checkPrices() {
	for i := range l.priceLines {
		p := &l.priceLines[i]
		if _, there := l.cfg.Partition(p.Partition); p.Partition != "" && !there {
			l.probs.errorf(p.at, "name a partition of this file, or leave Partition out", "Price: there is no partition %s",
				shown(p.Partition))
		}
		l.cfg.Price.Lines = append(l.cfg.Price.Lines, p.Line)
	}
	if n := len(l.cfg.Price.Lines); n > price.MaxLines {
		l.probs.errorf(l.priceLines[price.MaxLines].at, "remove prices that no record needs",
			"%d Price lines, %d is the most", n, price.MaxLines)
	}
	if l.cfg.Price.Hold != price.HoldNone && len(l.cfg.Price.Lines) == 0 {
		l.probs.warnf(l.where("PriceHold"), "write a Price line", "PriceHold holds no job: nothing has a price")
	}
	l.checkSharePrices()
}

// checkSharePrices says which shares of GPUs cost nothing although whole GPUs have a price.
func (l *loader) checkSharePrices() {
	const gpu = "gres/" + model.GPUName
	priced := func(tres string) *price.Rate {
		for i := range l.cfg.Price.Lines {
			for k := range l.cfg.Price.Lines[i].Rates {
				r := &l.cfg.Price.Lines[i].Rates[k]
				if plain, _, _ := strings.Cut(r.TRES, ":"); strings.EqualFold(plain, tres) {
					return r
				}
			}
		}
		return nil
	}
	whole, told := priced(gpu), map[string]bool{}
	if whole == nil {
		return
	}
	for i := range l.cfg.Nodes {
		gpus := int64(0)
		for _, g := range l.cfg.Nodes[i].Gres {
			if g.Name == model.GPUName {
				gpus += g.Count
			}
		}
		for _, g := range l.cfg.Nodes[i].Gres {
			if !isShared(g.Name) || g.Count <= 0 || told[g.Name] || priced("gres/"+g.Name) != nil {
				continue
			}
			told[g.Name] = true
			units := max(1, model.ShareUnits(g.Name, g.Count, false))
			each := price.Money(whole.Micro * max(1, gpus) / units)
			l.probs.warnf(l.priceLines[0].at, "give a share its part of a GPU's price, here gres/"+g.Name+"="+each.Exact(),
				"jobs with shares of GPUs are charged nothing for them: gres/%s has no price, and that of %s is for "+
					"whole ones", g.Name, gpu)
		}
	}
}

// sampling is JobAcctGatherFrequency.
func sampling() setting {
	return setting{name: "JobAcctGatherFrequency", effect: NextStart,
		read: func(c *Config, v string) (f fault) {
			for _, item := range splitList(v) {
				kind, value, ok := strings.Cut(item, "=")
				if !ok {
					kind, value = "task", item
				}
				n, f := readSeconds(value, 0, math.MaxInt32)
				if f.bad() {
					return fault{f.why, "task=30"}
				}
				if strings.EqualFold(kind, "task") {
					c.SampleIntervalS = n
				} else if _, f := readWord(kind, []string{"energy", "filesystem", "network"}); f.bad() {
					return fault{f.why, "task=30"}
				}
			}
			return fault{}
		},
		remark: func(_ *Config, v string) (text, hint string) {
			switch kind, _, _ := strings.Cut(strings.ToLower(v), "="); kind {
			case "energy", "filesystem", "network":
				return "JobAcctGatherFrequency=" + v + " has no effect: " + kind + " data of nodes aren't gathered",
					"leave it out"
			}
			return "", ""
		},
		show: func(c *Config) string { return strconv.FormatInt(c.SampleIntervalS, 10) }}
}
