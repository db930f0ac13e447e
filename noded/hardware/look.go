package hardware

import (
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// look.go is what a look at the machine goes by.

// Look says which node the machine is, and what is known of it before.
type Look struct {
	Name       string
	Login      bool         // it has no hardware that counts
	Virtual    bool         // the configuration's word is taken for its hardware
	Config     *conf.Config // nil: none
	ConfigPath string       // files that gres.conf names may lie beside it
	AsIs       bool         // the node's line in the configuration does not count
	GPUs       gpu.Source   // nil: nowhere
	KernelRoot string       // of /proc/driver/nvidia and /sys, for AutoDetect=nvidia; "": /
	TmpFS      string       // whose size is TmpDisk
	BootID     string       // of a boot that begins now, for tests; "": the kernel's
}

// nodeDef is the node as the configuration defines it, nil where there is none.
func (o *Look) nodeDef() *model.NodeDef {
	if o.Config == nil || o.AsIs {
		return nil
	}
	for _, def := range o.Config.Model().Nodes {
		if def.Name == o.Name {
			return def
		}
	}
	return nil
}
