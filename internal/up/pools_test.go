package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportPools: gcontrol import makes of a pool and of queues what a running cluster has, says what it can't, makes
// nothing twice, and nothing at all in a dry run.
func TestImportPools(t *testing.T) {
	c, _ := mustUp(t, Options{Dir: filepath.Join(t.TempDir(), "c"), Nodes: 2, CPUs: 1, MemMiB: 500, GPUs: "a100:4"})
	work := t.TempDir()
	run := typed(t, c, work, "gcontrol", "gacctmgr", "ginfo")
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
      - {name: normal, weight: 50}
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
	has(dry, "gacctmgr add account team-a\n", "gcontrol create PartitionName=train State=UP Nodes=ALL",
		"gacctmgr add account team-a partition=train GrpTRES=gres/gpu=4 GuaranteedTRES=gres/gpu=2",
		"gacctmgr modify qos where name=high set Preempt=low,normal",
		"gacctmgr modify qos where name=normal set Priority=50 (it was there, with Priority=",
		"QOS normal is what jobs have that name none", "takes partition train out again unless gbatch.conf has this line: "+
			"PartitionName=train State=UP Nodes=ALL",
		"ReservationName=train-reserved", "10 records to make or change, 1 script")
	if out := run("gacctmgr -n show account format=account"); strings.Contains(out, "team") {
		t.Errorf("a dry run has made accounts:\n%s", out)
	}

	has(run("gcontrol import -f pool.yaml -O scripts"), "10 records made or changed, 1 script", "scripts/llm.sh",
		"AccountingStorageEnforce", "PreemptType")
	has(run("gacctmgr -nP show qos format=name,priority,grptres,preempt"), "high|100|gres/gpu=6|low,normal", "low|10||")
	has(run("gacctmgr -nP show assoc account=team-a partition=train format=account,partition,grptres"),
		"team-a|train|gres/gpu=4")
	has(run("ginfo --pools -p train"), "team-a", "team-b")
	has(run("gcontrol show partition train"), "AllowAccounts=team-a,team-b", "Nodes=n[1-2]")
	has(run("gcontrol show reservation train-reserved"), "gres/gpu=1")
	script, err := os.ReadFile(filepath.Join(work, "scripts", "llm.sh"))
	if err != nil {
		t.Fatal(err)
	}
	has(string(script), "#SBATCH --partition=train", "#SBATCH --elastic=1-2", "#SBATCH --gpus-per-node=4")

	// What an administrator has changed beside it stays.
	run("gacctmgr -i modify account where name=team-a partition=train set GrpJobs=7")
	again := run("gcontrol import -f pool.yaml -O scripts --json")
	has(again, `"pools: 0 records made or changed, 1 script"`, `"kind": "kept"`)
	has(run("gacctmgr -nP show assoc account=team-a partition=train format=account,grpjobs"), "team-a|7")
	has(run("gcontrol import -o -f pool.yaml scripts"), "-O DIRECTORY is where its scripts go")

	has(run("gcontrol import"), "import what?")
	has(run("gcontrol import -f nothing.yaml"), "nothing.yaml")
}
