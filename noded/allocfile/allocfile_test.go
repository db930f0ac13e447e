package allocfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestFiles: what a job reads of its nodes; nothing older takes the place of what is newer; what ended is swept.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "allocations")
	s, err := Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	key := proto.Attempt{Job: 7, Attempt: 2}
	gpus := []model.GresAlloc{{Name: "gpu", Index: model.UpTo(2)}}
	two := &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(4), Tasks: 1, Gres: gpus},
		{Node: "n2", CPUs: model.UpTo(4), Tasks: 1, Gres: gpus}}}
	write := func(version uint32, a *model.Alloc, asked ...string) {
		t.Helper()
		z := &Size{Key: key, Version: version, Least: 1, Most: 4, Alloc: a, Asked: asked, Due: 1_700_000_000_000}
		if err := s.Write(z); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(filepath.Dir(s.Path(key)), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write(3, two, "n2")
	write(2, &model.Alloc{Nodes: two.Nodes[:1]})
	var d document
	if err := json.Unmarshal([]byte(read(File)), &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != 3 || d.Count != 2 || !d.Nodes[1].Leaving || d.Asked == nil || d.Asked.Until != 1_700_000_000 ||
		len(d.Nodes[0].GPUs) != 2 || d.Most != 4 {
		t.Errorf("the file says %+v", d)
	}
	if hosts, gpus := read(Hosts), read(GPUs); hosts != "n1\n" || gpus != "n1:0,1\n" {
		t.Errorf("the nodes that stay are %q, their GPUs %q", hosts, gpus)
	}
	write(4, two)
	if hosts := read(Hosts); hosts != "n1\nn2\n" {
		t.Errorf("the nodes are %q", hosts)
	}
	if list, err := os.ReadDir(filepath.Dir(s.Path(key))); err != nil || len(list) != 3 {
		t.Errorf("the folder has %v, %v", list, err)
	}
	for _, has := range []bool{true, false} {
		if err := s.Sweep(func(k proto.Attempt) bool { return has && k == key }); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.Path(key)); (err == nil) != has {
			t.Errorf("kept %v: %v", has, err)
		}
	}
}
