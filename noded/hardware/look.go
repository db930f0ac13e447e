package hardware

import (
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// look.go has the input for reading the machine.

// Look names the machine's node and its configuration.
type Look struct {
	Name       string
	Login      bool         // it has no hardware that counts
	Virtual    bool         // its hardware is taken from the configuration
	Config     *conf.Config // nil: none
	ConfigPath string       // paths in gres.conf may be relative to its directory
	AsIs       bool         // ignore the node's line in the configuration
	GPUs       gpu.Source   // nil: nowhere
	KernelRoot string       // of /proc/driver/nvidia and /sys, for AutoDetect=nvidia; "": /
	TmpFS      string       // whose size is TmpDisk
	BootID     string       // of a boot that begins now, for tests; "": the kernel's
}

// nodeDef is the node as the configuration defines it, nil if there is none.
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
