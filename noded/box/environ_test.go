package box

import (
	"slices"
	"testing"

	wish "gbatch/internal/model/container"
	"gbatch/noded/image"
)

// TestEnviron: whose variables come first.
func TestEnviron(t *testing.T) {
	job := []string{"PATH=/opt/host/bin", "HOME=/home/ann", "LD_PRELOAD=/x.so", "GIVEN=user", "MINE=1",
		"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", "ODD", "=x"}
	for _, c := range []struct {
		what  string
		image []string
		wish  wish.Wish
		gpu   bool
		want  []string
	}{
		{"the image's come before the submission's",
			[]string{"PATH=/bin", "GIVEN=image", "HOME=/root", "SLURM_JOB_ID=8", "CUDA_VISIBLE_DEVICES=1"}, wish.Wish{}, false,
			[]string{"HOME=/home/ann", "GIVEN=image", "MINE=1", "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", "PATH=/bin"}},
		{"but for what is named", []string{"PATH=/bin", "GIVEN=image"}, wish.Wish{Env: []string{"GIVEN", "PATH"}}, false,
			[]string{"PATH=/opt/host/bin", "HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7",
				"CUDA_VISIBLE_DEVICES=0"}},
		{"an image does not say which GPUs there are", []string{"NVIDIA_VISIBLE_DEVICES=all", "SLURMD_NODENAME=x"},
			wish.Wish{}, false, []string{"HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7",
				"CUDA_VISIBLE_DEVICES=0", "PATH=" + imagePath}},
		{"the driver is found", []string{"PATH=/bin", "LD_LIBRARY_PATH=" + DriverLibs + ":/x"}, wish.Wish{}, true,
			[]string{"HOME=/home/ann", "GIVEN=user", "MINE=1", "SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0",
				"PATH=" + DriverPrograms + ":/bin", "LD_LIBRARY_PATH=" + DriverLibs + ":/x"}},
	} {
		got := Environ(job, &Made{Config: image.Config{Env: c.image}, Driver: c.gpu}, &c.wish)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.what, got, c.want)
		}
	}
}

func TestArguments(t *testing.T) {
	c := &image.Config{Entrypoint: []string{"/e", "-x"}, WorkDir: "/w"}
	if got := Arguments([]string{"a", "b"}, c, &wish.Wish{}); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if got := Arguments([]string{"a"}, c, &wish.Wish{Entry: wish.Yes}); !slices.Equal(got, []string{"/e", "-x", "a"}) {
		t.Error(got)
	}
	if d := Dir(c, &wish.Wish{}); d != "/w" {
		t.Error(d)
	}
	if d := Dir(c, &wish.Wish{WorkDir: "/x"}); d != "/x" {
		t.Error(d)
	}
}
