package conf

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gbatch/internal/model"
)

// Scheduler is SchedulerType with SchedulerParameters.
type Scheduler struct {
	Type   string     // sched/backfill, or sched/builtin for no backfill
	Params []model.KV // every parameter in the order given, "" where it has no value

	Defer             bool // don't try to start a job at its submission
	BatchDelayS       int64
	IntervalS         int64 // longest time between two passes
	MinIntervalUS     int64 // shortest time between two passes
	QueueDepth        int64 // default_queue_depth
	PartitionDepth    int64 // partition_job_depth; 0: no limit
	MaxStart          int64 // jobs started in one pass; 0: no limit
	MaxSwitchWaitS    int64
	RequeueDelayS     int64 // requeue_delay: how long jobs that were put back wait
	MaxScriptBytes    int64
	MaxStoredBytes    int64 // of scripts and environments of one user's jobs; 0: any number
	MaxArrayTasks     int64 // 0: MaxArraySize
	AssocLimitStop    bool
	EnableUserTop     bool
	PreemptStrict     bool
	PreemptYoungest   bool
	PreemptReorder    int64
	NoHoldOnPrologErr bool
	PackSerialAtEnd   bool
	SpecCoresFirst    bool
	CompletingByPart  bool // reduce_completing_frag
	Backfill          Backfill
}

// Backfill is the bf_ part of SchedulerParameters; 0 is no limit.
type Backfill struct {
	IntervalS       int64
	WindowMin       int64
	ResolutionS     int64
	MaxTimeS        int64 // 0: IntervalS
	MaxJobTest      int64
	MaxJobStart     int64
	MaxJobPart      int64
	MaxJobUser      int64
	MaxJobUserPart  int64
	MaxJobAssoc     int64
	MaxJobArrayResv int64
	MinAgeReserveS  int64
	MinPrioReserve  int64
	YieldIntervalUS int64
	YieldSleepUS    int64
	Continue        bool
	BusyNodes       bool
	OneResvPerJob   bool
	Licenses        bool
}

// backfill gives the part that the controllers replicate. Slurm reserves for every job that it looks at, and looks at
// 500; here all jobs are looked at and the first of each partition have reservations (sched.DefaultReserve), unless
// bf_max_job_test is given. Reservations look ahead without limit, unless bf_window is given: beyond it they protect no
// job. bf_interval=-1 turns backfill off.
func (s *Scheduler) backfill() model.Backfill {
	b := &s.Backfill
	m := model.Backfill{On: s.Type == "sched/backfill" && b.IntervalS >= 0, IntervalS: max(0, b.IntervalS),
		MaxTimeS: b.MaxTimeS, ResolutionS: b.ResolutionS,
		MaxStart: count32(b.MaxJobStart), MaxPart: count32(b.MaxJobPart), MaxUser: count32(b.MaxJobUser),
		MaxUserPart: count32(b.MaxJobUserPart), MaxAssoc: count32(b.MaxJobAssoc), MaxArrayResv: count32(b.MaxJobArrayResv),
		MinAgeReserveS: b.MinAgeReserveS, MinPrioReserve: b.MinPrioReserve, Continue: b.Continue, BusyNodes: b.BusyNodes,
		MinIntervalUS: s.MinIntervalUS}
	if _, given := s.Param("bf_max_job_test"); given {
		m.MaxTest = count32(b.MaxJobTest)
	}
	if _, given := s.Param("bf_window"); given {
		m.WindowS = b.WindowMin * 60
	}
	if s.Defer {
		m.DelayS = max(1, s.BatchDelayS)
	}
	return m
}

// count32 gives a count that a message can hold.
func count32(n int64) int32 { return int32(min(n, math.MaxInt32)) }

func defaultScheduler() Scheduler {
	return Scheduler{
		Type: "sched/backfill", BatchDelayS: 3, IntervalS: 60, MinIntervalUS: 2, QueueDepth: 100, MaxSwitchWaitS: 300,
		RequeueDelayS:  120,
		MaxScriptBytes: DefaultMaxScriptBytes, MaxStoredBytes: DefaultMaxStoredBytes, PreemptReorder: 1,
		Backfill: Backfill{
			IntervalS: 30, WindowMin: 1440, ResolutionS: 60, MaxJobTest: 500, MaxJobArrayResv: 20,
			YieldIntervalUS: 2_000_000, YieldSleepUS: 500_000,
		},
	}
}

