package info

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// ginfo lists partitions and nodes. Package jobtext has its columns, and puts nodes that look alike in one line.

// The formats of sinfo.
const (
	infoFormat      = "%#P %.5a %.10l %.6D %.6t %N"
	infoSummary     = "%#P %.5a %.10l %.16F %N"
	infoLong        = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
	infoNodes       = "%#9N %.6D %.#P %6t"
	infoNodesLong   = "%#9N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
	infoReasons     = "%20E %9u %19H %N"
	infoReasonsLong = "%20E %12U %19H %6t %N"
	infoSort        = "#P,-t"
	infoNodeSort    = "N"
)

// info is one call of ginfo.
type info struct {
	*env.Env
	nodes    []string
	parts    []string
	none     bool // an empty list was given
	states   []stateWanted
	template string
	columns  string
	layout   byte // the last one given: 'o', 'O', or 0 for neither
	sort     string
	json     string
	every    int32
	verbose  int
	clusters []string
	partCPUs []int64 // of the partitions that are shown, whichever nodes are

	all, dead, responding, exact, noHeader, reasons, resvs, gpus, pools, long, byNode, summary, future bool
}

func Ginfo(e *env.Env) int {
	i := &info{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(i.options(), getopt.HelpOptions(0)...),
		EnvPrefix: "SINFO", Values: values,
		About: "List partitions and nodes. Nodes that look the same in every column that is shown share a line."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	typed := func(name string) bool { return p.Given(name).Source == getopt.FromArgs }
	if i.long && (typed("format") || typed("Format")) {
		return e.Fatal("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")
	}
	if len(operands) > 0 {
		e.Errorf("Unrecognized option: %s; pick lines with --partition, --nodes and --states", operands[0])
		return 1
	}
	e.ListVerbose(p, i.verbose, i.every)
	return e.Repeat(i.every, i.once)
}

func (i *info) options() []getopt.Option {
	const filters, output = "Filters", "Output"
	list := func(dst *[]string) func(string) error {
		return func(v string) error {
			*dst = env.SplitList(v) // the last one given counts, as in sinfo: an alias may have one too
			i.none = i.none || len(*dst) == 0
			return nil
		}
	}
	layout := func(dst *string, letter byte) func(string) error {
		return func(v string) error { *dst, i.layout = v, letter; return nil }
	}
	return []getopt.Option{
		{Name: "partition", Short: 'p', Arg: getopt.Required, Group: filters, Metavar: "partitions", Env: "_PARTITION",
			Help: "only these partitions", Set: list(&i.parts)},
		{Name: "nodes", Short: 'n', Arg: getopt.Required, Group: filters, Metavar: "hosts", Help: "only these nodes",
			Set: func(v string) error {
				names, err := hostlist.Expand(v)
				i.nodes = names
				i.none = i.none || len(i.nodes) == 0
				return err
			}},
		{Name: "states", Short: 't', Arg: getopt.Required, Group: filters, Metavar: "states",
			Help: "only nodes in one of these states: idle, mix, alloc, drain, drained, draining, down, unknown, no_respond, " +
				"maint, resv, comp; with & between, in all", Set: i.setStates},
		{Name: "responding", Short: 'r', Group: filters, Help: "only nodes that respond", Set: getopt.Flag(&i.responding)},
		{Name: "dead", Short: 'd', Group: filters, Help: "only nodes that don't respond", Set: getopt.Flag(&i.dead)},
		{Name: "all", Short: 'a', Group: filters, Env: "_ALL", Help: "hidden partitions too", Set: getopt.Flag(&i.all)},
		{Name: "hide", Group: filters, Help: "no hidden partitions (the default)", Set: getopt.Const(&i.all, false)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Group: filters, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&i.clusters)},

		{Name: "format", Short: 'o', Arg: getopt.Required, Group: output, Slot: "format", Metavar: "format", Env: "_FORMAT",
			Help: "what to print, as in '%P %a %D %t %N'", Set: layout(&i.template, 'o')},
		{Name: "Format", Short: 'O', Arg: getopt.Required, Group: output, Slot: "format", Metavar: "fields",
			Help: "what to print, as in 'NodeList:30,CPUsState,GresUsed'", Set: layout(&i.columns, 'O')},
		{Name: "long", Short: 'l', Group: output, Slot: "format", Help: "more columns", Set: getopt.Flag(&i.long)},
		{Name: "Node", Short: 'N', Group: output, Slot: "format", Help: "a line for each node and partition",
			Set: getopt.Flag(&i.byNode)},
		{Name: "summarize", Short: 's', Group: output, Slot: "format", Help: "a line for each partition",
			Set: getopt.Flag(&i.summary)},
		{Name: "list-reasons", Short: 'R', Group: output, Slot: "format", Help: "why nodes are down or drained",
			Set: getopt.Flag(&i.reasons)},
		{Name: "gpus", Short: 'G', Group: output, Slot: "format", Help: "a line for each GPU: its state, its job, how it is",
			Set: getopt.Flag(&i.gpus)},
		{Name: "pools", Group: output, Slot: "format",
			Help: "what each partition has and what of it is free, and the quotas of accounts there",
			Set:  getopt.Flag(&i.pools)},
		{Name: "reservation", Short: 'T', Group: output, Slot: "format", Help: "a line for each reservation",
			Set: getopt.Flag(&i.resvs)},
		{Name: "exact", Short: 'e', Group: output, Help: "a line for each size of node", Set: getopt.Flag(&i.exact)},
		{Name: "noheader", Short: 'h', Group: output, Help: "print no header", Set: getopt.Flag(&i.noHeader)},
		{Name: "sort", Short: 'S', Arg: getopt.Required, Group: output, Metavar: "keys", Env: "_SORT",
			Help: "sort by these letters of -o, each with - before it for descending; default #P,-t: as " +
				"configured, then by state", Set: getopt.Text(&i.sort)},
		i.JSON(output, "JSON, in Slurm's shape", &i.json),
		i.YAML(output, &i.json),
		{Name: "iterate", Short: 'i', Arg: getopt.Required, Group: output, Metavar: "seconds",
			Help: "print again after this many seconds, until interrupted", Set: getopt.Number(&i.every, 1, 1<<20)},

		{Name: "noconvert", Hidden: true, Note: "sizes are in MiB anyway", Set: env.Ignored},
		{Name: "verbose", Short: 'v', Group: output, Help: "print the options first", Set: getopt.Count(&i.verbose)},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "federation", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "future", Short: 'F', Group: filters, Help: "also nodes of State=FUTURE: they are none yet",
			Set: getopt.Flag(&i.future)},
	}
}

