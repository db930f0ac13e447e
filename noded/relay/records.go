package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// records.go takes questions about records to the accounting daemon, over a connection that is kept, so that they need
// no controller. What the accounting daemon does not answer goes to the leader.

const (
	// recordsWait is the time to connect to the accounting daemon.
	recordsWait = 2 * time.Second
	// recordsPause is how long an accounting daemon that can't be reached is not tried again; the leader is asked.
	recordsPause = 5 * time.Second
)

// Records has the connection to the accounting daemon.
type Records struct {
	addr string
	tls  *tls.Config

	mu     sync.Mutex // held while connecting: all who need the connection wait for the same attempt
	mux    *rpc.Mux
	failed time.Time // of the last attempt; zero: it succeeded
	closed bool
}

// NewRecords returns the accounting daemon at addr, host:port; "": there is none.
func NewRecords(addr string, cfg *tls.Config) *Records { return &Records{addr: addr, tls: cfg} }

// Close ends requests in progress.
func (r *Records) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.mux != nil {
		_ = r.mux.Close() // its requests end with an error
	}
}

var errNoRecords = errors.New("no accounting daemon can be asked directly")

// connection gives the kept connection, or opens it.
func (r *Records) connection(ctx context.Context) (*rpc.Mux, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.addr == "" || r.closed:
		return nil, errNoRecords
	case r.mux != nil && r.mux.Err() == nil:
		return r.mux, nil
	case !r.failed.IsZero() && time.Since(r.failed) < recordsPause:
		return nil, errNoRecords
	}
	ctx, cancel := context.WithTimeout(ctx, recordsWait)
	defer cancel()
	mux, err := r.dial(ctx)
	if err != nil {
		r.mux, r.failed = nil, time.Now()
		return nil, err
	}
	r.mux, r.failed = mux, time.Time{}
	return mux, nil
}

func (r *Records) dial(ctx context.Context) (*rpc.Mux, error) {
	nc, err := pki.Dial(ctx, r.addr, pki.ProtoAcct, r.tls, pki.RoleDBD)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, UserTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to gdbd at %s: %w", r.addr, err), nc.Close())
	}
	mux, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "gdbd at " + r.addr}))
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return mux, nil
}

// Ask asks the accounting daemon and gives every answer to each. answered says that something of an answer was given to
// each, or that err is the accounting daemon's own; otherwise the leader can be asked.
func (r *Records) Ask(ctx context.Context, who *proto.Caller, body []byte,
	each func(*rpc.Frame) error) (answered bool, err error) {
	wrapped, err := proto.Encode(&proto.Forward{Caller: *who, Kind: proto.KindAcct, Body: body})
	if err != nil {
		return false, err
	}
	for again := false; ; again = true {
		mux, err := r.connection(ctx)
		if err != nil {
			return false, err
		}
		err = mux.Stream(ctx, proto.KindForward, wrapped, func(f *rpc.Frame) error {
			answered = true
			return each(f)
		})
		var e *rpc.Error
		switch {
		case err == nil || answered || ctx.Err() != nil:
			return true, err
		case errors.As(err, &e) && e.Code != proto.CodeNotHere && proto.Settled(e.Code):
			return true, err
		case errors.As(err, &e) || again || mux.Err() == nil:
			return false, err
		}
	}
}