// Param returns a parameter as it was given.
func (s *Scheduler) Param(name string) (value string, given bool) {
	for _, p := range s.Params {
		if strings.EqualFold(p.Key, name) {
			return p.Value, true
		}
	}
	return "", false
}

// schedParam is one word of SchedulerParameters: a flag, a number within
// bounds, or one that has no meaning here.
type schedParam struct {
	name        string
	flag        func(*Scheduler) *bool
	num         func(*Scheduler) *int64
	least, most int64
	note        string
	lost        bool
}

func schedNum(name string, at func(*Scheduler) *int64, least, most int64) schedParam {
	return schedParam{name: name, num: at, least: least, most: most}
}

func schedParams() []schedParam {
	flag := func(name string, at func(*Scheduler) *bool) schedParam { return schedParam{name: name, flag: at} }
	num := schedNum
	out := []schedParam{
		flag("defer", func(s *Scheduler) *bool { return &s.Defer }),
		flag("defer_batch", func(s *Scheduler) *bool { return &s.Defer }),
		flag("assoc_limit_stop", func(s *Scheduler) *bool { return &s.AssocLimitStop }),
		flag("enable_user_top", func(s *Scheduler) *bool { return &s.EnableUserTop }),
		flag("preempt_strict_order", func(s *Scheduler) *bool { return &s.PreemptStrict }),
		flag("preempt_youngest_first", func(s *Scheduler) *bool { return &s.PreemptYoungest }),
		flag("nohold_on_prolog_fail", func(s *Scheduler) *bool { return &s.NoHoldOnPrologErr }),
		flag("pack_serial_at_end", func(s *Scheduler) *bool { return &s.PackSerialAtEnd }),
		flag("reduce_completing_frag", func(s *Scheduler) *bool { return &s.CompletingByPart }),
		flag("spec_cores_first", func(s *Scheduler) *bool { return &s.SpecCoresFirst }),
		flag("bf_continue", func(s *Scheduler) *bool { return &s.Backfill.Continue }),
		flag("bf_busy_nodes", func(s *Scheduler) *bool { return &s.Backfill.BusyNodes }),
		flag("bf_one_resv_per_job", func(s *Scheduler) *bool { return &s.Backfill.OneResvPerJob }),
		flag("bf_licenses", func(s *Scheduler) *bool { return &s.Backfill.Licenses }),
		num("batch_sched_delay", func(s *Scheduler) *int64 { return &s.BatchDelayS }, 0, 3600),
		num("sched_interval", func(s *Scheduler) *int64 { return &s.IntervalS }, 1, 86400),
		num("sched_min_interval", func(s *Scheduler) *int64 { return &s.MinIntervalUS }, 0, math.MaxInt32),
		num("default_queue_depth", func(s *Scheduler) *int64 { return &s.QueueDepth }, 0, math.MaxInt32),
		num("partition_job_depth", func(s *Scheduler) *int64 { return &s.PartitionDepth }, 0, math.MaxInt32),
		num("sched_max_job_start", func(s *Scheduler) *int64 { return &s.MaxStart }, 0, math.MaxInt32),
		num("max_switch_wait", func(s *Scheduler) *int64 { return &s.MaxSwitchWaitS }, 0, math.MaxInt32),
		num("requeue_delay", func(s *Scheduler) *int64 { return &s.RequeueDelayS }, 0, math.MaxInt32),
		num("max_script_size", func(s *Scheduler) *int64 { return &s.MaxScriptBytes }, 1, MaxScriptBytesLimit),
		num("max_user_scripts_size", func(s *Scheduler) *int64 { return &s.MaxStoredBytes }, 0, math.MaxInt64),
		num("max_array_tasks", func(s *Scheduler) *int64 { return &s.MaxArrayTasks }, 0, 4_000_001),
		num("preempt_reorder_count", func(s *Scheduler) *int64 { return &s.PreemptReorder }, 0, math.MaxInt32),
		num("bf_interval", func(s *Scheduler) *int64 { return &s.Backfill.IntervalS }, -1, 10800),
		num("bf_window", func(s *Scheduler) *int64 { return &s.Backfill.WindowMin }, 1, 43200),
		num("bf_resolution", func(s *Scheduler) *int64 { return &s.Backfill.ResolutionS }, 1, 3600),
		num("bf_max_time", func(s *Scheduler) *int64 { return &s.Backfill.MaxTimeS }, 1, 3600),
		num("bf_max_job_test", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobTest }, 1, 1_000_000),
		num("bf_max_job_start", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobStart }, 0, 10_000),
		num("bf_max_job_part", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobPart }, 0, 1_000_000),
		num("bf_max_job_user", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobUser }, 0, 1_000_000),
		num("bf_max_job_user_part", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobUserPart }, 0, 1_000_000),
		num("bf_max_job_assoc", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobAssoc }, 0, 1_000_000),
		num("bf_max_job_array_resv", func(s *Scheduler) *int64 { return &s.Backfill.MaxJobArrayResv }, 0, 1000),
		num("bf_min_age_reserve", func(s *Scheduler) *int64 { return &s.Backfill.MinAgeReserveS }, 0, 2592000),
		num("bf_min_prio_reserve", func(s *Scheduler) *int64 { return &s.Backfill.MinPrioReserve }, 0, math.MaxUint32),
		num("bf_yield_interval", func(s *Scheduler) *int64 { return &s.Backfill.YieldIntervalUS }, 1, 10_000_000),
		num("bf_yield_sleep", func(s *Scheduler) *int64 { return &s.Backfill.YieldSleepUS }, 1, 10_000_000),
	}
	for i := range out {
		switch out[i].name {
		case "bf_yield_interval", "bf_yield_sleep":
			out[i].note = "has no effect: a pass holds no lock, so there is none to release"
		case "bf_continue":
			out[i].note = "has no effect: every pass covers the whole queue at one moment, and " +
				"the next, which follows at once, sees what has changed meanwhile"
		case "bf_licenses", "bf_one_resv_per_job":
			out[i].note = "has no effect: gbatch always does this"
		case "sched_interval":
			out[i].note = "has no effect: a pass runs whenever something has changed"
		case "preempt_reorder_count":
			out[i].note = "has no effect: the smallest set of jobs that makes room is always chosen, unless " +
				"preempt_strict_order is set"
		case "pack_serial_at_end":
			out[i].lost, out[i].note = true,
				"is not supported: jobs on one CPU are placed by Weight as all others are; a partition of their own on the last "+
					"nodes keeps the others whole"
		case "spec_cores_first":
			out[i].lost, out[i].note = true, "is not supported: specialized cores are a node's last; see CpuSpecList"
		}
	}
	inert := func(lost bool, note string, names ...string) {
		for _, n := range names {
			out = append(out, schedParam{name: n, note: note, lost: lost})
		}
	}
	inert(false, "has no effect here: queries never take the scheduler's lock, and passes are bounded by counts",
		"max_rpc_cnt", "max_sched_time", "build_queue_timeout", "bf_node_space_size", "bf_topopt_enable",
		"bf_topopt_iterations", "sched_allow_unlimited", "yield_rpc_only")
	inert(false, "has no effect here: the backfill calendar holds every running job, at bf_resolution",
		"bf_running_job_reserve", "bf_window_linear", "bf_job_part_count_reserve")
	inert(false, "has no effect here: every pass tries magnetic reservations", "bf_allow_magnetic_resv")
	inert(false, "has no effect here: any controller that leads also schedules", "no_backup_scheduling")
	inert(false, "has no effect here: a job starts when all its nodes are up", "salloc_wait_nodes", "sbatch_wait_nodes")
	inert(false, "has no effect here: steps are retried when something becomes free, not on a timer", "step_retry_count",
		"step_retry_time")
	inert(false, "has no effect here: what a login shell gave (gsubmit --get-user-env) is good for half a minute, and "+
		"never comes from a file", "no_env_cache", "requeue_setup_env_fail")
	inert(true, "is a word of DependencyParameters", dependKill, dependSingleton, dependDepth)
	inert(true, "is not supported: there are no burst buffers", "bb_array_stage_cnt")
	inert(false, "has no effect here: a heterogeneous job has one place in the queue, and its components start in "+
		"one pass", "bf_hetjob_immediate", "bf_hetjob_prio")
	inert(true, "is not supported: steps may always have tasks in several components of a heterogeneous job",
		"disable_hetjob_steps")
	inert(false, "has no effect here: steps may always have tasks in several components of a heterogeneous job",
		"enable_hetjob_steps")
	inert(true, "is not supported: name the job, and all of its components are changed", "whole_hetjob")
	inert(true, "isn't done",
		"allow_zero_lic", "correspond_after_task_cnt", "delay_boot", "disable_job_shrink", "extra_constraints",
		"ignore_constraint_validation", "ignore_prefer_validation", "preempt_send_user_signal", "time_min_as_soft_limit")
	return out
}

