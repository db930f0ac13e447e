package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/asuser"
	"gbatch/noded/container"
)

// Options configure a Cache.
type Options struct {
	Dir     string   // absolute; its parent must exist
	Bytes   int64    // what all images together may take, unpacked
	Program []string // the program whose main calls Main, with Word; nil: this one
	Log     *slog.Logger
	Homes   *asuser.Places // for reads of users' credentials
}

const (
	atOnce     = 4           // processes that ask registries
	atOnceEach = 2           // of them for one user: a registry that is slow on purpose stops nobody else
	lookedUp   = time.Minute // how long a user's name of an image means the same
	maxKnown   = 4096        // names
	slackBytes = 64 << 20    // what unpacked images take beside their files
	swell      = 3           // how much larger than its layers an image is usually
	infoFile   = "image.json"
	rootName   = "root"
)

var digestName = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)

// Image is an image that is here.
type Image struct {
	Digest string // of its manifest: sha256:...
	Config Config
	Bytes  int64
	Files  int64

	dir   string
	holds int
	used  time.Time
}

// Root is the directory with its files.
func (i *Image) Root() string { return filepath.Join(i.dir, rootName) }

// Cache has a node's images. Its methods may be called at the same time.
type Cache struct {
	o     Options
	slots chan struct{}
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu       sync.Mutex
	images   map[string]*Image
	total    int64               // of images
	reserved int64               // for images that are being unpacked
	known    map[string]meaning  // by user and name
	flights  map[string]*flight  // by user and name
	coming   map[string]*arrival // by digest
	turns    map[uint32]*turn    // by user
	count    int                 // of directories made
	imports  int                 // for tests: images unpacked
}

// meaning is what a user's name of an image meant.
type meaning struct {
	digest string
	at     time.Time
}

// flight is a name that is being looked up, and its image fetched. It ends when nobody waits for it any more.
type flight struct {
	done    chan struct{}
	digest  string
	err     error
	waiting int
	stop    context.CancelFunc
}

// turn has one user's places among those who ask registries.
type turn struct {
	places chan struct{}
	users  int // flights that have one or wait for one
}

// arrival is an image that is being unpacked.
type arrival struct {
	done chan struct{}
	err  error
}

// Open prepares the directory. Images of an earlier Cache are still there.
func Open(o Options) (*Cache, error) {
	if o.Program == nil {
		o.Program = []string{"/proc/self/exe", Word}
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Cache{o: o, slots: make(chan struct{}, atOnce), ctx: ctx, stop: stop, images: map[string]*Image{},
		known: map[string]meaning{}, flights: map[string]*flight{}, coming: map[string]*arrival{}, turns: map[uint32]*turn{}}
	if err := container.OwnDir(o.Dir); err != nil {
		return nil, fmt.Errorf("the place of containers' images: %w", err)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(o.Dir, e.Name())
		if digestName.MatchString(e.Name()) {
			if img := read(dir); img != nil && img.Digest == strings.Replace(e.Name(), "-", ":", 1) {
				c.images[img.Digest] = img
				c.total += img.Bytes
				continue
			}
		}
		if strings.HasPrefix(e.Name(), "incoming-") || digestName.MatchString(e.Name()) {
			if err := c.discard(dir); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// read reads an image's description; nil if it is not whole.
func read(dir string) *Image {
	file := filepath.Join(dir, infoFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	img := &Image{dir: dir}
	st, err := os.Stat(file)
	if err != nil || json.Unmarshal(text, img) != nil || img.Bytes < 0 {
		return nil
	}
	img.used = st.ModTime()
	return img
}

// Start removes what is left over, once the daemon runs.
func (c *Cache) Start() {
	c.mu.Lock()
	c.makeRoom(0)
	c.mu.Unlock()
	c.Clean()
}

// Close ends what is under way.
func (c *Cache) Close() {
	c.stop()
	c.wg.Wait()
}

// Get gives the image that a name means to a user, and holds it: Release ends that. It is fetched if it is not here.
func (c *Cache) Get(ctx context.Context, u *User, ref string) (*Image, error) {
	key := strconv.FormatUint(uint64(u.UID), 10) + " " + Plain(ref)
	c.mu.Lock()
	if m, ok := c.known[key]; ok && time.Since(m.at) < lookedUp {
		if img := c.hold(m.digest); img != nil {
			c.mu.Unlock()
			return img, nil
		}
	}
	f := c.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var of context.Context
		of, f.stop = context.WithTimeout(c.ctx, MostTime)
		c.flights[key] = f
		c.wg.Go(func() { c.fly(of, f, key, u, ref) })
	}
	f.waiting++
	c.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.waiting--; f.waiting == 0 && c.flights[key] == f {
			delete(c.flights, key)
			f.stop()
		}
		return nil, &Error{Image: ref, Text: "nobody waits for it any more"}
	}
	if f.err != nil {
		return nil, f.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if img := c.hold(f.digest); img != nil {
		return img, nil
	}
	return nil, &Error{Image: ref, Text: "it had to make room for others; try again, or have ContainerCacheSize raised"}
}

// hold keeps an image from being removed; nil if it is not here. c.mu is held.
func (c *Cache) hold(digest string) *Image {
	img := c.images[digest]
	if img == nil {
		return nil
	}
	img.holds++
	img.used = time.Now()
	_ = os.Chtimes(filepath.Join(img.dir, infoFile), img.used, img.used) // the next gnoded takes it for older
	return img
}

// Hold holds an image that a container of an earlier gnoded uses; nil if it is not here.
func (c *Cache) Hold(digest string) *Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold(digest)
}

// Release ends a hold.
func (c *Cache) Release(digest string) {
	c.mu.Lock()
	if img := c.images[digest]; img != nil && img.holds > 0 {
		img.holds--
	}
	c.makeRoom(0)
	c.mu.Unlock()
}

// fly looks a name up.
func (c *Cache) fly(ctx context.Context, f *flight, key string, u *User, ref string) {
	defer f.stop()
	digest, err := c.fetch(ctx, u, ref)
	c.mu.Lock()
	defer c.mu.Unlock()
	var e *Error
	if old, ok := c.known[key]; ok && errors.As(err, &e) && e.kind == kindAway && c.images[old.digest] != nil {
		c.o.Log.Warn("a registry can't be reached; the image of before is used", "image", ref, "err", err)
		digest, err = old.digest, nil
	}
	if err == nil {
		if len(c.known) >= maxKnown {
			c.known = map[string]meaning{} // names are looked up again
		}
		c.known[key] = meaning{digest, time.Now()}
	} else if errors.As(err, &e) && e.kind == kindDenied {
		delete(c.known, key)
	}
	f.digest, f.err = digest, err
	if c.flights[key] == f {
		delete(c.flights, key)
	}
	close(f.done)
}

// turn waits for a place among those who ask registries, until leave is called.
func (c *Cache) turn(ctx context.Context, uid uint32) (leave func(), err error) {
	c.mu.Lock()
	t := c.turns[uid]
	if t == nil {
		t = &turn{places: make(chan struct{}, atOnceEach)}
		c.turns[uid] = t
	}
	t.users++
	c.mu.Unlock()
	gone := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(c.turns, uid)
		}
	}
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots; <-t.places; gone() }, nil
	case <-ctx.Done():
		<-t.places
		gone()
		return nil, ctx.Err()
	}
}

