package conf

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// maxGresUnits bounds the units of one entry.
const maxGresUnits = model.MaxGresUnits

// GresCount is Gres=name:type:count of a node.
type GresCount struct {
	Name, Type string
	Count      int64
	NoConsume  bool
}

// String gives it as a node line has it.
func (g GresCount) String() string {
	s := g.Name
	if g.Type != "" {
		s += ":" + g.Type
	}
	if g.NoConsume {
		s += ":no_consume"
	}
	return s + ":" + strconv.FormatInt(g.Count, 10)
}

// readNodeGres reads Gres=name[:type][:no_consume]:count,… without a count it is 1.
func readNodeGres(v string) ([]GresCount, fault) {
	const want = "gpu:a100:8"
	if strings.EqualFold(v, "none") || v == "(null)" {
		return nil, fault{}
	}
	var out []GresCount
	for _, item := range splitList(v) {
		if i := strings.IndexByte(item, '('); i >= 0 { // gpu:a100:8(S:0-1), as sinfo prints it
			item = item[:i]
		}
		fields := strings.Split(item, ":")
		g := GresCount{Name: fields[0], Count: 1}
		fields = fields[1:]
		if n := len(fields); n > 0 {
			if count, f := readQuantity(fields[n-1]); !f.bad() {
				g.Count, fields = model.ShareUnits(g.Name, count, false), fields[:n-1]
			}
		}
		if n := len(fields); n > 0 && strings.EqualFold(fields[n-1], "no_consume") {
			g.NoConsume, fields = true, fields[:n-1]
		}
		if len(fields) > 1 || g.Name == "" || strings.ContainsAny(item, " =") {
			return nil, fault{shown(item) + " is not name:type:count", want}
		}
		if len(fields) == 1 {
			if g.Type = fields[0]; g.Type == "" {
				return nil, fault{shown(item) + " has an empty type", want}
			}
		}
		for i := range out {
			if out[i].Name == g.Name && out[i].Type == g.Type {
				return nil, fault{shown(item) + " is named twice", "each type once"}
			}
			if out[i].Name == g.Name && (out[i].Type == "") != (g.Type == "") {
				return nil, fault{g.Name + " is named both with and without a type", "a type for all of them, or for none"}
			}
		}
		out = append(out, g)
	}
	return out, fault{}
}

// readGresConf reads GresConf=count=1,name=gpu,type=a100,file=/dev/x+count=1,... of a node that is created: lines of
// gres.conf with a + between them. Equal types are added up.
func readGresConf(v string) ([]GresCount, fault) {
	const want = "count=1,name=gpu,type=a100,file=/dev/nvidia0"
	var out []GresCount
	for record := range strings.SplitSeq(v, "+") {
		if record == "" && v == "" {
			return nil, fault{}
		}
		g := GresCount{}
		files := int64(0)
		for _, kv := range splitList(record) {
			key, value, _ := strings.Cut(kv, "=")
			switch strings.ToLower(key) {
			case "name":
				g.Name = value
			case "type":
				g.Type = value
			case "count":
				n, f := readQuantity(value)
				if f.bad() {
					return nil, fault{shown(record) + ": " + f.why, want}
				}
				g.Count = n
			case "file", "multiplefiles":
				files++
			case "cores", "flags", "links", "autodetect":
			default:
				return nil, fault{shown(kv) + " is no key of a line of gres.conf", want}
			}
		}
		if g.Name == "" {
			return nil, fault{shown(record) + " has no name", want}
		}
		if g.Count == 0 {
			g.Count = max(1, files)
		}
		if i := slices.IndexFunc(out, func(o GresCount) bool { return o.Name == g.Name && o.Type == g.Type }); i >= 0 {
			out[i].Count += g.Count
		} else {
			out = append(out, g)
		}
	}
	return out, fault{}
}

// checkGresConf compares what GresConf and Gres of a node say. Only nodes without a daemon have the first: the others
// have a gres.conf, and find what is there.
func (l *loader) checkGresConf(n *nodeLine, at pos) {
	if len(n.gresConf) > 0 && n.State != model.ExternalText {
		l.probs.notef(at, "write it into the node's gres.conf", "GresConf has no effect but with State=EXTERNAL: gnoded "+
			"reads gres.conf")
		return
	}
	for _, g := range n.gresConf {
		i := slices.IndexFunc(n.Gres, func(o GresCount) bool { return o.Name == g.Name && o.Type == g.Type })
		if i < 0 || n.Gres[i].Count != g.Count {
			l.probs.errorf(at, "make both the same", "GresConf has %s, and Gres does not", g)
		}
	}
}
