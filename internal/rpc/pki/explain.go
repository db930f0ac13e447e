package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const rejoin = "a token, of `gbatch cert token` on a controller, gives this host a new one"

// explain turns the error of a failed handshake into a sentence for the administrator. It wraps the original error.
func explain(err error) error {
	var (
		plain   tls.RecordHeaderError
		unfit   *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		op      *net.OpError
	)
	switch {
	case errors.As(err, &plain):
		return fmt.Errorf("it does not speak TLS: %w", err)
	case errors.As(err, &unknown):
		return fmt.Errorf("its certificate%s was not signed by this cluster's authority (ca.crt): it is of another "+
			"cluster, or from before the authority was made anew (`gbatch cert issue` makes it a new one): %w",
			ofWhom(unknown.Cert), err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("its certificate%s is out of date: %w: %w", ofWhom(invalid.Cert), outOfDate(invalid.Cert), err)
	case errors.As(err, &name):
		return fmt.Errorf("it is%s, not a %s: %w", ofWhomElse(name.Certificate), strings.TrimSuffix(name.Host, roleSuffix),
			err)
	case errors.As(err, &unfit):
		return fmt.Errorf("its certificate is not acceptable: %w", err)
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "no application protocol"):
		return fmt.Errorf("it does not serve this protocol: %w", err)
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "expired certificate"):
		return fmt.Errorf("it refused this side's certificate, which is out of date by its clock: if it is valid by this "+
			"host's clock, both hosts' clocks differ (set them by NTP); else %s: %w", rejoin, err)
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "bad certificate"):
		return fmt.Errorf("it refused this side's certificate: it was revoked, is of another cluster, or may not be used "+
			"for this; its log says which (%s): %w", rejoin, err)
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("it refused this side's certificate, which must be of the same cluster; its log says more (%s): %w",
			rejoin, err)
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not finish the TLS handshake in %v: %w", HandshakeTimeout, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it closed the connection during the TLS handshake: %w", err)
	}
	return err
}

func ofWhom(cert *x509.Certificate) string {
	if cert == nil {
		return ""
	}
	id, err := identityOf(cert)
	if err != nil {
		return fmt.Sprintf(" (subject %q)", cert.Subject)
	}
	return fmt.Sprintf(" (%s)", id)
}

func ofWhomElse(cert *x509.Certificate) string {
	if cert == nil {
		return " another daemon"
	}
	id, err := identityOf(cert)
	if err != nil {
		return fmt.Sprintf(" %q", cert.Subject)
	}
	return " " + id.String()
}

func outOfDate(cert *x509.Certificate) error {
	if cert == nil {
		return errors.New("its dates are unknown")
	}
	err := checkDates(cert, time.Now())
	switch {
	case err == nil:
		return errors.New("it is in date by now")
	case errors.Is(err, errNotYet):
		return err
	}
	if id, idErr := identityOf(cert); idErr == nil {
		return fmt.Errorf("%w; issue a new one with `gbatch cert issue %s %s`", err, id.role, id.name)
	}
	return err
}
