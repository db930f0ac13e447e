package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/blob"
	"gbatch/internal/jobenv"
	"gbatch/internal/proto"
)

// TestStartFilesAreTheJobs: the start files of --get-user-env run in the job's group: they can't open devices that are
// not the job's, and what they leave running ends before the script begins, or with the job.
func TestStartFilesAreTheJobs(t *testing.T) {
	everyWay(t, func(t *testing.T, plugin string) {
		dir := deviceDir(t, "nvidia0", "nvidia1")
		gpus := filepath.Join(dir, "nvidia[0-1]")
		cfg := confOf(t, "Gres=gpu:a100:2", "Name=gpu Type=a100 File="+gpus+"\n",
			plugin+"ConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
		c := newCluster(t, func(o *Options) { o.Config = cfg })
		files := filepath.Join(dir, "nvidia0") + " " + filepath.Join(dir, "nvidia1")
		profile := "FILES='" + files + "'\n{ " + lookAtAll + "; } > saw\ngrep -o 'job_7.*' /proc/self/cgroup >> saw\n" +
			"setsid sh -c 'echo $$ > sleeper; exec sleep 600' </dev/null >/dev/null 2>&1 &\n" +
			"until [ -s sleeper ]; do :; done\nexport FROM_PROFILE=yes\n"
		must(t, os.WriteFile(filepath.Join(c.dir, ".profile"), []byte("cd "+c.dir+"\n"+profile), 0o644))
		const uid = 65534
		c.n.names.Add(uid, jobenv.Account{Name: "nobody", Home: c.dir, Shell: "/bin/sh"})
		l := c.job(7, "echo $FROM_PROFILE $USER; kill -0 $(cat sleeper) 2>/dev/null && echo lives; "+
			"kill -0 $SLURM_TASK_PID && echo mine", func(l *proto.Launch) {
			l.Spec.UID, l.Spec.GID, l.Spec.User = uid, uid, "nobody"
			l.Spec.Groups = nil
			l.Alloc.Nodes[0].Gres = append(l.Alloc.Nodes[0].Gres, gres("gpu", "a100", 1))
			l.Env = blob.Make([]byte("SLURM_GET_USER_ENV=20\x00"))
		})
		if r := c.run(l); r.Exit.Code != 0 {
			t.Errorf("%+v", r.Exit)
		}
		if out := c.output(l); out != "yes nobody\nmine\n" {
			t.Errorf("the script has %q", out)
		}
		saw, err := os.ReadFile(filepath.Join(c.dir, "saw"))
		must(t, err)
		if lines := strings.Split(string(saw), "\n"); lines[0] != "-+" || !strings.Contains(string(saw), "job_7.") {
			t.Errorf("the start file could open %q", saw)
		}
		pid, err := os.ReadFile(filepath.Join(c.dir, "sleeper"))
		must(t, err)
		if _, err := os.Stat(fmt.Sprintf("/proc/%s", strings.TrimSpace(string(pid)))); err == nil {
			t.Error("what the start file has started lives")
		}
	})
}
