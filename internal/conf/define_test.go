package conf

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"gbatch/internal/model"
)

// TestPartitionsAsShown: a partition can be read from how it is shown, whatever its line says. Changes at run time
// begin from that.
func TestPartitionsAsShown(t *testing.T) {
	dirs, err := filepath.Glob("testdata/samples/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, dir := range append(dirs, "testdata/full", "testdata/ten") {
		c, _ := LoadFile(dir)
		if c == nil {
			continue
		}
		cfg := c.Model()
		for _, p := range cfg.Partitions {
			again, err := DefinePartition(cfg, p, p.Name, nil)
			if err != nil {
				t.Errorf("%s: partition %s: %v", dir, p.Name, err)
				continue
			}
			seen++
			if again.Expr = p.Expr; !reflect.DeepEqual(p, again) {
				t.Errorf("%s: partition %s:\n%+v\nread from how it is shown:\n%+v", dir, p.Name, p, again)
			}
		}
	}
	if seen < 6 {
		t.Fatalf("only %d partitions in the samples", seen)
	}
}

func defined(t *testing.T) *model.Config {
	t.Helper()
	c, problems := LoadFS(fstest.MapFS{"gbatch.conf": &fstest.MapFile{Data: []byte(`ClusterName=c
SlurmctldHost=h
GresTypes=gpu
DefMemPerCPU=100
NodeName=n[1-4] CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN Feature=x
NodeSet=xs Feature=x
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=60
PartitionName=all Nodes=ALL
PartitionName=some Nodes=xs
`)}}, "gbatch.conf")
	if c == nil {
		t.Fatal(problems)
	}
	return c.Model()
}

// TestDefinePartition: every form in which operators change and create partitions.
func TestDefinePartition(t *testing.T) {
	for _, tt := range []struct{ name, set, want string }{
		{"main", "State=down", "State=DOWN"},
		{"main", "state=Inact", "'Inact' or refused"},
		{"main", "MAXTIME=-1", "MaxTime=UNLIMITED"},
		{"main", "maxt=2:00:00", "MaxTime=02:00:00"},
		{"main", "MaxNodes=-1", "MaxNodes=UNLIMITED"},
		{"main", "MaxNodes=2 MinNodes=3", "refused: above MaxNodes=2"},
		{"main", "DefaultTime=30", "DefaultTime=00:30:00"},
		{"main", "DefaultTime=90", "refused: longer than MaxTime"},
		{"main", "DefaultTime=NONE", "DefaultTime=NONE"},
		{"main", "Nodes=+n4", "Nodes=n[1-4]"},
		{"main", "Nodes=-n[1-2]", "Nodes=n3"},
		{"main", "Nodes=+n4,-n1", "Nodes=n[2-4]"},
		{"main", "Nodes+=n4", "Nodes=n[1-4]"},
		{"main", "Nodes=-n4", "refused: node n4 is not in partition main"},
		{"main", "Nodes=n9", "refused: names n9"},
		{"main", "Nodes=", "Nodes=(null)"},
		{"main", "Nodes=n[4,2]", "Nodes=n[4,2] TotalCPUs=8 TotalNodes=2 TRES=cpu=8,mem=2000M,node=2,billing=8,gres/gpu=4"},
		{"all", "Nodes=-n1", "Nodes=n[2-4]"},
		{"main", "AllowAccounts=Ann,bob", "AllowAccounts=ann,bob"},
		{"main", "AllowAccounts=", "AllowAccounts=ALL"},
		{"main", "DenyQos=a,b DenyQos-=a DenyQos+=c", "DenyQos=b,c"},
		{"main", "DefMemPerNode=500", "DefMemPerNode=500"},
		{"main", "OverSubscribe=FORCE:2", "OverSubscribe=FORCE:2"},
		{"main", "Shared=YES", "OverSubscribe=YES:4"},
		{"main", "TRESBillingWeights=CPU=1.0,GRES/gpu=2.0", "TRESBillingWeights=cpu=1,gres/gpu=2"},
		{"main", "PriorityTier=7 PriorityJ=3", "PriorityTier=7 PriorityJobFactor=3"},
		{"main", "Hidden=y RootOnly=true", "Hidden=YES RootOnly=YES"},
		{"main", "TotalCPUs=3", "refused: can't be set"},
		{"main", "Stat=UP", "State=UP"},
		{"main", "SuspendTime=30", "SuspendTime=30 SuspendTimeout=GLOBAL"},
		{"main", "MaxTime=soon", "refused: is not a time limit"},
		{"main", "Max=3", "refused: write more of it"},
		{"main", "Colour=red", "refused: is not a setting of partitions"},
		{"new", "Nodes=n1", "Nodes=n1 State=UP MaxTime=UNLIMITED DefMemPerCPU=100 PriorityTier=1"},
		{"new", "Nodes=xs", "TotalNodes=4"},
		{"b/ad", "Nodes=n1", "refused: not a valid partition name"},
	} {
		cfg := defined(t)
		var old *model.Partition
		for _, p := range cfg.Partitions {
			if p.Name == tt.name {
				old = p
			}
		}
		var set []model.KV
		for _, w := range strings.Fields(tt.set) {
			k, v, _ := strings.Cut(w, "=")
			set = append(set, model.KV{Key: k, Value: v})
		}
		p, err := DefinePartition(cfg, old, tt.name, set)
		if tt.want == "'Inact' or refused" {
			tt.want = "refused: not a known value"
		}
		if why, refused := strings.CutPrefix(tt.want, "refused: "); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s %s: %v, want %s", tt.name, tt.set, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", tt.name, tt.set, err)
			continue
		}
		have := map[string]string{}
		for _, kv := range p.Show {
			have[kv.Key] = kv.Value
		}
		for _, w := range strings.Fields(tt.want) {
			if k, v, _ := strings.Cut(w, "="); have[k] != v {
				t.Errorf("%s %s: %s=%s, want %s", tt.name, tt.set, k, have[k], v)
			}
		}
		if len(p.Set) == 0 || p.Made != (old == nil) {
			t.Errorf("%s %s: not marked as changed: %v %v", tt.name, tt.set, p.Set, p.Made)
		}
	}
}

// TestDefineNodes: nodes are made with the keys of a NodeName line, and partitions that mean all nodes, or nodes of a
// feature, get them.
func TestDefineNodes(t *testing.T) {
	cfg := defined(t)
	made, err := DefineNodes(cfg, "d[1-2]", []model.KV{{Key: "CPUs", Value: "2"}, {Key: "feature", Value: "x"},
		{Key: "Gres", Value: "gpu:1"}})
	if err != nil || len(made) != 2 || !made[1].Made || made[1].Name != "d2" {
		t.Fatal(made, err)
	}
	if _, err := DefineNodes(cfg, "n1", nil); err == nil {
		t.Error("node n1 was made twice")
	}
	cfg.Nodes = append(cfg.Nodes, made...)
	parts, err := Repartition(cfg)
	if err != nil || len(parts) != 2 {
		t.Fatal(parts, err)
	}
	for _, p := range parts {
		if len(p.Nodes) != 6 || len(p.Set) > 0 || p.Name == "main" {
			t.Errorf("partition %s has the nodes %v, and operators set %v", p.Name, p.Nodes, p.Set)
		}
	}
}