var schedTypes = []string{"sched/backfill", "sched/builtin"}

func schedulerSettings() []setting {
	return []setting{
		word("SchedulerType", AtOnce, func(c *Config) *string { return &c.Scheduler.Type }, schedTypes...),
		{name: "SchedulerParameters", effect: AtOnce, show: func(c *Config) string {
			var parts []string
			for _, p := range c.Scheduler.Params {
				if p.Value != "" {
					parts = append(parts, p.Key+"="+p.Value)
				} else {
					parts = append(parts, p.Key)
				}
			}
			return orNull(strings.Join(parts, ","))
		}},
	}
}

// readScheduler reads the value of SchedulerParameters.
func (l *loader) readScheduler(p pair) {
	for _, item := range splitList(p.value) {
		name, value, _ := strings.Cut(item, "=")
		l.schedParam(strings.TrimSpace(name), strings.TrimSpace(value), p.at)
	}
}

// checkScheduler warns about parameters that have an effect only without backfill.
func (l *loader) checkScheduler() {
	if s := &l.cfg.Scheduler; s.PartitionDepth > 0 && s.backfill().On {
		l.probs.notef(l.where("SchedulerParameters"), "write bf_max_job_part",
			"SchedulerParameters: partition_job_depth acts with SchedulerType=sched/builtin only: with backfill, starting "+
				"from the head and backfilling are one pass, which bf_max_job_part bounds for each partition")
	}
	for _, need := range []struct{ word, with string }{{"batch_sched_delay", "defer"},
		{"bf_max_job_array_resv", "bf_max_job_test"}} {
		_, given := l.cfg.Scheduler.Param(need.word)
		if _, has := l.cfg.Scheduler.Param(need.with); given && !has && (need.with != "defer" || !l.cfg.Scheduler.Defer) {
			l.probs.notef(l.where("SchedulerParameters"), "add "+need.with+", or leave it out",
				"SchedulerParameters: %s has no effect without %s", need.word, need.with)
		}
	}
}

