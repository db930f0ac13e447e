package conf

import (
	"fmt"
	"slices"
	"strings"
)

// acceptedSettings are Slurm's keys that have no effect here, by the reason. So a slurm.conf that works elsewhere
// loads, and nothing in it is ignored silently. A note says what gbatch does instead and, after "; ", what to do; it
// follows the key's name.
func acceptedSettings() []setting {
	return slices.Concat(oldNames(), otherMeans(), usualPlugins(), absent())
}

// otherMeans are keys of things that gbatch does by other means.
func otherMeans() []setting {
	return slices.Concat(
		accepted("has no effect here: daemons prove themselves by the cluster's own certificates, users by the kernel",
			"AuthType", "AuthInfo", "CredType", "JobCredentialPrivateKey",
			"JobCredentialPublicCertificate", "HashPlugin", "TLSType", "TLSParameters", "CertmgrType", "CertmgrParameters",
			"CertgenType", "CertgenParameters"),
		accepted("has no effect here: gdbd keeps its own database and needs no password",
			"AccountingStorageParameters", "AccountingStoragePass", "AccountingStorageUser"),
		unless(notDone("is not supported: comments are always stored; scripts and environments aren't, gacct --batch-script "+
			"shows a script while the controller has the job",
			"AccountingStoreFlags"), "job_comment", "none", ""),
		accepted("has no effect here: gnoded and commands dial the controller; nodes listen on SlurmdPort for each other "+
			"only",
			"TreeWidth", "RoutePlugin", "CommunicationParameters", "TCPTimeout", "EioTimeout",
			"EpilogMsgTime", "KeepAliveTime"),
		accepted("has no effect: grun listens on any free port; where a firewall stands between, let the nodes connect to "+
			"the hosts that grun runs on",
			"SrunPortRange"),
		accepted("has no effect here: controllers replicate and elect a leader by themselves", "SlurmctldTimeout",
			"SlurmctldAddr"),
		accepted("has no effect here: no pid files are written; see gbatch status, or systemd",
			"SlurmctldPidFile", "SlurmdPidFile"),
		accepted("has no effect here: gnoded runs as the user who starts it, root for full enforcement", "SlurmdUser"),
		accepted("has no effect here: everything is built in", "PluginDir", "LaunchType"),
		notDone("is not supported: no plugins are loaded", "SlurmctldPlugstack"),
		accepted("has no effect here: log lines are structured, one level for everything; see "+
			"SlurmctldDebug and SlurmdDebug",
			"DebugFlags", "SlurmSchedLogFile", "SlurmSchedLogLevel"),
		accepted("has no effect: daemons write to their log file, or to stderr, which systemd keeps; see SlurmctldLogFile "+
			"and SlurmdLogFile",
			"SlurmctldSyslogDebug", "SlurmdSyslogDebug"),
		accepted("has no effect: log lines have RFC 3339 times with milliseconds", "LogTimeFormat"),
		accepted("has no effect here: group membership is looked up when it is needed", "GroupUpdateForce",
			"GroupUpdateTime"),
		accepted("has no effect: gsubmit --get-user-env waits 8 seconds for the login shell; gsubmit "+
			"--get-user-env=SECONDS waits as long as it says",
			"GetEnvTimeout"),
		accepted("has no effect here: nodes are added by reconfigure, without a limit set beforehand", "MaxNodeCount"),
		accepted("has no effect here: memory limits are the kernel's (ConstrainRAMSpace in cgroup.conf)",
			"VSizeFactor", "JobAcctGatherParams"),
		unless(notDone("is not supported: the energy of nodes isn't gathered; that of GPUs is, with JobAcctGatherFrequency",
			"AcctGatherNodeFreq"), "0"),
		accepted("has no effect here: Fair Tree needs no dampening", "FairShareDampeningFactor"),
		accepted("has no effect here: gctld has one way to read HTTP", "HttpParserType", "UrlParserType"),
	)
}

