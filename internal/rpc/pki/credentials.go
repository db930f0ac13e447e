package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// credentials.go is a daemon's certificate while the daemon runs. It can be replaced by a renewed one: connections that
// are open stay open, and new ones show the new certificate. Peers can be refused; open connections of theirs then end.

// Credentials are a daemon's certificate and key, the authority, and the daemon's connections. They go to Listen and
// Dial.
type Credentials struct {
	dir, role, name string

	cur     atomic.Pointer[pair]
	refused atomic.Pointer[func(*Holder) error]
	late    atomic.Pointer[func(*Holder)]

	mu    sync.Mutex
	conns map[*conn]*Holder
	seen  map[string]*Holder // the newest certificate that each peer has shown
}

// maxSeen bounds the peers whose certificates are remembered.
const maxSeen = 1 << 17

// Holder is what a certificate says.
type Holder struct {
	Serial string // hexadecimal
	Family string // serial of the first of those that were renewed from each other
	Role   string
	Name   string
	At     time.Time // when it was issued
	Until  time.Time
}

// Life is the time for which the certificate was issued.
func (h *Holder) Life() time.Duration { return h.Until.Sub(h.At) }

// RenewAt is when a daemon asks for the next certificate: at a third of the life.
func (h *Holder) RenewAt() time.Time { return h.Until.Add(-h.Life() / 3) }

// Late reports whether renewal is overdue: less than a quarter of the life is left, and less than most.
func (h *Holder) Late(now time.Time, most time.Duration) bool {
	return h.Until.Sub(now) < min(most, h.Life()/4)
}

func holderOf(cert *x509.Certificate) (*Holder, error) {
	id, err := identityOf(cert)
	if err != nil {
		return nil, err
	}
	h := &Holder{Serial: fmt.Sprintf("%x", cert.SerialNumber), Role: id.role, Name: id.name,
		At: cert.NotBefore.Add(backdate), Until: cert.NotAfter}
	if h.Family = cert.Subject.SerialNumber; h.Family == "" {
		h.Family = h.Serial
	}
	return h, nil
}

// Load reads the certificate of the daemon of that role and name from its files in dir.
func Load(dir, role, name string) (*Credentials, error) {
	c := &Credentials{dir: dir, role: role, name: name, conns: map[*conn]*Holder{}, seen: map[string]*Holder{}}
	if err := c.Reload(); err != nil {
		return nil, fmt.Errorf("TLS for %s %s: %w", role, name, err)
	}
	return c, nil
}

// Reload reads the files again. On an error the old certificate stays.
func (c *Credentials) Reload() error {
	p, err := loadPair(c.dir, c.role, c.name, time.Now())
	if err == nil {
		c.cur.Store(p)
	}
	return err
}

// Own is what the daemon's own certificate says.
func (c *Credentials) Own() Holder { return c.cur.Load().holder }

// File is the path of the daemon's certificate.
func (c *Credentials) File() string { return c.cur.Load().path }

// Dir is the directory of the files.
func (c *Credentials) Dir() string { return c.dir }

// CA is the authority's certificate.
func (c *Credentials) CA() *x509.Certificate { return c.cur.Load().ca.cert }

// ServerTLS is the configuration for accepting connections.
func (c *Credentials) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &c.cur.Load().cert, nil
		},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              c.cur.Load().ca.pool,
		SessionTicketsDisabled: true, // connections live long, and each one shows its certificate
		VerifyConnection:       c.verify,
	}
}

// ClientTLS is the configuration for making connections. Dial adds the expected role; without a role it connects to no
// peer.
func (c *Credentials) ClientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &c.cur.Load().cert, nil
		},
		RootCAs:          c.cur.Load().ca.pool,
		VerifyConnection: c.verify,
	}
}

// verify adds to Go's verification: it checks that the other side is a daemon of this cluster, and not refused.
func (c *Credentials) verify(cs tls.ConnectionState) error {
	id, err := peerIdentity(cs)
	if err != nil {
		return err
	}
	if own := c.cur.Load().id.cluster; id.cluster != own {
		return fmt.Errorf("the peer is %s; this is cluster %q", id, own)
	}
	h, err := holderOf(cs.PeerCertificates[0])
	if err != nil {
		return err
	}
	if err := c.refuses(h); err != nil {
		return &RefusedError{id.String(), h.Serial, err}
	}
	c.note(h)
	return nil
}

// RefusedError says that a certificate that is valid by itself is refused.
type RefusedError struct {
	who, serial string
	Why         error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the certificate of %s (serial %s) is refused: %v", e.who, e.serial, e.Why)
}

func (e *RefusedError) Unwrap() error { return e.Why }

func (c *Credentials) refuses(h *Holder) error {
	if f := c.refused.Load(); f != nil {
		return (*f)(h)
	}
	return nil
}

// OnOutOfDate sets what is told of peers whose certificate, of this authority, is out of date. f is called at
// the same time from many goroutines.
func (c *Credentials) OnOutOfDate(f func(h *Holder)) { c.late.Store(&f) }

