package jobtext

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// GPURow is one GPU in its present state. Numbers that are not known are -1.
type GPURow struct {
	node, name      string
	index           int32
	uuid, typ       string
	state, job, why string
	util, temp      int32
	xid             int32 // the last error that the driver has logged since gnoded began; 0: none
	usedMiB, allMiB int64
	models          []string // that it has loaded, the latest first
	product         string   // as the driver names it; "": not known
	jobs            []string // that hold it or shares of it; a job that the reader may not see is proto.HiddenJob
	share           string   // the resource in which jobs hold shares of it; "": none do
	sharesUsed      int32
	sharesAll       int32
}

// modelsOf gives the models that a GPU has loaded, the latest first.
func modelsOf(n *model.Node, gpu int32) []string {
	var out []string
	for _, t := range n.Tags {
		if t.GPU == gpu {
			out = append(out, t.Name)
		}
	}
	return out
}

// modelsText gives the models that a node's GPUs have loaded: 0(llama,bert),3(llama); "" for none.
func modelsText(n *model.Node) string {
	var out []string
	for i, t := range n.Tags {
		if i == 0 || n.Tags[i-1].GPU != t.GPU {
			out = append(out, fmt.Sprintf("%d(%s)", t.GPU, strings.Join(modelsOf(n, t.GPU), ",")))
		}
	}
	return strings.Join(out, ",")
}

// GPURows gives the GPUs of a node in the order of their numbers.
func GPURows(i *proto.NodeInfo) []GPURow {
	var out []GPURow
	for k := range i.Node.Def.Gres {
		g := &i.Node.Def.Gres[k]
		if g.Name != model.GPUName && g.Name != "mig" {
			continue
		}
		for u := range g.Count {
			out = append(out, gpuRowOf(i, g, g.First+u))
		}
	}
	return out
}

func gpuRowOf(i *proto.NodeInfo, g *model.GresDef, index int32) GPURow {
	r := GPURow{node: i.Node.Def.Name, name: g.Name, index: index, typ: g.Type, util: -1, temp: -1, usedMiB: -1,
		allMiB: -1}
	reserved := g.Off.Has(int(index))
	for k := range i.Units {
		if u := &i.Units[k]; u.Name == g.Name && u.Index == index {
			r.uuid, r.product = u.UUID, u.Product
			if r.typ == "" {
				r.typ = u.Type
			}
			if u.MemMiB > 0 {
				r.allMiB = u.MemMiB
			}
			reserved = reserved || slices.Contains(u.Flags, model.GresReserved)
		}
	}
	for k := range i.Readings {
		x := &i.Readings[k]
		if x.Name != g.Name || x.Index != index {
			continue
		}
		if r.xid = x.XID; !x.Lost {
			r.util, r.temp, r.usedMiB = x.UtilPct, x.TempC, x.MemUsedMiB
			if x.MemTotalMiB > 0 {
				r.allMiB = x.MemTotalMiB
			}
		}
	}
	for k := range i.Holders {
		if h := &i.Holders[k]; h.Name == g.Name && h.Index == index {
			r.job, r.jobs = h.Job, []string{h.Job}
		}
	}
	if r.job == "" && g.Name == model.GPUName {
		r.shared(i)
	}
	if g.Name == model.GPUName {
		r.models = modelsOf(i.Node, index)
	}
	r.state, r.why = gpuState(i, g.Name, index, r.job != "", reserved)
	return r
}

// shared adds the jobs that hold shares of a GPU: 12(shard:2),13(shard:1).
func (r *GPURow) shared(i *proto.NodeInfo) {
	s := i.Node.SharesOf(r.index)
	if s == nil || s.Count <= 0 {
		return
	}
	r.share, r.sharesUsed = s.Name, s.Count
	if d := i.Node.Def.Sharing(s.Name, r.index); d != nil {
		_, r.sharesAll = d.Units(r.index)
	}
	var words []string
	for k := range i.Holders {
		if h := &i.Holders[k]; h.Shares > 0 && h.Name == s.Name && h.Index == r.index {
			words = append(words, fmt.Sprintf("%s(%s:%d)", h.Job, h.Name, h.Shares))
			if !slices.Contains(r.jobs, h.Job) {
				r.jobs = append(r.jobs, h.Job)
			}
		}
	}
	if r.job = strings.Join(words, ","); r.job == "" { // a controller of before doesn't say whose they are
		r.job = fmt.Sprintf("%s:%d", s.Name, s.Count)
	}
}

