package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"gbatch/noded/asuser"
)

func TestMain(m *testing.M) {
	if status, handled := Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// entry is one of a layer.
type entry struct {
	name, link, text string
	kind             byte
	mode             int64
	size             int64 // of zeros, if there is no text
}

func layerOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o755
		}
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Uid: 7, Gid: 7,
			ModTime: time.Unix(1e9, 0)}
		if e.kind == tar.TypeReg {
			h.Size = max(int64(len(e.text)), e.size)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case e.size > 0:
			_, err = io.CopyN(w, zeros{}, e.size)
		case e.kind == tar.TypeReg:
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// imageOf makes an image of layers.
func imageOf(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	img, err := mutate.Config(img, v1.Config{Env: []string{"PATH=/bin", "A=1"}, Entrypoint: []string{"/bin/entry"},
		WorkingDir: "/work"})
	if err == nil {
		c, cerr := img.ConfigFile()
		if cerr != nil {
			t.Fatal(cerr)
		}
		c = c.DeepCopy()
		c.OS, c.Architecture = "linux", "amd64"
		img, err = mutate.ConfigFile(img, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// server is a registry on loopback, which counts what is read of it.
type server struct {
	host      string
	blobs     atomic.Int64
	manifests atomic.Int64
	password  string // "": anybody may read
	down      atomic.Bool
}

func serve(t testing.TB, password string) *server {
	t.Helper()
	s := &server{password: password}
	inner := registry.New(registry.Logger(quiet()))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		if _, p, _ := r.BasicAuth(); s.password != "" && p != s.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			s.blobs.Add(1)
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			s.manifests.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s.host = strings.TrimPrefix(web.URL, "http://")
	return s
}

func (s *server) push(t testing.TB, as string, img v1.Image) string {
	t.Helper()
	text := s.host + "/" + as
	ref, err := name.ParseReference(text)
	if err == nil {
		err = remote.Write(ref, img, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: "u", Password: s.password})))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.blobs.Store(0)
	s.manifests.Store(0)
	return text
}

func open(t testing.TB, bytes int64) *Cache {
	t.Helper()
	// The process that unpacks is nobody, who has to come to this program.
	c, err := Open(Options{Dir: filepath.Join(t.TempDir(), "images"), Bytes: bytes,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Homes: asuser.NewPlaces(8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func me() *User { return &User{UID: 4242, GID: 4242} }

// TestImage: layers are applied in order, whiteouts remove, and what is left has no owner and no rights.
func TestImage(t *testing.T) {
	s, c := serve(t, ""), open(t, 1<<30)
	ref := s.push(t, "a/b:1", imageOf(t,
		layerOf(t, entry{name: "bin", kind: tar.TypeDir, mode: 0o555}, entry{name: "bin/su", text: "su", mode: 0o4755},
			entry{name: "etc/old", text: "x"}, entry{name: "etc/keep", text: "x", mode: 0o000},
			entry{name: "var/run", link: "/run", kind: tar.TypeSymlink}, entry{name: "run", kind: tar.TypeDir},
			entry{name: "opaque/gone", text: "x"}, entry{name: "file", text: "a file"},
			entry{name: "dev/sda", kind: tar.TypeBlock}, entry{name: "fifo", kind: tar.TypeFifo}),
		layerOf(t, entry{name: "etc/.wh.old"}, entry{name: "var/run/here", text: "by a link"},
			entry{name: "opaque/.wh..wh..opq"}, entry{name: "opaque/new", text: "x"},
			entry{name: "bin/hard", link: "bin/su", kind: tar.TypeLink},
			entry{name: "file", kind: tar.TypeDir}, entry{name: "file/in", text: "x"})))
	img, err := c.Get(t.Context(), me(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"bin/su": true, "etc/old": false, "etc/keep": true, "run/here": true,
		"opaque/gone": false, "opaque/new": true, "bin/hard": true, "file/in": true, "dev/sda": false, "fifo": false,
		"etc/.wh.old": false} {
		st, err := os.Lstat(filepath.Join(img.Root(), path))
		if (err == nil) != want {
			t.Errorf("%s: %v, wanted %v", path, err, want)
		}
		if err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s has the mode %v", path, st.Mode())
		}
		if err == nil && os.Geteuid() == 0 {
			var is unix.Stat_t
			if err := unix.Lstat(filepath.Join(img.Root(), path), &is); err != nil || is.Uid != nobody || is.Gid != nobody {
				t.Errorf("%s belongs to %d:%d", path, is.Uid, is.Gid)
			}
		}
	}
	if st, err := os.Stat(filepath.Join(img.Root(), "bin/su")); err != nil || st.ModTime().Unix() != 1e9 {
		t.Errorf("the time of a file: %v %v", st.ModTime(), err)
	}
	if got := fmt.Sprint(img.Config); got != "{[PATH=/bin A=1] [/bin/entry] [] /work}" {
		t.Errorf("the configuration is %s", got)
	}
	// The next Cache knows it, without the registry for what is named by its digest.
	again, err := Open(c.o)
	if err != nil || again.total != img.Bytes || again.Hold(img.Digest) == nil {
		t.Errorf("the next one has %d bytes, %v", again.total, err)
	}
	again.Close()
}

// TestHostile: images that no builder makes. Each leaves nothing outside of its directory, and most are refused.
func TestHostile(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("as it was"), 0o666); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 40)
	deep := strings.Repeat("d/", 300) + "f"
	for _, c := range []struct {
		what    string
		entries []entry
		says    string // of the error; "": it is taken
	}{
		{"a name with ..", []entry{{name: up + victim[1:], text: "changed"}}, ""},
		{"an absolute name", []entry{{name: victim, text: "changed"}}, ""},
		{"through an absolute link", []entry{{name: "l", link: filepath.Dir(victim), kind: tar.TypeSymlink},
			{name: "l/victim", text: "changed"}}, "leads nowhere"},
		{"through a link with ..", []entry{{name: "a/l", link: up + filepath.Dir(victim)[1:], kind: tar.TypeSymlink},
			{name: "a/l/victim", text: "changed"}}, "leads nowhere"},
		{"over a link", []entry{{name: "l", link: victim, kind: tar.TypeSymlink}, {name: "l", text: "changed"}}, ""},
		{"a hard link outside", []entry{{name: "h", link: up + victim[1:], kind: tar.TypeLink}}, "one more name"},
		{"a hard link through a link", []entry{{name: "l", link: filepath.Dir(victim), kind: tar.TypeSymlink},
			{name: "h", link: "l/victim", kind: tar.TypeLink}}, "one more name"},
		{"a hard link to itself", []entry{{name: "h", text: "x"}, {name: "h", link: "h", kind: tar.TypeLink}}, ""},
		{"a whiteout outside", []entry{{name: "l", link: filepath.Dir(victim), kind: tar.TypeSymlink},
			{name: "l/.wh.victim"}}, "leads nowhere"},
		{"a whiteout of ..", []entry{{name: "a/.wh..."}, {name: "a/.wh.."}}, "removes nothing"},
		{"an opaque directory outside", []entry{{name: "l", link: filepath.Dir(victim), kind: tar.TypeSymlink},
			{name: "l/.wh..wh..opq"}}, "leads nowhere"},
		{"a link loop", []entry{{name: "a", link: "b", kind: tar.TypeSymlink}, {name: "b", link: "a", kind: tar.TypeSymlink},
			{name: "a/x", text: "x"}}, "symbolic links"},
		{"a file as a directory", []entry{{name: "f", text: "x"}, {name: "f/g", text: "x"}}, "not a directory"},
		{"a deep tree", []entry{{name: deep, text: "x"}}, "bytes"},
		{"larger than there is room for", []entry{{name: "big", size: 5 << 20}}, "no room"},
		{"many empty files", many(3000), "no room"},
		{"devices", []entry{{name: "null", kind: tar.TypeChar, mode: 0o666}}, ""},
		{"the way out of this process", []entry{{name: "p", link: "/proc/self/fd/3", kind: tar.TypeSymlink},
			{name: "p/x", text: "x"}}, "leads nowhere"},
	} {
		t.Run(c.what, func(t *testing.T) {
			root := t.TempDir()
			fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd) //nolint:errcheck // it was only a name
			tr := &tree{root: fd, maxBytes: 1 << 20, maxFiles: maxFiles}
			err = tr.layer(bytes.NewReader(layerOf(t, c.entries...)))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, expected %q", err, c.says)
			}
			if text, err := os.ReadFile(victim); string(text) != "as it was" || err != nil {
				t.Errorf("a file outside is %q, %v", text, err)
			}
			if st, err := os.Stat(victim); err != nil || st.Sys() == nil || linksOf(t, victim) != 1 {
				t.Errorf("a file outside has %d names", linksOf(t, victim))
			}
			err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
				if err == nil && e.Type()&(os.ModeDevice|os.ModeCharDevice|os.ModeSetuid) != 0 {
					t.Errorf("%s is %v", path, e.Type())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func many(n int) []entry {
	var out []entry
	for i := range n {
		out = append(out, entry{name: fmt.Sprintf("d/%d", i)})
	}
	return out
}

func linksOf(t *testing.T, path string) uint64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Nlink
}

// TestOnce: ten ask at once, of two users, and the layers are read once.
func TestOnce(t *testing.T) {
	s, c := serve(t, ""), open(t, 1<<30)
	ref := s.push(t, "once:1", imageOf(t, layerOf(t, entry{name: "f", text: "x"})))
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), &User{UID: uint32(5000 + i%2)}, ref); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c.imports != 1 || s.blobs.Load() != 2 { // its configuration and its layer
		t.Errorf("%d imports, %d blobs read", c.imports, s.blobs.Load())
	}
	asked := s.manifests.Load()
	if _, err := c.Get(t.Context(), &User{UID: 5000}, ref); err != nil || s.manifests.Load() != asked {
		t.Errorf("a name that was looked up: %v, %d more questions", err, s.manifests.Load()-asked)
	}
	// The same image under another name is not read again.
	other := s.push(t, "other:2", imageOf(t, layerOf(t, entry{name: "f", text: "x"})))
	if _, err := c.Get(t.Context(), me(), other); err != nil || c.imports != 1 || s.blobs.Load() != 0 {
		t.Errorf("%v, %d imports, %d blobs", err, c.imports, s.blobs.Load())
	}
}

// TestTurns: a user whose registries say nothing keeps no other user waiting, and what nobody waits for ends.
func TestTurns(t *testing.T) {
	s, c := serve(t, ""), open(t, 1<<30)
	ref := s.push(t, "quick:1", imageOf(t, layerOf(t, entry{name: "f", text: "x"})))
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 2 * atOnce {
		wg.Go(func() {
			if _, err := c.Get(ctx, &User{UID: 5000}, fmt.Sprintf("%s/silent:%d", l.Addr(), i)); err == nil {
				t.Error("it gave an image")
			}
		})
	}
	under := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.flights) + len(c.turns) + len(c.slots)
	}
	until := func(n int) {
		t.Helper()
		for late := time.Now().Add(20 * time.Second); under() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("%d lookups, users and places, not %d", under(), n)
			}
		}
	}
	until(2*atOnce + 1 + atOnceEach)
	if _, err := c.Get(t.Context(), &User{UID: 5001}, ref); err != nil {
		t.Error(err)
	}
	leave()
	wg.Wait()
	until(0)
}

