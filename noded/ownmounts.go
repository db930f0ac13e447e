package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	wish "gbatch/internal/model/container"
	"gbatch/internal/proto"
	"gbatch/noded/asuser"
	"gbatch/noded/box"
	"gbatch/noded/boxenv"
	"gbatch/noded/container"
	"gbatch/noded/image"
	"gbatch/noded/layers"
	"gbatch/noded/oci"
	"gbatch/noded/shim"
	"gbatch/noded/steppmi"
)

// ownmounts.go gives jobs directories of their own in place of /tmp, /var/tmp and /dev/shm if the configuration wants
// that (noded/container): made with the job's group, before its prolog; entered by its script and by all of its steps'
// processes here; removed when the job's processes have ended, before its epilog. The files of --output, --error and
// --input are opened outside: they are the node's, as is what gnoded writes there when the job has ended.

// openBoxes prepares jobs' own directories; nil without any.
func openBoxes(o *Options) (*container.Store, error) {
	if o.Config == nil {
		return nil, nil
	}
	c := o.Config.ContainerOf(o.Name)
	if c == nil {
		return nil, nil
	}
	base := conf.ExpandPath(c.BasePath, o.Name, o.Host)
	if base == "" {
		base = o.Spool
	} else if c.AutoBase {
		if err := os.MkdirAll(base, 0o755); err != nil {
			return nil, fmt.Errorf("make BasePath of job_container.conf: %w", err)
		}
	}
	// What jobs need of gbatch is there even in a test's cluster below /tmp.
	keep := []string{o.Spool, o.SocketDir, filepath.Dir(o.Shim)}
	if o.ConfigPath != "" {
		keep = append(keep, filepath.Dir(o.ConfigPath))
	}
	return container.Open(container.Options{Base: filepath.Join(base, "containers-"+o.Name), Dirs: c.Dirs,
		Shared: c.Shared, Keep: keep})
}

// ownMounts gives the mount namespace of an attempt, "" without any.
func (n *Noded) ownMounts(key proto.Attempt) (string, error) {
	if n.boxes == nil {
		return "", nil
	}
	return n.boxes.Make(nameOf(key))
}

// dropMounts removes the directories of an attempt whose processes have ended.
func (n *Noded) dropMounts(key proto.Attempt) error {
	if err := n.dropBundles(n.bundles.RemoveAll(box.InJob(nameOf(key)))); err != nil {
		return err
	}
	if rooms := n.rooms.Load(); rooms != nil {
		some, err := rooms.RemoveAll(box.InJob(nameOf(key)))
		if err != nil {
			return fmt.Errorf("remove the job's containers: %w", err)
		}
		if some > 0 {
			n.cleanRooms()
		}
	}
	if n.boxes == nil {
		return nil
	}
	if err := n.boxes.Remove(nameOf(key)); err != nil {
		return fmt.Errorf("remove the job's own directories: %w", err)
	}
	n.cleanMounts()
	return nil
}

// cleanMounts removes what ended jobs have left in their directories.
func (n *Noded) cleanMounts() {
	n.stops.Do(func(ctx context.Context) {
		if err := n.boxes.Clean(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Warn("files in the directories of ended jobs could not be removed; it is tried again at the next job's end",
				"err", err)
		}
	})
}

// sweepMounts removes the directories of attempts that nobody knows.
func (n *Noded) sweepMounts(keep []proto.Attempt) error {
	prefixes := make([]string, 0, len(keep))
	for _, key := range keep {
		prefixes = append(prefixes, box.InJob(nameOf(key)))
	}
	if err := n.bundles.Sweep(prefixes); err != nil {
		return err
	}
	n.cleanBundles()
	if rooms := n.rooms.Load(); rooms != nil {
		if err := rooms.Sweep(prefixes); err != nil {
			return err
		}
		n.cleanRooms()
	}
	if n.images != nil {
		n.images.Start()
	}
	if n.boxes == nil {
		return nil
	}
	names := make([]string, 0, len(keep))
	for _, key := range keep {
		names = append(names, nameOf(key))
	}
	err := n.boxes.Sweep(names)
	n.cleanMounts()
	return err
}

// How many attempts and steps may wait for images and users' directories at once: of all users, and of each.
const (
	maxImports  = 64
	eachImports = maxImports / 4
)