// gpuState gives a GPU's state, and why jobs don't get it. A fault comes before the job that has it. A reservation of
// the whole node has all of its GPUs; a reservation of a number of GPUs has no particular ones until jobs hold them.
func gpuState(i *proto.NodeInfo, name string, index int32, held, reserved bool) (state, why string) {
	n := i.Node
	for _, o := range OutUnits(n, name) {
		if o.Index != index {
			continue
		}
		switch o.Kind {
		case model.OutFault, model.OutLost:
			return "fault", o.Reason
		case model.OutInUse:
			return "foreign", o.Reason
		}
		return "drained", o.Reason
	}
	base, drain, silent := NodeState(n)
	switch {
	case base == NodeDown || base == NodeUnknown || base == NodeFuture || silent:
		return "down", n.Reason
	case held:
		return "alloc", ""
	case reserved:
		return "reserved", ""
	case drain:
		return "drained", n.Reason
	case i.Maint:
		return "maint", "reservation " + i.Resv
	case i.Resv != "":
		return "reserved", "reservation " + i.Resv
	}
	return "idle", ""
}

// gpuColumns are the headings and the largest widths; longer values are cut.
var gpuColumns = [...]struct {
	head  string
	most  int
	right bool
}{
	{"NODE", 24, false}, {"IDX", 4, true}, {"UUID", 40, false}, {"TYPE", 20, false}, {"STATE", 8, false},
	{"JOB", 60, false},
	{"UTIL", 4, true}, {"MEM", 16, true}, {"TEMP", 5, true}, {"XID", 5, true},
	{"MODELS", 2 * model.MaxModelName, false}, // only if some GPU has one
}

// lastColumns are how many columns at the end are there only if some GPU has something in them.
const lastColumns = 1

