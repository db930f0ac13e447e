package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

type fakeGPUs struct {
	devices []gpu.Device
	err     error
}

func (f *fakeGPUs) Devices() ([]gpu.Device, error) { return f.devices, f.err }

func (f *fakeGPUs) Watch(ctx context.Context, _ time.Duration, got func([]gpu.Reading, error)) {
	var readings []gpu.Reading
	for i := range f.devices {
		readings = append(readings, gpu.Reading{UUID: f.devices[i].UUID, Index: i})
	}
	got(readings, f.err)
	<-ctx.Done()
}

func TestFindGres(t *testing.T) {
	h100 := gpu.Device{Name: "NVIDIA H100 80GB HBM3", Type: "h100"}
	t4 := gpu.Device{Name: "Tesla T4", Type: "t4"}
	for _, tc := range []struct {
		name, node, gres string
		gpus             *fakeGPUs
		want             []model.GresDef
		note             string
	}{
		{name: "nothing"},
		{name: "the driver's, without a word in the configuration", gpus: &fakeGPUs{devices: []gpu.Device{h100, h100, t4}},
			want: []model.GresDef{{Name: "gpu", Type: "h100", Count: 2}, {Name: "gpu", Type: "t4", First: 2, Count: 1}},
			note: "add Gres=gpu:h100:2,gpu:t4:1"},
		{name: "a type that is part of the name", node: "Gres=gpu:H100_80GB:1", gpus: &fakeGPUs{devices: []gpu.Device{h100}},
			want: []model.GresDef{{Name: "gpu", Type: "H100_80GB", Count: 1}}},
		{name: "no driver", node: "Gres=gpu:2", gpus: &fakeGPUs{err: gpu.ErrNoDriver}},
		{name: "a driver in trouble, and GPUs wanted", node: "Gres=gpu:2", gpus: &fakeGPUs{err: errors.New("it hangs")},
			note: "it hangs"},
		{name: "a driver in trouble, and nobody minds", gpus: &fakeGPUs{err: errors.New("it hangs")}},
		{name: "files that are there", node: "Gres=gpu:a100:2", gres: "Name=gpu Type=a100 File=DIR/gpu[0-1]",
			want: []model.GresDef{{Name: "gpu", Type: "a100", Count: 2}}},
		{name: "files that are not", node: "Gres=gpu:a100:4", gres: "Name=gpu Type=a100 File=DIR/gpu[0-3]",
			want: []model.GresDef{{Name: "gpu", Type: "a100", Count: 2}}, note: "gpu2 does not exist on this node"},
		{name: "files before the driver", node: "Gres=gpu:1", gres: "Name=gpu File=DIR/gpu0",
			gpus: &fakeGPUs{devices: []gpu.Device{h100, h100}}, want: []model.GresDef{{Name: "gpu", Count: 1}}},
		{name: "the driver, as configured", node: "Gres=gpu:2", gres: "AutoDetect=nvml",
			gpus: &fakeGPUs{devices: []gpu.Device{h100, h100}},
			want: []model.GresDef{{Name: "gpu", Type: "h100", Count: 2}}},
		{name: "off", node: "Gres=gpu:2", gres: "AutoDetect=off", gpus: &fakeGPUs{devices: []gpu.Device{h100}}},
		{name: "fake", node: "Gres=gpu:h100:8", gres: "AutoDetect=fake",
			want: []model.GresDef{{Name: "gpu", Type: "h100", Count: 8}}},
		{name: "things without files", node: "Gres=nic:2", want: []model.GresDef{{Name: "nic", Count: 2}}},
		{name: "counted", node: "Gres=nic:1", gres: "Name=nic Count=1", want: []model.GresDef{{Name: "nic", Count: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for i := range 2 {
				must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("gpu%d", i)), nil, 0o600))
			}
			must(t, os.WriteFile(filepath.Join(dir, "gbatch.conf"),
				[]byte("ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu,nic\nNodeName=n1 CPUs=2 "+tc.node+
					"\nPartitionName=main Nodes=n1\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "gres.conf"), []byte(strings.ReplaceAll(tc.gres, "DIR", dir)+"\n"), 0o644))
			c, problems := conf.Load(dir)
			if c == nil {
				t.Fatal(problems)
			}
			o := &Options{Name: "n1", Config: c}
			if tc.gpus != nil {
				o.GPUs = tc.gpus
			}
			f := findGres(o, nil, 1)
			got, notes := f.gres, append(f.problems, f.notes...)
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if text := strings.Join(notes, "\n"); tc.note == "" && text != "" || !strings.Contains(text, tc.note) {
				t.Errorf("notes %q, want %q", text, tc.note)
			}
		})
	}
}

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
