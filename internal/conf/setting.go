package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// Status says how gbatch treats a key.
type Status uint8

// The statuses.
const (
	Effective Status = iota // read into a field of Config and acted upon
	Unused                  // read into a field, but no part of this version acts on it: a warning says so
	Accepted                // known to Slurm, without meaning here: a note says what gbatch does instead
	Obsolete                // known to older Slurms: a note says what to write today
)

// Effect says when a changed value takes effect after a reconfigure.
type Effect uint8

// The effects.
const (
	AtOnce       Effect = iota
	NewJobs             // for jobs submitted from now on
	NextStart           // for jobs that start from now on
	NewSteps            // for steps that start from now on
	RestartCtld         // when gctld is restarted
	RestartNoded        // when gnoded is restarted
	RestartDbd          // when gdbd is restarted
	RestartAll          // when all daemons are restarted
)

func (e Effect) String() string {
	return [...]string{
		"at once", "for jobs submitted from now on", "for jobs that start from now on",
		"for steps that start from now on", "when gctld is restarted",
		"when gnoded is restarted", "when gdbd is restarted", "when all daemons are restarted",
	}[e]
}

// setting is one key of the main file outside node, partition and set lines.
type setting struct {
	name   string
	status Status
	effect Effect
	// note explains an Accepted or Obsolete key. lost says that a request won't be fulfilled: a warning instead of a
	// note.
	note string
	lost bool
	// instead is what to do in place of an Unused key.
	instead string
	// quiet are values, in lower case, that ask for gbatch's own behaviour: no note.
	quiet []string
	// many allows the key on several lines.
	many bool
	// read stores the value; a key that is only accepted has none.
	read func(c *Config, v string) fault
	// remark returns a remark about a value that was read: of a list, about each of its words.
	remark func(c *Config, v string) (text, hint string)
	// show gives the value in effect as scontrol shows it; nil: not shown.
	show func(c *Config) string
}

// The constructors below make settings of a field; "at" gives the field.

func text(name string, e Effect, at func(*Config) *string) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) fault { *at(c) = v; return fault{} },
		show: func(c *Config) string { return orNull(*at(c)) },
	}
}

// absPath is a path that must be absolute; an empty one is the default, whatever lines above say.
func absPath(name string, e Effect, at func(*Config) *string) setting {
	s := text(name, e, at)
	s.read = func(c *Config, v string) fault {
		if v == "" {
			*at(c) = *at(defaults())
			return fault{}
		}
		if !strings.HasPrefix(v, "/") {
			return fault{shown(v) + " is not an absolute path", "/" + v}
		}
		*at(c) = v
		return fault{}
	}
	return s
}

// programs are absolute paths, one per line of the key or comma-separated.
func programs(name string, e Effect, at func(*Config) *[]string) setting {
	return setting{name: name, effect: e, many: true,
		read: func(c *Config, v string) fault {
			for _, p := range splitList(v) {
				if !strings.HasPrefix(p, "/") {
					return fault{shown(p) + " is not an absolute path", "/" + p}
				}
				*at(c) = append(*at(c), p)
			}
			return fault{}
		},
		show: func(c *Config) string { return orNull(strings.Join(*at(c), ",")) },
	}
}

func word(name string, e Effect, at func(*Config) *string, words ...string) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) { *at(c), f = readWord(v, words); return f },
		show: func(c *Config) string { return orNull(*at(c)) },
	}
}

// list is a comma-separated list; with words, only those are taken.
func list(name string, e Effect, at func(*Config) *[]string, words ...string) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) {
			if len(words) > 0 {
				*at(c), f = readWords(v, words)
				return f
			}
			*at(c) = splitList(v)
			return fault{}
		},
		show: func(c *Config) string { return orNull(strings.Join(*at(c), ",")) },
	}
}

func number(name string, e Effect, at func(*Config) *int64, least, most int64) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) { *at(c), f = readInt(v, least, most); return f },
		show: func(c *Config) string { return strconv.FormatInt(*at(c), 10) },
	}
}

func seconds(name string, e Effect, at func(*Config) *int64, least, most int64) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) { *at(c), f = readSeconds(v, least, most); return f },
		show: func(c *Config) string { return showSeconds(*at(c)) },
	}
}

// duration is a span written like a time limit; some keys take NONE as 0.
func duration(name string, e Effect, at func(*Config) *int64) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) {
			if strings.EqualFold(v, "NONE") || v == "-1" {
				*at(c) = 0
				return fault{}
			}
			*at(c), f = readDuration(v)
			return f
		},
		show: func(c *Config) string { return walltime.Elapsed(*at(c)) },
	}
}

func yesNo(name string, e Effect, at func(*Config) *bool) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) { *at(c), f = readBool(v); return f },
		show: func(c *Config) string { return showBool(*at(c)) },
	}
}

// zeroOne is a switch that scontrol shows as 0 or 1.
func zeroOne(name string, e Effect, at func(*Config) *bool) setting {
	s := yesNo(name, e, at)
	s.show = func(c *Config) string {
		if *at(c) {
			return "1"
		}
		return "0"
	}
	return s
}

// memory is a size of which one of a pair may be set; scontrol shows only the
// one that is.
func memory(name string, e Effect, at func(*Config) *int64) setting {
	return setting{name: name, effect: e,
		read: func(c *Config, v string) (f fault) { *at(c), f = readMem(v); return f },
		show: func(c *Config) string {
			if *at(c) == 0 {
				return "UNLIMITED"
			}
			return strconv.FormatInt(*at(c), 10)
		},
	}
}

