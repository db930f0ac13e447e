package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sign.go is certificates on request: a host makes its key itself and sends only the public half.

// Authority has the cluster's key.
type Authority struct {
	ca     *authority
	signer *ecdsa.PrivateKey
}

// LoadAuthority reads the authority with its key from dir. HasAuthority tells whether the key is there.
func LoadAuthority(dir string) (*Authority, error) {
	ca, err := loadCA(dir, time.Now())
	if err != nil {
		return nil, err
	}
	signer, err := loadCAKey(dir, ca)
	if err != nil {
		return nil, err
	}
	return &Authority{ca, signer}, nil
}

// HasAuthority reports whether the authority's key is in dir.
func HasAuthority(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, caKey))
	return !errors.Is(err, fs.ErrNotExist)
}

// CA is the authority's certificate, DER.
func (a *Authority) CA() []byte { return a.ca.cert.Raw }

// NewSerial gives a random serial number, hexadecimal.
func NewSerial() (string, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", n.SetBit(n, 126, 1)), nil // all have the same length
}

// Sign gives the certificate for the key in a request, DER. Nothing else of the request counts; h says the rest.
func (a *Authority) Sign(request []byte, h *Holder) ([]byte, error) {
	if err := errors.Join(checkRole(h.Role), checkName("name", h.Name)); err != nil {
		return nil, err
	}
	key, err := keyIn(request)
	if err != nil {
		return nil, err
	}
	tmpl := template(a.ca.cluster, h.Role, h.Name, h.At, h.Life())
	serial, ok := new(big.Int).SetString(h.Serial, 16)
	if !ok || serial.Sign() <= 0 || serial.BitLen() > 127 {
		return nil, fmt.Errorf("'%s' is not a serial number", h.Serial)
	}
	tmpl.SerialNumber, tmpl.Subject.SerialNumber = serial, h.Family
	if tmpl.NotAfter.After(a.ca.cert.NotAfter) {
		tmpl.NotAfter = a.ca.cert.NotAfter
	}
	return x509.CreateCertificate(rand.Reader, tmpl, a.ca.cert, key, a.signer)
}

// keyIn gives the public key of a request, if it is of the kind that certificates have.
func keyIn(request []byte) (*ecdsa.PublicKey, error) {
	rq, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("the request for a certificate can't be read: %w", err)
	}
	if err := rq.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request for a certificate is not signed with its key: %w", err)
	}
	key, ok := rq.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the request for a certificate has a key that is not ECDSA P-256")
	}
	return key, nil
}

// KeyHash is the SHA-256 of the key in a request.
func KeyHash(request []byte) ([]byte, error) {
	key, err := keyIn(request)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return sum[:], nil
}

// template is a daemon's certificate, but for its serial number.
func template(cluster, role, name string, at time.Time, life time.Duration) *x509.Certificate {
	id := identity{cluster: cluster, role: role, name: name}
	return &x509.Certificate{
		Subject: pkix.Name{Organization: []string{cluster}, OrganizationalUnit: []string{role},
			CommonName: name},
		NotBefore:             at.Add(-backdate),
		NotAfter:              at.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id.uri()},
		DNSNames:              []string{role + roleSuffix},
	}
}

// newKey makes a private key, in PEM form.
func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// requestFor makes the request for a key in PEM form.
func requestFor(keyPEM []byte) ([]byte, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("it is no key in PEM form")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// authorityOf checks an authority's certificate that came over the network.
func authorityOf(der []byte) (*authority, error) {
	return checkCA("the certificate that came", certPEM(der), time.Now())
}

// Fingerprint is the SHA-256 of the authority's certificate in dir.
func Fingerprint(dir string) ([]byte, error) {
	ca, err := loadCA(dir, time.Now())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(ca.cert.Raw)
	return sum[:], nil
}

// ClusterOf is the cluster whose authority is in dir.
func ClusterOf(dir string) (string, error) {
	ca, err := loadCA(dir, time.Now())
	if err != nil {
		return "", err
	}
	return ca.cluster, nil
}

// CertFile is what a certificate's file says; role and name are empty for an authority.
func CertFile(path string) (*Holder, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cert, err := parseCert(path, data)
	if err != nil {
		return nil, err
	}
	h, err := holderOf(cert)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// KeyFiles gives the private keys in dir, the authority's too.
func KeyFiles(dir string) []string {
	list, err := filepath.Glob(filepath.Join(dir, "*.key*"))
	if err != nil || strings.ContainsAny(dir, `*?[\`) {
		return nil
	}
	return list
}
