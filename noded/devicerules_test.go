package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
)

// The kernel's word: device files of a driver that isn't there can't be opened, with ENXIO where a control group
// allows it and EPERM where it doesn't. Each job tries every file and says what it was told.

const lookAtAll = `for f in $FILES; do e=$( { : < $f; } 2>&1 ); case "$e" in *permitted*) printf -;; *"No such ` +
	`device"*) printf +;; *) printf '?[%s]' "$e";; esac; done; echo`

// deviceDir makes device files: as many as files has names, in that order.
func deviceDir(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	list := filepath.Join(dir, "gpus.json")
	must(t, os.WriteFile(list, []byte(`{"dir": "probe", "devices": [{"type": "h100"}]}`), 0o600))
	made, err := gpu.Fake(list).Devices() // it knows a major number that is no real device's
	must(t, err)
	if made[0].Major == 0 {
		t.Skip("device files can't be made here")
	}
	for i, name := range files {
		must(t, unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(made[0].Major), uint32(i)))))
		must(t, os.Chmod(filepath.Join(dir, name), 0o666))
	}
	return dir
}

// everyWay runs a test with each way of this host to hold jobs to their devices.
func everyWay(t *testing.T, f func(t *testing.T, plugin string)) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	seen := map[cgroup.Mode]bool{}
	for _, plugin := range []string{"autodetect", "cgroup/v1", "cgroup/v2"} {
		root, err := cgroup.OpenPart("gbatch/test-probe",
			cgroup.Want{Version: map[string]int{"cgroup/v1": 1, "cgroup/v2": 2}[plugin]})
		must(t, err)
		mode, can := root.Mode(), root.Can()
		must(t, root.Close())
		if !can.Devices || seen[mode] {
			continue
		}
		seen[mode] = true
		t.Run(strings.ReplaceAll(mode.String(), " ", "-"), func(t *testing.T) { f(t, "CgroupPlugin="+plugin+"\n") })
	}
	if len(seen) == 0 {
		t.Skip("no control groups that know devices")
	}
}

func gres(name, typ string, units ...int) (g model.GresAlloc) {
	g.Name, g.Type = name, typ
	for _, u := range units {
		g.Index = g.Index.With(u)
	}
	return g
}

// looking makes a job that looks at all files.
func (c *cluster) looking(id int, files, more string, units ...model.GresAlloc) *proto.Launch {
	return c.job(id, "FILES='"+files+"'\n"+more+lookAtAll, func(l *proto.Launch) { l.Alloc.Nodes[0].Gres = units })
}

