package conf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
)

// MaxNodes is how many nodes a configuration may define.
const MaxNodes = hostlist.MaxHosts

// NodeDef is one node as NodeName lines define it. CPUs is always set: from
// CPUs, or from boards, sockets, cores and threads.
type NodeDef struct {
	Name, Hostname, Addr, BcastAddr string
	Port                            int64 // 0: not given; nothing listens there
	CPUs                            int64
	Boards                          int64
	Sockets                         int64 // of the whole node
	CoresPerSocket                  int64
	ThreadsPerCore                  int64
	RealMemoryMiB                   int64
	MemSpecLimitMiB                 int64 // kept from jobs
	CoreSpecCount                   int64 // cores kept from jobs
	CPUSpecList                     []int // CPUs kept from jobs
	TmpDiskMiB                      int64
	Gres                            []GresCount // by name and type, in the order given
	Features                        []string
	Weight                          int64
	CPUBind                         string
	State                           string // UNKNOWN, or DOWN, DRAIN, FAIL, FUTURE, CLOUD, EXTERNAL as configured
	Reason                          string
	Topology                        string // TOPOLOGY:UNIT,...: its place, whatever the topologies' file says
	Virtual                         bool   // its hardware is only claimed (gbatch up --conf)
	File                            string
	Line                            int
}

// nodeLine is a NodeName line while it is read.
type nodeLine struct {
	NodeDef
	hostnames, addrs, bcasts []string
	ports                    []int
	gresConf                 []GresCount
}

var nodeStates = []string{"UNKNOWN", "CLOUD", "DOWN", "DRAIN", "EXTERNAL", "FAIL", "FAILING", "FUTURE", "IDLE"}

func nodeKeys() []lineKey[nodeLine] {
	num := func(name string, at func(*nodeLine) *int64, least, most int64) lineKey[nodeLine] {
		return lineKey[nodeLine]{name: name, read: func(n *nodeLine, v string) (f fault) {
			*at(n), f = readInt(v, least, most)
			return f
		}}
	}
	mem := func(name string, at func(*nodeLine) *int64) lineKey[nodeLine] {
		return lineKey[nodeLine]{name: name, read: func(n *nodeLine, v string) (f fault) { *at(n), f = readMem(v); return f }}
	}
	hosts := func(name string, at func(*nodeLine) *[]string) lineKey[nodeLine] {
		return lineKey[nodeLine]{name: name,
			read: func(n *nodeLine, v string) (f fault) { *at(n), f = readHosts(v); return f }}
	}
	cpus := func(name string) lineKey[nodeLine] {
		return lineKey[nodeLine]{name: name,
			read: func(n *nodeLine, v string) (f fault) { n.CPUs, f = readInt(v, 1, 65533); return f }}
	}
	features := func(name string) lineKey[nodeLine] {
		return lineKey[nodeLine]{name: name,
			read: func(n *nodeLine, v string) fault { n.Features = splitList(v); return fault{} }}
	}
	return []lineKey[nodeLine]{
		hosts("NodeHostname", func(n *nodeLine) *[]string { return &n.hostnames }),
		hosts("NodeAddr", func(n *nodeLine) *[]string { return &n.addrs }),
		hosts("BcastAddr", func(n *nodeLine) *[]string { return &n.bcasts }),
		{name: "Port", read: func(n *nodeLine, v string) fault {
			ports, err := hostlist.ParseIndexes(strings.Trim(v, "[]"))
			if err != nil || len(ports) == 0 || ports[0] < 1 || ports[len(ports)-1] > 65535 {
				return fault{shown(v) + " is not a port or a range of ports", "6818"}
			}
			n.ports = ports
			return fault{}
		}},
		cpus("CPUs"), cpus("Procs"),
		num("Boards", func(n *nodeLine) *int64 { return &n.Boards }, 1, 65533),
		num("Sockets", func(n *nodeLine) *int64 { return &n.Sockets }, 1, 65533),
		num("SocketsPerBoard", func(n *nodeLine) *int64 { return &n.Sockets }, 1, 65533),
		num("CoresPerSocket", func(n *nodeLine) *int64 { return &n.CoresPerSocket }, 1, 65533),
		num("ThreadsPerCore", func(n *nodeLine) *int64 { return &n.ThreadsPerCore }, 1, 65533),
		mem("RealMemory", func(n *nodeLine) *int64 { return &n.RealMemoryMiB }),
		mem("MemSpecLimit", func(n *nodeLine) *int64 { return &n.MemSpecLimitMiB }),
		mem("TmpDisk", func(n *nodeLine) *int64 { return &n.TmpDiskMiB }),
		num("CoreSpecCount", func(n *nodeLine) *int64 { return &n.CoreSpecCount }, 0, 65533),
		{name: "CpuSpecList", read: func(n *nodeLine, v string) fault {
			list, err := hostlist.ParseIndexes(v)
			if err != nil {
				return fault{shown(v) + " is not a list of CPUs", "0-1"}
			}
			n.CPUSpecList = list
			return fault{}
		}},
		num("Weight", func(n *nodeLine) *int64 { return &n.Weight }, 0, math.MaxInt32),
		features("Features"), features("Feature"),
		{name: "Gres", read: func(n *nodeLine, v string) (f fault) { n.Gres, f = readNodeGres(v); return f }},
		{name: "GresConf", read: func(n *nodeLine, v string) (f fault) { n.gresConf, f = readGresConf(v); return f }},
		{name: "CpuBind", read: func(n *nodeLine, v string) (f fault) {
			n.CPUBind, f = readCPUBind(v)
			return f
		}},
		{name: "State", read: func(n *nodeLine, v string) (f fault) {
			if n.State, f = readWord(v, nodeStates); n.State == "IDLE" {
				n.State = "UNKNOWN"
			}
			return f
		}},
		{name: "Reason", read: func(n *nodeLine, v string) fault { n.Reason = v; return fault{} }},
		{name: "Virtual", read: func(n *nodeLine, v string) (f fault) { n.Virtual, f = readBool(v); return f }},
		{name: "RestrictedCoresPerGPU", note: "is not supported: cores aren't kept for GPU jobs", lost: true},
		{name: "Parameters", note: "has no effect: gnoded takes its parameters from the command line"},
		{name: "Topology", read: func(n *nodeLine, v string) fault { n.Topology = v; return fault{} }},
	}
}

