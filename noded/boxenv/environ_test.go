package boxenv

import (
	"slices"
	"testing"
)

// TestEnviron: whose variables come first.
func TestEnviron(t *testing.T) {
	job := []string{"PATH=/opt/host/bin", "HOME=/home/ann", "LD_PRELOAD=/x.so", "GIVEN=user", "MINE=1",
		"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", "ODD", "=x"}
	for _, c := range []struct {
		what  string
		image []string
		keep  []string
		gpu   bool
		want  []string
	}{
		{"the image's come before the submission's",
			[]string{"PATH=/bin", "GIVEN=image", "HOME=/root", "SLURM_JOB_ID=8", "CUDA_VISIBLE_DEVICES=1"}, nil, false,
			[]string{"HOME=/home/ann", "GIVEN=image", "MINE=1", "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", "PATH=/bin"}},
		{"but for what is named", []string{"PATH=/bin", "GIVEN=image"}, []string{"GIVEN", "PATH"}, false,
			[]string{"PATH=/opt/host/bin", "HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7",
				"CUDA_VISIBLE_DEVICES=0"}},
		{"an image does not say which GPUs there are", []string{"NVIDIA_VISIBLE_DEVICES=all", "SLURMD_NODENAME=x"},
			nil, false, []string{"HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7",
				"CUDA_VISIBLE_DEVICES=0", "PATH=" + Path}},
		{"the driver is found", []string{"PATH=/bin", "LD_LIBRARY_PATH=" + DriverLibs + ":/x"}, nil, true,
			[]string{"HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0",
				"PATH=" + DriverPrograms + ":/bin", "LD_LIBRARY_PATH=" + DriverLibs + ":/x"}},
	} {
		libs, programs := "", ""
		if c.gpu {
			libs, programs = DriverLibs, DriverPrograms
		}
		got := Environ(job, c.image, c.keep, libs, programs)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.what, got, c.want)
		}
	}
}
