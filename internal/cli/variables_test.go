package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/cli/env"
)

// slurmVariables are the input variables of Slurm's manual pages (22.05, and what later ones have in addition), without
// SLURM_CONF, which all read.
var slurmVariables = map[string]string{
	"gsubmit": `SBATCH_ACCOUNT SBATCH_ACCTG_FREQ SBATCH_ARRAY_INX SBATCH_BATCH SBATCH_CLUSTERS SLURM_CLUSTERS
		SBATCH_CONSTRAINT SBATCH_CONTAINER SBATCH_CONTAINER_ID SBATCH_CORE_SPEC SBATCH_CPUS_PER_GPU SBATCH_DEBUG
		SBATCH_DELAY_BOOT SBATCH_DISTRIBUTION SBATCH_ERROR SBATCH_EXCLUSIVE SBATCH_EXPORT SBATCH_GET_USER_ENV
		SBATCH_GPU_BIND SBATCH_GPU_FREQ SBATCH_GPUS SBATCH_GPUS_PER_NODE SBATCH_GPUS_PER_TASK SBATCH_GRES
		SBATCH_GRES_FLAGS SBATCH_HINT SLURM_HINT SBATCH_IGNORE_PBS SBATCH_INPUT SBATCH_JOB_NAME SBATCH_MEM_BIND
		SBATCH_MEM_PER_CPU SBATCH_MEM_PER_GPU SBATCH_MEM_PER_NODE SBATCH_NETWORK SBATCH_NO_KILL SBATCH_NO_REQUEUE
		SBATCH_OPEN_MODE SBATCH_OUTPUT SBATCH_OVERCOMMIT SBATCH_PARTITION SBATCH_POWER SBATCH_PROFILE SBATCH_QOS
		SBATCH_REQ_SWITCH SBATCH_REQUEUE SBATCH_RESERVATION SBATCH_SEGMENT_SIZE SBATCH_SIGNAL SBATCH_SPREAD_JOB
		SBATCH_THREAD_SPEC SBATCH_THREADS_PER_CORE SBATCH_TIMELIMIT SBATCH_TRES_BIND SBATCH_TRES_PER_TASK
		SBATCH_USE_MIN_NODES SBATCH_WAIT SBATCH_WAIT_ALL_NODES SBATCH_WAIT4SWITCH SBATCH_WCKEY SLURM_DEBUG_FLAGS
		SLURM_EXIT_ERROR SLURM_STEP_KILLED_MSG_NODE_ID SLURM_UMASK`,
	"galloc": `SALLOC_ACCOUNT SALLOC_ACCTG_FREQ SALLOC_BELL SALLOC_BURST_BUFFER SALLOC_CLUSTERS SLURM_CLUSTERS
		SALLOC_CONSTRAINT SALLOC_CONTAINER SALLOC_CONTAINER_ID SALLOC_CORE_SPEC SALLOC_CPUS_PER_GPU SALLOC_DEBUG
		SALLOC_DELAY_BOOT SALLOC_EXCLUSIVE SALLOC_GPU_BIND SALLOC_GPU_FREQ SALLOC_GPUS SALLOC_GPUS_PER_NODE
		SALLOC_GPUS_PER_TASK SALLOC_GRES SALLOC_GRES_FLAGS SALLOC_HINT SLURM_HINT SALLOC_IMMEDIATE SALLOC_KILL_CMD
		SALLOC_MEM_BIND SALLOC_MEM_PER_CPU SALLOC_MEM_PER_GPU SALLOC_MEM_PER_NODE SALLOC_NETWORK SALLOC_NO_BELL
		SALLOC_NO_KILL SALLOC_OVERCOMMIT SALLOC_PARTITION SALLOC_POWER SALLOC_PROFILE SALLOC_QOS SALLOC_REQ_SWITCH
		SALLOC_RESERVATION SALLOC_SEGMENT_SIZE SALLOC_SIGNAL SALLOC_SPREAD_JOB SALLOC_THREAD_SPEC
		SALLOC_THREADS_PER_CORE SALLOC_TIMELIMIT SALLOC_TRES_BIND SALLOC_TRES_PER_TASK SALLOC_USE_MIN_NODES
		SALLOC_WAIT_ALL_NODES SALLOC_WAIT4SWITCH SALLOC_WCKEY SLURM_DEBUG_FLAGS SLURM_EXIT_ERROR SLURM_EXIT_IMMEDIATE`,
	"grun": `PMI_FANOUT PMI_FANOUT_OFF_HOST PMI_TIME SLURM_ACCOUNT SLURM_ACCTG_FREQ SLURM_BCAST SLURM_BCAST_EXCLUDE
		SLURM_BURST_BUFFER SLURM_CLUSTERS SLURM_COMPRESS SLURM_CONSTRAINT SLURM_CORE_SPEC SLURM_CPU_BIND
		SLURM_CPU_FREQ_REQ SLURM_CPUS_PER_GPU SRUN_CPUS_PER_TASK SLURM_DEBUG SLURM_DEBUG_FLAGS SLURM_DELAY_BOOT
		SLURM_DEPENDENCY SLURM_DISABLE_STATUS SLURM_DIST_PLANESIZE SLURM_DISTRIBUTION SLURM_EPILOG SLURM_EXACT
		SLURM_EXCLUSIVE SLURM_EXIT_ERROR SLURM_EXIT_IMMEDIATE SLURM_EXPORT_ENV SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GPUS
		SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GRES SLURM_GRES_FLAGS SLURM_HINT SLURM_IMMEDIATE SLURM_JOB_ID
		SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_KILL_BAD_EXIT SLURM_LABELIO SLURM_MEM_BIND SLURM_MEM_PER_CPU
		SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_MPI_TYPE SLURM_NETWORK SLURM_NNODES SLURM_NO_KILL SLURM_NPROCS
		SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_SOCKET
		SLURM_OPEN_MODE SLURM_OVERCOMMIT SLURM_OVERLAP SLURM_PARTITION SLURM_PMI_KVS_NO_DUP_KEYS SLURM_POWER
		SLURM_PROFILE SLURM_PROLOG SLURM_QOS SLURM_REMOTE_CWD SLURM_REQ_SWITCH SLURM_RESERVATION SLURM_RESV_PORTS
		SLURM_SEND_LIBS SLURM_SIGNAL SLURM_SPREAD_JOB SLURM_SRUN_REDUCE_TASK_EXIT_MSG SLURM_STDERRMODE SLURM_STDINMODE
		SLURM_STDOUTMODE SLURM_STEP_GRES SLURM_STEP_KILLED_MSG_NODE_ID SLURM_TASK_EPILOG SLURM_TASK_PROLOG
		SLURM_TEST_EXEC SLURM_THREAD_SPEC SLURM_THREADS SLURM_THREADS_PER_CORE SLURM_TIMELIMIT SLURM_TRES_BIND
		SLURM_TRES_PER_TASK SLURM_UMASK SLURM_UNBUFFEREDIO SLURM_USE_MIN_NODES SLURM_WAIT SLURM_WAIT4SWITCH SLURM_WCKEY
		SLURM_WORKING_DIR SLURMD_DEBUG SRUN_CONTAINER SRUN_CONTAINER_ID SRUN_ERROR SRUN_EXPORT_ENV SRUN_INPUT SRUN_OUTPUT
		SRUN_SEGMENT_SIZE`,
	"gqueue": `SLURM_BITSTR_LEN SLURM_CLUSTERS SLURM_DEBUG_FLAGS SLURM_TIME_FORMAT SQUEUE_ACCOUNT SQUEUE_ALL SQUEUE_ARRAY
		SQUEUE_NAMES SQUEUE_FEDERATION SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_LICENSES SQUEUE_LOCAL SQUEUE_PARTITION
		SQUEUE_PRIORITY SQUEUE_QOS SQUEUE_SIBLING SQUEUE_SORT SQUEUE_STATES SQUEUE_USERS`,
	"ginfo": `SINFO_ALL SINFO_FEDERATION SINFO_FORMAT SINFO_LOCAL SINFO_PARTITION SINFO_SORT SLURM_CLUSTERS
		SLURM_DEBUG_FLAGS SLURM_TIME_FORMAT`,
	"gcancel": `SCANCEL_ACCOUNT SCANCEL_BATCH SCANCEL_CTLD SCANCEL_FULL SCANCEL_HURRY SCANCEL_INTERACTIVE SCANCEL_NAME
		SCANCEL_PARTITION SCANCEL_QOS SCANCEL_STATE SCANCEL_USER SCANCEL_VERBOSE SCANCEL_WCKEY SLURM_CLUSTERS
		SLURM_DEBUG_FLAGS`,
	"gacct":   `SACCT_FEDERATION SACCT_LOCAL SLURM_BITSTR_LEN SLURM_DEBUG_FLAGS SLURM_TIME_FORMAT`,
	"gprio":   `SLURM_CLUSTERS SLURM_DEBUG_FLAGS SPRIO_FEDERATION SPRIO_FORMAT SPRIO_LOCAL SPRIO_SIBLING`,
	"greport": `SREPORT_CLUSTER SREPORT_FEDERATION SREPORT_LOCAL SREPORT_TRES`,
	"gbcast": `SBCAST_COMPRESS SBCAST_EXCLUDE SBCAST_FANOUT SBCAST_FORCE SBCAST_SEND_LIBS SBCAST_PRESERVE SBCAST_SIZE
		SBCAST_TIMEOUT SLURM_DEBUG_FLAGS`,
	"gattach": `SLURM_DEBUG_FLAGS SLURM_EXIT_ERROR`,
	"gcontrol": `SCONTROL_ALL SCONTROL_FEDERATION SCONTROL_FUTURE SCONTROL_LOCAL SCONTROL_SIBLING SLURM_BITSTR_LEN
		SLURM_CLUSTERS SLURM_CONF_OUT SLURM_DEBUG_FLAGS SLURM_TIME_FORMAT SLURM_TOPO_LEN`,
	"gdiag": `SLURM_CLUSTERS`,
}

