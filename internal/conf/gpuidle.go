package conf

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

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