// TestPasswordsAreRoots: the process that has a user's password for a registry is nobody, and no other process of
// nobody, such as one that an image has broken into, can look into it.
func TestPasswordsAreRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the process becomes nobody only for root")
	}
	c := open(t, 1<<30)
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go func() { _, _ = c.Get(ctx, me(), l.Addr().String()+"/silent:1") }()
	conn, err := l.Accept() // it has read its order
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	pids, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	var children []string
	for _, file := range pids {
		text, _ := os.ReadFile(file)
		children = append(children, strings.Fields(string(text))...)
	}
	if err != nil || len(children) != 1 {
		t.Fatalf("the processes %v: %v", children, err)
	}
	dir := "/proc/" + children[0]
	status, err := os.ReadFile(dir + "/status")
	if err != nil || !strings.Contains(string(status), "\nUid:\t65534\t65534\t65534\t65534\n") ||
		!strings.Contains(string(status), "\nCapPrm:\t0000000000000000\n") {
		t.Errorf("%s: %v", status, err)
	}
	tries := make(chan error)
	for _, name := range []string{"mem", "environ", "fd/0"} {
		go func() {
			err := asuser.Become(nobody, nobody, nil)
			if err == nil {
				var f *os.File
				if f, err = os.Open(dir + "/" + name); err == nil {
					_ = f.Close()
				}
			}
			tries <- err
		}()
		if err := <-tries; !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s, opened by nobody: %v", name, err)
		}
	}
}

