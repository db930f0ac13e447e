package devcluster_test

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"gbatch/internal/devcluster"
)

// imagePrograms are what an image of a session has, with the libraries that they need.
var imagePrograms = []string{"sh", "ls", "cat", "id", "env", "touch", "sleep", "mkdir", "stat", "grep", "true", "pwd"}

// startRegistry starts a registry on loopback for the session, with one image: $IMAGE is its name. $SILENT is a host
// that takes connections and never answers.
func startRegistry(ts *testscript.TestScript, _ bool, _ []string) {
	image, stop, err := registryOnLoopback()
	if err != nil {
		ts.Fatalf("start a registry: %v", err)
	}
	ts.Defer(stop)
	ts.Setenv("IMAGE", image)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.Fatalf("start a registry that says nothing: %v", err)
	}
	ts.Defer(func() { _ = silent.Close() })
	ts.Setenv("SILENT", silent.Addr().String())
}

// registryOnLoopback starts a registry with one image, whose name it gives.
func registryOnLoopback() (image string, stop func(), err error) {
	web := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	img, err := smallImage()
	if err != nil {
		return "", web.Close, err
	}
	image = strings.TrimPrefix(web.URL, "http://") + "/tools:1"
	ref, err := name.ParseReference(image)
	if err == nil {
		err = remote.Write(ref, img)
	}
	return image, web.Close, err
}

// BenchmarkImageStart compares a step in an image that the node has with a plain one, one after the other.
func BenchmarkImageStart(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("containers need root")
	}
	image, stop, err := registryOnLoopback()
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	c := devcluster.Start(b, devcluster.Options{Nodes: 1, CPUs: 4})
	grun := filepath.Join(devcluster.Commands(b), "grun")
	step := func(args ...string) time.Duration {
		cmd := exec.Command(grun, append(args, "true")...)
		cmd.Env, cmd.Dir = append(os.Environ(), "GBATCH_CONF="+c.Conf, "HOME=/"), "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	step("--container-image=" + image)
	var plain, inside []time.Duration
	for b.Loop() {
		plain, inside = append(plain, step()), append(inside, step("--container-image="+image))
	}
	slices.Sort(plain)
	slices.Sort(inside)
	b.ReportMetric(float64(plain[len(plain)/2].Microseconds())/1000, "plain-ms")
	b.ReportMetric(float64(inside[len(inside)/2].Microseconds())/1000, "image-ms")
}

func smallImage() (v1.Image, error) {
	files := map[string]bool{}
	for _, p := range imagePrograms {
		path, err := exec.LookPath(p)
		if err != nil {
			return nil, err
		}
		files["/bin/"+p] = true
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			return nil, err
		}
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				files[word] = true
			}
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name string, mode int64, content []byte) error {
		h := &tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for file := range files {
		content, err := os.ReadFile(file)
		if err == nil {
			err = put(file, 0o755, content)
		}
		if err != nil {
			return nil, err
		}
	}
	for file, text := range map[string]string{"/etc/os-release": "NAME=tools\n", "/root/closed": "closed\n",
		"/etc/passwd": "root:x:0:0::/:/bin/sh\n", "/entry": "#!/bin/sh\necho entered\nexec \"$@\"\n"} {
		mode := int64(0o755)
		if file == "/root/closed" {
			mode = 0o600
		}
		if err := put(file, mode, []byte(text)); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "work", Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	return mutate.Config(img, v1.Config{Env: []string{"PATH=/bin", "OF_IMAGE=yes", "GIVEN=image",
		"NVIDIA_VISIBLE_DEVICES=all"}, WorkingDir: "/work", Entrypoint: []string{"/entry"}})
}