func TestJobsOpenTheirDevicesOnly(t *testing.T) {
	everyWay(t, func(t *testing.T, plugin string) {
		dir := deviceDir(t, "nvidia0", "nvidia1", "nvidia2", "nvidia3", "card0", "render0", "card1", "render1", "nvidiactl",
			"other", "extra")
		at := func(names ...string) string {
			for i := range names {
				names[i] = filepath.Join(dir, names[i])
			}
			return strings.Join(names, ",")
		}
		// nvidia3 is known and configured for nobody; nvidiactl is shared, whatever a line says; other and extra are no
		// resource's.
		cfg := confOf(t, "Gres=gpu:a100:2,gpu:t4:1,npu:2",
			"Name=gpu Type=t4 File="+at("nvidia2")+"\nName=gpu Type=a100 File="+at("nvidia[0-1]")+
				"\nName=gpu Type=a100 File="+at("nvidia3")+
				"\nName=npu MultipleFiles="+at("card0", "render0", "nvidiactl")+"\nName=npu MultipleFiles="+
				at("card1", "render1", "nvidiactl")+"\n",
			plugin+"ConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
		c := newCluster(t, func(o *Options) { o.Config = cfg })
		files := strings.ReplaceAll(at("nvidia0", "nvidia1", "nvidia2", "nvidia3", "card0", "render0", "card1", "render1",
			"nvidiactl", "other"), ",", " ")
		id := 0
		for _, tc := range []struct {
			name  string
			units []model.GresAlloc
			more  string // before it looks
			want  string
			env   string
		}{
			{name: "nothing", want: "--------++", env: "||"},
			{name: "one GPU", units: []model.GresAlloc{gres("gpu", "a100", 1)}, want: "-+------++", env: "0|1|"},
			{name: "the third by the node's line is the first of the file", units: []model.GresAlloc{gres("gpu", "t4", 2)},
				want: "--+-----++", env: "0|2|"},
			{name: "two types", units: []model.GresAlloc{gres("gpu", "a100", 0), gres("gpu", "t4", 2)}, want: "+-+-----++",
				env: "0,1|0,2|"},
			{name: "several files a unit", units: []model.GresAlloc{gres("npu", "", 1)}, want: "------++++", env: "||0"},
			{name: "everything",
				units: []model.GresAlloc{gres("gpu", "a100", 0, 1), gres("gpu", "t4", 2), gres("npu", "", 0, 1)},
				want:  "+++-++++++", env: "0,1,2|0,1,2|0,1"},
			{name: "shares of a GPU",
				units: []model.GresAlloc{{Name: "shard", Index: model.UpTo(2), Share: &model.GPUShare{GPU: 1, Of: 4}}},
				want:  "-+------++", env: "0|1|"},
			{name: "a process that leaves its session", units: []model.GresAlloc{gres("gpu", "a100", 0)},
				more: "setsid sh -c '" + strings.ReplaceAll(lookAtAll, "'", `'"'"'`) +
					"; echo > done' & until [ -e done ]; do :; done; rm done\n", want: "+-------++", env: "0|0|"},
			{name: "device files of its own making", units: []model.GresAlloc{gres("gpu", "a100", 0)},
				more: "mknod mine c $(stat -c '0x%t 0x%T' " + at("nvidia1") + ") && echo made; FILES=\"$FILES\"\n",
				want: "+-------++", env: "0|0|"},
		} {
			id++
			l := c.looking(id, files,
				"export FILES; echo \"$CUDA_VISIBLE_DEVICES|$SLURM_JOB_GPUS|$ASCEND_RT_VISIBLE_DEVICES\"\n"+tc.more, tc.units...)
			if r := c.run(l); r.Exit.Code != 0 {
				t.Errorf("%s: %+v", tc.name, r.Exit)
			}
			out := strings.Split(strings.TrimSpace(c.output(l)), "\n")
			if out[0] != tc.env || out[len(out)-1] != tc.want || strings.Contains(c.output(l), "made") {
				t.Errorf("%s:\n%s\nwant %s and %s", tc.name, c.output(l), tc.env, tc.want)
			}
			if strings.HasPrefix(tc.name, "a process") && (len(out) != 3 || out[1] != tc.want) {
				t.Errorf("%s: %q", tc.name, out)
			}
		}
	})
}

// Two jobs side by side, and gnoded killed and started again: the first job keeps its rules, and the next job gets its
// own.
func TestDeviceRulesOutliveGnoded(t *testing.T) {
	everyWay(t, func(t *testing.T, plugin string) {
		dir := deviceDir(t, "nvidia0", "nvidia1", "nvidia2", "nvidia3")
		cfg := confOf(t, "Gres=gpu:4", "Name=gpu File="+dir+"/nvidia[0-3]", plugin+"ConstrainDevices=yes")
		c := newCluster(t, func(o *Options) { o.Config = cfg })
		var files []string
		for i := range 4 {
			files = append(files, fmt.Sprintf("%s/nvidia%d", dir, i))
		}
		all := strings.Join(files, " ")
		// Each looks before and after the word that it may.
		first := c.looking(1, all, lookAtAll+"\nuntil [ -e go ]; do sleep 0.02; done\n", gres("gpu", "", 0, 2))
		second := c.looking(2, all, lookAtAll+"\nuntil [ -e go ]; do sleep 0.02; done\n", gres("gpu", "", 1, 3))
		c.ctl.send(&proto.Orders{Launch: []*proto.Launch{first, second}})
		c.ctl.waitStarted(first)
		c.ctl.waitStarted(second)
		until(t, "both have looked", func() bool { return len(c.output(first)) >= 5 && len(c.output(second)) >= 5 })
		c.stop()
		c.ctl.set(func(f *fakeCtld) { f.conn = nil })
		c.start()
		c.ctl.waitNode(2)
		must(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644))
		c.ctl.waitEnded(first)
		c.ctl.waitEnded(second)
		third := c.looking(3, all, "", gres("gpu", "", 3))
		c.run(third)
		for l, want := range map[*proto.Launch]string{first: "+-+-\n+-+-\n", second: "-+-+\n-+-+\n", third: "---+\n"} {
			if got := c.output(l); got != want {
				t.Errorf("job %d: %q, want %q", l.Job, got, want)
			}
		}
	})
}

