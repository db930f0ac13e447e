package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// TestStrangers checks which peers are refused, the errors on both sides, and that no request of theirs reaches a
// handler.
func TestStrangers(t *testing.T) {
	dir, other, sameName := testCA(t, "c"), testCA(t, "d"), testCA(t, "c")
	ctld := func(t *testing.T) *daemon { return startDaemon(t, dir, RoleCtld, "ctld1", nil) }
	refuses := func(t *testing.T, err error, says ...string) {
		t.Helper()
		for _, s := range says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("got %v, want %q", err, s)
			}
		}
	}
	t.Run("another cluster", func(t *testing.T) {
		d := ctld(t)
		_, err := d.call(t, other, RoleNode, RoleCtld)
		refuses(t, err, `its certificate (ctld ctld1 of cluster "c") was not signed by this cluster's authority`)
		d.log.waitFor(t, "refused a connection")
	})
	t.Run("another cluster of the same name", func(t *testing.T) {
		d := ctld(t)
		_, err := d.call(t, sameName, RoleNode, RoleCtld)
		refuses(t, err, "was not signed by this cluster's authority")
	})
	t.Run("client of another authority", func(t *testing.T) {
		d := ctld(t)
		ours, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := Load(sameName, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := ours.ClientTLS() // trusts the server, shows what the server doesn't trust
		cfg.GetClientCertificate = theirs.ClientTLS().GetClientCertificate
		_, err = callWith(d, cfg)
		refuses(t, err, "refused this side's certificate")
		d.log.waitFor(t, "node node1 of cluster")
		d.log.waitFor(t, "was not signed by this cluster's authority")
	})
	t.Run("no certificate", func(t *testing.T) {
		d := ctld(t)
		creds, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := creds.ClientTLS()
		cfg.GetClientCertificate = nil
		_, err = callWith(d, cfg)
		refuses(t, err, "certificate")
		d.log.waitFor(t, "didn't provide a certificate")
	})
	t.Run("server of the wrong role", func(t *testing.T) {
		d := startDaemon(t, dir, RoleNode, "node1", nil)
		_, err := d.call(t, dir, RoleNode, RoleCtld)
		refuses(t, err, `it is node node1 of cluster "c", not a ctld`)
	})
	t.Run("client of the wrong role", func(t *testing.T) {
		d := ctld(t)
		cfg, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		nc, err := Dial(context.Background(), d.addr, ProtoRaft, cfg, RoleCtld)
		if err == nil {
			_, err = nc.Read(make([]byte, 1))
			_ = nc.Close()
		}
		refuses(t, err, "refused this side's certificate")
		d.log.waitFor(t, "may not speak gbatch-raft")
	})
	t.Run("unknown protocol", func(t *testing.T) {
		d := ctld(t)
		cfg, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Dial(context.Background(), d.addr, "h2", cfg, RoleCtld)
		refuses(t, err, "does not serve this protocol")
	})
	t.Run("no protocol", func(t *testing.T) {
		d := ctld(t)
		creds, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := creds.ClientTLS()
		cfg.ServerName = "ctld.gbatch"
		nc, err := tls.Dial("tcp", d.addr, cfg)
		if err == nil {
			_, err = nc.Read(make([]byte, 1))
			_ = nc.Close()
		}
		refuses(t, err, "")
		d.log.waitFor(t, "named none of the protocols")
	})
	t.Run("expired client", func(t *testing.T) {
		// Checked at the handshake too: a certificate can expire while its daemon runs.
		d := ctld(t)
		cfg := badClient(t, dir, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		})
		_, err := callWith(d, cfg)
		refuses(t, err, "refused this side's certificate", "expired")
		d.log.waitFor(t, "it expired at")
		d.log.waitFor(t, "gbatch cert issue node node1")
	})
	t.Run("client from the future", func(t *testing.T) {
		d := ctld(t)
		cfg := badClient(t, dir, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		})
		_, err := callWith(d, cfg)
		refuses(t, err, "both hosts' clocks")
		d.log.waitFor(t, "clocks of this host and of the one that issued it differ")
	})
	t.Run("signed for another cluster", func(t *testing.T) {
		d := ctld(t)
		cfg := badClient(t, dir, func(c *x509.Certificate) { c.URIs = []*url.URL{identity{"d", RoleNode, "node1"}.uri()} })
		_, err := callWith(d, cfg)
		refuses(t, err, "refused this side's certificate")
		d.log.waitFor(t, `the peer is node node1 of cluster \"d\"; this is cluster \"c\"`)
	})
	t.Run("signed without a name", func(t *testing.T) {
		d := ctld(t)
		cfg := badClient(t, dir, func(c *x509.Certificate) { c.URIs = nil })
		_, err := callWith(d, cfg)
		refuses(t, err, "refused this side's certificate")
		d.log.waitFor(t, "it is no gbatch certificate")
	})
	t.Run("old TLS", func(t *testing.T) {
		d := ctld(t)
		creds, err := Load(dir, RoleNode, "node1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := creds.ClientTLS()
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		_, err = callWith(d, cfg)
		refuses(t, err, "protocol version")
	})
	t.Run("server that is no TLS", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if nc, err := ln.Accept(); err == nil {
				_, _ = io.WriteString(nc, "SSH-2.0-OpenSSH_9.2\r\n")
				_ = nc.Close()
			}
		}()
		_, err = (&daemon{addr: ln.Addr().String()}).call(t, dir, RoleNode, RoleCtld)
		refuses(t, err, "does not speak TLS")
	})
	t.Run("nobody there", func(t *testing.T) {
		_, err := (&daemon{addr: "127.0.0.1:1"}).call(t, dir, RoleNode, RoleCtld)
		refuses(t, err, "connecting to ctld 127.0.0.1:1", "connection refused")
	})
}

