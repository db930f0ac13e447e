package conf

import (
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
