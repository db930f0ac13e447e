package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A unit whose file is a device that every program needs can't be kept from other jobs: gbatch check says so.
func TestBaseDevicesAsUnits(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gbatch.conf", "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu,lamp\nNodeName=n1 CPUs=4 Gres=gpu:2,lamp:1\n"+
		"PartitionName=p Nodes=n1 Default=YES\n")
	write("gres.conf", "Name=gpu File=/dev/null\nName=gpu File=/dev/nonexistent0\nName=lamp File=/dev/zero\n")
	_, problems := Load(dir)
	var said []string
	for _, p := range problems {
		if strings.Contains(p.Text, "every program needs") {
			said = append(said, p.String())
		}
	}
	if len(said) != 2 ||
		!strings.Contains(said[0], "gres.conf:1: warning: /dev/null is a device that every program needs") ||
		!strings.Contains(said[1], "/dev/zero") {
		t.Errorf("said %q of %v", said, problems)
	}
}
