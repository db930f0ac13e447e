package issue

import (
	"context"
	"errors"
	"strings"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// sign.go has certificates signed.

// canSign says why no controller can sign; nil: one can.
func (s *Issuer) canSign(ctx context.Context) error {
	_, err := s.sign(ctx, nil, nil)
	return err
}

// sign has a certificate signed, here or by another controller that has the authority's key. Without a certificate it
// only finds out whether that works.
func (s *Issuer) sign(ctx context.Context, cert *model.Cert, request []byte) (*proto.Issued, error) {
	if pki.HasAuthority(s.Dir) {
		return s.Sign(cert, request)
	}
	rq := &proto.Sign{Request: request}
	if cert != nil {
		rq.Cert = *cert
	}
	var silent []string
	for _, p := range s.Others() {
		issued, err := s.Ask(ctx, p.Addr, rq)
		if err == nil {
			return issued, nil
		}
		var said *rpc.Error
		if !errors.As(err, &said) {
			silent = append(silent, p.Name)
		}
	}
	text := ""
	if len(silent) > 0 {
		text = " (" + strings.Join(silent, ", ") + " did not answer)"
	}
	return nil, refuse(proto.CodeBusy, "no controller that answers has the authority's key, so no certificate can be "+
		"signed%s: ca.key belongs into PKIDir of a controller; without it there, gbatch cert issue makes certificates where "+
		"it is", text)
}

// Sign signs with the key on this host. Without a certificate it only finds out whether that works.
func (s *Issuer) Sign(cert *model.Cert, request []byte) (*proto.Issued, error) {
	a, err := pki.LoadAuthority(s.Dir)
	if err != nil {
		return nil, refuse(proto.CodeBusy, "controller %s can't sign certificates: %v", s.Name, err)
	}
	issued := &proto.Issued{CA: a.CA(), Now: s.Now(), Ctlds: s.Voters()}
	if cert == nil {
		return issued, nil
	}
	if issued.Cert, err = a.Sign(request, certs.HolderOf(cert)); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	return issued, nil
}
