package up

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestDriver: gnoded with NVML's binding runs as a process with a driver library that a C compiler makes: one GPU
// works, one is divided, one is in MIG mode without instances, and one is lost. Then the first fails while a job uses
// it.
func TestDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("builds gnoded with cgo")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to make a driver of")
	}
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("the machine has NVIDIA's driver")
	}
	bin, lib, control := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{"gctld", "gdbd", "gshim", "gbatch"} {
		if err := os.Symlink(filepath.Join(programs(t), name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", bin, "gbatch/cmd/gnoded")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-Wno-deprecated-declarations")
	for _, cmd := range []*exec.Cmd{build,
		exec.Command(gcc, "-shared", "-fPIC", "-DMIG", "-DMIGNAMES", "-DIDLE=1", "-DGONE=3",
			"-o", filepath.Join(lib, "libnvidia-ml.so.1"), "../../noded/gpu/testdata/fakenvml.c")} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", lib)
	t.Setenv("FAKENVML", control)

	dir := filepath.Join(t.TempDir(), "driver")
	out := &said{t: t}
	c, err := Up(t.Context(), Options{Dir: dir, Bin: bin, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), dir, bin, &said{t: t}); err != nil {
			t.Log(err)
		}
	})
	out.has(t, "is in MIG mode, and no instances of it are known",
		"GPU 3 of the driver (h100) can't be used: the GPU has fallen off the bus")
	why := func(info *proto.NodeInfo, index int32) string {
		for _, o := range info.Node.Out {
			if o.Name == "gpu" && o.Index == index {
				return o.Reason
			}
		}
		return ""
	}
	until(t, "the lost GPU is out, the others are read", func() bool {
		info := onlyNode(t, c)
		return strings.HasPrefix(why(info, 1), "the GPU has fallen off the bus") && len(info.Node.Out) == 1 &&
			len(info.Readings) == 4
	})
	info := onlyNode(t, c)
	var units []string
	for i := range info.Units {
		u := &info.Units[i]
		units = append(units, u.Type+" "+u.UUID)
	}
	if got, want := strings.Join(units, ","),
		"h100 GPU-00000000-0000-0000-0000-000000000000,h100 ,1g.10gb MIG-00000000-0000-0000-0000-000000000001,2c.3g.40gb "+
			"MIG-00000000-0000-0000-0000-000000000002"; got != want {
		t.Errorf("units %s, want %s", got, want)
	}
	if x := info.Readings[2]; x.MemUsedMiB != 100 || x.MemTotalMiB != 9984 || info.Readings[0].UtilPct != 10 ||
		info.Readings[0].MemUsedMiB != 1000 {
		t.Errorf("readings %+v", info.Readings)
	}

	one := func(typ string) func(*model.Spec) {
		return func(sp *model.Spec) { sp.Gres = []model.GresReq{{Name: "gpu", Type: typ, Count: 1}} }
	}
	id := submit(t, c, "[ \"$CUDA_VISIBLE_DEVICES\" = 0 ] && sleep 600\n", one("h100"))
	untilState(t, c, id, model.Running)
	tmp := filepath.Join(control, ".new")
	if err := os.WriteFile(tmp, []byte("0 79"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(control, "xid")); err != nil {
		t.Fatal(err)
	}
	until(t, "the job is back in the queue", func() bool { return job(t, c, id).Restarts == 1 })
	if info := onlyNode(t, c); why(info, 0) != "XID 79: the GPU has fallen off the bus" ||
		info.Node.Admin != model.NodeUp {
		t.Errorf("%+v", info.Node.Out)
	}
	// What is left works.
	id = submit(t, c, "[ \"$CUDA_VISIBLE_DEVICES\" = MIG-00000000-0000-0000-0000-000000000001 ]\n", one("1g.10gb"))
	untilState(t, c, id, model.Completed)
}

// onlyNode gives the node of a cluster that has one.
func onlyNode(t *testing.T, c *Cluster) *proto.NodeInfo {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var out *proto.NodeInfo
	err := cl.Stream(proto.KindNodes, &proto.NodesRequest{Units: true}, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, n := range chunk.Nodes {
			out = n
		}
		return nil
	})
	if err != nil || out == nil {
		t.Fatalf("no node: %v", err)
	}
	return out
}