// TestBound: the images that were used longest ago go, those in use stay, and the bound holds.
func TestBound(t *testing.T) {
	s, c := serve(t, ""), open(t, 8<<20)
	get := func(tag string) (*Image, error) {
		return c.Get(t.Context(), me(), s.push(t, "i:"+tag, imageOf(t, layerOf(t, entry{name: tag, size: 3 << 20}))))
	}
	within := func() {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		sum := int64(0)
		for _, i := range c.images {
			sum += i.Bytes
		}
		if c.total != sum || c.total+c.reserved > c.o.Bytes {
			t.Errorf("%d bytes, %d counted, %d reserved", sum, c.total, c.reserved)
		}
	}
	var held []*Image
	for _, tag := range []string{"a", "b"} {
		img, err := get(tag)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, img)
		within()
	}
	var e *Error
	if _, err := get("c"); !errors.As(err, &e) || e.kind != kindRoom {
		t.Errorf("with all images in use: %v", err)
	}
	within()
	c.Release(held[0].Digest)
	if _, err := get("c"); err != nil {
		t.Error(err)
	}
	within()
	if c.Hold(held[0].Digest) != nil || c.Hold(held[1].Digest) == nil {
		t.Error("the wrong image has gone")
	}
	if _, err := os.Stat(held[0].Root()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files: %v", err)
	}
}

