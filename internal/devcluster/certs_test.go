package devcluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// certCluster is a cluster with what a thief or a new host does to it.
type certCluster struct {
	*devcluster.Cluster
	t *testing.T
}

// token makes a token for a daemon and gives TOKEN@HOST.
func (c *certCluster) token(role, name string, lifeS int64) string {
	c.t.Helper()
	tok, err := certs.NewToken()
	must(c.t, err)
	cl := c.Client()
	defer cl.Close()
	var r proto.EditCertsReply
	must(c.t, cl.Call(proto.KindEditCerts, &proto.EditCertsRequest{LifeS: lifeS,
		Offer: []model.CertToken{{ID: tok.ID, Hash: certs.Hash(tok.Secret), Role: role, Name: name}}}, &r))
	tok.Fingerprint = r.Fingerprint
	return tok.String() + "@" + r.Addr
}

func (c *certCluster) revoke(r model.CertRevoked) {
	c.t.Helper()
	cl := c.Client()
	defer cl.Close()
	rq := &proto.EditCertsRequest{Revoke: []model.CertRevoked{r}}
	must(c.t, cl.Call(proto.KindEditCerts, rq, &proto.EditCertsReply{}))
}

func (c *certCluster) joinAs(token, role, name, dir string) error {
	return certs.JoinHost(context.Background(), token, role, name, dir, io.Discard)
}

// dial connects to a controller with the certificate in dir.
func (c *certCluster) dial(dir, role, name, ctl string) (*rpc.Conn, error) {
	creds, err := pki.Load(dir, role, name)
	must(c.t, err)
	addr := ports(c.t, c.Cluster)[strings.TrimPrefix(ctl, "ctld-")]
	nc, err := pki.Dial(context.Background(), addr, pki.ProtoRPC, creds, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	conn := rpc.Client(nc, rpc.ConnOptions{Name: ctl})
	must(c.t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Call(context.Background(), proto.KindPing, nil)
	var said *rpc.Error
	if err != nil && !errors.As(err, &said) { // an answer, if only that it does not lead
		return nil, err
	}
	return conn, nil
}

// refusal wants an error with these words.
func refusal(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %q", err, words)
	}
}

// TestTokens: a token gives one certificate, to whoever shows it first, within its life, for its role and name. The new
// host sends it to nobody but a controller of that authority, and its key stays with it.
func TestTokens(t *testing.T) {
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1, Controllers: 3}), t}
	dir := filepath.Join(t.TempDir(), "pki")
	text := c.token(pki.RoleNode, "n1", 600)
	must(t, c.joinAs(text, pki.RoleNode, "n1", dir))
	st, err := os.Stat(filepath.Join(dir, "node-n1.key"))
	must(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %o", st.Mode().Perm())
	}
	conn, err := c.dial(dir, pki.RoleNode, "n1", "ctl1")
	must(t, err)
	must(t, conn.Close())
	left, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if must(t, err); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	other := func() string { return filepath.Join(t.TempDir(), "pki") }
	for role, name := range map[string]string{pki.RoleCtld: "ctl2", pki.RoleDBD: "dbd", pki.RoleLogin: "lg1"} {
		at := other()
		must(t, c.joinAs(c.token(role, name, 600), role, name, at))
		conn, err := c.dial(at, role, name, "ctl1")
		must(t, err)
		must(t, conn.Close())
	}
	refusal(t, c.joinAs(text, pki.RoleNode, "n1", other()), "was used already")
	refusal(t, c.joinAs(c.token(pki.RoleNode, "n1", 600), pki.RoleLogin, "n1", other()), "there is no such token")
	refusal(t, c.joinAs(c.token(pki.RoleLogin, "lg1", 600), pki.RoleLogin, "lg2", other()), "there is no such token")
	short := c.token(pki.RoleLogin, "lg1", 1)
	c.Wait("a token to expire", func() error {
		cl := c.Client()
		defer cl.Close()
		var r proto.CertsReply
		if err := cl.Call(proto.KindCerts, &proto.Empty{}, &r); err != nil {
			return err
		}
		for _, tok := range r.Tokens {
			if strings.HasPrefix(short, tok.ID) && r.Now < tok.Until {
				return errors.New("it has not")
			}
			if tok.Hash != nil || tok.Key != nil {
				t.Error("the list has secrets' hashes")
			}
		}
		return nil
	})
	refusal(t, c.joinAs(short, pki.RoleLogin, "lg1", other()), "has expired")
	var said *rpc.Error
	cl := c.Client()
	defer cl.Close()
	err = cl.Call(proto.KindEditCerts, &proto.EditCertsRequest{LifeS: 600,
		Offer: []model.CertToken{{ID: "x", Role: pki.RoleNode, Name: "ghost"}}}, &proto.EditCertsReply{})
	if !errors.As(err, &said) {
		t.Errorf("a token for a node that is not in the configuration: %v", err)
	}
	refusal(t, err, "is no node of the configuration")

	// A controller of another authority, at the address in a token.
	tok, addr, err := certs.ParseJoin(c.token(pki.RoleLogin, "lg3", 600), "")
	must(t, err)
	tok.Fingerprint = bytes.Repeat([]byte{7}, 32)
	refusal(t, certs.Join(context.Background(), tok, addr, pki.RoleLogin, "lg3", other()), "fingerprint in the token")
	if _, _, err := certs.ParseJoin("k.s.f", ""); err == nil {
		t.Error("half a token is read")
	}
}

