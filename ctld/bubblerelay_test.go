package ctld

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/noded/relay"
)

// bubblerelay_test.go adds a login host to the bubble: its relay, the real one, passes users' requests on over
// connections to the controllers that fall silent when these are cut off: nothing comes, and nothing breaks.

// wires are the connections of the login host.
type wires struct {
	mu      sync.Mutex
	moved   *sync.Cond
	doors   map[string]*pipeDoor // of the controllers, by name
	held    map[string]bool      // nothing passes to them and from them
	pumping sync.WaitGroup
}

// pipeDoor is a listener of connections within this process.
type pipeDoor struct {
	come chan net.Conn
	shut chan struct{}
	once sync.Once
}

func (d *pipeDoor) Accept() (net.Conn, error) {
	select {
	case c := <-d.come:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *pipeDoor) Close() error {
	d.once.Do(func() { close(d.shut) })
	return nil
}

func (d *pipeDoor) Addr() net.Addr { return &net.UnixAddr{Name: "bubble", Net: "unix"} }

// serveRelay has the controllers serve a login host, until ctx ends.
func (b *bubble) serveRelay(ctx context.Context, all *sync.WaitGroup) *wires {
	w := &wires{doors: map[string]*pipeDoor{}, held: map[string]bool{}}
	w.moved = sync.NewCond(&w.mu)
	for _, c := range b.ctls {
		d := &pipeDoor{come: make(chan net.Conn), shut: make(chan struct{})}
		w.doors[c.opts.Name] = d
		all.Go(func() {
			err := server.Serve(ctx, d, c.remote, server.Options{Log: slog.New(slog.DiscardHandler),
				Peer: func(net.Conn) (rpc.Peer, error) { return rpc.DaemonPeer(pki.RoleLogin, "lg1"), nil }})
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	return w
}

// hold lets nothing pass for a time.
func (w *wires) hold(name string, lasts time.Duration) {
	w.set(name, true)
	time.AfterFunc(lasts, func() { w.set(name, false) })
}

func (w *wires) set(name string, held bool) {
	w.mu.Lock()
	w.held[name] = held
	w.moved.Broadcast()
	w.mu.Unlock()
}

// connect is the relay's way to a controller.
func (w *wires) connect(ctx context.Context, name string) (net.Conn, error) {
	near, mid := net.Pipe()
	far, end := net.Pipe()
	select {
	case w.doors[name].come <- end:
	case <-w.doors[name].shut:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.pump(name, far, mid)
	w.pump(name, mid, far)
	return near, nil
}

// pump carries what comes from one end to the other. A write never blocks, as if the kernel had room for it: time
// stands still in a bubble while somebody waits for a lock that a writer has.
func (w *wires) pump(name string, to, from net.Conn) {
	var queue []byte
	ended := false
	w.pumping.Go(func() {
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			w.mu.Lock()
			queue, ended = append(queue, buf[:n]...), ended || err != nil
			w.moved.Broadcast()
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	w.pumping.Go(func() {
		defer to.Close()
		defer from.Close()
		for {
			w.mu.Lock()
			for w.held[name] || len(queue) == 0 && !ended {
				w.moved.Wait()
			}
			now := queue
			queue = nil
			w.mu.Unlock()
			if _, err := to.Write(now); err != nil || len(now) == 0 {
				return
			}
		}
	})
}

// relayed are submissions through the login host.
type relayed struct {
	b     *bubble
	relay *relay.Relay

	mu  sync.Mutex
	ids map[string]model.JobID // what was acknowledged, by the submission's name
}

func (b *bubble) newRelayed(w *wires) *relayed {
	var names []string
	for _, c := range b.ctls {
		names = append(names, c.opts.Name)
	}
	return &relayed{b: b, relay: relay.New(relay.ControllersOver(names, w.connect)), ids: map[string]model.JobID{}}
}

// submit makes a submission, again and again until it is acknowledged. One whose outcome is unknown is repeated under
// its id.
func (r *relayed) submit(ctx context.Context, name string) {
	who := &proto.Caller{UID: plainUser, GID: plainUser, User: "ann", Groups: []uint32{plainUser}, Host: "lg1"}
	body, err := proto.Encode(&proto.SubmitRequest{RequestID: name, Script: []byte("#!/bin/sh\n"),
		Spec: &model.Spec{Name: name, WorkDir: "/", MinNodes: 1, MaxNodes: 1, LimitS: 600, Requeue: true,
			Gres: []model.GresReq{{Name: "gpu", Count: 1, Per: model.PerNode}}}})
	if err != nil {
		r.b.t.Error(err)
		return
	}
	for end := time.Now().Add(10 * time.Minute); ; pause(ctx, 200*time.Millisecond) {
		var reply proto.SubmitReply
		err := r.relay.Forward(ctx, who, proto.KindSubmit, body, func(f *rpc.Frame) error {
			return proto.Decode(f.Body, &reply)
		})
		var said *rpc.Error
		switch {
		case err == nil:
			r.mu.Lock()
			r.ids[name] = reply.Job
			r.mu.Unlock()
			return
		case time.Now().After(end):
			r.b.t.Errorf("%s: %v", name, err)
			return
		case errors.As(err, &said) && said.Code == proto.CodeBadRequest:
			r.b.t.Errorf("%s: %v", name, err)
			return
		}
	}
}

// check looks at the end: each submission has made one job, that which was acknowledged.
func (r *relayed) check() {
	c := r.b.leader()
	if c == nil {
		r.b.t.Error("nobody leads")
		return
	}
	made := map[string]model.JobID{}
	c.machine.View().Jobs(func(j *model.Job) bool {
		if !strings.HasPrefix(j.Spec.Name, "r") {
			return true
		}
		if other, twice := made[j.Spec.Name]; twice {
			r.b.t.Errorf("the submission %s has made the jobs %d and %d", j.Spec.Name, other, j.ID)
		}
		made[j.Spec.Name] = j.ID
		return true
	})
	for name, id := range r.ids {
		if made[name] != id {
			r.b.t.Errorf("the submission %s was acknowledged as job %d, and job %d is there", name, id, made[name])
		}
	}
}
