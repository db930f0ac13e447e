package noded

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
)

func TestVirtualNode(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "gbatch.conf"), []byte("ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu\n"+
		"NodeName=n1 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1000000 TmpDisk=5000 Gres=gpu:h100:8\n"+
		"PartitionName=main Nodes=n1\n"), 0o644))
	c, problems := conf.Load(dir)
	if c == nil {
		t.Fatal(problems)
	}
	cl := newCluster(t, func(o *Options) { o.Config, o.Virtual = c, true })
	hw := cl.ctl.waitNode(1).Hw
	if !hw.Virtual || hw.CPUs != 128 || hw.Sockets != 2 || hw.MemMiB != 1000000 || hw.TmpMiB != 5000 ||
		!reflect.DeepEqual(hw.Gres, []model.GresDef{{Name: "gpu", Type: "h100", Count: 8}}) {
		t.Errorf("%+v", hw)
	}
	// CPUs and memory that this machine doesn't have are no obstacle.
	l := cl.job(1, "echo $CUDA_VISIBLE_DEVICES; exit 3")
	here := &l.Alloc.Nodes[0]
	here.CPUs, here.MemMiB = model.UpTo(128).Minus(model.UpTo(64)), 900000
	here.Gres = []model.GresAlloc{{Name: "gpu", Type: "h100", Index: model.UpTo(8).Minus(model.UpTo(6))}}
	if r := cl.run(l); r.Exit.Code != 3 || cl.output(l) != "6,7\n" {
		t.Errorf("%+v: %q", r, cl.output(l))
	}
}
