package conf

import (
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// elsewhere are keys whose value alone changes nothing that is replicated, and why they count all the same.
var elsewhere = map[string]string{
	"ProctrackType":          "nothing depends on it, and a remark says so",
	"TaskPlugin":             "nothing depends on it, and a remark says so",
	"DisableRootJobs":        "partitions take it over when they are read",
	"SlurmdParameters":       "none of its words has an effect, and each says so",
	"SelectType":             "check.go makes jobs get whole nodes under select/linear, when all has been read",
	"TopologyPlugin":         "it says whether topology.conf's switches are replicated",
	"SchedulerParameters":    "scheduler.go reads it word by word, when all has been read",
	"GresTypes":              "nodes' resources are checked against it",
	"DataParserParameters":   "commands read it in the file",
	"JobSubmitUser":          "it counts with a JobSubmitProgram",
	"JobSubmitTimeout":       "it counts with a JobSubmitProgram",
	"JobSubmitParallel":      "it counts with a JobSubmitProgram",
	"JobSubmitFailure":       "it counts with a JobSubmitProgram",
	"JobSubmitRights":        "it counts with a JobSubmitProgram",
	"CliFilterProgram":       "commands read it in the file",
	"SrunProlog":             "grun reads it in the file",
	"SrunEpilog":             "grun reads it in the file",
	"OverTimeLimit":          "each partition has it when the file has been read",
	"InteractiveStepOptions": "they count with LaunchParameters=use_interactive_step",
	"GpuScoreWeights":        "they count with a GpuSelectPolicy that scores",
}

// TestEffects: a key that takes effect without a restart is replicated by reconfigure; one that is only in a daemon's
// own file takes effect when the daemon starts.
func TestEffects(t *testing.T) {
	words := []string{"/x/y", "1", "2", "7", "50", "yes", "no", "gpu", "x", "ANY", "ALL", "NONE", "foo*4", "gres/gpu",
		"preempt/qos", "REQUEUE", "priority/basic", "sched/builtin", "limits", "CR_CPU", "select/linear", "topology/tree",
		"uuid",
		"ignore", "idle", "DefCpuPerGPU=2", "bf_max_job_test=7", "task=7", "CPU=3", "least-loaded", "leastused", "mem:7",
		"single:1",
		"cancel@9m", "jobs", "DEPTH_OBLIVIOUS", "DAILY", "Serial", "IDLE", "none", "TopoOptional", "jobacct_gather/none",
		"youngest_first", "min_exempt_priority=5", "NO", "cert_days=7", "coordinator", "KeepPartState",
		"DRAIN", "idle_on_node_suspend", "100:0.9", "month", "kill_invalid_depend", interactiveStep,
		scronEnable, "pmix", "ports=12000-12009"}
	strip := func(c *Config) *model.Config {
		c.ClusterName = "c"
		m := c.Model()
		m.Show, m.Hash = nil, ""
		return m
	}
	load := func(key, value string) *model.Config {
		c := defaults()
		c.Nodes = []NodeDef{{Name: "n1", CPUs: 8, Sockets: 1, CoresPerSocket: 8, ThreadsPerCore: 1, RealMemoryMiB: 1000}}
		c.Partitions = []PartitionDef{{Name: "p", Nodes: []string{"n1"}, State: "UP"}}
		if key != "" {
			s := mainSettings().byName[strings.ToLower(key)]
			if s.read == nil {
				t.Fatalf("%s has no way to be read", key)
			}
			if f := s.read(c, value); f.bad() {
				return nil
			}
		}
		return strip(c)
	}
	plain := load("", "")
	for _, s := range mainSettings().list {
		if s.status != Effective || s.effect > NewSteps || elsewhere[s.name] != "" {
			continue
		}
		seen := false
		for _, w := range words {
			if m := load(s.name, w); m != nil && !reflect.DeepEqual(m, plain) {
				seen = true
				break
			}
		}
		if !seen {
			t.Errorf("%s counts %s, but no value of it changes what is replicated", s.name, s.effect)
		}
	}
}