const noLabels = "is not supported: there are no multi-category security labels; ExclusiveUser=YES of a partition " +
	"keeps nodes for one user at a time, PrivateData hides jobs and nodes from others"

// usualPlugins are kinds of plugins whose usual choice is what gbatch does anyway.
func usualPlugins() []setting {
	return slices.Concat(
		unless(notDone("is not supported: there are no site factors", "PrioritySiteFactorPlugin"), "site_factor/none"),
		notDone("is not supported: there are no site factors", "PrioritySiteFactorParameters", "PriorityParameters"),
		unless(notDone("is not supported: network switches aren't programmed", "SwitchType"), "switch/none"),
		notDone("is not supported: network switches aren't programmed", "SwitchParameters"),
		unless(notDone("is not supported: energy, interconnect, file system and profile data aren't gathered",
			"AcctGatherEnergyType", "AcctGatherInterconnectType", "AcctGatherFilesystemType", "AcctGatherProfileType"),
			"acct_gather_energy/none", "acct_gather_interconnect/none", "acct_gather_filesystem/none",
			"acct_gather_profile/none"),
		unless(notDone(noLabels, "MCSPlugin"), "mcs/none"), notDone(noLabels, "MCSParameters"),
		unless(notDone("is not supported: records are in gdbd, see gacct; there is no second log of completed jobs",
			"JobCompType"),
			"jobcomp/none"),
		notDone("is not supported: records are in gdbd, see gacct", "JobCompHost", "JobCompLoc", "JobCompParams",
			"JobCompPass",
			"JobCompPort", "JobCompUser"),
		unless(notDone("is not supported: there is no core specialization by plugin; write CoreSpecCount on the node line",
			"CoreSpecPlugin"), "core_spec/none"),
		unless(notDone("is not supported: there are no burst buffers", "BurstBufferType", "BurstBufferParameters"),
			"burst_buffer/none"),
		unless(notDone("is not supported: external sensors aren't read", "ExtSensorsType"), "ext_sensors/none"),
		notDone("is not supported: external sensors aren't read", "ExtSensorsFreq"),
		unless(notDone("is not supported: power isn't capped", "PowerPlugin"), "power/none", ""),
		notDone("is not supported: power isn't capped", "PowerParameters"),
		unless(notDone("is not supported: prolog and epilog are scripts", "PrEpPlugins"), "prep/script"),
		notDone("is not supported: prolog and epilog are scripts", "PrEpParameters"),
	)
}

// absent are keys of things that gbatch doesn't do.
func absent() []setting {
	return slices.Concat(
		notDone("is not supported: write JobSubmitProgram=, a program that reads and writes JSON; gbatch-hooks(7) has "+
			"Lua's functions and fields in its words", "JobSubmitPlugins"),
		notDone("is not supported: write CliFilterProgram=, a program that reads and writes JSON; see gbatch-hooks(7)",
			"CliFilterPlugins"),
		notDone("is not supported: SPANK plugins aren't loaded", "PlugStackConfig"),
		notDone("is not supported: features don't change by a plugin; write Features on the node line",
			"NodeFeaturesPlugins"),
		notDone("is not supported: CPU and GPU frequencies are left as the node has them", "CpuFreqDef", "CpuFreqGovernors",
			"GpuFreqDef"),
		notDone("is not supported: gbcast has options", "BcastExclude", "BcastParameters"),
		notDone("is not supported: there is one cluster", "FederationParameters", "AccountingStorageExternalHost"),
		notDone("has no effect: a display's cookie is in gnoded's own directory, not in the user's", "X11Parameters"),
		unless(notDone("is not supported: jobs don't open PAM sessions", "UsePAM"), "0", "no", "false"),
		unless(notDone("is not supported: specialized cores are never given to jobs", "AllowSpecResourcesUsage"), "0", "no",
			"false"),
	)
}