// fetch asks the registry, and gets the image if it is not here.
func (c *Cache) fetch(ctx context.Context, u *User, ref string) (digest string, err error) {
	leave, err := c.turn(ctx, u.UID)
	if err != nil {
		return "", &Error{Image: ref, Text: "gnoded ends, or it took too long"}
	}
	defer leave()
	_, registry, err := parseRef(ref)
	if err != nil {
		return "", &Error{Image: ref, Text: err.Error(), kind: kindDenied}
	}
	o := &order{Ref: ref, Arch: runtime.GOARCH}
	o.User, o.Password = login(c.o.Homes, u, registry)
	for whole := false; ; whole = true {
		digest, err = c.try(ctx, o, whole)
		var e *Error
		if whole || !errors.As(err, &e) || e.kind != kindRoom {
			return digest, err
		}
	}
}

// try does that once. With whole the image gets all the room that can be made.
func (c *Cache) try(ctx context.Context, o *order, whole bool) (string, error) {
	c.mu.Lock()
	c.count++
	dir := filepath.Join(c.o.Dir, fmt.Sprintf("incoming-%d", c.count))
	c.mu.Unlock()
	root, err := makeIncoming(dir)
	if err != nil {
		return "", fmt.Errorf("make room for an image: %w", err)
	}
	defer func() {
		_ = root.Close()   // it was only a name
		_ = c.discard(dir) // it is gone, or removed at the next start
		c.Clean()
	}()
	p, err := c.startImport(ctx, root, o)
	if err != nil {
		return "", err
	}
	defer p.end()
	var f found
	if err := p.read(ctx, o.Ref, &f); err != nil {
		return "", err
	}
	if !digestName.MatchString(strings.Replace(f.Digest, ":", "-", 1)) || f.Bytes < 0 {
		return "", &Error{Image: o.Ref, Text: "its digest is none"}
	}
	a, mine := c.arrive(f.Digest)
	if a == nil {
		return f.Digest, nil
	}
	if !mine {
		p.end() // another one gets it
		select {
		case <-a.done:
			return f.Digest, a.err
		case <-ctx.Done():
			return "", &Error{Image: o.Ref, Text: "gnoded ends"}
		}
	}
	err = c.take(ctx, p, o.Ref, &f, dir, whole)
	c.mu.Lock()
	a.err = err
	delete(c.coming, f.Digest)
	close(a.done)
	c.mu.Unlock()
	return f.Digest, err
}

