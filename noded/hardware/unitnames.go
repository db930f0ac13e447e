package hardware

import (
	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
)

// UnitNames gives the names of this node's units in jobs' environments: the variables are from gres.conf, the rest from
// the units found. enforced means that the kernel denies jobs other units.
func UnitNames(c *conf.Config, node string, t *Table, enforced bool) *jobenv.Units {
	u := &jobenv.Units{}
	if t != nil {
		u.UUID, u.Parent = t.UUID, t.parent
		if enforced {
			u.Relative = t.firm
		}
	}
	if c == nil {
		return u
	}
	records, detect := c.Gres.For(node)
	var flags []string
	for i := range records {
		if records[i].Name == gpuName {
			flags = append(flags, records[i].Flags...)
		}
	}
	u.Choose(flags, detect)
	return u
}
