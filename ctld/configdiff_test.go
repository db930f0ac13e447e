package ctld

import (
	"context"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
)

// TestOtherCluster: a controller whose files name another cluster than its state ends, and says which it is.
func TestOtherCluster(t *testing.T) {
	c := ruled(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c.opts.Cluster = "c"
	if err := c.watchCluster(ctx); err != nil {
		t.Error(err)
	}
	c.opts.Cluster, c.opts.ConfigPath = "d", "/etc/gbatch/gbatch.conf"
	if err := c.watchCluster(t.Context()); err == nil || !strings.Contains(err.Error(), "/etc/gbatch/gbatch.conf: "+
		"ClusterName=d, but the state in StateSaveLocation is that of cluster c; write ClusterName=c") {
		t.Error(err)
	}
}

// TestConfigDiffSeesUnits: gres.conf and topology.conf are part of the configuration: a change of one of them alone is
// found.
func TestConfigDiffSeesUnits(t *testing.T) {
	make := func(change func(*model.GresDef)) *model.Config {
		n := &model.NodeDef{Name: "n1", CPUs: 8, Gres: []model.GresDef{{Name: "gpu", Type: "h100", Count: 2}}}
		change(&n.Gres[0])
		return &model.Config{Nodes: []*model.NodeDef{n}}
	}
	plain := make(func(*model.GresDef) {})
	for name, change := range map[string]func(*model.GresDef){
		"reserved": func(g *model.GresDef) { g.Off = g.Off.With(1) },
		"cores":    func(g *model.GresDef) { g.Near = []model.Bits{model.UpTo(4), model.UpTo(4)} },
		"links":    func(g *model.GresDef) { g.Links = [][]int32{{0, 4}, {4, 0}} },
		"memory":   func(g *model.GresDef) { g.MemMiB = 1 },
		"shares":   func(g *model.GresDef) { g.Over = []model.Share{{GPU: 0, Count: 2}} },
		"sharing":  func(g *model.GresDef) { g.OneSharing = true },
	} {
		if d := configDiff(plain, make(change)); len(d) != 1 || d[0].Key != "NodeName=n1" ||
			d[0].Old != "CPUs=8 Sockets=0 CoresPerSocket=0 ThreadsPerCore=0 RealMemory=0 TmpDisk=0 Weight=0 Gres=gpu:h100:2" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if d := configDiff(plain, make(func(*model.GresDef) {})); len(d) != 0 {
		t.Errorf("nothing: %+v", d)
	}
	tree := make(func(*model.GresDef) {})
	tree.Switches = []*model.Switch{{}}
	if d := configDiff(plain, tree); len(d) != 1 || d[0].Key != "topology.conf" {
		t.Errorf("topology: %+v", d)
	}
}
