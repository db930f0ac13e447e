package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/become"
)

// Lifetimes of certificates that are made by hand. Those that controllers issue live as CertificateLifetime says.
const (
	CALifetime   = 20 * 365 * 24 * time.Hour
	CertLifetime = 10 * 365 * 24 * time.Hour

	backdate = 5 * time.Minute // certificates begin this long ago, for hosts whose clock is a little behind
)

const (
	caCert = "ca.crt"
	caKey  = "ca.key"
)

// InitCA makes the authority of a cluster: ca.crt (0644) and ca.key (0600) in dir, which is made if it is missing. It
// refuses if either file exists, because every certificate of the cluster depends on them.
func InitCA(dir, cluster string) error {
	return initCA(dir, cluster, time.Now())
}

func initCA(dir, cluster string, now time.Time) error {
	if err := checkName("cluster", cluster); err != nil {
		return fmt.Errorf("making a certificate authority: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a certificate authority: %w", err)
	}
	for _, name := range []string{caCert, caKey} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("making a certificate authority: %s exists already; a new one would make every certificate of "+
				"the cluster worthless (remove it by hand if that is meant)",
				filepath.Join(dir, name))
		}
	}
	id := identity{cluster: cluster}
	tmpl := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{cluster}, CommonName: "gbatch authority of " + cluster},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(CALifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		URIs:                  []*url.URL{id.uri()},
	}
	if err := writePair(dir, caCert, caKey, tmpl, nil, nil); err != nil {
		return fmt.Errorf("making a certificate authority: %w", err)
	}
	return nil
}

// Issue writes a certificate and key for a daemon, <role>-<name>.crt (0644) and .key (0600), to outDir, signed by the
// authority in caDir. It replaces an existing pair, as for a renewal. hosts are names and addresses for tools other
// than gbatch; gbatch checks role and name. If outDir has no ca.crt, it gets a copy; another cluster's ca.crt there is
// an error.
func Issue(caDir, role, name string, hosts []string, outDir string) error {
	return issue(caDir, role, name, hosts, outDir, time.Now(), CertLifetime)
}

// IssueFor is Issue for a certificate with another life.
func IssueFor(life time.Duration, caDir, role, name string, hosts []string, outDir string) error {
	return issue(caDir, role, name, hosts, outDir, time.Now(), life)
}

func issue(caDir, role, name string, hosts []string, outDir string, now time.Time, life time.Duration) error {
	if err := errors.Join(checkRole(role), checkName("name", name)); err != nil {
		return fmt.Errorf("issuing a certificate: %w", err)
	}
	ca, err := loadCA(caDir, now)
	if err != nil {
		return fmt.Errorf("issuing a certificate for %s %s: %w", role, name, err)
	}
	signer, err := loadCAKey(caDir, ca)
	if err != nil {
		return fmt.Errorf("issuing a certificate for %s %s: %w", role, name, err)
	}
	tmpl := template(ca.cluster, role, name, now, life)
	if tmpl.NotAfter.After(ca.cert.NotAfter) {
		tmpl.NotAfter = ca.cert.NotAfter
	}
	for _, h := range hosts {
		if err := addHost(tmpl, h); err != nil {
			return fmt.Errorf("issuing a certificate for %s %s: %w", role, name, err)
		}
	}
	if err := copyCA(ca, outDir); err != nil {
		return fmt.Errorf("issuing a certificate for %s %s: %w", role, name, err)
	}
	crt, key := pairFiles(role, name)
	if err := writePair(outDir, crt, key, tmpl, ca.cert, signer); err != nil {
		return fmt.Errorf("issuing a certificate for %s %s: %w", role, name, err)
	}
	return nil
}

func pairFiles(role, name string) (crt, key string) {
	return role + "-" + name + ".crt", role + "-" + name + ".key"
}

func addHost(tmpl *x509.Certificate, host string) error {
	if ip := net.ParseIP(host); ip != nil {
		tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		return nil
	}
	if host == "" || len(host) > 253 ||
		strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return fmt.Errorf("host %q is neither an address nor a host name", host)
	}
	if strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), roleSuffix) {
		return fmt.Errorf("host %q: names that end in %s stand for roles", host, roleSuffix)
	}
	tmpl.DNSNames = append(tmpl.DNSNames, host)
	return nil
}

// copyCA puts the authority's certificate beside those it signs.
func copyCA(ca *authority, outDir string) error {
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(outDir, caCert)
	there, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WriteFile(path, ca.pem, 0o644)
	case err != nil:
		return err
	}
	if other, err := parseCert(path, there); err != nil || !bytes.Equal(other.Raw, ca.cert.Raw) {
		return fmt.Errorf("%s is the certificate of another authority than %s; use another directory", path, ca.path)
	}
	return nil
}

// writePair makes a key, signs tmpl with parent's (or its own, without one), and writes both; the key first, so that a
// certificate never exists without its key.
func writePair(dir, crtName, keyName string, tmpl, parent *x509.Certificate, signer *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if parent == nil {
		parent, signer = tmpl, key
	}
	if tmpl.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(dir, keyName), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		0o600); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, crtName), certPEM(der), 0o644)
}

// WriteFile replaces path atomically and syncs it to disk. The file belongs to whom its directory does.
func WriteFile(path string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	// Root makes certificates for SlurmUser's daemons too.
	if err := become.OwnAs(f.Name(), filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // the file is written; a directory that cannot be opened cannot be synced either
	}
	return errors.Join(d.Sync(), d.Close())
}
