package jobenv

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// slurmEnvs reads the variables that real Slurm set, by job.
func slurmEnvs(t testing.TB) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/slurm-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{}
	var job map[string]string
	for line := range strings.SplitSeq(string(text), "\n") {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			name, _, _ := strings.Cut(head, ":")
			job = map[string]string{}
			out[name] = job
		} else if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			job[name] = value
		}
	}
	return out
}

func testEnv(node string) *Node {
	gres := []model.GresDef{{Name: "gpu", Count: 3}}
	if node == "rn3" {
		gres = nil
	}
	var seen *Units
	return &Node{Name: node, Cluster: "real", Controller: "127.0.0.1:6817", Conf: "/tmp/realslurm/slurm.conf",
		Hidden: seen.HiddenOn(&model.NodeDef{Gres: gres}),
		User:   func(uint32) Account { return Account{Name: "root", Home: "/root", Shell: "/bin/bash"} }}
}

// launchOn makes a launch with these CPUs, tasks and GPUs on its nodes.
func launchOn(job model.JobID, name string, nodes ...model.NodeAlloc) *proto.Launch {
	return &proto.Launch{Job: job, Attempt: 1, Task: model.NoTask, Part: "debug", LimitS: model.Unlimited,
		Start: 1_700_000_000_500,
		Spec:  &model.Spec{Name: name, User: "root", WorkDir: "/tmp/realslurm/out", Host: "vm", Umask: 0o022},
		Alloc: &model.Alloc{Nodes: nodes}}
}

func nodeAlloc(node string, cpus, tasks, gpus int) model.NodeAlloc {
	na := model.NodeAlloc{Node: node, CPUs: model.UpTo(cpus), Tasks: int32(tasks)}
	if gpus > 0 {
		na.Gres = []model.GresAlloc{{Name: "gpu", Index: model.UpTo(gpus)}}
	}
	return na
}

// TestEnvironmentIsSlurms checks every variable of real Slurm, and that no others are set except those of later
// releases.
func TestEnvironmentIsSlurms(t *testing.T) {
	jobs := map[string]*proto.Launch{
		"plain": launchOn(1, "plain", nodeAlloc("rn1", 1, 1, 0)),
		"gpu1":  launchOn(2, "gpu1", nodeAlloc("rn2", 1, 1, 2)),
		"two":   launchOn(3, "two", nodeAlloc("rn1", 2, 2, 1), nodeAlloc("rn2", 1, 1, 1)),
		"ntpn":  launchOn(4, "ntpn", nodeAlloc("rn1", 2, 2, 1), nodeAlloc("rn2", 2, 2, 1)),
		"arr":   launchOn(9, "arr", nodeAlloc("rn2", 1, 1, 0)), "nongpu": launchOn(6, "nongpu", nodeAlloc("rn3", 1, 1, 0)),
		"expnone": launchOn(7, "expnone", nodeAlloc("rn1", 2, 2, 2)),
	}
	jobs["gpu1"].Spec.MemPerNode = 100
	two := jobs["two"].Spec
	two.Tasks, two.CPUsPerTask, two.MemPerCPU, two.Gres = 3, 1, 50,
		[]model.GresReq{{Name: "gpu", Count: 1, Per: model.PerNode}}
	jobs["two"].LimitS = 600
	ntpn := jobs["ntpn"].Spec
	ntpn.TasksPerNode, ntpn.CPUsPerTask, ntpn.Gres = 2, 1, []model.GresReq{{Name: "gpu", Count: 2, Per: model.PerJob}}
	arr := jobs["arr"]
	arr.ArrayID, arr.Task, arr.Array = 5, 3, proto.ArrayShape{Count: 3, Min: 1, Max: 5, Step: 2}
	jobs["nongpu"].Spec.DepText = "singleton"
	exp := jobs["expnone"].Spec
	exp.Account, exp.Tasks, exp.MemPerNode, exp.Gres = "acct", 2, model.WholeMem,
		[]model.GresReq{{Name: "gpu", Count: 1, Per: model.PerTask}}

	const submitted = "PATH=/bin\x00HOME=/root\x00USER=root\x00FOO=a " +
		"b\x00CUDA_VISIBLE_DEVICES=7\x00HOSTNAME=bogus\x00SLURM_SUBMIT_DIR=/tmp/realslurm/out\x00"
	later := []string{"SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_UMASK", "SLURM_WORKING_CLUSTER", "GBATCH_CONF"}
	all := slurmEnvs(t)
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			l := jobs[name]
			env, err := testEnv(l.Alloc.Nodes[0].Node).Script(l, []byte(submitted))
			if err != nil {
				t.Fatal(err)
			}
			got := asMap(t, env)
			for k, v := range want {
				if g, ok := got[k]; !ok || g != v {
					t.Errorf("%s=%q (set: %v), Slurm: %q", k, g, ok, v)
				}
			}
			for k, v := range got {
				_, here := want[k]
				_, plain := all["plain"][k]
				if (strings.HasPrefix(k, "SLURM") || strings.Contains(k, "VISIBLE")) && !here && !plain &&
					!slices.Contains(later, k) {
					t.Errorf("%s=%q, which Slurm does not set", k, v)
				}
			}
			if got["FOO"] != "a b" || got["HOME"] != "/root" {
				t.Errorf("what was submitted is lost: %v", got)
			}
		})
	}
}

