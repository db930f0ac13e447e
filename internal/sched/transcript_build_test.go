package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Parsing of the transcripts' commands, and the lines that show their results.

func (c *cluster) nodes(w words) {
	for _, name := range strings.Split(w.plain[0], ",") {
		d := &model.NodeDef{Name: name, CPUs: int32(w.num("cpus")), ThreadsPerCore: 1, MemMiB: 1000 * w.num("cpus"),
			Weight: int32(w.num("weight")),
			TmpMiB: w.num("tmp"), Features: w.list("feat")}
		if w.has("threads") {
			d.ThreadsPerCore = int32(w.num("threads"))
		}
		if w.has("mem") {
			d.MemMiB = w.num("mem")
		}
		if w.has("sockets") {
			d.Sockets = int32(w.num("sockets"))
			d.CoresPerSocket = d.CPUs / d.Sockets / d.ThreadsPerCore
		}
		first := int32(0)
		for _, g := range w.list("gpu") {
			typ, count, _ := strings.Cut(g, ":")
			n, err := strconv.Atoi(count)
			if err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
			d.Gres = append(d.Gres, model.GresDef{Name: "gpu", Type: typ, First: first, Count: int32(n)})
			first += int32(n)
		}
		for _, g := range w.list("more") {
			name, count, _ := strings.Cut(g, ":")
			kind, count, _ := strings.Cut(count, "*")
			n, err := strconv.Atoi(count)
			if err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
			d.Gres = append(d.Gres, model.GresDef{Name: name, Count: int32(n), NoConsume: kind == "loose",
				Explicit: kind == "explicit"})
		}
		for _, name := range [...]string{"shard", "mps"} {
			if each := int32(w.num(name)); each > 0 {
				divide(d, name, each, w.has("onesharing"))
			}
		}
		for i := range d.Gres {
			d.Gres[i].MemMiB = w.num("gpumem")
		}
		c.connect(d, w)
		c.cfg.Nodes = append(c.cfg.Nodes, d)
	}
}

func (c *cluster) part(w words) {
	p := &model.Partition{Name: w.plain[0], Nodes: w.list("nodes"), PriorityTier: int32(w.num("tier")),
		MaxTimeS: w.num("maxtime"),
		MinNodes: int32(w.num("minnodes")), MaxNodes: int32(w.num("maxnodes")), MaxCPUsPerNode: int32(w.num("maxcpus")),
		DefMemPerCPU: w.num("defmempercpu"), DefMemPerNode: w.num("defmempernode"), MaxMemPerCPU: w.num("maxmempercpu"),
		MaxMemPerNode: w.num("maxmempernode"), ExclusiveUser: w.has("private"), LLN: w.has("lln"), ReqResv: w.has("reqresv"),
		AllowAccounts: w.list("accounts"), DenyAccounts: w.list("notaccounts"), AllowQOS: w.list("qoslist"),
		DenyQOS: w.list("notqos"), Topology: w.named["topology"]}
	if w.has("force") {
		p.ShareMax, p.ShareForced = int32(w.num("force")), true
	}
	if w.has("yes") {
		p.ShareMax = int32(w.num("yes"))
	}
	p.MaxCPUsPerSocket = int32(w.num("maxsocket"))
	p.CPUUnit = map[string]model.CPUUnit{"core": model.CPUUnitCore, "socket": model.CPUUnitSocket}[w.named["unit"]]
	p.PreemptMode, p.GraceTimeS = w.named["mode"], w.num("grace")
	if w.has("exclusive") {
		p.OverSubscribe = "EXCLUSIVE"
	}
	p.State = map[string]model.PartState{"down": model.PartDown, "drain": model.PartDrain,
		"inactive": model.PartInactive}[w.named["state"]]
	p.DefTimeS, p.QOS = w.num("deftime"), w.named["qos"]
	p.Headroom = int32(100 * w.num("reserve"))
	p.Order = model.QueuePolicy(max(0, slices.Index(model.QueuePolicies(), w.named["order"])))
	if !w.has("nodes") {
		for _, n := range c.cfg.Nodes {
			p.Nodes = append(p.Nodes, n.Name)
		}
	}
	c.cfg.Partitions = append(slices.DeleteFunc(slices.Clone(c.cfg.Partitions),
		func(q *model.Partition) bool { return q.Name == p.Name }), p)
}

