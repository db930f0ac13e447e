package conf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// check compares settings in different places.
func (l *loader) check() {
	c := l.cfg
	if c.ClusterName == "" {
		c.ClusterName = "cluster"
		l.probs.warnf(pos{file: c.Path}, "write ClusterName=mycluster", "no ClusterName; the name is %q", c.ClusterName)
	}
	if c.Select.Type == "select/linear" {
		c.Select.Unit = UnitNode
		if _, given := l.seen["SelectTypeParameters"]; !given { // as in Slurm memory is given out with CR_Memory only
			c.Select.Memory, c.Select.Params = false, []string{"NONE"}
		}
	}
	if hasFold(c.Select.Params, "CR_MEMORY") && c.Select.Unit == UnitCore {
		l.probs.warnf(l.where("SelectTypeParameters"), "write SelectTypeParameters=CR_Core_Memory",
			"SelectTypeParameters=CR_Memory: CPUs are given out as well, as with CR_Core_Memory")
	}
	if limits, given := l.seen["PropagateResourceLimits"]; given {
		if except, too := l.seen["PropagateResourceLimitsExcept"]; too {
			l.probs.errorf(except, "keep one of the lines",
				"PropagateResourceLimitsExcept and PropagateResourceLimits (line %d of %s) exclude each other", limits.line,
				limits.file)
		}
	}
	if _, said := l.seen["NodeHeartbeatInterval"]; !said { // files of Slurm can't say it
		c.NodeHeartbeatIntervalS = min(c.NodeHeartbeatIntervalS, max(c.SlurmdTimeoutS/3, 1))
	}
	if c.NodeHeartbeatIntervalS >= c.SlurmdTimeoutS {
		l.probs.errorf(l.where("NodeHeartbeatInterval", "SlurmdTimeout"),
			fmt.Sprintf("write NodeHeartbeatInterval=%d", max(c.SlurmdTimeoutS/3, 1)),
			"NodeHeartbeatInterval=%d is not less than SlurmdTimeout=%d: every node would be declared DOWN",
			c.NodeHeartbeatIntervalS, c.SlurmdTimeoutS)
	}
	l.checkElection()
	if c.MaxJobID < c.FirstJobID {
		l.probs.errorf(l.where("MaxJobId", "FirstJobId"), "", "MaxJobId=%d is below FirstJobId=%d", c.MaxJobID, c.FirstJobID)
	}
	l.checkMemPair(c.Mem, l.where("DefMemPerNode"), l.where("MaxMemPerNode"), "")
	l.spellAccounts()
	l.checkAccounts()
	l.checkPreempt()
	l.checkScheduler()
	l.checkSuspends()
	l.checkExclusives()
	l.checkPartitions()
	l.checkNodes()
	l.checkPower()
	l.checkGres()
}

