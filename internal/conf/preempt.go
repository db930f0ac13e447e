package conf

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// Preempt says which jobs may preempt others, and how.
type Preempt struct {
	Type        string // preempt/none, preempt/partition_prio or preempt/qos
	Mode        PreemptMode
	ExemptTimeS int64 // a job can't be preempted before it has run that long
	Params      []string
	MinExempt   int64 // PreemptParameters=min_exempt_priority; 0: none
	SliceS      int64 // SchedulerTimeSlice: how long a turn of jobs that share CPUs takes
	StopGraceS  int64 // PreemptParameters=suspend_grace_time: between SIGTSTP and the freeze
	Youngest    bool  // PreemptParameters=youngest_first, or preempt_youngest_first of SchedulerParameters
	Strict      bool  // PreemptParameters=strict_order, or preempt_strict_order of SchedulerParameters
}

// Slurm's defaults, seconds.
const (
	defaultSliceS     = 30
	defaultStopGraceS = 2
)

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

func preemptType() setting {
	s := word("PreemptType", AtOnce, func(c *Config) *string { return &c.Preempt.Type }, "preempt/none",
		"preempt/partition_prio", "preempt/qos")
	s.remark = func(c *Config, _ string) (text, hint string) {
		if c.Preempt.Type != "preempt/qos" {
			return "PreemptType=" + c.Preempt.Type + ": Preempt and GuaranteedTRES of QOS have no effect",
				"write PreemptType=preempt/qos if a QOS has them (gacctmgr show qos format=name,preempt,guaranteedtres)"
		}
		return "", ""
	}
	return s
}

func preemptSettings() []setting {
	return []setting{
		preemptType(),
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
		{name: "SchedulerTimeSlice", effect: AtOnce,
			read: func(c *Config, v string) (f fault) {
				if c.Preempt.SliceS, f = readSeconds(v, 5, 65533); f.bad() {
					f.want = "30"
				}
				return f
			},
			show: func(c *Config) string { return strconv.FormatInt(c.Preempt.SliceS, 10) + " sec" }},
		{name: "PreemptParameters", effect: AtOnce, read: readPreemptParams, remark: remarkPreemptParams,
			show: func(c *Config) string { return orNull(strings.Join(c.Preempt.Params, ",")) }},
	}
}

// readPreemptParams reads PreemptParameters. Victims are of the lowest class and no more than needed, so that
// reorder_count says nothing more.
func readPreemptParams(c *Config, v string) fault {
	c.Preempt.Params, c.Preempt.MinExempt, c.Preempt.StopGraceS = nil, 0, defaultStopGraceS
	for _, item := range splitList(v) {
		name, value, _ := strings.Cut(item, "=")
		switch strings.ToLower(name) {
		case "min_exempt_priority":
			n, f := readInt(value, 1, math.MaxUint32)
			if f.bad() {
				return fault{"min_exempt_priority: " + f.why, "min_exempt_priority=1000"}
			}
			c.Preempt.MinExempt = n
		case "suspend_grace_time":
			n, f := readInt(value, 0, 65533)
			if f.bad() {
				return fault{"suspend_grace_time: " + f.why, "suspend_grace_time=2"}
			}
			c.Preempt.StopGraceS = n
		case "youngest_first":
			c.Preempt.Youngest = true
		case "strict_order":
			c.Preempt.Strict = true
		case "reorder_count", "send_user_signal", "reclaim_licenses":
		default:
			return fault{shown(item) + " is not a preemption parameter", "min_exempt_priority=1000 or youngest_first"}
		}
		c.Preempt.Params = append(c.Preempt.Params, item)
	}
	return fault{}
}

func remarkPreemptParams(_ *Config, v string) (text, hint string) {
	switch name, _, _ := strings.Cut(strings.ToLower(v), "="); name {
	case "reorder_count":
		return "PreemptParameters=" + v + " has no effect: the smallest set of jobs that makes room is always chosen, " +
				"unless strict_order is set",
			"leave it out"
	case "send_user_signal":
		return "PreemptParameters=" + v + ": preempted jobs get SIGCONT and SIGTERM", "trap SIGTERM in the script"
	case "reclaim_licenses":
		return "PreemptParameters=" + v + " has no effect: jobs are ended for CPUs, memory and generic resources",
			"leave it out"
	}
	return "", ""
}

// model gives what the controllers replicate.
func (p *Preempt) model() model.Preempt {
	return model.Preempt{ByQOS: p.Type == "preempt/qos", ByPartition: p.Type == "preempt/partition_prio",
		Mode: p.Mode.Action, Within: p.Mode.Within,
		ExemptS: p.ExemptTimeS, MinExempt: uint32(p.MinExempt), Gang: p.Mode.Gang, SliceS: p.SliceS, StopGraceS: p.StopGraceS}
}

