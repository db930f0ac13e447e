package hardware

import (
	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
)

// UnitNames says how this node's units are named in jobs' environments: gres.conf chooses the variables, the
// units that were found say everything else. With enforced the kernel holds jobs to their units.
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
