package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// caller.go says who asks. A token in a header counts; without one, on the unix socket, the kernel's word does.

var (
	// errNoToken says that a request names nobody.
	errNoToken = errors.New("Authentication does not apply to request")
	// errToken says that a token does not count.
	errToken = errors.New("Protocol authentication error")
)

const (
	headerToken = "X-Slurm-User-Token"
	headerName  = "X-Slurm-User-Name"
)

// caller finds who makes a request.
func (s *Server) caller(ctx context.Context, r *http.Request) (*proto.Caller, error) {
	text, name := r.Header.Get(headerToken), r.Header.Get(headerName)
	if text == "" {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			text = strings.TrimSpace(rest)
		}
	}
	if text == "" {
		u := LocalUser(ctx)
		if u == nil {
			return nil, errNoToken
		}
		return s.named(ctx, s.o.Cluster.Local(ctx, u), name)
	}
	user, less, err := s.o.Cluster.Token(text)
	if err != nil {
		s.o.Log.Debug("a token was refused", "from", r.RemoteAddr, "why", err)
		return nil, errors.Join(errToken, err)
	}
	who, err := s.o.Cluster.User(ctx, user)
	if err != nil {
		var said *rpc.Error
		if errors.As(err, &said) && said.Code == proto.CodeUser {
			return nil, errors.Join(errToken, err)
		}
		return nil, err
	}
	who.Less = less
	return s.named(ctx, who, name)
}

// named lets root and SlurmUser speak for a user: an authenticating proxy does.
func (s *Server) named(ctx context.Context, who *proto.Caller, name string) (*proto.Caller, error) {
	if name == "" || name == who.User {
		return who, nil
	}
	if !s.o.Cluster.Trusted(who) {
		return nil, errors.Join(errToken, errors.New("the token is not of the user that X-SLURM-USER-NAME names"))
	}
	return s.o.Cluster.User(ctx, name)
}