// makeIncoming makes the directory of an image that comes; the descriptor is of the one for its files.
func makeIncoming(dir string) (*os.File, error) {
	root := filepath.Join(dir, rootName)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.Mkdir(root, 0o755)); err != nil {
		return nil, err
	}
	err := os.Chmod(root, 0o755)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(root, nobody, nobody))
	}
	if err != nil {
		return nil, err
	}
	return os.Open(root)
}

// arrive says who gets an image: nil if it is here, mine if the caller is to get it.
func (c *Cache) arrive(digest string) (a *arrival, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images[digest] != nil {
		return nil, false
	}
	if a = c.coming[digest]; a != nil {
		return a, false
	}
	a = &arrival{done: make(chan struct{})}
	c.coming[digest] = a
	return a, true
}

// take lets the process unpack, and puts the image into its place.
func (c *Cache) take(ctx context.Context, p *importer, ref string, f *found, dir string, whole bool) error {
	began := time.Now()
	room := c.reserve(f.Bytes, whole)
	defer func() {
		c.mu.Lock()
		c.reserved -= room
		c.mu.Unlock()
	}()
	if room <= 0 {
		return &Error{Image: ref, kind: kindRoom, Text: fmt.Sprintf("there is no room for it: all images together may take "+
			"%d bytes (ContainerCacheSize), and jobs use those that are here", c.o.Bytes)}
	}
	if err := json.NewEncoder(p.in).Encode(&goOn{MaxBytes: room}); err != nil {
		return &Error{Image: ref, Text: "the process that gets images has ended"}
	}
	var r result
	if err := p.read(ctx, ref, &r); err != nil {
		return err
	}
	img := &Image{Digest: f.Digest, Config: bound(r.Config), Bytes: min(max(r.Bytes, 0), room), Files: r.Files,
		used: time.Now()}
	img.dir = filepath.Join(c.o.Dir, strings.Replace(f.Digest, ":", "-", 1))
	text, err := json.Marshal(img)
	if err == nil {
		err = writeSynced(filepath.Join(dir, infoFile), text)
	}
	if err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(dir, img.dir); err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	c.images[img.Digest] = img
	c.total += img.Bytes
	c.imports++
	c.o.Log.Info("an image was fetched", "image", ref, "digest", img.Digest, "bytes", img.Bytes, "files", img.Files,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// The bounds of what an image says about itself.
const (
	maxWords = 1024
	maxWord  = 32 << 10
)

// bound leaves out what no program could be given.
func bound(c Config) Config {
	for _, l := range []*[]string{&c.Env, &c.Entrypoint, &c.Cmd} {
		*l = slices.DeleteFunc((*l)[:min(len(*l), maxWords)],
			func(w string) bool { return len(w) > maxWord || strings.IndexByte(w, 0) >= 0 })
	}
	if len(c.WorkDir) >= unix.PathMax || strings.IndexByte(c.WorkDir, 0) >= 0 || !filepath.IsAbs(c.WorkDir) {
		c.WorkDir = ""
	}
	return c
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// reserve makes room for an image of so many bytes of layers; it may get less than it needs.
func (c *Cache) reserve(packed int64, whole bool) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := c.o.Bytes
	if !whole && packed < c.o.Bytes/swell {
		want = min(packed*swell+slackBytes, c.o.Bytes)
	}
	c.makeRoom(want)
	room := max(min(want, c.o.Bytes-c.total-c.reserved), 0)
	c.reserved += room
	return room
}

// makeRoom removes the images that were used longest ago, until there is room for so many bytes more, or the others are
// in use. c.mu is held.
func (c *Cache) makeRoom(bytes int64) {
	var idle []*Image
	for _, img := range c.images {
		if img.holds == 0 {
			idle = append(idle, img)
		}
	}
	slices.SortFunc(idle, func(a, b *Image) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Digest, b.Digest)) })
	for _, img := range idle {
		if c.total+c.reserved+bytes <= c.o.Bytes {
			return
		}
		if err := c.discard(img.dir); err != nil {
			c.o.Log.Warn("an image could not be removed", "digest", img.Digest, "err", err)
			continue
		}
		delete(c.images, img.Digest)
		c.total -= img.Bytes
		c.o.Log.Info("an image was removed to make room", "digest", img.Digest, "bytes", img.Bytes)
	}
}

// discard puts a directory aside.
func (c *Cache) discard(dir string) error {
	err := os.Rename(dir, filepath.Join(c.o.Dir, fmt.Sprintf("gone-%d-%d", os.Getpid(), time.Now().UnixNano())))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Clean removes what was put aside, in its own time.
func (c *Cache) Clean() {
	c.wg.Go(func() {
		gone, err := filepath.Glob(filepath.Join(c.o.Dir, "gone-*"))
		for _, dir := range gone {
			err = errors.Join(err, container.Empty(c.ctx, dir), ignoreAbsent(os.Remove(dir)))
		}
		if err != nil && c.ctx.Err() == nil {
			c.o.Log.Warn("files of removed images are left; it is tried again later", "err", err)
		}
	})
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
