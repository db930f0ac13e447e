package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/rpc/pki"

	"golang.org/x/sys/unix"
)

// generate.go makes the files of a new DIR from its recipe. Every step leaves alone what is there already, so that an
// interrupted first `up` is finished by the next one and what the user has changed since stays.

// invent decides what a new cluster is: what the options leave open, and its ports.
func (l layout) invent(o *Options) (*book, error) {
	r := recipe{Nodes: o.Nodes, Cloud: o.Cloud, CPUs: o.CPUs, MemMiB: o.MemMiB, GPUs: o.GPUs,
		Controllers: max(1, o.Controllers), Conf: o.Conf}
	b := &book{Version: bookVersion, Cluster: l.clusterName()}
	var err error
	switch {
	case r.Conf != "":
		cfg, problems := conf.LoadFile(r.Conf)
		if cfg == nil {
			return nil, fmt.Errorf("%s can't be used:\n%s", r.Conf, faults(problems))
		}
		if len(cfg.Nodes) == 0 {
			return nil, fmt.Errorf("%s defines no node; add a NodeName line", r.Conf)
		}
		b.Cluster, r.Powers = cfg.ClusterName, cfg.Power.On()
	case r.made():
		if r.CPUs == 0 {
			r.CPUs = min(4, runtime.NumCPU())
		}
		if r.MemMiB == 0 {
			if r.MemMiB, err = memShare(r.Nodes + r.Cloud); err != nil {
				return nil, err
			}
		}
	default:
		if r.NodeLine, err = thisMachine(o.Bin); err != nil {
			return nil, err
		}
	}
	gdbds := max(1, o.Gdbds)
	ports, err := drawPorts(2*r.Controllers + gdbds)
	if err != nil {
		return nil, err
	}
	r.CtldPorts, r.DbdPort = ports[:r.Controllers], ports[r.Controllers]
	r.HTTPPorts = ports[r.Controllers+gdbds:]
	if o.Gdbds == 2 {
		r.DbdCopyPort = ports[r.Controllers+1]
	}
	b.Made = r
	return b, nil
}

// faults lists the errors of a configuration, one a line.
func faults(problems []conf.Problem) string {
	var out []string
	for _, p := range problems {
		if p.Severity == conf.Error {
			out = append(out, "  "+p.String())
		}
	}
	return strings.Join(out, "\n")
}

// clusterName is the same for a directory each time, and differs between directories as a rule.
func (l layout) clusterName() string {
	name := strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '-'
	}, filepath.Base(string(l))), "-_")
	const most = 32
	if len(name) > most {
		name = name[:most]
	}
	if name == "" || name == "up" {
		return "local"
	}
	return name
}

const leastMemMiB = 512

// memShare is what each of n virtual nodes can say it has without promising more memory than the machine's.
func memShare(n int) (int64, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0, fmt.Errorf("how much memory this machine has: %w", err)
	}
	total := int64(uint64(si.Totalram) * uint64(si.Unit) >> 20)
	const round = 256
	return max(leastMemMiB, total/int64(n)/round*round), nil
}

// nodeMiB is what a node daemon and its launcher take, measured.
const nodeMiB = 18

// roomFor refuses to start more node daemons than this machine has memory for.
func roomFor(nodes int) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // then nobody knows
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err != nil || n != 1 {
			continue
		}
		if have := kib >> 10; nodes*nodeMiB > have {
			return fmt.Errorf("%d node daemons take about %d MiB of memory, and %d MiB are free: make fewer nodes", nodes,
				nodes*nodeMiB, have)
		}
	}
	return nil
}

// controllerNames are ctl1 and so on, by other names where a node is called so.
func (r *recipe) controllerNames() []string {
	var out []string
	for i := range r.Controllers {
		out = append(out, "ctl"+strconv.Itoa(i+1))
	}
	return out
}

