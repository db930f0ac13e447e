package state

import (
	"bytes"
	"crypto/subtle"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// cert.go keeps the tokens for certificates, the certificates that were issued with them or renewed, and those that
// were revoked. A token is used once: the log decides who was first. It also keeps what makes users' tokens count.

// CertOp says what a Certs does. The numbers are stored: append only.
type CertOp uint8

// The operations.
const (
	CertOffer  CertOp = iota + 1 // adds Tokens
	CertDrop                     // takes the tokens named in IDs back
	CertJoin                     // Cert is issued for the token IDs[0]
	CertRenew                    // Cert is issued in place of Old
	CertRevoke                   // Revoked count no more
	CertSweep                    // forgets what has expired
)

// Certs changes tokens, certificates and revocations.
type Certs struct {
	Op      CertOp
	Tokens  []model.CertToken
	IDs     []string
	Hash    []byte // with CertJoin: of the secret that was shown
	Key     []byte // with CertJoin: of the daemon's public key
	Cert    *model.Cert
	Old     *model.Cert
	Revoked []model.CertRevoked
}

func (x *Certs) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.List(c, &x.Tokens, model.MaxList)
	wire.Texts(c, &x.IDs, model.MaxList, model.MaxName)
	wire.Bytes(c, &x.Hash, model.MaxName)
	wire.Bytes(c, &x.Key, model.MaxName)
	wire.Ptr(c, &x.Cert)
	wire.Ptr(c, &x.Old)
	wire.List(c, &x.Revoked, model.MaxList)
}

func (*Certs) kind() Kind { return KindCerts }

// Bounds of what is kept.
const (
	MaxCertTokens = 1 << 14 // that can be used, or were lately
	maxLiveCerts  = 8       // of one daemon, that are valid: one that renews too often is refused
	// tokenKeptMS is how long a token stands in lists after its end, ms.
	tokenKeptMS = 24 * 3600 * 1000
)

// certs is the facts about certificates.
type certs struct {
	tokens  *btree.Map[string, *model.CertToken]   // by ID
	issued  *btree.Map[string, *model.Cert]        // by role, name and serial
	revoked *btree.Map[string, *model.CertRevoked] // by serial, or role and name
	gen     uint64                                 // grows with every change of revoked; not in a snapshot
}

func newCerts() certs {
	return certs{tokens: new(btree.Map[string, *model.CertToken]), issued: new(btree.Map[string, *model.Cert]),
		revoked: new(btree.Map[string, *model.CertRevoked]), gen: 1}
}

func (c certs) copy() certs {
	return certs{c.tokens.Copy(), c.issued.Copy(), c.revoked.Copy(), c.gen}
}

func daemonKey(role, name string) string { return role + "/" + name + "/" }

func certKey(c *model.Cert) string { return daemonKey(c.Role, c.Name) + c.Serial }

func revokedKey(r *model.CertRevoked) string {
	if r.Serial != "" {
		return r.Serial
	}
	return daemonKey(r.Role, r.Name)
}

// revokes gives what takes a certificate back, or nil.
func (c *certs) revokes(cert *model.Cert) *model.CertRevoked {
	return c.revokesAs(cert, func(*model.CertRevoked) bool { return true })
}

// revokesAs is revokes, among revocations that a function takes.
func (c *certs) revokesAs(cert *model.Cert, takes func(*model.CertRevoked) bool) *model.CertRevoked {
	for _, key := range []string{cert.Serial, cert.Family, daemonKey(cert.Role, cert.Name)} {
		if r, ok := c.revoked.Get(key); ok && r.Covers(cert) && takes(r) {
			return r
		}
	}
	return nil
}

// doubts gives the revocation by which what was set by way of a host counts no more, or nil.
func (c *certs) doubts(via *model.Cert) *model.CertRevoked {
	if via == nil {
		return nil
	}
	return c.revokesAs(via, func(r *model.CertRevoked) bool { return !r.Keep })
}

// of gives the valid certificates of a daemon.
func (c *certs) of(role, name string) []*model.Cert {
	var out []*model.Cert
	prefix := daemonKey(role, name)
	c.issued.Ascend(prefix, func(key string, cert *model.Cert) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		out = append(out, cert)
		return true
	})
	return out
}

// forget drops what is over: tokens a day after their end, certificates at once.
func (c *certs) forget(at model.Time) {
	for _, t := range c.tokens.Values() {
		if t.Until+tokenKeptMS < at {
			c.tokens.Delete(t.ID)
		}
	}
	for _, cert := range c.issued.Values() {
		if cert.Until < at {
			c.issued.Delete(certKey(cert))
		}
	}
}