// bareSchedParam handles a scheduler parameter that is written as a key of its own. It reports whether key is one.
func (l *loader) bareSchedParam(p pair) bool {
	if !slices.ContainsFunc(l.schedParams, func(s schedParam) bool { return strings.EqualFold(s.name, p.key) }) {
		return false
	}
	value, off := p.value, false
	if b, f := readBool(value); !f.bad() && l.isSchedFlag(p.key) {
		value, off = "", !b
	}
	hint := "write SchedulerParameters=" + p.key
	switch {
	case off:
		hint = "remove it"
	case value != "":
		hint += "=" + value
	}
	l.probs.notef(p.at, hint, "%s is not a key but part of SchedulerParameters, and is read as if it were there", p.key)
	if !off {
		l.schedParam(p.key, value, p.at)
	}
	return true
}

// schedWords are the names of all parameters, in lower case.
var schedWords = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	for _, s := range schedParams() {
		words[strings.ToLower(s.name)] = true
	}
	return words
})

// isSchedWord reports whether a word without a value is a scheduler parameter.
func isSchedWord(word string) bool { return schedWords()[strings.ToLower(word)] }

func (l *loader) isSchedFlag(name string) bool {
	return slices.ContainsFunc(l.schedParams,
		func(s schedParam) bool { return strings.EqualFold(s.name, name) && s.flag != nil })
}

