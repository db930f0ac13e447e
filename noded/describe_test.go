package noded

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/conf"
)

// TestPrintGres: what gnoded -G prints can be pasted into gres.conf, and describes what was found.
func TestPrintGres(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gbatch.conf", "ClusterName=x\nSlurmctldHost=h(127.0.0.1)\nGresTypes=gpu\nNodeName=n1 CPUs=64 Gres=gpu:h100:3\nPartitionName=p Nodes=ALL Default=YES\n")
	write("gres.conf", "AutoDetect=fake:gpus.json\n")
	write("gpus.json", `{"devices":[{"type":"h100","count":2,"path":""},{"type":"h100","uuid":"GPU-1","path":"/dev/null"}]}`)
	var out bytes.Buffer
	if err := PrintGres(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, " GPU-1\nNodeName=n1 Name=gpu Type=h100 File=/dev/null Links=18,18,-1\n") || strings.Count(text, "NodeName=n1 Name=gpu Type=h100 UniqueId=GPU-") != 2 {
		t.Errorf("printed\n%s", text)
	}
	write("gres.conf", text)
	if _, problems := conf.LoadFile(filepath.Join(dir, "gbatch.conf")); len(problems) > 0 {
		t.Errorf("%v\n%s", problems, text)
	}
	write("gres.conf", "AutoDetect=off\n")
	out.Reset()
	if err := PrintGres(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out); err != nil || !strings.Contains(out.String(), "# no GPUs were found on this machine\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