func (s *State) applyCerts(at model.Time, x *Certs) Result {
	c := &s.certs
	var res Result
	switch x.Op {
	case CertOffer:
		if c.tokens.Len()+len(x.Tokens) > MaxCertTokens {
			c.forget(at)
		}
		if c.tokens.Len()+len(x.Tokens) > MaxCertTokens {
			return Result{Refusal: Full}
		}
		for i := range x.Tokens {
			t := x.Tokens[i]
			c.tokens.Set(t.ID, &t)
		}
	case CertDrop:
		for _, id := range x.IDs {
			if _, had := c.tokens.Delete(id); had {
				res.Each = append(res.Each, OK)
			} else {
				res.Each = append(res.Each, NoSuchToken)
			}
		}
	case CertJoin:
		res.Refusal = c.join(at, x)
	case CertRenew:
		switch {
		case c.revokes(x.Old) != nil:
			res.Refusal = CertIsRevoked
		default:
			res.Refusal = c.add(at, x.Cert)
		}
	case CertRevoke:
		if res.Refusal = c.revoke(x.Revoked); res.Refusal == OK && s.now.rules >= rulesOwed {
			s.doubtAll(at)
		}
		return Result{Refusal: res.Refusal, Changed: true}
	case CertSweep:
		c.forget(at)
	}
	res.Changed = true
	return res
}

// add keeps a new certificate.
func (c *certs) add(at model.Time, cert *model.Cert) Refusal {
	live := 0
	for _, old := range c.of(cert.Role, cert.Name) {
		if old.Until < at {
			c.issued.Delete(certKey(old))
		} else {
			live++
		}
	}
	if live >= maxLiveCerts {
		return Full
	}
	c.issued.Set(certKey(cert), cert)
	return OK
}

// mayJoin judges the token of a CertJoin. used reports that its certificate was issued for the same key before: the
// answer was lost, and the host gets that certificate again.
func (c *certs) mayJoin(at model.Time, x *Certs) (t *model.CertToken, used bool, why Refusal) {
	t, ok := c.tokens.Get(x.IDs[0])
	switch {
	case !ok || subtle.ConstantTimeCompare(t.Hash, x.Hash) != 1 || t.Role != x.Cert.Role || t.Name != x.Cert.Name:
		return nil, false, NoSuchToken
	case t.UsedAt != 0 && bytes.Equal(t.Key, x.Key):
		return t, true, OK
	case t.UsedAt != 0:
		return t, false, TokenUsed
	case at >= t.Until:
		return t, false, TokenExpired
	}
	return t, false, OK
}

// join uses a token.
func (c *certs) join(at model.Time, x *Certs) Refusal {
	t, used, why := c.mayJoin(at, x)
	if why != OK || used {
		return why
	}
	if r := c.add(at, x.Cert); r != OK {
		return r
	}
	now := *t
	now.UsedAt, now.Key, now.Serial = at, x.Key, x.Cert.Serial
	c.tokens.Set(t.ID, &now)
	return OK
}

// revoke takes certificates back, and the tokens for the same daemons. A serial stands for its family: what was renewed
// from it, and what it was renewed from, has been in the same hands.
func (c *certs) revoke(list []model.CertRevoked) Refusal {
	if c.revoked.Len()+len(list) > model.MaxRevoked {
		return Full
	}
	for i := range list {
		r := list[i]
		for _, cert := range c.issued.Values() {
			if r.Serial != "" && cert.Serial == r.Serial && cert.Family != r.Serial {
				r.Serial = cert.Family
			}
		}
		for _, cert := range c.issued.Values() {
			if r.Covers(cert) {
				c.issued.Delete(certKey(cert))
			}
		}
		for _, t := range c.tokens.Values() {
			if r.Serial != "" && t.Serial == r.Serial || r.Serial == "" && t.Role == r.Role && t.Name == r.Name {
				c.tokens.Delete(t.ID)
			}
		}
		c.revoked.Set(revokedKey(&r), &r)
	}
	c.gen++
	return OK
}

// doubts says why what was set by way of a host may not be its user's own: the host's certificate was revoked. "": it
// wasn't.
func (s *State) doubts(via *model.Cert, did string) string {
	if s.now.rules < rulesOwed || s.certs.doubts(via) == nil {
		return ""
	}
	return "the certificate of " + via.Whom() + ", by way of which it was " + did + ", was revoked"
}

// doubtsJob is doubts of a job, with what its user can do.
func (s *State) doubtsJob(j *model.Job) string {
	why := s.doubts(j.Spec.Via, "submitted or changed")
	if why != "" {
		why += ": look at the job, then release or cancel it"
	}
	return why
}

