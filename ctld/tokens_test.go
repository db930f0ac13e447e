package ctld

import (
	"strings"
	"testing"
	"time"

	"gbatch/ctld/token"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// TestTokensOfHosts: a token that a host has made in a user's name ends with the host's certificate, and lives for a
// month at most; those of other hosts, of its next certificate and of controllers go on.
func TestTokensOfHosts(t *testing.T) {
	c := ruled(t)
	apply := func(at model.Time, b state.Body) {
		t.Helper()
		data, err := state.Encode(at, b)
		if err != nil {
			t.Fatal(err)
		}
		c.machine.Apply(c.machine.View().LastEntry()+1, [][]byte{data})
	}
	key := []byte(strings.Repeat("k", model.LeastTokenKey))
	apply(2000, &state.Tokens{Op: state.TokenFirst, Key: key})
	now := time.UnixMilli(200_000)
	c.tokens = token.Checker{Key: func() []byte { return c.machine.View().TokenKey() },
		Now: func() time.Time { return now }}
	made := func(at int64, via *token.Via) string {
		text, err := token.Make(key, &token.Claims{User: "ann", At: time.Unix(at, 0), Until: now.Add(time.Hour),
			Most: model.RightsUser, Via: via})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	l1 := &token.Via{Role: pki.RoleLogin, Name: "l1", Serial: "s2", Family: "s1"}
	tokens := map[string]string{"revoked host": made(100, l1), "its next certificate": made(160, &token.Via{
		Role: pki.RoleLogin, Name: "l1", Serial: "s7", Family: "s7"}), "another host": made(100, &token.Via{
		Role: pki.RoleLogin, Name: "l2", Serial: "s3", Family: "s3"}), "controller": made(100, nil)}
	check := func(when string, bad ...string) {
		t.Helper()
		for of, text := range tokens {
			_, err := c.checkToken(text)
			if want := strings.Contains(strings.Join(bad, ","), of); (err != nil) != want {
				t.Errorf("%s: the token of %s: %v", when, of, err)
			}
		}
	}
	check("before")
	apply(150_000, &state.Certs{Op: state.CertRevoke, Revoked: []model.CertRevoked{{Role: pki.RoleLogin, Name: "l1",
		At: 150_000}}})
	check("a host was revoked", "revoked host")
	apply(170_000, &state.Certs{Op: state.CertRevoke, Revoked: []model.CertRevoked{{Serial: "s3", At: 170_000}}})
	check("a certificate was revoked", "revoked host", "another host")

	who := at(plainUser)
	who.via = &model.Cert{Role: pki.RoleLogin, Name: "l1", Serial: "s2", Family: "s1"}
	_, err := c.makeToken(t.Context(), who, &proto.TokenRequest{LifeS: hostTokenS + 1})
	if codeOf(err) != proto.CodeBadRequest {
		t.Errorf("a token for longer than a month: %v", err)
	}
}
