package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits: units of daemons that start no jobs are confined and dump no core; the nodes' unit sets nothing that jobs
// would inherit. Where systemd is, it reads them without a complaint.
func TestUnits(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	// Daemons renew their certificates, which are in /etc/gbatch by default.
	confined := []string{"ProtectSystem=", "ReadWritePaths=-/etc/gbatch", "NoNewPrivileges=yes",
		"ProtectKernelTunables=yes", "ProtectKernelModules=yes",
		"ProtectKernelLogs=yes", "ProtectControlGroups=yes", "RestrictAddressFamilies=", "RestrictSUIDSGID=yes",
		"LimitCORE=0",
		"CapabilityBoundingSet=~"}
	inherited := []string{"Protect", "Private", "NoNewPrivileges", "Restrict", "CapabilityBoundingSet", "SystemCall",
		"LimitCORE",
		"LockPersonality", "MemoryDeny"}
	for name, jobs := range map[string]bool{"gctld": false, "gdbd": false, "gnoded-login": false, "gnoded": true} {
		text, err := os.ReadFile(filepath.Join(root, "etc", "systemd", name+".service"))
		if err != nil {
			t.Fatal(err)
		}
		has := func(key string) bool { return strings.Contains(string(text), "\n"+key) }
		for _, key := range confined {
			if !jobs && !has(key) {
				t.Errorf("%s.service lacks %s", name, key)
			}
		}
		for _, key := range inherited {
			if jobs && has(key) {
				t.Errorf("%s.service has %s, which jobs would inherit", name, key)
			}
		}
		if jobs && (!has("Delegate=yes") || !has("KillMode=process")) {
			t.Errorf("%s.service ends jobs with the daemon, or shares their groups", name)
		}
		analyze, err := exec.LookPath("systemd-analyze")
		if err != nil {
			continue
		}
		unit := filepath.Join(t.TempDir(), name+".service")
		real := strings.ReplaceAll(string(text), "@bindir@/"+strings.TrimSuffix(name, "-login"), "/bin/true")
		if err := os.WriteFile(unit, []byte(real), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
		if err != nil || strings.Contains(string(out), unit+":") {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
	}
}
