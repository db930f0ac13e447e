package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/client"
	"gbatch/internal/proto"
)

// members_test.go changes the controllers of a running cluster.

// edit is gcontrol controllers add, remove or replace.
func edit(c *Cluster, rq *proto.EditControllersRequest) error {
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.EditControllersReply
	return cl.Call(proto.KindEditControllers, rq, &reply)
}

// list is gcontrol controllers, on the host of a controller.
func list(t *testing.T, at string) *proto.ControllersReply {
	t.Helper()
	cl := client.New(at)
	defer cl.Close()
	reply := new(proto.ControllersReply)
	if err := cl.Call(proto.KindControllers, &proto.Empty{}, reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// voters names the controllers that vote, and checks that nothing is wrong with them.
func voters(t *testing.T, c *Cluster) string {
	t.Helper()
	var out []string
	for _, s := range list(t, filepath.Join(c.Dir, "run")).List {
		if s.Role == proto.RoleLeads || s.Role == proto.RoleVotes {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// controllersInFile writes which controllers gbatch.conf names.
func controllersInFile(t *testing.T, file string, names []string, ports []int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, n := range names {
		fmt.Fprintf(&all, "SlurmctldHost=%s(%s:%d)\n", n, loopback, ports[n[3]-'1'])
	}
	lines := regexp.MustCompile(`(?m)^SlurmctldHost=.*\n`)
	at := lines.FindIndex(text)
	rest := append(slices.Clone(text[:at[0]]), lines.ReplaceAll(text[at[0]:], nil)...)
	out := string(rest[:at[0]]) + all.String() + string(rest[at[0]:])
	if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestControllersChangeUnderLoad: one controller becomes three, one of these dies and is replaced, three become five,
// and those that lead are removed until one is left, while users submit and jobs run. No call fails, and no job is lost
// or runs twice. What would lose the majority is refused. Then all is restarted.
func TestControllersChangeUnderLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "members")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 16, MemMiB: 16000})
	drawn, err := drawPorts(5)
	if err != nil {
		t.Fatal(err)
	}
	ports := append([]int{portOf(t, c, "ctl1")}, drawn...)
	six := []string{"ctl1", "ctl2", "ctl3", "ctl4", "ctl5", "ctl6"}
	controllersInFile(t, c.Conf, six, ports)
	_, out := mustUp(t, Options{Dir: dir}) // they run, and wait to be added
	out.has(t, "controller ctl6 runs, but the cluster does not know it: gcontrol controllers add ctl6")
	t.Cleanup(func() {
		for _, name := range six {
			if t.Failed() {
				t.Logf("%s:\n%s", name, tail(filepath.Join(dir, "log", "ctld-"+name+".log"), 4*tailLines))
			}
		}
	})
	run := filepath.Join(dir, "run")
	at := hosts(t, c)
	tr := newTraffic(t, []string{run, run, run}, []string{at["noded-n1"], at["noded-n2"]})
	check := steady(t, c)

	must := func(rq *proto.EditControllersRequest, want string) {
		t.Helper()
		if err := edit(c, rq); err != nil {
			t.Fatal(err)
		}
		until(t, "the controllers that vote are "+want, func() bool { return voters(t, c) == want })
	}
	refused := func(rq *proto.EditControllersRequest, words ...string) {
		t.Helper()
		err := edit(c, rq)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want %q", rq, err, w)
			}
		}
	}
	add := func(name string) *proto.EditControllersRequest { return &proto.EditControllersRequest{Add: name} }
	remove := func(name string) *proto.EditControllersRequest { return &proto.EditControllersRequest{Remove: name} }

	refused(remove("ctl1"), "ctl1 is the only controller")
	refused(remove("ctl7"), "'ctl7' is not a controller of this cluster")
	refused(add("ctl7"), "where is ctl7?", "SlurmctldHost=ctl7(HOST:PORT)")
	refused(&proto.EditControllersRequest{Add: "ctl2", Addr: "127.0.0.1:1"}, "says that ctl2 is at")
	must(add("ctl2"), "ctl1 ctl2")
	must(add("ctl2"), "ctl1 ctl2") // a second time
	must(add("ctl3"), "ctl1 ctl2 ctl3")
	until(t, "nodes know the new controllers", func() bool {
		return len(strings.Fields(lines(t, filepath.Join(dir, "state", "node-n1", "controllers")))) == 3
	})
	if got := takeover(t, c, "ctl1"); got == "ctl1" || got == "" {
		t.Errorf("%s leads after a takeover", got)
	}

	// The first one is restarted with the file from before there were others.
	old := filepath.Join(t.TempDir(), "old.conf")
	text, err := os.ReadFile(c.Conf)
	if err == nil {
		err = os.WriteFile(old, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	controllersInFile(t, old, six[:1], ports)
	kill(t, daemonOf(t, dir, RoleController, "ctl1"))
	first := exec.Command(filepath.Join(programs(t), "gctld"), "-f", old, "-N", "ctl1")
	log, err := os.OpenFile(filepath.Join(dir, "log", "ctld-ctl1.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	if first.Stderr = log; first.Start() != nil {
		t.Fatal("gctld does not start")
	}
	ended := make(chan struct{})
	go func() { _ = first.Wait(); close(ended) }() // how it ends says its log
	t.Cleanup(func() { _ = first.Process.Kill(); <-ended })
	until(t, "it follows", func() bool {
		return !slices.ContainsFunc(list(t, run).List, func(s proto.ControllerState) bool { return s.Health != "ok" })
	})
	leader, _ := leaderOf(t, c)
	dead := map[string]string{"ctl2": "ctl3", "ctl3": "ctl2", "ctl1": "ctl3"}[leader]
	kill(t, daemonOf(t, dir, RoleController, dead))
	until(t, "the leader misses it", func() bool {
		return slices.ContainsFunc(list(t, run).List, func(s proto.ControllerState) bool {
			return s.Name == dead && (strings.HasPrefix(s.Health, "not answering for ") ||
				s.Health == "has not answered yet") // of one that has led since it died
		})
	})
	refused(remove("ctl1"), "without ctl1, 1 of 2 controllers would answer, which is no majority: "+dead+" does not",
		"gcontrol controllers replace "+dead+" NEW")
	now := func(names ...string) string { slices.Sort(names); return strings.Join(names, " ") }
	must(&proto.EditControllersRequest{Add: "ctl4", Remove: dead}, now("ctl1", leader, "ctl4"))
	must(add("ctl5"), now("ctl1", leader, "ctl4", "ctl5"))
	must(add("ctl6"), now("ctl1", leader, "ctl4", "ctl5", "ctl6"))

	left := []string{"ctl1", leader, "ctl4", "ctl5", "ctl6"}
	for len(left) > 1 {
		leader, p := leaderOfList(t, c)
		left = slices.DeleteFunc(left, func(n string) bool { return n == leader })
		rq := remove(leader)
		rq.RequestID = "of " + leader
		must(rq, now(slices.Clone(left)...))
		if err := edit(c, rq); err != nil {
			t.Errorf("another try of the removal of %s, as if the answer had been lost: %v", leader, err)
		}
		refused(remove(leader), "'"+leader+"' is not a controller of this cluster")
		if leader == "ctl1" {
			<-ended
		} else {
			until(t, leader+" ends", func() bool { return !p.runs() })
		}
	}
	controllersInFile(t, c.Conf, left, ports)
	setConfig(t, c)
	if failed := tr.end(); len(failed) > 0 {
		t.Errorf("%d of %d calls failed, the first: %v", len(failed), tr.calls.Load(), failed[0])
	}
	t.Logf("%d submissions, %d calls", len(tr.submits), tr.calls.Load())
	check()

	_ = first.Process.Signal(syscall.SIGTERM) // it may have ended
	<-ended
	down(t, dir)
	c, _ = mustUp(t, Options{Dir: dir})
	if got := voters(t, c); got != left[0] {
		t.Errorf("after a restart: %s", got)
	}
	for _, d := range []deed{tr.submits[0], tr.submits[len(tr.submits)-1]} {
		if j := job(t, c, d.job); j == nil {
			t.Errorf("job %d is not known any more", d.job)
		}
	}
}

// leaderOfList gives the leader by gcontrol controllers, and its process.
func leaderOfList(t *testing.T, c *Cluster) (name string, p process) {
	t.Helper()
	until(t, "a controller leads", func() bool { name = list(t, filepath.Join(c.Dir, "run")).Leader; return name != "" })
	b, err := layout(c.Dir).readBook()
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Members {
		if m := &b.Members[i]; m.Role == RoleController && m.Name == name {
			p = m.process
		}
	}
	return name, p
}

// portOf gives the port of a controller.
func portOf(t *testing.T, c *Cluster, name string) (port int) {
	t.Helper()
	for i := range c.Members {
		if m := &c.Members[i]; m.Role == RoleController && m.Name == name {
			if _, err := fmt.Sscanf(m.Addresses[0], loopback+":%d", &port); err != nil {
				t.Fatal(err)
			}
		}
	}
	return port
}

// kill ends a daemon without a word.
func kill(t *testing.T, p process) {
	t.Helper()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone", func() bool { return !p.runs() })
}
