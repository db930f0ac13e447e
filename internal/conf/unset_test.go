package conf

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestUnset: a file that includes another one replaces some of its settings, without a warning of repeated lines, and
// without the other file's controllers.
func TestUnset(t *testing.T) {
	const there = "ClusterName=c\nSlurmctldHost=far(10.0.0.1:7000)\nSlurmctldHost=farther\nStateSaveLocation=/far " +
		"KillWait=7\nNodeName=n[1-2] NodeHostname=far NodeAddr=far[1-2] Port=7001 CPUs=2 RealMemory=100\n" +
		"PartitionName=p Nodes=ALL Default=YES\n"
	for name, c := range map[string]struct {
		text string
		want string // part of the only problem; "": none
	}{
		"replaced": {"Include there.conf\nUnset SlurmctldHost, " +
			"statesavelocation\nSlurmctldHost=here(127.0.0.1:6900)\nStateSaveLocation=/here\n", ""},
		"commented": {"Include there.conf\nunset SlurmctldHost StateSaveLocation # all of " +
			"it\nSlurmctldHost=here(127.0.0.1:6900)\nStateSaveLocation=/here\n", ""},
		"of nodes": {"Include there.conf\nUnset SlurmctldHost,StateSaveLocation,NodeAddr,nodehostname,Port,BcastAddr\n" +
			"SlurmctldHost=here(127.0.0.1:6900)\nStateSaveLocation=/here\n", ""},
		"misspelt": {"Include there.conf\nUnset SlurmctldHost,StateSaveLocatoin\nSlurmctldHost=here(127.0.0.1:6900)\n",
			`gbatch.conf:2: Unset: "StateSaveLocatoin" is not a setting; write Unset StateSaveLocation`},
		"no setting": {"Include there.conf\nUnset\n", "gbatch.conf:2: Unset names no setting"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, problems := LoadFS(fstest.MapFS{"there.conf": {Data: []byte(there)}, "gbatch.conf": {Data: []byte(c.text)}},
				"gbatch.conf")
			var errs []string
			for _, p := range problems {
				if p.Severity != Note && !strings.Contains(p.Text, "survive no more failures") {
					errs = append(errs, p.String())
				}
			}
			if c.want != "" {
				if len(errs) != 1 || !strings.Contains(errs[0], c.want) {
					t.Errorf("problems %q, want %q", errs, c.want)
				}
				return
			}
			if len(errs) > 0 || cfg == nil {
				t.Fatalf("problems: %q", errs)
			}
			if len(cfg.Controllers) != 1 || cfg.Controllers[0].Addr != "127.0.0.1:6900" || cfg.StateSaveLocation != "/here" ||
				cfg.KillWaitS != 7 || len(cfg.Nodes) != 2 {
				t.Errorf("controllers %+v, state in %s, KillWait %d, %d nodes", cfg.Controllers, cfg.StateSaveLocation,
					cfg.KillWaitS, len(cfg.Nodes))
			}
			want := "far far2"
			if name == "of nodes" {
				want = "n2 n2"
			}
			if d := &cfg.Nodes[1]; d.Hostname+" "+d.Addr != want {
				t.Errorf("n2 is %s at %s, want %s", d.Hostname, d.Addr, want)
			}
		})
	}
}