// unread are the variables that are not read, with the reason.
var unread = map[string]string{
	"SLURM_DEBUG_FLAGS":             "the commands have no debug flags: -v",
	"SLURM_STEP_KILLED_MSG_NODE_ID": "one message is printed for a step, not one of each node",
	"SLURMD_DEBUG":                  "gnoded's log has what --slurmd-debug would print",
	"PMI_FANOUT":                    "gbatch's PMI server needs no pacing",
	"PMI_FANOUT_OFF_HOST":           "gbatch's PMI server needs no pacing",
	"PMI_TIME":                      "gbatch's PMI server needs no pacing",
	"SLURM_PMI_KVS_NO_DUP_KEYS":     "gbatch's PMI server looks for a key in a map",
	"SCANCEL_CTLD":                  "all requests go to the controller",
}

// oneCluster are those of --federation, --local and --sibling: there is one cluster.
var oneCluster = regexp.MustCompile(`_(FEDERATION|LOCAL|SIBLING)$`)

// readLater are the variables that are read when the command has an answer, with the files that do it, below this room.
var readLater = map[string]string{
	"SLURM_EXIT_IMMEDIATE":            "env/env.go",
	"SLURM_SRUN_REDUCE_TASK_EXIT_MSG": "run/say.go",
	"SLURM_TOPO_LEN":                  "control/showtopology.go",
	"SLURM_CONF_OUT":                  "control/writeconfig.go",
	"SLURM_TIME_FORMAT":               "env/times.go",
	"SLURM_BITSTR_LEN":                "env/times.go",
}

