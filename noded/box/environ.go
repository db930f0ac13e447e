package box

import (
	"slices"
	"strings"

	wish "gbatch/internal/model/container"
	"gbatch/noded/image"
)

// environ.go makes the environment and the arguments of a process in a container. An image's variables come before
// those of the submission, as with pyxis: PATH and LD_LIBRARY_PATH of a login host are of no use there. What gbatch
// says of the job, and what --container-env names, come before the image's.

const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// Environ gives the environment of a process.
func Environ(job []string, m *Made, w *wish.Wish) []string {
	out := make([]string, 0, len(job)+len(m.Config.Env))
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
		if name := of(e); !slices.Contains(notThere, name) || slices.Contains(w.Env, name) {
			set(e)
		}
	}
	for _, e := range m.Config.Env {
		name := of(e)
		_, has := at[name]
		switch {
		case has && (isOurs(name) || slices.Contains(w.Env, name)):
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
		set("PATH=" + imagePath)
	}
	if m.Driver {
		for _, v := range [][2]string{{"PATH", DriverPrograms}, {"LD_LIBRARY_PATH", DriverLibs}} {
			if have := value(v[0]); !slices.Contains(strings.Split(have, ":"), v[1]) {
				set(v[0] + "=" + strings.TrimSuffix(v[1]+":"+have, ":"))
			}
		}
	}
	return out
}

func isOurs(name string) bool {
	return slices.Contains(ours, name) || slices.ContainsFunc(oursBegin,
		func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// Arguments gives the arguments of a process: the image's entry point first, if it is wanted.
func Arguments(argv []string, c *image.Config, w *wish.Wish) []string {
	if !w.Entry.Or(false) || len(c.Entrypoint) == 0 {
		return argv
	}
	return append(slices.Clone(c.Entrypoint), argv...)
}

// Dir gives the directory in which processes begin.
func Dir(c *image.Config, w *wish.Wish) string {
	switch {
	case w.WorkDir != "":
		return w.WorkDir
	case c.WorkDir != "":
		return c.WorkDir
	}
	return "/"
}