// values completes what only ginfo knows.
func values(option string) (getopt.Values, bool) {
	switch option {
	case "states":
		return getopt.Fields(nodeStateWords()...), true
	case "Format":
		lang := jobtext.NodeLanguage(jobtext.NodeFields())
		return getopt.Fields(lang.Names()...), true
	}
	return getopt.Values{}, false
}

// stateWanted is one word of -t: nodes must be in all of its states.
type stateWanted []string

func (i *info) setStates(v string) error {
	i.states = nil
	for _, w := range env.SplitList(v) {
		var all stateWanted
		for _, s := range strings.Split(w, "&") {
			s = wholeState(strings.ToLower(s))
			if !slices.Contains(nodeStateWords(), strings.TrimPrefix(s, "~")) {
				return &getopt.TextError{Text: "Bad state string: \"" + s + "\"\nvalid states: " +
					strings.Join(nodeStateWords(), ",")}
			}
			all = append(all, s)
		}
		i.states = append(i.states, all)
	}
	i.none = i.none || len(i.states) == 0
	for _, all := range i.states {
		i.future = i.future || slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "fut") })
	}
	return nil
}

// wholeState gives the first state that begins as a word does, as in sinfo; a word that begins none, as it is.
func wholeState(word string) string {
	bare := strings.TrimPrefix(word, "~")
	words := nodeStateWords()
	if bare == "" || slices.Contains(words, bare) {
		return word
	}
	for _, w := range words[1:] { // all is nobody's beginning
		if strings.HasPrefix(w, bare) {
			return word[:len(word)-len(bare)] + w
		}
	}
	return word
}

// nodeStateWords are the states that -t accepts. No node is ever in some of them.
func nodeStateWords() []string {
	return []string{"all", "alloc", "allocated", "mix", "mixed", "idle", "drain", "drained", "drng", "draining", "down",
		"unk", "unknown", "no_respond",
		"maint", "resv", "reserved", "comp", "completing", "blocked", "cloud", "external", "fail", "failing", "fut", "futr",
		"future",
		"inval", "npc", "perfctrs", "planned",
		"power_down", "power_up", "powered_down", "powering_down", "powering_up",
		"reboot", "reboot_issued", "reboot^", "reboot_requested", "reboot@"}
}

