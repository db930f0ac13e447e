package box

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	wish "gbatch/internal/model/container"
	"gbatch/noded/asuser"
	"gbatch/noded/image"
)

// fill.go fills a new mount namespace. It runs as root on a thread of its own, which ends afterwards; whatever a user
// names is opened with that user's rights to files.

type filling struct {
	o     *Order
	image *image.Image
	dir   string // the container's own, of which only root sees anything
	ids   *ids
	keep  *kept

	trees []tree // in the order in which they are mounted
}

// tree is a directory or file that is cut off from where it is mounted, to be mounted in the container.
type tree struct {
	at     string
	fd     int
	dir    bool
	mine   bool   // the user has named at
	source string // for errors
}

// systemNodes are the device files that every program may need.
var systemNodes = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
	"/dev/fuse"}

// fabric are directories of device files that belong to no unit: networks that programs use beside GPUs.
var fabric = []string{"/dev/infiniband", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/dri", "/dev/knem",
	"/dev/gdrdrv", "/dev/xpmem"}

// nodeFiles are the node's own in place of the image's.
var nodeFiles = []string{"/etc/resolv.conf", "/etc/hosts"}

func (f *filling) fill() (err error) {
	defer func() {
		for _, t := range f.trees {
			_ = unix.Close(t.fd) // it is mounted, or goes
		}
	}()
	if err := f.enterSpace(); err != nil {
		return err
	}
	for _, step := range []func() error{f.takeNode, f.takeUsers, f.overlay, f.note, f.pivot, f.points, f.mountAll} {
		if err := step(); err != nil {
			return err
		}
	}
	if f.o.Wish.Write == wish.No {
		return readOnly("/")
	}
	return nil
}

const writerPatience = 2 * time.Second

// readOnly lets nobody write to the mount at path. A file that was written here is closed, but a process that the
// daemon forked meanwhile has it open for writing until it becomes its program, and so long the kernel refuses.
func readOnly(path string) error {
	err := whileBusy(func() error {
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		return unix.MountSetattr(unix.AT_FDCWD, path, 0, &a)
	})
	if err != nil {
		return fmt.Errorf("make the image read-only: %w", err)
	}
	return nil
}

// whileBusy does something again as long as the kernel says EBUSY, for a while.
func whileBusy(do func() error) error {
	for until := time.Now().Add(writerPatience); ; time.Sleep(time.Millisecond) {
		if err := do(); err != unix.EBUSY || time.Now().After(until) {
			return err
		}
	}
}

// enterSpace goes on from the job's own mount namespace, where it has one.
func (f *filling) enterSpace() error {
	if f.o.Space != "" {
		fd, err := unix.Open(f.o.Space, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: f.o.Space, Err: err}
		}
		err = unix.Setns(fd, unix.CLONE_NEWNS)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("enter the job's mount namespace: %w", err)
		}
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("cut off the mounts: %w", err)
	}
	return nil
}

