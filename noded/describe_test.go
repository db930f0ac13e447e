package noded

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/noded/gpu"
)

// TestPrintGres: the output of gnoded -G can be pasted into gres.conf, and describes the detected devices.
func TestPrintGres(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gbatch.conf", "ClusterName=x\nSlurmctldHost=h(127.0.0.1)\nGresTypes=gpu\n"+
		"NodeName=n1 CPUs=64 Gres=gpu:h100:3\nPartitionName=p Nodes=ALL Default=YES\n")
	write("gres.conf", "AutoDetect=fake:gpus.json\n")
	write("gpus.json", `{"devices":[{"type":"h100","count":2,"path":""},{"type":"h100","uuid":"GPU-1",`+
		`"path":"/dev/null"}]}`)
	check := func(text string) {
		t.Helper()
		_, problems := conf.LoadFile(filepath.Join(dir, "gbatch.conf"))
		for _, p := range problems {
			if !strings.Contains(p.String(), "every program needs") { // of the devices that stand in here
				t.Errorf("%v\n%s", p, text)
			}
		}
	}
	var out bytes.Buffer
	if err := PrintGres(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, " GPU-1\nNodeName=n1 Name=gpu Type=h100 File=/dev/null Links=18,18,-1\n") ||
		strings.Count(text, "NodeName=n1 Name=gpu Type=h100 UniqueId=GPU-") != 2 {
		t.Errorf("printed\n%s", text)
	}
	write("gres.conf", text)
	check(text)
	// MIG instances with and without files of their own, and a broken GPU: pasted below AutoDetect, the lines are what
	// is found.
	write("gbatch.conf", "ClusterName=x\nSlurmctldHost=h(127.0.0.1)\nGresTypes=gpu\n"+
		"NodeName=n1 CPUs=64 Gres=gpu:h100:2,gpu:1g.10gb:3\nPartitionName=p Nodes=ALL Default=YES\n")
	write("gpus.json", `{"dir":"dev","devices":[{"type":"h100"},{"type":"h100","mig":[{"profile":"1g.10gb"},`+
		`{"profile":"1g.10gb","gi":2,"caps":["/dev/null"]},{"profile":"1g.10gb","gi":3,"caps":["/dev/zero"]}]},`+
		`{"type":"h100","lost":true}]}`)
	write("gres.conf", "AutoDetect=fake:gpus.json\n")
	_, _ = gpu.Fake(filepath.Join(dir, "gpus.json")).Devices() // makes the files
	var first string
	for i := range 2 {
		out.Reset()
		if err := PrintGres(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out); err != nil {
			t.Fatal(err)
		}
		if strings.Count(out.String(), "\nNodeName=n1 ") != 5 || strings.Count(out.String(), "can't be used") != 1 ||
			i == 1 && out.String() != first {
			t.Errorf("round %d\n%s", i, out.String())
		}
		first = out.String()
		write("gres.conf", "AutoDetect=fake:gpus.json\n"+first)
		check(first)
	}
	write("gres.conf", "AutoDetect=off\n")
	out.Reset()
	if err := PrintGres(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out); err != nil ||
		!strings.Contains(out.String(), "# no GPUs were found on this machine\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestPrintHardware: the line of -C can be pasted into gbatch.conf, also if one of several GPUs of one type is in MIG
// mode or broken.
func TestPrintHardware(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	base := "ClusterName=x\nSlurmctldHost=h(127.0.0.1)\nGresTypes=gpu\nPartitionName=p Nodes=ALL Default=YES\n"
	write("gbatch.conf", base+"NodeName=other CPUs=64 Gres=gpu:h100:3\n")
	write("gres.conf", "AutoDetect=fake:gpus.json\n")
	for _, c := range []struct{ fake, want, note string }{
		{`{"type":"h100"},{"type":"h100","mig":[{"profile":"1g.10gb"},{"profile":"2g.20gb"},{"profile":"1g.10gb"}]},` +
			`{"type":"h100","count":2}`, " Gres=gpu:h100:3,gpu:1g.10gb:2,gpu:2g.20gb:1", ""},
		{`{"type":"h100","count":3},{"type":"h100","lost":true}`, " Gres=gpu:h100:4",
			"can't be used: the GPU has fallen off the bus"},
		{`{"type":"h100"},{"type":"l40s"},{"type":"h100"}`, " Gres=gpu:h100:2,gpu:l40s:1", ""},
		{``, "", ""},
	} {
		write("gpus.json", `{"devices":[`+c.fake+`]}`)
		var out bytes.Buffer
		must(t, PrintHardware(Flags{Conf: filepath.Join(dir, "gbatch.conf"), Name: "n1"}, &out))
		text := out.String()
		if !strings.HasSuffix(text, c.want+"\n") || !strings.Contains(text, "NodeName=n1 CPUs=") ||
			!strings.Contains(text, c.note) || c.note == "" && strings.Contains(text, "#") {
			t.Errorf("printed\n%s", text)
		}
		pasted := filepath.Join(t.TempDir(), "gbatch.conf")
		must(t, os.WriteFile(pasted, []byte(base+text), 0o600))
		if _, problems := conf.LoadFile(pasted); len(problems) > 0 {
			t.Errorf("%v\n%s", problems, text)
		}
	}
}