// isNodeState reports whether a node is in a state of -t; ~state means any other one. alloc, mix, idle and down don't
// depend on whether the node drains.
func isNodeState(n *proto.NodeInfo, word string) bool {
	if not, is := strings.CutPrefix(word, "~"); is {
		return !isNodeState(n, not)
	}
	base, drain, silent := jobtext.NodeState(n.Node)
	failing := n.Node.Failing && drain
	drain = drain && !failing
	busy := base == jobtext.NodeAllocated || base == jobtext.NodeMixed
	switch word {
	case "all":
		return true
	case "alloc", "allocated":
		return busy
	case "mix", "mixed":
		return base == jobtext.NodeMixed
	case "idle":
		return base == jobtext.NodeIdle
	case "down":
		return base == jobtext.NodeDown
	case "fut", "futr", "future":
		return base == jobtext.NodeFuture
	case "unk", "unknown":
		return base == jobtext.NodeUnknown
	case "drain":
		return drain
	case "drained":
		return drain && !busy
	case "drng", "draining":
		return drain && busy
	case "no_respond":
		return silent
	case "maint":
		return n.Maint
	case "resv", "reserved":
		return n.Resv != ""
	case "comp", "completing":
		return n.Node.Ending > 0
	case "fail":
		return failing
	case "failing":
		return failing && busy
	case "inval":
		return n.Node.Problem != ""
	case "reboot", "reboot_issued", "reboot^":
		return n.Node.Rebooting()
	case "cloud":
		return n.Node.Def.Cloud
	case "external":
		return n.Node.Def.External
	case "power_down", "power_up":
		return strings.Contains(n.Node.PowerFlags(), "+"+strings.ToUpper(word))
	case "powered_down":
		return n.Node.PowerStep() == model.PoweredDown
	case "powering_down":
		return n.Node.PowerStep() == model.PoweringDown
	case "powering_up":
		return n.Node.PowerStep() == model.PoweringUp
	case "reboot_requested", "reboot@":
		return n.Node.Reboot != nil && !n.Node.Rebooting()
	}
	return false
}

// pick reports whether to show a node.
func (i *info) pick(n *proto.NodeInfo) bool {
	base, drain, silent := jobtext.NodeState(n.Node)
	inAll := func(w stateWanted) bool {
		return !slices.ContainsFunc(w, func(s string) bool { return !isNodeState(n, s) })
	}
	switch {
	case len(i.nodes) > 0 && !slices.Contains(i.nodes, n.Node.Def.Name),
		len(i.states) > 0 && !slices.ContainsFunc(i.states, inAll),
		i.responding && silent,
		i.dead && !silent,
		i.reasons && len(jobtext.OutUnits(n.Node, "")) == 0 && (n.Node.Reason == "" || !drain && base != jobtext.NodeDown):
		return false
	}
	return true
}

// form gives the format and the sort order that the options request.
func (i *info) form() (template, order string) {
	order = infoSort
	switch {
	case i.byNode && i.long:
		template = infoNodesLong
	case i.byNode:
		template = infoNodes
	case i.summary:
		template = infoSummary
	case i.reasons && i.long:
		template = infoReasonsLong
	case i.reasons:
		template = infoReasons
	case i.long:
		template = infoLong
	default:
		template = infoFormat
	}
	if i.byNode {
		order = infoNodeSort
	}
	if i.reasons && !i.byNode {
		order = ""
	}
	if i.layout == 'o' {
		template = i.template
	}
	if i.sort != "" {
		order = i.sort
	}
	return template, order
}