// openImages prepares the images and containers of this node.
func (n *Noded) openImages() error {
	c := n.opts.Config
	switch {
	case c == nil:
		return errors.New("gnoded has no configuration")
	case c.ContainerCacheMiB <= 0:
		return errors.New("ContainerCacheSize is 0: this node runs no containers")
	case !n.root:
		return errors.New("gnoded does not run as root: it can make no containers")
	case n.opts.Importer == "" && n.opts.Verdict == "":
		return errors.New("gnoded does not know its program")
	}
	base := conf.ExpandPath(c.ContainerCachePath, n.opts.Name, n.opts.Host)
	if base == "" {
		base = n.opts.Spool
	} else if err := os.MkdirAll(base, 0o755); err != nil {
		return fmt.Errorf("make ContainerCachePath: %w", err)
	}
	images, err := image.Open(image.Options{Dir: filepath.Join(base, "images-"+n.opts.Name), Log: n.log,
		Bytes: c.ContainerCacheMiB << 20, Program: []string{orElse(n.opts.Importer, n.opts.Verdict), image.Word},
		Homes: n.tellers})
	if err != nil {
		return err
	}
	n.images, n.roomsAt = images, filepath.Join(base, "boxes-"+n.opts.Name)
	if _, err := os.Lstat(n.roomsAt); err == nil { // there may be containers
		if _, err = n.openRooms(); err != nil {
			n.images = nil
			images.Close()
			return err
		}
	}
	return nil
}

// openRooms gives the containers of this node. Their directory is a mount: a node that runs none has none.
func (n *Noded) openRooms() (*box.Store, error) {
	n.opening.Lock()
	defer n.opening.Unlock()
	if rooms := n.rooms.Load(); rooms != nil {
		return rooms, nil
	}
	if n.images == nil {
		return nil, fmt.Errorf("there are no containers: %w", n.noImages)
	}
	rooms, err := box.Open(n.roomsAt, n.images, n.log)
	if err != nil {
		return nil, err
	}
	n.rooms.Store(rooms)
	return rooms, nil
}

// room is a container that a script or a step's tasks run in.
type room struct {
	key   proto.Attempt
	step  int32
	spec  *model.Spec
	wish  *wish.Wish
	gres  []model.GresAlloc
	space string   // the job's own mount namespace
	show  []string // files of the node that are there too

	bundle *oci.Order // nil: it is a container of an image
	made   *box.Made
	user   image.User
	at     map[string]string // programs that were found
}

// wishOfJob gives the container that a job's script is to run in, nil for none.
func wishOfJob(s *model.Spec) *wish.Wish {
	if s == nil || s.More == nil {
		return nil
	}
	return s.More.Container
}

// makeRoom makes a container, or finds it made. It waits for the image.
func (n *Noded) makeRoom(ctx context.Context, r *room) error {
	if r.spec.UID == 0 {
		return errors.New("root's jobs run in no containers: submit it as a user")
	}
	if err := r.wish.Check(); err != nil { // whoever has sent it
		return err
	}
	if err := n.layers.Refuses(ctx, r.spec.UID); err != nil {
		return err
	}
	if r.wish.Bundle != "" {
		return n.orderBundle(r)
	}
	rooms, err := n.openRooms()
	if err != nil {
		return err
	}
	account := n.names.Account(r.spec.UID)
	r.user = image.User{UID: r.spec.UID, GID: r.spec.GID, Groups: n.given(r.spec.UID, r.spec.Groups), Home: account.Home}
	if err := n.sourcesAnswer(r); err != nil {
		return err
	}
	files := n.groups.units.Files(r.gres)
	r.made, err = rooms.Make(ctx, box.NameOf(nameOf(r.key), r.step, r.wish), &box.Order{User: r.user, Name: r.spec.User,
		Wish: r.wish, Space: r.space, Devices: files, Driver: len(files) > 0, Show: r.show})
	return err
}

// sourceWait is how long the file servers of what a user mounts may take to answer.
const sourceWait = 30 * time.Second

// sourcesAnswer looks, as the user, at what is to be mounted in a container. What it finds does not matter: who makes
// the container says so. But a file server that is gone would hold that for as long as it is gone.
func (n *Noded) sourcesAnswer(r *room) error {
	paths := box.Sources(&r.user, r.wish)
	if len(paths) == 0 {
		return nil
	}
	_, err := asuser.Within(n.tellers, r.user.UID, sourceWait, func() (none struct{}, err error) {
		if err := asuser.Become(r.user.UID, r.user.GID, r.user.Groups); err != nil {
			return none, err
		}
		for _, p := range paths {
			_, _ = os.Stat(p) // it answers
		}
		return none, nil
	})
	switch {
	case errors.Is(err, asuser.ErrHangs):
		return fmt.Errorf("--container-mounts or --container-mount-home: the file server of one of %s does not answer",
			strings.Join(paths, ", "))
	case errors.Is(err, asuser.ErrCrowded):
		return fmt.Errorf("--container-mounts or --container-mount-home: %w on this node", err)
	}
	return err
}

