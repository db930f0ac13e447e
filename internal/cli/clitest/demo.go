package clitest

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// DemoNodes are the nodes for which sinfo 22.05 was made to print what the tests expect.
func DemoNodes() []*proto.NodeInfo {
	var out []*proto.NodeInfo
	for i, name := range []string{"n1", "n2", "n3", "n4", "g1", "g2", "bad1"} {
		d := &model.NodeDef{Name: name, CPUs: 4, Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1,
			MemMiB: 8000 + int64(i)*10, Weight: 1}
		n := &model.Node{Def: d, Link: model.LinkUp, Version: "22.05"}
		use := func(cpus int, gpus int) {
			n.Jobs, n.UsedCPUs, n.UsedMem = []model.JobID{1}, model.UpTo(cpus), int64(cpus)*1000
			if gpus > 0 {
				n.UsedGres = []model.GresAlloc{{Name: "gpu", Index: model.UpTo(gpus)}}
			}
		}
		if name[0] == 'g' {
			d.CPUs, d.CoresPerSocket, d.MemMiB, d.Features = 16, 16, 64000, []string{"a100", "nvlink"}
			d.Gres = []model.GresDef{{Name: "gpu", Type: "a100", Count: 8}}
		}
		reason := func(text string) {
			n.Reason, n.ReasonBy, n.ReasonAt = text, "root", T0+model.Time(i)*1000
		}
		info := &proto.NodeInfo{Node: n, LoadMilli: 1500 + int64(i)*10, FreeMemMiB: 1000 + int64(i)}
		switch name {
		case "n2":
			use(1, 0)
		case "n3":
			use(4, 0)
		case "n4":
			n.Admin = model.NodeDrain
			reason("bad disk in slot 4 of the chassis")
		case "g1":
			use(8, 3)
			n.Admin = model.NodeDrain
			reason("fan")
		case "bad1":
			n.Link = model.LinkLost
			reason("Not responding")
			info.LoadMilli, info.FreeMemMiB = -1, -1
		}
		out = append(out, info)
	}
	return out
}

// DemoParts are the partitions of DemoNodes.
func DemoParts() []*model.Partition {
	return []*model.Partition{
		{Name: "batch", Default: true, Nodes: []string{"n1", "n2", "n3", "n4"}, MaxTimeS: 86400, MinNodes: 1, PriorityTier: 1,
			PriorityJobFactor: 1, OverSubscribe: "NO"},
		{Name: "gpu", Nodes: []string{"g1", "g2"}, MaxTimeS: model.Unlimited, DefTimeS: 3600, MinNodes: 1, MaxNodes: 2,
			PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: "NO"},
		{Name: "all", Nodes: []string{"n1", "n2", "n3", "n4", "g1", "g2", "bad1"}, State: model.PartDrain, MaxTimeS: 5400,
			MinNodes: 1, PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: "EXCLUSIVE"},
		{Name: "empty", State: model.PartDown, MaxTimeS: 5400, MinNodes: 1, PriorityTier: 1, PriorityJobFactor: 1,
			OverSubscribe: "FORCE:4"},
	}
}

const T0 model.Time = 1_700_000_000_000 // 2023-11-14T22:13:20 in UTC
