package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// joining.go is the one protocol that is spoken without a certificate: a host that has none asks a controller for one.
// The controller shows the authority's certificate along with its own, and the host knows the authority by the
// fingerprint in its token. So it trusts nobody on first sight.

// ProtoJoin is what hosts without a certificate speak with controllers.
const ProtoJoin = "gbatch-join"

// forStrangers gives the configuration of a listener for a client that asks for ProtoJoin, and nil for others.
func (c *Credentials) forStrangers(hello *tls.ClientHelloInfo) *tls.Config {
	if len(hello.SupportedProtos) != 1 || hello.SupportedProtos[0] != ProtoJoin {
		return nil
	}
	p := c.cur.Load()
	cert := p.cert
	cert.Certificate = [][]byte{p.cert.Certificate[0], p.ca.cert.Raw}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		NextProtos: []string{ProtoJoin}, SessionTicketsDisabled: true}
}

// ErrFingerprint says that a server is not of the authority that was expected.
var ErrFingerprint = errors.New("its certificate is not of the authority with the fingerprint in the token")

// DialJoin connects to the controller at addr for ProtoJoin. Its certificate must be of the authority with that
// fingerprint, SHA-256. It takes at most HandshakeTimeout.
func DialJoin(ctx context.Context, addr string, fingerprint []byte) (net.Conn, error) {
	return dialJoin(ctx, addr, fingerprint, false)
}

// DialTime is DialJoin without regard to dates, to ask what time it is. No secret may go there.
func DialTime(ctx context.Context, addr string, fingerprint []byte) (net.Conn, error) {
	return dialJoin(ctx, addr, fingerprint, true)
}

func dialJoin(ctx context.Context, addr string, fingerprint []byte, anyDate bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{ProtoJoin},
		ServerName: RoleCtld + roleSuffix,
		// Go can't verify before the authority is known, which comes with the handshake: VerifyConnection does all of it.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyByFingerprint(cs, fingerprint, anyDate)
		},
	}
	nc, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to controller %s: %w", addr, explain(err))
	}
	if tc, ok := nc.(*tls.Conn); ok && tc.ConnectionState().NegotiatedProtocol == ProtoJoin {
		return nc, nil
	}
	return nil, errors.Join(fmt.Errorf("connecting to controller %s: it doesn't issue certificates; is it of an older "+
		"version?", addr), nc.Close())
}

func verifyByFingerprint(cs tls.ConnectionState, fingerprint []byte, anyDate bool) error {
	var ca *x509.Certificate
	for _, c := range cs.PeerCertificates {
		if sum := sha256.Sum256(c.Raw); c.IsCA && bytes.Equal(sum[:], fingerprint) {
			ca = c
		}
	}
	if ca == nil {
		return ErrFingerprint
	}
	leaf := cs.PeerCertificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	now := time.Now()
	if anyDate {
		now = leaf.NotAfter
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: RoleCtld + roleSuffix,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return err
	}
	id, err := identityOf(leaf)
	if err != nil {
		return err
	}
	if id.role != RoleCtld {
		return fmt.Errorf("it is %s, not a controller", id)
	}
	return nil
}