// stepRoom makes the container of a step's tasks here; nil where they run in none.
func (n *Noded) stepRoom(ctx context.Context, p *stepPlan, share *model.NodeAlloc) (*room, error) {
	if p.req.Container == nil || p.req.Receive != nil { // the node takes the file in
		return nil, nil
	}
	named := func(program string) bool { return program != "" && program != "none" }
	r := &room{key: p.key, step: p.rec.ID, spec: p.facts.Spec, wish: p.req.Container, gres: share.Gres, space: p.space,
		show: n.taskPrograms(named(p.req.Prolog) || named(p.req.Epilog))}
	return r, n.makeRoom(ctx, r)
}

// moveIn makes an order one of a process in the container, if there is one.
func (n *Noded) moveIn(o *shim.Launch, r *room) error {
	if r == nil {
		return nil
	}
	if r.bundle != nil {
		return n.runBundle(o, r)
	}
	o.Mounts, o.Confined, o.Dir = r.made.Space, true, box.Dir(&r.made.Config, r.wish)
	o.Env = box.Environ(o.Env, r.made, r.wish)
	program := o.Path
	if r.wish.Entry.Or(false) && len(r.made.Config.Entrypoint) > 0 {
		o.Argv = box.Arguments(append([]string{program}, o.Argv[1:]...), &r.made.Config, r.wish)
		program = o.Argv[0]
	}
	if r.at[program] == "" {
		found, err := box.Find(r.made, &r.user, o.Dir, o.Env, []string{program})
		if err != nil {
			return fmt.Errorf("look for %s in the container: %w", program, err)
		}
		if r.at == nil {
			r.at = map[string]string{}
		}
		r.at[program] = found[0]
	}
	o.Path = r.at[program]
	return nil
}

// leaveRoom removes the container of a step that has ended; one with a name stays until the job ends.
func (n *Noded) leaveRoom(key proto.Attempt, step int32) error {
	rooms, name := n.rooms.Load(), box.NameOf(nameOf(key), step, &wish.Wish{})
	if err := n.dropBundles(n.bundles.Remove(name)); err != nil {
		return err
	}
	if rooms == nil || !rooms.Has(name) {
		return nil
	}
	err := rooms.Remove(name)
	n.cleanRooms()
	return err
}

// cleanRooms removes what containers have left.
func (n *Noded) cleanRooms() {
	n.stops.Do(func(ctx context.Context) {
		if err := n.rooms.Load().Clean(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Warn("files of ended containers could not be removed; it is tried again at the next container's end",
				"err", err)
		}
	})
}

// taskPrograms are the configuration's programs around tasks, which run in their containers; own: the step has some of
// its own.
func (n *Noded) taskPrograms(own bool) []string {
	r := n.configured()
	list := []string{r.TaskProlog, r.TaskEpilog}
	if _, err := os.Stat(n.opts.Shim); err == nil && (own || r.TaskProlog != "" || r.TaskEpilog != "") {
		list = append(list, n.opts.Shim) // it is around such tasks: their signals and their CPU mask come by it
	}
	return slices.DeleteFunc(list, func(p string) bool { return !filepath.IsAbs(p) })
}

