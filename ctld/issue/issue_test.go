package issue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// cluster is a controller with a state and nothing else.
type cluster struct {
	st     *state.State
	now    model.Time
	asked  []string
	log    int     // entries
	signer *Issuer // the other controller; nil: it does not answer
}

func (c *cluster) View() *state.View         { return c.st.Peek() }
func (c *cluster) Now() model.Time           { return c.now }
func (c *cluster) Moved() error              { return errors.New("moved") }
func (c *cluster) IsMember(ctld string) bool { return ctld == "c1" }
func (c *cluster) Configured(string) bool    { return false }
func (c *cluster) Voters() []string          { return []string{"c1=c1:6817"} }
func (c *cluster) Others() []Other           { return []Other{{"c2", "c2:6817"}} }

func (c *cluster) Propose(_ context.Context, b state.Body) (state.Result, error) {
	c.log++
	return c.st.Apply(state.Command{At: c.now, Body: b}), nil
}

func (c *cluster) Ask(_ context.Context, addr string, rq *proto.Sign) (*proto.Issued, error) {
	c.asked = append(c.asked, addr)
	if c.signer == nil {
		return nil, errors.New("no answer")
	}
	if rq.Cert.Serial == "" {
		return c.signer.Sign(nil, nil)
	}
	return c.signer.Sign(&rq.Cert, rq.Request)
}

func newIssuer(t *testing.T, dir string) (*Issuer, *cluster) {
	t.Helper()
	c := &cluster{st: state.New(), now: model.Time(time.Now().UnixMilli())}
	creds, err := pki.Load(dir, pki.RoleCtld, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{Name: "c1", Dir: dir, Creds: creds, Log: slog.New(slog.DiscardHandler), Cluster: c}, c
}

// authority makes one, with a certificate for the controller c1.
func authority(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(pki.InitCA(dir, "test"), pki.Issue(dir, pki.RoleCtld, "c1", []string{"c1"}, dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func request(t *testing.T) []byte {
	t.Helper()
	der, err := pki.Request(t.TempDir(), pki.RoleLogin, "l1")
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// refused wants an error with those words.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("the error is %v, want one with %q", err, words)
	}
}

// TestToken: a token gives one host one certificate, which is renewed when half of its life is over, and not after it
// was revoked.
func TestToken(t *testing.T) {
	s, c := newIssuer(t, authority(t))
	ctx, secret := t.Context(), []byte("secret")
	offer := func(role, name, id string, lifeS int64) error {
		return s.Edit(ctx, "root", &proto.EditCertsRequest{LifeS: lifeS,
			Offer: []model.CertToken{{ID: id, Hash: certs.Hash(secret), Role: role, Name: name}}}, &proto.EditCertsReply{})
	}
	if err := offer(pki.RoleLogin, "l1", "t1", 60); err != nil {
		t.Fatal(err)
	}
	refused(t, offer(pki.RoleCtld, "c7", "t2", 60), "is no controller")
	refused(t, offer("king", "l1", "t2", 60), "roles are")
	refused(t, offer(pki.RoleLogin, "l1", "t2", maxTokenLifeS+1), "lives from 1 second")

	first := request(t)
	join := func(id string, secret, request []byte) (*proto.Issued, error) {
		return s.Join(ctx, &proto.Join{ID: id, Secret: secret, Role: pki.RoleLogin, Name: "l1", Request: request})
	}
	entries := c.log
	for range 1000 {
		_, err := join("t1", []byte("guessed"), first)
		refused(t, err, "no such token")
		_, err = join("t0", secret, first)
		refused(t, err, "no such token")
	}
	_, err := s.Join(ctx, &proto.Join{ID: "t1", Role: pki.RoleCtld, Name: "c7", Request: first})
	refused(t, err, "no such token") // and not whether there is a c7
	if c.log != entries {
		t.Errorf("strangers wrote %d entries into the log", c.log-entries)
	}
	issued, err := join("t1", secret, first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := join("t1", secret, first) // its answer was lost
	if err != nil || len(s.View().Certs()) != 1 || len(again.Cert) == 0 || !slices.Equal(issued.Ctlds, c.Voters()) {
		t.Errorf("the same host again: %v, %d certificates", err, len(s.View().Certs()))
	}
	_, err = join("t1", secret, request(t))
	refused(t, err, "was used already")
	if err := offer(pki.RoleLogin, "l1", "t3", 1); err != nil {
		t.Fatal(err)
	}
	c.now += 2000
	_, err = join("t3", secret, first)
	refused(t, err, "has expired")

	own := *s.View().Certs()[0]
	_, err = s.Renew(ctx, &own, first)
	refused(t, err, "renewed later")
	c.now = own.At + (own.Until-own.At)*2/3
	renewed, err := s.Renew(ctx, &own, first)
	if err != nil || bytes.Equal(renewed.Cert, issued.Cert) {
		t.Errorf("renewing gave %v", err)
	}
	err = s.Edit(ctx, "root", &proto.EditCertsRequest{Revoke: []model.CertRevoked{{Role: pki.RoleLogin, Name: "l1"}}},
		&proto.EditCertsReply{})
	if err != nil || len(s.Revoked().List) != 1 {
		t.Errorf("revoking gave %v", err)
	}
	_, err = s.Renew(ctx, &own, first)
	refused(t, err, "was revoked")
	mine := s.Creds.Own()
	err = s.Edit(ctx, "root", &proto.EditCertsRequest{Revoke: []model.CertRevoked{{Role: mine.Role, Name: mine.Name}}},
		&proto.EditCertsReply{})
	refused(t, err, "would take itself off")
}

// TestOtherSigns: a controller without the authority's key has another one sign; a token is not used up if none can.
func TestOtherSigns(t *testing.T) {
	with := authority(t)
	other, _ := newIssuer(t, with)
	without := t.TempDir()
	if err := pki.Issue(with, pki.RoleCtld, "c1", []string{"c1"}, without); err != nil {
		t.Fatal(err)
	}
	s, c := newIssuer(t, without)
	secret := []byte("secret")
	c.signer = other
	err := s.Edit(t.Context(), "root", &proto.EditCertsRequest{LifeS: 60,
		Offer: []model.CertToken{{ID: "t1", Hash: certs.Hash(secret), Role: pki.RoleLogin, Name: "l1"}}},
		&proto.EditCertsReply{})
	if err != nil {
		t.Fatal(err)
	}
	join := &proto.Join{ID: "t1", Secret: secret, Role: pki.RoleLogin, Name: "l1", Request: request(t)}
	c.signer = nil
	_, err = s.Join(t.Context(), join)
	refused(t, err, "c2 did not answer")
	if n := len(s.View().Certs()); n != 0 {
		t.Errorf("%d certificates that nobody signed", n)
	}
	c.signer = other
	if issued, err := s.Join(t.Context(), join); err != nil || len(issued.Cert) == 0 {
		t.Errorf("joining with another controller's signature: %v", err)
	}
	if len(c.asked) < 3 {
		t.Errorf("asked %q", c.asked)
	}
}