// doubtAll stops what users have set by way of hosts whose certificates are revoked by now: whoever had such a host may
// have set it in their names. Crontabs and triggers do nothing more until their users set them again; jobs that wait
// are held until they are released, and so are those that run if they come back. What runs goes on: View.CameBy has it.
func (s *State) doubtAll(at model.Time) {
	for _, t := range s.crontabs.Values() {
		if why := s.doubts(t.Via, "installed"); why != "" && t.Why == "" {
			s.stopCrontab(t, at, why)
		}
	}
	for _, t := range s.triggers.all.Values() {
		if why := s.doubts(t.Via, "set"); why != "" && t.Off == "" {
			n := *t
			n.Off, n.Hits, n.Due = why, nil, 0
			s.triggers.all.Set(n.ID, &n)
		}
	}
	var jobs []model.JobID
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if j.State == model.Pending && j.Hold != model.HeldByAdmin && s.doubts(j.Spec.Via, "") != "" {
			jobs = append(jobs, id)
		}
		return true
	})
	for _, id := range jobs {
		if j, ok := s.jobs.Get(id); ok && j.State == model.Pending {
			n := *j
			n.Hold = model.HeldByUser
			s.settle(&n, at)
		}
	}
	s.wakeAll(at)
	s.plan()
}

// CameBy is what users have set by way of hosts whose certificates are revoked.
type CameBy struct {
	Crontabs []uint32 // of these users; they are off
	Triggers []uint32 // they are off
	Held     []model.JobID
	Running  []model.JobID // they go on
}

// CameBy gives what was set by way of certificates that were revoked at a moment or since.
func (v *View) CameBy(since model.Time) (out CameBy) {
	by := func(via *model.Cert) bool {
		r := v.certs.doubts(via)
		return r != nil && r.At >= since
	}
	v.crontabs.Scan(func(uid uint32, t *model.Crontab) bool {
		if by(t.Via) && t.Why != "" {
			out.Crontabs = append(out.Crontabs, uid)
		}
		return true
	})
	v.Triggers(func(t *model.Trigger) bool {
		if by(t.Via) && t.Off != "" {
			out.Triggers = append(out.Triggers, t.ID)
		}
		return true
	})
	v.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		switch {
		case !by(j.Spec.Via):
		case j.State == model.Pending && j.Hold != model.NotHeld:
			out.Held = append(out.Held, id)
		case j.State.HasResources():
			out.Running = append(out.Running, id)
		}
		return true
	})
	return out
}

// validCerts checks a command's parts.
func validCerts(x *Certs) error {
	named := func(role, name string) bool { return role != "" && name != "" && !strings.Contains(role+name, "/") }
	cert := func(c *model.Cert) bool { return c != nil && c.Serial != "" && named(c.Role, c.Name) }
	ok := true
	switch x.Op {
	case CertOffer:
		ok = !slices.ContainsFunc(x.Tokens, func(t model.CertToken) bool { return t.ID == "" || !named(t.Role, t.Name) })
	case CertJoin:
		ok = len(x.IDs) == 1 && cert(x.Cert)
	case CertRenew:
		ok = cert(x.Cert) && cert(x.Old)
	case CertRevoke:
		ok = !slices.ContainsFunc(x.Revoked, func(r model.CertRevoked) bool {
			return r.Serial == "" && !named(r.Role, r.Name)
		})
	case CertDrop, CertSweep:
	}
	if !ok || x.Op < CertOffer || x.Op > CertSweep {
		return malformed("operation %d on certificates, or its parts", x.Op)
	}
	return nil
}

// CertToken gives a token, or nil.
func (v *View) CertToken(id string) *model.CertToken {
	t, _ := v.certs.tokens.Get(id)
	return t
}

// MayJoin judges the token of a CertJoin as Apply would: what a stranger guesses costs no entry of the log.
func (v *View) MayJoin(at model.Time, x *Certs) Refusal {
	_, _, why := v.certs.mayJoin(at, x)
	return why
}

// CertTokens gives all tokens, also those that were used or ended lately.
func (v *View) CertTokens() []*model.CertToken { return v.certs.tokens.Values() }

// Certs gives the certificates that controllers issued and that have not been revoked.
func (v *View) Certs() []*model.Cert { return v.certs.issued.Values() }

// CertsOf gives those of one daemon.
func (v *View) CertsOf(role, name string) []*model.Cert { return v.certs.of(role, name) }

// CertRevoked gives what takes a certificate back, or nil.
func (v *View) CertRevoked(cert *model.Cert) *model.CertRevoked { return v.certs.revokes(cert) }

// Revoked gives everything that was revoked. RevokedGen changes with it.
func (v *View) Revoked() []*model.CertRevoked { return v.certs.revoked.Values() }

