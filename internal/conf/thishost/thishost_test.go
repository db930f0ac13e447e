package thishost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/rpc/pki"
)

// TestWhatThisHostLacks: an unknown SlurmUser, the directories of logs, a state or certificates that are elsewhere and
// those of another cluster are told, for the daemons that run here; what is there, and a new cluster, are not.
func TestWhatThisHostLacks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"state", "log"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("state/raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pki.InitCA(at("pki"), "c"); err != nil {
		t.Fatal(err)
	}
	good := conf.Config{ClusterName: "c", SlurmUser: "root", PKIDir: at("pki"), StateSaveLocation: at("state"),
		SlurmctldLogFile: at("log/gctld.log")}
	all := Daemons{Controller: "c1", Node: "n1", Dbd: true}
	for _, c := range []struct {
		change func(*conf.Config)
		on     Daemons
		want   string
	}{
		{func(*conf.Config) {}, all, ""},
		{func(c *conf.Config) { c.SlurmUser = "nobody-of-this-name" }, all, "SlurmUser=nobody-of-this-name is unknown"},
		{func(c *conf.Config) { c.SlurmUser = "nobody-of-this-name" }, Daemons{Node: "n1"}, ""},
		{func(c *conf.Config) { c.SlurmctldLogFile = at("none/gctld.log") }, all, "SlurmctldLogFile="},
		{func(c *conf.Config) { c.SlurmctldLogFile = at("none/gctld.log") }, Daemons{Node: "n1"}, ""},
		{func(c *conf.Config) { c.SlurmdLogFile = at("none/%n.log") }, all, "SlurmdLogFile=" + at("none/n1.log")},
		{func(c *conf.Config) { c.DbdLogFile = at("none/gdbd.log") }, all, "DbdLogFile="},
		{func(c *conf.Config) { c.StateSaveLocation = at("none") }, all, "has no state on this host"},
		{func(c *conf.Config) { c.PKIDir = at("none") }, all, "has no certificates"},
		{func(c *conf.Config) { c.PKIDir, c.StateSaveLocation = at("none"), at("none") }, all, ""}, // a new cluster
		{func(c *conf.Config) { c.ClusterName = "d" }, all, "are of cluster c"},
	} {
		cfg := good
		c.change(&cfg)
		var texts []string
		for _, p := range Look(&cfg, c.on) {
			texts = append(texts, p.Text)
		}
		if (c.want == "") != (len(texts) == 0) || len(texts) > 1 || !strings.Contains(strings.Join(texts, "; "), c.want) {
			t.Errorf("%q, want %q", texts, c.want)
		}
	}
}
