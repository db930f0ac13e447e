package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// cert.go is certificates: tokens for them, joining with one, renewal, and what was revoked; and users' tokens.

// EditCertsRequest makes tokens, takes some back, or revokes certificates. Only administrators on a controller may. It
// may be repeated. The secret of a token stays with the command that made it.
type EditCertsRequest struct {
	Offer  []model.CertToken // ID, Hash, Role, Name
	LifeS  int64             // of the tokens, seconds
	Drop   []string          // IDs
	Revoke []model.CertRevoked
}

func (x *EditCertsRequest) Wire(c *wire.C) {
	wire.List(c, &x.Offer, model.MaxFew)
	wire.Int(c, &x.LifeS)
	wire.Texts(c, &x.Drop, model.MaxFew, model.MaxName)
	wire.List(c, &x.Revoke, model.MaxFew)
}

// EditCertsReply has what a token needs besides its secret, and what is left to do, as sentences.
type EditCertsReply struct {
	Fingerprint []byte // SHA-256 of the authority's certificate
	Addr        string // host:port of the leader, as hosts reach it
	Said        []string
}

func (x *EditCertsReply) Wire(c *wire.C) {
	wire.Bytes(c, &x.Fingerprint, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Texts(c, &x.Said, model.MaxFew, model.MaxText)
}

// CertsReply has tokens, certificates and revocations, for operators.
type CertsReply struct {
	Now     model.Time
	Tokens  []model.CertToken // without Hash and Key
	Certs   []model.Cert
	Revoked []model.CertRevoked
}

func (x *CertsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.List(c, &x.Tokens, model.MaxList)
	wire.List(c, &x.Certs, model.MaxMany)
	wire.List(c, &x.Revoked, model.MaxList)
}

// Join asks for a certificate with a token. It comes from a host that has none.
type Join struct {
	ID      string
	Secret  []byte
	Role    string
	Name    string
	Request []byte // PKCS #10, DER
}

func (x *Join) Wire(c *wire.C) {
	wire.Text(c, &x.ID, model.MaxName)
	wire.Bytes(c, &x.Secret, model.MaxName)
	wire.Text(c, &x.Role, model.MaxName)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Bytes(c, &x.Request, model.MaxText)
}

// Renew asks for a certificate in place of the connection's, which is still valid.
type Renew struct {
	Request []byte // PKCS #10, DER
}

func (x *Renew) Wire(c *wire.C) { wire.Bytes(c, &x.Request, model.MaxText) }

// Sign asks another controller, which has the authority's key, for a certificate.
type Sign struct {
	Cert    model.Cert
	Request []byte
}

func (x *Sign) Wire(c *wire.C) {
	wire.Struct(c, &x.Cert)
	wire.Bytes(c, &x.Request, model.MaxText)
}

// Issued is a certificate that was issued.
type Issued struct {
	Cert  []byte // DER
	CA    []byte // of the authority, DER
	Now   model.Time
	Ctlds []string // NAME=HOST:PORT of the controllers
}

func (x *Issued) Wire(c *wire.C) {
	wire.Bytes(c, &x.Cert, model.MaxText)
	wire.Bytes(c, &x.CA, model.MaxText)
	wire.Int(c, &x.Now)
	wire.Texts(c, &x.Ctlds, model.MaxFew, model.MaxName)
}

// Revoked is what daemons have to know: which certificates count no more.
type Revoked struct {
	Gen  uint64 // of this list, on the controller that sends it
	List []model.CertRevoked
}

func (x *Revoked) Wire(c *wire.C) {
	wire.Int(c, &x.Gen)
	wire.List(c, &x.List, model.MaxList)
}

// TokenRequest asks for a token (JWT) that speaks for a user over HTTP.
type TokenRequest struct {
	User  string // "": the caller; only administrators get one for somebody else
	LifeS int64  // seconds; 0: DefaultTokenS
}

func (x *TokenRequest) Wire(c *wire.C) {
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.LifeS)
}

// Lives of tokens, seconds.
const (
	DefaultTokenS = 1800
	MaxTokenS     = 1<<32 - 2 // "infinite"
)

// TokenReply is a token.
type TokenReply struct {
	Token string
	User  string
	Until model.Time
}

func (x *TokenReply) Wire(c *wire.C) {
	wire.Data(c, &x.Token, model.MaxText)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.Until)
}

// EditTokensRequest revokes tokens, or exchanges the key that they are signed with. Users may revoke their own;
// everything else is for administrators.
type EditTokensRequest struct {
	Revoke []string // users whose tokens until now count no more
	NewKey bool     // a new key: all tokens count no more
	Key    []byte   // with NewKey: this one; empty: the cluster makes one
	Export bool     // the answer has the key
}

func (x *EditTokensRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Revoke, model.MaxFew, model.MaxName)
	wire.Bool(c, &x.NewKey)
	wire.Bytes(c, &x.Key, model.MaxName)
	wire.Bool(c, &x.Export)
}

// EditTokensReply has the key, if it was asked for.
type EditTokensReply struct {
	Key []byte
}

func (x *EditTokensReply) Wire(c *wire.C) { wire.Bytes(c, &x.Key, model.MaxName) }
