package box

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	wish "gbatch/internal/model/container"
	"gbatch/noded/container"
	"gbatch/noded/image"
)

// Store has a node's containers of images.
type Store struct {
	spaces *container.Store
	images *image.Cache
	ids    ids
	log    *slog.Logger

	mu     sync.Mutex
	making map[string]*turn  // by name
	held   map[string]string // the digest of each container's image
}

// Order says what a container has.
type Order struct {
	User    image.User
	Name    string // the user's login name
	Wish    *wish.Wish
	Space   string   // the mount namespace that it is made in: the job's own; "": the node's
	Devices []string // device files
	Driver  bool     // the GPU driver's libraries are shown
	Show    []string // files of the daemon's own that are shown at their own paths
}

// Made is a container.
type Made struct {
	Space  string // the file of its mount namespace
	Config image.Config
	Driver bool // the driver's libraries are there
}

// kept is what a container's directory says about it.
type kept struct {
	Digest string
	Config image.Config
	Mounts []string
	Image  string
	Driver bool
}

const (
	keptName  = "box.json"
	upperName = "upper" // the user's changes
)

// Open prepares the directory. Containers of an earlier Store are still there.
func Open(base string, images *image.Cache, log *slog.Logger) (*Store, error) {
	if strings.ContainsAny(base, `:,\`) {
		return nil, fmt.Errorf("containers can't be in %s: the path has : or , or a backslash", base)
	}
	spaces, err := container.Open(container.Options{Base: base})
	if err != nil {
		return nil, err
	}
	s := &Store{spaces: spaces, images: images, log: log, making: map[string]*turn{}, held: map[string]string{}}
	names, err := spaces.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if k, err := s.read(name); err == nil && images.Hold(k.Digest) != nil {
			s.held[name] = k.Digest
		}
	}
	return s, nil
}

func (s *Store) read(name string) (*kept, error) {
	text, err := os.ReadFile(filepath.Join(s.spaces.Dir(name), keptName))
	if err != nil {
		return nil, err
	}
	k := &kept{}
	return k, json.Unmarshal(text, k)
}

// turn is whose turn it is to do something with a name.
type turn struct {
	sync.Mutex
	users int // who have it or wait for it
}

// lock serializes what is done with one name.
func (s *Store) lock(name string) (unlock func()) {
	s.mu.Lock()
	m := s.making[name]
	if m == nil {
		m = &turn{}
		s.making[name] = m
	}
	m.users++
	s.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(s.making, name)
		}
	}
}

// Make gives a container, which it makes if there is none of the name. It waits for the image.
func (s *Store) Make(ctx context.Context, name string, o *Order) (*Made, error) {
	defer s.lock(name)()
	s.mu.Lock()
	_, there := s.held[name]
	s.mu.Unlock()
	if there {
		if k, err := s.read(name); err == nil {
			return s.again(name, k, o.Wish)
		}
	}
	if o.Wish.Image == "" {
		return nil, fmt.Errorf("the job has no container named %s here: give --container-image, or the name of one that an "+
			"earlier step has made", o.Wish.Name)
	}
	img, err := s.images.Get(ctx, &o.User, o.Wish.Image)
	if err != nil {
		return nil, err
	}
	k := &kept{Digest: img.Digest, Config: img.Config, Mounts: o.Wish.Mounts, Image: image.Plain(o.Wish.Image)}
	file, err := s.spaces.MakeWith(name, func(dir string) error {
		f := &filling{o: o, image: img, dir: dir, ids: &s.ids, keep: k}
		return f.fill()
	})
	if err != nil {
		s.images.Release(img.Digest)
		return nil, fmt.Errorf("make the container: %w", err)
	}
	s.mu.Lock()
	s.held[name] = img.Digest
	s.mu.Unlock()
	return &Made{Space: file, Config: k.Config, Driver: k.Driver}, nil
}

// again gives a container that is there.
func (s *Store) again(name string, k *kept, w *wish.Wish) (*Made, error) {
	if w.Image != "" && image.Plain(w.Image) != k.Image {
		return nil, fmt.Errorf("the container %s is one of %s: give it another --container-name, or leave out the image",
			w.Name, k.Image)
	}
	if len(w.Mounts) > 0 && !slices.Equal(w.Mounts, k.Mounts) {
		return nil, fmt.Errorf("the container %s has the mounts of the step that has made it: give the same "+
			"--container-mounts, or leave them out", w.Name)
	}
	return &Made{Space: filepath.Join(s.spaces.Dir(name), "ns"), Config: k.Config, Driver: k.Driver}, nil
}

// Remove removes a container; its processes must have ended, or they keep what they have. One that does not exist is no
// error.
func (s *Store) Remove(name string) error {
	s.mu.Lock()
	_, known := s.making[name]
	if _, has := s.held[name]; !has && !known {
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return s.remove(name)
}

// remove does so for what an earlier Store has left, too.
func (s *Store) remove(name string) error {
	defer s.lock(name)()
	err := s.spaces.Remove(name)
	s.mu.Lock()
	digest, has := s.held[name]
	if err == nil {
		delete(s.held, name)
	}
	s.mu.Unlock()
	if has && err == nil {
		s.images.Release(digest)
	}
	return err
}

// Has reports whether there is a container of the name.
func (s *Store) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.held[name]
	return has
}

// Layers gives the directory of the changes of each container, by its name.
func (s *Store) Layers() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string, len(s.held))
	for name := range s.held {
		out[name] = filepath.Join(s.spaces.Dir(name), upperName)
	}
	return out
}

// RemoveAll removes the containers whose names begin with a word, and says how many there were.
func (s *Store) RemoveAll(prefix string) (int, error) {
	s.mu.Lock()
	var names []string
	for name := range s.held {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, s.Remove(name))
	}
	return len(names), errors.Join(errs...)
}

// Sweep removes all containers but those whose names begin with one of these words.
func (s *Store) Sweep(keep []string) error {
	names, err := s.spaces.Names()
	errs := []error{err}
	for _, name := range names {
		if !slices.ContainsFunc(keep, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			errs = append(errs, s.remove(name))
		}
	}
	return errors.Join(errs...)
}

// Clean removes what containers have left.
func (s *Store) Clean(ctx context.Context) error { return s.spaces.Clean(ctx) }

// Close unmounts the directory if no container is left.
func (s *Store) Close() error {
	s.ids.close()
	return s.spaces.Close()
}

// NameOf gives the name of a container: of a step of a job's attempt, or the one that its user has named.
func NameOf(attempt string, step int32, w *wish.Wish) string {
	if w.Name != "" {
		return Named(attempt) + w.Name
	}
	return fmt.Sprintf("%s.step%d", attempt, step)
}

// Named is how the names of the containers of an attempt begin that its user has named.
func Named(attempt string) string { return InJob(attempt) + "named-" }

// InJob is how the names of the containers of an attempt begin.
func InJob(attempt string) string { return attempt + "." }