// asksFor runs a command without a cluster, outside of a job and in one, and returns the variables that it looks for.
func asksFor(t *testing.T, name string) map[string]bool {
	dir := t.TempDir()
	conf := filepath.Join(dir, "gbatch.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=demo\nLocalSocketDir="+dir+"\n"), 0o600); err != nil {
		t.Error(err)
	}
	lines := map[string][]string{"gsubmit": {"--wrap", "true"}, "galloc": {"true"}, "grun": {"true"},
		"gcancel": {"1"}, "gbcast": {"/dev/null", "/tmp/x"}, "gattach": {"1.0"}, "gcontrol": {"show", "job", "1"},
		"greport": {"cluster", "utilization"}}
	asked := map[string]bool{}
	jobs := []string{""}
	if name == "grun" {
		jobs = append(jobs, "1")
	}
	for _, job := range jobs {
		var out bytes.Buffer
		Main(&env.Env{Program: name, Args: lines[name], Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			Dir: dir, Lookup: func(k string) (string, bool) {
				asked[k] = true
				switch k {
				case "GBATCH_CONF":
					return conf, true
				case "SLURM_JOB_ID":
					return job, job != ""
				case "SLURM_TEST_EXEC", "SHELL":
					return "/bin/sh", true
				}
				return "", false
			}})
	}
	return asked
}

// TestVariables: each variable of Slurm's manual pages, and each that ours name as input, is read by the command.
func TestVariables(t *testing.T) {
	used := map[string]bool{}
	mention := regexp.MustCompile(`\b(?:SLURM|SLURMD|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SCANCEL|SACCT|SPRIO|SREPORT|SBCAST|` +
		`SCONTROL)_[A-Z][A-Z0-9_]*\b`)
	found := map[string]chan map[string]bool{}
	for name := range slurmVariables {
		c := make(chan map[string]bool, 1)
		found[name] = c
		go func() { c <- asksFor(t, name) }() // each waits a while for a controller
	}
	for name, list := range slurmVariables {
		asked := <-found[name]
		page, err := os.ReadFile(filepath.Join("..", "..", "man", name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Fields(list)
		for _, part := range inputSections(string(page)) {
			all = append(all, mention.FindAllString(part, -1)...)
		}
		slices.Sort(all)
		for _, v := range slices.Compact(all) {
			switch {
			case oneCluster.MatchString(v): // the options have no effect
			case unread[v] != "":
				used[v] = true
				if asked[v] {
					t.Errorf("%s reads %s, which is listed as not read", name, v)
				}
			case readLater[v] != "":
				used[v] = true
				text, err := os.ReadFile(readLater[v])
				if err != nil || !strings.Contains(string(text), `"`+v+`"`) {
					t.Errorf("%s does not read %s: %v", readLater[v], v, err)
				}
			case !asked[v]:
				t.Errorf("%s does not read %s", name, v)
			}
		}
	}
	for _, list := range []map[string]string{unread, readLater} {
		for v := range list {
			if !used[v] {
				t.Errorf("%s is listed, and no page has it", v)
			}
		}
	}
}

// inputSections are the parts of a manual page that name variables which a command reads: what follows "Environment:",
// and the section of that name.
func inputSections(page string) (parts []string) {
	if _, rest, ok := strings.Cut(page, ".SH ENVIRONMENT\n"); ok {
		rest, _, _ = strings.Cut(rest, ".SH ")
		parts = append(parts, rest)
	}
	for _, part := range strings.Split(page, "Environment:")[1:] {
		part, _, _ = strings.Cut(part, "\n.")
		parts = append(parts, part)
	}
	return parts
}
