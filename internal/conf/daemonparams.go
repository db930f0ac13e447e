package conf

import "strings"

// daemonparams.go has the words of SlurmctldParameters and SlurmdParameters. Most are about the insides of Slurm's
// daemons; of the others it is said what to use.

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