// oldNames are keys of older Slurms.
func oldNames() []setting {
	return slices.Concat(
		obsolete("is an old key; write SlurmctldHost=name(address)", "ControlMachine", "ControlAddr", "BackupController",
			"BackupAddr"),
		obsolete("is an old key without meaning: certificates have replaced it", "CryptoType", "SchedulerAuth"),
		obsolete("is an old key without meaning: nodes are always scheduled as configured", "FastSchedule"),
		obsolete("is an old key without meaning: comments are always stored", "AccountingStoreJobComment"),
		obsolete("is an old key without meaning: gdbd keeps its own database", "AccountingStorageLoc", "DefaultStorageHost",
			"DefaultStorageLoc",
			"DefaultStoragePass", "DefaultStoragePort", "DefaultStorageType", "DefaultStorageUser"),
		obsolete("is an old key without meaning: galloc starts the user's shell on its own host; galloc grun --pty bash "+
			"starts one on the node", "SallocDefaultCommand"),
		obsolete("is an old key without meaning", "AcctGatherInfinibandType", "CacheGroups", "CheckpointType",
			"JobCheckpointDir",
			"MemLimitEnforce", "SbcastParameters", "SchedulerPort", "SchedulerRootFilter"),
		obsolete("exists in no version of Slurm and has no meaning", "ReservationOverride"),
	)
}

// recordKeys start a line of their own kind.
const (
	keyNode      = "NodeName"
	keyPartition = "PartitionName"
	keyNodeSet   = "NodeSet"
	keyDown      = "DownNodes"
	keyFrontend  = "FrontendName"
	keySwitch    = "SwitchName"
	keyBlock     = "BlockName"
	keyPrice     = "Price"
)

var recordKeys = []string{keyNode, keyPartition, keyNodeSet, keyDown, keyFrontend, keySwitch, keyBlock, keyPrice}

func recordKey(key string) string {
	for _, k := range recordKeys {
		if strings.EqualFold(k, key) {
			return k
		}
	}
	return ""
}

// otherNames are keys that people write for one whose name is not the nearest.
var otherNames = map[string]string{"gpucachetagttl": "GpuCacheTagTime", "gpucachettl": "GpuCacheTagTime",
	"gpucachetime": "GpuCacheTagTime", "gpucachetagtimeout": "GpuCacheTagTime"}

// unknownKey reports an unknown key, and says where it may belong.
func (l *loader) unknownKey(p pair) {
	if l.bareSchedParam(p) {
		return
	}
	hint := "remove it"
	kind := "unknown key"
	belongs := func(table []string, where string) bool {
		if !hasFold(table, p.key) {
			return false
		}
		kind, hint = "misplaced key", where
		return true
	}
	switch {
	case belongs(nodeKeyNames(), "it belongs on a NodeName line; does the line above lack its trailing backslash?"):
	case belongs(partitionKeyNames(),
		"it belongs on a PartitionName line; does the line above lack its trailing backslash?"):
	case belongs(cgroupKeyNames(), "it belongs in cgroup.conf"):
	case belongs(gresKeyNames, "it belongs in gres.conf"):
	case belongs(switchKeyNames, "it belongs on a SwitchName line in topology.conf"):
	case otherNames[strings.ToLower(p.key)] != "":
		hint = "did you mean " + otherNames[strings.ToLower(p.key)] + "?"
	default:
		if near := nearest(p.key, append(l.settings.names(), recordKeys...)); near != "" {
			hint = "did you mean " + near + "?"
		}
	}
	l.probs.errorf(p.at, hint, "%s %s", kind, shown(p.key))
}

// mpiPorts is MpiParams: the ports for grun --resv-ports.
func mpiPorts() setting {
	return setting{name: "MpiParams", effect: NewSteps,
		read: func(c *Config, v string) fault {
			var lo, hi int32
			low := strings.ToLower(v)
			n, err := fmt.Sscanf(low, "ports=%d-%d", &lo, &hi)
			if n != 2 || err != nil || low != fmt.Sprintf("ports=%d-%d", lo, hi) || lo < 1 || hi < lo || hi > 65535 {
				return fault{shown(v) + " is not ports=FIRST-LAST", "ports=12000-12999"}
			}
			c.MpiPorts = [2]int32{lo, hi}
			return fault{}
		},
		show: func(c *Config) string {
			if c.MpiPorts[0] == 0 {
				return "(null)"
			}
			return fmt.Sprintf("ports=%d-%d", c.MpiPorts[0], c.MpiPorts[1])
		}}
}

