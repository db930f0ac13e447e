package cgroup

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "github.com/containerd/cgroups/v3"
	_ "github.com/tidwall/btree"
)