func nodeKeyNames() []string { return keyNames(nodeKeys()) }

func readHosts(v string) ([]string, fault) {
	hosts, err := hostlist.Expand(v)
	if err != nil {
		return nil, fault{listError(err), "n[1-4] or n1,n2"}
	}
	return hosts, fault{}
}

// listError says what is wrong with a list, without a suggestion.
func listError(err error) string {
	why, _, _ := strings.Cut(err.Error(), "; write ")
	return why
}

// readNodeLine reads one NodeName line. A DEFAULT line changes the defaults of the lines after it.
func (l *loader) readNodeLine(pairs []pair) {
	head := pairs[0]
	if strings.EqualFold(head.value, "DEFAULT") {
		l.nodeDefaults = overlay(l.nodeDefaults, pairs[1:])
		scratch := newNodeLine()
		readKeys(l, l.nodeKeys, pairs[1:], &scratch, keyNode) // to report what is wrong even if no line follows
		return
	}
	names, f := readHosts(head.value)
	switch {
	case f.bad():
		l.probs.errorf(head.at, "write NodeName="+f.want, "NodeName: %s", f.why)
		return
	case len(names) == 0:
		l.probs.errorf(head.at, "write NodeName=n[1-4]", "NodeName names no node")
		return
	case slices.Contains(names, "ALL"):
		l.probs.errorf(head.at, "choose another name", "NodeName=ALL is reserved for partitions")
		return
	case len(l.cfg.Nodes)+len(names) > MaxNodes:
		l.probs.errorf(head.at, "", "more than %d nodes", MaxNodes)
		return
	}
	n := newNodeLine()
	n.File, n.Line = head.at.file, head.at.line
	given := readKeys(l, l.nodeKeys, overlay(l.nodeDefaults, pairs[1:]), &n, keyNode)
	l.resolveHardware(&n, given, head)
	for key, why := range map[string]string{"BcastAddr": "files are sent to nodes at NodeAddr",
		"Port": "gnoded listens on SlurmdPort, and the controllers learn where"} {
		if given[key] {
			l.probs.notef(placeOf(pairs, key, head), "remove it", "%s on a NodeName line has no effect: %s", key, why)
		}
	}
	for _, list := range []struct {
		key  string
		size int
	}{{"NodeHostname", len(n.hostnames)}, {"NodeAddr", len(n.addrs)}, {"BcastAddr", len(n.bcasts)},
		{"Port", len(n.ports)}} {
		if list.size > 1 && list.size != len(names) {
			l.probs.errorf(head.at, "name as many as nodes, or one for all", "NodeName=%s: %d nodes but %d of %s", head.value,
				len(names), list.size, list.key)
			return
		}
	}
	l.checkGresConf(&n, placeOf(pairs, "GresConf", head))
	for i, name := range names {
		if !l.validNode(name, head.at) {
			continue
		}
		d := n.NodeDef
		d.Name = name
		d.Hostname = pick(n.hostnames, i, name)
		d.Addr = pick(n.addrs, i, d.Hostname)
		d.BcastAddr = pick(n.bcasts, i, "")
		if len(n.ports) > 0 {
			d.Port = int64(n.ports[min(i, len(n.ports)-1)])
		}
		l.nodeIndex[name] = len(l.cfg.Nodes)
		l.cfg.Nodes = append(l.cfg.Nodes, d)
	}
}

