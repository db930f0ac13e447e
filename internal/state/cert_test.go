package state

import (
	"bytes"
	"testing"

	"gbatch/internal/model"
)

// certBook applies commands on certificates to a state, at moments that the test names.
type certBook struct {
	t  *testing.T
	st *State
}

func (b *certBook) do(at model.Time, x *Certs, want Refusal) Result {
	b.t.Helper()
	data, err := Encode(at, x)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := Decode(data)
	if err != nil {
		b.t.Fatal(err)
	}
	res := b.st.Apply(c)
	if res.Refusal != want {
		b.t.Errorf("operation %d at %d: %s, want %s", x.Op, at, res.Refusal, want)
	}
	return res
}

func (b *certBook) offer(at, until model.Time, id, role, name string) {
	b.t.Helper()
	b.do(at, &Certs{Op: CertOffer, Tokens: []model.CertToken{{ID: id, Hash: []byte("h" + id), Role: role, Name: name,
		At: at, Until: until, By: "root"}}}, OK)
}

func join(id, secret, key string, cert model.Cert) *Certs {
	return &Certs{Op: CertJoin, IDs: []string{id}, Hash: []byte("h" + secret), Key: []byte(key), Cert: &cert}
}

func certOf(serial, family, name string, at model.Time) model.Cert {
	return model.Cert{Serial: serial, Family: family, Role: "node", Name: name, At: at, Until: at + 1_000_000}
}

// TestTokenIsUsedOnce: a token gives one certificate to one key, before it expires, to the daemon that it is for.
// Whoever has the same key gets the same certificate again.
func TestTokenIsUsedOnce(t *testing.T) {
	b := &certBook{t, New()}
	b.offer(100, 200, "a", "node", "n1")
	b.do(150, join("a", "x", "k1", certOf("s1", "s1", "n1", 150)), NoSuchToken) // another secret
	b.do(150, join("a", "a", "k1", certOf("s1", "s1", "n2", 150)), NoSuchToken) // another name
	b.do(150, join("b", "a", "k1", certOf("s1", "s1", "n1", 150)), NoSuchToken)
	b.do(199, join("a", "a", "k1", certOf("s1", "s1", "n1", 199)), OK)
	b.do(199, join("a", "a", "k2", certOf("s2", "s2", "n1", 199)), TokenUsed)
	b.do(250, join("a", "a", "k1", certOf("s3", "s3", "n1", 250)), OK)
	if got := b.st.View().CertToken("a"); got.Serial != "s1" || got.UsedAt != 199 {
		t.Errorf("the token's certificate is %+v", got)
	}
	if n := len(b.st.View().CertsOf("node", "n1")); n != 1 {
		t.Errorf("%d certificates were issued", n)
	}
	b.offer(100, 200, "c", "node", "n1")
	b.do(200, join("c", "c", "k1", certOf("s4", "s4", "n1", 200)), TokenExpired)
	b.offer(100, 200, "d", "node", "n1")
	if res := b.do(150, &Certs{Op: CertDrop, IDs: []string{"d", "none"}}, OK); len(res.Each) != 2 || res.Each[0] != OK ||
		res.Each[1] != NoSuchToken {
		t.Errorf("taking tokens back: %v", res.Each)
	}
	b.do(150, join("d", "d", "k1", certOf("s5", "s5", "n1", 150)), NoSuchToken)
}

