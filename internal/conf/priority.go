package conf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Priority is the multifactor priority. Weights are whole numbers, as in Slurm.
type Priority struct {
	Type             string // priority/multifactor, or priority/basic for plain FIFO
	TypeNamed        bool   // it is given in the configuration
	DecayHalfLifeS   int64  // 0: usage never decays
	CalcPeriodS      int64
	MaxAgeS          int64
	UsageResetPeriod string // NONE NOW DAILY WEEKLY MONTHLY QUARTERLY YEARLY
	FavorSmall       bool
	Flags            []string // as listed in priorityFlags; FAIR_TREE is dropped, being the default
	WeightAge        int64
	WeightAssoc      int64
	WeightFairShare  int64
	WeightJobSize    int64
	WeightPartition  int64
	WeightQOS        int64
	WeightTRES       []model.TRESWeight
}

// Has reports whether a PriorityFlags word is set.
func (p *Priority) Has(flag string) bool { return slices.Contains(p.Flags, flag) }

var priorityFlags = []string{
	"ACCRUE_ALWAYS", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "FAIR_TREE", "INCR_ONLY", "MAX_TRES", "MAX_TRES_GRES",
	"NO_FAIR_TREE", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES",
	"SMALL_RELATIVE_TO_TIME", "STRICT_QOS",
}

// flagBits are the words in priorityFlags that have an effect of their own; FAIR_TREE is the default.
var flagBits = map[string]model.PrioFlags{
	"ACCRUE_ALWAYS": model.PrioAccrueAlways, "CALCULATE_RUNNING": model.PrioCalculateRunning,
	"DEPTH_OBLIVIOUS": model.PrioDepthOblivious,
	"INCR_ONLY":       model.PrioIncrOnly, "MAX_TRES": model.PrioMaxTRES, "MAX_TRES_GRES": model.PrioMaxTRESGres,
	"NO_FAIR_TREE":    model.PrioNoFairTree,
	"NO_NORMAL_ALL":   model.PrioNoNormalAssoc | model.PrioNoNormalPart | model.PrioNoNormalQOS | model.PrioNoNormalTRES,
	"NO_NORMAL_ASSOC": model.PrioNoNormalAssoc, "NO_NORMAL_PART": model.PrioNoNormalPart,
	"NO_NORMAL_QOS":  model.PrioNoNormalQOS,
	"NO_NORMAL_TRES": model.PrioNoNormalTRES, "SMALL_RELATIVE_TO_TIME": model.PrioSizeRelative,
	"STRICT_QOS": model.PrioStrictQOS,
}

// model gives what the controllers replicate.
func (p *Priority) model() model.Priority {
	m := model.Priority{
		Multifactor: p.Type == "priority/multifactor", HalfLifeS: p.DecayHalfLifeS, CalcPeriodS: p.CalcPeriodS,
		MaxAgeS:     p.MaxAgeS,
		ResetPeriod: p.UsageResetPeriod, FavorSmall: p.FavorSmall, WeightAge: p.WeightAge, WeightAssoc: p.WeightAssoc,
		WeightFairShare: p.WeightFairShare, WeightJobSize: p.WeightJobSize, WeightPartition: p.WeightPartition,
		WeightQOS:  p.WeightQOS,
		WeightTRES: p.WeightTRES,
	}
	for _, w := range p.Flags {
		m.Flags |= flagBits[w]
	}
	m.Named = p.TypeNamed || len(p.Flags) > 0 || len(p.WeightTRES) > 0 ||
		p.WeightAge|p.WeightAssoc|p.WeightFairShare|p.WeightJobSize|p.WeightPartition|p.WeightQOS != 0
	return m
}

var usagePeriods = []string{"NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"}

func prioritySettings() []setting {
	weight := func(name string, at func(*Config) *int64) setting {
		return number("PriorityWeight"+name, AtOnce, at, 0, math.MaxInt32)
	}
	return []setting{
		{name: "PriorityType", effect: AtOnce, show: showPriorityType,
			read: func(c *Config, v string) (f fault) {
				c.Priority.Type, f = readWord(v, []string{"priority/multifactor", "priority/basic"})
				c.Priority.TypeNamed = !f.bad()
				return f
			}},
		duration("PriorityDecayHalfLife", AtOnce, func(c *Config) *int64 { return &c.Priority.DecayHalfLifeS }),
		duration("PriorityCalcPeriod", AtOnce, func(c *Config) *int64 { return &c.Priority.CalcPeriodS }),
		duration("PriorityMaxAge", AtOnce, func(c *Config) *int64 { return &c.Priority.MaxAgeS }),
		word("PriorityUsageResetPeriod", AtOnce, func(c *Config) *string { return &c.Priority.UsageResetPeriod },
			usagePeriods...),
		yesNo("PriorityFavorSmall", AtOnce, func(c *Config) *bool { return &c.Priority.FavorSmall }),
		{name: "PriorityFlags", effect: AtOnce, read: readPriorityFlags, remark: remarkPriorityFlags,
			show: func(c *Config) string { return orNull(strings.Join(c.Priority.Flags, ",")) }},
		weight("Age", func(c *Config) *int64 { return &c.Priority.WeightAge }),
		weight("Assoc", func(c *Config) *int64 { return &c.Priority.WeightAssoc }),
		weight("FairShare", func(c *Config) *int64 { return &c.Priority.WeightFairShare }),
		weight("JobSize", func(c *Config) *int64 { return &c.Priority.WeightJobSize }),
		weight("Partition", func(c *Config) *int64 { return &c.Priority.WeightPartition }),
		weight("QOS", func(c *Config) *int64 { return &c.Priority.WeightQOS }),
		{name: "PriorityWeightTRES", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Priority.WeightTRES, f = readTRESWeights(v); return f },
			show: func(c *Config) string { return orNull(showTRESWeights(c.Priority.WeightTRES)) }},
	}
}

