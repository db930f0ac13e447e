package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"gbatch/internal/rpc"
)

// Protocols that share a daemon's port, told apart by ALPN.
const (
	ProtoRaft = "gbatch-raft"
	ProtoRPC  = "gbatch-rpc"
	ProtoAcct = "gbatch-acct" // users' questions to gdbd, apart from the controllers' connections
)

// HandshakeTimeout is the time for a handshake; for Dial it includes connecting.
const HandshakeTimeout = 10 * time.Second

func peerIdentity(cs tls.ConnectionState) (identity, error) {
	if len(cs.VerifiedChains) == 0 || len(cs.PeerCertificates) == 0 {
		return identity{}, errors.New("the peer has shown no certificate")
	}
	id, err := identityOf(cs.PeerCertificates[0])
	if err != nil {
		return identity{}, fmt.Errorf("the peer's certificate: %w", err)
	}
	if id.role == "" {
		return identity{}, errors.New("the peer's certificate is an authority's, not a daemon's")
	}
	return id, nil
}

// PeerOf is the role and name of a connection's peer, from its verified certificate.
func PeerOf(cs tls.ConnectionState) (rpc.Peer, error) {
	if !cs.HandshakeComplete {
		return rpc.Peer{}, errors.New("the peer is not known before the handshake")
	}
	id, err := peerIdentity(cs)
	if err != nil {
		return rpc.Peer{}, err
	}
	h, err := holderOf(cs.PeerCertificates[0])
	if err != nil {
		return rpc.Peer{}, err
	}
	cert := rpc.Cert{Serial: h.Serial, Family: h.Family, At: h.At, Until: h.Until}
	return rpc.DaemonPeer(id.role, id.name).With(cert), nil
}

// PeerOfConn is PeerOf for a connection from Listener or Dial. It goes to server.Options.Peer.
func PeerOfConn(nc net.Conn) (rpc.Peer, error) {
	c, ok := nc.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return rpc.Peer{}, fmt.Errorf("a %T has no certificate", nc)
	}
	return PeerOf(c.ConnectionState())
}

// Dial connects to the daemon at addr (host:port), which must be of wantRole, and speaks proto with it. c is
// this daemon's. It takes at most HandshakeTimeout. A server may refuse this side's certificate only after Dial has
// returned (so TLS 1.3 works); the first read then says so.
func Dial(ctx context.Context, addr, proto string, c *Credentials, wantRole string) (net.Conn, error) {
	return dial(ctx, addr, proto, c, c.ClientTLS(), wantRole)
}

func dial(ctx context.Context, addr, proto string, c *Credentials, cfg *tls.Config, wantRole string) (net.Conn, error) {
	if err := checkRole(wantRole); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	cfg.ServerName = wantRole + roleSuffix
	cfg.NextProtos = []string{proto}
	nc, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s %s: %w", wantRole, addr, explain(err))
	}
	tc, ok := nc.(*tls.Conn)
	if ok && tc.ConnectionState().NegotiatedProtocol == proto {
		held, err := c.hold(tc)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connecting to %s %s: %w", wantRole, addr, err), nc.Close())
		}
		return held, nil
	}
	return nil, errors.Join(fmt.Errorf("connecting to %s %s: it doesn't speak %s", wantRole, addr, proto), nc.Close())
}

func (n *conn) Read(b []byte) (int, error) {
	got, err := n.Conn.Read(b)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		err = explain(err)
	}
	return got, err
}
