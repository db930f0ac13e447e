package up

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
)

// TestLife: up, jobs, a daemon killed and started again, down while a job runs, up again.
func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "life")
	o := Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000, GPUs: "a100:2"}
	c, out := mustUp(t, o)
	out.has(t, "new in", "controller ctl1 leads", "2 nodes, 4 CPUs, 4 GPUs")
	st := status(t, dir)
	if !st.AllRun() || !st.Ready || len(st.Daemons) != 4 || st.Daemons[0].Role != RoleController || !st.Daemons[0].Leader {
		t.Fatalf("status: %+v", st)
	}
	first := submit(t, c, "exit 0\n", nil)
	untilState(t, c, first, model.Completed)
	onlyHere(t, c)

	// All run: nothing changes.
	again, out := mustUp(t, Options{Dir: dir})
	out.has(t, "all 4 daemons run already")
	for i := range c.Members {
		if c.Members[i].process != again.Members[i].process {
			t.Errorf("%s was replaced", &c.Members[i])
		}
	}

	// A daemon is missing: just that one is started.
	n1 := c.Members[2]
	if err := n1.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone([]process{n1.process}, nodePatience)
	if st := status(t, dir); st.AllRun() || st.Daemons[2].Running {
		t.Errorf("status after a kill: %+v", st)
	}
	c, out = mustUp(t, Options{Dir: dir})
	out.has(t, "3 of 4 daemons run already", "started n1 (gnoded)")

	// Down ends jobs and leaves nothing behind; the job waits for the next up.
	running := submit(t, c, "sleep 600\n", nil)
	held := submit(t, c, "exit 0\n", func(sp *model.Spec) { sp.HoldReq = true })
	untilState(t, c, running, model.Running)
	down(t, dir).has(t, "ending 1 running job: "+strconv.Itoa(int(running)), "4 daemons")
	if st := status(t, dir); slices.ContainsFunc(st.Daemons, func(d Daemon) bool { return d.Running || d.Shim != 0 }) {
		t.Errorf("status after down: %+v", st)
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	down(t, dir).has(t, "nothing of "+dir+" runs")

	c, _ = mustUp(t, Options{Dir: dir})
	untilState(t, c, running, model.Running)
	if j := job(t, c, running); j.Restarts != 1 {
		t.Errorf("the job that down ended has been restarted %d times, not once", j.Restarts)
	}
	if j := job(t, c, held); j == nil || j.State != model.Pending || j.Hold == model.NotHeld {
		t.Errorf("the held job is %+v", j)
	}
	if next := submit(t, c, "exit 0\n", nil); next != held+1 {
		t.Errorf("the next job is %d, after %d", next, held)
	}
}

// below lists processes whose working directory, command line or open files say that they belong to a directory.
func below(t *testing.T, dir string) []string {
	t.Helper()
	all, err := commands()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for p, argv := range all {
		cwd, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/cwd")
		if err == nil && strings.HasPrefix(cwd, filepath.Dir(dir)) || p.PID != os.Getpid() &&
			strings.Contains(strings.Join(argv, " "), dir) {
			out = append(out, strings.Join(argv, " "))
		}
	}
	return out
}

func TestThreeControllers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "three")
	c, out := mustUp(t, Options{Dir: dir, Nodes: 1, MemMiB: 1000, Controllers: 3})
	out.has(t, "started ctl3 (gctld)")
	for _, ctl := range list(t, filepath.Join(dir, "run")).List {
		if ctl.Health != "ok" {
			t.Errorf("the cluster is ready, and %s: %s", ctl.Name, ctl.Health)
		}
	}
	id := submit(t, c, "exit 0\n", nil)
	untilState(t, c, id, model.Completed)
	leaders := 0
	for _, d := range status(t, dir).Daemons {
		if d.Leader {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
}

// onlyHere fails the test if a daemon listens to other machines.
func onlyHere(t *testing.T, c *Cluster) {
	t.Helper()
	sockets := map[string]string{} // where each listens, by inode
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // IPv6 is off
		}
		const address, state, inode, listens = 1, 3, 9, "0A"
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > inode && f[state] == listens {
				sockets["socket:["+f[inode]+"]"] = f[address]
			}
		}
	}
	const loopback = "0100007F:"
	found := 0
	for i := range c.Members {
		m := &c.Members[i]
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.process.PID))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range open {
			to, err := os.Readlink(fd)
			if err != nil {
				continue // it is closed by now
			}
			if at := sockets[to]; at != "" {
				found++
				if !strings.HasPrefix(at, loopback) {
					t.Errorf("%s listens on %s", m, at)
				}
			}
		}
	}
	if found < len(c.Members) {
		t.Errorf("%d sockets of %d daemons", found, len(c.Members))
	}
}