// noteOutOfDate tells of a handshake that failed because the peer's certificate is out of date.
func (c *Credentials) noteOutOfDate(err error) {
	var invalid x509.CertificateInvalidError
	f := c.late.Load()
	if f == nil || !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return
	}
	ca := c.cur.Load().ca // Go looks at the dates before the signature
	if id, err := identityOf(invalid.Cert); err != nil || id.cluster != ca.cluster || !ca.signed(invalid.Cert) {
		return
	}
	if h, err := holderOf(invalid.Cert); err == nil && checkDates(invalid.Cert, time.Now()) != nil {
		(*f)(h)
	}
}

// note remembers the certificate of a peer that was issued last.
func (c *Credentials) note(h *Holder) {
	key := h.Role + "/" + h.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.seen[key]; old == nil && len(c.seen) < maxSeen || old != nil && !h.At.Before(old.At) {
		c.seen[key] = h
	}
}

// Peers gives the newest certificate of each peer of that role that has been connected with.
func (c *Credentials) Peers(role string) []Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Holder
	for _, h := range c.seen {
		if h.Role == role {
			out = append(out, *h)
		}
	}
	return out
}

// Refuse sets what decides on the peers' certificates, and ends the open connections that it refuses. It gives their
// number. f is called at the same time from many goroutines; it says why a certificate is refused.
func (c *Credentials) Refuse(f func(*Holder) error) int {
	c.refused.Store(&f)
	var closing []*conn
	c.mu.Lock()
	for nc, h := range c.conns {
		if f(h) != nil {
			closing = append(closing, nc)
			delete(c.seen, h.Role+"/"+h.Name)
		}
	}
	c.mu.Unlock()
	for _, nc := range closing {
		// Below TLS: a peer that reads nothing can't delay it.
		_ = nc.NetConn().Close()
		_ = nc.Close() // what is left is to forget it
	}
	return len(closing)
}

// conn is an open connection. It explains the alert that comes when a server refuses this side's certificate.
type conn struct {
	*tls.Conn
	c *Credentials
}

// hold keeps account of an open connection until it is closed. One whose peer has been refused meanwhile ends.
func (c *Credentials) hold(tc *tls.Conn) (*conn, error) {
	nc := &conn{tc, c}
	h, err := holderOf(tc.ConnectionState().PeerCertificates[0])
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.conns[nc] = h
	c.mu.Unlock()
	if err := c.refuses(h); err != nil { // it was refused between the handshake and now
		_ = nc.Close() // the error says why
		return nil, err
	}
	return nc, nil
}

// Close ends the connection.
func (n *conn) Close() error {
	n.c.mu.Lock()
	delete(n.c.conns, n)
	n.c.mu.Unlock()
	return n.Conn.Close()
}

// finish completes a replacement that was interrupted between key and certificate. It reports whether there was one.
func finish(crt, key string) bool {
	next := crt + newSuffix
	_, err := tls.LoadX509KeyPair(next, key)
	return err == nil && os.Rename(next, crt) == nil
}

const newSuffix = ".new"

// Request gives a request for a certificate for the daemon's next key. The key is made once and kept beside the files,
// for its owner only, until Install: if an answer is lost, the same key asks again.
func Request(dir, role, name string) (der []byte, err error) {
	if err := errors.Join(checkRole(role), checkName("name", name)); err != nil {
		return nil, err
	}
	_, keyName := pairFiles(role, name)
	path := filepath.Join(dir, keyName+newSuffix)
	data, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if data, err = newKey(); err == nil {
			err = WriteFile(path, data, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	der, err = requestFor(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", path, err)
	}
	return der, nil
}

// Install puts a certificate for the key of Request in place, and the authority's where there is none. The
// certificate has to be that daemon's, and of the same authority as the one that is there.
func Install(dir, role, name string, certDER, caDER []byte) error {
	crtName, keyName := pairFiles(role, name)
	crt, key := filepath.Join(dir, crtName), filepath.Join(dir, keyName)
	ca, err := authorityOf(caDER)
	if err != nil {
		return fmt.Errorf("the authority's certificate that came: %w", err)
	}
	if err := copyCA(ca, dir); err != nil {
		return err
	}
	keyPEM, err := readKey(key + newSuffix)
	if err != nil {
		return err
	}
	crtPEM := certPEM(certDER)
	if _, err := checkPair(ca, crtPEM, keyPEM, crt, role, name, time.Now()); err != nil {
		return fmt.Errorf("the certificate that came: %w", err)
	}
	if err := WriteFile(crt+newSuffix, crtPEM, 0o644); err != nil {
		return err
	}
	// Whoever is interrupted between these two finds the certificate beside the key (finish).
	if err := os.Rename(key+newSuffix, key); err != nil {
		return err
	}
	if err := os.Rename(crt+newSuffix, crt); err != nil {
		return err
	}
	return syncDir(dir)
}
