package ask

import (
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestCheck: a request whose parts don't go together is refused, also one that no command could have made.
func TestCheck(t *testing.T) {
	gpu := func(name, typ string, n int32) model.GresReq { return model.GresReq{Name: name, Type: typ, Count: n} }
	sockets := func(n int32, list ...model.GresReq) *model.Needs {
		return &model.Needs{Sockets: n, GPUsPerSocket: list}
	}
	for _, x := range []struct {
		name string
		sp   model.Spec
		want string // "": it may be asked for
	}{
		{"nothing", model.Spec{}, ""},
		{"GPUs by socket", model.Spec{Gres: []model.GresReq{gpu("gpu", "", 4)}, More: sockets(2, gpu("gpu", "", 2))}, ""},
		{"GPUs by socket, and shares", model.Spec{Gres: []model.GresReq{gpu("shard", "", 4)},
			More: sockets(2, gpu("gpu", "", 2))}, "leave out --gpus"},
		{"GPUs by socket beside shares", model.Spec{Gres: []model.GresReq{gpu("gpu", "", 4), gpu("shard", "", 1)},
			More: sockets(2, gpu("gpu", "", 2))}, "shard:1 beside whole GPUs"},
		{"GPUs by socket that the node's are not", model.Spec{Gres: []model.GresReq{gpu("gpu", "", 3)},
			More: sockets(2, gpu("gpu", "", 2))}, "says already how many GPUs a node gives"},
		{"GPUs by socket of another type", model.Spec{Gres: []model.GresReq{gpu("gpu", "v100", 2)},
			More: sockets(2, gpu("gpu", "a100", 1))}, "says already how many GPUs a node gives"},
		{"GPUs by socket without sockets", model.Spec{More: sockets(0, gpu("gpu", "", 2))}, "requires --sockets-per-node"},
		{"shares of two kinds", model.Spec{Gres: []model.GresReq{gpu("shard", "", 1), gpu("mps", "", 1)}},
			"Invalid generic resource (gres) specification: shard:1 and mps:1"},
		{"CPUs by GPU without one", model.Spec{More: &model.Needs{CPUsPerGPU: 2}}, "--cpus-per-gpu needs GPUs"},
		{"a license twice", model.Spec{More: &model.Needs{Licenses: []model.LicenseCount{{Name: "a", Count: 1},
			{Name: "a", Count: 1}}}}, "Invalid license specification: a stands twice"},
		{"fewer than none", model.Spec{Tasks: -1}, "--ntasks=-1 is negative"},
		{"more CPUs than there are", model.Spec{More: &model.Needs{TasksPerCore: 1 << 30}}, "--ntasks-per-core=1073741824"},
		{"--time-min over --time", model.Spec{LimitS: 60, More: &model.Needs{TimeMinS: 120}}, "--time-min=2:00 is more than"},
		{"features", model.Spec{Features: "a&&"}, "Invalid feature specification: "},
	} {
		err := Check(&x.sp)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}

// TestParseGres: one parser for options and for gcontrol's keys.
func TestParseGres(t *testing.T) {
	for text, want := range map[string]string{"gpu:2": "gpu:2", "gres:gpu:a100:2": "gpu:a100:2", "gres/gpu=2": "gpu:2",
		"gres/gpu:a100=2": "gpu:a100:2", "gpu": "gpu:1", "mem:2k": "mem:2048", "mem:1g": "mem:1073741824",
		"gpu:0.5": "0.5 of a GPU", "gpu:1g.10gb": "gpu:1g.10gb:1", "gpu:a:1,fpga": "gpu:a:1 fpga:1", "none": "", "": "",
		"gpu:0": ""} {
		list, err := ParseGres("", text, model.PerNode)
		var words []string
		for i := range list {
			words = append(words, GresText(&list[i]))
		}
		if got := strings.Join(words, " "); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"gpu:", "gpu:a:b:c", ":2", "gpu:2-4", "gpu:1.5", "gpu(x)", "gpu:-1:2:3"} {
		if list, err := ParseGres("", text, model.PerNode); err == nil {
			t.Errorf("%s is read as %v", text, list)
		}
	}
}

// TestParseLicenses: what is read is written the same.
func TestParseLicenses(t *testing.T) {
	for text, want := range map[string]string{"a": "a:1", "a:2,b": "a:2,b:1", "a*2;b": "a:2,b:1", "a|b:3": "a:1|b:3",
		"": "", "a:2k": "a:2048"} {
		list, either, err := ParseLicenses(text)
		if got := LicensesText(list, either); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"a:0", "a:x", ":2", "a,b|c", "a,a", "a:-1"} {
		if list, _, err := ParseLicenses(text); err == nil {
			t.Errorf("%s is read as %v", text, list)
		}
	}
}
