package conf

import (
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/conf/locate"
)

// FuzzLocateAgrees: the cheap search for one key finds the value that a full load has, if it has one.
func FuzzLocateAgrees(f *testing.F) {
	if DefaultSocketDir != locate.DefaultSocketDir {
		f.Fatal("the defaults differ")
	}
	for _, s := range []string{
		"", "LocalSocketDir=/run/x", "\tlocalsocketdir = \"/run/a b\" # c", "KillWait=3 LocalSocketDir=/run/x",
		"# LocalSocketDir=/x\n",
		"MailProg=\"LocalSocketDir=/x\"", "KillWait=3 \\\nLocalSocketDir=/run/x", "LocalSocketDir=/a\nLocalSocketDir=/b",
		"Include more.conf", "include \"%c.conf\"",
		"LocalSocketDir=/run/\\#x", "LocalSocketDir=/a\nUnset LocalSocketDir,KillWait\nKillWait=3",
		"LocalSocketDir= KillWait=3",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	for _, name := range []string{"more.conf", "t.conf"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("LocalSocketDir=/run/"+name), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		path := filepath.Join(dir, "gbatch.conf")
		if err := os.WriteFile(path, []byte(base+text), 0o644); err != nil {
			t.Fatal(err)
		}
		c, _ := LoadFile(path)
		if c == nil {
			return
		}
		want := c.LocalSocketDir
		if want == "" {
			want = DefaultSocketDir
		}
		if got, err := locate.LocalSocketDir(path); err != nil || got != want {
			t.Fatalf("%q: %q, %v; the whole reading says %q", text, got, err, want)
		}
	})
}