// once prints one table.
func (i *info) once() int {
	if i.pools {
		return i.printPools()
	}
	if i.resvs {
		return i.reservations()
	}
	fields := jobtext.NodeFields()
	lang := jobtext.NodeLanguage(fields)
	template, order := i.form()
	compile := func() (*format.Printer[jobtext.NodeRow], error) { return lang.Template(template) }
	if i.layout == 'O' {
		compile = func() (*format.Printer[jobtext.NodeRow], error) { return lang.Columns(i.columns) }
	}
	printer, err := compile()
	if err := i.UnknownFields(err); err != nil {
		i.Errorf("%v", err)
		return 1
	}
	var letters []byte
	for _, f := range fields {
		if f.Letter != 0 {
			letters = append(letters, f.Letter)
		}
	}
	keys, err := format.ParseSort(order, string(letters))
	if err != nil {
		i.Errorf("%v", err)
		return 1
	}
	now := time.Now()
	t := &jobtext.NodeTable{NodeView: jobtext.NodeView{Times: i.Times(now), UIDOf: env.UIDOf}, Pick: i.pick,
		ByNode: i.byNode, Exact: i.exact, Once: i.reasons && !i.byNode,
		Empty: !i.byNode && !(i.reasons && i.layout == 0)}
	cluster, at, err := i.load(t)
	if err != nil {
		var own env.Complaint
		if errors.As(err, &own) {
			i.Errorf("%v", err)
		} else {
			fmt.Fprintln(i.Stderr, err)
		}
		return 1
	}
	if i.reasons {
		for name, n := range t.Nodes {
			t.Nodes[name] = jobtext.WithUnitReasons(n)
		}
	}
	if i.gpus {
		err = i.printGPUs(t, cluster, at)
	} else if i.json != "" {
		err = i.printJSON(t, cluster, at)
	} else {
		rows := t.Rows(printer, fields, &lang)
		jobtext.SortNodes(rows, keys, strings.Contains(order, "#"), fields)
		err = i.printRows(printer, rows, now, cluster)
	}
	if err != nil {
		i.Errorf("%v", err)
		return 1
	}
	return 0
}

// load asks for partitions and nodes. Its error needs no prefix.
func (i *info) load(t *jobtext.NodeTable) (cluster string, at model.Time, err error) {
	c, err := i.Connect()
	if err != nil {
		return "", 0, env.Complaint{Text: env.Text(err)}
	}
	defer c.Close()
	if err := i.CheckClusters(c, i.clusters); err != nil {
		return "", 0, err
	}
	if i.json != "" || len(i.clusters) > 0 {
		if cluster, err = env.ClusterName(c); err != nil {
			return "", 0, fmt.Errorf("slurm_load_ctl_conf error: %s", env.Text(err))
		}
	}
	var parts proto.PartitionsReply
	if err := c.Call(proto.KindPartitions, &proto.Empty{}, &parts); err != nil {
		return "", 0, fmt.Errorf("slurm_load_partitions: %s", env.Text(err))
	}
	i.partCPUs = nil
	for k, p := range parts.Partitions {
		hidden := parts.Hides(k) && !i.all && os.Getuid() != 0 && !slices.Contains(i.parts, p.Name)
		if !hidden && !i.none && (len(i.parts) == 0 || slices.Contains(i.parts, p.Name)) {
			t.Parts = append(t.Parts, p)
			cpus := int64(0)
			if k < len(parts.TotalCPUs) {
				cpus = parts.TotalCPUs[k]
			}
			i.partCPUs = append(i.partCPUs, cpus)
		}
	}
	t.Nodes, err = i.nodesByName(c, i.nodes)
	if env.Code(err) == proto.CodeInvalidNode && i.SlurmName() { // sinfo -n of an unknown node: partitions without nodes
		t.Nodes, err = i.nodesByName(c, nil)
	}
	if err != nil {
		return "", 0, fmt.Errorf("slurm_load_node error: %s", env.Text(err))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Nodes)) {
		n := t.Nodes[name]
		for _, p := range t.Parts {
			if n.Node.Def.Future && slices.Contains(n.Partitions, p.Name) {
				p.Nodes = append(p.Nodes, name)
			}
		}
	}
	return cluster, parts.Now, nil
}

// nodesByName asks for all or the named nodes, with details of each unit for the list of GPUs.
func (i *info) nodesByName(c *client.Client, names []string) (map[string]*proto.NodeInfo, error) {
	out := map[string]*proto.NodeInfo{}
	rq := &proto.NodesRequest{Names: names, Units: i.gpus, Future: i.future}
	err := c.Stream(proto.KindNodes, rq, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, n := range chunk.Nodes {
			out[n.Node.Def.Name] = n
		}
		return nil
	})
	return out, err
}

func (i *info) printRows(p *format.Printer[jobtext.NodeRow], rows []jobtext.NodeRow, now time.Time,
	cluster string) error {
	var head []byte
	if (i.every > 0 || i.long) && !i.noHeader {
		head = now.AppendFormat(head, "Mon Jan _2 15:04:05 2006\n")
	}
	if len(i.clusters) > 0 && !i.noHeader {
		head = append(append(append(head, "CLUSTER: "...), cluster...), '\n')
	}
	if _, err := i.Stdout.Write(head); err != nil {
		return err
	}
	if err := p.Write(i.Stdout, rows, !i.noHeader); err != nil {
		return err
	}
	if i.every > 0 {
		_, err := i.Stdout.Write([]byte{'\n'})
		return err
	}
	return nil
}