// TestPortInUse: the ports stay the same, and another program on one of them is named.
func TestPortInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "port")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, MemMiB: 1000})
	addr := c.Members[0].Addresses[0]
	down(t, dir)
	other, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = tryUp(t, Options{Dir: dir})
	if err == nil {
		t.Fatal("it came up")
	}
	for _, want := range []string{"ctl1 (gctld)", addr, "process " + strconv.Itoa(os.Getpid()), "SlurmctldHost",
		"gbatch.conf"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if st := status(t, dir); slices.ContainsFunc(st.Daemons, func(d Daemon) bool { return d.Running }) {
		t.Errorf("daemons run: %+v", st)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if c, _ = mustUp(t, Options{Dir: dir}); c.Members[0].Addresses[0] != addr {
		t.Errorf("the controller moved from %s to %s", addr, c.Members[0].Addresses[0])
	}
}

// TestHalfWritten: a foreign or damaged directory is not touched.
func TestHalfWritten(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"not ours":       {"letter.txt": "dear"},
		"without a book": {"gbatch.conf": "ClusterName=x\n"},
		"damaged book":   {"up.json": `{"version":1,"mem`},
		"empty book":     {"up.json": ""},
		"later version":  {"up.json": `{"version":99}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range files {
				if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Up(t.Context(), Options{Dir: dir, Bin: programs(t), Nodes: 1})
			if err == nil {
				t.Fatal("it came up")
			}
			t.Log(err)
			if !strings.Contains(err.Error(), "up.json") || !strings.Contains(err.Error(), dir) {
				t.Errorf("the error doesn't say what is wrong: %v", err)
			}
			for f, text := range files {
				if b, err := os.ReadFile(filepath.Join(dir, f)); err != nil || string(b) != text {
					t.Errorf("%s was touched: %q, %v", f, b, err)
				}
			}
		})
	}
	if _, err := Look(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("status of an empty directory: %v", err)
	}
}

// TestInterrupted: the next up finishes one that was interrupted anywhere.
func TestInterrupted(t *testing.T) {
	for name, prepare := range map[string]func(l layout, b *book) error{
		"before the book": func(l layout, b *book) error { return os.WriteFile(l.at(tempMark+"1"), []byte("{"), 0o644) },
		"behind the book": func(l layout, b *book) error { return l.writeBook(b) },
		"amid the authority": func(l layout, b *book) error {
			if err := l.writeBook(b); err != nil {
				return err
			}
			if err := l.directories(); err != nil {
				return err
			}
			if err := os.MkdirAll(l.pki(), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(l.pki(), "ca.key"), []byte("half"), 0o600)
		},
		"before the daemons": func(l layout, b *book) error {
			if err := l.writeBook(b); err != nil {
				return err
			}
			return l.prepare(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), Nodes: 1, MemMiB: 1000, Bin: programs(t)}
			l := layout(o.Dir)
			b, err := l.invent(&o)
			if err == nil {
				err = prepare(l, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			c, _ := mustUp(t, o)
			id := submit(t, c, "exit 0\n", nil)
			untilState(t, c, id, model.Completed)
		})
	}
}

// TestLostBook: daemons that the book doesn't know, because `up` was killed before it could write, are found.
func TestLostBook(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lost")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, MemMiB: 1000})
	l := layout(c.Dir)
	b, err := l.readBook()
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Members {
		b.Members[i].Start++ // as if the pid were used by another process now
	}
	if err := l.writeBook(b); err != nil {
		t.Fatal(err)
	}
	if !status(t, dir).AllRun() {
		t.Error("status doesn't find them")
	}
	again, out := mustUp(t, Options{Dir: dir})
	out.has(t, "all 3 daemons run already")
	if again.Members[0].process != c.Members[0].process {
		t.Error("another process was found")
	}
}

// TestRemovedDirectory: DIR is removed while the cluster runs.
func TestRemovedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	o := Options{Dir: dir, Nodes: 1, CPUs: 1, MemMiB: 500}
	mustUp(t, o)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryUp(t, o); err == nil ||
		!strings.Contains(err.Error(), "whose files in "+dir+" were removed; end it and the others with 'gbatch down --dir "+
			dir+"'") {
		t.Errorf("the error is: %v", err)
	}
	down(t, dir).has(t, "3 daemons")
	mustUp(t, o)
}

// TestForeignPID: a process that has a daemon's old pid is not touched.
func TestForeignPID(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "foreign")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, MemMiB: 1000})
	down(t, dir)
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sleep.Process.Kill(); err != nil {
			t.Error("the foreign process was ended: ", err)
		}
		_ = sleep.Wait() // killed
	}()
	l := layout(c.Dir)
	b, err := l.readBook()
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Members {
		b.Members[i].process = process{sleep.Process.Pid, 12345}
	}
	if err := l.writeBook(b); err != nil {
		t.Fatal(err)
	}
	for _, d := range status(t, dir).Daemons {
		if d.Running {
			t.Errorf("%s is taken for running", d.Name)
		}
	}
	down(t, dir).has(t, "nothing of")
	mustUp(t, Options{Dir: dir})
}

// TestTwoDirs: two clusters don't disturb each other.
func TestTwoDirs(t *testing.T) {
	dirs := []string{filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "there")}
	var clusters []*Cluster
	for _, dir := range dirs {
		c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000})
		clusters = append(clusters, c)
	}
	var ids []model.JobID
	for _, c := range clusters {
		ids = append(ids, submit(t, c, "sleep 600\n", nil))
	}
	for i, c := range clusters {
		untilState(t, c, ids[i], model.Running)
	}
	down(t, dirs[0])
	if !status(t, dirs[1]).AllRun() {
		t.Error("the second cluster isn't whole any more")
	}
	if j := job(t, clusters[1], ids[1]); j.State != model.Running || j.Restarts != 0 {
		t.Errorf("the second cluster's job is %v", j.State)
	}
}

// TestConf: every node that a given configuration defines becomes a virtual node on this machine.
func TestConf(t *testing.T) {
	site := t.TempDir()
	if err := os.CopyFS(site, os.DirFS("../conf/testdata/samples")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(site, "slurm.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const nodes = "NodeName=gpu-node[01-08] "
	there := strings.Replace(string(text), nodes, nodes+"NodeAddr=gpu[01-08].site Port=7001 ", 1)
	if err := os.WriteFile(file, []byte(there), 0o600); err != nil || there == string(text) {
		t.Fatalf("no addresses of nodes written: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "samples")
	c, out := mustUp(t, Options{Dir: dir, Conf: file})
	out.has(t, "cluster nvidia_ai_cluster", "8 nodes, 1024 CPUs, 64 GPUs")
	got := filepath.Join(t.TempDir(), "gpus")
	id := submit(t, c, `echo "$SLURMD_NODENAME $SLURM_JOB_GPUS" > `+got+"\n", func(sp *model.Spec) {
		sp.Partitions, sp.CPUsPerTask = []string{"training"}, 100
		sp.Gres = []model.GresReq{{Name: "gpu", Type: "a100", Count: 8}}
	})
	untilState(t, c, id, model.Completed)
	if b, err := os.ReadFile(got); err != nil || string(b) != "gpu-node03 0,1,2,3,4,5,6,7\n" {
		t.Errorf("the job saw %q, %v", b, err)
	}
	cfg, problems := conf.LoadFile(c.Conf)
	for _, p := range problems {
		if p.Severity > conf.Note {
			t.Error(p)
		}
	}
	if cfg.Controllers[0].Name != "ctl1" || cfg.SlurmdSpoolDir != filepath.Join(c.Dir, "state", "node-%n") {
		t.Errorf("places aren't replaced: %+v", cfg)
	}
	if d := &cfg.Nodes[0]; d.Addr != d.Name || d.Hostname != d.Name {
		t.Errorf("node %s is said to be %s at %s", d.Name, d.Hostname, d.Addr)
	}
}

// TestStandins: GPUs of virtual nodes are device files, and a job can open only its own.
func TestStandins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "standins")
	c, out := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000, GPUs: "a100:3"})
	got := filepath.Join(t.TempDir(), "out")
	id := submit(t, c, "echo gpus: $SLURM_JOB_GPUS\nfor i in 0 1 2; do (: <"+filepath.Join(dir, "gpus", "n1")+
		"/nvidia$i); done\nexit 0\n", func(sp *model.Spec) {
		sp.Gres = []model.GresReq{{Name: "gpu", Count: 2}}
		sp.StdOut = got
	})
	untilState(t, c, id, model.Completed)
	b, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	var saw []string
	for line := range strings.Lines(string(b)) {
		saw = append(saw, strings.TrimSpace(line[strings.LastIndex(line, ": ")+1:]))
	}
	want := []string{"0,1", "No such device or address", "No such device or address", "Operation not permitted"}
	if strings.Contains(out.b.String(), "can't be confined") { // the files are plain ones, which everybody can read
		want = want[:1]
	}
	if !slices.Equal(saw, want) {
		t.Errorf("the job saw %q, want %q:\n%s", saw, want, b)
	}
}

// TestNodeAdded: a node that the user adds to gbatch.conf gets its daemon at the next up, and the daemon of a removed
// node is ended.
func TestNodeAdded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "grow")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000})
	text, err := os.ReadFile(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(to string) {
		t.Helper()
		if err := os.WriteFile(c.Conf, []byte(strings.Replace(string(text), "NodeName=n1 ", "NodeName="+to+" ", 1)),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	reconfigure := func() {
		t.Helper()
		setConfig(t, c)
	}
	edit("n[1-2]")
	reconfigure()
	_, out := mustUp(t, Options{Dir: dir})
	out.has(t, "3 of 4 daemons run already", "started n2 (gnoded)")
	edit("n1")
	reconfigure()
	_, out = mustUp(t, Options{Dir: dir})
	out.has(t, "n2 (gnoded) isn't in", "all 3 daemons run already")
}

// TestOtherOptions: up with other options does not silently change an existing cluster.
func TestOtherOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "other")
	o := Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000}
	mustUp(t, o)
	mustUp(t, o) // the same words are fine
	o.Nodes = 3
	_, _, err := tryUp(t, o)
	if err == nil || !strings.Contains(err.Error(), "--nodes 1 --cpus 2 --mem 1000") {
		t.Errorf("another number of nodes: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"--nodes -1":        {Nodes: -1},
		"--nodes 100000":    {Nodes: 100000},
		"--cpus -3":         {Nodes: 1, CPUs: -3},
		"add --nodes 1":     {GPUs: "a100:4"},
		"--gpus a100":       {Nodes: 1, GPUs: "a100"},
		"--gpus a100:0":     {Nodes: 1, GPUs: "a100:0"},
		"--gpus a b:1":      {Nodes: 1, GPUs: "a b:1"},
		"--controllers 2":   {Nodes: 1, Controllers: 2},
		"leave out --nodes": {Nodes: 1, Conf: "/etc/slurm.conf"},
		"can't stand in":    {Dir: "/tmp/a\"b", Nodes: 1},
		"can't be used":     {Conf: "/nowhere/slurm.conf"},
	} {
		if o.Dir == "" {
			o.Dir = t.TempDir()
		}
		_, err := Up(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want a sentence with %q", o, err, want)
		}
	}
}

// TestMissingProgram: daemons that aren't beside gbatch are named.
func TestMissingProgram(t *testing.T) {
	_, err := Up(t.Context(), Options{Dir: t.TempDir(), Nodes: 1, Bin: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "gctld has to lie beside gbatch") {
		t.Errorf("without programs: %v", err)
	}
}

// TestDaemonFails: up shows the end of the log of a daemon that can't run, and ends the others again.
func TestDaemonFails(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"gctld", "gnoded", "gshim", "gdbd"} {
		if err := os.Symlink(filepath.Join(programs(t), name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(bin, "gdbd")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "gdbd"), []byte("#!/bin/sh\necho the disk is on fire >&2\nexit 7\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "fails")
	_, err := Up(t.Context(), Options{Dir: dir, Nodes: 1, MemMiB: 1000, Bin: bin})
	if err == nil || !strings.Contains(err.Error(), "dbd (gdbd) did not stay: exit status 7") ||
		!strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("the error: %v", err)
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	mustUp(t, Options{Dir: dir}) // with the right programs it goes on
}

// TestJSON: the member names that scripts use.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Status{Daemons: []Daemon{{}}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cluster":"","dir":"","conf":"","ready":false,"daemons":[{"role":"","name":"","pid":0,` +
		`"running":false,"addresses":null,"directory":"","log":"","leader":false}]}`
	if string(b) != want {
		t.Errorf("%s", b)
	}
}

// TestExamples: the configurations in etc load without a remark, with either of the files for the network. That
// TopologyPlugin has no effect beside topology.yaml is said.
func TestExamples(t *testing.T) {
	for _, network := range []string{"topology.conf", "topology.yaml"} {
		dir := t.TempDir()
		for _, name := range []string{"gbatch.conf", "gres.conf", "cgroup.conf", network} {
			b, err := os.ReadFile(filepath.Join("..", "..", "etc", name+".example"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_, problems := conf.Load(dir)
		for _, p := range problems {
			if network != "topology.yaml" || !strings.HasPrefix(p.Text, "TopologyPlugin has no effect") {
				t.Errorf("%s: %s", network, p)
			}
		}
	}
}

// TestStubborn: a job that ignores SIGTERM is killed, tree and all, and recorded before the daemons end.
func TestStubborn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "stubborn")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000})
	mark := filepath.Join(t.TempDir(), "pid")
	id := submit(t, c, `trap "" TERM; setsid sh -c 'trap "" TERM; echo $$ > `+mark+
		`; while :; do sleep 1; done' & while :; do sleep 1; done`+"\n",
		func(sp *model.Spec) { sp.NoRequeue, sp.Requeue = true, false })
	untilState(t, c, id, model.Running)
	until(t, "the job's child runs", func() bool { return exists(mark) })
	down(t, dir).has(t, "ending 1 running job", "killing 1 job still running")
	b, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
		t.Error(err)
	} else if p, ok := processOf(pid); ok {
		t.Errorf("a process of the job is left: %+v", p)
	}
	c, _ = mustUp(t, Options{Dir: dir})
	untilState(t, c, id, model.NodeFail)
}

// TestThisMachine: without --nodes the cluster is this machine with its hardware.
func TestThisMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "here")
	c, out := mustUp(t, Options{Dir: dir})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	cfg, _ := conf.LoadFile(c.Conf)
	if len(cfg.Nodes) != 1 || cfg.Nodes[0].Name != host || cfg.Nodes[0].CPUs < 1 || cfg.Nodes[0].RealMemoryMiB < 100 ||
		cfg.Nodes[0].Virtual {
		t.Fatalf("the node is %+v", cfg.Nodes)
	}
	out.has(t, "1 node, ")
	untilState(t, c, submit(t, c, "exit 0\n", nil), model.Completed)
}