// checkPreempt checks the rules between the preemption keys.
func (l *loader) checkPreempt() {
	p := l.cfg.Preempt
	switch {
	case p.Mode.Action == "SUSPEND" && !p.Mode.Gang:
		l.probs.errorf(l.where("PreemptMode"), "write PreemptMode=SUSPEND,GANG",
			"PreemptMode=SUSPEND needs GANG beside it, as in Slurm")
	case p.Type == "preempt/none" && p.Mode.Action != "OFF":
		l.probs.warnf(l.where("PreemptMode"), "write PreemptType=preempt/qos or preempt/partition_prio",
			"PreemptMode=%s has no effect with PreemptType=preempt/none", p.Mode)
	case p.Type == "preempt/qos" && p.Mode.Action == "OFF":
		l.probs.notef(l.where("PreemptType"), "write PreemptMode=REQUEUE or CANCEL for the others",
			"with PreemptMode=OFF, only jobs of QOS that have a PreemptMode of their own are preempted")
	case p.Type != "preempt/none" && p.Mode.Action == "OFF" && !l.partitionPreempts():
		l.probs.warnf(l.where("PreemptType"), "write PreemptMode=REQUEUE or CANCEL", "%s has no effect with PreemptMode=OFF",
			"PreemptType="+p.Type)
	case p.Mode.Within && p.Type != "preempt/qos":
		l.probs.errorf(l.where("PreemptMode"), "write PreemptType=preempt/qos",
			"PreemptMode=%s: WITHIN is for jobs of one QOS", p.Mode)
	}
}

// checkSuspends checks that partitions with SUSPEND fit the cluster's own settings.
func (l *loader) checkSuspends() {
	for _, p := range l.cfg.Partitions {
		if p.PreemptMode.Action == "SUSPEND" && !l.cfg.Preempt.Mode.Gang && l.cfg.Preempt.Mode.Action != "SUSPEND" {
			l.probs.errorf(pos{p.File, p.Line}, "write PreemptMode=GANG, or SUSPEND,GANG, in a line of its own",
				"partition %s: PreemptMode=SUSPEND needs GANG in the cluster's PreemptMode", p.Name)
		}
	}
}

// namedPart is a partition, and where something of it was set.
type namedPart struct {
	name string
	at   pos
}

// checkExclusives says of partitions whose lines have OverSubscribe=NO that this keeps no job from being suspended.
func (l *loader) checkExclusives() {
	if p := l.cfg.Preempt; p.Mode.Action != "SUSPEND" || p.Type == "preempt/none" {
		return
	}
	for _, p := range l.exclusives {
		l.probs.notef(p.at, "write PreemptMode=OFF on its line if none of its jobs is to be suspended",
			"partition %s: jobs may be suspended for others in spite of OverSubscribe=NO", p.name)
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

// Batch jobs go back into the queue for their exit codes too.

// exitSettings are about the ends of jobs: RequeueExit and what belongs to it, and ResvOverRun.
func exitSettings() []setting {
	return []setting{
		exitCodes("RequeueExit", func(c *Config) *[]int32 { return &c.RequeueExit }),
		exitCodes("RequeueExitHold", func(c *Config) *[]int32 { return &c.RequeueExitHold }),
		{name: "ResvOverRun", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.ResvOverRunS, f = readOverTime(v); return f },
			show: func(c *Config) string { return showOverTime(c.ResvOverRunS) + " min" }},
		number("MaxBatchRequeue", AtOnce, func(c *Config) *int64 { return &c.MaxBatchRequeue }, 0, 65533),
	}
}

// exitCodes is a list of exit codes and ranges, such as 1-9,18.
func exitCodes(name string, at func(*Config) *[]int32) setting {
	return setting{name: name, effect: AtOnce,
		read: func(c *Config, v string) fault {
			codes, err := hostlist.ParseIndexes(v)
			if err != nil {
				return fault{shown(v) + " is no list of exit codes and ranges of them", "1-9,18"}
			}
			*at(c) = nil
			for _, n := range codes {
				if n > 255 {
					return fault{fmt.Sprintf("%d is no exit code: they go from 0 to 255", n), "1-9,18"}
				}
				*at(c) = append(*at(c), int32(n))
			}
			return fault{}
		},
		show: func(c *Config) string {
			var codes model.Bits
			for _, n := range *at(c) {
				codes = codes.With(int(n))
			}
			return orNull(codes.String())
		},
	}
}

// exits gives the rules as the state has them.
func (c *Config) exits() model.ExitRules {
	r := model.ExitRules{Requeue: c.RequeueExit, Hold: c.RequeueExitHold}
	switch c.MaxBatchRequeue {
	case model.DefaultBatchRequeue: // as in a configuration of before
	case 0:
		r.Most = -1
	default:
		r.Most = int32(c.MaxBatchRequeue)
	}
	return r
}