func (l *loader) schedParam(name, value string, at pos) {
	i := slices.IndexFunc(l.schedParams, func(s schedParam) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		names := make([]string, len(l.schedParams))
		for i, s := range l.schedParams {
			names[i] = s.name
		}
		sev, hint := Warning, "remove it"
		if near := nearest(name, names); near != "" {
			sev, hint = Error, "did you mean "+near+"?"
		}
		l.probs.add(at, sev, hint, "SchedulerParameters: unknown parameter %s", shown(name))
		return
	}
	s := l.schedParams[i]
	sched := &l.cfg.Scheduler
	kv := model.KV{Key: s.name, Value: value}
	if j := slices.IndexFunc(sched.Params, func(p model.KV) bool { return p.Key == s.name }); j >= 0 {
		sched.Params[j] = kv
	} else {
		sched.Params = append(sched.Params, kv)
	}
	switch {
	case s.flag != nil && value != "":
		b, f := readBool(value)
		if f.bad() {
			l.probs.errorf(at, "write SchedulerParameters="+s.name,
				"SchedulerParameters: %s takes yes, no or no value, not %s", s.name, shown(value))
			return
		}
		*s.flag(sched) = b
	case s.flag != nil:
		*s.flag(sched) = true
	case s.num != nil:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < s.least || n > s.most {
			def := defaultScheduler()
			l.probs.errorf(at, fmt.Sprintf("write SchedulerParameters=%s=%d", s.name, max(*s.num(&def), s.least)),
				"SchedulerParameters: %s=%s is not a whole number from %d to %d", s.name, shown(value), s.least, s.most)
			return
		}
		*s.num(sched) = n
	}
	switch {
	case s.note == "":
	case s.lost:
		l.probs.warnf(at, "remove it", "SchedulerParameters: %s %s", s.name, s.note)
	default:
		l.probs.notef(at, "remove it", "SchedulerParameters: %s %s", s.name, s.note)
	}
}

// The words of DependencyParameters.
const (
	dependKill      = "kill_invalid_depend"
	dependSingleton = "disable_remote_singleton"
	dependDepth     = "max_depend_depth"
)

// dependSetting is DependencyParameters.
func dependSetting() setting {
	return setting{name: "DependencyParameters", effect: AtOnce, read: readDepend, remark: remarkDepend,
		show: func(c *Config) string { return orNull(strings.Join(c.DependencyParameters, ",")) }}
}

// readDepend reads DependencyParameters.
func readDepend(c *Config, v string) fault {
	var words []string
	for _, w := range splitList(v) {
		name, n, valued := strings.Cut(w, "=")
		word, f := readWord(name, []string{dependSingleton, dependKill, dependDepth})
		switch {
		case f.bad():
			return f
		case word == dependDepth:
			if _, f := readInt(n, 1, maxDependDepth); f.bad() {
				return fault{why: word + ": " + f.why, want: word + "=10"}
			}
		case valued:
			return fault{why: word + " takes no value", want: word}
		}
		if valued {
			word += "=" + n
		}
		words = append(words, word)
	}
	c.DependencyParameters = words
	return fault{}
}

// maxDependDepth bounds max_depend_depth.
const maxDependDepth = 1 << 30

// dependRules gives what DependencyParameters asks for.
func (c *Config) dependRules() (kill bool, depth int32) {
	for _, w := range c.DependencyParameters {
		switch name, n, _ := strings.Cut(w, "="); name {
		case dependKill:
			kill = true
		case dependDepth:
			d, _ := readInt(n, 1, maxDependDepth) // readDepend has checked it
			depth = int32(d)
		}
	}
	return kill, depth
}

// remarkDepend says which words change nothing here.
func remarkDepend(_ *Config, v string) (text, hint string) {
	if strings.EqualFold(v, dependSingleton) {
		return "DependencyParameters=" + dependSingleton + " has no effect: clusters are not federated, so a singleton " +
			"never waits for another cluster", "remove it"
	}
	return "", ""
}