// takeNode takes what every container has of the node.
func (f *filling) takeNode() error {
	const ro, noexec = unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_NOEXEC
	if err := errors.Join(f.take("/proc", "/proc", noexec), f.take("/sys", "/sys", ro|noexec),
		f.take("/tmp", "/tmp", 0)); err != nil {
		return err
	}
	fd, err := newTmpfs("mode=755,size=1m", unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	f.trees = append(f.trees, tree{at: "/dev", fd: fd, dir: true, source: "tmpfs"})
	optional := []string{"/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/hugepages"}
	nodes := append(append(append([]string{}, systemNodes...), optional...), f.o.Devices...)
	if f.o.Driver {
		nodes = append(nodes, fabric...)
	}
	for _, node := range nodes {
		// It is opened by root: a name that gres.conf has.
		flags := uint64(noexec)
		if node == "/dev/shm" {
			flags = 0
		}
		if err := f.take(node, node, flags); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, file := range nodeFiles {
		if err := f.take(file, file, ro); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, file := range f.o.Show {
		if err := f.take(file, file, ro); err != nil {
			return err
		}
	}
	if f.o.Driver {
		for _, lib := range DriverFiles() {
			if err := f.take(lib.File, lib.At, ro); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			f.keep.Driver = true
		}
	}
	return nil
}

// takeUsers takes what the user names, with the user's rights.
func (f *filling) takeUsers() error {
	u := &f.o.User
	if err := asuser.OnThread(u.UID, u.GID, u.Groups); err != nil {
		return err
	}
	w := f.o.Wish
	var errs []error
	if w.Home.Or(false) && isHome(u.Home) {
		errs = append(errs, f.takeUser(wish.Mount{Source: u.Home, Target: u.Home}))
	}
	for _, text := range w.Mounts {
		m, err := wish.ParseMount(text)
		if err == nil {
			err = f.takeUser(m)
		}
		errs = append(errs, err)
	}
	// The groups stay the user's; only files of root are made from now on.
	return errors.Join(append(errs, asuser.Files(0, 0))...)
}

// Sources gives what of the node a user's container is to have because the user says so.
func Sources(u *image.User, w *wish.Wish) (paths []string) {
	if w.Home.Or(false) && isHome(u.Home) {
		paths = append(paths, u.Home)
	}
	for _, text := range w.Mounts {
		if m, err := wish.ParseMount(text); err == nil && m.Source != wish.Tmpfs {
			paths = append(paths, m.Source)
		}
	}
	return paths
}

func isHome(home string) bool { return filepath.IsAbs(home) && filepath.Clean(home) != "/" }

func (f *filling) takeUser(m wish.Mount) error {
	flags := uint64(0)
	if m.ReadOnly {
		flags |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoExec {
		flags |= unix.MOUNT_ATTR_NOEXEC
	}
	if m.Source == wish.Tmpfs {
		fd, err := newTmpfs(fmt.Sprintf("mode=700,uid=%d,gid=%d", f.o.User.UID, f.o.User.GID), unix.MOUNT_ATTR_NODEV)
		if err != nil {
			return err
		}
		f.trees = append(f.trees, tree{at: m.Target, fd: fd, dir: true, mine: true, source: m.Source})
		return nil
	}
	if err := f.take(m.Source, m.Target, flags); err != nil {
		return fmt.Errorf("--container-mounts: %w", err)
	}
	f.trees[len(f.trees)-1].mine = true
	return nil
}

// take cuts off a copy of what is mounted at a path, with all that is mounted below it. Without that, as the kernel's
// bind has it, everybody would see what mounts hide: the node's /tmp below a job's own, files below what an
// administrator has mounted over them. The kernel refuses it to users; this process is root's. Links into processes
// (/proc/self/fd) are not followed: it is the daemon.
func (f *filling) take(source, at string, flags uint64) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	name, err := unix.Openat2(unix.AT_FDCWD, source, &how)
	if err != nil {
		return &os.PathError{Op: "open", Path: source, Err: err}
	}
	defer unix.Close(name) //nolint:errcheck // it was only a name
	var st unix.Stat_t
	if err := unix.Fstat(name, &st); err != nil {
		return &os.PathError{Op: "stat", Path: source, Err: err}
	}
	const recursive = unix.AT_RECURSIVE
	fd, err := unix.OpenTree(name, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|recursive)
	if err != nil {
		return &os.PathError{Op: "mount", Path: source, Err: err}
	}
	a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | flags, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, &a); err != nil {
		_ = unix.Close(fd) // err says why it is of no use
		return &os.PathError{Op: "mount", Path: source, Err: err}
	}
	f.trees = append(f.trees, tree{at: filepath.Clean(at), fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR,
		source: source})
	return nil
}

// newTmpfs makes a file system of memory that is mounted nowhere.
func newTmpfs(options string, flags int) (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a tmpfs: %w", err)
	}
	defer unix.Close(fs) //nolint:errcheck // the mount has it
	for _, o := range strings.Split(options, ",") {
		key, value, _ := strings.Cut(o, "=")
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return -1, fmt.Errorf("make a tmpfs with %s: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a tmpfs: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|flags)
	if err != nil {
		return -1, fmt.Errorf("mount a tmpfs: %w", err)
	}
	return fd, nil
}

// overlay mounts the image, with a layer of changes, in the container's directory.
func (f *filling) overlay() error {
	lower, upper, work, root := filepath.Join(f.dir, "lower"), filepath.Join(f.dir, upperName),
		filepath.Join(f.dir, "work"), filepath.Join(f.dir, "root")
	for _, d := range []string{lower, upper, work, root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(upper, 0o755), os.Chown(upper, int(f.o.User.UID), int(f.o.User.GID))); err != nil {
		return err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, f.image.Root(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "mount", Path: f.image.Root(), Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // it is mounted, or of no use
	space, err := f.ids.of(f.o.User.UID, f.o.User.GID)
	if err != nil {
		return err
	}
	a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
		unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(space)}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &a); err != nil {
		return fmt.Errorf("show the image's files as the user's: %w (containers need Linux 5.19, and a file system for "+
			"images that maps ids, such as ext4 or xfs: ContainerCachePath)", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount", Path: lower, Err: err}
	}
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work + ",volatile"
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the image with a layer of changes: %w (containers need Linux 5.19, and their directory on "+
			"a file system that overlayfs can write to, such as ext4 or xfs: ContainerCachePath)", err)
	}
	return nil
}

// note writes down what a later step, or the next gnoded, has to know.
func (f *filling) note() error {
	text, err := json.Marshal(f.keep)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, keptName), text, 0o600)
}

// pivot makes the image the root, and leaves the node's mounts.
func (f *filling) pivot() error {
	if err := unix.Chdir(filepath.Join(f.dir, "root")); err != nil {
		return fmt.Errorf("enter the image: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make the image the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the node's mounts: %w", err)
	}
	return unix.Chdir("/")
}

// mountAll mounts what was taken.
func (f *filling) mountAll() error {
	for i := range f.trees {
		t := &f.trees[i]
		if err := f.mount(t); err != nil {
			return fmt.Errorf("mount %s at %s in the container: %w", t.source, t.at, err)
		}
		if t.at == "/dev" {
			if err := f.fillDev(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filling) mount(t *tree) error {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	at, err := unix.Open(t.at, flags, 0)
	if err == unix.ENOENT {
		// It is in a directory of the node's that was mounted before: the user's rights decide.
		if err = f.asUser(func() error { return f.point(t.at, t.dir, false) }); err == nil {
			at, err = unix.Open(t.at, flags, 0)
		}
	}
	if err != nil {
		return err
	}
	err = unix.MoveMount(t.fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err == unix.EINVAL || err == unix.ENOTDIR {
		err = errors.New("one is a directory, and the other is not")
	}
	return errors.Join(err, unix.Close(at))
}

// asUser does something with the user's rights to files.
func (f *filling) asUser(do func() error) error {
	u := &f.o.User
	if err := asuser.OnThread(u.UID, u.GID, u.Groups); err != nil {
		return err
	}
	return errors.Join(do(), asuser.Files(0, 0))
}