// RevokedGen grows with every revocation.
func (v *View) RevokedGen() uint64 { return v.certs.gen }

// RevokedAt gives when the last certificates of a daemon were revoked; 0: never.
func (v *View) RevokedAt(role, name string) model.Time {
	if r, ok := v.certs.revoked.Get(daemonKey(role, name)); ok {
		return r.At
	}
	return 0
}

func (in *restorer) token() error {
	x := new(model.CertToken)
	err := in.d.Read(x)
	in.n.certs.tokens.Set(x.ID, x)
	return err
}

func (in *restorer) cert() error {
	x := new(model.Cert)
	err := in.d.Read(x)
	in.n.certs.issued.Set(certKey(x), x)
	return err
}

func (in *restorer) revoked() error {
	x := new(model.CertRevoked)
	err := in.d.Read(x)
	in.n.certs.revoked.Set(revokedKey(x), x)
	return err
}

// Users' tokens (JWT): the key that they are signed with, and whose were revoked.

// TokenOp says what a Tokens does. The numbers are stored: append only.
type TokenOp uint8

// The operations.
const (
	TokenFirst  TokenOp = iota + 1 // Key counts unless there is one
	TokenKey                       // Key counts from now on: all earlier tokens count no more
	TokenRevoke                    // tokens of Users that were issued until now count no more
)

// Tokens changes the key of tokens, or revokes tokens.
type Tokens struct {
	Op    TokenOp
	Key   []byte
	Users []string
}

func (x *Tokens) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.Bytes(c, &x.Key, model.MaxName)
	wire.Texts(c, &x.Users, model.MaxFew, model.MaxName)
}

func (*Tokens) kind() Kind { return KindTokens }

// maxTokenUsers bounds the users whose tokens were revoked. The oldest revocations are forgotten with a new key only.
const maxTokenUsers = 1 << 14

// tokens is the facts about users' tokens. Both are replaced, never edited.
type tokens struct {
	key     []byte
	revoked []model.TokenRevoked // by user
}

func (t *tokens) find(user string) (int, bool) {
	return slices.BinarySearchFunc(t.revoked, user, func(r model.TokenRevoked, user string) int {
		return strings.Compare(r.User, user)
	})
}

func (s *State) applyTokens(at model.Time, x *Tokens) Result {
	t := &s.tokens
	switch x.Op {
	case TokenFirst:
		if t.key != nil {
			return Result{}
		}
		t.key = x.Key
	case TokenKey:
		t.key, t.revoked = x.Key, nil
	case TokenRevoke:
		t.revoked = slices.Clone(t.revoked)
		for _, user := range x.Users {
			i, had := t.find(user)
			switch {
			case had:
				t.revoked[i].At = at
			case len(t.revoked) >= maxTokenUsers:
				return Result{Refusal: Full}
			default:
				t.revoked = slices.Insert(t.revoked, i, model.TokenRevoked{User: user, At: at})
			}
		}
	}
	return Result{Changed: true}
}

// validTokens checks a command's parts.
func validTokens(x *Tokens) error {
	ok := false
	switch x.Op {
	case TokenFirst, TokenKey:
		ok = len(x.Key) >= model.LeastTokenKey && len(x.Key) <= model.MostTokenKey
	case TokenRevoke:
		ok = len(x.Users) > 0 && !slices.Contains(x.Users, "")
	}
	if !ok {
		return malformed("operation %d on tokens, or its parts", x.Op)
	}
	return nil
}

// TokenKey gives the key that users' tokens are signed with; nil: there is none yet. It must not be changed.
func (v *View) TokenKey() []byte { return v.tokens.key }

// TokensRevoked gives the moment until which a user's tokens were revoked; 0: none were.
func (v *View) TokensRevoked(user string) model.Time {
	if i, had := v.tokens.find(user); had {
		return v.tokens.revoked[i].At
	}
	return 0
}

// RevokedTokens gives the users whose tokens were revoked, with the moments until which.
func (v *View) RevokedTokens() []model.TokenRevoked { return slices.Clone(v.tokens.revoked) }

// snapTokens is the part of a snapshot's head about tokens.
type snapTokens struct {
	Key     []byte
	Revoked []model.TokenRevoked
}

func (x *snapTokens) Wire(c *wire.C) {
	wire.Bytes(c, &x.Key, model.MaxName)
	wire.List(c, &x.Revoked, model.MaxList)
}

func (t *tokens) snap(open bool) *snapTokens {
	if t.key == nil && t.revoked == nil || open {
		return nil
	}
	return &snapTokens{t.key, t.revoked}
}
