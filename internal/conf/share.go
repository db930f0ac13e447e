package conf

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// Shares of GPUs: the units of mps and shard are divided over the node's whole GPUs, by gres.conf's File lines,
// otherwise evenly. MIG instances have no shares.

// maxShares bounds the units of one sharing resource on a node: as many as 64 GPUs with 1,024 each.
const maxShares = 1 << 16

// defaultGPUMargin is GpuMemSafetyMargin where it is not given, MiB.
const defaultGPUMargin = 2000

// share divides a node's sharing resources: each entry becomes one for each type of GPU, with the units of each GPU.
func (c *Config) share(d *model.NodeDef) {
	if !slices.ContainsFunc(d.Gres, func(g model.GresDef) bool { return isShared(g.Name) }) {
		return
	}
	records, _ := c.Gres.For(d.Name)
	gpus := gpusOf(d, records)
	if len(gpus) == 0 || len(gpus) > model.MaxSharedGPUs {
		return // reported by checkShares
	}
	given := d.Gres
	d.Gres = nil
	next := map[string]int32{}
	for _, g := range given {
		if !isShared(g.Name) {
			d.Gres = append(d.Gres, g)
			continue
		}
		counts := shareCounts(&g, records, gpus)
		one := slices.ContainsFunc(records,
			func(r GresRecord) bool { return r.Name == g.Name && slices.Contains(r.Flags, "one_sharing") })
		last := -1
		for u, n := range counts {
			if n == 0 {
				continue
			}
			if last < 0 || d.Gres[len(d.Gres)-1].Type != gpus[u].typ {
				d.Gres = append(d.Gres, model.GresDef{Name: g.Name, Type: gpus[u].typ, First: next[g.Name], OneSharing: one})
				last = u
			}
			e := &d.Gres[len(d.Gres)-1]
			e.Over = append(e.Over, model.Share{GPU: int32(u), Count: n})
			e.Count += n
			next[g.Name] += n
		}
	}
}

// sharedUnit is one GPU in the configuration.
type sharedUnit struct {
	typ   string
	files []string
}

// mig reports whether it is a MIG instance: its type is a profile, or its files are an instance's.
func (u *sharedUnit) mig() bool {
	return isProfile(u.typ) ||
		slices.ContainsFunc(u.files, func(f string) bool { return strings.Contains(f, "/nvidia-caps/") })
}

// shares reports whether units of a sharing resource may be of this GPU.
func (u *sharedUnit) shares(g *model.GresDef) bool {
	return !u.mig() && !model.IsRemote(model.GPUName, u.typ) && (g.Type == "" || strings.EqualFold(u.typ, g.Type))
}

// isProfile reports whether a type of GPU is that of MIG instances: 1g.10gb, 1g.10gb+me, a100_1g.5gb.
func isProfile(typ string) bool { return migProfile.MatchString(typ) }

var migProfile = regexp.MustCompile(`(?i)(^|[^0-9a-z])[0-9]g\.[0-9]+gb([^0-9a-z]|$)`)

// gpusOf lists a node's GPUs by index, with the files that gres.conf has for them.
func gpusOf(d *model.NodeDef, records []GresRecord) []sharedUnit {
	total := 0
	for i := range d.Gres {
		if g := &d.Gres[i]; g.Name == model.GPUName {
			total = max(total, int(g.First+g.Count))
		}
	}
	if total > model.MaxSharedGPUs {
		return make([]sharedUnit, total)
	}
	out := make([]sharedUnit, total)
	given := make([]int, len(d.Gres))
	for i := range d.Gres {
		if g := &d.Gres[i]; g.Name == model.GPUName {
			for u := g.First; u < g.First+g.Count; u++ {
				out[u].typ = g.Type
			}
		}
	}
	for i := range records {
		r := &records[i]
		if r.Name != model.GPUName {
			continue
		}
		for n := range min(r.Count, model.MaxSharedGPUs) {
			for k := range d.Gres {
				g := &d.Gres[k]
				if g.Name != model.GPUName || r.Type != "" && g.Type != "" && !strings.EqualFold(r.Type, g.Type) ||
					given[k] >= int(g.Count) {
					continue
				}
				u := &out[int(g.First)+given[k]]
				given[k]++
				if int(n) < len(r.Files) {
					u.files = r.Files[n : n+1]
				} else {
					u.files = r.MultipleFiles
				}
				break
			}
		}
	}
	return out
}

// findGPU gives the index of the GPU with a device file, or -1. If gres.conf names no files of GPUs, the number in the
// file's name is the index.
func findGPU(gpus []sharedUnit, file string) int {
	named := false
	for u := range gpus {
		named = named || len(gpus[u].files) > 0
		if slices.Contains(gpus[u].files, file) {
			return u
		}
	}
	n, err := strconv.Atoi(file[len(strings.TrimRight(file, "0123456789")):])
	if named || err != nil || n >= len(gpus) {
		return -1
	}
	return n
}

