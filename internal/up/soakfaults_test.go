package up

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// soakfaults_test.go are the faults of TestSoak. Each begins with everything well, and ends what it did.

// soak is a stage on which faults happen to anybody.
type soak struct {
	*stage
	dice   *rand.Rand // decides what happens to whom
	inside *rand.Rand // decides what depends on what is there
	clocks clocks     // only in the long form
	long   bool
	book   *soakBook

	peak map[string]int // of daemons by role, MiB
}

// soakPeak is the most memory that a daemon may have had, MiB: this load keeps a few thousand jobs.
const soakPeak = 512

// sizes notes the most memory that each daemon has had.
func (k *soak) sizes() {
	for _, d := range status(k.t, k.c.Dir).Daemons {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID))
		if err != nil {
			continue // it has ended
		}
		if _, after, ok := strings.Cut(string(text), "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(after)[0]) // 0 says nothing
			k.peak[d.Role] = max(k.peak[d.Role], kib>>10)
		}
	}
}

// soakFault is a kind of fault.
type soakFault struct {
	name  string
	of    []string // whom it may hit
	brief bool     // it has no length
	do    func(k *soak, victim string, lasts time.Duration)
}

// picked are the kinds of GBATCH_SOAK_ONLY, or all.
func (k *soak) picked() []soakFault {
	all, only := k.kinds(), os.Getenv("GBATCH_SOAK_ONLY")
	if only == "" {
		return all
	}
	return slices.DeleteFunc(all, func(f soakFault) bool { return !slices.Contains(strings.Split(only, ","), f.name) })
}

// kinds are the faults that can happen here.
func (k *soak) kinds() []soakFault {
	ctls, nodes := []string{"ctl1", "ctl2", "ctl3"}, []string{"n1", "n2"}
	all := append(append([]string{dbdName}, nodes...), ctls...)
	out := []soakFault{
		{"kill -9", all, true, func(k *soak, v string, _ time.Duration) { k.end(v, syscall.SIGKILL) }},
		{"SIGTERM", all, true, func(k *soak, v string, _ time.Duration) { k.end(v, syscall.SIGTERM) }},
		{"kill -9 of gshim", nodes, true, func(k *soak, v string, _ time.Duration) {
			d := daemon(k.t, k.c.Dir, func(d *Daemon) bool { return d.Name == v })
			if p, ok := processOf(d.Shim); ok {
				k.send(p, syscall.SIGKILL)
			}
		}},
		{"stop", all, false, func(k *soak, v string, lasts time.Duration) {
			p := daemonOf(k.t, k.c.Dir, k.role(v), v)
			k.send(p, syscall.SIGSTOP)
			k.t.Cleanup(func() { _ = p.signal(syscall.SIGCONT) }) // it may have ended
			k.wait(lasts)
			k.send(p, syscall.SIGCONT)
		}},
		{"wiped disk", ctls, true, func(k *soak, v string, _ time.Duration) {
			begun := k.votes(v)
			p := daemonOf(k.t, k.c.Dir, RoleController, v)
			k.send(p, syscall.SIGKILL)
			k.ended(v, p)
			k.empty(v)
			k.up()
			until(k.t, v+" votes again", func() bool { return k.votes(v) > begun })
		}},
		{"flipped bytes", ctls, true, func(k *soak, v string, _ time.Duration) { k.flip(v) }},
		{"takeover", ctls, true, func(k *soak, v string, _ time.Duration) {
			cl := client.New(filepath.Join(k.c.Dir, "run"))
			defer cl.Close()
			err := cl.Call(proto.KindTakeover, &proto.TakeoverRequest{Name: v}, &proto.TakeoverReply{})
			if err != nil {
				k.t.Logf("%s does not take over: %v", v, err)
			}
		}},
		{"removed and added", ctls, true, func(k *soak, v string, _ time.Duration) { k.member(v) }},
		{"records from a backup", []string{dbdName}, false, func(k *soak, v string, lasts time.Duration) {
			k.restore(v, lasts)
		}},
		{"controllers from a snapshot", ctls, false, func(k *soak, v string, lasts time.Duration) {
			k.restoreSnapshot(v, lasts)
		}},
	}
	if k.a != nil {
		out = append(out,
			soakFault{"host off the network", all, false, func(k *soak, v string, lasts time.Duration) {
				k.a.link(v, "down")
				k.wait(lasts)
				k.a.link(v, "up")
			}},
			soakFault{"cut off from controllers", all, false, func(k *soak, v string, lasts time.Duration) {
				var others []string
				for _, name := range ctls {
					if name != v {
						others = append(others, name)
					}
				}
				k.a.split(v, others...)
				k.wait(lasts)
				k.a.join(v, others...)
			}},
			soakFault{"hanging disk", ctls, false, func(k *soak, v string, lasts time.Duration) {
				k.a.freeze(v)
				k.wait(lasts)
				k.a.thaw(v)
			}},
			soakFault{"full disk", append([]string{"all"}, ctls...), false, func(k *soak, v string, lasts time.Duration) {
				at := []string{v}
				if v == "all" {
					at = ctls
				}
				for _, name := range at {
					k.a.fill(k.a.disk(name))
				}
				k.wait(lasts)
				for _, name := range at {
					k.a.clear(k.a.disk(name))
				}
			}})
	}
	if k.long {
		out = append(out, soakFault{"wrong clock", ctls, false, func(k *soak, v string, lasts time.Duration) {
			pid := daemonOf(k.t, k.c.Dir, RoleController, v).PID
			k.clocks.set(time.Duration(1-2*k.inside.IntN(2))*time.Hour, pid)
			k.wait(lasts)
			k.clocks.set(0, pid)
		}})
	}
	return out
}

