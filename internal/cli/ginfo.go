package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gbatch/internal/cli/format"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/suggest"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// infoCall is what ginfo's options say.
type infoCall struct {
	summary, long, byNode, reasons bool
	noHeader, all, exact           bool
	responding, dead               bool
	template, columns, sort        string
	states, parts, nodes           []string
	json                           string // version of the shape; "": a table
	noConvert                      bool
}

func (c *infoCall) options() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "all", Short: 'a', Env: "SINFO_ALL", Help: "hidden partitions too", Set: getopt.Flag(&c.all)},
		{Name: "dead", Short: 'd', Help: "only nodes that do not respond", Set: getopt.Flag(&c.dead)},
		{Name: "exact", Short: 'e', Help: "nodes of unequal size in rows of their own", Set: getopt.Flag(&c.exact)},
		{Name: "Format", Short: 'O', Arg: R, Metavar: "fields", Help: "columns by name: NodeList,CPUsState:20", Set: getopt.Text(&c.columns)},
		{Name: "format", Short: 'o', Arg: R, Metavar: "template", Env: "SINFO_FORMAT", Help: "a template: '%P %a %D %t %N'", Set: getopt.Text(&c.template)},
		{Name: "noheader", Short: 'h', Help: "no heading", Set: getopt.Flag(&c.noHeader)},
		{Name: "hide", Help: "no hidden partitions (the default)", Set: func(string) error { c.all = false; return nil }},
		{Name: "list-reasons", Short: 'R', Help: "why nodes are down or drained", Set: getopt.Flag(&c.reasons)},
		{Name: "long", Short: 'l', Help: "more columns", Set: getopt.Flag(&c.long)},
		{Name: "Node", Short: 'N', Help: "a row for each node", Set: getopt.Flag(&c.byNode)},
		{Name: "nodes", Short: 'n', Arg: R, Metavar: "nodes", Help: "only these nodes", Set: func(v string) error {
			names, err := hostlist.Expand(v)
			c.nodes = append(c.nodes, names...)
			return err
		}},
		{Name: "noconvert", Help: "no units (sizes have none anyway)", Set: getopt.Flag(&c.noConvert)},
		{Name: "partition", Short: 'p', Arg: R, Metavar: "names", Env: "SINFO_PARTITION", Help: "only these partitions", Set: func(v string) error { c.parts = append(c.parts, splitList(v)...); return nil }},
		{Name: "responding", Short: 'r', Help: "only nodes that respond", Set: getopt.Flag(&c.responding)},
		{Name: "sort", Short: 'S', Arg: R, Metavar: "keys", Env: "SINFO_SORT", Help: "order of the rows: P t N D c m w E H, with - to turn it", Set: getopt.Text(&c.sort)},
		{Name: "states", Short: 't', Arg: R, Metavar: "states", Help: "only nodes in these states: idle,mix,alloc,drain,down", Set: func(v string) error {
			for _, w := range splitList(v) {
				known := false
				for _, k := range nodeStateWords() {
					known = known || strings.EqualFold(k, w)
				}
				if !known {
					return &getopt.TextError{Text: "Invalid node state specified: " + w + "; write some of alloc, mix, idle, drain, drng, drained, down, unknown, no_respond, all"}
				}
				c.states = append(c.states, w)
			}
			return nil
		}},
		{Name: "summarize", Short: 's', Help: "one row for each partition", Set: getopt.Flag(&c.summary)},
		{Name: "json", Arg: getopt.Optional, Metavar: "version", Help: "print the nodes as JSON", Set: func(v string) error {
			var err error
			c.json, err = parseJSONVersion(v)
			return err
		}},
		{Name: "verbose", Short: 'v', Hidden: true, Set: ignored},
		{Name: "yaml", Arg: getopt.Optional, Refused: "use --json"},
		{Name: "iterate", Short: 'i', Arg: R, Refused: "use watch -n SECONDS ginfo"},
		{Name: "reservation", Short: 'T', Refused: "there are no reservations yet"},
		{Name: "bg", Short: 'b', Refused: "leave it out"},
		{Name: "future", Short: 'F', Refused: "nodes with State=FUTURE are in gbatch.conf only"},
		{Name: "local", Refused: "leave it out"},
		{Name: "federation", Refused: "leave it out"},
		{Name: "cluster", Aliases: []string{"clusters"}, Short: 'M', Arg: R, Env: "SLURM_CLUSTERS", Refused: "set GBATCH_CONF to the other cluster's configuration"},
	}
}

// form gives the template that the options ask for, and the order of its rows.
func (c *infoCall) form() (template, order string) {
	order = "P,t"
	switch {
	case c.reasons && c.long:
		template, order = "%20E %12U %19H %6t %N", "E,H"
	case c.reasons:
		template, order = "%20E %9u %19H %N", "E,H"
	case c.summary:
		template = "%#P %.5a %.10l %.16F  %N"
	case c.byNode && c.long:
		template, order = "%#N %.6D %#P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E", "N"
	case c.byNode:
		template, order = "%#N %.6D %#P %6t", "N"
	case c.long:
		template = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
	default:
		template = "%#P %.5a %.10l %.6D %.6t %N"
	}
	if c.byNode {
		order = "N"
	}
	if c.template != "" {
		template = c.template
	}
	if c.sort != "" {
		order = c.sort
	}
	return template, order
}

