package up

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportPools: gcontrol import makes of a pool and of queues what a running cluster has, says what it can't, makes
// nothing twice, and nothing at all in a dry run.
func TestImportPools(t *testing.T) {
	c, _ := mustUp(t, Options{Dir: filepath.Join(t.TempDir(), "c"), Nodes: 2, CPUs: 1, MemMiB: 500, GPUs: "a100:4"})
	work := t.TempDir()
	for _, name := range []string{"gcontrol", "gacctmgr"} {
		if err := os.Symlink(filepath.Join(programs(t), "gcli"), filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) string {
		t.Helper()
		words := strings.Fields(line)
		cmd := exec.CommandContext(t.Context(), filepath.Join(work, words[0]), words[1:]...)
		cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf, "PATH="+programs(t)+":"+os.Getenv("PATH"))
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatalf("%s: %v", line, err)
		}
		return string(out)
	}
	has := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in:\n%s", w, out)
			}
		}
	}
	file := `
apiVersion: ai.example.com/v1
kind: ComputePool
metadata: {name: train}
spec:
  poolType: gpu
  capacity: {total: 8, reserved: 1}
  quotas: [{tenant: team-a, limit: 4, guaranteed: 2}, {tenant: team-b, limit: 6, guaranteed: 0}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scheduler-queues}
data:
  queues.yaml: |
    queues:
      - {name: high, weight: 100, maxCapacity: 6, preemptionPolicy: PreemptLowerPriority}
      - {name: low, weight: 10, preemptionPolicy: Never}
---
apiVersion: ai.example.com/v1
kind: ElasticJob
metadata: {name: llm}
spec: {pool: train, scaling: {minReplicas: 1, maxReplicas: 2, gpuPerReplica: 4}}
`
	if err := os.WriteFile(filepath.Join(work, "pool.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}

	dry := run("gcontrol import -f pool.yaml --dry-run")
	has(dry, "gacctmgr add qos train-team-a GrpTRES=gres/gpu=4 GuaranteedTRES=gres/gpu=2",
		"gacctmgr add account team-a DefaultQOS=train-team-a QOS+=train-team-a",
		"gcontrol create PartitionName=train State=UP Nodes=ALL",
		"ReservationName=train-reserved", "9 records to make or change, 1 script")
	if out := run("gacctmgr -n show qos format=name"); strings.Contains(out, "train") {
		t.Errorf("a dry run has made QOS:\n%s", out)
	}

	has(run("gcontrol import -f pool.yaml -O scripts"), "9 records made or changed, 1 script", "scripts/llm.sh",
		"AccountingStorageEnforce", "PreemptType")
	has(run("gacctmgr -nP show qos format=name,priority,grptres,preempt"), "train-team-a|0|gres/gpu=4|",
		"train-team-b|0|gres/gpu=6|", "high|100|gres/gpu=6|low", "low|10||")
	has(run("gacctmgr -nP show assoc account=team-a format=account,qos,defaultqos"), "team-a|", "train-team-a")
	has(run("gcontrol show partition train"), "AllowAccounts=team-a,team-b", "AllowQos=train-team-a,train-team-b",
		"Nodes=n[1-2]")
	has(run("gcontrol show reservation train-reserved"), "gres/gpu=1")
	script, err := os.ReadFile(filepath.Join(work, "scripts", "llm.sh"))
	if err != nil {
		t.Fatal(err)
	}
	has(string(script), "#SBATCH --partition=train", "#SBATCH --elastic=1-2", "#SBATCH --gpus-per-node=4")

	// What an administrator has changed beside it stays.
	run("gacctmgr -i modify qos train-team-a set Priority=7")
	again := run("gcontrol import -f pool.yaml -O scripts --json")
	has(again, `"pools: 0 records made or changed, 1 script"`, `"kind": "kept"`)
	has(run("gacctmgr -nP show qos format=name,priority"), "train-team-a|7")

	has(run("gcontrol import"), "import what?")
	has(run("gcontrol import -f nothing.yaml"), "nothing.yaml")
}
