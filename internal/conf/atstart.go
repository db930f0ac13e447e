package conf

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"gbatch/internal/model"
)

// atStart gives the settings of cgroup.conf, gres.conf, job_container.conf and oci.conf that gnoded reads only when it
// starts, so that a reconfigure can say which changes need a restart. The units of gres.conf are represented by a hash.
func (c *Config) atStart() []model.KV {
	g := &c.Cgroup
	percent := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) + "%" }
	out := []model.KV{
		{Key: "CgroupPlugin", Value: g.Plugin},
		{Key: "CgroupMountpoint", Value: g.Mountpoint},
		{Key: "ConstrainCores", Value: showBool(g.ConstrainCores)},
		{Key: "ConstrainDevices", Value: showBool(g.ConstrainDevices)},
		{Key: "ConstrainRAMSpace", Value: showBool(g.ConstrainRAMSpace)},
		{Key: "ConstrainSwapSpace", Value: showBool(g.ConstrainSwapSpace)},
		{Key: "AllowedRAMSpace", Value: percent(g.AllowedRAMSpacePct)},
		{Key: "AllowedSwapSpace", Value: percent(g.AllowedSwapSpacePct)},
		{Key: "MaxRAMPercent", Value: percent(g.MaxRAMPercent)},
		{Key: "MaxSwapPercent", Value: percent(g.MaxSwapPercent)},
		{Key: "MinRAMSpace", Value: strconv.FormatInt(g.MinRAMSpaceMiB, 10)},
		{Key: "MemorySwappiness", Value: strconv.FormatInt(g.MemorySwappiness, 10)},
		{Key: "AllowedDevices", Value: g.AllowedDevices},
		{Key: "AllowedDevicesFile", Value: g.AllowedDevicesFile},
	}
	for i := range out {
		out[i].Key = "cgroup.conf " + out[i].Key
	}
	for i := range c.Containers {
		out = append(out, model.KV{Key: ContainerFile, Value: c.Containers[i].show()})
	}
	if c.OCI.Run != "" {
		out = append(out, model.KV{Key: OCIFile, Value: fmt.Sprintf("%+v", c.OCI)})
	}
	h := fnv.New32a()
	for i := range c.Gres.Records {
		r := &c.Gres.Records[i]
		// Writing to a hash does not fail.
		_, _ = fmt.Fprintf(h, "%q %q %q %d %q %q %q %q %q %q\n", r.NodeExpr, r.Name, r.Type, r.Count, r.Files,
			r.MultipleFiles, r.Endpoints, r.Flags, r.UniqueID, r.AutoDetect)
	}
	_, _ = fmt.Fprintf(h, "%q", c.Gres.AutoDetect)
	return append(out, model.KV{Key: "gres.conf",
		Value: fmt.Sprintf("%d lines, sum %08x", len(c.Gres.Records), h.Sum32())})
}
