package container

import (
	"strings"
	"testing"
)

// TestCheck: what is accepted, and for what is refused a part of the sentence.
func TestCheck(t *testing.T) {
	long := strings.Repeat("a", 600)
	for _, c := range []struct {
		w    Wish
		says string
	}{
		{Wish{Image: "ubuntu"}, ""},
		{Wish{Image: "nvcr.io#nvidia/pytorch:24.01-py3"}, ""},
		{Wish{Image: "docker://user@127.0.0.1:5000/a/b@sha256:00"}, ""},
		{Wish{Name: "mine"}, ""},
		{Wish{Bundle: "/home/a/bundle"}, ""},
		{Wish{Bundle: "docker://alpine"}, ""},
		{Wish{Bundle: "bundle"}, "--container 'bundle' is not an absolute path"},
		{Wish{Bundle: "://bundle"}, "is not an absolute path"},
		{Wish{Bundle: "/b", Entry: Yes}, "has no entry point"},
		{Wish{Bundle: "/b", Root: Yes, Name: "id"}, ""},
		{Wish{Image: "x", Root: Yes}, "leave it out"},
		{Wish{Image: "x", Mounts: []string{"/data", "/a:/b", "/a:/b:ro+rprivate", "tmpfs:/scratch"}, WorkDir: "/w",
			Env: []string{"PATH", "NCCL_DEBUG"}, Home: Yes}, ""},
		{Wish{}, "give the image"},
		{Wish{Image: "/a/b.sqsh"}, "is a file"},
		{Wish{Image: "./b.sqsh"}, "is a file"},
		{Wish{Image: "dockerd://x"}, "registries"},
		{Wish{Image: "docker://"}, "names no image"},
		{Wish{Image: "a b"}, "have letters"},
		{Wish{Image: "a\x1b[2J"}, "have letters"},
		{Wish{Image: long}, "600 bytes"},
		{Wish{Image: "x", Bundle: "/b"}, "has one of them"},
		{Wish{Image: "x", WorkDir: "w"}, "not an absolute path"},
		{Wish{Image: "x", Name: "../../etc"}, "a name has"},
		{Wish{Image: "x", Name: "-"}, "a name has"},
		{Wish{Image: "x", Env: []string{"A=B"}}, "not the name of a variable"},
		{Wish{Image: "x", Mounts: []string{"a:/b"}}, "not an absolute path"},
		{Wish{Image: "x", Mounts: []string{"/a:b"}}, "not an absolute path"},
		{Wish{Image: "x", Mounts: []string{"/a:/"}}, "its image's"},
		{Wish{Image: "x", Mounts: []string{"/a:/./.."}}, "its image's"},
		{Wish{Image: "x", Mounts: []string{":/b"}}, "missing"},
		{Wish{Image: "x", Mounts: []string{"/a:/b:suid"}}, "no flag 'suid'"},
		{Wish{Image: "x", Mounts: []string{"/a:/b:ro:rw"}}, "write SRC:DST"},
		{Wish{Image: "x", Mounts: []string{"umount:/b"}}, "leave it out"},
		{Wish{Image: "x", Mounts: make([]string, 65)}, "65 mounts"},
		{Wish{Image: "x", Home: 7}, "the value 7"},
	} {
		err := c.w.Check()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, expected %q", c.w, err, c.says)
		}
	}
	if err := (*Wish)(nil).Check(); err != nil {
		t.Error(err)
	}
}

func TestParseMount(t *testing.T) {
	m, err := ParseMount("/a b:/c:ro+noexec+bind")
	if err != nil || m != (Mount{Source: "/a b", Target: "/c", ReadOnly: true, NoExec: true, Flat: true}) {
		t.Error(m, err)
	}
	if m, err := ParseMount("/data"); err != nil || m.Target != "/data" {
		t.Error(m, err)
	}
}
