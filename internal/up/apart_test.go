package up

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/client"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
)

// apart_test.go makes a cluster whose daemons have hosts of their own, as far as the network goes: each is in a network
// namespace with an address, behind a switch. Each controller's state is on a disk of its own. So a host can drop off
// the network without a word (no RST), a disk can hang, and it can be full.

// apart is such a cluster.
type apart struct {
	*Cluster
	t    *testing.T
	bin  string
	nets string // prefix of the namespaces' names
	addr map[string]string
}

const diskMiB = 1024 // of a controller; two damaged logs and two states each are kept beside the present ones

var clustersApart atomic.Int32

// mustUpApart is mustUp with hosts and disks: one for each controller, and for more directories of state.
func mustUpApart(t *testing.T, o Options, more ...string) *apart {
	t.Helper()
	rootTools(t)
	a := &apart{t: t, nets: fmt.Sprintf("gb%d-%d", os.Getpid(), clustersApart.Add(1)), addr: map[string]string{},
		bin: t.TempDir()}
	if err := errors.Join(os.Chmod(filepath.Dir(a.bin), 0o755), os.Chmod(a.bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	o.Out = &said{t: t}
	bin := o.Bin
	if bin == "" {
		bin = programs(t)
	}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}

	// The files of the cluster, as Up begins them.
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := layout(o.Dir)
	b, err := l.invent(&o)
	if err == nil {
		err = errors.Join(l.writeBook(b), l.directories())
	}
	if err != nil {
		t.Fatal(err)
	}
	k := newCaretaker(t)
	for _, name := range b.Made.controllerNames() {
		k.disk(l.at("state", "ctld-"+name), diskMiB)
	}
	for _, dir := range more {
		k.disk(l.at("state", dir), diskMiB)
	}
	if err := l.prepare(b); err != nil {
		t.Fatal(err)
	}

	hosts := append(b.Made.controllerNames(), dbdName)
	for i := range o.Nodes {
		hosts = append(hosts, fmt.Sprintf("n%d", i+1))
	}
	a.network(k, append(hosts, loginHost))
	text, err := os.ReadFile(l.conf())
	if err != nil {
		t.Fatal(err)
	}
	conf := string(text)
	for i, name := range b.Made.controllerNames() {
		conf = strings.Replace(conf, fmt.Sprintf("%s(%s:%d)", name, loopback, b.Made.CtldPorts[i]),
			fmt.Sprintf("%s(%s:%d)", name, a.addr[name], b.Made.CtldPorts[i]), 1)
	}
	conf = strings.Replace(conf, "AccountingStorageHost="+loopback, "AccountingStorageHost="+a.addr[dbdName], 1)
	if err := os.WriteFile(l.conf(), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"gshim", "gbatch", "gcli"} {
		if err := os.Symlink(filepath.Join(bin, name), filepath.Join(a.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{RoleController, RoleNode, RoleAccounting} {
		script := fmt.Sprintf("#!/bin/sh\nfor a; do [ \"$last\" = -N ] && name=$a; last=$a; done\n"+
			"exec nsenter --net=/run/netns/%s-$name %s \"$@\"\n", a.nets, filepath.Join(bin, name))
		if err := os.WriteFile(filepath.Join(a.bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a.Cluster, _ = mustUp(t, Options{Dir: o.Dir, Bin: a.bin, Timeout: o.Timeout})
	return a
}

const loginHost = "lg1"

// login starts the daemon of a login host, and gives the directory of its socket.
func (a *apart) login() string {
	a.t.Helper()
	l := layout(a.Dir)
	dir := a.t.TempDir()
	if err := pki.Issue(l.pki(), pki.RoleLogin, loginHost, []string{loopback}, l.pki()); err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(a.bin, RoleNode), "--login", "-f", l.conf(), "-N", loginHost, "--socket-dir", dir,
		"--spool", a.t.TempDir())
	log, err := os.Create(l.at("log", "login-"+loginHost+".log"))
	if err != nil {
		a.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // its log says more
	})
	until(a.t, "the login host answers", func() bool {
		cl := client.New(dir)
		defer cl.Close()
		return cl.Call(proto.KindPing, &proto.Empty{}, &proto.PingReply{}) == nil
	})
	return dir
}

// network makes a switch, and a host behind it for each name. The test itself is on no host. All addresses are local to
// it, so that it can try whether a port is free.
func (a *apart) network(k *caretaker, hosts []string) {
	a.t.Helper()
	sw := a.nets + "-switch"
	k.network(sw)
	mustRun(a.t, "ip", "-n", sw, "link", "add", "name", "bridge", "type", "bridge", "forward_delay", "0")
	mustRun(a.t, "ip", "-n", sw, "link", "set", "bridge", "up")
	subnet := ""
	for i := range 250 { // other tests on this machine may have theirs
		subnet = fmt.Sprintf("10.213.%d", (os.Getpid()+i)%250)
		if exec.Command("ip", "route", "add", "local", subnet+".0/24", "dev", "lo").Run() == nil {
			break
		}
		subnet = ""
	}
	if subnet == "" {
		a.t.Fatal("no network of 10.213.0.0/16 is free")
	}
	k.do("ip route del local "+subnet+".0/24 dev lo", "true")
	for i, host := range hosts {
		ns := a.nets + "-" + host
		k.network(ns)
		a.addr[host] = fmt.Sprintf("%s.%d", subnet, i+1)
		for _, args := range []string{
			"-n " + sw + " link add to-" + host + " type veth peer name eth0 netns " + ns,
			"-n " + sw + " link set to-" + host + " master bridge up",
			"-n " + ns + " addr add " + a.addr[host] + "/24 dev eth0",
			"-n " + ns + " link set eth0 up",
		} {
			mustRun(a.t, append([]string{"ip"}, strings.Fields(args)...)...)
		}
	}
}

// link plugs a host in or out.
func (a *apart) link(host, upDown string) {
	a.t.Helper()
	mustRun(a.t, "ip", "-n", a.nets+"-switch", "link", "set", "to-"+host, upDown)
}

// split lets nothing pass between a host and others: each has a wrong hardware address of the other.
func (a *apart) split(host string, others ...string) {
	a.t.Helper()
	for _, o := range others {
		for _, pair := range [][2]string{{host, o}, {o, host}} {
			mustRun(a.t, "ip", "-n", a.nets+"-"+pair[0], "neigh", "replace", a.addr[pair[1]], "dev", "eth0",
				"lladdr", "02:00:00:00:00:99", "nud", "permanent")
		}
	}
}

// join undoes split.
func (a *apart) join(host string, others ...string) {
	a.t.Helper()
	for _, o := range others {
		for _, pair := range [][2]string{{host, o}, {o, host}} {
			mustRun(a.t, "ip", "-n", a.nets+"-"+pair[0], "neigh", "del", a.addr[pair[1]], "dev", "eth0")
		}
	}
}

// disk is where a controller's state is.
func (a *apart) disk(controller string) string { return layout(a.Dir).at("state", "ctld-"+controller) }

func (a *apart) freeze(controller string) {
	a.t.Helper()
	mustRun(a.t, "fsfreeze", "-f", a.disk(controller))
}

func (a *apart) thaw(controller string) {
	a.t.Helper()
	mustRun(a.t, "fsfreeze", "-u", a.disk(controller))
}

// fill takes all room of a disk.
func (a *apart) fill(dir string) {
	a.t.Helper()
	f, err := os.Create(filepath.Join(dir, fillFile))
	if err != nil {
		a.t.Fatal(err)
	}
	size := int64(0)
	for step := int64(16 << 20); step >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, step); {
		case err == nil:
			size += step
		case errors.Is(err, syscall.ENOSPC):
			step /= 2
		default:
			a.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		a.t.Fatal(err)
	}
}

const fillFile = "fill"

// clear gives the room back.
func (a *apart) clear(dir string) {
	a.t.Helper()
	if err := os.Remove(filepath.Join(dir, fillFile)); err != nil {
		a.t.Fatal(err)
	}
}
