package conf

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/logfile"
	"gbatch/internal/model"
)

// The keys of the main file that have an effect. keys_accepted.go has those of
// Slurm that have none here.

func mainSettings() *table {
	var all []setting
	all = append(all, identitySettings()...)
	all = append(all, placeSettings()...)
	all = append(all, httpSettings()...)
	all = append(all, accountingSettings()...)
	all = append(all, priceSettings()...)
	all = append(all, jobSettings()...)
	all = append(all, nodeSettings()...)
	all = append(all, gpuSettings()...)
	all = append(all, taskSettings()...)
	all = append(all, launchSettings()...)
	all = append(all, exitSettings()...)
	all = append(all, hookSettings()...)
	all = append(all, containerSettings()...)
	all = append(all, powerSettings()...)
	all = append(all, prioritySettings()...)
	all = append(all, preemptSettings()...)
	all = append(all, schedulerSettings()...)
	all = append(all, acceptedSettings()...)
	t := newTable(all)
	for _, u := range unusedKeys {
		s := t.byName[strings.ToLower(u.name)]
		s.status, s.instead = Unused, u.instead
	}
	return t
}

func identitySettings() []setting {
	return []setting{
		{name: "ClusterName", effect: RestartAll,
			read: func(c *Config, v string) fault {
				if v == "" || len(v) > 40 || strings.Trim(strings.ToLower(v), "abcdefghijklmnopqrstuvwxyz0123456789_-.") != "" {
					return fault{shown(v) + " is not a name of up to 40 letters, digits, _ and -", "mycluster"}
				}
				c.ClusterName = v
				return fault{}
			},
			show: func(c *Config) string { return orNull(c.ClusterName) }},
		// SlurmctldHost lines become Controllers in controllers.go; KeyValues shows them one by one.
		{name: "SlurmctldHost", effect: RestartAll, many: true},
		portSetting("SlurmctldPort", RestartAll, func(c *Config) *int64 { return &c.SlurmctldPort }),
		portSetting("SlurmdPort", RestartNoded, func(c *Config) *int64 { return &c.SlurmdPort }),
		number("ControllerHeartbeatTimeout", RestartCtld,
			func(c *Config) *int64 { return &c.ControllerHeartbeatMS }, 0, maxElectionMS),
		number("ControllerElectionTimeout", RestartCtld,
			func(c *Config) *int64 { return &c.ControllerElectionMS }, 0, maxElectionMS),
		text("SlurmUser", RestartCtld, func(c *Config) *string { return &c.SlurmUser }),
		certificateLifetime(),
		loginHosts(),
	}
}

// portSetting is a port; of a range, as Slurm allows, the first is taken.
func portSetting(name string, e Effect, at func(*Config) *int64) setting {
	s := number(name, e, at, 1, 65535)
	s.read = func(c *Config, v string) (f fault) {
		first, _, _ := strings.Cut(v, "-")
		*at(c), f = readInt(first, 1, 65535)
		return f
	}
	s.remark = func(c *Config, v string) (text, hint string) {
		if strings.Contains(v, "-") {
			return name + " is one port here; the first of the range is taken", "write " + name + "=" +
				v[:strings.IndexByte(v, '-')]
		}
		return "", ""
	}
	return s
}

