package hardware

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// merge.go compares the lines of gres.conf with the driver's devices, as Slurm does with AutoDetect: each unit of a
// line must be a detected one of that type and, if the line has them, with that file, those cores and those links. Then
// the lines select the units, and the driver describes them. A detected unit that is in no line is not used.

// lineUnit is one unit of a line.
type lineUnit struct {
	line  *conf.GresRecord
	files []string
}

func (w *lineUnit) text() string {
	s := "Name=" + w.line.Name
	if w.line.Type != "" {
		s += " Type=" + w.line.Type
	}
	if len(w.files) > 0 {
		s += " File=" + strings.Join(w.files, ",")
	}
	if w.line.UniqueID != "" {
		s += " UniqueId=" + w.line.UniqueID
	}
	return s
}

// merge gives the detected units of lines.
func (f *finder) merge(name string, lines []*conf.GresRecord) stock {
	s := stock{name: name}
	found := f.take(name)
	used := make([]bool, len(found))
	for _, w := range wantedOf(lines) {
		k := -1
		for i := range found {
			if !used[i] && f.differs(&w, &found[i]) == "" {
				k = i
				break
			}
		}
		if k < 0 {
			f.problem("%s: %s: %s", place(w.line), w.text(), f.whyNone(&w, found, used))
			continue
		}
		used[k] = true
		u := found[k]
		u.line, u.Flags = w.line, w.line.Flags
		if w.line.Type != "" {
			u.Type = w.line.Type
		}
		if len(w.line.Cores) > 0 {
			u.Near = f.coresToCPUs(w.line.Cores)
		}
		s.units = append(s.units, u)
	}
	var rest []string
	for i := range found {
		if !used[i] {
			f.unused = append(f.unused, found[i].Files)
			rest = append(rest, found[i].text())
		}
	}
	if len(rest) > 0 && len(f.problems) == 0 {
		f.note("%s in gres.conf and not used: %s",
			countOf(len(rest), "detected "+name+" is not", "detected "+name+"s are not"), listText(rest))
	}
	return s
}

// wantedOf gives the units of lines, one by one.
func wantedOf(lines []*conf.GresRecord) []lineUnit {
	var out []lineUnit
	for _, r := range lines {
		switch {
		case len(r.MultipleFiles) > 0:
			out = append(out, lineUnit{r, r.MultipleFiles})
		case len(r.Files) > 0:
			for _, path := range r.Files {
				out = append(out, lineUnit{r, []string{path}})
			}
		default:
			for range min(r.Count, maxFound) {
				out = append(out, lineUnit{r, nil})
			}
		}
	}
	return out
}

// differs names the difference between a unit and a line, with both values, or "".
func (f *finder) differs(w *lineUnit, u *Found) string {
	r := w.line
	broken := u.Dev.Fault != "" // not all that should be known of it is
	switch {
	case len(w.files) > 0 && !u.isAt(w.files):
		return fmt.Sprintf("the driver's is %s", strings.Join(u.Files, ","))
	case r.UniqueID != "" && !strings.EqualFold(r.UniqueID, u.UUID):
		return fmt.Sprintf("UniqueId is %s, and the driver says %s", r.UniqueID, u.UUID)
	case !u.fits(r.Type):
		return fmt.Sprintf("it is %s, which is type %s", article(u), u.Type)
	case broken:
	case len(r.Cores) > 0 && !u.Near.Empty() && !slices.Equal(f.coresToCPUs(r.Cores), u.Near):
		return fmt.Sprintf("Cores=%s, and the driver says %s", hostlist.FormatIndexes(r.Cores), f.coresText(u.Near))
	case u.Inst == nil && !f.sameLinks(r.Links, u.Dev.Links):
		return fmt.Sprintf("Links=%s, and the driver says %s", linksText(r.Links), intsText(u.Dev.Links))
	}
	return ""
}

// article names the product of a unit.
func article(u *Found) string {
	s := u.Product
	if u.Profile != "" {
		s = "a " + u.Profile + " instance of " + s
	}
	return s
}

// sameLinks compares a line's connections with the detected ones. A list of peers says only that those are connected.
// Connections to an unusable GPU are not detected, and not compared. If a GPU is divided, the line counts its instances
// as units and the driver does not: then nothing is compared.
func (f *finder) sameLinks(l conf.Links, found []int) bool {
	if len(found) == 0 || slices.ContainsFunc(f.listed, func(d gpu.Device) bool { return len(d.MIG) > 0 }) {
		return true
	}
	broken := func(i int) bool { return i < len(f.listed) && f.listed[i].Fault != "" }
	for _, p := range l.Peers {
		if p >= len(found) || found[p] == 0 && !broken(p) {
			return false
		}
	}
	if len(l.Counts) == 0 {
		return true
	}
	if len(l.Counts) != len(found) {
		return false
	}
	for i, n := range l.Counts {
		if n != found[i] && !broken(i) {
			return false
		}
	}
	return true
}

// whyNone says why no unit matches a line.
func (f *finder) whyNone(w *lineUnit, found []Found, used []bool) string {
	if len(found) == 0 {
		return "the driver finds none"
	}
	if len(w.files) > 0 || w.line.UniqueID != "" {
		for i := range found {
			u := &found[i]
			here := len(w.files) > 0 && u.isAt(w.files) || len(w.files) == 0 && strings.EqualFold(w.line.UniqueID, u.UUID)
			if here && used[i] {
				return "another line has it already"
			}
			if why := f.differs(w, u); here && why != "" {
				return why
			}
		}
		if len(w.files) > 0 {
			if why := unusable(w.files[0]); why != "" {
				return why
			}
		}
		return fmt.Sprintf("the driver has no such device; it finds %s", foundText(found))
	}
	why := ""
	for i := range found {
		if !used[i] {
			if d := f.differs(w, &found[i]); why == "" || found[i].fits(w.line.Type) {
				why = fmt.Sprintf("%s: %s", found[i].text(), d)
			}
		}
	}
	if why == "" {
		return fmt.Sprintf("the driver finds only %s", foundText(found))
	}
	return "no detected one is like that; " + why
}

// foundText counts the detected units by type.
func foundText(found []Found) string {
	return countText(&stock{name: found[0].Name, units: found})
}

// coresText gives the cores of CPUs.
func (f *finder) coresText(cpus model.Bits) string {
	var cores []int
	cpus.Each(func(cpu int) bool {
		if c := cpu / f.threads; len(cores) == 0 || cores[len(cores)-1] != c {
			cores = append(cores, c)
		}
		return true
	})
	return hostlist.FormatIndexes(cores)
}

func linksText(l conf.Links) string {
	if len(l.Counts) > 0 {
		return intsText(l.Counts)
	}
	return intsText(l.Peers)
}

func intsText(list []int) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, ",")
}