// TestPrivate: a registry asks for a password, which only one user has; what one user has fetched is not for the other.
func TestPrivate(t *testing.T) {
	s, c := serve(t, "secret"), open(t, 1<<30)
	ref := s.push(t, "p:1", imageOf(t, layerOf(t, entry{name: "f", text: "x"})))
	homes := t.TempDir()
	write := func(home, file, text string) string {
		path := filepath.Join(homes, home, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(homes, home)
	}
	auth := base64.StdEncoding.EncodeToString([]byte("u:secret"))
	if os.Geteuid() == 0 {
		for dir := homes; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	uid := uint32(6000)
	for home, want := range map[string]bool{
		write("netrc", ".config/enroot/.credentials", "machine "+s.host+" login u password secret\n"):   true,
		write("docker", ".docker/config.json", `{"auths":{"`+s.host+`":{"auth":"`+auth+`"}}}`):          true,
		write("podman", ".config/containers/auth.json", `{"auths":{"`+s.host+`":{"auth":"`+auth+`"}}}`): true,
		write("wrong", ".config/enroot/.credentials", "machine "+s.host+" login u password other"):      false,
		write("none", "x", ""): false,
	} {
		uid++
		_, err := c.Get(t.Context(), &User{UID: uid, GID: uid, Home: home}, ref)
		var e *Error
		if want != (err == nil) || !want && (!errors.As(err, &e) || e.kind != kindDenied) {
			t.Errorf("%s: %v", filepath.Base(home), err)
		}
	}
	if c.imports != 1 {
		t.Errorf("%d imports", c.imports)
	}
}

// TestAway: a registry that is down does not stop those who have used its image before.
func TestAway(t *testing.T) {
	s, c := serve(t, ""), open(t, 1<<30)
	ref := s.push(t, "a:1", imageOf(t, layerOf(t, entry{name: "f", text: "x"})))
	if _, err := c.Get(t.Context(), me(), ref); err != nil {
		t.Fatal(err)
	}
	s.down.Store(true)
	c.mu.Lock()
	for k, m := range c.known {
		c.known[k] = meaning{m.digest, m.at.Add(-time.Hour)}
	}
	c.mu.Unlock()
	if _, err := c.Get(t.Context(), me(), ref); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), &User{UID: 1}, ref); err == nil {
		t.Error("somebody who has never had it got it")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, &User{UID: 2}, ref); err == nil {
		t.Error("nobody waits, and it is there")
	}
}

// TestDamaged: layers that are not what the manifest says are refused.
func TestDamaged(t *testing.T) {
	inner := registry.New(registry.Logger(quiet()))
	var bad atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			if len(b) > 100 {
				b[len(b)-20] ^= 1
			}
			_, _ = w.Write(b)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer web.Close()
	s := &server{host: strings.TrimPrefix(web.URL, "http://")}
	ref := s.push(t, "a:1", imageOf(t, layerOf(t, entry{name: "f", text: strings.Repeat("text ", 1000)})))
	bad.Store(true)
	c := open(t, 1<<30)
	if _, err := c.Get(t.Context(), me(), ref); err == nil {
		t.Error("an image whose bytes changed was taken")
	}
	if len(c.images) != 0 || c.total != 0 || c.reserved != 0 {
		t.Errorf("%d images, %d bytes, %d reserved are left", len(c.images), c.total, c.reserved)
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"docker://ubuntu": "ubuntu", "nvcr.io#nvidia/pytorch:24.01-py3": "nvcr.io/nvidia/pytorch:24.01-py3",
		"docker://user@nvcr.io#a/b": "nvcr.io/a/b", "ubuntu@sha256:12": "ubuntu@sha256:12", "r/x@sha256:1": "r/x@sha256:1",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
