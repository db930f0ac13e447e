package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/model/container"
)

// TestMain is the process that gshim's program is for a task.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Word {
		os.Exit(Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// spec is the config.json of runc spec, shortened, with what a user may not do.
const spec = `{
	"ociVersion": "1.0.2", "hostname": "runc", "unknown": {"kept": true},
	"process": {"terminal": true, "user": {"uid": 0, "gid": 0, "additionalGids": [5]}, "args": ["sh"],
		"env": ["PATH=/image/bin", "OF_IMAGE=1"], "cwd": "/srv", "noNewPrivileges": true,
		"rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}]},
	"root": {"path": "files"},
	"mounts": [
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["mode=0620", "gid=5"]},
		{"destination": "/dev/shm/", "type": "tmpfs", "source": "shm"},
		{"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue"},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs"},
		{"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"}],
	"hooks": {"prestart": [{"path": "/x"}], "poststop": [{"path": "/y"}]},
	"linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}, "cgroupsPath": "/x",
		"namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}]}
}`

func bundle(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAdapt: a task's config.json, member by member.
func TestAdapt(t *testing.T) {
	o := &Order{Runtime: container.Runtime{Name: "runc", NoHooks: []string{"prestart"}}, Bundle: bundle(t, spec),
		Spool: t.TempDir(), Job: 7, Step: "0", Task: 3, Node: "n1", User: "ann", UID: 1000, GID: 100,
		Files: []File{{"/spool/s1", "script"}}, Devices: []string{"/dev/nvidia1"},
		Libs:   []File{{"/lib/libcuda.so.5", "libcuda.so"}},
		Mounts: []Mount{{From: "/data", At: "/in", ReadOnly: true}, {From: tmpfs, At: "/fast"}}, Keep: []string{"MINE"}}
	t.Setenv("MINE", "job")
	t.Setenv("OF_IMAGE", "job")
	c, err := prepare(o, []string{"sh", "-c", "true"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.Spool, "task-3", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s object
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string {
		var v any = s
		for _, name := range strings.Split(path, ".") {
			o, _ := v.(object)
			v = o[name]
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	for path, want := range map[string]string{
		"unknown":                 `{"kept":true}`,
		"hostname":                `null`,
		"process.args":            `["sh","-c","true"]`,
		"process.terminal":        `false`,
		"process.cwd":             `"/srv"`,
		"process.user":            `{"gid":0,"uid":0}`,
		"process.rlimits":         `null`,
		"process.noNewPrivileges": `true`,
		"root.path":               `"` + o.Bundle + `/files"`,
		"hooks":                   `{"poststop":[{"path":"/y"}]}`,
		"linux.resources":         `null`,
		"linux.cgroupsPath":       `null`,
		"linux.namespaces":        `[{"type":"mount"},{"type":"user"}]`,
		"linux.uidMappings":       `[{"containerID":0,"hostID":1000,"size":1}]`,
		"linux.gidMappings":       `[{"containerID":0,"hostID":100,"size":1}]`,
	} {
		if got := at(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	var mounts []string
	for _, m := range listOf(s["mounts"]) {
		mounts = append(mounts, m["source"].(string)+" "+m["destination"].(string)+" "+
			strings.Join(textsOf(m["options"]), ","))
	}
	want := []string{
		"/proc /proc rbind,nosuid,noexec,nodev", "devpts /dev/pts mode=0620", "/sys /sys rbind,nosuid,noexec,nodev,ro",
		"/dev/shm /dev/shm rbind,nosuid,nodev", "/dev/nvidia1 /dev/nvidia1 rbind,nosuid",
		"/spool/s1 /dev/gbatch/script rbind,nosuid,ro",
		"/lib/libcuda.so.5 /dev/gbatch/lib/libcuda.so rbind,nosuid,ro",
		"/data /in rbind,nosuid,ro", "tmpfs /fast nosuid,nodev"}
	if !slices.Equal(mounts, want) {
		t.Errorf("the mounts are\n%s\nwant\n%s", strings.Join(mounts, "\n"), strings.Join(want, "\n"))
	}
	env := textsOf(in(s, "process")["env"])
	for _, e := range []string{"MINE=job", "OF_IMAGE=1", "PATH=/image/bin", "LD_LIBRARY_PATH=/dev/gbatch/lib"} {
		if !slices.Contains(env, e) {
			t.Errorf("the container has no %s: %q", e, env)
		}
	}
	if argv := runtimeOf("crun").argv(c); strings.Join(argv, " ") != "crun --cgroup-manager=disabled --root="+c.spool+
		"/state run --bundle="+c.spool+" n1.ann.7.0.3" {
		t.Error(argv)
	}
}

// TestIDs: who the user is in a container.
func TestIDs(t *testing.T) {
	for _, c := range []struct {
		what     string
		user     string
		mappings string
		root     container.Choice
		want     float64
	}{
		{"the bundle's user", `{"uid": 5}`, `null`, container.Unset, 5},
		{"without one, root", `{}`, `null`, container.Unset, 0},
		{"one whom the bundle maps", `{"uid": 7}`, `[{"containerID": 5, "hostID": 9, "size": 3}]`, container.Unset, 7},
		{"not one whom it doesn't", `{"uid": 8}`, `[{"containerID": 5, "hostID": 9, "size": 3}]`, container.Unset, 5},
		{"root", `{"uid": 5}`, `null`, container.Yes, 0},
		{"oneself", `{"uid": 0}`, `null`, container.No, 1000},
		{"no number", `{"uid": -1}`, `null`, container.Unset, 0},
	} {
		var s object
		if err := json.Unmarshal([]byte(`{"process": {"user": `+c.user+`}, "linux": {"uidMappings": `+c.mappings+`}}`),
			&s); err != nil {
			t.Fatal(err)
		}
		linux := in(s, "linux")
		(&call{o: &Order{UID: 1000, GID: 100, Root: c.root}}).ids(s, linux)
		if got := in(in(s, "process"), "user")["uid"]; got != uint32(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	s := object{"process": object{"user": object{"uid": 5.0}}}
	(&call{o: &Order{Runtime: container.Runtime{Name: "runc"}, UID: 1000}}).ids(s, in(s, "linux"))
	if got := in(in(s, "process"), "user")["uid"]; got != uint32(0) {
		t.Error("runc runs nobody but root in a container:", got)
	}
}

// TestBadBundle: what is no bundle is said so.
func TestBadBundle(t *testing.T) {
	fifo := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(fifo, "config.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		t.TempDir():          "is no OCI bundle",
		fifo:                 "is no file",
		bundle(t, "{"):       "config.json: unexpected end",
		bundle(t, "[1]"):     "config.json: json:",
		"/dev/null":          "is no directory: runc runs OCI bundles",
		"/nothere":           "no such file",
		"docker://alpine":    "is no directory",
		bundle(t, `{"a":1}`): "",
	} {
		o := &Order{Runtime: container.Runtime{Name: "runc"}, Bundle: dir, Spool: t.TempDir()}
		if _, err := prepare(o, []string{"true"}); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// TestRuntimes: each known runtime is one, and is called as its manual page says.
func TestRuntimes(t *testing.T) {
	b := bundle(t, spec)
	for _, name := range container.RuntimeNames {
		if runtimeOf(name) == nil {
			t.Errorf("%s is not known", name)
		}
	}
	for _, c := range []struct {
		name, image string
		want        []string
	}{
		{"apptainer", b, []string{"apptainer", "exec", "--userns", "--nv", "--writable", "--pwd=/w", "--bind=/data:/in:ro",
			"--scratch=/fast", b + "/files", "sh", "-c", "x y"}},
		{"singularity", "docker://alpine", []string{"singularity", "exec", "--userns", "--nv", "--pwd=/w",
			"--bind=/data:/in:ro", "--scratch=/fast", "docker://alpine", "sh", "-c", "x y"}},
		{"podman", b, []string{"podman", "run", "--rm", "--network=host", "--ipc=host", "--cgroups=disabled",
			"--log-driver=none", "--interactive", "--env-file=ENV", "--name=n1.ann.7.0.0",
			"--volume=/dev/nvidia1:/dev/nvidia1", "--userns=keep-id", "--workdir=/w",
			"--volume=/lib/libcuda.so.5:/dev/gbatch/lib/libcuda.so:rslave,ro",
			"--volume=/data:/in:rslave,ro", "--tmpfs=/fast", "--rootfs", b + "/files", "sh", "-c", "x y"}},
		{"enroot", b, []string{"enroot", "start", "--rw",
			"--mount=/lib/libcuda.so.5:/dev/gbatch/lib/libcuda.so:rbind,x-create=auto,ro",
			"--mount=/data:/in:rbind,x-create=auto,ro", "--mount=tmpfs:/fast:x-create=dir", "files", "sh", "-c", "x y"}},
	} {
		o := &Order{Runtime: container.Runtime{Name: c.name}, Bundle: c.image, Spool: t.TempDir(), Job: 7, Step: "0",
			Node: "n1", User: "ann", UID: 1000, GID: 100, WorkDir: "/w", Root: container.No, Devices: []string{"/dev/nvidia1"},
			Libs:   []File{{"/lib/libcuda.so.5", "libcuda.so"}},
			Mounts: []Mount{{From: "/data", At: "/in", ReadOnly: true}, {From: tmpfs, At: "/fast"}}}
		if c.name == "podman" && !isThere("/dev/mqueue") {
			c.want[4] = "--volume=/dev/shm:/dev/shm"
		}
		if c.name == "enroot" {
			if _, err := prepare(o, []string{"sh"}); err == nil || !strings.Contains(err.Error(), "--container-workdir can't") {
				t.Errorf("enroot has no option for a directory: %v", err)
			}
			o.WorkDir = ""
		}
		call, err := prepare(o, []string{"sh", "-c", "x y"})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(runtimeOf(c.name).argv(call), func(a string) bool { return strings.HasPrefix(a, "--env=") })
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], call.envFile+"\x00", "")
			if call.envFile != "" {
				got[i] = strings.ReplaceAll(got[i], call.envFile, "ENV")
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s is called\n%q, want\n%q", c.name, got, c.want)
		}
		if k := runtimeOf(c.name); c.name == "enroot" {
			if env := k.env(call); !slices.Equal(env, []string{"ENROOT_DATA_PATH=" + b}) {
				t.Error(env)
			}
		}
	}
}

// TestPatterns runs what oci.conf says: with the values in place, the signals passed on, and what follows the end.
func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	o := &Order{Runtime: container.Runtime{
		Run:     `printf '%%s|' %n %u %U %j %s %t %r %@ >` + said + `; grep -z ^A= %e | tr '\0' '|' >>` + said + `; exit 9`,
		Delete:  `echo deleted %n.%j >>` + said,
		EnvFile: container.EnvNull, EnvExclude: "^SECRET=", RunExclude: "^HOME="},
		Bundle: bundle(t, spec), Spool: dir, Job: 7, Step: "batch", Task: 2, Node: "n1", User: "ann smith", UID: 1000,
		GID: 100, Again: true}
	argv, err := o.Argv(os.Args[0], []string{"sh", "it's", "$HOME"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "A=1 2", "SECRET=x")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 9 {
		t.Fatalf("%v %s", err, out.String())
	}
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	want := "n1|ann smith|1000|7|batch|2|" + o.Bundle + "/files|sh|it's|$HOME|A=1 2|deleted n1.7\n"
	if string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
	c := &call{o: &Order{Node: "n1", User: "ann smith"}}
	at, err := c.expand("/scratch/%u/%n", func(s string) string { return s })
	if at != "/scratch/ann smith/n1" || err != nil {
		t.Error(at, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "task-2")); !os.IsNotExist(err) {
		t.Error("the task's directory is still there")
	}
}

// TestRunc runs a command in a bundle, and ends it.
func TestRunc(t *testing.T) {
	if _, err := installed("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	box, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed")
	}
	b := bundle(t, spec)
	for _, d := range []string{"bin", "proc", "dev", "sys", "srv"} {
		if err := os.Mkdir(filepath.Join(b, "files", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(box)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b, "files/bin/sh"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	o := &Order{Runtime: container.Runtime{Name: "runc", NoHooks: []string{"prestart", "poststop"}}, Bundle: b,
		Spool: t.TempDir(), Job: 7, Step: "0", Node: "n1", User: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		Keep: []string{"PATH"}}
	argv, err := o.Argv(os.Args[0], []string{"/bin/sh", "-c",
		"trap 'echo told; exit 5' TERM; echo in $OF_IMAGE; while :; do :; done"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "in 1\n" {
		t.Errorf("%q %v", line[:n], err)
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n, _ = out.Read(line) // what it says counts
	if err := cmd.Wait(); string(line[:n]) != "told\n" || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%q %v", line[:n], err)
	}
}

// TestDirs: a step's directory is its user's, and goes.
func TestDirs(t *testing.T) {
	// gnoded gives container.Empty, which takes trees that are deeper than there are descriptors.
	d := &Dirs{Base: filepath.Join(t.TempDir(), "bundles"), Empty: func(_ context.Context, dir string) error {
		list, err := os.ReadDir(dir)
		for _, e := range list {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
		return err
	}}
	if some, err := d.Remove("x"); some || err != nil {
		t.Error(some, err)
	}
	one, err := d.Make("job1.step0", uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	two, err := d.Make("job2.step0", uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(one, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := d.Make("job1.step0", 1, 1); err != nil || again != one {
		t.Error(again, err)
	}
	for _, name := range []string{"job2.step1", "job2.step10"} {
		if _, err := d.Make(name, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
			t.Fatal(err)
		}
	}
	if some, err := d.Remove("job2.step1"); !some || err != nil {
		t.Error(some, err)
	}
	if _, err := os.Stat(two + "/../job2.step10"); err != nil {
		t.Error("the end of step 1 has taken the directory of step 10:", err)
	}
	if some, err := d.RemoveAll("job1."); !some || err != nil {
		t.Error(some, err)
	}
	if err := d.Sweep([]string{"job2."}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(two); err != nil {
		t.Error(err)
	}
	if err := d.Clean(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(d.Base, goneDirs)); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
}