func placeSettings() []setting {
	level := func(name string, e Effect, at func(*Config) *string) setting {
		s := word(name, e, at, logfile.Levels...)
		readName := s.read
		s.read = func(c *Config, v string) fault {
			if len(v) == 1 && v[0] >= '0' && v[0] <= '9' {
				v = logfile.Levels[v[0]-'0'] // Slurm's old numbers
			}
			return readName(c, v)
		}
		return s
	}
	return []setting{
		absPath("StateSaveLocation", RestartCtld, func(c *Config) *string { return &c.StateSaveLocation }),
		absPath("SlurmdSpoolDir", RestartNoded, func(c *Config) *string { return &c.SlurmdSpoolDir }),
		absPath("DbdStateLocation", RestartDbd, func(c *Config) *string { return &c.DbdStateLocation }),
		absPath("LocalSocketDir", RestartAll, func(c *Config) *string { return &c.LocalSocketDir }),
		word("DataParserParameters", AtOnce, func(c *Config) *string { return &c.DataParser }, "v0.0.37", "v0.0.38",
			"v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43"),
		absPath("PKIDir", RestartAll, func(c *Config) *string { return &c.PKIDir }),
		absPath("TmpFS", RestartNoded, func(c *Config) *string { return &c.TmpFS }),
		absPath("SlurmctldLogFile", RestartCtld, func(c *Config) *string { return &c.SlurmctldLogFile }),
		absPath("SlurmdLogFile", RestartNoded, func(c *Config) *string { return &c.SlurmdLogFile }),
		absPath("DbdLogFile", RestartDbd, func(c *Config) *string { return &c.DbdLogFile }),
		level("SlurmctldDebug", RestartCtld, func(c *Config) *string { return &c.SlurmctldDebug }),
		level("SlurmdDebug", RestartNoded, func(c *Config) *string { return &c.SlurmdDebug }),
		level("DbdDebug", RestartDbd, func(c *Config) *string { return &c.DbdDebug }),
		word("LogFormat", RestartAll, func(c *Config) *string { return &c.LogFormat }, logfile.Formats...),
	}
}

var privateData = []string{"accounts", "cloud", "events", "jobs", "nodes", "partitions", "reservations", "usage",
	"users", "all", "none"}

// lastFirstJob is state.MaxJobID: the numbers above are for tasks of pending arrays.
const lastFirstJob = 1<<32 - 1<<24

