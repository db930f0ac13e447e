package exporter

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func demo() *Snapshot {
	return &Snapshot{Host: `n"1`, GPUs: []GPU{
		{Index: 0, Minor: 3, UUID: "GPU-a", PCI: "0000:17:00.0", Model: "NVIDIA H100", UtilPct: 80, MemUtilPct: 10, TempC: 60,
			XID: 0, UsedMiB: 1000, TotalMiB: 81559, PowerMW: 400500, EnergyMilJ: 1 << 40, MemTempC: 70, SMClockMHz: 1980,
			MemClockMHz: 2619, Tasks: 5, Jobs: []uint32{7, 8}},
		{Index: 1, Minor: 1, UUID: "MIG-b", Model: "NVIDIA H100", Profile: "1g.10gb", Instance: 9, UtilPct: -1,
			MemUtilPct: -1, TempC: -1, XID: -1, UsedMiB: 5, TotalMiB: 9728, PowerMW: -1, EnergyMilJ: -1,
			MemTempC: -1, SMClockMHz: -1, MemClockMHz: -1}},
		Jobs: []Job{{ID: 7, CPUs: 4, UserMS: 1500, SysMS: 500, RSSBytes: 100, UsedBytes: 300, LimitBytes: 1 << 30}}}
}

// TestNames: the series and labels are those that boards ask for; what is not known has none.
func TestNames(t *testing.T) {
	text := string(demo().Text([]string{"dcgm", Jobstats, Plain}))
	for _, want := range []string{
		"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n",
		`DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pci_bus_id="0000:17:00.0",device="nvidia0",modelName="NVIDIA H100",` +
			`Hostname="n\"1",hostname="n\"1",hpc_job="7"} 80` + "\n",
		`hpc_job="8"} 80`,
		`DCGM_FI_DEV_FB_USED{gpu="1",UUID="MIG-b",pci_bus_id="",device="nvidia1",modelName="NVIDIA H100",` +
			`GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",Hostname="n\"1",hostname="n\"1"} 5`,
		`DCGM_FI_DEV_FB_FREE{gpu="0"`, "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n", `hpc_job="7"} 1099511627776`,
		`hpc_job="7"} 400.5`,
		`nvidia_gpu_duty_cycle{minor_number="3",ordinal="0",uuid="GPU-a",name="NVIDIA H100",jobid="7"} 80`,
		`nvidia_gpu_memory_used_bytes{minor_number="1",ordinal="1",uuid="MIG-b",name="NVIDIA H100"} 5242880`,
		`nvidia_gpu_power_usage_milliwatts{minor_number="3",ordinal="0",uuid="GPU-a",name="NVIDIA H100",jobid="8"} 400500`,
		`nvidia_gpu_jobId{minor_number="3",ordinal="0",uuid="GPU-a",name="NVIDIA H100"} 7`,
		`cgroup_cpu_total_seconds{jobid="7",step="",task=""} 2`, `cgroup_memory_cache_bytes{jobid="7",step="",task=""} 200`,
		`cgroup_memory_total_bytes{jobid="7",step="",task=""} 1073741824`,
		`DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-a"`, `hpc_job="7"} 70`, `DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a"`,
		`hpc_job="7"} 1980`, `DCGM_FI_DEV_MEM_CLOCK{gpu="0",UUID="GPU-a"`, `hpc_job="7"} 2619`,
		"# TYPE gpu_tasks_total counter\n" + `gpu_tasks_total{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 5` + "\n" +
			`gpu_tasks_total{gpu_id="GPU-1.9",node="n\"1",uuid="MIG-b"} 0` + "\n",
		`gpu_memory_used_bytes{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 1048576000`,
		`gpu_memory_total_bytes{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 85520809984`,
		`gpu_utilization_percent{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 80`,
		`gpu_utilization{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 80`,
		`gpu_temperature_celsius{gpu_id="GPU-0",node="n\"1",uuid="GPU-a"} 60`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "-1\n") || strings.Contains(text, `GPU_TEMP{gpu="1"`) {
		t.Errorf("what is not known has a series:\n%s", text)
	}
	if got := string(demo().Text(nil)); strings.Contains(got, "cgroup_") || strings.Contains(got, "nvidia_gpu") ||
		strings.Contains(got, "\ngpu_") {
		t.Error("names without being asked for")
	}
}

// TestFiles: one for each GPU with its jobs; what was left is removed, and others' files stay.
func TestFiles(t *testing.T) {
	e := &Exporter{Dir: filepath.Join(t.TempDir(), "maps"), Log: slog.New(slog.DiscardHandler)}
	if err := os.Mkdir(e.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"5", "2.3", "README"} {
		if err := os.WriteFile(filepath.Join(e.Dir, name), []byte("99\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		got := ""
		list, err := os.ReadDir(e.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			b, err := os.ReadFile(filepath.Join(e.Dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got += f.Name() + "=" + strings.ReplaceAll(string(b), "\n", ",") + " "
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	first := demo().files()
	if err := e.writeFiles(first, nil); err != nil {
		t.Fatal(err)
	}
	check("0=7,8, 1.9= README=99, ")
	next := map[string]string{"0": "8\n"}
	if err := e.writeFiles(next, first); err != nil {
		t.Fatal(err)
	}
	check("0=8, README=99, ")
}