func asMap(t testing.TB, env []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if _, twice := out[name]; twice || !ok {
			t.Errorf("%q: no NAME=value, or there twice", e)
		}
		out[name] = value
	}
	return out
}

func TestEnvironmentDetails(t *testing.T) {
	l := launchOn(7, "j", nodeAlloc("n1", 4, 2, 0), nodeAlloc("n2", 4, 2, 0), nodeAlloc("n3", 1, 1, 0))
	l.Alloc.Nodes[0].Gres = []model.GresAlloc{{Name: "gpu", Type: "a100", Index: model.Bits(nil).With(5)},
		{Name: "gpu", Type: "t4", Index: model.Bits(nil).With(0).With(2)}, {Name: "nic", Index: model.UpTo(9)}}
	l.Spec.Gres = []model.GresReq{{Name: "gpu", Type: "a100", Count: 1}, {Name: "gpu", Type: "t4", Count: 2},
		{Name: "nic", Count: 9}}
	l.LimitS, l.Restarts, l.Resv = 90, 2, "maint"
	l.Spec.QOS, l.Spec.Overcommit, l.Spec.Name, l.Spec.UID, l.Spec.GID = "high", true, "odd\x00name", 1000, 100
	e := testEnv("n1")
	// From the job that submitted this one, and malformed entries.
	submitted := "SLURM_ARRAY_TASK_ID=9\x00SLURM_NTASKS=4\x00SLURM_STEP_ID=0\x00SLURM_EXPORT_ENV=NONE\x00" +
		"SLURM_DISTRIBUTION=cyclic\x00SLURM_LABELIO=1\x00SRUN_DEBUG=3\x00" +
		"SLURM_PRIO_PROCESS=5\x00=x\x00noequals\x00\x00EMPTY=\x00LAST=1"
	env, err := e.Script(l, []byte(submitted))
	if err != nil {
		t.Fatal(err)
	}
	got := asMap(t, env)
	for name, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES": "0,2,5", "SLURM_JOB_GPUS": "0,2,5", "SLURM_GPUS_ON_NODE": "3",
		"SLURM_GPUS_PER_NODE":  "a100:1,t4:2",
		"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700000090", "SLURM_RESTART_COUNT": "2",
		"SLURM_JOB_RESERVATION": "maint",
		"SLURM_JOB_QOS":         "high", "SLURM_OVERCOMMIT": "1", "SLURM_JOB_NAME": "oddname", "SLURM_JOB_UID": "1000",
		"SLURM_JOB_GID":      "100",
		"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "4(x2),1", "SLURM_TASKS_PER_NODE": "4(x2),1",
		"SLURM_CPUS_ON_NODE": "4",
		"SLURM_EXPORT_ENV":   "NONE", "SLURM_PRIO_PROCESS": "5", "EMPTY": "", "LAST": "1", "SLURM_UMASK": "0022",
		"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "PATH": "/usr/local/bin:/usr/bin:/bin",
		"TMPDIR":                "/tmp",
		"SLURM_WORKING_CLUSTER": "real:127.0.0.1:6817:11008:109",
	} {
		if got[name] != want {
			t.Errorf("%s=%q, want %q", name, got[name], want)
		}
	}
	if env, err := e.Script(l, []byte("SLURM_DISTRIBUTION=cyclic")); err != nil ||
		asMap(t, env)["SLURM_DISTRIBUTION"] != "cyclic" {
		t.Errorf("a user's wish outside of steps is lost: %v", err)
	}
	for _, name := range []string{"SLURM_DISTRIBUTION", "SLURM_LABELIO", "SRUN_DEBUG", "SLURM_ARRAY_TASK_ID",
		"SLURM_NTASKS", "SLURM_STEP_ID", "noequals", "",
		"SLURM_JOB_ACCOUNT", "SLURM_MEM_PER_NODE"} {
		if v, ok := got[name]; ok {
			t.Errorf("%q=%q should not be there", name, v)
		}
	}
}

func TestEnvironmentHasALimit(t *testing.T) {
	l := launchOn(7, "j", nodeAlloc("n1", 1, 1, 0))
	if _, err := testEnv("n1").Script(l, []byte(strings.Repeat("A=1\x00", maxEnvVars+1))); err == nil ||
		!strings.Contains(err.Error(), "32768") {
		t.Errorf("%v", err)
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add([]byte("A=1\x00SLURM_JOB_ID=7\x00B"))
	f.Add([]byte("\x00\x00=\x00"))
	l := launchOn(7, "j", nodeAlloc("n1", 1, 1, 1))
	f.Fuzz(func(t *testing.T, submitted []byte) {
		env, err := testEnv("n1").Script(l, submitted)
		if err != nil {
			return
		}
		ids := 0
		for _, e := range env {
			name, _, ok := strings.Cut(e, "=")
			if !ok || name == "" || strings.Contains(e, "\x00") {
				t.Errorf("%q", e)
			}
			if name == "SLURM_JOB_ID" {
				ids++
			}
		}
		if ids != 1 {
			t.Errorf("SLURM_JOB_ID is there %d times", ids)
		}
	})
}

func BenchmarkEnvironment(b *testing.B) {
	l := launchOn(7, "j", nodeAlloc("n1", 1, 1, 1))
	submitted := []byte(strings.Repeat("SOME_VARIABLE_NAME=some value of usual length\x00", 40))
	e := testEnv("n1")
	for b.Loop() {
		if _, err := e.Script(l, submitted); err != nil {
			b.Fatal(err)
		}
	}
}
