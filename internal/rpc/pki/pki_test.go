package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFilesAndModes(t *testing.T) {
	dir := testCA(t, "tiny")
	for name, mode := range map[string]fs.FileMode{caCert: 0o644, caKey: 0o600, "node-node1.crt": 0o644,
		"node-node1.key": 0o600} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	ca, err := loadCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if ca.cluster != "tiny" || ca.cert.NotAfter.Sub(ca.cert.NotBefore) != CALifetime+backdate {
		t.Errorf("the authority of %q from %v to %v", ca.cluster, ca.cert.NotBefore, ca.cert.NotAfter)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.new*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInitCARefuses(t *testing.T) {
	dir := t.TempDir()
	for _, cluster := range []string{"", "two words", "a/b", "-x", "é", strings.Repeat("x", 65)} {
		if err := InitCA(dir, cluster); err == nil || !strings.Contains(err.Error(), "cluster") {
			t.Errorf("%q: %v", cluster, err)
		}
	}
	if err := InitCA(dir, "c"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, caKey))
	if err != nil {
		t.Fatal(err)
	}
	if err := InitCA(dir, "c"); err == nil || !strings.Contains(err.Error(), "ca.crt exists already") {
		t.Errorf("a second time: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, caCert)); err != nil {
		t.Fatal(err)
	}
	if err := InitCA(dir, "c"); err == nil || !strings.Contains(err.Error(), "ca.key exists already") {
		t.Errorf("with the key only: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, caKey)); err != nil || string(after) != string(before) {
		t.Errorf("the key has changed, %v", err)
	}
}

func TestIssueElsewhereAndRenew(t *testing.T) {
	dir, out := testCA(t, "c"), filepath.Join(t.TempDir(), "n7")
	for range 2 { // the second is a renewal
		if err := Issue(dir, RoleNode, "n7", []string{"n7.example.org", "10.0.0.7", "::1"}, out); err != nil {
			t.Fatal(err)
		}
	}
	p, err := loadPair(out, RoleNode, "n7", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if leaf := p.cert.Leaf; strings.Join(leaf.DNSNames, " ") != "node.gbatch n7.example.org" ||
		len(leaf.IPAddresses) != 2 || leaf.URIs[0].String() != "gbatch://c/node/n7" {
		t.Errorf("names %v, addresses %v, URIs %v", leaf.DNSNames, leaf.IPAddresses, leaf.URIs)
	}
	if _, err := os.Stat(filepath.Join(out, caKey)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the authority's key was copied")
	}
	if err := Issue(testCA(t, "d"), RoleNode, "n7", nil, out); err == nil ||
		!strings.Contains(err.Error(), "is the certificate of another authority") {
		t.Errorf("from another authority: %v", err)
	}
}

func TestIssueRefuses(t *testing.T) {
	dir := testCA(t, "c")
	tests := []struct {
		role, name, host, says string
	}{
		{"root", "x", "", `role "root": the roles are ctld, node, login, dbd`},
		{RoleNode, "../x", "", `name "../x"`},
		{RoleNode, "", "", `name ""`},
		{RoleNode, "n1", "ctld.gbatch", "names that end in .gbatch stand for roles"},
		{RoleNode, "n1", "CTLD.GBATCH.", "names that end in .gbatch stand for roles"},
		{RoleNode, "n1", "*", "neither an address nor a host name"},
	}
	for _, tt := range tests {
		var hosts []string
		if tt.host != "" {
			hosts = []string{tt.host}
		}
		if err := Issue(dir, tt.role, tt.name, hosts, t.TempDir()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %s %s: %v", tt.role, tt.name, tt.host, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, caKey)); err != nil {
		t.Fatal(err)
	}
	if err := Issue(dir, RoleNode, "n1", nil, dir); err == nil ||
		!strings.Contains(err.Error(), "issued where the authority's key is") {
		t.Errorf("without the key: %v", err)
	}
}

// Each broken directory must say which file, what is wrong and what to do.
func TestLoadSaysWhatIsWrong(t *testing.T) {
	now := time.Now()
	write := func(t *testing.T, path, data string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		says  []string
	}{
		{"no authority", func(t *testing.T, dir string) { _ = os.Remove(dir + "/ca.crt") },
			[]string{"ca.crt", "no such file", "copy ca.crt from a controller", "gbatch cert init"}},
		{"authority is garbage", func(t *testing.T, dir string) { write(t, dir+"/ca.crt", "\x00\x01") },
			[]string{"ca.crt is no certificate in PEM form"}},
		{"authority is a daemon", func(t *testing.T, dir string) {
			b, err := os.ReadFile(dir + "/dbd-dbd1.crt")
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/ca.crt", string(b))
		}, []string{"ca.crt is not the certificate of a gbatch authority: it is the certificate of dbd dbd1 " +
			"of cluster \"c\""}},
		{"no certificate", func(t *testing.T, dir string) { _ = os.Remove(dir + "/node-node1.crt") },
			[]string{"node-node1.crt", "no such file", "gbatch cert issue node node1"}},
		{"no key", func(t *testing.T, dir string) { _ = os.Remove(dir + "/node-node1.key") },
			[]string{"node-node1.key", "no such file", "gbatch cert issue node node1"}},
		{"open key", func(t *testing.T, dir string) {
			if err := os.Chmod(dir+"/node-node1.key", 0o640); err != nil {
				t.Fatal(err)
			}
		}, []string{"node-node1.key has mode 0640", "run `chmod 600 ", "node-node1.key`"}},
		{"another's key", func(t *testing.T, dir string) {
			if err := os.Rename(dir+"/dbd-dbd1.key", dir+"/node-node1.key"); err != nil {
				t.Fatal(err)
			}
		}, []string{"node-node1.key", "does not match", "gbatch cert issue node node1"}},
		{"another's pair", func(t *testing.T, dir string) {
			for _, ext := range []string{".key", ".crt"} {
				if err := os.Rename(dir+"/dbd-dbd1"+ext, dir+"/node-node1"+ext); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"node-node1.crt is the certificate of dbd dbd1 of cluster \"c\", not of node node1 of cluster \"c\""}},
		{"expired", func(t *testing.T, dir string) {
			spoilDates(t, dir, now.Add(-48*time.Hour), now.Add(-24*time.Hour))
		}, []string{"node-node1.crt", "it expired at", "gbatch cert issue node node1"}},
		{"not yet valid", func(t *testing.T, dir string) { spoilDates(t, dir, now.Add(24*time.Hour), now.Add(48*time.Hour)) },
			[]string{"node-node1.crt", "is not valid yet", "clocks of this host and of the one that issued it differ"}},
		{"another cluster of the same name", func(t *testing.T, dir string) {
			b, err := os.ReadFile(testCA(t, "c") + "/ca.crt")
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/ca.crt", string(b))
		}, []string{"node-node1.crt was not signed by the authority in", "ca.crt", "gbatch cert issue node node1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := testCA(t, "c")
			tt.spoil(t, dir)
			_, errS := Load(dir, RoleNode, "node1")
			_, errC := Load(dir, RoleNode, "node1")
			for _, err := range []error{errS, errC} {
				for _, says := range tt.says {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("got %v, want %q", err, says)
					}
				}
			}
		})
	}
	t.Run("open authority key", func(t *testing.T) {
		dir := testCA(t, "c")
		if err := os.Chmod(dir+"/ca.key", 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Issue(dir, RoleNode, "n1", nil, dir); err == nil ||
			!strings.Contains(err.Error(), "run `chmod 600 "+dir+"/ca.key`") {
			t.Errorf("got %v", err)
		}
	})
}

// spoilDates replaces node1's certificate by one that its authority signed for other dates.
func spoilDates(t *testing.T, dir string, from, to time.Time) {
	t.Helper()
	signAs(t, dir, dir, func(tmpl *x509.Certificate) { tmpl.NotBefore, tmpl.NotAfter = from, to })
}

// signAs makes the authority in dir sign what Issue never would, as node1's certificate in outDir.
func signAs(t *testing.T, dir, outDir string, change func(*x509.Certificate)) {
	t.Helper()
	ca, err := loadCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := loadCAKey(dir, ca)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{identity{"c", RoleNode, "node1"}.uri()},
		DNSNames:              []string{"node.gbatch"},
	}
	change(tmpl)
	crt, keyName := pairFiles(RoleNode, "node1")
	if err := writePair(outDir, crt, keyName, tmpl, ca.cert, key); err != nil {
		t.Fatal(err)
	}
}

func TestIdentityOf(t *testing.T) {
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	good := map[string]identity{
		"gbatch://c/node/n1":              {"c", "node", "n1"},
		"gbatch://big.cluster-2/ctld/a.b": {"big.cluster-2", "ctld", "a.b"},
	}
	for uri, want := range good {
		got, err := identityOf(&x509.Certificate{URIs: []*url.URL{parse("https://example.org/"), parse(uri)}})
		if err != nil || got != want || want.uri().String() != uri {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	for _, uris := range [][]string{
		{}, {"https://c/node/n1"}, {"gbatch://c/node/n1", "gbatch://c/ctld/n1"}, {"gbatch://c"}, {"gbatch:///node/n1"},
		{"gbatch://c/node"}, {"gbatch://c/node/"}, {"gbatch://c/king/n1"}, {"gbatch://c/node/n1/ctld"},
		{"gbatch://c/node/..%2fn1"},
		{"gbatch://c/node/n1?x"}, {"gbatch://u@c/node/n1"}, {"gbatch://c/node/n1#x"}, {"gbatch://c:1/node/n1"},
	} {
		cert := &x509.Certificate{}
		for _, u := range uris {
			cert.URIs = append(cert.URIs, parse(u))
		}
		if got, err := identityOf(cert); err == nil {
			t.Errorf("%v was taken for %+v", uris, got)
		}
	}
	if _, err := identityOf(&x509.Certificate{IsCA: true, URIs: []*url.URL{parse("gbatch://c/node/n1")}}); err == nil {
		t.Error("an authority with a role was accepted")
	}
}

func TestPeerOfUnverified(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{identity{"c", RoleCtld, "c1"}.uri()}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	for _, cs := range []tls.ConnectionState{
		{},
		{HandshakeComplete: true},
		{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{cert}},
		{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}},
	} {
		if p, err := PeerOf(cs); err == nil {
			t.Errorf("an unproven peer is %v", p)
		}
	}
}
