package exporter

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot is what a node knows at one moment.
type Snapshot struct {
	Host string
	GPUs []GPU
	Jobs []Job
}

// GPU is one GPU, or one MIG instance of it. Numbers that are not known are -1.
type GPU struct {
	Index                                  int // the driver's
	Minor                                  int // of its device file
	UUID, PCI, Model                       string
	Profile                                string // of an instance: "1g.10gb"
	Instance                               int    // of an instance: its GPU instance's number
	UtilPct, MemUtilPct, TempC, XID        int64
	UsedMiB, TotalMiB, PowerMW, EnergyMilJ int64
	MemTempC, SMClockMHz, MemClockMHz      int64
	Tasks                                  int64    // jobs that were given it, or a share of it, since gnoded started
	Jobs                                   []uint32 // that have it, or a share of it
}

// Job is what a job uses here. Numbers that are not known are -1.
type Job struct {
	ID                                       uint32
	CPUs                                     int64
	UserMS, SysMS                            int64
	RSSBytes, UsedBytes, LimitBytes, OOMKill int64
}

// series is a metric of GPUs.
type series struct {
	name, help string
	counter    bool
	of         func(g *GPU) (float64, bool)
}

func known(v int64, per float64) (float64, bool) { return float64(v) / per, v >= 0 }

var dcgm = []series{
	{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", false, func(g *GPU) (float64, bool) {
		return known(g.UtilPct, 1)
	}},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", false, func(g *GPU) (float64, bool) {
		return known(g.MemUtilPct, 1)
	}},
	{"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", false, func(g *GPU) (float64, bool) {
		return known(g.UsedMiB, 1)
	}},
	{"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", false, func(g *GPU) (float64, bool) {
		return float64(g.TotalMiB - g.UsedMiB), g.UsedMiB >= 0 && g.TotalMiB >= g.UsedMiB
	}},
	{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", false, func(g *GPU) (float64, bool) {
		return known(g.TempC, 1)
	}},
	{"DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", false, func(g *GPU) (float64, bool) {
		return known(g.MemTempC, 1)
	}},
	{"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", false, func(g *GPU) (float64, bool) {
		return known(g.SMClockMHz, 1)
	}},
	{"DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", false, func(g *GPU) (float64, bool) {
		return known(g.MemClockMHz, 1)
	}},
	{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", false, func(g *GPU) (float64, bool) {
		return known(g.PowerMW, 1000)
	}},
	{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", true,
		func(g *GPU) (float64, bool) { return known(g.EnergyMilJ, 1) }},
	{"DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", false, func(g *GPU) (float64, bool) {
		return known(g.XID, 1)
	}},
}

var nvidia = []series{
	{"nvidia_gpu_duty_cycle", "Percent of time over the past sample period during which the GPU was active.", false,
		func(g *GPU) (float64, bool) { return known(g.UtilPct, 1) }},
	{"nvidia_gpu_memory_used_bytes", "Memory used by the GPU device in bytes.", false,
		func(g *GPU) (float64, bool) { return known(g.UsedMiB, 1.0/(1<<20)) }},
	{"nvidia_gpu_memory_total_bytes", "Total memory of the GPU device in bytes.", false,
		func(g *GPU) (float64, bool) { return known(g.TotalMiB, 1.0/(1<<20)) }},
	{"nvidia_gpu_temperature_celsius", "Temperature of the GPU device in celsius.", false,
		func(g *GPU) (float64, bool) { return known(g.TempC, 1) }},
	{"nvidia_gpu_power_usage_milliwatts", "Power usage of the GPU device in milliwatts.", false,
		func(g *GPU) (float64, bool) { return known(g.PowerMW, 1) }},
}

// plain are names by which the product's sources ask.
var plain = []series{
	{"gpu_memory_used_bytes", "memory of the GPU that is in use", false,
		func(g *GPU) (float64, bool) { return known(g.UsedMiB, 1.0/(1<<20)) }},
	{"gpu_memory_total_bytes", "memory of the GPU", false,
		func(g *GPU) (float64, bool) { return known(g.TotalMiB, 1.0/(1<<20)) }},
	{"gpu_utilization_percent", "use of the GPU, 0 to 100", false,
		func(g *GPU) (float64, bool) { return known(g.UtilPct, 1) }},
	{"gpu_utilization", "use of the GPU, 0 to 100", false,
		func(g *GPU) (float64, bool) { return known(g.UtilPct, 1) }},
	{"gpu_temperature_celsius", "temperature of the GPU", false,
		func(g *GPU) (float64, bool) { return known(g.TempC, 1) }},
	{"gpu_tasks_total", "jobs that were given the GPU, or a share of it, since gnoded started", true,
		func(g *GPU) (float64, bool) { return known(g.Tasks, 1) }},
}

// The sets of names that a node may serve beside DCGM's.
const (
	Jobstats = "jobstats"
	Plain    = "gpu"
)

// jobSeries is a metric of jobs.
type jobSeries struct {
	name, help string
	of         func(j *Job) (float64, bool)
}

