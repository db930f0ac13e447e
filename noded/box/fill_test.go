package box

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	wish "gbatch/internal/model/container"
)

// TestReadOnlyBesideWriter: somebody still has a file of the mount open for writing, as a process that was forked while
// the image's passwd was written does.
func TestReadOnlyBesideWriter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	runtime.LockOSThread() // and never unlocked: the thread has other mounts, and ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "passwd"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	if err := whileBusy(func() error {
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &a)
		if err == unix.EBUSY {
			if refused++; refused == 3 { // the process has become its program
				if err := file.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		return err
	}); err != nil || refused != 3 {
		t.Fatalf("refused %d times: %v", refused, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o600); err == nil {
		t.Error("one can write to it")
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// TestHiddenStaysHidden: with the flag bind a container has what is mounted below a directory too. Without it everybody
// would see what that hides.
func TestHiddenStaysHidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "under", "hidden"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := wish.ParseMount(dir + ":/seen:bind")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the namespace ends with the thread
		seen <- func() error {
			err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
				unix.Mount("tmpfs", filepath.Join(dir, "under"), "tmpfs", 0, ""))
			if err != nil {
				return err
			}
			f := &filling{o: &Order{}}
			if err := f.takeUser(m); err != nil {
				return err
			}
			err = unix.Fstatat(f.trees[0].fd, "under/hidden", new(unix.Stat_t), 0)
			return errors.Join(err, unix.Close(f.trees[0].fd))
		}()
	}()
	if err := <-seen; !errors.Is(err, unix.ENOENT) {
		t.Errorf("what the mount hides: %v", err)
	}
}
