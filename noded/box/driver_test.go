package box

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestLoaderDirs: the directories of ld.so.conf and of the files that it includes, which may include each other.
func TestLoaderDirs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ld.so.conf":    "include conf.d/*.conf\n/opt/lib # ours\n\nrelative/dir\n",
		"conf.d/a.conf": "/usr/local/nvidia/lib64\n/usr/local/nvidia/lib\n",
		"conf.d/b.conf": "include " + dir + "/ld.so.conf\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := loaderDirs(filepath.Join(dir, "ld.so.conf"), 0)
	want := []string{"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"}
	if len(got) < 3 || !reflect.DeepEqual(got[:2], want) || got[len(got)-1] != "/opt/lib" {
		t.Errorf("%v", got)
	}
	if got := loaderDirs(filepath.Join(dir, "none"), 0); got != nil {
		t.Errorf("of no file: %v", got)
	}
}