// spellAccounts makes accounts' names lower case, and unique.
func (l *loader) spellAccounts() {
	spell := func(list []string) []string {
		if list == nil {
			return nil
		}
		out := make([]string, 0, len(list))
		for _, name := range list {
			if name != "ALL" {
				name = model.AccountName(name)
			}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		return out
	}
	l.cfg.Accounts, l.cfg.DefaultAccount = spell(l.cfg.Accounts), model.AccountName(l.cfg.DefaultAccount)
	for i := range l.cfg.Partitions {
		p := &l.cfg.Partitions[i]
		p.AllowAccounts, p.DenyAccounts = spell(p.AllowAccounts), spell(p.DenyAccounts)
	}
}

func (l *loader) checkAccounts() {
	c := l.cfg
	c.TrackWCKey = c.TrackWCKey || c.Enforce.WCKeys // as in Slurm
	if c.DefaultAccount != "" && len(c.Accounts) > 0 && !slices.Contains(c.Accounts, c.DefaultAccount) {
		l.probs.errorf(l.where("DefaultAccount"), "add it to Accounts", "DefaultAccount=%s is not in Accounts",
			c.DefaultAccount)
	}
	if c.Enforce.Associations && c.DbdAddr == "" && len(c.Accounts) == 0 {
		l.probs.errorf(l.where("AccountingStorageEnforce"), "write AccountingStorageHost=…, or Accounts=…",
			"AccountingStorageEnforce=%s needs a list of accounts", c.Enforce)
	}
	if len(c.Accounts) == 0 {
		return
	}
	for i, p := range c.Partitions {
		for _, a := range slices.Concat(p.AllowAccounts, p.DenyAccounts) {
			if !slices.Contains(c.Accounts, a) {
				l.probs.warnf(l.partLines[i].at, "add it to Accounts, or remove it",
					"partition %s names account %s, which is not in Accounts", p.Name, a)
			}
		}
	}
}

func (l *loader) checkPartitions() {
	c := l.cfg
	if len(c.Partitions) == 0 {
		l.probs.errorf(pos{file: c.Path}, "write PartitionName=main Nodes=ALL Default=YES",
			"no PartitionName: no job can be submitted")
		return
	}
	def := ""
	used := map[string]bool{}
	for _, p := range c.Partitions {
		at := pos{p.File, p.Line}
		if p.Default && def != "" {
			l.probs.errorf(at, "keep one Default=YES", "partitions %s and %s are both the default", def, p.Name)
		} else if p.Default {
			def = p.Name
		}
		if len(p.Nodes) == 0 && p.NodesExpr == "" {
			l.probs.warnf(at, "write Nodes=…", "partition %s has no nodes; its jobs wait", p.Name)
		}
		if text, hint := p.unitFault(c.Select.Unit, c.Select.Memory); text != "" {
			l.probs.warnf(at, hint, "partition %s: %s", p.Name, text)
		}
		if c.Select.Unit == UnitNode && (p.MaxCPUsPerNode > 0 || p.MaxCPUsPerSocket > 0) {
			l.probs.notef(at, "leave them out", "partition %s: MaxCPUsPerNode and MaxCPUsPerSocket have no effect with "+
				"SelectType=select/linear, which gives out whole nodes", p.Name)
		}
		for _, n := range p.Nodes {
			used[n] = true
		}
	}
	if def == "" {
		l.probs.warnf(pos{c.Partitions[0].File, c.Partitions[0].Line}, "write Default=YES on one of the PartitionName lines",
			"no partition is the default: jobs must name one")
	}
	var idle []string
	for _, n := range c.Nodes {
		if !used[n.Name] {
			idle = append(idle, n.Name)
		}
	}
	if len(idle) > 0 {
		n, _ := c.Node(idle[0])
		l.probs.warnf(pos{n.File, n.Line}, "add it to the Nodes of a partition",
			"%s is in no partition: no job will run there", shownHosts(idle))
	}
}

// nodeLines groups the nodes by the line that defines them.
func (l *loader) nodeLines() (order []pos, nodes map[pos][]*NodeDef) {
	nodes = map[pos][]*NodeDef{}
	for i := range l.cfg.Nodes {
		n := &l.cfg.Nodes[i]
		at := pos{n.File, n.Line}
		if nodes[at] == nil {
			order = append(order, at)
		}
		nodes[at] = append(nodes[at], n)
	}
	return order, nodes
}

func (l *loader) checkNodes() {
	if len(l.cfg.Nodes) == 0 {
		l.probs.warnf(pos{file: l.cfg.Path}, "write NodeName=n[1-4] CPUs=… RealMemory=…",
			"no NodeName: the cluster has no nodes")
	}
	order, lines := l.nodeLines()
	for _, at := range order {
		n := lines[at][0]
		if n.State == model.CloudText && !l.cfg.Power.On() {
			l.probs.warnf(at, "write ResumeProgram and SuspendProgram",
				"State=CLOUD: no program starts and stops the nodes; it is read as UNKNOWN")
		}
		if n.State == "FAIL" || n.State == "FAILING" {
			l.probs.notef(at, "write State=DRAIN, or State=DOWN where nothing may go on there",
				"State=%s is read as DRAIN: the node gets no new jobs, running jobs go on", n.State)
		}
		for i, g := range n.Gres {
			if g.Name == model.GPUName && !model.IsRemote(g.Name, g.Type) &&
				slices.ContainsFunc(n.Gres[:i], func(o GresCount) bool { return model.IsRemote(o.Name, o.Type) }) {
				l.probs.errorf(at, "write "+g.String()+" in front of gpu:"+model.RemoteType,
					"Gres: remote GPUs are numbered after those that are in the node")
			}
			if !slices.Contains(l.cfg.GresTypes, g.Name) {
				l.missingGresType(at, g.Name)
			}
			switch {
			case g.NoConsume && (g.Name == model.GPUName || isShared(g.Name)):
				l.probs.errorf(at, "leave no_consume out",
					"Gres=%s: no_consume is for properties such as a bandwidth; jobs hold the GPUs that they use", g)
			case g.NoConsume && g.Count > math.MaxInt32:
				l.probs.notef(at, "", "Gres=%s: counts end at %d; jobs can't ask for more", g, math.MaxInt32)
			case !g.NoConsume && g.Count > maxGresUnits:
				l.probs.errorf(at, fmt.Sprintf("count it in larger units, %d at most; or write no_consume in front of the count "+
					"if jobs don't use it up", maxGresUnits),
					"Gres=%s: each unit is given to one job, and a node can have %d of a resource", g, maxGresUnits)
			}
			if g.Name == model.GPUName && !l.cfg.Cgroup.ConstrainDevices {
				l.probs.notef(at, "write ConstrainDevices=yes in "+CgroupFile,
					"nodes have GPUs, but ConstrainDevices is off: a job could use those of another")
			}
		}
	}
}

func (l *loader) missingGresType(at pos, name string) {
	hint := "write GresTypes=" + strings.Join(append(slices.Clone(l.cfg.GresTypes), name), ",")
	if near := nearest(name, l.cfg.GresTypes); near != "" {
		hint = "did you mean " + near + "?"
	}
	l.probs.errorf(at, hint, "resource %s is not in GresTypes", shown(name))
}

// have is gres.conf's part of one name and type for a node.
type have struct {
	name, typ string
	count     int64
	at        pos
}

// mismatch is a difference between gres.conf and the node lines, for one or
// more nodes of one NodeName line.
type mismatch struct {
	at   pos // the node line, or that of gres.conf
	sev  Severity
	text string
	hint string
}

// checkGres compares gres.conf with the nodes.
func (l *loader) checkGres() {
	wrong := l.probs.hasErrors(GresFile)
	perNode := l.gresOfNodes()
	if wrong {
		return // further errors would only follow from these
	}
	found := map[mismatch][]string{}
	for i := range l.cfg.Nodes {
		n := &l.cfg.Nodes[i]
		for _, m := range append(l.compareGres(n, perNode[n.Name]), l.checkShares(n)...) {
			found[m] = append(found[m], n.Name)
		}
	}
	order := make([]mismatch, 0, len(found))
	for m := range found {
		order = append(order, m)
	}
	slices.SortFunc(order, func(a, b mismatch) int { // for a stable text; place decides in the end
		return cmp.Or(strings.Compare(a.at.file, b.at.file), cmp.Compare(a.at.line, b.at.line),
			strings.Compare(a.text, b.text))
	})
	for _, m := range order {
		l.probs.add(m.at, m.sev, m.hint, "%s: %s", shownHosts(found[m]), m.text)
	}
}

// gresOfNodes adds up gres.conf for each node, and checks each record against
// the nodes that it is for.
func (l *loader) gresOfNodes() map[string][]have {
	perNode := map[string][]have{}
	type owner struct{ node, name, device string }
	owners := map[owner]pos{}
	for i := range l.cfg.Gres.Records {
		r := &l.cfg.Gres.Records[i]
		at := pos{r.File, r.Line}
		var names []string
		if r.NodeExpr == "" {
			names = l.knownNodes(pair{"NodeName", "ALL", at}, "")
		} else if expanded, err := hostlist.Expand(r.NodeExpr); err == nil {
			names = l.dropUnknown(expanded, at, "gres.conf")
		}
		if r.Name == "" {
			continue
		}
		if !slices.Contains(l.cfg.GresTypes, r.Name) {
			l.missingGresType(at, r.Name)
			continue
		}
		if model.IsRemote(r.Name, r.Type) && len(r.Endpoints) == 0 && l.cfg.GresHelper == "" {
			l.probs.errorf(at, "write Endpoint=host:port, or GresHelper= in "+MainFile,
				"remote GPUs without Endpoint: jobs could not find them")
		}
		l.checkCores(r, names, at)
		devices := make([]string, 0, len(r.Files)+1) // as they stand in the line
		for _, path := range r.Files {
			devices = append(devices, "File="+path)
		}
		if r.UniqueID != "" {
			devices = append(devices, "UniqueId="+r.UniqueID)
		}
	devices:
		for _, device := range devices {
			for _, name := range names {
				o := owner{name, r.Name, device}
				if before, ok := owners[o]; ok {
					l.probs.errorf(at, "name each device once", "%s already belongs to %s in line %d", device, r.Name, before.line)
					break devices
				}
				owners[o] = at
			}
		}
		for _, name := range names {
			list := perNode[name]
			if j := slices.IndexFunc(list, func(h have) bool { return h.name == r.Name && h.typ == r.Type }); j >= 0 {
				list[j].count += r.Count
			} else {
				perNode[name] = append(list, have{r.Name, r.Type, r.Count, at})
			}
		}
	}
	for i := range l.cfg.Gres.Records {
		l.checkLinks(&l.cfg.Gres.Records[i], perNode)
	}
	return perNode
}

// checkCores checks that the cores of a record exist on its nodes.
func (l *loader) checkCores(r *GresRecord, names []string, at pos) {
	if len(r.Cores) == 0 {
		return
	}
	last := int64(r.Cores[len(r.Cores)-1])
	for _, name := range names {
		n := &l.cfg.Nodes[l.nodeIndex[name]]
		if !slices.ContainsFunc(n.Gres, func(g GresCount) bool { return g.Name == r.Name }) {
			continue
		}
		if cores := n.Sockets * n.CoresPerSocket; last >= cores {
			l.probs.errorf(at, fmt.Sprintf("write cores from 0 to %d", cores-1), "Cores=%s: node %s has %d cores",
				hostlist.FormatIndexes(r.Cores), name, cores)
			return
		}
	}
}

func (l *loader) checkLinks(r *GresRecord, perNode map[string][]have) {
	if r.Links.Peers == nil && r.Links.Counts == nil {
		return
	}
	for i := range l.cfg.Nodes {
		name := l.cfg.Nodes[i].Name
		if !r.Applies(name) {
			continue
		}
		units := int64(0)
		for _, h := range perNode[name] {
			if h.name == r.Name {
				units += h.count
			}
		}
		wanted := int64(0)
		for _, g := range l.cfg.Nodes[i].Gres {
			if g.Name == r.Name {
				wanted += g.Count
			}
		}
		at := pos{r.File, r.Line}
		if len(r.Links.Peers) > 0 && int64(slices.Max(r.Links.Peers)) >= units {
			l.probs.errorf(at, fmt.Sprintf("write indexes from 0 to %d", units-1), "Links names device %d, but node %s has %d",
				slices.Max(r.Links.Peers), name, units)
		} else if n := int64(len(r.Links.Counts)); n > 0 && n != units && n != wanted {
			// lines may be of some of them, where others are detected
			l.probs.errorf(at, "write one number per device, -1 for the device itself",
				"Links has %d numbers, but node %s has %d devices", n, name, units)
		}
		return // the lines of a file are alike for all nodes: one is enough
	}
}

// compareGres compares one node's Gres with what gres.conf gives it.
func (l *loader) compareGres(n *NodeDef, given []have) []mismatch {
	var out []mismatch
	line := pos{n.File, n.Line}
	names := map[string]bool{}
	for _, g := range n.Gres {
		names[g.Name] = true
		remote := model.IsRemote(g.Name, g.Type)
		total, typed, untyped := int64(0), int64(0), false
		for _, h := range given {
			if h.name != g.Name || model.IsRemote(h.name, h.typ) != remote {
				continue
			}
			total += h.count
			untyped = untyped || h.typ == ""
			if h.typ == g.Type || remote {
				typed += h.count
			}
		}
		if total == 0 && !remote {
			continue // detected, or counted only
		}
		count := typed
		if !remote && (g.Type == "" || untyped) { // types can't be told apart
			count = total
			g.Count = 0
			for _, o := range n.Gres {
				if o.Name == g.Name && !model.IsRemote(o.Name, o.Type) {
					g.Count += o.Count
				}
			}
		}
		if count < g.Count {
			out = append(out, mismatch{line, Error, fmt.Sprintf("Gres=%s, but %s gives only %d", g, GresFile, count),
				fmt.Sprintf("write :%d, or add to %s", count, GresFile)})
		} else if count > g.Count {
			out = append(out, mismatch{line, Warning,
				fmt.Sprintf("Gres=%s, but %s gives %d; the rest isn't used", g, GresFile, count),
				fmt.Sprintf("write :%d, or remove from %s", count, GresFile)})
		}
	}
	for name := range names {
		if !slices.Contains(l.cfg.GresTypes, name) {
			return out // a misspelt name: reported already
		}
	}
	for _, h := range given {
		if names[h.name] {
			continue
		}
		g := GresCount{Name: h.name, Type: h.typ, Count: h.count}
		want := make([]string, 0, len(n.Gres)+1)
		for _, o := range n.Gres {
			want = append(want, o.String())
		}
		out = append(out, mismatch{h.at, Note,
			fmt.Sprintf("%s gives %s, which Gres on the NodeName line doesn't name: no job can ask for it", GresFile, g),
			"write Gres=" + strings.Join(append(want, g.String()), ",") + " there"})
	}
	return out
}