// orderBundle says how the tasks of a script or a step are run by a container runtime of the node.
func (n *Noded) orderBundle(r *room) error {
	w := r.wish
	dir, err := n.bundles.Make(box.NameOf(nameOf(r.key), r.step, &wish.Wish{}), r.spec.UID, r.spec.GID)
	if err != nil {
		return err
	}
	b := &oci.Order{Bundle: w.Bundle, Spool: dir, ID: w.Name, Job: uint32(r.key.Job), Step: strconv.Itoa(int(r.step)),
		Node: n.opts.Name, User: r.spec.User, UID: r.spec.UID, GID: r.spec.GID, Again: r.key.Attempt > 1,
		Devices: n.groups.units.Files(r.gres), WorkDir: w.WorkDir, Keep: w.Env, ReadOnly: w.Write == wish.No, Root: w.Root}
	if c := n.opts.Config; c != nil {
		b.Runtime = c.Runtime()
	}
	if r.step == proto.StepBatch {
		b.Step = "batch"
	}
	if w.Home == wish.Yes {
		b.Home = n.names.Account(r.spec.UID).Home
	}
	for _, text := range w.Mounts {
		m, err := wish.ParseMount(text)
		if err != nil {
			return err
		}
		b.Mounts = append(b.Mounts, oci.Mount{From: m.Source, At: m.Target, ReadOnly: m.ReadOnly, NoExec: m.NoExec,
			Flat: m.Flat})
	}
	if len(b.Devices) > 0 {
		for _, f := range box.DriverFiles() {
			if name := filepath.Base(f.At); filepath.Dir(f.At) == boxenv.DriverLibs {
				b.Libs = append(b.Libs, oci.File{From: f.File, At: name})
			} else {
				b.Tools = append(b.Tools, oci.File{From: f.File, At: name})
			}
		}
	}
	r.bundle = b
	return nil
}

// runBundle makes an order one of the process that runs the command in a container.
func (n *Noded) runBundle(o *shim.Launch, r *room) error {
	b, program := *r.bundle, o.Path
	b.Task, b.Terminal, b.Extra = uint32(o.Key.Task), o.Terminal, o.Passed[steppmi.FD] != nil
	if r.step == proto.StepBatch {
		b.Files, program = []oci.File{{From: program, At: "script"}}, b.Shown("script")
	}
	argv, err := b.Argv(n.opts.Shim, append([]string{program}, o.Argv[1:]...))
	if err != nil {
		return err
	}
	o.Path, o.Argv = n.opts.Shim, argv
	o.Env = append(o.Env, "SLURM_CONTAINER="+b.Bundle)
	if b.ID != "" {
		o.Env = append(o.Env, "SLURM_CONTAINER_ID="+b.ID)
	}
	return nil
}

// dropBundles has the files of containers of ended steps removed, if some were taken away.
func (n *Noded) dropBundles(some bool, err error) error {
	if some {
		n.cleanBundles()
	}
	return err
}

func (n *Noded) cleanBundles() {
	n.stops.Do(func(ctx context.Context) {
		if err := n.bundles.Clean(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Warn("files of ended containers could not be removed; it is tried again at the next container's end",
				"err", err)
		}
	})
}

// places gives where the containers of this node write.
func (n *Noded) places() (list []layers.Place) {
	if rooms := n.rooms.Load(); rooms != nil {
		for name, dir := range rooms.Layers() {
			list = append(list, layers.Place{Name: name, Dir: dir})
		}
	}
	for name, dir := range n.bundles.All() {
		list = append(list, layers.Place{Name: name, Dir: dir})
	}
	return list
}

// msgOverfull names containers that have to end: their users' have written more than they may.
type msgOverfull struct{ list []layers.Over }

// onOverfull ends the steps, and the scripts, that run in these containers. One that runs on with a name ends all steps
// of its job that run in containers.
func (l *loop) onOverfull(m msgOverfull) {
	for _, o := range m.list {
		for _, a := range l.attempts {
			job := nameOf(a.key)
			if a.rec == nil || a.phase >= ending || !strings.HasPrefix(o.Name, box.InJob(job)) {
				continue
			}
			named := strings.HasPrefix(o.Name, box.Named(job))
			why := fmt.Sprintf("%s; the one with the most (%s) is ended", o.Why, o.Size())
			for _, s := range a.steps {
				if s.cause == model.NoStop && (named && s.rec.Container != "" || o.Name == box.NameOf(job, s.id, &wish.Wish{})) {
					l.log.Warn("a step in a container is ended: it writes too much", "job", a.key.Job, "step", s.id, "why", why)
					l.stopStep(s, model.StopCancel, a.rec.UID, true, fmt.Sprintf("slurmstepd: error: StepId=%s on node %s: %s",
						s.name(), l.n.opts.Name, why))
				}
			}
			inside := a.rec.Order != nil && wishOfJob(a.rec.Order.Spec) != nil
			if a.overfull == "" && inside && (named || o.Name == box.NameOf(job, proto.StepBatch, &wish.Wish{})) {
				a.overfull = fmt.Sprintf("node %s: %s", l.n.opts.Name, why)
				l.log.Warn("a script in a container is ended: it writes too much", "job", a.key.Job, "why", why)
				key := a.key
				l.then(func() {
					l.n.stops.Do(func(ctx context.Context) { l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree) })
				})
			}
		}
	}
}
