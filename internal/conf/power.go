package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// power.go reads the settings for nodes that are powered down and up: Slurm's, and gbatch's own rules for how many idle
// nodes stay up.

// suspendStates are the words of SuspendExcStates.
var suspendStates = []string{"CLOUD", "DOWN", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "FAIL", "INVALID_REG",
	"MAINTENANCE", "NOT_RESPONDING", "PERFCTRS", "PLANNED", "RESERVED"}

const (
	idleOnSuspend = "idle_on_node_suspend"
	userTriggers  = "allow_user_triggers"
	expedites     = "enable_expedited_requeue" // as it is in any case
	keepExample   = "2,10%@Mon-Fri/08:00-18:00"
	maxPowerS     = 365 * 86400
)

func powerSettings() []setting {
	rate := func(name string, at func(*model.PowerRules) *int32) setting {
		return setting{name: name, effect: AtOnce,
			read: func(c *Config, v string) fault {
				n, f := readInt(v, 0, 65533)
				*at(&c.Power) = int32(n)
				return f
			},
			show: func(c *Config) string { return showInt(int64(*at(&c.Power))) + "/min" }}
	}
	out := []setting{
		absPath("SuspendProgram", AtOnce, func(c *Config) *string { return &c.Power.Suspend }),
		absPath("ResumeProgram", AtOnce, func(c *Config) *string { return &c.Power.Resume }),
		absPath("ResumeFailProgram", AtOnce, func(c *Config) *string { return &c.Power.ResumeFail }),
		{name: "SuspendTime", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Power.SuspendS, f = readSuspendTime(v); return f },
			show: func(c *Config) string { return showSuspendTime(c.Power.SuspendS, " sec") }},
		seconds("SuspendTimeout", AtOnce, func(c *Config) *int64 { return &c.Power.SuspendTimeoutS }, 0, 65533),
		rate("SuspendRate", func(p *model.PowerRules) *int32 { return &p.SuspendRate }),
		rate("ResumeRate", func(p *model.PowerRules) *int32 { return &p.ResumeRate }),
		{name: "SuspendExcNodes", effect: AtOnce,
			read: func(c *Config, v string) (f fault) {
				c.SuspendExcNodes = v
				c.Power.Spare, f = readSpareNodes(v)
				return f
			},
			show: func(c *Config) string { return orNull(c.SuspendExcNodes) }},
		list("SuspendExcParts", AtOnce, func(c *Config) *[]string { return &c.Power.SpareParts }),
		list("SuspendExcStates", AtOnce, func(c *Config) *[]string { return &c.Power.SpareStates }, suspendStates...),
		{name: "SlurmctldParameters", effect: AtOnce,
			read: func(c *Config, v string) fault {
				c.SlurmctldParameters, c.Power.IdleAfter = v, hasFold(splitList(v), idleOnSuspend)
				return fault{}
			},
			remark: func(_ *Config, v string) (text, hint string) {
				return remarkParam("SlurmctldParameters", ctldParams, v)
			},
			show: func(c *Config) string { return orNull(c.SlurmctldParameters) }},
		{name: "SlurmdParameters", effect: AtOnce,
			read:   func(*Config, string) fault { return fault{} },
			remark: func(_ *Config, v string) (text, hint string) { return remarkParam("SlurmdParameters", slurmdParams, v) }},
	}
	for _, k := range scaleKeys() {
		out = append(out, setting{name: k.name, effect: AtOnce,
			read: func(c *Config, v string) fault { return k.read(&c.Power.Scale, v) },
			show: func(c *Config) string { return orNull(k.show(&c.Power.Scale)) }})
	}
	return out
}

// scaleKey is one rule for how many idle nodes stay up: of the cluster, or of a partition.
type scaleKey struct {
	name string
	read func(s *model.PowerScale, v string) fault
	show func(s *model.PowerScale) string
}

func scaleKeys() []scaleKey {
	number := func(name string, most int64, at func(*model.PowerScale) *int32) scaleKey {
		return scaleKey{name: name,
			read: func(s *model.PowerScale, v string) fault {
				n, f := readInt(v, 0, most)
				*at(s) = int32(n)
				return f
			},
			show: func(s *model.PowerScale) string { return showSet(*at(s)) }}
	}
	return []scaleKey{
		{name: "PowerKeepIdle", read: func(s *model.PowerScale, v string) (f fault) { s.Keep, f = readKeep(v); return f },
			show: func(s *model.PowerScale) string { return showKeep(s.Keep) }},
		number("PowerMaxUse", 100, func(s *model.PowerScale) *int32 { return &s.MaxUse }),
		number("PowerJobsPerNode", 1_000_000, func(s *model.PowerScale) *int32 { return &s.PerJobs }),
	}
}