// lasts draws how long a fault lasts: some longer than SlurmdTimeout (8 s).
func (k *soak) lasts(brief bool) time.Duration {
	if brief {
		return 0
	}
	most := 4000
	if k.long && k.dice.IntN(3) == 0 {
		most = 14000
	}
	if !k.long {
		most = 1500
	}
	return time.Duration(500+k.dice.IntN(most)) * time.Millisecond
}

func (k *soak) wait(d time.Duration) { pause(k.t.Context(), d) }

func (k *soak) role(name string) string {
	for i := range k.c.Members {
		if k.c.Members[i].Name == name {
			return k.c.Members[i].Role
		}
	}
	return ""
}

// end ends a daemon and starts it anew.
func (k *soak) end(name string, sig syscall.Signal) {
	k.t.Helper()
	p := daemonOf(k.t, k.c.Dir, k.role(name), name)
	k.send(p, sig)
	k.ended(name, p)
	k.up()
}

// empty removes what is in a controller's directory. Its process has ended.
func (k *soak) empty(name string) {
	k.t.Helper()
	dir := layout(k.c.Dir).at("state", "ctld-"+name)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// flip changes bytes of a controller's log while it does not run. It gets what it lacks from the others.
func (k *soak) flip(name string) {
	k.t.Helper()
	p := daemonOf(k.t, k.c.Dir, RoleController, name)
	k.send(p, syscall.SIGKILL)
	k.ended(name, p)
	path := filepath.Join(layout(k.c.Dir).at("state", "ctld-"+name), "raft.db")
	b, err := os.ReadFile(path)
	if err != nil {
		k.t.Fatal(err)
	}
	used := len(bytes.TrimRight(b, "\x00"))
	const meta = 8 << 10 // the two first pages, of which either is enough
	for range 20 {
		at := meta + k.inside.IntN(used-meta)
		for at+1 < used && b[at] == 0 { // most of the file is room
			at++
		}
		b[at] ^= byte(1 + k.inside.IntN(255))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		k.t.Fatal(err)
	}
	damaged := func() int {
		list, err := filepath.Glob(filepath.Join(filepath.Dir(path), "damaged-*"))
		if err != nil {
			k.t.Fatal(err)
		}
		return len(list)
	}
	before, begun := damaged(), k.votes(name)
	k.up()
	if damaged() == before {
		k.t.Logf("the bytes that were changed in the log of %s were not in use", name)
		return
	}
	until(k.t, name+" votes again", func() bool { return k.votes(name) > begun })
}

// votes is how often a controller that had no state has got its vote.
func (k *soak) votes(name string) int {
	k.t.Helper()
	return strings.Count(lines(k.t, k.log(name)), "from now on it votes")
}

// restore puts a backup of the records in the place of newer ones. The controllers send again what came after it.
func (k *soak) restore(name string, lasts time.Duration) {
	k.t.Helper()
	gbatch := func(args ...string) {
		k.t.Helper()
		argv := append([]string{filepath.Join(k.bin, "gbatch")}, args...)
		if k.a != nil {
			argv = append([]string{"nsenter", "--net=/run/netns/" + k.a.nets + "-" + name}, argv...)
		}
		mustRun(k.t, append(argv, "-f", k.c.Conf)...)
	}
	path := filepath.Join(k.t.TempDir(), "backup")
	gbatch("backup", "save", path)
	k.wait(lasts)
	p := daemonOf(k.t, k.c.Dir, RoleAccounting, name)
	k.send(p, syscall.SIGKILL)
	k.ended(name, p)
	gbatch("backup", "restore", path)
	k.up()
}

// member removes a controller, and adds it again with an empty disk.
func (k *soak) member(name string) {
	k.t.Helper()
	p := daemonOf(k.t, k.c.Dir, RoleController, name)
	at := others(k.sockets, name)[0]
	if err := changeControllers(at, &proto.EditControllersRequest{Remove: name}); err != nil {
		k.t.Fatalf("removing %s: %v", name, err)
	}
	k.send(p, syscall.SIGTERM) // it may have ended, or not have heard of it
	k.ended(name, p)
	k.empty(name)
	added := make(chan error, 1)
	go func() { added <- changeControllers(at, &proto.EditControllersRequest{Add: name}) }() // while it starts
	k.up()
	if err := <-added; err != nil {
		k.t.Fatalf("adding %s: %v", name, err)
	}
}

// changeControllers changes the controllers.
func changeControllers(dir string, rq *proto.EditControllersRequest) (err error) {
	cl := client.New(dir)
	defer cl.Close()
	rq.RequestID = strconv.FormatUint(rand.Uint64(), 36)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // between tries
		if err = cl.Call(proto.KindEditControllers, rq, &proto.EditControllersReply{}); err == nil {
			return nil
		}
	}
	return err
}

