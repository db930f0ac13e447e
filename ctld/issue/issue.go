package issue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"gbatch/internal/certs"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// Issuer gives certificates on a controller.
type Issuer struct {
	Name  string // of this controller
	Dir   string // with the certificates, and the authority's key where it is
	Creds *pki.Credentials
	Log   *slog.Logger

	Cluster
}

// Cluster is what an Issuer needs of its controller.
type Cluster interface {
	// View has the facts, Now is the cluster's time.
	View() *state.View
	Now() model.Time
	// Propose changes a fact. The errors are those of the request.
	Propose(ctx context.Context, b state.Body) (state.Result, error)
	// Moved is the error of a request whose leader has lost leadership.
	Moved() error
	// IsMember reports whether a controller is one of the cluster's, Configured whether this host's configuration names
	// it, or can't be read.
	IsMember(ctld string) bool
	Configured(ctld string) bool
	// Voters are the controllers as daemons are told them, NAME=ADDRESS.
	Voters() []string
	// Others are the other controllers, and Ask asks one of them to sign.
	Others() []Other
	Ask(ctx context.Context, addr string, rq *proto.Sign) (*proto.Issued, error)
}

// Other is another controller.
type Other struct{ Name, Addr string }

func refuse(code proto.Code, format string, a ...any) error {
	return rpc.Errorf(code, "%s", proto.Sentence(code, fmt.Sprintf(format, a...)))
}

// Join issues the certificate for a token.
func (s *Issuer) Join(ctx context.Context, rq *proto.Join) (*proto.Issued, error) {
	key, err := pki.KeyHash(rq.Request)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	// Strangers may ask: nothing is said to them, drawn, signed, asked of others or logged before the token is right.
	join := &state.Certs{Op: state.CertJoin, IDs: []string{rq.ID}, Hash: certs.Hash(rq.Secret), Key: key,
		Cert: &model.Cert{Role: rq.Role, Name: rq.Name}}
	why := s.View().MayJoin(s.Now(), join)
	if why == state.OK {
		if err := s.MayHave(rq.Role, rq.Name); err != nil {
			return nil, err
		}
		if join.Cert, err = s.newCert(rq.Role, rq.Name, ""); err != nil {
			return nil, err
		}
		if err := s.canSign(ctx); err != nil {
			return nil, err // before the token is used
		}
		res, err := s.Propose(ctx, join)
		if err != nil {
			return nil, err
		}
		why = res.Refusal
	}
	cert := join.Cert
	switch why {
	case state.OK:
	case state.TokenUsed:
		return nil, refuse(proto.CodeAccess, "token %s was used already, by another host or key; make a new one with "+
			"`gbatch cert token %s %s`, and if nobody knows who used it: `gbatch cert revoke %s %s`", rq.ID, rq.Role, rq.Name,
			rq.Role, rq.Name)
	case state.TokenExpired:
		return nil, refuse(proto.CodeAccess, "token %s has expired; make a new one with `gbatch cert token %s %s`", rq.ID,
			rq.Role, rq.Name)
	case state.Full:
		return nil, tooMany(rq.Role, rq.Name)
	default:
		return nil, refuse(proto.CodeAccess, "there is no such token for %s %s: it was mistyped, taken back, used long ago, "+
			"or made for another role or name (gbatch cert list)", rq.Role, rq.Name)
	}
	token := s.View().CertToken(rq.ID)
	if token == nil {
		return nil, s.Moved()
	}
	for _, have := range s.View().CertsOf(rq.Role, rq.Name) {
		if have.Serial == token.Serial {
			cert = have
		}
	}
	if cert.Serial != token.Serial {
		return nil, refuse(proto.CodeAccess, "the certificate of token %s has expired; make a new token", rq.ID)
	}
	issued, err := s.sign(ctx, cert, rq.Request)
	if err == nil {
		s.Log.Info("certificate issued", "role", cert.Role, "name", cert.Name, "serial", cert.Serial, "token", rq.ID)
	}
	return issued, err
}

// newCert is a certificate that is about to be issued. One of a daemon whose certificates were revoked just now begins
// a second later.
func (s *Issuer) newCert(role, name, family string) (*model.Cert, error) {
	serial, err := pki.NewSerial()
	if err != nil {
		return nil, err
	}
	if family == "" {
		family = serial
	}
	v := s.View()
	const second = model.Time(1000) // certificates count in seconds
	at := s.Now() / second * second
	if revoked := v.RevokedAt(role, name); at <= revoked {
		at = revoked/second*second + second
	}
	return &model.Cert{Serial: serial, Family: family, Role: role, Name: name, At: at,
		Until: at + model.Time(v.Config().Params.Certs.CertLifeS())*second}, nil
}

// MayHave refuses a name that the configuration does not have.
func (s *Issuer) MayHave(role, name string) error {
	v := s.View()
	switch role {
	case pki.RoleNode:
		if v.Config().Cluster != "" && v.Node(name) == nil && v.Config().FutureNode(name) == nil {
			return refuse(proto.CodeInvalidNode, "'%s' is no node of the configuration: add its NodeName line on the "+
				"controllers and run gcontrol reconfigure; if it has gone for good: gbatch cert revoke node %s", name, name)
		}
	case pki.RoleLogin:
		if list := v.Config().Params.Certs.Logins; len(list) > 0 && !slices.Contains(list, name) {
			return refuse(proto.CodeAccess, "'%s' is not among LoginHosts=%s: add it there and run gcontrol reconfigure",
				name, hostlist.Compress(list))
		}
	case pki.RoleCtld:
		if !s.IsMember(name) && !s.Configured(name) {
			return refuse(proto.CodeAccess, "'%s' is no controller: gbatch.conf on %s has no SlurmctldHost=%s", name, s.Name,
				name)
		}
	case pki.RoleDBD:
	default:
		return refuse(proto.CodeBadRequest, "there is no role '%s'; the roles are %s", name, strings.Join(pki.Roles(), ", "))
	}
	return nil
}

// Renew issues a certificate in place of the one that a daemon has shown.
func (s *Issuer) Renew(ctx context.Context, old *model.Cert, request []byte) (*proto.Issued, error) {
	if _, err := pki.KeyHash(request); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if err := s.MayHave(old.Role, old.Name); err != nil {
		return nil, err
	}
	switch now := s.Now(); {
	case now >= old.Until:
		return nil, refuse(proto.CodeAccess, "the certificate of this connection has expired; the host gets a new one with "+
			"a token (gbatch cert token %s %s)", old.Role, old.Name)
	case old.Until-now > (old.Until-old.At)/2:
		return nil, refuse(proto.CodeBusy, "more than half of the certificate's life is left; it is renewed later")
	}
	cert, err := s.newCert(old.Role, old.Name, old.Family)
	if err != nil {
		return nil, err
	}
	if err := s.canSign(ctx); err != nil {
		return nil, err
	}
	res, err := s.Propose(ctx, &state.Certs{Op: state.CertRenew, Old: old, Cert: cert})
	switch {
	case err != nil:
		return nil, err
	case res.Refusal == state.CertIsRevoked:
		return nil, refuse(proto.CodeAccess, "the certificate of this connection was revoked")
	case res.Refusal != state.OK:
		return nil, tooMany(old.Role, old.Name)
	}
	return s.sign(ctx, cert, request)
}

func tooMany(role, name string) error {
	return refuse(proto.CodeBusy, "%s %s has many valid certificates already; one of them has to expire first, or "+
		"`gbatch cert revoke %s %s` takes all back", role, name, role, name)
}
