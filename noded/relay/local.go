package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// local.go serves the unix socket that commands talk to. The kernel gives uid and gid; gnoded adds their names and
// forwards the request. It decides nothing: the leader trusts it as far as its certificate allows.

const (
	localMux  = 8 // requests at once on one connection: commands make one
	localIdle = server.LocalIdle
)

// Local answers requests on the socket.
type Local struct {
	Relay *Relay

	Records *Records // nil: questions about records go to the leader
	Names   *Names
	Host    string // this host's name
	Log     *slog.Logger
	Conns   int // commands connected at once; one user may have a quarter of them
}

// Serve answers on a listener until ctx ends, and closes it.
func (s *Local) Serve(ctx context.Context, ln net.Listener) error {
	return server.Serve(ctx, ln, s.handle, s.options())
}

func (s *Local) options() server.Options {
	return server.Options{Log: s.Log, MaxConns: s.Conns, MaxConnsPerUser: max(s.Conns/4, 1), MuxRequests: localMux,
		Idle: localIdle, MaxRequest: proto.MaxBytes(proto.KindForward), MaxBytes: proto.MaxBytes, Waits: proto.Waits}
}

// handle forwards one request.
func (s *Local) handle(ctx context.Context, r *server.Request) {
	if err := s.answer(ctx, r); err != nil {
		if ferr := r.Fail(plain(err)); ferr != nil {
			s.Log.Debug("an answer was not delivered", "peer", r.Peer.String(), "kind", r.Kind, "err", ferr)
		}
	}
}

func (s *Local) answer(ctx context.Context, r *server.Request) error {
	u, ok := r.Peer.User()
	if !ok {
		return rpc.Errorf(proto.CodeAccess, "%s", proto.Text(proto.CodeAccess))
	}
	if r.Kind == 0 || r.Kind >= proto.KindForward {
		return rpc.Errorf(proto.CodeBadRequest, "a request of kind %d is none that a user can make on this socket", r.Kind)
	}
	who := s.Names.caller(u)
	who.Host = s.Host
	if r.Kind == proto.KindAttend {
		return s.attend(ctx, r, &who)
	}
	if err := server.TooOld(r); err != nil {
		return err
	}
	each := func(f *rpc.Frame) error {
		if f.More() {
			return r.ReplyMore(f.Body)
		}
		return r.Reply(f.Body)
	}
	if r.Kind == proto.KindAcct && s.Records != nil {
		if answered, err := s.Records.Ask(ctx, &who, r.Body, each); answered {
			return err
		}
	}
	return s.Relay.Forward(ctx, &who, r.Kind, r.Body, each)
}

// plain makes an error for the user of err. An answer of the leader keeps its text; otherwise the text is Slurm's
// sentence with the reason why no controller answered.
func plain(err error) error {
	var e *rpc.Error
	switch {
	case errors.As(err, &e) && e.Code == proto.CodeNoController && err.Error() != e.Text:
		return rpc.Errorf(e.Code, "%s", err.Error())
	case errors.As(err, &e):
		return err
	case errors.Is(err, rpc.ErrLost), errors.Is(err, rpc.ErrProtocol), errors.Is(err, rpc.ErrClosed):
		return rpc.Errorf(proto.CodeNoController, "%s: %v", errNoController.Text, err)
	}
	return err
}
