package rest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// caller.go says who asks. A token in a header counts; without one, on the unix socket, the kernel's word does.
//
// People forward that socket to a port of their own machine, for a browser. Whatever runs on that machine, and every
// site that the browser shows, can then send requests to the port. So the kernel's word counts only for requests that
// no other site can have sent: browsers say so (Origin, Sec-Fetch-Site), and a name that another site has made lead
// here is not one of this machine's.

var (
	// errNoToken says that a request names nobody.
	errNoToken = errors.New("Authentication does not apply to request")
	// errToken says that a token does not count.
	errToken = errors.New("Protocol authentication error")
	// errElsewhere says that a request without a token may be another site's.
	errElsewhere = errors.New("a request of another site")
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
		if why := elsewhere(r); why != "" {
			return nil, errors.Join(errElsewhere, &fault{Number: errAccess, Text: proto.Text(proto.CodeAccess), Detail: why,
				Status: http.StatusForbidden})
		}
		return s.named(ctx, s.o.Cluster.Local(ctx, u), name)
	}
	said, err := s.o.Cluster.Token(text)
	if err != nil {
		s.o.Log.Debug("a token was refused", "from", r.RemoteAddr, "why", err)
		return nil, errors.Join(errToken, err)
	}
	who, err := s.o.Cluster.User(ctx, said.User)
	if err != nil {
		var said *rpc.Error
		if errors.As(err, &said) && said.Code == proto.CodeUser {
			return nil, errors.Join(errToken, err)
		}
		return nil, err
	}
	who.Less, who.Via = said.Less, said.Via
	return s.named(ctx, who, name)
}

// elsewhere says why a request on the unix socket may come from another site than this server, as a browser shows it.
// Reading counts as well: what a site may send, it may read if its name leads here.
func elsewhere(r *http.Request) string {
	origin := r.Header.Get("Origin")
	at, err := url.Parse(origin)
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case !OwnHost(r.Host):
		return "without a token the host is localhost, an address of loopback or a name without a domain, not " + r.Host
	case site != "" && site != "same-origin" && site != "none", origin != "" && (err != nil || at.Host != r.Host):
		return "pages of other sites need a token"
	}
	return ""
}

// OwnHost reports whether a host's name is of this very machine, so that no name of another site's can lead here.
func OwnHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || !strings.Contains(host, ".") // a name without a domain is nobody's site
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