func (c *cluster) spec(w words) *model.Spec {
	sp := &model.Spec{UID: uint32(w.num("uid")), User: "u", Account: "a", Partitions: []string{"p"},
		Tasks:        int32(w.num("n")),
		TasksPerNode: int32(w.num("tpn")), CPUsPerTask: int32(w.num("c")), MinCPUs: int32(w.num("mincpus")),
		MemPerCPU: w.num("mempercpu"),
		Features:  w.named["C"], ReqNodes: w.list("w"), ExcNodes: w.list("x"), Exclusive: w.has("alone"),
		Overcommit: w.has("over"),
		LimitS:     w.num("t"), TmpMiB: w.num("tmp"), DepText: w.named["dep"],
		Reservation: w.named["resv"]}
	if w.has("user") {
		sp.User = w.named["user"]
	}
	for _, text := range w.list("dep") {
		kind, id, _ := strings.Cut(text, ":")
		k, ok := model.ParseDepKind(kind)
		if !ok {
			c.t.Fatalf("%s: %s is no dependency", c.at, text)
		}
		sp.Deps = append(sp.Deps, model.Dep{Kind: k, Job: c.id(id), Task: model.NoTask})
	}
	if w.has("begin") {
		sp.Begin = epoch.Add(w.num("begin"))
	}
	if w.has("part") {
		sp.Partitions = w.list("part")
	}
	if w.has("user") {
		sp.User = w.named["user"]
	}
	if w.has("account") {
		sp.Account = w.named["account"]
	}
	if w.has("deadline") {
		sp.Deadline = epoch.Add(w.num("deadline"))
	}
	sp.QOS, sp.Requeue = w.named["qos"], w.has("requeue")
	if w.has("notice") {
		sp.Warning = &model.Warning{Signal: 10, BeforeS: w.num("notice"), Yields: true}
	}
	if w.has("N") {
		lo, hi, isRange := strings.Cut(w.named["N"], "-")
		if !isRange {
			hi = lo
		}
		for _, x := range []struct {
			text string
			to   *int32
		}{{lo, &sp.MinNodes}, {hi, &sp.MaxNodes}} {
			n, err := strconv.Atoi(x.text)
			if err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
			*x.to = int32(n)
		}
	}
	if w.named["mem"] == "all" {
		sp.MemPerNode = model.WholeMem
	} else {
		sp.MemPerNode = w.num("mem")
	}
	for _, g := range w.list("gres") {
		f := strings.Split(g, ":")
		n, err := strconv.Atoi(f[len(f)-1])
		if err != nil {
			c.t.Fatalf("%s: %v", c.at, err)
		}
		rq := model.GresReq{Name: f[0], Count: int32(n)}
		if len(f) == 3 {
			rq.Type = f[1]
		}
		sp.Gres = append(sp.Gres, rq)
	}
	if w.has("G") {
		sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Count: int32(w.num("G")), Per: model.PerJob})
	}
	if w.has("half") {
		sp.Gres = append(sp.Gres, model.GresReq{Name: "shard", Count: 1, Milli: int32(w.num("half"))})
	}
	if w.has("gpt") {
		sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Count: int32(w.num("gpt")), Per: model.PerTask})
	}
	sp.More = c.needs(w)
	if w.has("expedite") {
		if sp.More == nil {
			sp.More = &model.Needs{}
		}
		sp.More.Expedite, sp.Requeue = true, true
	}
	if w.has("elastic") {
		if sp.More == nil {
			sp.More = &model.Needs{}
		}
		sp.More.Elastic = c.elastic(sp, w)
	}
	if sp.More != nil {
		for _, g := range sp.More.GPUsPerSocket {
			g.Count *= max(1, sp.More.Sockets)
			sp.Gres = append(sp.Gres, g)
		}
	}
	if m := sp.More; m != nil && !m.GPUIndex.Empty() && len(sp.Gres) == 0 {
		sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Count: int32(m.GPUIndex.Count())})
	}
	if w.has("array") {
		var err error
		if sp.Tasklist, sp.Throttle, err = model.ParseTaskSet(w.named["array"], 1<<20); err != nil {
			c.t.Fatalf("%s: %v", c.at, err)
		}
	}
	return sp
}

