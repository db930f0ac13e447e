package locate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// env is a stand-in for os.Getenv.
func env(kv ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(kv); i += 2 {
			if kv[i] == name {
				return kv[i+1]
			}
		}
		return ""
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc")
	home := filepath.Join(dir, "home")
	check := func(what, want string, kv ...string) {
		t.Helper()
		if got, err := find(env(kv...), etc); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	// Nothing anywhere: the way out.
	_, err := find(env("HOME", home), etc)
	if !errors.Is(err, ErrNoConfig) || !strings.Contains(err.Error(), "gbatch up") ||
		!strings.Contains(err.Error(), etc+"/gbatch.conf and "+home+"/.local/state/gbatch/up/gbatch.conf") {
		t.Errorf("nothing there: %v", err)
	}
	if _, err = find(env(), etc); !errors.Is(err, ErrNoConfig) {
		t.Errorf("no environment: %v", err)
	}

	// From the last place to the first: each goes before the others.
	up := write(t, filepath.Join(home, ".local/state/gbatch/up/gbatch.conf"), "")
	check("home", up, "HOME", home)
	xdg := write(t, filepath.Join(dir, "xdg/gbatch/up/gbatch.conf"), "")
	check("XDG", xdg, "HOME", home, "XDG_STATE_HOME", filepath.Join(dir, "xdg"))
	check("relative XDG doesn't count", up, "HOME", home, "XDG_STATE_HOME", "xdg")
	gh := write(t, filepath.Join(dir, "gh/gbatch.conf"), "")
	check("GBATCH_HOME", gh, "HOME", home, "XDG_STATE_HOME", filepath.Join(dir, "xdg"), "GBATCH_HOME",
		filepath.Join(dir, "gh"))
	slurm := write(t, filepath.Join(etc, "slurm.conf"), "")
	check("/etc/gbatch/slurm.conf", slurm, "GBATCH_HOME", filepath.Join(dir, "gh"))
	gb := write(t, filepath.Join(etc, "gbatch.conf"), "")
	check("/etc/gbatch/gbatch.conf", gb, "GBATCH_HOME", filepath.Join(dir, "gh"))
	sc := write(t, filepath.Join(dir, "sc.conf"), "")
	check("SLURM_CONF", sc, "SLURM_CONF", sc)
	check("GBATCH_CONF", gh, "SLURM_CONF", sc, "GBATCH_CONF", gh)
	check("a directory", gh, "GBATCH_CONF", filepath.Join(dir, "gh"))

	// What is named and not there is no reason to look further.
	_, err = find(env("GBATCH_CONF", "/nowhere/x.conf", "SLURM_CONF", sc), etc)
	if err == nil || err.Error() != "$GBATCH_CONF names /nowhere/x.conf, which can't be read: no such file or directory" {
		t.Errorf("%v", err)
	}
	_, err = find(env("SLURM_CONF", home), etc)
	if err == nil || !strings.Contains(err.Error(), "no gbatch.conf and no slurm.conf") {
		t.Errorf("%v", err)
	}
}

func TestLocalSocketDir(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"none":          {"ClusterName=x\n", DefaultSocketDir},
		"empty":         {"", DefaultSocketDir},
		"plain":         {"LocalSocketDir=/run/x", "/run/x"},
		"case, blanks":  {"\tlocalSOCKETdir \t=\t /run/x \r\n", "/run/x"},
		"quoted":        {`LocalSocketDir="/run/a b"`, "/run/a b"},
		"not first":     {"ClusterName=x LocalSocketDir=/run/x KillWait=3", "/run/x"},
		"comment":       {"# LocalSocketDir=/run/y\nLocalSocketDir=/run/x # LocalSocketDir=/run/y\n", "/run/x"},
		"behind a hash": {"KillWait=3 # LocalSocketDir=/run/y\n", DefaultSocketDir},
		"in a value":    {`Reason="LocalSocketDir=/run/y"`, DefaultSocketDir},
		"part of a key": {"MyLocalSocketDir=/run/y", DefaultSocketDir},
		"the last":      {"LocalSocketDir=/run/x\nLocalSocketDir=/run/y\n", "/run/y"},
		"BOM":           {"\ufeffLocalSocketDir=/run/x", "/run/x"},
		"continued":     {"KillWait=3 \\\n   LocalSocketDir=/run/x\n", "/run/x"},
		"unset":         {"LocalSocketDir=/run/y\nUnset KillWait, localsocketdir # c\n", DefaultSocketDir},
		"unset, set":    {"LocalSocketDir=/run/y\nunset LocalSocketDir\nLocalSocketDir=/run/x\n", "/run/x"},
		"no include":    {"KillWait=3 \\\nInclude nothing\nLocalSocketDir=/run/x\n", "/run/x"},
	} {
		path := write(t, filepath.Join(dir, "gbatch.conf"), c.text)
		if got, err := LocalSocketDir(path); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	path := write(t, filepath.Join(dir, "gbatch.conf"), "ClusterName=cl\nInclude sub/%c.conf # here\n")
	write(t, filepath.Join(dir, "sub/cl.conf"), "include more.conf")
	write(t, filepath.Join(dir, "sub/more.conf"), "LocalSocketDir=/run/far")
	if got, err := LocalSocketDir(path); err != nil || got != "/run/far" {
		t.Errorf("includes: %q, %v", got, err)
	}
	write(t, filepath.Join(dir, "sub/more.conf"), "include cl.conf")
	if _, err := LocalSocketDir(path); err == nil || !strings.Contains(err.Error(), "nests more than 10 deep") {
		t.Errorf("a circle: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "sub/cl.conf")); err != nil {
		t.Fatal(err)
	}
	if _, err := LocalSocketDir(path); err == nil || !strings.Contains(err.Error(), "sub/cl.conf: no such file") {
		t.Errorf("a missing include: %v", err)
	}
	if _, err := LocalSocketDir(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a missing file is no error")
	}
	path = write(t, filepath.Join(dir, "gbatch.conf"), "LocalSocketDir=/run/x")
	if p, d, err := SocketDir(env(EnvConf, path)); p != path || d != "/run/x" || err != nil {
		t.Errorf("SocketDir: %q, %q, %v", p, d, err)
	}
}

func BenchmarkLocalSocketDir(b *testing.B) {
	var text strings.Builder
	text.WriteString("ClusterName=x\nLocalSocketDir=/run/x\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "NodeName=n%05d CPUs=128 RealMemory=512000 Gres=gpu:a100:8 State=UNKNOWN\n", i)
	}
	for name, content := range map[string]string{"ten lines": text.String()[:600], "10,000 lines": text.String()} {
		path := filepath.Join(b.TempDir(), "gbatch.conf")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := LocalSocketDir(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