// prepare makes what is missing in DIR.
func (l layout) prepare(b *book) error {
	if err := l.directories(); err != nil {
		return err
	}
	if err := l.authority(b.Cluster); err != nil {
		return err
	}
	if exists(l.conf()) {
		return nil
	}
	for name, text := range l.besides(b) {
		if !exists(l.at(name)) {
			if err := os.MkdirAll(filepath.Dir(l.at(name)), 0o755); err != nil {
				return err
			}
			if err := write(l.at(name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	for _, name := range b.Made.controllerNames() {
		state := l.at("state", "ctld-"+name)
		if err := os.MkdirAll(state, 0o700); err != nil {
			return err
		}
		if err := write(filepath.Join(state, conf.BeginFile), nil, 0o600); err != nil {
			return err
		}
	}
	return write(l.conf(), []byte(l.confText(b)), 0o644)
}

// authority makes the cluster's certificate authority. Its key is written before its certificate, and without the
// certificate nothing was signed with it: a lonely key is what an interrupted `up` has left.
func (l layout) authority(cluster string) error {
	crt, key := filepath.Join(l.pki(), "ca.crt"), filepath.Join(l.pki(), "ca.key")
	if exists(crt) {
		return nil
	}
	if err := os.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return pki.InitCA(l.pki(), cluster)
}

// certificates issues those that are missing.
func (l layout) certificates(list []Member) error {
	for i := range list {
		m := &list[i]
		role := map[string]string{RoleController: pki.RoleCtld, RoleAccounting: pki.RoleDBD, RoleNode: pki.RoleNode}[m.Role]
		if exists(filepath.Join(l.pki(), role+"-"+m.Name+".crt")) {
			continue
		}
		if err := pki.Issue(l.pki(), role, m.Name, []string{loopback, "localhost"}, l.pki()); err != nil {
			return fmt.Errorf("certificate of %s: %w", m, err)
		}
	}
	return nil
}

// besides gives the texts of the files beside gbatch.conf, by name.
func (l layout) besides(b *book) map[string]string {
	out := map[string]string{}
	switch r := &b.Made; {
	case r.Conf != "":
		for _, name := range []string{conf.GresFile, conf.CgroupFile, conf.TopologyFile, conf.TopologiesFile} {
			if from := filepath.Join(filepath.Dir(r.Conf), name); exists(from) {
				out[name] = fmt.Sprintf("# Made by gbatch up: the file beside %s counts.\nInclude %s\n", r.Conf, quoted(from))
			}
		}
	case r.GPUs != "":
		r.standins(out)
	case strings.Contains(r.NodeLine, "Gres="):
		out[conf.GresFile] = "# Made by gbatch up: the node daemon finds its GPUs by itself.\nAutoDetect=nvml\n"
	}
	return out
}

// quoted writes a path as the value of a key; Options.check has kept quotes out of it.
func quoted(path string) string {
	if strings.ContainsAny(path, " #") {
		return `"` + path + `"`
	}
	return path
}

// overridden are the keys that describe where a cluster runs. Of a configuration that is used as it is, they are the
// ones that don't count on this machine.
var overridden = []string{
	"SlurmctldHost,SlurmctldPort,SlurmUser,HttpListen,ControlMachine,ControlAddr,BackupController,BackupAddr",
	"AccountingStorageType,AccountingStorageHost,AccountingStoragePort,AccountingStorageBackupHost",
	"StateSaveLocation,SlurmdSpoolDir,DbdStateLocation,LocalSocketDir,PKIDir",
	"SlurmctldLogFile,SlurmdLogFile,DbdLogFile,SlurmctldPidFile,SlurmdPidFile",
	"NodeHostname,NodeAddr,BcastAddr,Port",
	"SuspendProgram,ResumeProgram,ResumeFailProgram",
}

// confText is a new DIR's gbatch.conf.
func (l layout) confText(b *book) string {
	me := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(me); err == nil {
		me = u.Username
	}
	r := &b.Made
	var w strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&w, format+"\n", a...) }
	p("# gbatch.conf of the cluster in this directory, made by gbatch up on %s.", time.Now().Format(time.DateOnly))
	p("# From here on it is yours. After a change:")
	p("#   gcontrol reconfigure                takes it over (--dry-run shows what would change)")
	p("#   gbatch up --detach --dir %s", l)
	p("#                                       starts the daemons of nodes that you have added")
	p("")
	if r.Conf != "" {
		p("# The cluster is described there; changes there count as well.")
		p("Include %s", quoted(r.Conf))
		p("")
		p("# What follows replaces what that file says about the places where the cluster runs: here it runs on this")
		p("# machine, with every node a virtual one. Unset makes earlier lines of these keys not count.")
		for _, keys := range overridden {
			p("Unset %s", keys)
		}
	} else {
		p("ClusterName=%s", b.Cluster)
	}
	p("")
	p("# Controllers: name(address:port). They listen on this machine only.")
	for i, name := range r.controllerNames() {
		p("SlurmctldHost=%s(%s:%d)", name, loopback, r.CtldPorts[i])
	}
	p("SlurmUser=%s", me)
	if len(r.HTTPPorts) > 0 {
		p("# HTTP: REST, metrics. NONE turns it off.")
		var list []string
		for i, name := range r.controllerNames() {
			list = append(list, fmt.Sprintf("%s=%s:%d", name, loopback, r.HTTPPorts[i]))
		}
		p("HttpListen=%s", strings.Join(list, ","))
	}
	p("")
	p("# Accounting (gdbd).")
	p("AccountingStorageType=accounting_storage/slurmdbd")
	p("AccountingStorageHost=%s", loopback)
	p("AccountingStoragePort=%d", r.DbdPort)
	if r.DbdCopyPort != 0 {
		p("AccountingStorageBackupHost=%s:%d", loopback, r.DbdCopyPort)
	}
	p("")
	p("# Everything lies in this directory. %%n is the name of the daemon. The daemons' logs are in log/.")
	p("StateSaveLocation=%s", quoted(l.at("state", "ctld-%n")))
	p("SlurmdSpoolDir=%s", quoted(l.at("state", "node-%n")))
	p("DbdStateLocation=%s", quoted(l.at("state", dbdName)))
	p("LocalSocketDir=%s", quoted(l.run()))
	p("PKIDir=%s", quoted(l.pki()))
	if r.Conf != "" {
		if b.Made.Powers {
			p("")
			l.powerText(p)
		}
		return w.String()
	}
	p("")
	p("# Nodes that come back after a failure take jobs again by themselves.")
	p("ReturnToService=2")
	p("")
	if r.made() {
		l.virtualNodes(r, p)
	} else {
		p("# This machine, as gnoded --print-hardware found it.")
		if strings.Contains(r.NodeLine, "Gres=") {
			p("GresTypes=gpu")
		}
		p("%s State=UNKNOWN", r.NodeLine)
	}
	p("")
	p("PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP")
	return w.String()
}

// virtualNodes writes the lines of the nodes that Up makes.
func (l layout) virtualNodes(r *recipe, p func(string, ...any)) {
	gres := ""
	if g := r.gres(); g != "" {
		gres = " Gres=" + g
	}
	p("# Virtual nodes: each is a gnoded process of its own on this machine, with what the line says it has.")
	if gres != "" {
		p("# The GPUs are stand-ins: device files without a driver, below %s. What they do is what %s says.",
			quoted(l.at(standinDir)), filepath.Join(standinDir, "n1.json"))
		p("GresTypes=gpu")
	}
	fixed, cloud := hostlist.Compress(r.nodes()[:r.Nodes]), hostlist.Compress(r.nodes()[r.Nodes:])
	if r.Nodes > 0 {
		p("NodeName=%s Virtual=yes CPUs=%d RealMemory=%d%s State=UNKNOWN", fixed, r.CPUs, r.MemMiB, gres)
	}
	if r.Cloud > 0 {
		p("")
		l.powerText(p)
		p("SuspendTime=60")
		p("SuspendTimeout=5")
		p("ResumeTimeout=60")
		p("SlurmctldParameters=idle_on_node_suspend")
		if r.Nodes > 0 {
			p("SuspendExcNodes=%s", fixed)
		}
		p("NodeName=%s Virtual=yes CPUs=%d RealMemory=%d%s State=CLOUD", cloud, r.CPUs, r.MemMiB, gres)
	}
}

// standinDir is where stand-in GPUs are described, and where their device files are made, by node.
const standinDir = "gpus"

// standins adds the description of each virtual node's stand-in GPUs and the gres.conf that names it. With device files
// behind them the kernel keeps jobs to their own as it does with real ones, and whoever changes a description sees a
// GPU fill, heat up or break.
func (r *recipe) standins(files map[string]string) {
	typ, count, found := strings.Cut(r.GPUs, ":")
	of := fmt.Sprintf(`"type": %q`, typ)
	if !found {
		count, of = r.GPUs, `"name": "stand-in"`
	}
	var gres strings.Builder
	gres.WriteString("# Made by gbatch up: stand-ins for GPUs. Each FILE says how its node's are: load, memory, faults; " +
		"see gres.conf(5).\n")
	for _, node := range r.nodes() {
		file := filepath.Join(standinDir, node+".json")
		files[file] = fmt.Sprintf("{\"dir\": %q,\n \"devices\": [{%s, \"count\": %s}]}\n", node, of, count)
		fmt.Fprintf(&gres, "NodeName=%s AutoDetect=fake:%s\n", node, file)
	}
	files[conf.GresFile] = gres.String()
}

// gres is what each virtual node has, as its line says it.
func (r *recipe) gres() string {
	if r.GPUs == "" {
		return ""
	}
	return "gpu:" + r.GPUs
}
