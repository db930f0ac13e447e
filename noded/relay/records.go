package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// records.go takes questions about records to the accounting daemon, or to its copy, over a connection that is kept, so
// that they need no controller. What neither answers goes to the leader.

const (
	// recordsWait is the time to connect to an accounting daemon.
	recordsWait = 2 * time.Second
	// recordsPause is how long an accounting daemon that can't be reached is not tried again; copyPause, if there is
	// another one: its users would wait for nothing.
	recordsPause = 5 * time.Second
	copyPause    = 15 * time.Second
)

// Records has the connections to the accounting daemons.
type Records struct{ each []*recordsAt }

// recordsAt is one accounting daemon.
type recordsAt struct {
	addr  string
	tls   *pki.Credentials
	pause time.Duration

	mu     sync.Mutex // held while connecting: all who need the connection wait for the same attempt
	mux    *rpc.Mux
	failed time.Time // of the last attempt; zero: it succeeded
	closed bool
}

// NewRecords returns the accounting daemons at these addresses, host:port, the first one first; "" is none.
func NewRecords(cfg *pki.Credentials, addrs ...string) *Records {
	r := &Records{}
	for _, addr := range addrs {
		if addr != "" {
			r.each = append(r.each, &recordsAt{addr: addr, tls: cfg, pause: recordsPause})
		}
	}
	if len(r.each) > 1 {
		for _, at := range r.each {
			at.pause = copyPause
		}
	}
	return r
}

// Close ends requests in progress.
func (r *Records) Close() {
	for _, at := range r.each {
		at.close()
	}
}

// Ask asks the accounting daemons, one after the other, and gives every answer to each. answered says that something of
// an answer was given to each, or that err is an accounting daemon's own; otherwise the leader can be asked.
func (r *Records) Ask(ctx context.Context, who *proto.Caller, body []byte,
	each func(*rpc.Frame) error) (answered bool, err error) {
	wrapped, err := proto.Encode(&proto.Forward{Caller: *who, Kind: proto.KindAcct, Body: body})
	if err != nil {
		return false, err
	}
	err = errNoRecords
	for _, at := range r.each {
		if answered, err = at.ask(ctx, wrapped, each); answered {
			return true, err
		}
	}
	return false, err
}

func (r *recordsAt) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.mux != nil {
		_ = r.mux.Close() // its requests end with an error
	}
}

var errNoRecords = errors.New("no accounting daemon can be asked directly")

// connection gives the kept connection, or opens it.
func (r *recordsAt) connection(ctx context.Context) (*rpc.Mux, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, errNoRecords
	case r.mux != nil && r.mux.Err() == nil:
		return r.mux, nil
	case !r.failed.IsZero() && time.Since(r.failed) < r.pause:
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

func (r *recordsAt) dial(ctx context.Context) (*rpc.Mux, error) {
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

// ask asks one accounting daemon. A kept connection that broke before the first answer, as it does when the daemon has
// been restarted, is opened again once.
func (r *recordsAt) ask(ctx context.Context, wrapped []byte, each func(*rpc.Frame) error) (answered bool, err error) {
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
