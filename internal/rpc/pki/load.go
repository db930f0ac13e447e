package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Reading certificates and keys. Every error names the file, what is wrong with it, and what to do.

// authority is the public part of the cluster's authority, which every daemon has.
type authority struct {
	path    string
	pem     []byte
	cert    *x509.Certificate
	pool    *x509.CertPool
	cluster string
}

func loadCA(dir string, now time.Time) (*authority, error) {
	path := filepath.Join(dir, caCert)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; copy ca.crt from a controller, or make the cluster's authority with `gbatch cert init`",
			err)
	}
	if err != nil {
		return nil, err
	}
	return checkCA(path, data, now)
}

// checkCA makes sure that a certificate is a gbatch authority's. path names it.
func checkCA(path string, data []byte, now time.Time) (*authority, error) {
	cert, err := parseCert(path, data)
	if err != nil {
		return nil, err
	}
	id, err := identityOf(cert)
	if err == nil && id.role != "" {
		err = fmt.Errorf("it is the certificate of %s", id)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not the certificate of a gbatch authority: %w; copy ca.crt from a controller", path,
			err)
	}
	if err := checkDates(cert, now); err != nil {
		return nil, fmt.Errorf("%s: %w; a new authority (`gbatch cert init` in a new directory) and new certificates for "+
			"all daemons are due", path, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{path: path, pem: data, cert: cert, pool: pool, cluster: id.cluster}, nil
}

// signed reports whether the authority has signed a certificate, whatever its dates.
func (a *authority) signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.cert) == nil
}

func loadCAKey(dir string, ca *authority) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(dir, caKey)
	data, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; certificates are issued where the authority's key is, on the host where `gbatch cert "+
			"init` ran", err)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is no key in PEM form; restore it from a backup", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore it from a backup", path, err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(ca.cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s; restore both from the same backup", path, ca.path)
	}
	return key, nil
}

// pair is a daemon's certificate and key, with the authority it was checked against.
type pair struct {
	ca   *authority
	id   identity
	path string // of the certificate
	cert tls.Certificate

	holder Holder
}

// loadPair reads the certificate of a daemon and makes sure that its peers can accept it.
func loadPair(dir, role, name string, now time.Time) (*pair, error) {
	if err := errors.Join(checkRole(role), checkName("name", name)); err != nil {
		return nil, err
	}
	ca, err := loadCA(dir, now)
	if err != nil {
		return nil, err
	}
	crtName, keyName := pairFiles(role, name)
	crt, key := filepath.Join(dir, crtName), filepath.Join(dir, keyName)
	again := anew(role, name)
	crtPEM, err := os.ReadFile(crt)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, again)
	}
	keyPEM, err := readKey(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; %s", err, again)
	}
	if err != nil {
		return nil, err
	}
	p, err := checkPair(ca, crtPEM, keyPEM, crt, role, name, now)
	if errors.Is(err, errNoPair) && finish(crt, key) {
		return loadPair(dir, role, name, now)
	}
	return p, err
}

// anew says how a daemon gets a new certificate.
func anew(role, name string) string {
	return fmt.Sprintf("get it a new one with a token (`gbatch cert token %s %s` on a controller, then --join there), or "+
		"with `gbatch cert issue %s %s` where the authority is", role, name, role, name)
}

var errNoPair = errors.New("certificate and key don't belong together")

// checkPair makes sure that a daemon's peers can accept its certificate. crt names it.
func checkPair(ca *authority, crtPEM, keyPEM []byte, crt, role, name string, now time.Time) (*pair, error) {
	again := anew(role, name)
	cert, err := tls.X509KeyPair(crtPEM, keyPEM)
	if err != nil {
		_, key := pairFiles(role, name)
		return nil, fmt.Errorf("%s and %s: %w: %w; %s", crt, key, errNoPair, err, again)
	}
	want := identity{cluster: ca.cluster, role: role, name: name}
	id, err := identityOf(cert.Leaf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; %s", crt, err, again)
	}
	if id != want {
		return nil, fmt.Errorf("%s is the certificate of %s, not of %s; %s", crt, id, want, again)
	}
	if err := checkDates(cert.Leaf, now); err != nil {
		if errors.Is(err, errNotYet) {
			return nil, fmt.Errorf("%s: %w", crt, err)
		}
		return nil, fmt.Errorf("%s: %w; %s", crt, err, again)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		opts := x509.VerifyOptions{Roots: ca.pool, CurrentTime: now, DNSName: role + roleSuffix,
			KeyUsages: []x509.ExtKeyUsage{use}}
		if _, err := cert.Leaf.Verify(opts); err != nil {
			return nil, fmt.Errorf("%s was not signed by the authority in %s: %w; %s", crt, ca.path, err, again)
		}
	}
	h, err := holderOf(cert.Leaf)
	if err != nil {
		return nil, err
	}
	return &pair{ca: ca, id: id, path: crt, cert: cert, holder: *h}, nil
}

var errNotYet = errors.New("is not valid yet")

// ErrDates says that a certificate is out of date, by this host's clock.
var ErrDates = errors.New("out of date")

// dated is an error about dates.
type dated struct{ error }

func (d dated) Is(target error) bool { return target == ErrDates }
func (d dated) Unwrap() error        { return d.error }

func checkDates(cert *x509.Certificate, now time.Time) error {
	const day = time.DateTime + " MST"
	switch {
	case now.Before(cert.NotBefore):
		return dated{fmt.Errorf("it %w: it begins at %s and this host's clock says %s, so the clocks of this host and of "+
			"the one that issued it differ; set them right (NTP)",
			errNotYet, cert.NotBefore.UTC().Format(day), now.UTC().Format(day))}
	case now.After(cert.NotAfter):
		return dated{fmt.Errorf("it expired at %s (this host's clock says %s)", cert.NotAfter.UTC().Format(day),
			now.UTC().Format(day))}
	}
	return nil
}

// readKey reads a private key, unless other users can read it too.
func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// It is only read.
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: others than its owner can use this private key; run `chmod 600 %s`, and "+
			"issue a new one if somebody may have read it",
			path, st.Mode().Perm(), path)
	}
	const maxKey = 64 << 10
	if st.Size() > maxKey {
		return nil, fmt.Errorf("%s is %d bytes long; that is no key", path, st.Size())
	}
	return io.ReadAll(io.LimitReader(f, maxKey))
}

func parseCert(path string, data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s is no certificate in PEM form", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}