// shareCounts gives how many units of an entry each GPU has, by index; no more than the entry has in all.
func shareCounts(g *model.GresDef, records []GresRecord, gpus []sharedUnit) []int32 {
	counts := make([]int32, len(gpus))
	pool, described := int64(g.Count), false
	for i := range records {
		r := &records[i]
		if r.Name != g.Name || r.Type != "" && g.Type != "" && !strings.EqualFold(r.Type, g.Type) {
			continue
		}
		if !described {
			pool, described = 0, true
		}
		if len(r.Files) == 0 {
			pool += r.Count
			continue
		}
		for _, file := range r.Files {
			if u := findGPU(gpus, file); u >= 0 && gpus[u].shares(g) {
				counts[u] += int32(min(r.Count/int64(len(r.Files)), maxShares))
			}
		}
	}
	var of []int
	for u := range gpus {
		if gpus[u].shares(g) {
			of = append(of, u)
		}
	}
	for k, u := range of {
		n := pool / int64(len(of))
		if int64(k) < pool%int64(len(of)) {
			n++
		}
		counts[u] += int32(min(n, maxShares))
	}
	left := g.Count
	for u := range counts {
		counts[u] = min(counts[u], left)
		left -= counts[u]
	}
	return counts
}

// checkShares checks that a node with a sharing resource has GPUs to share.
func (l *loader) checkShares(n *NodeDef) (out []mismatch) {
	line := pos{n.File, n.Line}
	gpus := int64(0)
	for _, g := range n.Gres {
		if g.Name == model.GPUName {
			gpus += g.Count
		}
	}
	for _, g := range n.Gres {
		switch {
		case !isShared(g.Name):
		case gpus == 0:
			out = append(out, mismatch{line, Error, fmt.Sprintf("Gres=%s shares GPUs, and the node has none", g),
				"write Gres=gpu:N," + g.String()})
		case gpus > model.MaxSharedGPUs:
			out = append(out, mismatch{line, Error,
				fmt.Sprintf("Gres=%s shares %d GPUs, the limit is %d on a node", g, gpus, model.MaxSharedGPUs), "leave " + g.Name +
					" out"})
		case g.Count > maxShares:
			out = append(out, mismatch{line, Error, fmt.Sprintf("Gres=%s: more than %d shares", g, maxShares),
				"give each GPU fewer"})
		case g.Type != "" && !slices.ContainsFunc(n.Gres,
			func(o GresCount) bool { return o.Name == model.GPUName && strings.EqualFold(o.Type, g.Type) }):
			out = append(out, mismatch{line, Error, fmt.Sprintf("Gres=%s: the node has no GPUs of type %s", g, g.Type),
				fmt.Sprintf("write %s:%d, it is divided over all GPUs", g.Name, g.Count)})
		}
	}
	if len(out) > 0 || !slices.ContainsFunc(n.Gres, func(g GresCount) bool { return isShared(g.Name) }) {
		return out
	}
	d := l.cfg.nodeModel(n)
	records, _ := l.cfg.Gres.For(n.Name)
	units := gpusOf(d, records)
	for _, g := range n.Gres {
		def := model.GresDef{Name: g.Name, Type: g.Type, Count: int32(g.Count)}
		if isShared(g.Name) && g.Count > 0 && slices.ContainsFunc(units, func(u sharedUnit) bool { return u.mig() }) &&
			!slices.ContainsFunc(shareCounts(&def, records, units), func(n int32) bool { return n > 0 }) {
			out = append(out, mismatch{line, Error,
				fmt.Sprintf("Gres=%s would share MIG instances, which can't be shared", g),
				"leave " + g.String() + " out, or share whole GPUs"})
		}
	}
	for i := range records {
		r := &records[i]
		if !isShared(r.Name) || !slices.ContainsFunc(n.Gres, func(g GresCount) bool { return g.Name == r.Name }) {
			continue
		}
		for _, file := range r.Files {
			switch u := findGPU(units, file); {
			case u < 0:
				out = append(out, mismatch{pos{r.File, r.Line}, Error,
					fmt.Sprintf("%s is not the file of one of the node's GPUs", file),
					"name the file of a line Name=gpu"})
			case units[u].mig():
				out = append(out, mismatch{pos{r.File, r.Line}, Warning,
					fmt.Sprintf("%s is the file of a MIG instance, which can't be shared: its part of %s has no effect", file,
						r.Name), "name the files of whole GPUs"})
			}
		}
	}
	return out
}
