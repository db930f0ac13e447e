package conf

import "testing"

// TestAuthAlt: what AuthAltParameters has is shown as it was written.
func TestAuthAlt(t *testing.T) {
	const all = "jwt_key=/k,jwks=/j,userclaimfield=name,jwt_audience=gbatch,jwt_issuer=https://id.site/x=y," +
		"disable_token_creation"
	c := &Config{}
	if f := readAuthAlt(c, all); f.bad() || c.HTTP.authAlt() != all || c.HTTP.JWTAudience != "gbatch" ||
		c.HTTP.JWTIssuer != "https://id.site/x=y" {
		t.Errorf("%v: %s", f, c.HTTP.authAlt())
	}
	if f := readAuthAlt(c, "jwt_audiences=x"); !f.bad() {
		t.Error("an unknown word is taken")
	}
}