func jobSettings() []setting {
	num := func(name string, e Effect, at func(*Config) *int64, least, most int64) setting {
		return number(name, e, at, least, most)
	}
	return []setting{
		num("FirstJobId", AtOnce, func(c *Config) *int64 { return &c.FirstJobID }, 1, lastFirstJob),
		num("MaxJobId", AtOnce, func(c *Config) *int64 { return &c.MaxJobID }, 1, math.MaxUint32),
		num("MaxJobCount", NewJobs, func(c *Config) *int64 { return &c.MaxJobCount }, 1, 10_000_000),
		num("MaxArraySize", NewJobs, func(c *Config) *int64 { return &c.MaxArraySize }, 0, 4_000_001),
		num("MaxStepCount", NewSteps, func(c *Config) *int64 { return &c.MaxStepCount }, 1, math.MaxInt32),
		num("MaxTasksPerNode", NewSteps, func(c *Config) *int64 { return &c.MaxTasksPerNode }, 1, 65533),
		seconds("MinJobAge", AtOnce, func(c *Config) *int64 { return &c.MinJobAgeS }, 0, math.MaxInt32),
		seconds("InactiveLimit", AtOnce, func(c *Config) *int64 { return &c.InactiveLimitS }, 0, 65533),
		seconds("KillWait", AtOnce, func(c *Config) *int64 { return &c.KillWaitS }, 0, 65533),
		seconds("ElasticGrace", AtOnce, func(c *Config) *int64 { return &c.Elastic.GraceS }, 0, 86400),
		seconds("ExpediteHoldTime", AtOnce, func(c *Config) *int64 { return &c.ExpediteHoldS }, 0, 86400),
		seconds("ElasticPause", AtOnce, func(c *Config) *int64 { return &c.Elastic.PauseS }, 0, 86400),
		seconds("WaitTime", NewSteps, func(c *Config) *int64 { return &c.WaitTimeS }, 0, 65533),
		zeroOne("KillOnBadExit", NewSteps, func(c *Config) *bool { return &c.KillOnBadExit }),
		seconds("CompleteWait", AtOnce, func(c *Config) *int64 { return &c.CompleteWaitS }, 0, 65533),
		{name: "OverTimeLimit", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.OverTimeLimitS, f = readOverTime(v); return f },
			show: func(c *Config) string { return showOverTime(c.OverTimeLimitS) + " min" }},
		seconds("BatchStartTimeout", NextStart, func(c *Config) *int64 { return &c.BatchStartTimeoutS }, 1, 65533),
		zeroOne("JobRequeue", NewJobs, func(c *Config) *bool { return &c.JobRequeue }),
		zeroOne("JobFileAppend", NextStart, func(c *Config) *bool { return &c.JobFileAppend }),
		yesNo("DisableRootJobs", NewJobs, func(c *Config) *bool { return &c.DisableRootJobs }),
		{name: "EnforcePartLimits", effect: NewJobs,
			read: func(c *Config, v string) (f fault) {
				if strings.EqualFold(v, "YES") { // the old word for ALL
					v = "ALL"
				}
				c.EnforcePartLimits, f = readWord(v, []string{"NO", "ANY", "ALL"})
				return f
			},
			show: func(c *Config) string { return c.EnforcePartLimits }},
		{name: "PrivateData", effect: AtOnce,
			read: func(c *Config, v string) fault {
				words, f := readWords(v, privateData)
				c.PrivateData = nil
				for _, w := range words {
					switch w {
					case "all":
						c.PrivateData = append(c.PrivateData, privateData[:len(privateData)-2]...)
					case "none":
					default:
						c.PrivateData = append(c.PrivateData, w)
					}
				}
				return f
			},
			show: func(c *Config) string {
				if len(c.PrivateData) == 0 {
					return "none"
				}
				return strings.Join(c.PrivateData, ",")
			}},
		{name: "LoginRights", effect: AtOnce,
			read: func(c *Config, v string) fault {
				word, f := readWord(v, model.RightsNames)
				c.LoginRights = model.Rights(max(0, slices.Index(model.RightsNames, word)))
				return f
			},
			show: func(c *Config) string { return c.LoginRights.String() }},
		dependSetting(),
		{name: "Licenses", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.Licenses, f = readLicenses(v); return f },
			show: func(c *Config) string { return orNull(showLicenses(c.Licenses)) }},
		memory("DefMemPerCPU", NextStart, func(c *Config) *int64 { return &c.Mem.DefPerCPUMiB }),
		memory("DefMemPerNode", NextStart, func(c *Config) *int64 { return &c.Mem.DefPerNodeMiB }),
		memory("MaxMemPerCPU", NextStart, func(c *Config) *int64 { return &c.Mem.MaxPerCPUMiB }),
		memory("MaxMemPerNode", NextStart, func(c *Config) *int64 { return &c.Mem.MaxPerNodeMiB }),
		hidden(number("DefCpuPerGPU", NextStart, func(c *Config) *int64 { return &c.JobDefaults.DefCPUPerGPU }, 0, 65533)),
		hidden(memory("DefMemPerGPU", NextStart, func(c *Config) *int64 { return &c.JobDefaults.DefMemPerGPUMiB })),
		{name: "JobDefaults", effect: NextStart,
			read: func(c *Config, v string) fault { return readJobDefaults(&c.JobDefaults, v) },
			show: func(c *Config) string { return orNull(c.JobDefaults.String()) }},
		{name: "PropagateResourceLimits", effect: NextStart,
			read: func(c *Config, v string) (f fault) { c.PropagateLimits, f = readWords(v, rlimits); return f },
			show: func(c *Config) string { return orNull(strings.Join(c.PropagateLimits, ",")) }},
		{name: "PropagateResourceLimitsExcept", effect: NextStart,
			read: func(c *Config, v string) (f fault) {
				c.PropagateLimitsExcept, f = readWords(v, rlimits)
				c.PropagateLimits = nil
				return f
			},
			show: func(c *Config) string { return orNull(strings.Join(c.PropagateLimitsExcept, ",")) }},
		{name: "JobContainerType", effect: RestartNoded, read: readContainerType,
			show: func(c *Config) string { return c.JobContainerType }},
		{name: "NamespaceType", effect: RestartNoded, read: readContainerType},
		list("PropagateResourceLimitsRaise", RestartNoded, func(c *Config) *[]string { return &c.RaiseLimits }, rlimits...),
		num("PropagatePrioProcess", NextStart, func(c *Config) *int64 { return &c.PropagatePrioProcess }, 0, 2),
		launchParameters(),
		text("InteractiveStepOptions", NextStart, func(c *Config) *string { return &c.InteractiveStepOptions }),
		mpiSetting(),
		mpiPorts(),
		text("MailProg", AtOnce, func(c *Config) *string { return &c.MailProg }),
		text("MailDomain", AtOnce, func(c *Config) *string { return &c.MailDomain }),
	}
}