// TestRevoked: a revocation of a daemon counts for all its certificates until then and for its tokens; one of a serial
// for what was renewed from the same certificate. Neither can be renewed.
func TestRevoked(t *testing.T) {
	b := &certBook{t, New()}
	first, second := certOf("s1", "s1", "n1", 100), certOf("s2", "s1", "n1", 200)
	foreign, later := certOf("s9", "s9", "n1", 90), certOf("s3", "s3", "n1", 401)
	b.offer(90, 10_000, "a", "node", "n1")
	b.offer(90, 10_000, "b", "node", "n1")
	b.offer(90, 10_000, "o", "node", "other")
	b.do(100, join("a", "a", "k", first), OK)
	b.do(200, &Certs{Op: CertRenew, Old: &first, Cert: &second}, OK)
	revoked := func(c *model.Cert) bool { return b.st.View().CertRevoked(c) != nil }
	gen := b.st.View().RevokedGen()
	b.do(300, &Certs{Op: CertRevoke, Revoked: []model.CertRevoked{{Serial: "s2", At: 300, By: "root"}}}, OK)
	if !revoked(&first) || !revoked(&second) || revoked(&foreign) || gen == b.st.View().RevokedGen() {
		t.Error("a serial stands for its family, and for no other")
	}
	b.do(310, &Certs{Op: CertRenew, Old: &second, Cert: &later}, CertIsRevoked)
	b.do(310, join("a", "a", "k", first), NoSuchToken) // not even the same certificate again
	b.do(400, &Certs{Op: CertRevoke, Revoked: []model.CertRevoked{{Role: "node", Name: "n1", At: 400, By: "root"}}}, OK)
	if !revoked(&foreign) || revoked(&later) {
		t.Error("a name stands for what was issued until then")
	}
	b.do(450, join("b", "b", "k", later), NoSuchToken)
	b.do(450, join("o", "o", "k", certOf("s7", "s7", "other", 450)), OK)

	var whole bytes.Buffer
	if err := b.st.Freeze()(&whole); err != nil {
		t.Fatal(err)
	}
	again := New()
	if err := again.Restore(bytes.NewReader(whole.Bytes())); err != nil {
		t.Fatal(err)
	}
	v := again.View()
	if v.CertRevoked(&second) == nil || v.CertRevoked(&foreign) == nil || v.CertToken("o").Serial != "s7" ||
		len(v.CertsOf("node", "other")) != 1 {
		t.Error("a snapshot has lost tokens, certificates or revocations")
	}
	var twice bytes.Buffer
	if err := again.Freeze()(&twice); err != nil || !bytes.Equal(whole.Bytes(), twice.Bytes()) {
		t.Errorf("the snapshot of a snapshot is another one (%v)", err)
	}
	b.do(450+2_000_000+tokenKeptMS, &Certs{Op: CertSweep}, OK)
	if v := b.st.View(); len(v.Certs())+len(v.CertTokens()) != 0 || len(v.Revoked()) != 2 {
		t.Error("what is over is forgotten, revocations are not")
	}
}

// TestRenewalsAreBounded: a daemon can't fill the state with certificates.
func TestRenewalsAreBounded(t *testing.T) {
	b := &certBook{t, New()}
	old := certOf("s", "s", "n1", 100)
	for i := range maxLiveCerts {
		c := certOf(string(rune('a'+i)), "s", "n1", 100)
		b.do(200, &Certs{Op: CertRenew, Old: &old, Cert: &c}, OK)
	}
	last := certOf("z", "s", "n1", 100)
	b.do(200, &Certs{Op: CertRenew, Old: &old, Cert: &last}, Full)
	b.do(1_000_101, &Certs{Op: CertRenew, Old: &old, Cert: &last}, OK)
}

// TestUserTokens: the first key stays until it is replaced, which forgets revocations; snapshots have both, but those
// for everybody.
func TestUserTokens(t *testing.T) {
	st := New()
	do := func(at model.Time, x *Tokens) {
		t.Helper()
		data, err := Encode(at, x)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		st.Apply(c)
	}
	first, second := []byte("first key, first key"), []byte("second key, second key")
	do(100, &Tokens{Op: TokenFirst, Key: first})
	do(101, &Tokens{Op: TokenFirst, Key: second})
	do(200, &Tokens{Op: TokenRevoke, Users: []string{"bob", "ann"}})
	do(300, &Tokens{Op: TokenRevoke, Users: []string{"bob"}})
	again := New()
	var all, open bytes.Buffer
	if err := st.Freeze()(&all); err != nil {
		t.Fatal(err)
	}
	if err := st.FreezeOpen()(&open); err != nil || bytes.Contains(open.Bytes(), first) {
		t.Errorf("a snapshot for everybody has the key (%v)", err)
	}
	if err := again.Restore(&all); err != nil {
		t.Fatal(err)
	}
	v := again.View()
	if string(v.TokenKey()) != string(first) || v.TokensRevoked("ann") != 200 || v.TokensRevoked("bob") != 300 ||
		v.TokensRevoked("eve") != 0 {
		t.Errorf("key %q, revoked %d %d", v.TokenKey(), v.TokensRevoked("ann"), v.TokensRevoked("bob"))
	}
	do(400, &Tokens{Op: TokenKey, Key: second})
	if v := st.View(); string(v.TokenKey()) != string(second) || v.TokensRevoked("bob") != 0 {
		t.Errorf("key %q, revoked %d", v.TokenKey(), v.TokensRevoked("bob"))
	}
	for _, bad := range []*Tokens{{Op: TokenKey, Key: []byte("short")}, {Op: TokenRevoke}, {Op: 9}} {
		if data, err := Encode(1, bad); err == nil {
			if _, err := Decode(data); err == nil {
				t.Errorf("%+v is taken", bad)
			}
		}
	}
}
