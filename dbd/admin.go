package dbd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/backup"
	"gbatch/internal/become"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// This file owns what an administrator does with the database from outside of gdbd: `gbatch backup`. If a gdbd runs, it
// is asked; whoever can read the key of a controller or of an accounting daemon is an administrator. If none runs, the
// files are used directly, and the directory's lock keeps a gdbd from starting meanwhile.

// Admin works on one accounting database.
type Admin struct {
	Dir     string // of the database, on this host; "": gdbd must run, and is asked
	Addr    string // host:port of gdbd; "": none is asked
	PKI     string // directory with ca.crt and a certificate of a controller or an accounting daemon
	Cluster string // its name in the configuration

	Progress Progress

	silence time.Duration // for which gdbd may send nothing; 0: maxSilence
}

// maxSilence is how long gdbd may take to begin an answer, and from one part of it to the next.
const maxSilence = time.Minute

// Running reports whether a gdbd uses the directory.
func (a *Admin) running() (bool, error) {
	if a.Dir == "" {
		return false, nil
	}
	if _, err := os.Stat(a.Dir); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	lock, err := lockDir(a.Dir)
	switch {
	case errors.Is(err, ErrInUse):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, lock.Close()
}

// here reports whether the database is on this host and no gdbd runs on it, so that its files can be used.
func (a *Admin) here() (bool, error) {
	if a.Dir == "" {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(a.Dir, fileName)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	running, err := a.running()
	return err == nil && !running, err
}

// Save writes a backup to path, which must not exist, and reads it again to verify it.
func (a *Admin) Save(ctx context.Context, path string) (*backup.Header, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s exists already; give another name, or remove it", path)
	}
	part := path + ".part"
	here, err := a.here()
	if err != nil {
		return nil, err
	}
	err = writeOut(part, part, func(to io.Writer) error {
		if here {
			return saveOffline(ctx, a.Dir, a.Cluster, to)
		}
		return a.fetch(ctx, to)
	})
	if err != nil {
		return nil, err
	}
	h, err := VerifyBackup(part, a.Progress)
	if err != nil {
		return nil, errors.Join(err, os.Remove(part))
	}
	return h, swap(part, path)
}

// fetch copies a backup from the gdbd that runs.
func (a *Admin) fetch(ctx context.Context, to io.Writer) error {
	done, size := int64(0), int64(0)
	return a.ask(ctx, proto.KindBackup, &proto.Empty{}, func(body []byte) (err error) {
		if done == 0 {
			if size, err = backup.Size(body); err != nil {
				return err
			}
		}
		done += int64(len(body))
		a.Progress.of("saving")(done, size)
		_, err = to.Write(body)
		return err
	})
}

var errNoDir = errors.New("this works on the stopped gdbd's files: run it on that host with --dir DIRECTORY, and not " +
	"with --copy")

// Restore puts a backup in the place of the database. No gdbd may run.
func (a *Admin) Restore(path string) (*Restored, error) {
	if a.Dir == "" {
		return nil, errNoDir
	}
	r, err := RestoreBackup(path, a.Dir, a.Cluster, time.Now(), a.Progress)
	return r, a.stopFirst(err)
}

// Compact gives the room that deleted records have left back to the disk. No gdbd may run.
func (a *Admin) Compact() (*Compacted, error) {
	if a.Dir == "" {
		return nil, errNoDir
	}
	c, err := CompactFile(a.Dir, a.Progress)
	return c, a.stopFirst(err)
}

// stopFirst says what to do about a gdbd that runs.
func (a *Admin) stopFirst(err error) error {
	if !errors.Is(err, ErrInUse) {
		return err
	}
	return fmt.Errorf("gdbd runs on %s: stop it first, and start it again afterwards (nothing is lost: records wait "+
		"in the "+
		"controller meanwhile)", a.Dir)
}

// BeginEmpty allows the database to take the records of a cluster that is not new, although it has none of them. It
// asks gdbd; if none runs, the database on this host gets the permission, and is made if it is missing.
func (a *Admin) BeginEmpty(ctx context.Context) error {
	running, err := a.running()
	if err != nil {
		return err
	}
	if a.Dir != "" && !running && !a.askable(ctx) {
		if _, err := os.Stat(a.Dir); err == nil {
			return a.beginHere()
		}
	}
	rq := &proto.BeginEmptyRequest{Cluster: a.Cluster}
	return a.ask(ctx, proto.KindBeginEmpty, rq, func([]byte) error { return nil })
}

func (a *Admin) beginHere() error {
	d, err := openDB(a.Dir, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		return err
	}
	err = d.bolt.Update(func(tx *bolt.Tx) error { return allowEmpty(tx, d.now()) })
	return errors.Join(err, d.Close(), become.OwnAs(d.path, a.Dir))
}

// askable reports whether a gdbd answers.
func (a *Admin) askable(ctx context.Context) bool {
	return a.ask(ctx, proto.KindPing, &proto.Empty{}, func([]byte) error { return nil }) == nil
}

// State asks the gdbd that runs what it has.
func (a *Admin) State(ctx context.Context) (*proto.DbdReply, error) {
	var reply proto.DbdReply
	err := a.ask(ctx, proto.KindDbd, &proto.Empty{}, func(body []byte) error { return proto.Decode(body, &reply) })
	return &reply, err
}

// ask makes one request of the gdbd that runs.
func (a *Admin) ask(ctx context.Context, kind uint16, rq proto.Message, each func(body []byte) error) error {
	if a.Addr == "" {
		return errors.New("the configuration names no accounting daemon; set AccountingStorageHost in gbatch.conf")
	}
	cfg, err := a.certificate(pki.RoleDBD, pki.RoleCtld)
	if err != nil {
		return err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	limit := cmp.Or(a.silence, maxSilence)
	silent := time.AfterFunc(limit, func() {
		giveUp(fmt.Errorf("gdbd at %s has sent nothing for %v; its log may say why", a.Addr, limit))
	})
	defer silent.Stop()
	nc, err := pki.Dial(ctx, a.Addr, pki.ProtoRPC, cfg, pki.RoleDBD)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("gdbd can't be asked: %w; if it does not run, run this command on its host, where the "+
			"database is", err)
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "gdbd at " + a.Addr}))
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	defer m.Close() // the request has ended
	body, err := proto.Encode(rq)
	if err != nil {
		return err
	}
	err = m.Stream(ctx, kind, body, func(f *rpc.Frame) error {
		silent.Reset(limit)
		return each(f.Body)
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// certificate finds a key of a daemon with one of the roles that this user can read.
func (a *Admin) certificate(roles ...string) (*pki.Credentials, error) {
	var first error
	for _, role := range roles {
		keys, err := filepath.Glob(filepath.Join(a.PKI, role+"-*.key"))
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(key), role+"-"), ".key")
			cfg, err := pki.Load(a.PKI, role, name)
			if err == nil {
				return cfg, nil
			}
			if first == nil {
				first = err
			}
		}
	}
	if first == nil {
		first = errors.New("there is none")
	}
	whose := "gdbd or of a controller"
	if len(roles) == 1 {
		whose = "a controller"
	}
	return nil, fmt.Errorf("gdbd answers administrators only: this needs the key of %s in %s (%w); run it as root or "+
		"as the daemon's user, on the host of %s", whose, a.PKI, first, whose)
}
