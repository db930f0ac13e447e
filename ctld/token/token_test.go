package token

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
)

var (
	key = []byte("0123456789abcdef0123456789abcdef")
	now = time.Unix(1_800_000_000, 0)
)

// byHand makes a token as another tool would.
func byHand(key []byte, header, body string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(header)) + "." + b64([]byte(body))
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return text + "." + b64(m.Sum(nil))
}

func TestTokens(t *testing.T) {
	const hs = `{"alg":"HS256","typ":"JWT"}`
	body := func(more string) string { return fmt.Sprintf(`{"exp":%d,"iat":%d%s}`, now.Unix()+60, now.Unix(), more) }
	own, err := Make(key, &Claims{User: "ann", At: now, Until: now.Add(time.Minute), Most: model.RightsAdministrator})
	if err != nil {
		t.Fatal(err)
	}
	less, err := Make(key, &Claims{User: "ann", At: now, Until: now.Add(time.Minute), Most: model.RightsCoordinator})
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(body(`,"sun":"root"`))) + "."
	parts := strings.Split(own, ".")
	other := base64.RawURLEncoding.EncodeToString([]byte(body(`,"sun":"root"`)))
	for _, c := range []struct{ name, text, user, why string }{
		{"its own", own, "ann", ""},
		{"with less rights", less, "ann", ""},
		{"another tool's", byHand(key, hs, body(`,"sun":"bob"`)), "bob", ""},
		{"with username", byHand(key, hs, body(`,"username":"bob"`)), "bob", ""},
		{"another cluster's", byHand([]byte("another key of another cluster !"), hs, body(`,"sun":"bob"`)), "", "not signed"},
		{"alg none", none, "", "not signed"},
		{"none with a signature", byHand(key, `{"alg":"none"}`, body(`,"sun":"bob"`)), "", "not signed"},
		{"HS384", byHand(key, `{"alg":"HS384"}`, body(`,"sun":"bob"`)), "", "not signed"},
		{"RS256 with the key as its public key", byHand(key, `{"alg":"RS256"}`, body(`,"sun":"bob"`)), "", "not signed"},
		{"another body", parts[0] + "." + other + "." + parts[2], "", "not signed"},
		{"expired", byHand(key, hs, fmt.Sprintf(`{"exp":%d,"sun":"bob"}`, now.Unix()-3)), "", "expired"},
		{"for ever", byHand(key, hs, `{"sun":"bob"}`), "", "does not say when it ends"},
		{"of nobody", byHand(key, hs, body("")), "", "names no user"},
		{"a word", "root", "", "no token"},
		{"nothing", "", "", "no token"},
		{"very long", strings.Repeat("a", MaxBytes+1), "", "has more than"},
	} {
		k := Checker{Key: func() []byte { return key }, Now: func() time.Time { return now }}
		got, err := k.Check(c.text)
		switch {
		case c.why == "" && (err != nil || got.User != c.user):
			t.Errorf("%s: %+v, %v", c.name, got, err)
		case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %+v, %v; want %q", c.name, got, err, c.why)
		}
		if c.name == "with less rights" && got.Most != model.RightsCoordinator {
			t.Errorf("it may do as much as %s", got.Most)
		}
	}
	bare := Checker{Key: func() []byte { return nil }, Now: time.Now}
	if _, err := bare.Check(byHand(nil, hs, body(`,"sun":"x"`))); err == nil {
		t.Error("without a key, a token that was signed with nothing counts")
	}
}

// TestPublicKeys: tokens of an identity provider count by its public keys; the claim that the site names is the user.
func TestPublicKeys(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []map[string]string{{"kty": "RSA", "alg": "RS256", "kid": "k1",
		"n": b64(private.N.Bytes()), "e": b64(big.NewInt(int64(private.E)).Bytes())}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	said := ""
	sign := func(kid string) string {
		text := b64([]byte(`{"alg":"RS256","kid":"`+kid+`"}`)) + "." +
			b64([]byte(fmt.Sprintf(`{"exp":%d,"sub":"x","preferred_username":"ann"%s}`, now.Unix()+60, said)))
		sum := sha256.Sum256([]byte(text))
		s, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + b64(s)
	}
	k := Checker{Key: func() []byte { return key }, Now: func() time.Time { return now }, Public: &Public{Path: path},
		Claim: "preferred_username"}
	if got, err := k.Check(sign("k1")); err != nil || got.User != "ann" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := k.Check(sign("k2")); err == nil {
		t.Errorf("a token of an unknown key counts: %+v", got)
	}
	if got, err := (&Checker{Key: k.Key, Now: k.Now}).Check(sign("k1")); err == nil {
		t.Errorf("without public keys it counts: %+v", got)
	}
	k.Audience, k.Issuer = "gbatch", "https://id.site"
	for text, want := range map[string]string{"": "another service",
		`,"aud":"wiki","iss":"https://id.site"`: "another service",
		`,"aud":"gbatch"`:                       "another issuer", `,"aud":["gbatch"],"iss":"https://id.other"`: "another issuer",
		`,"aud":["wiki","gbatch"],"iss":"https://id.site"`: "", `,"aud":"gbatch","iss":"https://id.site"`: ""} {
		said = text
		if got, err := k.Check(sign("k1")); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a token with %s: %+v, %v", text, got, err)
		}
	}
	own, err := Make(key, &Claims{User: "ann", At: now, Until: now.Add(time.Minute), Most: model.RightsAdministrator})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Check(own); err != nil {
		t.Errorf("the cluster's own token: %v", err)
	}
}

// TestTokensAreSeenAgain: a token that was checked before counts as long as it would if it were checked anew: not with
// another key, not before it was made, not after its end.
func TestTokensAreSeenAgain(t *testing.T) {
	text, err := Make(key, &Claims{User: "ann", At: now, Until: now.Add(time.Minute), Most: model.RightsCoordinator})
	if err != nil {
		t.Fatal(err)
	}
	current, at := key, now
	k := &Checker{Key: func() []byte { return current }, Now: func() time.Time { return at }}
	for range 3 {
		c, err := k.Check(text)
		if err != nil || c.User != "ann" || c.Most != model.RightsCoordinator || !c.At.Equal(now) {
			t.Fatalf("%+v, %v", c, err)
		}
		c.User = "root" // it is the caller's own
	}
	if len(k.seen.list) != 1 {
		t.Fatalf("%d tokens are remembered", len(k.seen.list))
	}
	for _, x := range []struct {
		name string
		at   time.Time
		key  []byte
	}{{"after its end", now.Add(time.Minute + leeway), key}, {"without a key", now, nil},
		{"with another key", now, []byte("another key of the same cluster!")}} {
		at, current = x.at, x.key
		if c, err := k.Check(text); err == nil {
			t.Errorf("%s: %+v", x.name, c)
		}
	}
	at, current = now, key
	for i := range maxSeen + 10 {
		text, err := Make(key, &Claims{User: fmt.Sprint("u", i), At: now, Until: now.Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Check(text); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(k.seen.list); n > maxSeen {
		t.Errorf("%d tokens are remembered", n)
	}
}
