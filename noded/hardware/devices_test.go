package hardware

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// listedGPUs are what a driver lists, and no more.
type listedGPUs struct {
	gpu.Source
	devices []gpu.Device
	err     error
}

func (f *listedGPUs) Devices() ([]gpu.Device, error) { return f.devices, f.err }

func TestFindGres(t *testing.T) {
	h100 := gpu.Device{Name: "NVIDIA H100 80GB HBM3", Type: "h100"}
	t4 := gpu.Device{Name: "Tesla T4", Type: "t4"}
	for _, tc := range []struct {
		name, node, gres string
		gpus             *listedGPUs
		want             []model.GresDef
		note             string
	}{
		{name: "nothing"},
		{name: "the driver's, without a word in the configuration", gpus: &listedGPUs{devices: []gpu.Device{h100, h100, t4}},
			want: []model.GresDef{{Name: "gpu", Type: "h100", Count: 2}, {Name: "gpu", Type: "t4", First: 2, Count: 1}},
			note: "add Gres=gpu:h100:2,gpu:t4:1"},
		{name: "a type that is part of the name", node: "Gres=gpu:H100_80GB:1",
			gpus: &listedGPUs{devices: []gpu.Device{h100}},
			want: []model.GresDef{{Name: "gpu", Type: "H100_80GB", Count: 1}}},
		{name: "no driver", node: "Gres=gpu:2", gpus: &listedGPUs{err: gpu.ErrNoDriver}},
		{name: "a driver in trouble, and GPUs wanted", node: "Gres=gpu:2", gpus: &listedGPUs{err: errors.New("it hangs")},
			note: "it hangs"},
		{name: "a driver in trouble, and nobody minds", gpus: &listedGPUs{err: errors.New("it hangs")}},
		{name: "files that are there", node: "Gres=gpu:a100:2", gres: "Name=gpu Type=a100 File=DIR/gpu[0-1]",
			want: []model.GresDef{{Name: "gpu", Type: "a100", Count: 2}}},
		{name: "files that are not", node: "Gres=gpu:a100:4", gres: "Name=gpu Type=a100 File=DIR/gpu[0-3]",
			want: []model.GresDef{{Name: "gpu", Type: "a100", Count: 2}}, note: "gpu2 does not exist on this node"},
		{name: "files before the driver", node: "Gres=gpu:1", gres: "Name=gpu File=DIR/gpu0",
			gpus: &listedGPUs{devices: []gpu.Device{h100, h100}}, want: []model.GresDef{{Name: "gpu", Count: 1}}},
		{name: "the driver, as configured", node: "Gres=gpu:2", gres: "AutoDetect=nvml",
			gpus: &listedGPUs{devices: []gpu.Device{h100, h100}},
			want: []model.GresDef{{Name: "gpu", Type: "h100", Count: 2}}},
		{name: "off", node: "Gres=gpu:2", gres: "AutoDetect=off", gpus: &listedGPUs{devices: []gpu.Device{h100}}},
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
			o := &Look{Name: "n1", Config: c}
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