// TestStolenKey: a certificate that was revoked loses its connections at once and gets no new ones, at every
// controller, also after the leader has gone and after restarts. What was renewed from it counts no more either. A
// node with a new certificate works.
func TestStolenKey(t *testing.T) {
	port := devcluster.FreePort(t)
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1, Controllers: 3,
		Conf: fmt.Sprintf("SlurmdPort=%d", port)}), t}
	thief := filepath.Join(t.TempDir(), "pki")
	must(t, c.joinAs(c.token(pki.RoleLogin, "lg1", 600), pki.RoleLogin, "lg1", thief))
	var open []*rpc.Conn
	for _, ctl := range c.Controllers() {
		conn, err := c.dial(thief, pki.RoleLogin, "lg1", ctl)
		must(t, err)
		open = append(open, conn)
	}
	creds, err := pki.Load(thief, pki.RoleLogin, "lg1")
	must(t, err)
	c.revoke(model.CertRevoked{Serial: creds.Own().Serial, Why: "stolen"})
	for i, conn := range open {
		var f rpc.Frame
		if err := conn.ReadFrame(&f); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection of a revoked certificate stays open: %v", c.Controllers()[i], err)
		}
	}
	const refusal = "it was revoked, is of another cluster"
	refused := func() {
		t.Helper()
		for _, ctl := range c.Controllers() {
			c.Wait("the thief to be refused by "+ctl, func() error {
				conn, err := c.dial(thief, pki.RoleLogin, "lg1", ctl)
				if err == nil {
					return errors.Join(errors.New("it is served"), conn.Close())
				}
				if !strings.Contains(err.Error(), refusal) {
					return err
				}
				return nil
			})
		}
	}
	refused()
	at := func(addr, alpn, role string) error {
		nc, err := pki.Dial(t.Context(), addr, alpn, creds, role)
		if err == nil { // a server's refusal comes with the first read
			must(t, nc.SetReadDeadline(time.Now().Add(time.Second)))
			_, err = nc.Read(make([]byte, 1))
			err = errors.Join(err, nc.Close())
		}
		return err
	}
	atDBD := func() error {
		if err := at(ports(t, c.Cluster)["dbd"], pki.ProtoAcct, pki.RoleDBD); err == nil ||
			!strings.Contains(err.Error(), refusal) {
			return fmt.Errorf("gdbd takes a revoked certificate: %w", err)
		}
		return nil
	}
	c.Wait("the thief to be refused by gdbd", atDBD)
	for _, ctl := range c.Controllers() {
		c.StopDaemon(ctl)
		c.StartDaemon(ctl)
	}
	c.WaitReady()
	refused()

	// A node and gdbd that start without controllers know what was revoked.
	atNode := func() error { return at(fmt.Sprintf("127.0.0.1:%d", port), "gbatch-peer", pki.RoleNode) }
	c.StopDaemon("n1")
	c.StopDaemon("dbd")
	for _, ctl := range c.Controllers() {
		c.StopDaemon(ctl)
	}
	c.StartDaemon("n1")
	if err := atNode(); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a node without controllers takes a revoked certificate: %v", err)
	}
	c.StartDaemon("dbd")
	if err := atDBD(); err != nil {
		t.Error(err)
	}
	for _, ctl := range c.Controllers() {
		c.StartDaemon(ctl)
	}
	c.WaitReady()

	// A node's certificates, all of them: the node is off, and back with a token.
	c.revoke(model.CertRevoked{Role: pki.RoleNode, Name: "n1"})
	gone := func(want bool) func() error {
		return func() error {
			cl := c.Client()
			defer cl.Close()
			var p proto.PingReply
			if err := cl.Call(proto.KindPing, &proto.Empty{}, &p); err != nil || p.Ready == want {
				return fmt.Errorf("ready %v (%w)", p.Ready, err)
			}
			return nil
		}
	}
	c.Wait("the node to be cut off", gone(true))
	must(t, c.joinAs(c.token(pki.RoleNode, "n1", 600), pki.RoleNode, "n1", filepath.Join(c.Dir, "pki")))
	c.StopDaemon("n1")
	c.StartDaemon("n1")
	c.WaitReady()
	works(t, c.Cluster)
}