var rlimits = []string{"ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS",
	"STACK"}

// hidden is a setting that scontrol shows as part of another one.
func hidden(s setting) setting {
	s.show = nil
	return s
}

var prologFlags = []string{"Alloc", "Contain", "DeferBatch", "ForceRequeueOnFail", "NoHold", "RunInJob", "Serial",
	"X11"}

// interactiveStep is the word of LaunchParameters that has an effect.
const interactiveStep = "use_interactive_step"

// launchWords are the other words, with what gbatch does.
var launchWords = []struct{ word, text, hint string }{
	{"batch_step_set_cpu_freq", "the frequency of CPUs is not set", "set it in Prolog"},
	{"cray_net_exclusive", "it is for Cray's network", "leave it out"},
	{"disable_send_gids", "jobs have the groups of their submission that the node gives too", "leave it out"},
	{"enable_nss_slurm", "nodes look users up themselves", "leave it out"},
	{"lustre_no_flush", "the cache of Lustre is not flushed", "leave it out"},
	{"mem_sort", "memory pages are not sorted", "leave it out"},
	{"mpir_use_nodeaddr", "there is no table of MPIR", "leave it out"},
	{"slurmstepd_memlock", "gshim has no memory worth locking", "leave it out"},
	{"slurmstepd_memlock_all", "gshim has no memory worth locking", "leave it out"},
	{"test_exec", "grun looks for the program on its host only if SLURM_TEST_EXEC is set",
		"set SLURM_TEST_EXEC=1 in the users' profiles"},
	{"ulimit_pam_adopt", "sessions that are adopted get no limits", "leave it out"},
}

func launchParameters() setting {
	words := []string{interactiveStep}
	for _, w := range launchWords {
		words = append(words, w.word)
	}
	s := list("LaunchParameters", NextStart, func(c *Config) *[]string { return &c.LaunchParameters }, words...)
	s.remark = func(_ *Config, v string) (text, hint string) {
		for _, w := range launchWords {
			if strings.EqualFold(v, w.word) {
				return "LaunchParameters=" + w.word + " has no effect: " + w.text, w.hint
			}
		}
		return "", ""
	}
	return s
}

// The words of ScronParameters.
const (
	scronEnable = "enable"
	scronCancel = "explicit_scancel"
)

// hookSettings are gbatch's own: programs that see jobs before they are submitted, and what happens to them; and who
// submits jobs that come back.
func hookSettings() []setting {
	return []setting{
		absPath("JobSubmitProgram", AtOnce, func(c *Config) *string { return &c.JobSubmitProgram }),
		text("JobSubmitUser", AtOnce, func(c *Config) *string { return &c.JobSubmitUser }),
		seconds("JobSubmitTimeout", AtOnce, func(c *Config) *int64 { return &c.JobSubmitTimeoutS }, 1, 15),
		number("JobSubmitParallel", AtOnce, func(c *Config) *int64 { return &c.JobSubmitParallel }, 1, 64),
		word("JobSubmitFailure", AtOnce, func(c *Config) *string { return &c.JobSubmitFailure }, "refuse", "pass"),
		word("JobSubmitRights", AtOnce, func(c *Config) *string { return &c.JobSubmitRights }, "user", "operator"),
		list("ScronParameters", AtOnce, func(c *Config) *[]string { return &c.ScronParameters }, scronEnable, scronCancel),
		absPath("JobEventProgram", AtOnce, func(c *Config) *string { return &c.JobEventProgram }),
		list("JobEventTypes", AtOnce, func(c *Config) *[]string { return &c.JobEventTypes }, model.JobEventKinds()...),
		seconds("JobEventTimeout", AtOnce, func(c *Config) *int64 { return &c.JobEventTimeoutS }, 1, 600),
		number("JobEventParallel", AtOnce, func(c *Config) *int64 { return &c.JobEventParallel }, 1, 64),
		absPath("CliFilterProgram", AtOnce, func(c *Config) *string { return &c.CliFilterProgram }),
		absPath("SrunProlog", AtOnce, func(c *Config) *string { return &c.SrunProlog }),
		absPath("SrunEpilog", AtOnce, func(c *Config) *string { return &c.SrunEpilog }),
	}
}