// badClient is a client that trusts the authority in dir, with a certificate it should not have signed.
func badClient(t *testing.T, dir string, change func(*x509.Certificate)) *tls.Config {
	t.Helper()
	creds, err := Load(dir, RoleDBD, "dbd1")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	signAs(t, dir, out, change)
	crt, key := pairFiles(RoleNode, "node1")
	cert, err := tls.LoadX509KeyPair(out+"/"+crt, out+"/"+key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := creds.ClientTLS()
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return cfg
}

func callWith(d *daemon, cfg *tls.Config) (string, error) {
	creds := &Credentials{conns: map[*conn]*Holder{}}
	nc, err := dial(context.Background(), d.addr, ProtoRPC, creds, cfg, RoleCtld)
	if err != nil {
		return "", err
	}
	c := rpc.Client(nc, rpc.ConnOptions{Name: "ctld " + d.addr})
	defer c.Close()
	f, err := c.Call(context.Background(), 1, []byte("hello"))
	return string(f.Body), err
}

func TestStrangersLog(t *testing.T) {
	var s strangers
	now := time.Unix(1e9, 0)
	if _, ok := s.note("10.0.0.1:1000", now); !ok {
		t.Error("the first is not logged")
	}
	for i := range 5 {
		if _, ok := s.note(fmt.Sprintf("10.0.0.1:%d", 2000+i), now.Add(time.Second)); ok {
			t.Error("logged again within a minute, from another port")
		}
	}
	if n, ok := s.note("10.0.0.1:3000", now.Add(strangerEvery)); !ok || n != 5 {
		t.Errorf("after a minute: %d suppressed, %v", n, ok)
	}
	logged := 0
	for i := range 3 * maxStrangers {
		if _, ok := s.note(fmt.Sprintf("[fd00::%x]:1", i), now.Add(strangerEvery)); ok {
			logged++
		}
	}
	if logged != maxStrangers-1 || len(s.seen) != maxStrangers {
		t.Errorf("%d logged, %d remembered", logged, len(s.seen))
	}
	if _, ok := s.note("10.0.0.2:1", now.Add(3*strangerEvery)); !ok || len(s.seen) != 1 {
		t.Errorf("later: %v, %d remembered", ok, len(s.seen))
	}
}
