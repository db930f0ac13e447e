package hardware

import (
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// confOf is a cluster's configuration with a node n1.
func confOf(t testing.TB, node, gresConf, cgroupConf string) *conf.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		conf.MainFile: "ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu,npu,nic\nNodeName=n1 CPUs=2 RealMemory=4000 " +
			node + "\nPartitionName=main Nodes=n1\n",
		conf.CgroupFile: cgroupConf,
		conf.GresFile:   gresConf,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	c, problems := conf.Load(dir)
	if c == nil || conf.HasErrors(problems) {
		t.Fatal(problems)
	}
	return c
}

func gres(name, typ string, units ...int) (g model.GresAlloc) {
	g.Name, g.Type = name, typ
	for _, u := range units {
		g.Index = g.Index.With(u)
	}
	return g
}
