package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
)

// saved is the file with the cluster's time. It is not synced to the disk: after a power failure another boot begins,
// and then only its last moment is of use, which the log has as well.
type saved struct {
	BootID string
	BootMS int64      // time since boot
	At     model.Time // the cluster's time then
}

const maxSaved = 4096 // bytes

// SinceBoot gives the time since the host's boot, suspended or not.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every Linux since 2.6.39 has it
	return time.Duration(ts.Nano())
}

// BootID names the host's present boot; "" if the kernel doesn't say.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Save writes the cluster's time to a file, by rename.
func (c *Clock) Save(path, bootID string) error {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if !known {
		return nil // there is nothing that the log doesn't have
	}
	now := c.Now()
	text, err := json.Marshal(saved{BootID: bootID, BootMS: int64(c.boot() / time.Millisecond), At: now})
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Load goes on from a file that Save wrote, if there is one: by the time that has passed if the host has not rebooted
// since, else from its moment. A file that can't be read is no reason not to start: the error is for the log.
func (c *Clock) Load(path, bootID string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Size() > maxSaved {
		err = fmt.Errorf("it has %d bytes", info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(filepath.Clean(path))
	}
	var s saved
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return fmt.Errorf("the cluster's time in %s: %w", path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = max(c.floor, s.At)
	b := c.boot()
	if passed := b - time.Duration(s.BootMS)*time.Millisecond; s.BootID == bootID && bootID != "" && passed >= 0 {
		c.known, c.at, c.atBoot = true, sinceEpoch(s.At)+passed, b
	}
	return nil
}
