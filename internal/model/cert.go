package model

import "gbatch/internal/wire"

// cert.go is what the controllers know of certificates: offers to issue one, those that were issued, and those that
// count no more.

// CertRules is CertificateLifetime and LoginHosts.
type CertRules struct {
	LifeS  int64    // life of a certificate that a controller issues; 0: DefaultCertLifeS
	Logins []string // names of login hosts; empty: any login host with a certificate may pass requests on
}

func (x *CertRules) Wire(c *wire.C) {
	wire.Int(c, &x.LifeS)
	wire.Texts(c, &x.Logins, MaxList, MaxName)
}

// DefaultCertLifeS is CertificateLifetime if the configuration does not say it, seconds.
const DefaultCertLifeS = 30 * 24 * 3600

// CertLifeS gives the life of a certificate that a controller issues, seconds.
func (x *CertRules) CertLifeS() int64 {
	if x.LifeS <= 0 {
		return DefaultCertLifeS
	}
	return x.LifeS
}

// CertToken is the offer of one certificate to whoever shows the secret first. The secret itself is not kept.
type CertToken struct {
	ID    string // public, names it in lists
	Hash  []byte // SHA-256 of the secret
	Role  string
	Name  string
	At    Time
	Until Time   // it may be used before that
	By    string // the user who made it

	// Once it was used: when, for which key (SHA-256 of it) and for which certificate. The same key gets the same
	// certificate again, because its answer may be lost.
	UsedAt Time
	Key    []byte
	Serial string
}

func (x *CertToken) Wire(c *wire.C) {
	wire.Text(c, &x.ID, MaxName)
	wire.Bytes(c, &x.Hash, MaxName)
	wire.Text(c, &x.Role, MaxName)
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Until)
	wire.Text(c, &x.By, MaxName)
	wire.Int(c, &x.UsedAt)
	wire.Bytes(c, &x.Key, MaxName)
	wire.Text(c, &x.Serial, MaxName)
}

// Cert is a certificate that a controller issued.
type Cert struct {
	Serial string // hexadecimal
	Family string // serial of the first one of those that were renewed from each other
	Role   string
	Name   string
	At     Time // when it was issued
	Until  Time
}

func (x *Cert) Wire(c *wire.C) {
	wire.Text(c, &x.Serial, MaxName)
	wire.Text(c, &x.Family, MaxName)
	wire.Text(c, &x.Role, MaxName)
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Until)
}

// Whom says whose certificate it is: login lg1.
func (x *Cert) Whom() string { return x.Role + " " + x.Name }

// CertRevoked takes certificates back: one and all that were renewed from it (Serial), or all of a daemon that were
// issued until then (Role, Name, At).
type CertRevoked struct {
	Serial string
	Role   string
	Name   string
	At     Time
	By     string
	Why    string

	Keep bool // nobody else had the host: what users set by way of it stays as it is
}

func (x *CertRevoked) Wire(c *wire.C) {
	wire.Text(c, &x.Serial, MaxName)
	wire.Text(c, &x.Role, MaxName)
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.At)
	wire.Text(c, &x.By, MaxName)
	wire.Text(c, &x.Why, MaxText)
	wire.Bool(c, &x.Keep)
}

// Covers reports whether it takes this certificate back.
func (x *CertRevoked) Covers(cert *Cert) bool {
	if x.Serial != "" {
		return cert.Serial == x.Serial || cert.Family == x.Serial
	}
	return cert.Role == x.Role && cert.Name == x.Name && cert.At <= x.At
}

// MaxRevoked bounds the revocations of a cluster.
const MaxRevoked = 1 << 14

// TokenRevoked says that a user's tokens that were issued until a moment count no more.
type TokenRevoked struct {
	User string
	At   Time
}

func (x *TokenRevoked) Wire(c *wire.C) {
	wire.Text(c, &x.User, MaxName)
	wire.Int(c, &x.At)
}

// TokenKeyBytes is the length of the key that tokens are signed with when the cluster makes it.
const TokenKeyBytes = 32

// LeastTokenKey and MostTokenKey bound a key that an administrator gives, bytes.
const (
	LeastTokenKey = 16
	MostTokenKey  = 4 << 10
)
