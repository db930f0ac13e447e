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

// ServerTLS is the configuration with which the daemon of that role and name accepts connections, from its files in
// dir. It goes to Listen.
func ServerTLS(dir, role, name string) (*tls.Config, error) {
	p, err := loadPair(dir, role, name, time.Now())
	if err != nil {
		return nil, fmt.Errorf("TLS for %s %s: %w", role, name, err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{p.cert},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              p.ca.pool,
		SessionTicketsDisabled: true, // connections live long, and each one shows its certificate
		VerifyConnection:       p.verify,
	}, nil
}

// ClientTLS is the configuration with which the daemon of that role and name makes connections. It goes to Dial, which
// adds the expected role; without a role it connects to no peer.
func ClientTLS(dir, role, name string) (*tls.Config, error) {
	p, err := loadPair(dir, role, name, time.Now())
	if err != nil {
		return nil, fmt.Errorf("TLS for %s %s: %w", role, name, err)
	}
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{p.cert},
		RootCAs:          p.ca.pool,
		VerifyConnection: p.verify,
	}, nil
}

// verify adds to Go's verification: it checks that the other side is a daemon of this cluster.
func (p *pair) verify(cs tls.ConnectionState) error {
	id, err := peerIdentity(cs)
	if err != nil {
		return err
	}
	if id.cluster != p.id.cluster {
		return fmt.Errorf("the peer is %s; this is cluster %q", id, p.id.cluster)
	}
	return nil
}

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
	return rpc.DaemonPeer(id.role, id.name), nil
}

// PeerOfConn is PeerOf for a connection from Listener or Dial. It goes to server.Options.Peer.
func PeerOfConn(nc net.Conn) (rpc.Peer, error) {
	c, ok := nc.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return rpc.Peer{}, fmt.Errorf("a %T has no certificate", nc)
	}
	return PeerOf(c.ConnectionState())
}

// Dial connects to the daemon at addr (host:port), which must be of wantRole, and speaks proto with it. cfg is from
// ClientTLS. It takes at most HandshakeTimeout. A server may refuse this side's certificate only after Dial has
// returned (so TLS 1.3 works); the first read then says so.
func Dial(ctx context.Context, addr, proto string, cfg *tls.Config, wantRole string) (net.Conn, error) {
	if err := checkRole(wantRole); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	cfg = cfg.Clone()
	cfg.ServerName = wantRole + roleSuffix
	cfg.NextProtos = []string{proto}
	nc, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s %s: %w", wantRole, addr, explain(err))
	}
	tc, ok := nc.(*tls.Conn)
	if ok && tc.ConnectionState().NegotiatedProtocol == proto {
		return &dialed{tc}, nil
	}
	return nil, errors.Join(fmt.Errorf("connecting to %s %s: it doesn't speak %s", wantRole, addr, proto), nc.Close())
}

// dialed explains the alert that comes when the server refuses this side's certificate.
type dialed struct{ *tls.Conn }

func (d *dialed) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		err = explain(err)
	}
	return n, err
}
