package layers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSize: what is counted of a directory whose user is hostile.
func TestSize(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	put := func(path string, n int) {
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(outside, "large"), 4<<20)
	empty, _, err := size(context.Background(), dir, maxFiles, maxTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(dir, "a/b/c"), 1<<20)
	for name, err := range map[string]error{
		"another name":        os.Link(filepath.Join(dir, "a/b/c"), filepath.Join(dir, "d")),
		"a link to elsewhere": os.Symlink(outside, filepath.Join(dir, "out")),
		"a hole":              os.Truncate(filepath.Join(dir, "a/b/c"), 1<<30),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	n, vast, err := size(context.Background(), dir, maxFiles, maxTime)
	if err != nil || vast || n-empty < 1<<20 || n-empty > 1<<20+64<<10 {
		t.Errorf("%d bytes beside %d, %v, %v", n, empty, vast, err)
	}
	if _, vast, _ := size(context.Background(), dir, 3, maxTime); !vast {
		t.Error("more files than are counted, and nothing says so")
	}
	if _, _, err := size(context.Background(), filepath.Join(dir, "none"), 3, time.Second); err == nil {
		t.Error("a directory that is not there was counted")
	}
}

// TestOver: of a user above the bound, the container that has written most ends first; others' stay.
func TestOver(t *testing.T) {
	b := &Bound{Limit: 100 << 20}
	mib := func(name string, uid uint32, n int64) Use { return Use{Name: name, UID: uid, Bytes: n << 20} }
	for _, c := range []struct {
		want string
		all  []Use
	}{
		{"[]", []Use{mib("a", 1, 100), mib("b", 2, 99), mib("c", 2, 1)}},
		{"[b]", []Use{mib("a", 1, 50), mib("b", 1, 60), mib("c", 2, 90)}},
		{"[a b]", []Use{mib("a", 1, 101), mib("b", 1, 150), mib("c", 1, 100)}},
		{"[v]", []Use{mib("a", 1, 50), {Name: "v", UID: 1, Bytes: 1, Vast: true}}},
	} {
		got := []string{}
		for _, o := range b.over(c.all) {
			got = append(got, o.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v: %v, not %v", c.all, got, c.want)
		}
	}
	list := b.over([]Use{mib("a", 1, 1536), mib("b", 1, 1)})
	want := "your containers on this node have written 1.5G, and may write 100M together (ContainerUserSize)"
	if list[0].Why != want {
		t.Errorf("%q, not %q", list[0].Why, want)
	}
}

// TestRefuses: a user at the bound begins no other container.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	b := &Bound{Limit: 1 << 20, List: func() []Place { return []Place{{"a", dir}, {"gone", dir + "/none"}} }}
	me := uint32(os.Getuid())
	if err := b.Refuses(t.Context(), me); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Refuses(t.Context(), me); err == nil || !strings.Contains(err.Error(), "may write 1M together") {
		t.Error(err)
	}
	if err := b.Refuses(t.Context(), me+1); err != nil {
		t.Error("somebody else:", err)
	}
	b.Limit = 0
	if err := b.Refuses(t.Context(), me); err != nil {
		t.Error("without a bound:", err)
	}
}