func (r *GPURow) cells() [len(gpuColumns)]string {
	known := func(v int32, unit string) string {
		if v < 0 {
			return "N/A"
		}
		return fmt.Sprintf("%d%s", v, unit)
	}
	mem := "N/A"
	switch gib := func(mib int64) float64 { return float64(mib) / 1024 }; {
	case r.usedMiB >= 0 && r.allMiB > 0:
		mem = fmt.Sprintf("%.1f/%.1fG", gib(r.usedMiB), gib(r.allMiB))
	case r.allMiB > 0:
		mem = fmt.Sprintf("-/%.1fG", gib(r.allMiB))
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return [...]string{r.node, fmt.Sprint(r.index), dash(r.uuid), dash(r.typ), r.state, dash(r.job), known(r.util, "%"),
		mem, known(r.temp, "C"), xidText(r.xid),
		dash(strings.Join(r.models, ","))}
}

func xidText(xid int32) string {
	if xid == 0 {
		return "-"
	}
	return fmt.Sprint(xid)
}

// GPUTable writes a line for each GPU, each column as wide as it needs to be.
func GPUTable(rows []GPURow, header bool) []byte {
	var lines [][len(gpuColumns)]string
	if header {
		var head [len(gpuColumns)]string
		for k, c := range gpuColumns {
			head[k] = c.head
		}
		lines = append(lines, head)
	}
	for k := range rows {
		lines = append(lines, rows[k].cells())
	}
	var width [len(gpuColumns)]int
	for _, l := range lines {
		for k, s := range l {
			width[k] = min(max(width[k], utf8.RuneCountInString(s)), gpuColumns[k].most)
		}
	}
	var b bytes.Buffer
	var columns []int
	for k := range gpuColumns {
		has := func(r GPURow) bool { return r.cells()[k] != "-" }
		if k < len(gpuColumns)-lastColumns || slices.ContainsFunc(rows, has) {
			columns = append(columns, k)
		}
	}
	for _, l := range lines {
		for _, k := range columns {
			s := l[k]
			if utf8.RuneCountInString(s) > width[k] {
				s = string([]rune(s)[:width[k]])
			}
			w := width[k]
			switch {
			case k == columns[len(columns)-1] && !gpuColumns[k].right:
				w = 0
			case !gpuColumns[k].right:
				w = -w
			}
			if k > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%*s", w, s)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// free is the memory that is not in use, MiB; -1: not known.
func (r *GPURow) free() int64 {
	if r.usedMiB < 0 || r.allMiB <= 0 {
		return -1
	}
	return max(0, r.allMiB-r.usedMiB)
}

// GPUJSON is a GPU's object in gbatch's own list.
func GPUJSON() []slurmjson.Field[GPURow] {
	known := func(v int64) (int64, bool, bool) { return max(0, v), v >= 0, false }
	return []slurmjson.Field[GPURow]{
		{Name: "node", Str: func(r *GPURow) string { return r.node }},
		{Name: "gres", Str: func(r *GPURow) string { return r.name }},
		{Name: "index", Int: func(r *GPURow) int64 { return int64(r.index) }},
		{Name: "uuid", Str: func(r *GPURow) string { return r.uuid }},
		{Name: "type", Str: func(r *GPURow) string { return r.typ }},
		{Name: "state", Str: func(r *GPURow) string { return r.state }},
		{Name: "reason", Str: func(r *GPURow) string { return r.why }},
		{Name: "job", Str: func(r *GPURow) string { return r.job }},
		{Name: "utilization_percent", Num: func(r *GPURow) (int64, bool, bool) { return known(int64(r.util)) }},
		{Name: "memory_used_mib", Num: func(r *GPURow) (int64, bool, bool) { return known(r.usedMiB) }},
		{Name: "memory_total_mib", Num: func(r *GPURow) (int64, bool, bool) { return known(r.allMiB) }},
		{Name: "xid", Num: func(r *GPURow) (int64, bool, bool) { return int64(r.xid), r.xid != 0, false }},
		{Name: "temperature_celsius", Num: func(r *GPURow) (int64, bool, bool) { return known(int64(r.temp)) }},
		{Name: "models", List: func(r *GPURow) []string { return r.models }},
		{Name: "product", Str: func(r *GPURow) string { return r.product }},
		{Name: "memory_free_mib", Num: func(r *GPURow) (int64, bool, bool) { return known(r.free()) }},
		{Name: "jobs", List: func(r *GPURow) []string { return r.jobs }},
		{Name: "share", Str: func(r *GPURow) string { return r.share }},
		{Name: "shares_used", Num: func(r *GPURow) (int64, bool, bool) { return int64(r.sharesUsed), r.share != "", false }},
		{Name: "shares_total", Num: func(r *GPURow) (int64, bool, bool) { return int64(r.sharesAll), r.share != "", false }},
	}
}

// unitLines gives the units of a node for gcontrol show node -d, one line each.
func unitLines(i *proto.NodeInfo) [][]string {
	var out [][]string
	for k := range i.Units {
		u := &i.Units[k]
		words := []string{KV("Unit", fmt.Sprintf("%s:%d", model.TypedName(u.Name, u.Type), u.Index))}
		add := func(key, v string) {
			if v != "" {
				words = append(words, KV(key, v))
			}
		}
		add("UUID", u.UUID)
		add("Parent", u.Parent)
		add("Files", strings.Join(u.Files, ","))
		add("PCI", u.PCI)
		if u.MemMiB > 0 {
			add("Memory", fmt.Sprint(u.MemMiB))
		}
		if !u.Near.Empty() {
			add("CPUs", u.Near.String())
		}
		var links []string
		for _, n := range u.Links {
			links = append(links, fmt.Sprint(n))
		}
		add("Links", strings.Join(links, ","))
		add("Flags", strings.Join(u.Flags, ","))
		for k := range i.Node.Def.Gres {
			if g := &i.Node.Def.Gres[k]; g.Name == u.Name && (g.Name == model.GPUName || g.Name == "mig") &&
				g.First <= u.Index && u.Index < g.First+g.Count {
				r := gpuRowOf(i, g, u.Index)
				add("State", r.state)
				add("Job", r.job)
				if r.util >= 0 && r.job != "" {
					add("Util", fmt.Sprint(r.util))
				}
				if r.usedMiB > 0 {
					add("MemUsed", fmt.Sprint(r.usedMiB))
				}
			}
		}
		out = append(out, words)
	}
	return out
}

// GPULook is one GPU; numbers that are not known are -1.
type GPULook struct {
	Node, Type, State, Job, Why string
	Index, Util, TempC, XID     int32
	UsedMiB, AllMiB             int64

	Product               string
	FreeMiB               int64
	Jobs                  []string // that hold it, or shares of it; proto.HiddenJob for what the reader may not see
	Share                 string   // what they hold shares in; "": nobody does
	SharesUsed, SharesAll int32
}

// Look gives the row's values.
func (r *GPURow) Look() GPULook {
	return GPULook{Node: r.node, Type: r.typ, State: r.state, Job: r.job, Why: r.why, Index: r.index, Util: r.util,
		TempC: r.temp, XID: r.xid, UsedMiB: r.usedMiB, AllMiB: r.allMiB, Product: r.product, FreeMiB: r.free(),
		Jobs: r.jobs, Share: r.share, SharesUsed: r.sharesUsed, SharesAll: r.sharesAll}
}
