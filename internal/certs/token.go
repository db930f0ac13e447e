package certs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Token is what an administrator carries to a new host.
type Token struct {
	ID          string
	Secret      []byte
	Fingerprint []byte // SHA-256 of the authority's certificate
}

const (
	idBytes     = 5
	secretBytes = 20
)

var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewToken makes a token, which has no fingerprint yet.
func NewToken() (Token, error) {
	b := make([]byte, idBytes+secretBytes)
	if _, err := rand.Read(b); err != nil {
		return Token{}, err
	}
	return Token{ID: lower(b[:idBytes]), Secret: b[idBytes:]}, nil
}

// Hash is what controllers keep of a secret.
func Hash(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

func lower(b []byte) string { return strings.ToLower(letters.EncodeToString(b)) }

func (t Token) String() string { return t.ID + "." + lower(t.Secret) + "." + lower(t.Fingerprint) }

var errToken = errors.New("it is not TOKEN@HOST as `gbatch cert token` prints it; give it whole, in one word")

// ParseJoin reads TOKEN@HOST or TOKEN@HOST:PORT. Its errors don't repeat the token.
func ParseJoin(s, port string) (t Token, addr string, err error) {
	text, addr, _ := strings.Cut(strings.TrimSpace(s), "@")
	parts := strings.Split(text, ".")
	if len(parts) != 3 || addr == "" || strings.ContainsAny(addr, " @/") {
		return Token{}, "", errToken
	}
	t.ID = parts[0]
	t.Secret, err = letters.DecodeString(strings.ToUpper(parts[1]))
	if err == nil {
		t.Fingerprint, err = letters.DecodeString(strings.ToUpper(parts[2]))
	}
	if err != nil || len(t.ID) == 0 || len(t.Secret) != secretBytes || len(t.Fingerprint) != sha256.Size {
		return Token{}, "", errToken
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return Token{}, "", fmt.Errorf("'%s' is not HOST or HOST:PORT", addr)
	}
	return t, addr, nil
}