// healthStates are the words of HealthCheckNodeState.
var healthStates = []string{"ALLOC", "ANY", "CYCLE", "IDLE", "MIXED", "NONDRAINED_IDLE", "START_ONLY"}

// launchSettings are gbatch's own: the handling of failed launches.
func launchSettings() []setting {
	return []setting{
		list("ReconfigFlags", AtOnce, func(c *Config) *[]string { return &c.ReconfigFlags }, reconfigFlags...),
		absPath("RebootProgram", AtOnce, func(c *Config) *string { return &c.RebootProgram }),
		seconds("ResumeTimeout", AtOnce, func(c *Config) *int64 { return &c.ResumeTimeoutS }, 1, 65533),
		absPath("HealthCheckProgram", AtOnce, func(c *Config) *string { return &c.HealthCheckProgram }),
		seconds("HealthCheckInterval", AtOnce, func(c *Config) *int64 { return &c.HealthCheckIntervalS }, 0, 65533),
		list("HealthCheckNodeState", AtOnce, func(c *Config) *[]string { return &c.HealthCheckNodeState }, healthStates...),
		number("LaunchRetries", AtOnce, func(c *Config) *int64 { return &c.LaunchRetries }, 1, 100),
		seconds("LaunchBackoff", AtOnce, func(c *Config) *int64 { return &c.LaunchBackoffS }, 0, 3600),
		number("LaunchFailuresToDrain", AtOnce, func(c *Config) *int64 { return &c.LaunchFailuresToDrain }, 0,
			model.MaxStrikes),
	}
}

