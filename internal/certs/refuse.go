package certs

import (
	"fmt"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/rpc/pki"
)

// CertOf is what a certificate says, for the facts.
func CertOf(h *pki.Holder) *model.Cert {
	return &model.Cert{Serial: h.Serial, Family: h.Family, Role: h.Role, Name: h.Name, At: model.Time(h.At.UnixMilli()),
		Until: model.Time(h.Until.UnixMilli())}
}

// HolderOf is the reverse.
func HolderOf(c *model.Cert) *pki.Holder {
	return &pki.Holder{Serial: c.Serial, Family: c.Family, Role: c.Role, Name: c.Name, At: time.UnixMilli(int64(c.At)),
		Until: time.UnixMilli(int64(c.Until))}
}

// RevokedError says what took a certificate back.
func RevokedError(r *model.CertRevoked) error {
	why := ""
	if r.Why != "" {
		why = ": " + r.Why
	}
	return fmt.Errorf("it was revoked at %s by %s%s; the host gets a new one with a token (gbatch cert token)",
		time.UnixMilli(int64(r.At)).UTC().Format(time.DateTime+" MST"), r.By, why)
}

// Refusing gives what refuses the certificates of a list (pki.Credentials.Refuse).
func Refusing(list []model.CertRevoked) func(*pki.Holder) error {
	return func(h *pki.Holder) error {
		cert := CertOf(h)
		for i := range list {
			if list[i].Covers(cert) {
				return RevokedError(&list[i])
			}
		}
		return nil
	}
}
