package conf

import (
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestRemoteGPUs: remote GPUs of a node have endpoints and come last; shares are not divided over them, and whole nodes
// don't bring them along.
func TestRemoteGPUs(t *testing.T) {
	load := func(gres, lines string) (*Config, string) {
		c, problems := LoadFS(files("GresTypes=gpu,shard\nNodeName=r1 CPUs=4 Gres="+gres+"\n", GresFile, lines,
			CgroupFile, "ConstrainDevices=yes"), MainFile)
		var said []string
		for _, p := range problems {
			if p.Severity >= Warning {
				said = append(said, p.String())
			}
		}
		return c, strings.Join(said, "; ")
	}
	c, said := load("gpu:a100:2,gpu:remote:4,shard:8", "NodeName=r1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"+
		"NodeName=r1 Name=gpu Type=remote Endpoint=s[1-2]:50051\n"+
		"NodeName=r1 Name=gpu Type=Remote Count=2 Endpoint=[fd00::1]:7\n")
	if said != "" {
		t.Fatal(said)
	}
	if r := c.Gres.Records; !slices.Equal(r[1].Endpoints, []string{"s1:50051", "s2:50051"}) || r[1].Count != 2 ||
		!slices.Equal(r[2].Endpoints, []string{"[fd00::1]:7"}) || r[2].Count != 2 {
		t.Errorf("%+v", r)
	}
	nodes := c.Model().Nodes
	d := nodes[len(nodes)-1]
	far := d.Gres[slices.IndexFunc(d.Gres, func(g model.GresDef) bool { return g.Type == model.RemoteType })]
	if far.First != 2 || far.Count != 4 || !far.Explicit {
		t.Errorf("%+v", far)
	}
	for _, g := range d.Gres {
		if g.Name == "shard" && (len(g.Over) != 2 || g.Count != 8) || g.Type == "a100" && g.Name == "gpu" && g.Explicit {
			t.Errorf("%+v", g)
		}
	}
	if _, said = load("gpu:remote:1,gpu:a100:1", "NodeName=r1 Name=gpu Type=remote Endpoint=s:1"); !strings.Contains(said,
		"remote GPUs are numbered after those that are in the node; write gpu:a100:1 in front of gpu:remote") {
		t.Error(said)
	}
	if _, said = load("gpu:a100:1,gpu:remote:2", "NodeName=r1 Name=gpu Type=remote Endpoint=s:1"); !strings.Contains(said,
		"Gres=gpu:remote:2, but gres.conf gives only 1; write :1, or add to gres.conf") {
		t.Error(said)
	}
}

// TestTypeFits: a request for any type is no request for remote ones.
func TestTypeFits(t *testing.T) {
	for _, x := range []struct {
		name, wanted, typ string
		fits              bool
	}{
		{"gpu", "", "a100", true}, {"gpu", "", "", true}, {"gpu", "", "remote", false}, {"gpu", "", "Remote", false},
		{"gpu", "remote", "Remote", true}, {"gpu", "remote", "a100", false}, {"gpu", "A100", "a100", true},
		{"nic", "", "remote", true},
	} {
		if got := model.TypeFits(x.name, x.wanted, x.typ); got != x.fits {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
