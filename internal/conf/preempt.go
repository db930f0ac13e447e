package conf

import (
	"strings"

	"gbatch/internal/walltime"
)

// Preempt says which jobs may push others out, and how.
type Preempt struct {
	Type        string // preempt/none, preempt/partition_prio or preempt/qos
	Mode        PreemptMode
	ExemptTimeS int64 // a job can't be preempted before it has run that long
}

// PreemptMode is how a job is preempted.
type PreemptMode struct {
	Action string // OFF, CANCEL, REQUEUE or SUSPEND
	Gang   bool   // time slicing
	Within bool   // also within one QOS
}

func (m PreemptMode) String() string {
	s := m.Action
	if m.Gang {
		s = "GANG," + s
	}
	if m.Within {
		s += ",WITHIN"
	}
	return s
}

var preemptActions = []string{"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN"}

func readPreemptMode(v string) (PreemptMode, fault) {
	m := PreemptMode{Action: "OFF"}
	words, f := readWords(v, preemptActions)
	if f.bad() {
		return m, f
	}
	actions := 0
	for _, w := range words {
		switch w {
		case "GANG":
			m.Gang = true
		case "WITHIN":
			m.Within = true
		default:
			m.Action, actions = w, actions+1
		}
	}
	if actions > 1 {
		return m, fault{shown(v) + " names two ways to preempt", "one of OFF, CANCEL, REQUEUE, SUSPEND"}
	}
	return m, fault{}
}

func preemptSettings() []setting {
	return []setting{
		word("PreemptType", AtOnce, func(c *Config) *string { return &c.Preempt.Type },
			"preempt/none", "preempt/partition_prio", "preempt/qos"),
		{name: "PreemptMode", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Preempt.Mode, f = readPreemptMode(v); return f },
			show: func(c *Config) string { return c.Preempt.Mode.String() }},
		{name: "PreemptExemptTime", effect: AtOnce,
			read: func(c *Config, v string) (f fault) {
				if v == "-1" {
					c.Preempt.ExemptTimeS = 0
					return fault{}
				}
				c.Preempt.ExemptTimeS, f = readDuration(v)
				return f
			},
			show: func(c *Config) string { return walltime.Elapsed(c.Preempt.ExemptTimeS) }},
	}
}

// checkPreempt holds the rules between the preemption keys.
func (l *loader) checkPreempt() {
	p := l.cfg.Preempt
	switch {
	case p.Type == "preempt/none" && p.Mode.Action != "OFF":
		l.probs.warnf(l.where("PreemptMode"), "write PreemptType=preempt/qos or preempt/partition_prio", "PreemptMode=%s has no effect with PreemptType=preempt/none", p.Mode)
	case p.Type != "preempt/none" && p.Mode.Action == "OFF" && !l.partitionPreempts():
		l.probs.warnf(l.where("PreemptType"), "write PreemptMode=REQUEUE or CANCEL", "%s has no effect with PreemptMode=OFF", "PreemptType="+p.Type)
	case p.Mode.Action == "SUSPEND" && !p.Mode.Gang:
		l.probs.errorf(l.where("PreemptMode"), "write PreemptMode=SUSPEND,GANG", "PreemptMode=SUSPEND needs GANG to resume what was suspended")
	}
}

func (l *loader) partitionPreempts() bool {
	for _, p := range l.cfg.Partitions {
		if !strings.EqualFold(p.PreemptMode.Action, "OFF") {
			return true
		}
	}
	return false
}