// accepted is a key with status Accepted.
func accepted(note string, names ...string) []setting {
	out := make([]setting, len(names))
	for i, n := range names {
		out[i] = setting{name: n, status: Accepted, note: note}
	}
	return out
}

// notDone is a key that asks for something that gbatch doesn't do.
func notDone(note string, names ...string) []setting {
	out := accepted(note, names...)
	for i := range out {
		out[i].lost = true
	}
	return out
}

// unless sets the values that ask for gbatch's own behaviour.
func unless(s []setting, values ...string) []setting {
	for i := range s {
		s[i].quiet = values
	}
	return s
}

func obsolete(note string, names ...string) []setting {
	out := accepted(note, names...)
	for i := range out {
		out[i].status = Obsolete
	}
	return out
}

// table finds settings by name.
type table struct {
	list   []setting
	byName map[string]*setting
}

func newTable(list []setting) *table {
	t := &table{list: list, byName: make(map[string]*setting, len(list))}
	for i := range t.list {
		t.byName[strings.ToLower(t.list[i].name)] = &t.list[i]
	}
	return t
}

func (t *table) names() []string {
	out := make([]string, len(t.list))
	for i := range t.list {
		out[i] = t.list[i].name
	}
	return out
}

// apply reads one key=value of the main file into the configuration.
func (l *loader) apply(p pair) {
	s := l.settings.byName[strings.ToLower(p.key)]
	if s == nil {
		l.unknownKey(p)
		return
	}
	if first, again := l.seen[s.name]; again && !s.many {
		l.probs.warnf(p.at, "keep one of the lines", "%s is set twice, first in line %d of %s; the last one is used", s.name,
			first.line, first.file)
	} else if !again {
		l.seen[s.name] = p.at
	}
	if s.status > Unused && !hasFold(s.quiet, p.value) {
		l.explain(s, p)
	}
	if s.read == nil {
		return
	}
	before := *l.cfg
	if f := s.read(l.cfg, p.value); f.bad() {
		*l.cfg = before // so that nothing else seems wrong
		l.wrongValue(p.at, s.name, f)
		return
	}
	if s.remark != nil {
		for _, word := range splitList(p.value) {
			if text, hint := s.remark(l.cfg, word); text != "" {
				l.probs.notef(p.at, hint, "%s", text)
			}
		}
	}
	if s.status == Unused && (s.show == nil && !asksNothing(p.value) || s.show != nil &&
		s.show(l.cfg) != s.show(defaults())) {
		l.probs.warnf(p.at, s.instead, "%s", s.name+hasNoEffect)
	}
}

// hasNoEffect is the text after the name of a key that is read but not used.
const hasNoEffect = " has no effect in this version of gbatch"

// asksNothing reports whether a value of a key without effect asks for what
// happens anyway.
func asksNothing(v string) bool {
	switch strings.ToLower(v) {
	case "", "no", "0", "off", "none", "all", "unlimited", "false", "default":
		return true
	}
	return false
}

// wrongValue reports a value that can't be read, with what to write instead.
func (l *loader) wrongValue(at pos, key string, f fault) {
	want := f.want
	if s := l.settings.byName[strings.ToLower(key)]; want == "" && s != nil && s.show != nil {
		want = strings.TrimSuffix(s.show(defaults()), " sec")
	}
	hint := ""
	if want != "" && want != orNull("") {
		hint = fmt.Sprintf("write %s=%s", key, want)
	}
	l.probs.errorf(at, hint, "%s: %s", key, f.why)
}

// explain gives the note for a key without effect.
func (l *loader) explain(s *setting, p pair) {
	sev, hint := Note, ""
	switch {
	case s.lost:
		sev = Warning
	case s.status == Obsolete:
		hint = "remove it"
	}
	if s.read != nil {
		hint = "" // an old name that still works: the note says the new one
	}
	text, after, hasHint := strings.Cut(s.note, "; ")
	if hasHint {
		hint = after
	}
	l.probs.add(p.at, sev, hint, "%s %s", s.name, text)
}

func hasFold(words []string, v string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return sameWord(v, w) })
}

// EffectOf says when a change of a key of KeyValues takes effect.
func EffectOf(key string) Effect {
	name, _, _ := strings.Cut(key, "[") // SlurmctldHost[0]
	if s := mainSettings().byName[strings.ToLower(name)]; s != nil {
		return s.effect
	}
	return AtOnce // SLURM_CONF: where the files are
}

// KeyValues returns every setting in effect as `gcontrol show config` prints
// it: Slurm's names, alphabetically.
func (c *Config) KeyValues() []model.KV {
	var out []model.KV
	t := mainSettings()
	for i := range t.list {
		s := &t.list[i]
		if s.show == nil || s.status > Unused || c.hidesKey(s.name) {
			continue
		}
		out = append(out, model.KV{Key: s.name, Value: s.show(c)})
	}
	for i, ctl := range c.Controllers {
		out = append(out, model.KV{Key: fmt.Sprintf("SlurmctldHost[%d]", i),
			Value: fmt.Sprintf("%s(%s)", ctl.Name, ctl.Addr)})
	}
	out = append(out, model.KV{Key: "SLURM_CONF", Value: c.Path})
	sortKVs(out)
	return out
}

// hidesKey says which of a pair scontrol leaves out: the one that isn't set.
func (c *Config) hidesKey(name string) bool {
	switch name {
	case "DefMemPerCPU":
		return c.Mem.DefPerCPUMiB == 0
	case "DefMemPerNode":
		return c.Mem.DefPerCPUMiB != 0
	case "MaxMemPerCPU":
		return c.Mem.MaxPerCPUMiB == 0
	case "MaxMemPerNode":
		return c.Mem.MaxPerCPUMiB != 0
	}
	return false
}
