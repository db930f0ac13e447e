package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
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

// maxKeptBytes bounds the file of Keep; the facts bound the list far below.
const maxKeptBytes = 16 << 20

// Keep writes what was revoked to a file: until the next start has met a leader it refuses the same.
func Keep(path string, r *proto.Revoked) error {
	data, err := proto.Encode(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Kept reads what Keep wrote; an empty list if it never did.
func Kept(path string) (*proto.Revoked, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &proto.Revoked{}, nil
	}
	if err == nil && info.Size() > maxKeptBytes {
		err = fmt.Errorf("%s has %d bytes, and at most %d are read", path, info.Size(), maxKeptBytes)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r proto.Revoked
	if err := proto.Decode(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}
