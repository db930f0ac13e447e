package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// layout.go has the MIG instances into which GPUs can be divided. Sizes follow from the GPU's memory as NVIDIA's MIG
// user guide lists them: A100, H100, H200, B200 have 7 slices of compute and 8 of memory, A30 and RTX PRO 6000 have 4
// of each. The driver's own list (OfferedProfiles) has precedence.

// migPart is a profile: how many slices it takes.
type migPart struct {
	name            string
	compute, memory int
}

// migParts gives a GPU's profiles, smallest first, and its slices. None if its memory is unknown.
func migParts(d *Device) (parts []migPart, compute, memory int) {
	sizes, compute, memory := [][2]int{{1, 1}, {1, 2}, {2, 2}, {3, 4}, {4, 4}, {7, 8}}, 7, 8
	if strings.Contains(d.Type, "a30") && d.Type != "a300" || strings.Contains(d.Type, "rtxpro") {
		sizes, compute, memory = [][2]int{{1, 1}, {2, 2}, {4, 4}}, 4, 4
	}
	all := (d.MemMiB + 1023) / 1024
	if all < 8 {
		return nil, compute, memory
	}
	for _, s := range sizes {
		gib := (int64(s[1])*all + int64(memory)/2) / int64(memory)
		parts = append(parts, migPart{fmt.Sprintf("%dg.%dgb", s[0], gib), s[0], s[1]})
	}
	return parts, compute, memory
}

// Layout gives the profiles of the instances that a layout divides this GPU into, none for off: training is two equal
// halves, inference as many of the smallest as possible, balanced one half and smaller ones; any other text is a list
// of profiles. offered is the driver's list for the GPU; nil: the driver has none before the mode is on, and the
// profiles follow from the GPU's memory.
func Layout(d *Device, layout string, offered []string) ([]string, error) {
	parts, compute, memory := migParts(d)
	name := func(slices int) string {
		for _, p := range parts {
			if p.compute == slices {
				return p.name
			}
		}
		return ""
	}
	var out []string
	switch layout {
	case "off":
		return nil, nil
	case "training", "inference", "balanced":
		if len(parts) == 0 {
			return nil, fmt.Errorf("GPU %d (%s): its memory is not known, so layout=%s has no sizes; list profiles", d.Index,
				d.UUID, layout)
		}
		half := compute / 2 // 3 of 7, 2 of 4
		switch layout {
		case "training":
			out = []string{name(half), name(half)}
		case "inference":
			out = slices.Repeat([]string{name(1)}, compute)
		default:
			if half > 2 {
				out = []string{name(half), name(2), name(1), name(1)}
			} else {
				out = []string{name(half), name(1), name(1)}
			}
		}
	default:
		out = strings.Split(layout, ",")
	}
	known := offered
	if len(known) == 0 {
		for _, p := range parts {
			known = append(known, p.name)
		}
	}
	needC, needM, all := 0, 0, true
	for _, p := range out {
		plain, _, special := strings.Cut(p, "+")
		plain, _, less := strings.Cut(plain, "-")
		if len(known) > 0 && !slices.Contains(known, p) &&
			(len(offered) > 0 || !special && !less || !slices.Contains(known, plain)) {
			return nil, fmt.Errorf("GPU %d (%s, %d GiB) has no profile %s; it has %s", d.Index, d.Type, (d.MemMiB+1023)/1024, p,
				strings.Join(known, ", "))
		}
		k := slices.IndexFunc(parts, func(x migPart) bool { return x.name == plain })
		if k < 0 {
			all = false
			continue
		}
		needC, needM = needC+parts[k].compute, needM+parts[k].memory
	}
	if all && len(parts) > 0 && (needC > compute || needM > memory) {
		return nil, fmt.Errorf("GPU %d (%s, %d GiB) has no room for %s: they need %d of %d slices and %d of %d parts of "+
			"its memory",
			d.Index, d.Type, (d.MemMiB+1023)/1024, strings.Join(out, ","), needC, compute, needM, memory)
	}
	return out, nil
}

var offeredForm = regexp.MustCompile(`\bMIG (\d+g\.\d+gb[a-z.+-]*)`)

// OfferedProfiles reads the profiles from the output of nvidia-smi mig -lgip.
func OfferedProfiles(text string) []string {
	var out []string
	for _, m := range offeredForm.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}
