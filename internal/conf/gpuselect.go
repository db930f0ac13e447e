package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// gpuselect.go reads the settings for the choice of a job's GPUs, GpuSelectPolicy, GpuScoreWeights, DefaultGpuBind, and
// for GPUs that jobs leave idle, GpuIdlePolicy.

// GPUScoreWeights are the weights of GpuSelectPolicy=leastused.
type GPUScoreWeights struct{ Mem, Util, Temp, Idle int32 }

func defaultScoreWeights() GPUScoreWeights {
	return GPUScoreWeights{Mem: 40, Util: 30, Temp: 20, Idle: 10}
}

// maxScoreWeight bounds one weight.
const maxScoreWeight = 1000

// readGPUSelect reads topology,pack|spread|coolest|leastused,firstnode.
func readGPUSelect(v string) ([]string, fault) {
	var out []string
	kinds := 0
	for _, w := range splitList(strings.ToLower(v)) {
		switch w {
		case "tag":
			return nil, fault{"'tag' is no policy: GPUs that have a job's model loaded (--prefer=model:NAME) always come " +
				"first; GpuCacheTags says how many models of a GPU are remembered", "topology,leastused"}
		case "pack", "spread", "coolest", "leastused":
			kinds++
		case "topology", "firstnode":
		default:
			return nil, fault{shown(w) + " is none of topology, pack, spread, coolest, leastused, firstnode",
				"topology,leastused"}
		}
		if slices.Contains(out, w) || kinds > 1 {
			return nil, fault{"only one of pack, spread, coolest and leastused, once", "topology,leastused"}
		}
		out = append(out, w)
	}
	if k := slices.Index(out, "topology"); k > 0 {
		return nil, fault{"topology must come first: write it before the others", "topology," +
			strings.Join(slices.Delete(out, k, k+1), ",")}
	}
	return out, fault{}
}

// readScoreWeights reads mem:40,util:30,temp:20,idle:10; values that are not named have weight 0.
func readScoreWeights(v string) (w GPUScoreWeights, f fault) {
	for _, item := range splitList(strings.ToLower(v)) {
		name, num, _ := strings.Cut(item, ":")
		n, err := strconv.ParseInt(num, 10, 32)
		at := map[string]*int32{"mem": &w.Mem, "util": &w.Util, "temp": &w.Temp, "idle": &w.Idle}[name]
		if err != nil || n < 0 || n > maxScoreWeight || at == nil {
			return w, fault{fmt.Sprintf("%s is not mem, util, temp or idle with a weight from 0 to %d", shown(item),
				maxScoreWeight), "mem:40,util:30,temp:20,idle:10"}
		}
		*at = int32(n)
	}
	return w, fault{}
}

func (w GPUScoreWeights) String() string {
	return fmt.Sprintf("mem:%d,util:%d,temp:%d,idle:%d", w.Mem, w.Util, w.Temp, w.Idle)
}

// gpuSelect combines the policy and the weights.
func (c *Config) gpuSelect() model.GPUSelect {
	var g model.GPUSelect
	for _, w := range c.GpuSelectPolicy {
		switch w {
		case "spread":
			g.Spread = true
		case "firstnode":
			g.FirstNode = true
		case "coolest":
			g.Temp = 1
		case "leastused":
			x := c.GpuScoreWeights
			g.Mem, g.Util, g.Temp, g.Idle = x.Mem, x.Util, x.Temp, x.Idle
		}
	}
	g.First = g.ByCost() && !slices.Contains(c.GpuSelectPolicy, "topology")
	return g
}

// readGPUBind reads none, closest, single:N or per_task:N.
func readGPUBind(v string) (string, fault) {
	v = strings.ToLower(v)
	how, num, counted := strings.Cut(v, ":")
	n, err := strconv.Atoi(num)
	switch {
	case !counted && (v == "none" || v == "closest" || v == ""):
		return v, fault{}
	case counted && (how == "single" || how == "per_task") && err == nil && n >= 1 && n <= 1024:
		return v, fault{}
	}
	return "", fault{"the default binding is none, closest, single:N or per_task:N", "none"}
}

const (
	gpuIdleExample = "warn@30m,cancel@2h"
	maxGPUIdleS    = 366 * 24 * 3600
)

// readGPUIdle reads GpuIdlePolicy: none, or warn@TIME, cancel@TIME and mail joined with commas. TIME may end in s, m, h
// or d; the default is minutes.
func readGPUIdle(v string) (model.GPUIdle, fault) {
	var p model.GPUIdle
	if strings.EqualFold(v, "none") {
		return p, fault{}
	}
	for _, item := range splitList(v) {
		if strings.EqualFold(item, "mail") {
			p.Mail = true
			continue
		}
		what, when, timed := strings.Cut(item, "@")
		n, ok := idleSeconds(when)
		switch {
		case !timed || !ok:
			return p, fault{shown(item) + " is not warn@TIME or cancel@TIME", gpuIdleExample}
		case strings.EqualFold(what, "warn"):
			p.WarnS = n
		case strings.EqualFold(what, "cancel"):
			p.CancelS = n
		default:
			return p, fault{shown(what) + " is neither warn nor cancel", gpuIdleExample}
		}
	}
	if p.Mail && p.WarnS == 0 {
		return model.GPUIdle{}, fault{"mail needs a warning, warn@TIME", gpuIdleExample + ",mail"}
	}
	if p.WarnS > 0 && p.CancelS > 0 && p.CancelS <= p.WarnS {
		return model.GPUIdle{}, fault{"jobs would be cancelled before the warning", gpuIdleExample}
	}
	return p, fault{}
}

// idleSeconds reads 30m.
func idleSeconds(v string) (int64, bool) {
	unit := int64(60)
	if n := len(v); n > 0 {
		if i := strings.IndexByte("smhd", v[n-1]); i >= 0 {
			v, unit = v[:n-1], [...]int64{1, 60, 3600, 86400}[i]
		}
	}
	n, err := strconv.ParseInt(v, 10, 32)
	return n * unit, err == nil && n > 0 && n*unit <= maxGPUIdleS
}

func showGPUIdle(p model.GPUIdle) string {
	var out []string
	for _, x := range [...]struct {
		what string
		s    int64
	}{{"warn", p.WarnS}, {"cancel", p.CancelS}} {
		switch {
		case x.s == 0:
		case x.s%60 == 0:
			out = append(out, fmt.Sprintf("%s@%dm", x.what, x.s/60))
		default:
			out = append(out, fmt.Sprintf("%s@%ds", x.what, x.s))
		}
	}
	if p.Mail {
		out = append(out, "mail")
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ",")
}
