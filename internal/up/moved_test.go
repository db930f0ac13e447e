package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestMoved: a cluster whose directory was moved does not start empty at the old place, and goes on when its
// configuration is corrected.
func TestMoved(t *testing.T) {
	base := t.TempDir()
	old, dir := filepath.Join(base, "old"), filepath.Join(base, "new")
	c, _ := mustUp(t, Options{Dir: old, Nodes: 1})
	held := submit(t, c, "exit 0\n", func(sp *model.Spec) { sp.HoldReq = true })
	down(t, old)
	if err := os.Rename(old, dir); err != nil {
		t.Fatal(err)
	}
	_, err := Up(t.Context(), Options{Dir: dir, Bin: programs(t)})
	if err == nil || !strings.Contains(err.Error(), "sed -i 's|"+old+"|"+dir+"|g' "+filepath.Join(dir, "gbatch.conf")) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("something was made at the old place")
	}
	text, err := os.ReadFile(filepath.Join(dir, "gbatch.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gbatch.conf"), []byte(strings.ReplaceAll(string(text), old, dir)),
		0o644); err != nil {
		t.Fatal(err)
	}
	if c, _ = mustUp(t, Options{Dir: dir}); job(t, c, held) == nil {
		t.Error("the job is gone")
	}
}