func newNodeLine() nodeLine {
	return nodeLine{
		NodeDef: NodeDef{Boards: 1, Sockets: 1, CoresPerSocket: 1, ThreadsPerCore: 1, CPUs: 1, RealMemoryMiB: 1, Weight: 1,
			State: "UNKNOWN"},
	}
}

// maxNameBytes is the length of a host name.
const maxNameBytes = 253

func (l *loader) validNode(name string, at pos) bool {
	if i, twice := l.nodeIndex[name]; twice {
		first := l.cfg.Nodes[i]
		l.probs.errorf(at, "remove it from one of the lines", "node %s is defined twice, first in line %d of %s", name,
			first.Line, first.File)
		return false
	}
	if len(name) > maxNameBytes || strings.Trim(name, nameLetters) != "" {
		l.probs.errorf(at, "use letters, digits, - . and _", "%s is not a valid node name", shown(name))
		return false
	}
	return true
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

// pick gives the i-th element of a list, the only element of a list of one, or instead.
func pick(list []string, i int, instead string) string {
	switch len(list) {
	case 0:
		return instead
	case 1:
		return list[0]
	}
	return list[i]
}

// resolveHardware fills in values that follow from others, and compares them.
func (l *loader) resolveHardware(n *nodeLine, given map[string]bool, head pair) {
	sockets := given["Sockets"] || given["SocketsPerBoard"]
	if sockets {
		n.Sockets = times(n.Sockets, n.Boards) // Sockets beside Boards means those of one board
	}
	cores := times(n.CoresPerSocket, n.ThreadsPerCore)
	switch {
	case !given["CPUs"] && !given["Procs"]:
		n.CPUs = times(n.Sockets, cores)
	case !sockets:
		if n.CPUs%cores == 0 && n.CPUs/cores >= n.Boards {
			n.Sockets = n.CPUs / cores
		}
	}
	threads, all := times(n.Sockets, cores), times(n.Sockets, n.CoresPerSocket)
	if n.CPUs != threads && n.CPUs != all { // CPUs may be the number of cores, if threads are not used
		l.probs.warnf(head.at, fmt.Sprintf("write CPUs=%d, or correct the others", threads),
			"NodeName=%s: CPUs=%d is not Sockets*CoresPerSocket*ThreadsPerCore (%d*%d*%d=%d); %d is taken",
			head.value, n.CPUs, n.Sockets, n.CoresPerSocket, n.ThreadsPerCore, threads, threads)
		n.CPUs = threads
	}
	if n.CPUs > 65533 {
		l.probs.errorf(head.at, "", "NodeName=%s has more than 65533 CPUs", head.value)
	}
	if n.CoreSpecCount > 0 && len(n.CPUSpecList) > 0 {
		l.probs.errorf(head.at, "keep one of them", "NodeName=%s has both CoreSpecCount and CpuSpecList", head.value)
	}
	if n.CoreSpecCount >= all && n.CoreSpecCount > 0 {
		l.probs.errorf(head.at, "", "NodeName=%s: CoreSpecCount=%d leaves none of its %d cores for jobs", head.value,
			n.CoreSpecCount, all)
	}
	for _, cpu := range n.CPUSpecList {
		if int64(cpu) >= n.CPUs {
			l.probs.errorf(head.at, fmt.Sprintf("write numbers from 0 to %d", n.CPUs-1),
				"NodeName=%s: CpuSpecList names CPU %d, and the node has %d", head.value, cpu, n.CPUs)
			break
		}
	}
	if len(n.CPUSpecList) > 0 && int64(n.kept().Count()) >= n.CPUs {
		l.probs.errorf(head.at, "", "NodeName=%s: CpuSpecList leaves none of its %d CPUs for jobs", head.value, n.CPUs)
	}
	if n.MemSpecLimitMiB >= n.RealMemoryMiB && n.MemSpecLimitMiB > 0 {
		l.probs.errorf(head.at, "", "NodeName=%s: MemSpecLimit=%d leaves none of its RealMemory=%d for jobs", head.value,
			n.MemSpecLimitMiB, n.RealMemoryMiB)
	}
}

// times multiplies two positive numbers; a product too large to make sense is
// math.MaxInt32.
func times(a, b int64) int64 { return min(a*b, math.MaxInt32) }

// downLine is a DownNodes line.
type downLine struct{ state, reason string }

var downKeys = []lineKey[downLine]{
	{name: "State", read: func(d *downLine, v string) (f fault) {
		d.state, f = readWord(v, []string{"DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"})
		return f
	}},
	{name: "Reason", read: func(d *downLine, v string) fault { d.reason = v; return fault{} }},
}

// readDownLine sets the state of nodes that other lines define.
func (l *loader) readDownLine(pairs []pair) {
	d := downLine{state: "DOWN"}
	readKeys(l, downKeys, pairs[1:], &d, keyDown)
	for _, name := range l.knownNodes(pairs[0], keyDown) {
		n := &l.cfg.Nodes[l.nodeIndex[name]]
		n.State, n.Reason = d.state, d.reason
	}
}

// knownNodes expands a list of nodes and reports those that aren't defined.
func (l *loader) knownNodes(p pair, what string) []string {
	if strings.EqualFold(p.value, "ALL") {
		all := make([]string, len(l.cfg.Nodes))
		for i := range l.cfg.Nodes {
			all[i] = l.cfg.Nodes[i].Name
		}
		return all
	}
	names, f := readHosts(p.value)
	if f.bad() {
		l.probs.errorf(p.at, "write "+p.key+"="+f.want, "%s: %s", what, f.why)
		return nil
	}
	return l.dropUnknown(names, p.at, what)
}

func (l *loader) dropUnknown(names []string, at pos, what string) []string {
	var unknown []string
	known := slices.DeleteFunc(names, func(name string) bool {
		_, ok := l.nodeIndex[name]
		if !ok {
			unknown = append(unknown, name)
		}
		return !ok
	})
	if len(unknown) > 0 {
		hint := "add a NodeName line for it"
		if near := nearest(unknown[0], l.nodeNames()); len(unknown) == 1 && len(unknown[0]) > 3 && near != "" &&
			letters(near) != letters(unknown[0]) {
			hint = "did you mean " + near + "?"
		}
		l.probs.errorf(at, hint, "%s names %s, which no NodeName line defines", what, shownHosts(unknown))
	}
	return known
}

// letters removes the digits of a name: n08 instead of n09 is no misspelling.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

func (l *loader) nodeNames() []string {
	const enough = 1000 // a suggestion from the first thousand will do
	out := make([]string, 0, min(len(l.cfg.Nodes), enough))
	for _, n := range l.cfg.Nodes[:min(len(l.cfg.Nodes), enough)] {
		out = append(out, n.Name)
	}
	return out
}

func shownHosts(names []string) string {
	s := hostlist.Compress(names)
	if len(s) > maxShown {
		s = s[:maxShown] + "…"
	}
	return s
}