func showSet(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// partPower gives what a partition says about power, to be changed.
func (p *PartitionDef) partPower() *model.PartPower {
	own := model.PartPower{SuspendS: model.NotSet, SuspendTimeoutS: model.NotSet, ResumeTimeoutS: model.NotSet}
	if p.Power != nil {
		own = *p.Power
	}
	p.Power = &own
	return p.Power
}

// partitionPowerKeys are the keys about power of PartitionName lines.
func partitionPowerKeys() []lineKey[PartitionDef] {
	span := func(name string, at func(*model.PartPower) *int64, read func(string) (int64, fault)) lineKey[PartitionDef] {
		return lineKey[PartitionDef]{name: name, read: func(p *PartitionDef, v string) (f fault) {
			if strings.EqualFold(v, "GLOBAL") {
				*at(p.partPower()) = model.NotSet
				return fault{}
			}
			*at(p.partPower()), f = read(v)
			return f
		}}
	}
	timeout := func(v string) (int64, fault) {
		n, f := readSeconds(v, 0, 65533)
		if f.bad() && f.want == "" {
			f.want = "60"
		}
		return n, f
	}
	out := []lineKey[PartitionDef]{
		{name: "PowerDownOnIdle",
			read: func(p *PartitionDef, v string) (f fault) { p.partPower().OnIdle, f = readBool(v); return f }},
		span("ResumeTimeout", func(p *model.PartPower) *int64 { return &p.ResumeTimeoutS }, timeout),
		span("SuspendTime", func(p *model.PartPower) *int64 { return &p.SuspendS }, readSuspendTime),
		span("SuspendTimeout", func(p *model.PartPower) *int64 { return &p.SuspendTimeoutS }, timeout),
	}
	for _, k := range scaleKeys() {
		out = append(out, lineKey[PartitionDef]{name: k.name,
			read: func(p *PartitionDef, v string) fault { return k.read(&p.partPower().Scale, v) }})
	}
	return out
}

// addPower adds what a partition says about power.
func (kvs *keyValues) addPower(p *model.PartPower) {
	if p == nil {
		return
	}
	span := func(key string, s int64) {
		text := "GLOBAL"
		if s != model.NotSet {
			text = showSuspendTime(s, "")
		}
		kvs.add(key, text)
	}
	span("ResumeTimeout", p.ResumeTimeoutS)
	span("SuspendTimeout", p.SuspendTimeoutS)
	span("SuspendTime", p.SuspendS)
	kvs.add("PowerDownOnIdle", showYes(p.OnIdle))
	for _, k := range scaleKeys() {
		if text := k.show(&p.Scale); text != "" {
			kvs.add(k.name, text)
		}
	}
}

// readSuspendTime reads a number of seconds; INFINITE, NONE and -1 are never.
func readSuspendTime(v string) (int64, fault) {
	if isUnlimited(v) || strings.EqualFold(v, "NONE") {
		return -1, fault{}
	}
	n, f := readSeconds(v, 0, maxPowerS)
	if f.bad() {
		return 0, fault{shown(v) + " is neither a number of seconds nor INFINITE", "600"}
	}
	return n, fault{}
}

func showSuspendTime(s int64, unit string) string {
	if s < 0 {
		return "INFINITE"
	}
	return showInt(s) + unit
}

// outsideBrackets cuts a text at the commas that are not in brackets.
func outsideBrackets(v string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(v) + 1 {
		switch {
		case i == len(v) || v[i] == ',' && depth == 0:
			if part := strings.TrimSpace(v[from:i]); part != "" {
				out = append(out, part)
			}
			from = i + 1
		case v[i] == '[':
			depth++
		case v[i] == ']':
			depth--
		}
	}
	return out
}

// readSpareNodes reads n[1-10]:4,big: a count is of the nodes since the last count, and nodes after the last one have
// none.
func readSpareNodes(v string) ([]model.PowerSpare, fault) {
	var out []model.PowerSpare
	var set []string // the nodes since the last count
	for _, item := range outsideBrackets(v) {
		expr, count, counted := strings.Cut(item, ":")
		names, f := readHosts(expr)
		if f.bad() {
			return nil, fault{f.why, "n[1-10]:4,big"}
		}
		if set = append(set, names...); !counted {
			continue
		}
		n, f := readInt(count, 1, 65533)
		if f.bad() {
			return nil, fault{shown(item) + ": " + f.why, "n[1-10]:4,big"}
		}
		out = append(out, model.PowerSpare{Nodes: set, Count: int32(n)})
		set = nil
	}
	if len(set) > 0 {
		out = append(out, model.PowerSpare{Nodes: set})
	}
	if len(out) > model.MaxFew {
		return nil, fault{fmt.Sprintf("more than %d sets of nodes", model.MaxFew), "fewer of them"}
	}
	return out, fault{}
}

var weekDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// readKeep reads PowerKeepIdle: COUNT or PERCENT%, with @DAYS/FROM-TO, @DAYS or @FROM-TO for a time of the week.
func readKeep(v string) ([]model.PowerKeep, fault) {
	var out []model.PowerKeep
	for _, item := range splitList(v) {
		wrong := func(why string) ([]model.PowerKeep, fault) { return nil, fault{shown(item) + " " + why, keepExample} }
		amount, when, timed := strings.Cut(item, "@")
		var k model.PowerKeep
		number, percent := strings.CutSuffix(amount, "%")
		n, f := readInt(number, 0, 1_000_000)
		switch {
		case f.bad() || percent && n > 100:
			return wrong("is neither a number of nodes nor a percentage")
		case percent:
			k.Percent = int32(n)
		default:
			k.Count = int32(n)
		}
		if timed {
			days, hours, both := strings.Cut(when, "/")
			if !both && strings.Contains(when, ":") {
				days, hours = "", when
			}
			var ok bool
			if k.Days, ok = readDays(days); !ok {
				return wrong("names no days such as Mon-Fri")
			}
			if hours != "" {
				if k.From, k.To, ok = readHours(hours); !ok {
					return wrong("names no times such as 08:00-18:00")
				}
			}
		}
		out = append(out, k)
	}
	if len(out) > 64 {
		return nil, fault{"more than 64 entries", keepExample}
	}
	return out, fault{}
}

// readDays reads Mon-Fri, Sat or nothing, which is every day.
func readDays(v string) (set uint8, ok bool) {
	if v == "" {
		return 0, true
	}
	from, to, ranged := strings.Cut(strings.ToLower(v), "-")
	if !ranged {
		to = from
	}
	first, last := slices.Index(weekDays, from), slices.Index(weekDays, to)
	if first < 0 || last < 0 {
		return 0, false
	}
	for d := first; ; d = (d + 1) % 7 {
		set |= 1 << d
		if d == last {
			return set, true
		}
	}
}

// readHours reads 08:00-18:00, in minutes after midnight.
func readHours(v string) (from, to int32, ok bool) {
	minutes := func(s string) int32 {
		h, m, _ := strings.Cut(s, ":")
		hours, f1 := readInt(h, 0, 24)
		mins, f2 := readInt(m, 0, 59)
		if f1.bad() || f2.bad() || len(m) != 2 || hours == 24 && mins > 0 {
			return -1
		}
		return int32(hours*60 + mins)
	}
	a, b, ranged := strings.Cut(v, "-")
	from, to = minutes(a), minutes(b)
	return from, to, ranged && from >= 0 && to >= 0 && from != to
}

func showKeep(list []model.PowerKeep) string {
	var out []string
	for _, k := range list {
		text := strconv.Itoa(int(k.Count))
		if k.Percent > 0 {
			text = strconv.Itoa(int(k.Percent)) + "%"
		}
		var when []string
		if k.Days != 0 {
			when = append(when, showDays(k.Days))
		}
		if k.From != 0 || k.To != 0 {
			when = append(when, fmt.Sprintf("%02d:%02d-%02d:%02d", k.From/60, k.From%60, k.To/60, k.To%60))
		}
		if len(when) > 0 {
			text += "@" + strings.Join(when, "/")
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

// showDays shows days that follow each other round the week.
func showDays(set uint8) string {
	name := func(d int) string { return strings.ToUpper(weekDays[d][:1]) + weekDays[d][1:] }
	for d := range 7 {
		if set&(1<<d) == 0 || set&(1<<((d+6)%7)) != 0 {
			continue
		}
		last := d
		for set&(1<<((last+1)%7)) != 0 {
			last = (last + 1) % 7
		}
		if last == d {
			return name(d)
		}
		return name(d) + "-" + name(last)
	}
	return "Sun-Sat"
}

// checkPower checks the settings for power against the nodes and partitions.
func (l *loader) checkPower() {
	p := &l.cfg.Power
	at := func(key string) pos { return l.seen[key] }
	for i := range p.Spare {
		p.Spare[i].Nodes = l.dropUnknown(p.Spare[i].Nodes, at("SuspendExcNodes"), "SuspendExcNodes")
	}
	for _, name := range p.SpareParts {
		if _, ok := l.partIndex[name]; !ok {
			l.probs.errorf(at("SuspendExcParts"), "write the names of partitions", "SuspendExcParts: %s is not a partition",
				shown(name))
		}
	}
	if p.On() {
		return
	}
	const hint = "write ResumeProgram and SuspendProgram, which start and stop nodes"
	if p.Suspend != "" || p.Resume != "" {
		key, missing := "SuspendProgram", "ResumeProgram"
		if p.Suspend == "" {
			key, missing = missing, key
		}
		l.probs.warnf(at(key), hint, "%s has no effect without %s", key, missing)
		return
	}
	for _, key := range []string{"SuspendTime", "PowerKeepIdle", "PowerMaxUse", "PowerJobsPerNode"} {
		if first, given := l.seen[key]; given && !(key == "SuspendTime" && p.SuspendS < 0) {
			l.probs.warnf(first, hint, "%s has no effect without ResumeProgram and SuspendProgram", key)
		}
	}
	for i := range l.cfg.Partitions {
		if part := &l.cfg.Partitions[i]; part.Power != nil {
			l.probs.warnf(pos{part.File, part.Line}, hint,
				"partition %s: what it says about power has no effect without ResumeProgram and SuspendProgram", part.Name)
		}
	}
}
