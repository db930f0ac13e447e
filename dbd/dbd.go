package dbd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/dbd/fresh"
	"gbatch/dbd/history"
	"gbatch/internal/certs"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/wall"
)

// maxConns bounds the controllers' connections: each controller has one for its outbox and one for each query in
// progress. There is no idle timeout, since an outbox may be idle for long; TCP keep-alive ends connections of
// controllers that are gone.
const maxConns = 512

// Daemon is one gdbd.
type Daemon struct {
	opts Options
	db   *db
	port *pki.Listener

	creds *pki.Credentials

	budget share.Budget // of users' questions
	follow *follower    // nil: there is no other gdbd
	fresh  fresh.Rounds

	// clock is the cluster's: records have their times from the leader, so what runs, and a window that ends now, are
	// counted by its clock; nobody compares that of gdbd's host. What is old is forgotten by the host's all the same: no
	// leader with a wrong clock takes records away.
	clock   *wall.Told
	history *history.Store // of samples; nil: it can't be used

	saving chan struct{} // a slot for the one backup that is being made

	mu     sync.Mutex
	closed bool
	cancel context.CancelFunc // of Run
	done   chan struct{}      // closed when Run has ended; nil before Run begins
}

// mostOff is how far the cluster's clock may be from this host's: farther, one of them is set to nonsense.
const mostOff = 24 * time.Hour

// New validates the options, opens the database and binds the port. Close or Run must follow.
func New(o Options) (*Daemon, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	tls, err := pki.Load(o.PKI, pki.RoleDBD, o.Name)
	if err != nil {
		return nil, certs.Explain(context.Background(), err, o.Controllers, o.PKI)
	}
	clock := &wall.Told{Host: o.Now, Most: mostOff}
	store, err := openDB(o.Dir, o.Logger, o.Now)
	if err != nil {
		return nil, err
	}
	store.keep, store.cluster = o.KeepMonths, clock.Now
	port, err := pki.ListenSoon(pki.PortPatience, o.Listen, tls, o.Logger,
		pki.Accept{Proto: pki.ProtoRPC, Roles: []string{pki.RoleCtld, pki.RoleDBD}},
		pki.Accept{Proto: pki.ProtoAcct, Roles: []string{pki.RoleNode, pki.RoleLogin}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gdbd can't use its address: %w; is another gdbd running there?"+
			" AccountingStoragePort in gbatch.conf or --listen sets another", err), store.Close())
	}
	d := &Daemon{opts: o, db: store, port: port, creds: tls, clock: clock, saving: make(chan struct{}, 1)}
	d.openHistory()
	if o.Other != "" {
		d.follow = newFollower(d)
		store.other, store.want = o.Other, d.follow.want
	}
	return d, nil
}

// Addr is the host:port that the daemon listens on.
func (d *Daemon) Addr() string { return d.port.Addr().String() }

// Run serves until ctx ends or Close is called, then releases everything and returns nil. It returns an error if the
// disk or the port fails for good, and errCopied if a new Daemon is to serve. It can be called once.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	d.mu.Lock()
	if d.closed || d.done != nil {
		d.mu.Unlock()
		return errors.New("gdbd: Run after Close or a second time")
	}
	d.cancel, d.done = cancel, done
	d.mu.Unlock()
	defer close(done)

	d.opts.Logger.Info("accounting daemon runs", "addr", d.Addr(), "file", d.db.path)
	// The writer ends after the server, so all batches from handlers are written.
	writing, stopWriting := context.WithCancel(context.Background())
	defer stopWriting()
	var writer sync.WaitGroup
	var writeErr error
	writer.Go(func() {
		writeErr = d.db.run(writing)
		if writeErr != nil {
			cancel() // without a writer gdbd can't serve
		}
	})
	var following sync.WaitGroup
	copied := false
	if d.follow != nil {
		following.Go(func() {
			if copied = d.follow.run(ctx); copied {
				cancel()
			}
		})
	}
	d.takeRevoked(d.db.sight.Load())
	var renewal sync.WaitGroup
	defer renewal.Wait()
	renewal.Go(func() {
		(&certs.Renewer{Creds: d.creds, Log: d.opts.Logger,
			Ask: certs.AskAt(d.creds, func() []string { return slices.Clone(d.opts.Controllers) })}).Run(ctx)
	})
	var users sync.WaitGroup
	var usersErr error
	users.Go(func() {
		usersErr = server.Serve(ctx, d.port.Proto(pki.ProtoAcct), d.handleUser, server.Options{
			Log: d.opts.Logger, Peer: pki.PeerOfConn, MaxConns: maxUserConns, MaxConnsPerPeer: maxPeerConns, Idle: userIdle,
			Budget: &d.budget, MaxRequest: userRequest,
		})
		if usersErr != nil {
			cancel()
		}
	})
	err := server.Serve(ctx, d.port.Proto(pki.ProtoRPC), d.handle, server.Options{
		Log: d.opts.Logger, Peer: pki.PeerOfConn, MaxConns: maxConns, MaxConnsPerPeer: maxConns / 2, MaxRequest: rpc.MaxFrame,
	})
	cancel()
	users.Wait()
	following.Wait()
	stopWriting()
	writer.Wait()
	err = errors.Join(writeErr, err, usersErr, d.release())
	if err == nil && copied {
		return errors.Join(d.follow.takeFetched(), errCopied)
	}
	if err == nil {
		d.opts.Logger.Info("accounting daemon ends", "addr", d.Addr())
	}
	return err
}

// errCopied says that Run has ended to begin anew on another database: the other gdbd's, if nothing else is said.
var errCopied = errors.New("the accounting daemon begins anew on a copied database")

// Close ends Run, waits for it, and releases everything. It is idempotent.
func (d *Daemon) Close() error {
	d.mu.Lock()
	done, cancel := d.done, d.cancel
	if done == nil {
		d.mu.Unlock()
		return d.release()
	}
	d.mu.Unlock()
	cancel()
	<-done // Run releases
	return nil
}

// release closes port and file, on the first call.
func (d *Daemon) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	err := errors.Join(d.port.Close(), d.db.Close())
	if d.history != nil {
		err = errors.Join(err, d.history.Close())
	}
	return err
}
