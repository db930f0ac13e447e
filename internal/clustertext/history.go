package clustertext

import (
	"strconv"

	"gbatch/internal/walltime"
)

// HistoryTitle is a column's heading for a field of samples.
func HistoryTitle(field string) string {
	if t := historyTitles[field]; t != "" {
		return t
	}
	return field
}

var historyTitles = map[string]string{"running": "Running", "pending": "Pending", "cpus": "AllocCPUs",
	"gpus": "AllocGPUs", "gpu_util": "GPUUtil", "cpus_total": "CPUs", "gpus_total": "GPUs", "cpu_load": "CPULoad",
	"mem": "Mem", "gpu_mem": "GPUMem", "power": "Watts", "temp": "Temp", "job": "JobID", "cpu_use": "CPUUse"}

// HistoryValue writes a value of samples; "" for one that is not known. Memory is in bytes with plain, else with a
// unit.
func HistoryValue(field string, v int64, plain bool) string {
	switch {
	case v < 0:
		return ""
	case field == "cpu_use", field == "cpu_load":
		return fixed(v, 100)
	case field == "power":
		return fixed(v, 10)
	case field == "mem" || field == "gpu_mem":
		if plain {
			return strconv.FormatInt(v<<20, 10)
		}
		return walltime.FormatRounded(v)
	}
	return strconv.FormatInt(v, 10)
}

// fixed writes a number of parts, 10 or 100 to the whole.
func fixed(v, parts int64) string {
	rest := strconv.FormatInt(v%parts+parts, 10)[1:]
	return strconv.FormatInt(v/parts, 10) + "." + rest
}
