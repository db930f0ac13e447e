package conf

import (
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestShares: units of mps and shard are divided over the GPUs as gres.conf's files say, otherwise evenly, and have the
// types of their GPUs.
func TestShares(t *testing.T) {
	over := func(counts ...int32) (out []model.Share) {
		for u, n := range counts {
			if n > 0 {
				out = append(out, model.Share{GPU: int32(u), Count: n})
			}
		}
		return out
	}
	for _, c := range []struct {
		what, gres, file string
		want             []model.GresDef // of the sharing resources
	}{
		{"evenly", "gpu:a100:4,shard:16", "",
			[]model.GresDef{{Name: "shard", Type: "a100", Count: 16, Over: over(4, 4, 4, 4)}}},
		{"not evenly", "gpu:3,shard:7", "", []model.GresDef{{Name: "shard", Count: 7, Over: over(3, 2, 2)}}},
		{"memory of GPUs", "gpu:2,gpuram:80G", "NodeName=k1 Name=gpuram Count=80G\n",
			[]model.GresDef{{Name: "gpuram", Count: 80, Over: over(40, 40)}}},
		{"several types", "gpu:a100:2,gpu:v100:1,shard:6", "", []model.GresDef{
			{Name: "shard", Type: "a100", Count: 4, Over: over(2, 2)},
			{Name: "shard", Type: "v100", First: 4, Count: 2, Over: []model.Share{{GPU: 2, Count: 2}}}}},
		{"of one type", "gpu:a100:2,gpu:v100:1,shard:v100:6", "",
			[]model.GresDef{{Name: "shard", Type: "v100", Count: 6, Over: []model.Share{{GPU: 2, Count: 6}}}}},
		{"beside MIG instances", "gpu:h100:2,gpu:1g.10gb:7,shard:8", "",
			[]model.GresDef{{Name: "shard", Type: "h100", Count: 8, Over: over(4, 4)}}},
		{"behind MIG instances", "gpu:a100_1g.5gb:1,gpu:2g.20gb+me:2,gpu:a100:1,mps:100", "",
			[]model.GresDef{{Name: "mps", Type: "a100", Count: 100, Over: over(0, 0, 0, 100)}}},
		{"beside an instance by its files", "gpu:2,shard:8", "NodeName=k1 Name=gpu File=/dev/nvidia1\nNodeName=k1 " +
			"Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3\n",
			[]model.GresDef{{Name: "shard", Count: 8, Over: over(8)}}},
		{"the sample", "gpu:a100:8,mps:800", "NodeName=k1 Name=mps Count=800 File=/dev/nvidia[0-7]\n", []model.GresDef{
			{Name: "mps", Type: "a100", Count: 800, Over: over(100, 100, 100, 100, 100, 100, 100, 100)}}},
		{"some files, once", "gpu:4,mps:200,shard:8",
			"NodeName=k1 Name=gpu File=/dev/nvidia[0-3]\nNodeName=k1 Name=mps Count=200 File=/dev/nvidia[2-3] " +
				"Flags=one_sharing\nNodeName=k1 Name=shard Count=8\n", []model.GresDef{
				{Name: "mps", Count: 200, OneSharing: true, Over: []model.Share{{GPU: 2, Count: 100}, {GPU: 3, Count: 100}}},
				{Name: "shard", Count: 8, Over: over(2, 2, 2, 2)}}},
		{"file by file", "gpu:2,shard:10",
			"NodeName=k1 Name=gpu File=/dev/nvidia[4-5]\nNodeName=k1 Name=shard Count=8 File=/dev/nvidia5\nNodeName=k1 " +
				"Name=shard Count=2 File=/dev/nvidia4\n", []model.GresDef{
				{Name: "shard", Count: 10, Over: over(2, 8)}}},
	} {
		got := mustLoad(t, "GresTypes=gpu,mps,shard,gpuram\nNodeName=k1 CPUs=8 Gres="+c.gres+"\nPartitionName=kp Nodes=k1\n",
			GresFile, c.file).Model().Nodes[4].Gres
		var shares []model.GresDef
		for _, g := range got {
			if model.IsShare(g.Name) {
				shares = append(shares, g)
			}
		}
		if !reflect.DeepEqual(shares, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, shares, c.want)
		}
	}
}

// TestSharesOfInstances: shares that only MIG instances could have are refused.
func TestSharesOfInstances(t *testing.T) {
	for _, c := range []struct{ gres, file, want string }{
		{"gpu:1g.10gb:7,shard:8", "", "Gres=shard:8 would share MIG instances, which can't be shared"},
		{"gpu:h100:1,gpu:1g.10gb:7,shard:1g.10gb:8", "",
			"Gres=shard:1g.10gb:8 would share MIG instances"},
		{"gpu:h100:1,gpu:1g.10gb:1,shard:8", "NodeName=k1 Name=gpu Type=h100 File=/dev/nvidia1\nNodeName=k1 Name=gpu " +
			"Type=1g.10gb File=/dev/nvidia0 MultipleFiles=/dev/nvidia-caps/nvidia-cap3\nNodeName=k1 Name=shard Count=8 " +
			"File=/dev/nvidia0\n", "Gres=shard:8 would share MIG instances"},
	} {
		got, problems := LoadFS(files("GresTypes=gpu,shard\nNodeName=k1 CPUs=8 Gres="+c.gres+
			"\nPartitionName=kp Nodes=k1\n", GresFile, c.file), MainFile)
		if got != nil || !strings.Contains(lines(problems), c.want) {
			t.Errorf("%s: %s", c.gres, lines(problems))
		}
	}
}

// TestMIGLines: an instance's files are its GPU's and its own; its memory is in its profile's name.
func TestMIGLines(t *testing.T) {
	c := mustLoad(t, "GresTypes=gpu,mig\nNodeName=k1 CPUs=8 Gres=mig:1g.10gb:2,gpu:l4:1\nPartitionName=kp Nodes=k1\n",
		GresFile,
		"NodeName=k1 Name=mig Type=1g.10gb File=/dev/nvidia0 MultipleFiles=/dev/nvidia-caps/nvidia-cap[3-4]\nNodeName=k1 "+
			"Name=mig Type=1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[12-13]\nNodeName=k1 Name=gpu "+
			"Type=l4 File=/dev/nvidia1 Memory=24G\n")
	r, _ := c.Gres.For("k1")
	if len(r) != 3 || len(r[0].Files) != 0 ||
		!reflect.DeepEqual(r[0].MultipleFiles,
			[]string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"}) || r[0].Count != 1 {
		t.Errorf("%+v", r)
	}
	g := c.Model().Nodes[4].Gres
	if g[0].MemMiB != 10240 || g[1].MemMiB != 24576 {
		t.Errorf("%+v", g)
	}
}