// A step opens only its part of the job's devices.
func TestStepsOpenTheirDevicesOnly(t *testing.T) {
	everyWay(t, func(t *testing.T, plugin string) {
		dir := deviceDir(t, "nvidia0", "nvidia1", "nvidia2", "nvidia3")
		cfg := confOf(t, "Gres=gpu:4", "Name=gpu File="+dir+"/nvidia[0-3]", plugin+"ConstrainDevices=yes")
		c := newCluster(t, func(o *Options) { o.Config = cfg })
		g := c.n.groups
		key := proto.Attempt{Job: 1, Attempt: 1}
		job := &model.NodeAlloc{CPUs: model.UpTo(1), Gres: []model.GresAlloc{gres("gpu", "", 0, 1, 3)}}
		for step, tc := range []struct {
			units []model.GresAlloc
			want  string
		}{
			{job.Gres, "++-+"}, {nil, "----"}, {[]model.GresAlloc{gres("gpu", "", 3)}, "---+"},
			{[]model.GresAlloc{gres("gpu", "", 2, 3)}, "---+"}, // what its job does not have it can't have
		} {
			in, _, err := g.createStep(key, int32(step), job, &model.NodeAlloc{CPUs: model.UpTo(1), Gres: tc.units}, false)
			must(t, err)
			cmd := joined(in, lookAtAll)
			cmd.Env = append(os.Environ(), fmt.Sprintf("FILES=%[1]s/nvidia0 %[1]s/nvidia1 %[1]s/nvidia2 %[1]s/nvidia3", dir))
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tc.want {
				t.Errorf("step %d: %v %q, want %q", step, err, got, tc.want)
			}
		}
		must(t, g.remove(key))
	})
}

// With AllowedDevices only listed devices open, and those that every program needs.
func TestAllowedDevices(t *testing.T) {
	everyWay(t, func(t *testing.T, plugin string) {
		dir := deviceDir(t, "nvidia0", "nvidia1", "fuse0", "fuse1", "listed", "unlisted", "shared2")
		must(t, os.WriteFile(filepath.Join(dir, "list"),
			[]byte("# devices of all\n"+dir+"/lis*\n\n"+dir+"/nvidia*\n"), 0o644))
		cfg := confOf(t, "Gres=gpu:3", "Name=gpu File="+dir+"/nvidia[0-1]\nName=gpu File="+dir+"/shared2",
			plugin+"ConstrainDevices=yes\nAllowedDevices="+dir+"/fuse*,"+dir+"/shared2\nAllowedDevicesFile="+dir+"/list\n")
		c := newCluster(t, func(o *Options) { o.Config = cfg })
		files := ""
		for _, f := range []string{"nvidia0", "nvidia1", "fuse0", "fuse1", "listed", "unlisted", "shared2"} {
			files += filepath.Join(dir, f) + " "
		}
		l := c.looking(1, files, "head -c 1 /dev/urandom > /dev/null && : < /dev/zero && echo usual\n", gres("gpu", "", 1))
		c.run(l)
		if got := c.output(l); got != "usual\n-++++-+\n" {
			t.Errorf("%q", got)
		}
	})
}

// gnoded reports once what it can't enforce, and runs jobs nevertheless.
func TestDevicesNotEnforced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := deviceDir(t, "nvidia0", "nvidia1")
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644))
	for _, tc := range []struct {
		name, gres, cgroup string
		note               string
		out                string
	}{
		{"no control groups", "File=DIR/nvidia[0-1]", "CgroupPlugin=disabled\nConstrainDevices=yes",
			"ConstrainDevices=yes can't be enforced", "1 ++"},
		{"not asked for", "File=DIR/nvidia[0-1]", "ConstrainDevices=no", "", "1 ++"},
		{"a file that is no device", "File=DIR/nvidia0,DIR/plain", "ConstrainDevices=yes",
			"plain is not a device file: the kernel can't keep it for the jobs that have it", "1 -+"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needGroups(t, func(f cgroup.Features) bool { return f.Devices })
			gresLine := strings.ReplaceAll(tc.gres, "DIR", dir)
			cfg := confOf(t, "Gres=gpu:2", "Name=gpu "+gresLine, tc.cgroup)
			c := newCluster(t, func(o *Options) { o.Config = cfg })
			notes := strings.Join(c.ctl.waitNode(1).Hw.Notes, "\n")
			if tc.note == "" && strings.Contains(notes, "device") || strings.Count(notes, tc.note) != 1 && tc.note != "" {
				t.Errorf("notes %q", notes)
			}
			l := c.looking(1, dir+"/nvidia0 "+dir+"/nvidia1", "printf \"$CUDA_VISIBLE_DEVICES \"\n", gres("gpu", "", 1))
			c.run(l)
			if got := strings.TrimSpace(c.output(l)); got != tc.out {
				t.Errorf("%q, want %q", got, tc.out)
			}
		})
	}
}
