package hardware

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// found.go has the units of a node's resources, with their kind and index. devices.go and merge.go find them.

// Found is one unit of a resource on this node: a GPU, a MIG instance, another device.
type Found struct {
	model.GresUnit
	Dev  *gpu.Device   // nil: not detected
	Inst *gpu.Instance // of dev; nil: the whole device
	line *conf.GresRecord
}

// maxFound limits the units with an entry of their own; the rest of a resource is only counted.
const maxFound = 256

// findings is a node's resources.
type findings struct {
	units    []Found         // by name and index, if they are distinguishable
	gres     []model.GresDef // all of it, counted
	problems []string        // reasons why the node should not take jobs
	notes    []string        // for people
	unused   [][]string      // device files of GPUs that jobs don't get
	source   gpu.Source      // of readings; nil: none
}

func (f *findings) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

func (f *findings) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// maxReason limits the text of problems in a node's reason, bytes.
const maxReason = 300

// reason puts the problems into one sentence.
func (f *findings) reason() string {
	var out string
	for i, p := range f.problems {
		if i > 0 && len(out)+len(p) > maxReason {
			return fmt.Sprintf("%s; and %d more like that (see gnoded -G)", out, len(f.problems)-i)
		}
		if i > 0 {
			out += "; "
		}
		out += p
	}
	return out
}

// stock is units of one name before they have indices.
type stock struct {
	name  string
	units []Found
	count int64 // of units that are only counted, typ their type
	typ   string
}

// place gives the units of a resource their indices: in the order of the node's Gres, with its types, as jobs get them.
// Units that are not in the node's line come after them.
func (f *findings) place(def *model.NodeDef, s *stock) {
	if def == nil || !slices.ContainsFunc(def.Gres, func(g model.GresDef) bool { return g.Name == s.name }) {
		byType(s.units)
		for i := range s.units {
			f.add(s.units[i], int32(i))
		}
		f.gres = addGres(f.gres, s.name, s.typ, int32(min(s.count, math.MaxInt32)))
		if def != nil && s.name == gpuName && len(s.units) > 0 {
			f.note("%s here, and the NodeName line of %s names none: no job can ask for them; add Gres=%s to it",
				countOf(len(s.units), "GPU is", "GPUs are"), def.Name, countText(s))
		}
		return
	}
	left := slices.Clone(s.units)
	for i := range def.Gres {
		g := &def.Gres[i]
		if g.Name != s.name {
			continue
		}
		n := int32(0)
		left = slices.DeleteFunc(left, func(u Found) bool {
			if n == g.Count || g.Type != "" && !u.fits(g.Type) {
				return false
			}
			if g.Type != "" {
				u.Type = g.Type
			}
			f.add(u, g.First+n)
			n++
			return true
		})
		if n < g.Count && s.count > 0 && (s.typ == "" || g.Type == "" || strings.EqualFold(s.typ, g.Type)) {
			more := int32(min(s.count, int64(g.Count-n)))
			s.count -= int64(more)
			f.count(model.GresDef{Name: s.name, Type: g.Type, First: g.First + n, Count: more})
		}
	}
	if len(left) > 0 && Detectable(s.name) {
		names := make([]string, 0, len(left))
		for i := range left {
			f.unused = append(f.unused, left[i].Files)
			names = append(names, left[i].text())
		}
		f.note("%s on this node than the Gres of its NodeName line, which are not used: %s",
			countOf(len(left), "more "+s.name+" is", "more "+s.name+" are"), listText(names))
	}
}

// byType puts units of one type side by side, types in the order in which they were found: a node's Gres has each
// type once.
func byType(units []Found) {
	first := map[string]int{}
	for i := range units {
		if _, ok := first[units[i].Type]; !ok {
			first[units[i].Type] = i
		}
	}
	slices.SortStableFunc(units, func(a, b Found) int { return first[a.Type] - first[b.Type] })
}

// add adds a unit with its index.
func (f *findings) add(u Found, index int32) {
	u.Index = index
	f.count(model.GresDef{Name: u.Name, Type: u.Type, First: index, Count: 1})
	if len(f.units) < maxFound {
		f.units = append(f.units, u)
	}
}

// count adds to the counted resources.
func (f *findings) count(g model.GresDef) {
	if last := len(f.gres) - 1; last >= 0 {
		if l := &f.gres[last]; l.Name == g.Name && l.Type == g.Type && l.First+l.Count == g.First {
			l.Count += g.Count
			return
		}
	}
	f.gres = append(f.gres, g)
}

