package noded

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// devices.go finds what a node has of generic resources: GPUs by asking the driver or by the files that gres.conf names,
// anything else as configured. What is missing is reported missing, and the leader drains the node.

// findGres gives what is there, and sentences about what isn't as it should be.
func findGres(o *Options) (found []model.GresDef, notes []string) {
	def := o.nodeDef()
	var records []conf.GresRecord
	detect := ""
	if o.Config != nil {
		records, detect = o.Config.Gres.For(o.Name)
	}
	named := map[string]bool{} // resources that gres.conf describes
	for i := range records {
		r := &records[i]
		if r.Name == "gpu" && asksDriver(detect) {
			continue // the driver knows better
		}
		named[r.Name] = true
		n := int64(len(r.MultipleFiles))
		switch {
		case len(r.Files) > 0:
			n = 0
			for _, path := range r.Files {
				if _, err := os.Stat(path); err != nil {
					notes = append(notes, fmt.Sprintf("%s:%d: %s is not on this node: %v", r.File, r.Line, r.Name, err))
					continue
				}
				n++
			}
			if r.Count > int64(len(r.Files)) && n == int64(len(r.Files)) {
				n = r.Count // shares of the files
			}
		case n == 0:
			n = r.Count
		}
		found = addGres(found, r.Name, r.Type, int32(n))
	}
	if !named["gpu"] && (asksDriver(detect) || detect == "") && o.GPUs != nil {
		devices, err := o.GPUs.Devices()
		switch {
		case err == nil:
			for _, d := range devices {
				for _, u := range driverUnits(def, &d) {
					found = addGres(found, u.name, u.typ, 1)
					named[u.name] = true
				}
			}
		case errors.Is(err, gpu.ErrNoDriver):
		case asksDriver(detect) || wantsGPUs(def):
			notes = append(notes, "the GPUs of this node are not known: "+err.Error())
		}
		named["gpu"] = true
	}
	if def == nil {
		return found, notes
	}
	for _, g := range def.Gres {
		// fake: GPUs that the configuration only claims. Resources without files are what the configuration says they are.
		if g.Name == "gpu" && strings.HasPrefix(detect, "fake") || g.Name != "gpu" && !named[g.Name] {
			found = addGres(found, g.Name, g.Type, g.Count)
		}
	}
	return found, notes
}

func asksDriver(detect string) bool { return detect == "nvml" || detect == "nvidia" }

func wantsGPUs(def *model.NodeDef) bool { return def != nil && hasGPUs(def.Gres) }

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

// gpuType gives a device the type that the configuration has for it: as in Slurm, one that is part of the product's name
// fits.
func gpuType(def *model.NodeDef, d *gpu.Device) string {
	if def == nil {
		return d.Type
	}
	flat := func(s string) string {
		return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(s))
	}
	for _, g := range def.Gres {
		if g.Name == "gpu" && g.Type != "" && (g.Type == d.Type || strings.Contains(flat(d.Name), flat(g.Type))) {
			return g.Type
		}
	}
	return d.Type
}