func nodeSettings() []setting {
	return []setting{
		seconds("SlurmdTimeout", AtOnce, func(c *Config) *int64 { return &c.SlurmdTimeoutS }, 1, 65533),
		seconds("NodeHeartbeatInterval", AtOnce, func(c *Config) *int64 { return &c.NodeHeartbeatIntervalS }, 1, 3600),
		number("ReturnToService", AtOnce, func(c *Config) *int64 { return &c.ReturnToService }, 0, 2),
		seconds("MessageTimeout", RestartAll, func(c *Config) *int64 { return &c.MessageTimeoutS }, 1, 3600),
		programs("Prolog", NextStart, func(c *Config) *[]string { return &c.Prolog }),
		programs("Epilog", NextStart, func(c *Config) *[]string { return &c.Epilog }),
		programs("PrologSlurmctld", NextStart, func(c *Config) *[]string { return &c.PrologSlurmctld }),
		programs("EpilogSlurmctld", NextStart, func(c *Config) *[]string { return &c.EpilogSlurmctld }),
		absPath("TaskProlog", NewSteps, func(c *Config) *string { return &c.TaskProlog }),
		absPath("TaskEpilog", NewSteps, func(c *Config) *string { return &c.TaskEpilog }),
		list("PrologFlags", NextStart, func(c *Config) *[]string { return &c.PrologFlags }, prologFlags...),
		seconds("PrologTimeout", NextStart, func(c *Config) *int64 { return &c.PrologTimeoutS }, 0, noTimeout),
		seconds("EpilogTimeout", NextStart, func(c *Config) *int64 { return &c.EpilogTimeoutS }, 0, noTimeout),
		{name: "PrologEpilogTimeout", effect: NextStart,
			read: func(c *Config, v string) fault {
				n, f := readSeconds(v, 0, noTimeout)
				if f.bad() {
					return fault{f.why, "60"}
				}
				c.PrologEpilogTimeoutS = n // programTimeouts passes it on
				return fault{}
			},
			remark: func(_ *Config, v string) (text, hint string) {
				if n, f := readSeconds(v, 0, noTimeout); !f.bad() && n == noTimeout {
					return "PrologEpilogTimeout=65534: prologs and epilogs end after " +
						strconv.Itoa(model.ProgramLimitS/60) + " minutes all the same", "write how many seconds they may take"
				}
				return "", ""
			}},
		seconds("UnkillableStepTimeout", AtOnce, func(c *Config) *int64 { return &c.UnkillableStepTimeoutS }, 1, 65533),
		absPath("UnkillableStepProgram", AtOnce, func(c *Config) *string { return &c.UnkillableStepProgram }),
		{name: "ProctrackType", effect: AtOnce,
			read: func(c *Config, v string) (f fault) {
				c.ProctrackType, f = readWord(v, []string{"proctrack/cgroup", "proctrack/linuxproc", "proctrack/pgid"})
				return f
			},
			remark: func(_ *Config, v string) (text, hint string) {
				if !sameWord(v, "proctrack/cgroup") {
					return "ProctrackType=" + v + ": processes are tracked by cgroup wherever gnoded may make one",
						"write ProctrackType=proctrack/cgroup"
				}
				return "", ""
			},
			show: func(c *Config) string { return c.ProctrackType }},
		absPath("SlurmctldPrimaryOnProg", AtOnce, func(c *Config) *string { return &c.PrimaryOnProg }),
		absPath("SlurmctldPrimaryOffProg", AtOnce, func(c *Config) *string { return &c.PrimaryOffProg }),
		absPath("ResvProlog", AtOnce, func(c *Config) *string { return &c.ResvProlog }),
		absPath("ResvEpilog", AtOnce, func(c *Config) *string { return &c.ResvEpilog }),
		absPath("AlertProgram", AtOnce, func(c *Config) *string { return &c.AlertProgram }),
		alertParameters(),
		number("QueryRateLimit", AtOnce, func(c *Config) *int64 { return &c.QueryRateLimit }, 0, 1_000_000_000),
	}
}

// maxCacheTags bounds GpuCacheTags.
const maxCacheTags = 64