// elastic reads elastic=MIN-MAX.
func (c *cluster) elastic(sp *model.Spec, w words) *model.Elastic {
	if !w.has("elastic") {
		return nil
	}
	var el model.Elastic
	if _, err := fmt.Sscanf(w.named["elastic"], "%d-%d", &sp.MinNodes, &el.Max); err != nil {
		c.t.Fatalf("%s: %v", c.at, err)
	}
	sp.MaxNodes, el.GraceS = sp.MinNodes, model.NotSet
	if w.has("grace") {
		el.GraceS = w.num("grace")
	}
	return &el
}

// sayElastic shows who grows, and who is asked for nodes.
func sayElastic(say func(string, ...any), plan *model.Plan) {
	for _, a := range plan.Ask {
		say("ask   %d for %s for %d", a.Job, strings.Join(a.Nodes, ","), a.For)
	}
	for _, g := range plan.Grow {
		say("grow  %d by %s", g.Job, allocLine(&model.Alloc{Nodes: g.Parts}))
	}
}

func startLine(s *model.Start) string {
	name := fmt.Sprint(s.Job)
	if s.Task != model.NoTask {
		name += fmt.Sprintf("_%d", s.Task)
	}
	text := fmt.Sprintf("%s in %s on %s", name, s.Partition, allocLine(s.Alloc))
	if s.LimitS != model.Unlimited {
		text += fmt.Sprintf(" for %d s", s.LimitS)
	}
	if s.Resv != "" {
		text += ", in reservation " + s.Resv
	}
	return text
}

func allocLine(a *model.Alloc) string {
	var out []string
	for _, n := range a.Nodes {
		text := fmt.Sprintf("%s(%d tasks, cpus %s, %d MiB", n.Node, n.Tasks, n.CPUs, n.MemMiB)
		for _, g := range n.Gres {
			text += ", " + g.Name
			if g.Type != "" {
				text += ":" + g.Type
			}
			text += " " + g.Index.String()
			if g.Share != nil {
				text += fmt.Sprintf(" of GPU %d", g.Share.GPU)
				if g.Share.MemMiB > 0 {
					text += fmt.Sprintf(" with %d MiB", g.Share.MemMiB)
				}
			}
		}
		out = append(out, text+")")
	}
	return strings.Join(out, " ")
}

// undivided checks that no segment of a plan's jobs is in several base blocks, unless it is larger than these.
func (c *cluster) undivided(v *state.View, plan model.Plan) {
	c.t.Helper()
	for i := range plan.Starts {
		st := &plan.Starts[i]
		cfg := v.Config()
		t, segment := cfg.Networks()[cfg.NetworkOf(v.Partition(st.Partition))].Blocks, 0
		if m := v.Job(st.Job).Spec.More; m != nil {
			segment = int(m.Segment)
		}
		if t == nil || segment == 0 || segment > int(t.Sizes[0]) || len(st.Alloc.Nodes) <= segment {
			continue
		}
		for _, b := range t.List {
			n := 0
			for k := range st.Alloc.Nodes {
				if slices.Contains(b.Nodes, st.Alloc.Nodes[k].Node) {
					n++
				}
			}
			if n%segment != 0 {
				c.t.Fatalf("%s: job %d has %d nodes in block %s, with segments of %d", c.at, st.Job, n, b.Name, segment)
			}
		}
	}
}

// network adds switches and blocks to the last topology, or to the only one, that of topology.conf.
func (c *cluster) network(verb string, w words) {
	switches, blocks := &c.cfg.Switches, &c.cfg.Blocks
	if k := len(c.cfg.Topologies); k > 0 {
		switches, blocks = &c.cfg.Topologies[k-1].Switches, &c.cfg.Topologies[k-1].Blocks
	}
	switch {
	case verb == "switch":
		*switches = append(*switches, &model.Switch{Name: w.plain[0], Nodes: w.list("nodes"), Children: w.list("switches"),
			Level: int32(w.num("level"))})
	case verb == "block":
		(*blocks).List = append((*blocks).List, &model.Block{Name: w.plain[0], Nodes: w.list("nodes")})
	default:
		*blocks = &model.Blocks{}
		for _, text := range w.list("sizes") {
			n, _ := strconv.Atoi(text)
			(*blocks).Sizes = append((*blocks).Sizes, int32(n))
		}
	}
}
