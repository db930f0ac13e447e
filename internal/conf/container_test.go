package conf

import (
	"slices"
	"strings"
	"testing"
)

// TestContainers: job_container.conf as sites write it, and what is refused with what to write instead.
func TestContainers(t *testing.T) {
	load := func(kind, text string) (*Config, string) {
		main := "NodeName=m[1-4] CPUs=1\n" + kind
		var beside []string
		if text != "" {
			beside = []string{ContainerFile, text}
		}
		c, problems := LoadFS(files(main, beside...), MainFile)
		var said []string
		for _, p := range problems {
			if strings.Contains(p.String(), "ontainer") || strings.Contains(p.String(), "Namespace") {
				said = append(said, p.String())
			}
		}
		return c, strings.Join(said, "\n")
	}
	const on = "JobContainerType=job_container/tmpfs\n"
	for _, kind := range []string{on, "JobContainerType=tmpfs\n", "NamespaceType=namespace/tmpfs\n"} {
		c, said := load(kind, "")
		if b := c.ContainerOf("m1"); b == nil || b.BasePath != "" || !slices.Equal(b.Dirs, defaultDirs) || said != "" {
			t.Errorf("%s: %+v %s", kind, b, said)
		}
	}
	if c, _ := load("JobContainerType=job_container/none\n", ""); c.ContainerOf("m1") != nil {
		t.Error("none is something")
	}
	c, said := load(on, "AutoBasePath=true\nBasePath=/nvme/ Dirs=/tmp,/dev/shm\n")
	if b := c.ContainerOf("m1"); b == nil || !b.AutoBase || b.BasePath != "/nvme" || len(b.Dirs) != 2 || said != "" {
		t.Errorf("%+v %s", b, said)
	}
	c, _ = load(on, "NodeName=m[1-2] BasePath=/a Shared=true\nNodeName=m3 BasePath=/b AutoBasePath=yes\n")
	if b := c.ContainerOf("m2"); b == nil || b.BasePath != "/a" || !b.Shared || b.AutoBase {
		t.Errorf("n2: %+v", b)
	}
	if b := c.ContainerOf("m3"); b == nil || b.BasePath != "/b" || b.Shared || !b.AutoBase {
		t.Errorf("n3: %+v", b)
	}
	if b := c.ContainerOf("m4"); b != nil {
		t.Errorf("n4: %+v", b)
	}
	for text, want := range map[string]string{
		"BasePath=tmp":                    `BasePath: "tmp" is not the absolute path of a directory`,
		"BasePath=/x Dirs=/tmp,/tmp/y":    `"/tmp/y" and "/tmp" are one within the other`,
		"BasePath=/x Dirs=/":              `"/" is not the absolute path of a directory`,
		"BasePath=/x InitScript=/y":       "InitScript: can't be set here: Prolog runs as root",
		"BasePath=/x EntireStepInNS=true": "EntireStepInNS: can't be set here: the files of --output",
		"BasePath=/x CloneNSScript=/y":    "CloneNSScript: can't be set here",
		"BasePath=/x Dir=/y":              `did you mean Dirs?`,
		"NodeName=n[ BasePath=/x":         `is not a list of nodes`,
	} {
		if _, said := load(on, text); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", text, said, want)
		}
	}
	if c, said := load(on, "BasePath=/x EntireStepInNS=false\n"); c == nil || said != "" {
		t.Error(said)
	}
	if _, said := load("", "BasePath=/x\n"); !strings.Contains(said, "job_container.conf has no effect without") {
		t.Errorf("%q", said)
	}
	if _, said := load("JobContainerType=job_container/other\n", ""); !strings.Contains(said, "is not a known value") {
		t.Errorf("%q", said)
	}
}