var cgroups = []jobSeries{
	{"cgroup_cpus", "Number of CPUs of the job.", func(j *Job) (float64, bool) { return known(j.CPUs, 1) }},
	{"cgroup_cpu_user_seconds", "CPU time of the job in user mode.", func(j *Job) (float64, bool) {
		return known(j.UserMS, 1000)
	}},
	{"cgroup_cpu_system_seconds", "CPU time of the job in the kernel.", func(j *Job) (float64, bool) {
		return known(j.SysMS, 1000)
	}},
	{"cgroup_cpu_total_seconds", "CPU time of the job.", func(j *Job) (float64, bool) {
		return known(j.UserMS+j.SysMS, 1000)
	}},
	{"cgroup_memory_total_bytes", "Memory that the job may use.", func(j *Job) (float64, bool) {
		return known(j.LimitBytes, 1)
	}},
	{"cgroup_memory_rss_bytes", "Memory of the job's processes.", func(j *Job) (float64, bool) {
		return known(j.RSSBytes, 1)
	}},
	{"cgroup_memory_cache_bytes", "Page cache of the job.", func(j *Job) (float64, bool) {
		return float64(j.UsedBytes - j.RSSBytes), j.RSSBytes >= 0 && j.UsedBytes >= j.RSSBytes
	}},
	{"cgroup_memory_used_bytes", "Memory of the job, page cache included.", func(j *Job) (float64, bool) {
		return known(j.UsedBytes, 1)
	}},
	{"cgroup_memory_fail_count", "Processes of the job that were killed for lack of memory.",
		func(j *Job) (float64, bool) { return known(j.OOMKill, 1) }},
}

// Text writes a snapshot in Prometheus' text format, under DCGM's names and those of more sets.
func (s *Snapshot) Text(sets []string) []byte {
	var b bytes.Buffer
	for i := range dcgm {
		s.gpuSeries(&b, &dcgm[i], s.dcgmLabels)
	}
	if slices.Contains(sets, Plain) {
		for i := range plain {
			s.gpuSeries(&b, &plain[i], s.plainLabels)
		}
	}
	if !slices.Contains(sets, Jobstats) {
		return b.Bytes()
	}
	for i := range nvidia {
		s.gpuSeries(&b, &nvidia[i], nvidiaLabels)
	}
	owner := series{"nvidia_gpu_jobId", "Number of the job that has the GPU.", false, func(g *GPU) (float64, bool) {
		if len(g.Jobs) == 0 {
			return 0, true
		}
		return float64(g.Jobs[0]), true
	}}
	s.gpuSeries(&b, &owner, func(g *GPU, _ string) string { return nvidiaLabels(g, "") })
	for i := range cgroups {
		m := &cgroups[i]
		headed := false
		for k := range s.Jobs {
			if v, ok := m.of(&s.Jobs[k]); ok {
				headed = head(&b, m.name, m.help, "gauge", headed)
				fmt.Fprintf(&b, "%s{jobid=\"%d\",step=\"\",task=\"\"} %s\n", m.name, s.Jobs[k].ID, number(v))
			}
		}
	}
	return b.Bytes()
}

func head(b *bytes.Buffer, name, help, kind string, done bool) bool {
	if !done {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	return true
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// gpuSeries writes a metric: a line for each job that has the GPU, or one without a job.
func (s *Snapshot) gpuSeries(b *bytes.Buffer, m *series, labels func(g *GPU, job string) string) {
	kind := "gauge"
	if m.counter {
		kind = "counter"
	}
	headed := false
	for i := range s.GPUs {
		g := &s.GPUs[i]
		v, ok := m.of(g)
		if !ok {
			continue
		}
		headed = head(b, m.name, m.help, kind, headed)
		jobs := []string{""}
		if len(g.Jobs) > 0 {
			jobs = nil
			for _, id := range g.Jobs {
				jobs = append(jobs, strconv.FormatUint(uint64(id), 10))
			}
		}
		var had []string
		for _, job := range jobs {
			if l := labels(g, job); !slices.Contains(had, l) {
				had = append(had, l)
				fmt.Fprintf(b, "%s{%s} %s\n", m.name, l, number(v))
			}
		}
	}
}

// dcgmLabels are dcgm-exporter's. The host's label was renamed in 2026; boards of both kinds find theirs.
func (s *Snapshot) dcgmLabels(g *GPU, job string) string {
	l := labels("gpu", strconv.Itoa(g.Index), "UUID", g.UUID, "pci_bus_id", g.PCI, "device",
		"nvidia"+strconv.Itoa(g.Index), "modelName", g.Model)
	if g.Profile != "" {
		l += "," + labels("GPU_I_PROFILE", g.Profile, "GPU_I_ID", strconv.Itoa(g.Instance))
	}
	l += "," + labels("Hostname", s.Host, "hostname", s.Host)
	if job != "" {
		l += "," + labels("hpc_job", job)
	}
	return l
}

// plainLabels name a GPU as /api/v1/gpus does, and an instance as its mapping file; a job adds no series.
func (s *Snapshot) plainLabels(g *GPU, _ string) string {
	id := "GPU-" + strconv.Itoa(g.Index)
	if g.Profile != "" {
		id += "." + strconv.Itoa(g.Instance)
	}
	return labels("gpu_id", id, "node", s.Host, "uuid", g.UUID)
}

func nvidiaLabels(g *GPU, job string) string {
	l := labels("minor_number", strconv.Itoa(g.Minor), "ordinal", strconv.Itoa(g.Index), "uuid", g.UUID, "name", g.Model)
	if job != "" {
		l += "," + labels("jobid", job)
	}
	return l
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labels writes names and values in turn.
func labels(list ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(list); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(list[i] + `="` + escape.Replace(strings.ToValidUTF8(list[i+1], "?")) + `"`)
	}
	return b.String()
}