// ginfo lists partitions and nodes.
func ginfo(e *Env) int {
	var call infoCall
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(call.options(), getopt.HelpOptions(0)...), EnvPrefix: "SINFO",
		About: "List partitions and nodes. Nodes that look the same in every column share a row."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.usage(p, err)
	}
	if len(operands) > 0 {
		e.errorf("unexpected argument '%s'; pick rows with --partition, --nodes and --states", operands[0])
		return 1
	}
	fields := infoFields()
	language := &format.Language[infoRow]{Noun: "node"}
	scopes := map[string]infoScope{}
	for _, f := range fields {
		language.Fields = append(language.Fields, f.Field)
		scopes[f.Name] = f.scope
	}
	template, order := call.form()
	compile := func() (*format.Printer[infoRow], error) {
		if call.columns != "" {
			return language.Columns(call.columns)
		}
		return language.Template(template)
	}
	printer, err := compile()
	var unknown *format.UnknownError
	switch {
	case errors.As(err, &unknown):
		e.errorf("%v", unknown)
	case err != nil:
		e.errorf("%v", err)
		return 1
	}
	c, err := e.connect()
	if err != nil {
		e.infoFailed("slurm_load_partitions", err)
		return 1
	}
	defer c.Close()
	var parts proto.PartitionsReply
	if err := c.Call(proto.KindPartitions, &proto.Empty{}, &parts); err != nil {
		e.infoFailed("slurm_load_partitions", err)
		return 1
	}
	var infos []*proto.NodeInfo
	err = c.Stream(proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		infos = append(infos, chunk.Nodes...)
		return nil
	})
	if err != nil {
		e.infoFailed("slurm_load_node", err)
		return 1
	}
	if infos, err = call.pick(infos); err != nil {
		e.errorf("%v", err)
		return 1
	}
	chosen, err := call.pickParts(parts.Partitions)
	if err != nil {
		e.errorf("%v", err)
		return 1
	}
	if call.json != "" {
		if err := e.infoJSON(&call, infos, parts.Now); err != nil {
			e.errorf("%v", err)
			return 1
		}
		return 0
	}
	view := &infoView{moments: e.moments(time.Now()), exact: call.exact, noConvert: call.noConvert}
	if call.wants(printer, "Cluster") {
		var conf proto.ConfigReply
		if err := c.Call(proto.KindConfig, &proto.Empty{}, &conf); err == nil {
			view.cluster = conf.Config.Cluster
		}
	}
	byPart := false
	var keys []func(*infoRow) string
	for f := range printer.Fields {
		switch scopes[f.Name] {
		case ofPart:
			byPart = true
		case ofNode:
			keys = append(keys, f.Get)
		case ofSize:
			if call.exact {
				keys = append(keys, f.Get)
			}
		}
	}
	rows := groupRows(view, chosen, infos, byPart, call.byNode, func(r *infoRow) string {
		var b strings.Builder
		for _, k := range keys {
			b.WriteString(k(r))
			b.WriteByte(0)
		}
		return b.String()
	})
	if narrowed := len(call.states) > 0 || len(call.nodes) > 0 || call.reasons || call.responding || call.dead; narrowed {
		rows = dropEmpty(rows)
	}
	if err := sortInfo(rows, order); err != nil {
		e.errorf("%v", err)
		return 1
	}
	printer.Fit(rows)
	if call.long && !call.noHeader {
		fmt.Fprintf(e.Stdout, "%s\n", time.Now().Format("Mon Jan 02 15:04:05 2006"))
	}
	if err := printer.Write(e.Stdout, rows, !call.noHeader); err != nil {
		e.errorf("%v", err)
		return 1
	}
	return 0
}

func (e *Env) infoFailed(what string, err error) {
	fmt.Fprintf(e.Stderr, "%s error: %s\n", what, text(err))
}

func (c *infoCall) wants(p *format.Printer[infoRow], name string) bool {
	for f := range p.Fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

func dropEmpty(rows []infoRow) []infoRow {
	out := rows[:0]
	for _, r := range rows {
		if len(r.nodes) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// pick narrows the nodes to what the options ask for.
func (c *infoCall) pick(infos []*proto.NodeInfo) ([]*proto.NodeInfo, error) {
	wanted := map[string]bool{}
	for _, n := range c.nodes {
		wanted[n] = true
	}
	var out []*proto.NodeInfo
	for _, i := range infos {
		n := i.Node
		switch {
		case len(wanted) > 0 && !wanted[n.Def.Name],
			len(c.states) > 0 && !inState(n, c.states),
			c.responding && n.Link != model.LinkUp,
			c.dead && n.Link == model.LinkUp,
			c.reasons && n.Reason == "":
			continue
		}
		out = append(out, i)
	}
	return out, nil
}

// pickParts narrows the partitions; hidden ones are left out unless named.
func (c *infoCall) pickParts(parts []*model.Partition) ([]*model.Partition, error) {
	var out []*model.Partition
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
		if len(c.parts) == 0 && p.Hidden && !c.all {
			continue
		}
		if len(c.parts) > 0 && !hasWord(c.parts, p.Name) {
			continue
		}
		out = append(out, p)
	}
	for _, w := range c.parts {
		if !hasWord(names, w) {
			hint := ""
			if near := suggest.Nearest(w, names); len(near) > 0 {
				hint = "; did you mean " + near[0] + "?"
			}
			return nil, fmt.Errorf("Invalid partition name specified: %s%s", w, hint)
		}
	}
	return out, nil
}

func hasWord(list []string, w string) bool {
	for _, x := range list {
		if x == w {
			return true
		}
	}
	return false
}
