package ask

import (
	"fmt"
	"strings"

	"gbatch/internal/model"
)

// LicensesThere names the licenses that a cluster has, for the error about an unknown one.
func LicensesThere(cfg *model.Config) string {
	if len(cfg.Licenses) == 0 {
		return "the cluster has no licenses (Licenses= in gbatch.conf)"
	}
	var out []string
	for _, l := range cfg.Licenses {
		out = append(out, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	return "the cluster's licenses are " + strings.Join(out, ", ")
}
