package issue

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// record.go keeps what was revoked in a file of PKIDir too. Each controller has one; nothing leaves it. So a state from
// before, or a new one, forgets no revocation: the controller refuses what its file has from its start on, and the
// leader brings it into the state again.

// RecordFile is the file's name in PKIDir.
const RecordFile = "revoked.json"

// TokenFile is the file in PKIDir with the key of users' tokens, where AuthAltParameters=jwt_key= names none.
const TokenFile = "jwt_hs256.key"

// NewTokenKey draws a key.
func NewTokenKey() ([]byte, error) {
	key := make([]byte, model.TokenKeyBytes)
	_, err := rand.Read(key)
	return key, err
}

// maxRecord bounds what is read of such a file, bytes, and oldKeys the keys that it remembers.
const (
	maxRecord = 16 << 20
	oldKeys   = 1 << 10
)

// Record is what was revoked.
type Record struct {
	Cluster string               `json:"cluster"`
	Certs   []model.CertRevoked  `json:"certificates"`
	Tokens  []model.TokenRevoked `json:"tokens"`       // of users, made with the present key
	Key     string               `json:"token_key"`    // SHA-256 of the key that tokens are signed with; "": not known
	Old     []string             `json:"retired_keys"` // of keys that others have replaced
}

// RecordOf gives what a state knows.
func RecordOf(v *state.View) *Record {
	r := &Record{Cluster: v.Config().Cluster, Tokens: v.RevokedTokens(), Key: keyHash(v.TokenKey())}
	for _, c := range v.Revoked() {
		r.Certs = append(r.Certs, *c)
	}
	return r
}

func keyHash(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// ReadRecord reads the file of a controller, or the one that gnoded keeps in its spool. The error of a file that is not
// there is fs.ErrNotExist.
func ReadRecord(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxRecord:
		return nil, fmt.Errorf("%s has more than %d bytes: it is no list of revocations", path, maxRecord)
	}
	r := new(Record)
	if bad := json.Unmarshal(data, r); bad != nil {
		kept, err := certs.Kept(path)
		if err != nil || len(kept.List) == 0 {
			return nil, fmt.Errorf("%s is no list of revocations: neither %s of a controller's PKIDir nor a node's: %w", path,
				RecordFile, bad)
		}
		r.Certs = kept.List
	}
	return r, nil
}

// PutAside renames a file that can't be read, so that the next Save does not replace it, and gives its new name.
func PutAside(path string, now time.Time) (kept string, err error) {
	kept = fmt.Sprintf("%s.bad-%d", path, now.Unix())
	return kept, os.Rename(path, kept)
}

// Save writes the file.
func (r *Record) Save(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return pki.WriteFile(path, append(data, '\n'), 0o600)
}

// Add takes over what another record has, and reports whether that was news. Its key counts from now on, if it has one.
func (r *Record) Add(o *Record) (news bool) {
	if r.Cluster == "" && o.Cluster != "" {
		r.Cluster, news = o.Cluster, true
	}
	have := map[string]int{}
	for i := range r.Certs {
		have[keyOf(&r.Certs[i])] = i
	}
	for _, c := range o.Certs {
		switch i, known := have[keyOf(&c)]; {
		case !known:
			have[keyOf(&c)] = len(r.Certs)
			r.Certs, news = append(r.Certs, c), true
		case r.Certs[i].At < c.At:
			r.Certs[i], news = c, true
		}
	}
	if o.Key != "" && o.Key != r.Key {
		if r.Old = slices.DeleteFunc(r.Old, func(k string) bool { return k == o.Key }); r.Key != "" {
			r.Old = append(r.Old, r.Key)
			r.Old = r.Old[max(0, len(r.Old)-oldKeys):]
		}
		r.Key, r.Tokens, news = o.Key, nil, true
	}
	for _, k := range o.Old {
		if k != r.Key && !slices.Contains(r.Old, k) {
			r.Old, news = append(r.Old, k), true
		}
	}
	if o.Key == r.Key {
		of := map[string]int{}
		for i := range r.Tokens {
			of[r.Tokens[i].User] = i
		}
		for _, t := range o.Tokens {
			switch i, known := of[t.User]; {
			case !known:
				of[t.User] = len(r.Tokens)
				r.Tokens, news = append(r.Tokens, t), true
			case r.Tokens[i].At < t.At:
				r.Tokens[i], news = t, true
			}
		}
	}
	return news
}

// keyOf says what a revocation is about.
func keyOf(r *model.CertRevoked) string {
	if r.Serial != "" {
		return r.Serial
	}
	return r.Role + "/" + r.Name
}

// certs gives them also of no record.
func (r *Record) certs() []model.CertRevoked {
	if r == nil {
		return nil
	}
	return r.Certs
}

// Revoked gives what takes a certificate back, or nil.
func (r *Record) Revoked(cert *model.Cert) *model.CertRevoked {
	for i := range r.certs() {
		if r.Certs[i].Covers(cert) {
			return &r.Certs[i]
		}
	}
	return nil
}

// TokensRevoked gives the moment until which a user's tokens of the present key were revoked; 0: none were.
func (r *Record) TokensRevoked(user string) model.Time {
	for i := range r.Tokens {
		if r.Tokens[i].User == user {
			return r.Tokens[i].At
		}
	}
	return 0
}

// most is how many revocations one change has.
const most = 1000

// Missing gives the changes that bring what a state lacks of the record into it. They are few: mostly none.
func (r *Record) Missing(v *state.View) (out []state.Body) {
	if r == nil {
		return nil
	}
	if of := v.Config().Cluster; r.Cluster != "" && of != "" && r.Cluster != of {
		return nil
	}
	have := map[string]model.Time{}
	for _, c := range v.Revoked() {
		have[keyOf(c)] = max(1, c.At)
	}
	var lacks []model.CertRevoked
	for _, c := range r.Certs {
		if have[keyOf(&c)] < max(1, c.At) {
			lacks = append(lacks, c)
		}
	}
	for part := range slices.Chunk(lacks, most) {
		out = append(out, &state.Certs{Op: state.CertRevoke, Revoked: part})
	}
	if r.Key == "" || r.Key != keyHash(v.TokenKey()) {
		return out
	}
	var users []string
	for _, t := range r.Tokens {
		if v.TokensRevoked(t.User) < t.At {
			users = append(users, t.User)
		}
	}
	for part := range slices.Chunk(users, most) {
		out = append(out, &state.Tokens{Op: state.TokenRevoke, Users: part})
	}
	return out
}

// Retired reports whether a state's key for tokens is one that was replaced.
func (r *Record) Retired(v *state.View) bool { return slices.Contains(r.Old, keyHash(v.TokenKey())) }

// IsKey reports whether a key is the one that counts.
func (r *Record) IsKey(key []byte) bool { return r != nil && r.Key != "" && keyHash(key) == r.Key }

// NoRecord reports whether an error of ReadRecord says that there is none.
func NoRecord(err error) bool { return errors.Is(err, fs.ErrNotExist) }