// TestRenewal: certificates that live for seconds are renewed again and again. Nothing is restarted, no
// session ends, no call fails. (A machine that is busy with other things may elect another leader meanwhile; that ends
// a session, and is not what is tested.)
func TestRenewal(t *testing.T) {
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1, Controllers: 3,
		Conf: "CertificateLifetime=0:00:15"}), t}
	dir := filepath.Join(c.Dir, "pki")
	for _, who := range [][2]string{{pki.RoleNode, "n1"}, {pki.RoleCtld, "ctl2"}, {pki.RoleDBD, "dbd"}} {
		must(t, pki.IssueFor(15*time.Second, dir, who[0], who[1], []string{"127.0.0.1"}, dir))
	}
	for _, name := range []string{"ctld-ctl2", "dbd", "n1"} {
		c.StopDaemon(name)
		c.StartDaemon(name)
	}
	c.WaitReady()
	serials := map[string]map[string]bool{}
	calls, term := 0, uint64(0)
	c.Wait("everybody to renew three times", func() error {
		for range 20 {
			cl := c.Client()
			var p proto.PingReply
			err := cl.Call(proto.KindPing, &proto.Empty{}, &p)
			cl.Close()
			must(t, err)
			elected := term != 0 && p.Term != term
			if term = p.Term; elected {
				c.WaitReady()
				break
			}
			if !p.Ready {
				t.Fatal("the node's session has ended")
			}
			calls++
		}
		var left []string
		for _, file := range []string{"node-n1", "ctld-ctl2", "dbd-dbd"} {
			h, err := pki.CertFile(filepath.Join(dir, file+".crt"))
			must(t, err)
			if serials[file] == nil {
				serials[file] = map[string]bool{}
			}
			if serials[file][h.Serial] = true; len(serials[file]) < 4 {
				left = append(left, fmt.Sprintf("%s %d", file, len(serials[file])-1))
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
	works(t, c.Cluster)
	t.Logf("%d calls, all answered", calls)
}

// TestNamesArePinned: a certificate of the right authority whose name is not in the configuration gets a sentence and
// nothing else.
func TestNamesArePinned(t *testing.T) {
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1, Conf: "LoginHosts=lg[1-2]"}), t}
	dir := filepath.Join(c.Dir, "pki")
	for _, bad := range []struct{ role, name, words string }{
		{pki.RoleNode, "ghost", "is no node of the configuration"},
		{pki.RoleLogin, "lg3", "is not among LoginHosts=lg[1-2]"},
		{pki.RoleCtld, "evil", "is no controller of this cluster"},
	} {
		must(t, pki.Issue(dir, bad.role, bad.name, nil, dir))
		conn, err := c.dial(dir, bad.role, bad.name, "ctl1")
		must(t, err) // it learns who leads
		body, err := proto.Encode(&proto.Forward{Caller: proto.Caller{UID: 1000}, Kind: proto.KindConfig})
		must(t, err)
		_, err = conn.Call(context.Background(), proto.KindForward, body)
		refusal(t, err, bad.words)
		must(t, conn.Close())
	}
	creds, err := pki.Load(dir, pki.RoleCtld, "evil")
	must(t, err)
	nc, err := pki.Dial(context.Background(), ports(t, c.Cluster)["ctl1"], pki.ProtoRaft, creds, pki.RoleCtld)
	must(t, err)
	must(t, nc.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := nc.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("raft with a controller that is none: %d bytes, %v", n, err)
	}
	must(t, nc.Close())
}