// healthy waits until all controllers vote and are well, and gdbd and all nodes are there: so each fault is the only
// one. What ended by itself meanwhile is started anew after a second, as units with Restart=always are.
func (k *soak) healthy() {
	k.t.Helper()
	const patience, pause = 90 * time.Second, time.Second
	look := time.Now().Add(pause)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // the pace of looking
		why := k.unwell()
		if why == "" {
			return
		}
		if time.Now().After(look) {
			k.restart()
			look = time.Now().Add(pause)
		}
		if time.Now().After(end) {
			k.t.Fatalf("not well after %v: %s; errors in the logs:\n%s", patience, why, k.errors())
		}
	}
}

// restart starts the daemons that have ended with a sentence; one that a panic ended is a failure.
func (k *soak) restart() {
	k.t.Helper()
	ended := false
	for _, d := range status(k.t, k.c.Dir).Daemons {
		if _, ok := processOf(d.PID); ok {
			continue
		}
		last := tail(k.log(d.Name), 60)
		if strings.Contains(last, "goroutine ") {
			k.t.Fatalf("%s has ended with a panic:\n%s", d.Name, last)
		}
		k.t.Logf("%s has ended by itself, and is started anew:\n%s", d.Name, tail(k.log(d.Name), 3))
		ended = true
	}
	if ended {
		k.up()
	}
}

func (k *soak) unwell() string {
	cl := client.New(filepath.Join(k.c.Dir, "run"))
	defer cl.Close()
	var list proto.ControllersReply
	if err := cl.Call(proto.KindControllers, &proto.Empty{}, &list); err != nil {
		return err.Error()
	}
	if len(list.List) != 3 {
		return fmt.Sprintf("%d controllers", len(list.List))
	}
	for _, c := range list.List {
		if c.Health != "ok" || c.Role != proto.RoleLeads && c.Role != proto.RoleVotes {
			return fmt.Sprintf("%s is %s: %s", c.Name, c.Role, c.Health)
		}
	}
	var pong proto.PingReply
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &pong); err != nil || !pong.DbdUp {
		return strings.TrimSpace(fmt.Sprintf("gdbd takes no records: %s %v", pong.DbdWhy, err))
	}
	links := 0
	err := cl.Stream(proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var chunk proto.NodesChunk
		err := proto.Decode(body, &chunk)
		for _, n := range chunk.Nodes {
			if n.Node.Link == model.LinkUp && n.Node.Problem == "" && n.Node.Admin == model.NodeUp {
				links++
			}
		}
		return err
	})
	if err != nil || links != 2 {
		return strings.TrimSpace(fmt.Sprintf("%d nodes are there %v", links, err))
	}
	return ""
}
