package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"
)

// import.go is the process that asks a registry and unpacks an image. It becomes nobody, and gnoded believes nothing of
// it but what a digest has. Its standard input and output have one JSON object in each line: an order, what was found,
// go on, the end. Descriptor 3 is the directory to fill.

// Word is the first argument that makes gnoded's program run this one.
const Word = "import-image"

const (
	dirFD        = 3
	maxLayers    = 512
	maxFiles     = 4 << 20
	maxConfig    = 4 << 20 // bytes of an image's description, and of an order
	importMemory = 512 << 20
	dataLimit    = 4 << 30 // bytes of memory that it may have
	openFiles    = 256
	niceness     = 10
)

// order says what to ask for.
type order struct {
	Ref      string
	User     string // with Password: for the registry; "": nobody
	Password string
	Arch     string
}

// found is the image that the registry has under the name.
type found struct {
	Digest string
	Bytes  int64 // of its layers, packed
}

// goOn says that it is wanted.
type goOn struct{ MaxBytes int64 }

// result is the end.
type result struct {
	Config Config
	Bytes  int64 // unpacked
	Files  int64
	Error  string
	Kind   string // of the error: one of the kinds, or ""
}

// The kinds of errors.
const (
	kindAway   = "away"   // the registry can't be reached
	kindRoom   = "room"   // the image is larger than there is room for
	kindDenied = "denied" // the registry wants other credentials, or none has the image
)

// Config is what an image says about how it is run.
type Config struct {
	Env        []string `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	WorkDir    string   `json:",omitempty"`
}

// Main runs the process if args say so; handled tells.
func Main(args []string, in io.Reader, out io.Writer) (status int, handled bool) {
	if len(args) < 2 || args[1] != Word {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	enc := json.NewEncoder(out)
	r, err := confine()
	if err == nil {
		r, err = importImage(ctx, in, enc)
	}
	if err != nil {
		r = &result{Error: err.Error(), Kind: kindOf(err)}
	}
	if err := enc.Encode(r); err != nil {
		return 1, true // gnoded is gone
	}
	return 0, true
}

// confine takes from this process what it does not need.
func confine() (*result, error) {
	debug.SetMemoryLimit(importMemory)
	if os.Geteuid() == 0 {
		if err := becomeNobody(); err != nil {
			return nil, err
		}
	}
	runtime.GOMAXPROCS(2)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("give up new rights: %w", err)
	}
	for _, l := range [...]struct {
		what int
		max  uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, openFiles}, {unix.RLIMIT_DATA, dataLimit}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return nil, fmt.Errorf("set a limit: %w", err)
		}
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) // it is the job that waits
	return nil, nil
}

// becomeNobody gives up root's rights. This process has users' passwords for registries, and all of its kind have the
// same user: from here on only root may look into it. That holds from the start, as gnoded starts it as root: of a
// process that nobody starts, others of nobody could open the input before the password comes.
func becomeNobody() error {
	// Package syscall does so for all threads.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody),
		syscall.Setresuid(nobody, nobody, nobody)); err != nil {
		return fmt.Errorf("become nobody: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("shut this process's memory off: %w", err)
	}
	return nil
}

// importImage is the conversation.
func importImage(ctx context.Context, from io.Reader, out *json.Encoder) (*result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := json.NewDecoder(io.LimitReader(from, maxConfig))
	var o order
	if err := in.Decode(&o); err != nil {
		return nil, fmt.Errorf("read the order: %w", err)
	}
	ref, _, err := parseRef(o.Ref)
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if o.User != "" || o.Password != "" {
		auth = authn.FromConfig(authn.AuthConfig{Username: o.User, Password: o.Password})
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(auth),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: o.Arch}))
	if err != nil {
		return nil, err
	}
	layers, f, err := look(img)
	if err != nil {
		return nil, err
	}
	if err := out.Encode(f); err != nil {
		return nil, err
	}
	var g goOn
	if err := in.Decode(&g); errors.Is(err, io.EOF) {
		return &result{}, nil // it is here
	} else if err != nil {
		return nil, fmt.Errorf("read whether to go on: %w", err)
	}
	go func() { // gnoded says no more: the input ends with its interest, or with its life. It ends with this process.
		_, _ = io.Copy(io.Discard, from) // either way
		stop()                           // and with it what is read of the registry
	}()
	r := &result{}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's description: %w", err)
	}
	r.Config = Config{Env: c.Config.Env, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, WorkDir: c.Config.WorkingDir}
	t := &tree{root: dirFD, maxBytes: g.MaxBytes, maxFiles: maxFiles}
	unix.Umask(0)
	for i, l := range layers {
		if err := unpackLayer(t, l); err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
	}
	r.Bytes, r.Files = t.bytes, t.files
	if err := unix.Syncfs(dirFD); err != nil { // what is renamed into place is whole, also after a loss of power
		return nil, fmt.Errorf("write the image to disk: %w", err)
	}
	return r, nil
}

// look says what an image is, and refuses those that nobody has made to be run.
func look(img v1.Image) ([]v1.Layer, *found, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	f := &found{Digest: digest.String()}
	if len(m.Layers) > maxLayers || m.Config.Size > maxConfig {
		return nil, nil, hostile("%d layers, and a description of %d bytes", len(m.Layers), m.Config.Size)
	}
	for _, l := range m.Layers {
		if l.Size < 0 || f.Bytes+l.Size < f.Bytes {
			return nil, nil, hostile("a layer of %d bytes", l.Size)
		}
		f.Bytes += l.Size
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, nil, fmt.Errorf("find the image's layers: %w", err)
	}
	return layers, f, nil
}

// unpackLayer gets a layer and applies it. What is read is checked against the layer's digest; a layer that does not
// have it is an error at its end.
func unpackLayer(t *tree, l v1.Layer) error {
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	err = t.layer(r)
	if err == nil { // the end of an archive is not the end of its layer
		rest := t.maxBytes - t.bytes
		var n int64
		if n, err = io.Copy(io.Discard, io.LimitReader(r, rest+1)); err == nil && n > rest {
			err = errRoom
		}
	}
	return errors.Join(err, r.Close())
}

// parseRef reads an image's name as pyxis and docker have it, and gives its registry's.
func parseRef(text string) (ref name.Reference, registry string, err error) {
	text = Plain(text)
	ref, err = name.ParseReference(text)
	if err != nil {
		return nil, "", fmt.Errorf("'%s' is not the name of an image: %w", text, err)
	}
	return ref, ref.Context().RegistryStr(), nil
}

// Plain gives a name without docker://, a user, and pyxis' # behind the registry.
func Plain(text string) string {
	text = strings.TrimPrefix(text, "docker://")
	text = strings.Replace(text, "#", "/", 1)
	if user, rest, has := strings.Cut(text, "@"); has && !strings.ContainsAny(user, "/:") &&
		!strings.HasPrefix(rest, "sha256:") {
		text = rest
	}
	return text
}

func kindOf(err error) string {
	var t *transport.Error
	var n net.Error
	var u *url.Error
	switch {
	case errors.Is(err, errRoom) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return kindRoom
	case errors.As(err, &t):
		switch t.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			return kindDenied
		}
		return kindAway
	case errors.As(err, &n), errors.As(err, &u), errors.Is(err, os.ErrDeadlineExceeded):
		return kindAway
	}
	return ""
}

// MostTime is how long getting an image may take.
const MostTime = time.Hour
