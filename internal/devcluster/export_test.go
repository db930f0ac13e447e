package devcluster_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/devcluster"
)

// TestNodeMetrics: a node serves what its GPUs do with the jobs that have them, and keeps the files that dcgm-exporter
// reads.
func TestNodeMetrics(t *testing.T) {
	addr, maps := fmt.Sprintf("127.0.0.1:%d", devcluster.FreePort(t)), t.TempDir()
	gpus := filepath.Join(t.TempDir(), "gpus.json")
	if err := os.WriteFile(gpus, []byte(`{"devices": [{"type": "h100", "util": 80, "memUsedMiB": 1000, "powerW": 400, `+
		`"smClockMHz": 1980},`+
		`{"type": "h100", "util": 0}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := devcluster.Start(t, devcluster.Options{HTTP: true, NoDbd: true, Nodes: 1, Gres: "gpu:h100:2",
		GresConf: "AutoDetect=fake:" + gpus + "\n", Conf: "NodeMetricsListen=" + addr +
			"\nNodeMetricsNames=dcgm,jobstats,gpu\nHpcJobMappingDir=" + maps + "\nJobAcctGatherFrequency=task=1\n"})
	w := newWeb(t, c, "ctl1")
	job := w.submit("train", "sleep 300", `,"tres_per_job":"gres/gpu:1"`)
	w.until(c, job, "RUNNING")
	for _, want := range []string{`DCGM_FI_DEV_GPU_UTIL{gpu="0",`, `hpc_job="` + job + `"} 80`,
		`nvidia_gpu_jobId{minor_number="0"`, `cgroup_cpus{jobid="` + job + `",step="",task=""}`,
		`gpu_tasks_total{gpu_id="GPU-0",node="n1",uuid="`, `"} 1` + "\n" + `gpu_tasks_total{gpu_id="GPU-1"`,
		`gpu_utilization{gpu_id="GPU-0",`, `hpc_job="` + job + `"} 1980`} {
		c.Wait("the node serves "+want, func() error {
			r, err := http.Get("http://" + addr + "/metrics")
			if err != nil {
				return err
			}
			b, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Body.Close()); err != nil || !strings.Contains(string(b), want) {
				return fmt.Errorf("%v\n%s", err, b)
			}
			return nil
		})
	}
	file := func(name, want string) {
		t.Helper()
		c.Wait("file "+name, func() error {
			if b, err := os.ReadFile(filepath.Join(maps, name)); err != nil || string(b) != want {
				return fmt.Errorf("%q, %v", b, err)
			}
			return nil
		})
	}
	file("0", job+"\n")
	file("1", "")
	w.ok("DELETE", "/slurm/v0.0.44/job/"+job, "")
	file("0", "")
}