// showPriorityType names none of Slurm's orders where gbatch uses its own.
func showPriorityType(c *Config) string {
	if m := c.Priority.model(); m.Default() {
		return orNull("")
	}
	return c.Priority.Type
}

func readPriorityFlags(c *Config, v string) fault {
	words, f := readWords(v, priorityFlags)
	if f.bad() {
		return f
	}
	if slices.Contains(words, "FAIR_TREE") && slices.Contains(words, "NO_FAIR_TREE") {
		return fault{shown(v) + " has both FAIR_TREE and NO_FAIR_TREE", "NO_FAIR_TREE or nothing"}
	}
	c.Priority.Flags = slices.DeleteFunc(words, func(w string) bool { return w == "FAIR_TREE" })
	return fault{}
}

func remarkPriorityFlags(_ *Config, v string) (text, hint string) {
	if strings.EqualFold(v, "FAIR_TREE") {
		return "PriorityFlags=FAIR_TREE has no effect: Fair Tree has been the default since Slurm 19.05", "remove it"
	}
	return "", ""
}

// plainTRES are the resources that have no name behind a slash.
var plainTRES = []string{"cpu", "mem", "node", "billing", "energy", "pages", "vmem", "fs/disk"}

// namedTRES are the resources that have one.
var namedTRES = []string{"gres/", "license/", "bb/", "ic/"}

// readTRES brings the name of a resource into the form that gbatch uses:
// "CPU" is cpu, "GRES/gpu:A100" is gres/gpu:A100.
func readTRES(v string) (string, fault) {
	for _, t := range plainTRES {
		if strings.EqualFold(v, t) {
			return t, fault{}
		}
	}
	for _, t := range namedTRES {
		if len(v) > len(t) && strings.EqualFold(v[:len(t)], t) {
			return t + v[len(t):], fault{}
		}
	}
	f := fault{shown(v) + " is not a resource", "cpu, mem, node, gres/NAME[:TYPE] or license/NAME"}
	if near := nearest(v, plainTRES); near != "" {
		f.want = near
	} else if !strings.Contains(v, "/") {
		f.want = "gres/" + v
	}
	return "", f
}

func readTRESWeights(v string) ([]model.TRESWeight, fault) {
	const want = `"CPU=1.0,Mem=0.25G,GRES/gpu=2.0"`
	var out []model.TRESWeight
	for _, item := range splitList(v) {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fault{shown(item) + " is not resource=weight", want}
		}
		tres, f := readTRES(strings.TrimSpace(name))
		if f.bad() {
			return nil, fault{f.why, want}
		}
		value = strings.TrimSpace(value)
		per := int64(1)
		if n := len(value); n > 0 {
			if i := strings.IndexByte("KMGTP", value[n-1]&^0x20); i >= 0 && value[n-1] > '9' {
				value = value[:n-1]
				per = 1 << (10 * (i + 1))
				if tres == "mem" || tres == "vmem" { // counted in MiB already
					per >>= 20
				}
			}
		}
		micro, ok := readMicros(value)
		if !ok {
			return nil, fault{fmt.Sprintf("the weight %s of %s is not a decimal number with at most six places", shown(value),
				tres), want}
		}
		if per == 0 { // K of memory: less than its unit
			per, micro = 1, micro*1024
		}
		out = append(out, model.TRESWeight{TRES: tres, Micros: micro, Per: per})
	}
	return out, fault{}
}

func showTRESWeights(weights []model.TRESWeight) string {
	var out []string
	for _, w := range weights {
		text := fmt.Sprintf("%d.%06d", w.Micros/micros, abs(w.Micros%micros))
		if w.Micros < 0 && w.Micros > -micros {
			text = "-" + text
		}
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
		if w.Per > 1 {
			exp := 0
			for p := w.Per; p > 1; p >>= 10 {
				exp++
			}
			if w.TRES == "mem" || w.TRES == "vmem" {
				exp += 2
			}
			text += "KMGTPE"[exp-1 : exp]
		}
		out = append(out, w.TRES+"="+text)
	}
	return strings.Join(out, ",")
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