// connect sets the units' connections by index, and adds the units' data to the counted resources.
func (f *findings) connect(cpus int) {
	for i := range f.units {
		u := &f.units[i]
		if u.Dev == nil || u.Inst != nil {
			continue
		}
		u.Links = make([]int32, f.highest(u.Name)+1)
		for j := range f.units {
			if o := &f.units[j]; o.Name == u.Name && o.Inst == nil && o.Dev != nil && o.Dev.Index < len(u.Dev.Links) {
				u.Links[o.Index] = int32(u.Dev.Links[o.Dev.Index])
			}
		}
		u.Links[u.Index] = -1
	}
	for i := range f.gres {
		g := &f.gres[i]
		var near []model.Bits
		var links, dist [][]int32
		told, linked, far := false, false, false
		for k := range min(g.Count, maxFound) {
			u := f.unit(g.Name, g.First+k)
			if u == nil {
				break
			}
			n := u.Near
			if n.Count() >= cpus {
				n = nil // all CPUs: no preference
			}
			d := f.distances(u)
			near, links, dist = append(near, n), append(links, connected(u.Links)), append(dist, d)
			told, linked, far = told || !n.Empty(), linked || slices.Max(append(links[k], 0)) > 0, far ||
				slices.Max(append(d, 0)) > 0
			if u.MemMiB > 0 { // of a type: all alike, but for a broken one that doesn't say
				g.MemMiB = u.MemMiB
			}
		}
		if told && len(near) == int(g.Count) {
			g.Near = near
		}
		if linked && len(links) == int(g.Count) {
			g.Links = links
		}
		if far && len(dist) == int(g.Count) {
			g.Dist = dist
		}
	}
}

// connected drops the mark of the unit itself.
func connected(links []int32) []int32 {
	out := slices.Clone(links)
	for i := range out {
		out[i] = max(out[i], 0)
	}
	return out
}

// distances gives how far each other unit is, by index, in NVML's levels; 0: not known.
func (f *findings) distances(u *Found) []int32 {
	row := make([]int32, f.highest(u.Name)+1)
	for j := range f.units {
		o := &f.units[j]
		if o.Name == u.Name && o.Index != u.Index && u.Dev != nil && o.Dev != nil && o.Dev.Index < len(u.Dev.Near) {
			row[o.Index] = int32(max(u.Dev.Near[o.Dev.Index], gpu.CommonSwitch)) // devices on one board are nearest
		}
	}
	return row
}

func (f *findings) highest(name string) int32 {
	out := int32(-1)
	for i := range f.units {
		if f.units[i].Name == name {
			out = max(out, f.units[i].Index)
		}
	}
	return out
}

// unit gives one by name and index, or nil.
func (f *findings) unit(name string, index int32) *Found {
	for i := range f.units {
		if f.units[i].Name == name && f.units[i].Index == index {
			return &f.units[i]
		}
	}
	return nil
}

// fits reports whether a unit is of a type: by its line in gres.conf, by the driver's name for the product as in Slurm
// (part of it is enough), or by its short name.
func (u *Found) fits(typ string) bool {
	if typ == "" || strings.EqualFold(u.Type, typ) {
		return true
	}
	if u.line != nil && u.line.Type != "" {
		return false
	}
	if u.Dev == nil {
		return u.Type == ""
	}
	if u.Dev.Fault != "" && u.Dev.Type == "" {
		return true // unknown: accept
	}
	want := flatName(typ)
	// 1g.10gb, or with a part of the product's name in front: h100_1g.10gb. Without its profile the whole GPU is meant
	if u.Inst != nil {
		product, ok := strings.CutSuffix(want, flatName(u.Profile))
		if !ok {
			return false
		}
		want = product
	}
	return strings.Contains(flatName(u.Dev.Type), want) || strings.Contains(flatName(u.Dev.Name), want)
}

func flatName(s string) string {
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(s))
}

// text names a unit for people: its device file if it has one.
func (u *Found) text() string {
	name := u.UUID
	if len(u.Files) > 0 {
		name = u.Files[0]
	}
	if u.Inst != nil {
		name = u.UUID
	}
	if name == "" {
		name = u.Endpoint
	}
	if name == "" && u.Dev != nil { // too broken to have either
		name = fmt.Sprintf("GPU %d of the driver", u.Dev.Index)
	}
	if u.Type != "" {
		name += " (" + u.Type + ")"
	}
	return name
}

// countText gives units as a node's Gres has them: gpu:h100:8.
func countText(s *stock) string {
	var list []model.GresDef
	for i := range s.units {
		list = addGres(list, s.name, s.units[i].Type, 1)
	}
	return GresText(list)
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// listText gives a list for people, shortened.
func listText(list []string) string {
	const enough = 8
	if len(list) > enough {
		return strings.Join(list[:enough], ", ") + fmt.Sprintf(" and %d more", len(list)-enough)
	}
	return strings.Join(list, ", ")
}

// addGres adds units to a list in which the indices of each resource count over all its types.
func addGres(list []model.GresDef, name, typ string, n int32) []model.GresDef {
	if n <= 0 {
		return list
	}
	first := int32(0)
	for i := range list {
		if list[i].Name == name {
			first = max(first, list[i].First+list[i].Count)
		}
	}
	if last := len(list) - 1; last >= 0 && list[last].Name == name && list[last].Type == typ {
		list[last].Count += n
		return list
	}
	return append(list, model.GresDef{Name: name, Type: typ, First: first, Count: n})
}

// GresText gives resources as Gres= has them on a NodeName line.
func GresText(list []model.GresDef) string {
	var gres []string
	for _, g := range list {
		gres = append(gres, fmt.Sprintf("%s:%d", model.TypedName(g.Name, g.Type), g.Count))
	}
	return strings.Join(gres, ",")
}
