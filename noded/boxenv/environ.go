// Package boxenv has the environment of a process in a container, whoever makes the container:
// noded/box of images, and noded/oci of bundles. An image's variables come before those of the
// submission, as with pyxis: PATH and LD_LIBRARY_PATH of a login host are of no use there. What
// gbatch says of the job, and what --container-env names, come before the image's.
package boxenv

import (
	"slices"
	"strings"
)

// Path is where programs are looked for if an image does not say it.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

var (
	// ours are variables that an image can't change.
	ours = []string{"HOME", "USER", "LOGNAME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
		"HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK",
		"LOCAL_WORLD_SIZE", "GROUP_RANK"}
	oursBegin = []string{"SLURM", "SLURMD_", "GBATCH_", "PMI_", "PMIX_"}
)

// notThere are the submission's variables that mean nothing in an image.
var notThere = []string{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "MANPATH", "BASH_ENV", "ENV"}

// Where the GPU driver is in a container that has it. Images of NVIDIA have these directories in their variables.
const (
	DriverLibs     = "/usr/local/nvidia/lib64"
	DriverPrograms = "/usr/local/nvidia/bin"
)

// Environ gives the environment of a process: the job's, and the image's. The variables of keep come before the
// image's.
// libs and programs are the directories of the GPU driver, "" for none.
func Environ(job, image, keep []string, libs, programs string) []string {
	out := make([]string, 0, len(job)+len(image))
	at := map[string]int{}
	set := func(entry string) {
		name, _, has := strings.Cut(entry, "=")
		if !has || name == "" {
			return
		}
		if i, ok := at[name]; ok {
			out[i] = entry
			return
		}
		at[name] = len(out)
		out = append(out, entry)
	}
	of := func(entry string) string { name, _, _ := strings.Cut(entry, "="); return name }
	for _, e := range job {
		if name := of(e); !slices.Contains(notThere, name) || slices.Contains(keep, name) {
			set(e)
		}
	}
	for _, e := range image {
		name := of(e)
		_, has := at[name]
		switch {
		case has && (isOurs(name) || slices.Contains(keep, name)):
		case !has && name != "" && isOurs(name) && name != "HOME":
			// An image that says "all GPUs" does not know which the job has.
		default:
			set(e)
		}
	}
	value := func(name string) string {
		if i, ok := at[name]; ok {
			return out[i][len(name)+1:]
		}
		return ""
	}
	if value("PATH") == "" {
		set("PATH=" + Path)
	}
	for _, v := range [][2]string{{"PATH", programs}, {"LD_LIBRARY_PATH", libs}} {
		if have := value(v[0]); v[1] != "" && !slices.Contains(strings.Split(have, ":"), v[1]) {
			set(v[0] + "=" + strings.TrimSuffix(v[1]+":"+have, ":"))
		}
	}
	return out
}

func isOurs(name string) bool {
	return slices.Contains(ours, name) || slices.ContainsFunc(oursBegin,
		func(begin string) bool { return strings.HasPrefix(name, begin) })
}