// The words of SlurmctldParameters and SlurmdParameters: most are about the insides of Slurm's daemons; of the others
// it is said what to use.

// daemonParam is one word. Without a text it has its effect here.
type daemonParam struct{ word, text, hint string }

const (
	ofInsides = "it is about the insides of Slurm's own daemon"
	ofClouds  = "nodes of a cloud tell their addresses themselves when they register"
	leaveOut  = "leave it out"
)

var ctldParams = []daemonParam{
	{idleOnSuspend, "", ""}, {userTriggers, "", ""}, {expedites, "", ""},
	{"cloud_dns", ofClouds, leaveOut},
	{"cloud_reg_addrs", ofClouds, leaveOut},
	{"disable_triggers", "who may set them is the administrator by default", "leave out " + userTriggers},
	{"enable_configless", "nodes get what they need from the controllers always", leaveOut},
	{"enable_job_state_cache", "queries never wait for the scheduler", leaveOut},
	{"enable_rpc_queue", ofInsides, leaveOut},
	{"max_dbd_msg_action", "the oldest records go when there are too many", "see MaxDBDMsgs"},
	{"max_powered_nodes", "how many nodes are powered up is bounded by ResumeRate only", "write ResumeRate"},
	{"no_quick_restart", "gctld may be restarted at any time", leaveOut},
	{"node_reg_mem_percent", "a node with less memory than RealMemory says isn't used",
		"write the RealMemory that nodes have"},
	{"power_save_interval", "power saving looks whenever something changes", leaveOut},
	{"power_save_min_interval", "power saving looks whenever something changes", leaveOut},
	{"preempt_send_user_signal", "preempted jobs get SIGCONT and SIGTERM", "trap SIGTERM in the script"},
	{"reboot_from_controller", "RebootProgram is run on the node", "reboot over the network in RebootProgram"},
	{"rl_bucket_size", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"rl_enable", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"rl_log_freq", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"rl_refill_period", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"rl_refill_rate", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"rl_table_size", "requests are bounded by QueryRateLimit", "write QueryRateLimit"},
	{"user_resv_delete", "only operators delete reservations", "give the users AdminLevel=Operator"},
	{"validate_nodeaddr_threads", ofInsides, leaveOut},
}

var slurmdParams = []daemonParam{
	{"allow_ecores", "all CPUs of a node are alike", leaveOut},
	{"config_overrides", "a node's hardware has to be what its NodeName line says", "write the hardware that nodes have"},
	{"contain_spank", "no plugins are loaded", leaveOut},
	{"conf_cache", "nodes get what they need from the controllers always", leaveOut},
	{"l3cache_as_socket", "sockets are those of the hardware", "write Sockets and CoresPerSocket of the hardware"},
	{"numa_node_as_socket", "sockets are those of the hardware", "write Sockets and CoresPerSocket of the hardware"},
	{"shutdown_on_reboot", "a node that reboots shuts down as its init system does", leaveOut},
}

// remarkParam says what a word of such a key doesn't do.
func remarkParam(key string, known []daemonParam, v string) (text, hint string) {
	word, _, _ := strings.Cut(v, "=")
	words := make([]string, 0, len(known))
	for _, k := range known {
		switch {
		case !strings.EqualFold(word, k.word):
			words = append(words, k.word)
		case k.text == "":
			return "", ""
		default:
			return key + "=" + v + " has no effect: " + k.text, k.hint
		}
	}
	if near := nearest(word, words); near != "" {
		return key + ": " + shown(v) + " is not a known word and has no effect", "did you mean " + near + "?"
	}
	return key + ": " + shown(v) + " is not a known word and has no effect", leaveOut
}