func gpuSettings() []setting {
	return []setting{
		{name: "GpuMemSafetyMargin", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.GPUMemMarginMiB, f = readMem(v); return f },
			show: func(c *Config) string { return strconv.FormatInt(c.GPUMemMarginMiB, 10) }},
		{name: "GpuSelectPolicy", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.GpuSelectPolicy, f = readGPUSelect(v); return f },
			show: func(c *Config) string { return strings.Join(c.GpuSelectPolicy, ",") }},
		{name: "GpuScoreWeights", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.GpuScoreWeights, f = readScoreWeights(v); return f },
			show: func(c *Config) string { return c.GpuScoreWeights.String() }},
		{name: "GpuCacheTags", effect: AtOnce,
			read: func(c *Config, v string) (f fault) {
				n, f := readInt(v, 0, maxCacheTags)
				c.GPUCache.Tags = int32(n)
				return f
			},
			show: func(c *Config) string { return strconv.Itoa(int(c.GPUCache.Tags)) }},
		seconds("GpuCacheTagTime", AtOnce, func(c *Config) *int64 { return &c.GPUCache.TimeS }, 1, math.MaxInt32),
		{name: "DefaultGpuBind", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.DefaultGpuBind, f = readGPUBind(v); return f },
			show: func(c *Config) string { return orNull(c.DefaultGpuBind) }},
		absPath("GresHelper", NextStart, func(c *Config) *string { return &c.GresHelper }),
		seconds("GresHelperTimeout", NextStart, func(c *Config) *int64 { return &c.GresHelperTimeoutS }, 1, 120),
		absPath("MigProgram", AtOnce, func(c *Config) *string { return &c.MigProgram }),
		word("GpuEnvStyle", NextStart, func(c *Config) *string { return &c.GpuEnvStyle }, "index", "uuid"),
		{name: "GpuIdlePolicy", effect: AtOnce,
			read: func(c *Config, v string) (f fault) { c.GpuIdlePolicy, f = readGPUIdle(v); return f },
			show: func(c *Config) string { return showGPUIdle(c.GpuIdlePolicy) }},
		seconds("GpuSampleInterval", AtOnce, func(c *Config) *int64 { return &c.GpuSampleIntervalS }, 1, 3600),
		{name: "NodeMetricsListen", effect: RestartNoded,
			read: func(c *Config, v string) (f fault) {
				if strings.Contains(v, "=") || strings.Contains(v, ",") {
					return fault{"is one address, the same on all nodes", "9400"}
				}
				if f = readListen(v); f == (fault{}) {
					c.NodeMetricsListen = v
				}
				return f
			},
			show: func(c *Config) string { return orNull(c.NodeMetricsListen) }},
		list("NodeMetricsNames", RestartNoded, func(c *Config) *[]string { return &c.NodeMetricsNames }, "dcgm", "gpu",
			"jobstats"),
		absPath("HpcJobMappingDir", RestartNoded, func(c *Config) *string { return &c.HpcJobMappingDir }),
		absPath("GpuRecoverProgram", AtOnce, func(c *Config) *string { return &c.GpuRecoverProgram }),
		word("GpuForeignUsePolicy", AtOnce, func(c *Config) *string { return &c.GpuForeignUsePolicy }, "avoid", "drain",
			"ignore"),
		{name: "GpuForeignUseThreshold", effect: AtOnce,
			read: func(c *Config, v string) fault {
				n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "%")), 10, 64)
				if err != nil || n < 0 || n > 100 {
					return fault{"is not a share of a GPU's memory from 0% to 100%", "20%"}
				}
				c.GpuForeignUsePct = n
				return fault{}
			},
			show: func(c *Config) string { return strconv.FormatInt(c.GpuForeignUsePct, 10) + "%" }},
	}
}

func taskSettings() []setting {
	return []setting{
		{name: "TaskPlugin", effect: NextStart,
			read: func(c *Config, v string) fault {
				words, f := readWords(v, []string{"task/cgroup", "task/affinity", "task/none"})
				c.TaskPlugin = strings.Join(words, ",")
				return f
			},
			remark: func(_ *Config, v string) (text, hint string) {
				if sameWord(v, "task/none") {
					return "TaskPlugin=task/none: jobs are held to their cores, memory and devices all the same, as cgroup.conf says",
						"set ConstrainCores, ConstrainRAMSpace and ConstrainDevices in cgroup.conf"
				}
				return "", ""
			},
			show: func(c *Config) string { return c.TaskPlugin }},
		taskPluginParam(),
		{name: "SelectType", effect: AtOnce, read: readSelectType, remark: remarkSelectType,
			show: func(c *Config) string { return c.Select.Type }},
		{name: "SelectTypeParameters", effect: AtOnce, read: readSelectParams, remark: remarkSelectParams,
			show: func(c *Config) string { return strings.Join(c.Select.Params, ",") }},
		{name: "GresTypes", effect: AtOnce, read: readGresTypes, remark: remarkGresTypes,
			show: func(c *Config) string { return orNull(strings.Join(c.GresTypes, ",")) }},
		{name: "TopologyPlugin", effect: AtOnce, read: readTopologyPlugin, remark: remarkTopologyPlugin,
			show: func(c *Config) string { return c.TopologyPlugin }},
		{name: "TopologyParam", effect: AtOnce, read: readTopologyParam, remark: remarkTopologyParam,
			show: func(c *Config) string { return orNull(strings.Join(c.TopologyParam, ",")) }},
	}
}

// mpiSetting is MpiDefault.
func mpiSetting() setting {
	return setting{name: "MpiDefault", effect: NewSteps,
		read: func(c *Config, v string) (f fault) {
			c.MpiDefault, f = readWord(v,
				[]string{"none", "pmi2", "openmpi", "pmix", "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5"})
			return f
		},
		show: func(c *Config) string { return c.MpiDefault }}
}
