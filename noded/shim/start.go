package shim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startPoll   = 10 * time.Millisecond
	servePoll   = 50 * time.Millisecond
	serveWait   = 5 * time.Second  // for a gshim that has begun and does not serve yet
	startWait   = 30 * time.Second // for another client that is starting gshim, and for an upgrade
	maxErrorLog = 4 << 10

	greetRetries = 100 // connections that end before the greeting
)

// Options are what Start needs.
type Options struct {
	Dir    string          // private to this gnoded; made if missing; absolute
	Binary string          // the program gshim
	Env    []string        // added to its environment
	Log    string          // the format of its log, one of logfile.Formats; "": text
	Wrap   func(*exec.Cmd) // has somebody start it who has all rights that it and its jobs need; nil: the caller has
}

// Connect connects to the gshim that serves dir. The events are the newest of every launch it knows; all later ones
// come from the Client. errors.Is(err, ErrNotRunning) if there is none.
func Connect(ctx context.Context, dir string) (*Client, []Event, error) {
	c, err := dialHello(ctx, dir)
	for try := 0; try < greetRetries && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)); try++ {
		// It was being upgraded, or was ending.
		select {
		case <-time.After(startPoll):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		c, err = dialHello(ctx, dir)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w in %s", ErrNotRunning, dir)
		}
		return nil, nil, err
	}
	evs, err := c.List(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, evs, nil
}

// ErrNotRunning says that no gshim serves a directory.
var ErrNotRunning = errors.New("no gshim runs")

// Start connects to the gshim that serves o.Dir, or starts one. One that speaks another protocol is first upgraded to
// o.Binary. Several callers at once get the same gshim. The gshim is nobody's child: it outlives the caller and leaves
// no zombie.
func Start(ctx context.Context, o Options) (*Client, []Event, error) {
	if !filepath.IsAbs(o.Dir) {
		return nil, nil, fmt.Errorf("start gshim: the directory %q is not an absolute path", o.Dir)
	}
	c, evs, err := connectOrUpgrade(ctx, o)
	if !errors.Is(err, ErrNotRunning) {
		return c, evs, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("start gshim: %w", err)
	}
	lock, err := waitLock(ctx, filepath.Join(o.Dir, startFile))
	if err != nil {
		return nil, nil, fmt.Errorf("start gshim: %w", err)
	}
	defer lock.Close()
	// Another one may have started it while we waited.
	if c, evs, err = connectOrUpgrade(ctx, o); !errors.Is(err, ErrNotRunning) {
		return c, evs, err
	}
	for deadline := time.Now().Add(serveWait); ; {
		err := launchDaemon(ctx, o)
		if err == nil {
			return Connect(ctx, o.Dir)
		}
		if !strings.Contains(err.Error(), errLocked.Error()) || time.Now().After(deadline) {
			return nil, nil, err
		}
		// Who began one has died, and let go of the lock above; that one is about to serve.
		select {
		case <-time.After(servePoll):
		case <-ctx.Done():
			return nil, nil, err
		}
		if c, evs, err = connectOrUpgrade(ctx, o); !errors.Is(err, ErrNotRunning) {
			return c, evs, err
		}
	}
}

// launchDaemon runs gshim, which puts itself into the background and returns when it serves.
func launchDaemon(ctx context.Context, o Options) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, o.Binary, "-dir", o.Dir, "-log", cmp.Or(o.Log, "text"))
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Wrap != nil {
		o.Wrap(cmd)
	}
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		if len(text) > maxErrorLog {
			text = text[:maxErrorLog]
		}
		if text == "" {
			return fmt.Errorf("start gshim (%s): %w", o.Binary, err)
		}
		return fmt.Errorf("start gshim (%s): %s", o.Binary, text)
	}
	return nil
}

// connectOrUpgrade is Connect, after an upgrade if the running gshim speaks another protocol.
func connectOrUpgrade(ctx context.Context, o Options) (*Client, []Event, error) {
	c, evs, err := Connect(ctx, o.Dir)
	var other *ProtocolError
	if !errors.As(err, &other) {
		return c, evs, err
	}
	old, err := dialHello(ctx, o.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := old.Upgrade(ctx, o.Binary); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("upgrade gshim: %w", err), old.Close())
	}
	if err := old.Close(); err != nil {
		return nil, nil, err
	}
	// The socket outlives the exec: the new gshim answers as soon as it is there.
	return Connect(ctx, o.Dir)
}

// waitLock takes a lock file; it waits for the present owner.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	deadline := time.Now().Add(startWait)
	for {
		f, err := takeLock(path)
		if err == nil || !errors.Is(err, errLocked) {
			return f, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w for %v", err, startWait)
		}
		select {
		case <-time.After(startPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
