package issue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// admin.go is what administrators do and see.

const maxTokenLifeS = 30 * 24 * 3600

// Edit makes tokens, takes them back, and revokes certificates.
func (s *Issuer) Edit(ctx context.Context, by string, rq *proto.EditCertsRequest, reply *proto.EditCertsReply) error {
	ca := s.Creds.CA()
	reply.Fingerprint = certs.Hash(ca.Raw)
	now := s.Now()
	propose := func(b *state.Certs) (state.Result, error) {
		res, err := s.Propose(ctx, b)
		if err == nil && res.Refusal == state.Full {
			err = refuse(proto.CodeBusy, "there are too many of them; gbatch cert list shows all")
		}
		return res, err
	}
	if len(rq.Offer) > 0 {
		if rq.LifeS <= 0 || rq.LifeS > maxTokenLifeS {
			return refuse(proto.CodeTimeValue, "a token lives from 1 second to %d days", maxTokenLifeS/24/3600)
		}
		for i := range rq.Offer {
			t := &rq.Offer[i]
			if err := s.MayHave(t.Role, t.Name); err != nil {
				return err
			}
			t.At, t.Until, t.By, t.UsedAt, t.Key, t.Serial = now, now+model.Time(rq.LifeS)*1000, by, 0, nil, ""
		}
		if err := s.canSign(ctx); err != nil {
			return err
		}
		if _, err := propose(&state.Certs{Op: state.CertOffer, Tokens: rq.Offer}); err != nil {
			return err
		}
		s.Log.Info("tokens for certificates were made", "by", by, "count", len(rq.Offer), "role", rq.Offer[0].Role, "first",
			rq.Offer[0].Name)
	}
	if len(rq.Drop) > 0 {
		res, err := propose(&state.Certs{Op: state.CertDrop, IDs: rq.Drop})
		if err != nil {
			return err
		}
		var none []string
		for i, r := range res.Each {
			if r != state.OK {
				none = append(none, rq.Drop[i])
			} else {
				reply.Said = append(reply.Said, "token "+rq.Drop[i]+" is taken back")
			}
		}
		if len(none) > 0 {
			return refuse(proto.CodeBadRequest, "%s", strings.Join(append(reply.Said, "there is no token "+
				strings.Join(none, ", ")+": gbatch cert list shows their ids"), "; "))
		}
	}
	if len(rq.Revoke) > 0 {
		return s.revoke(propose, rq.Revoke, by, reply)
	}
	return nil
}

// revoke takes certificates back, but for the ones that this controller itself needs.
func (s *Issuer) revoke(propose func(*state.Certs) (state.Result, error), list []model.CertRevoked, by string,
	reply *proto.EditCertsReply) error {
	own := s.Creds.Own()
	for i := range list {
		r := &list[i]
		r.At, r.By = s.Now(), by
		if r.Covers(certs.CertOf(&own)) || r.Serial == own.Family {
			return refuse(proto.CodeBadRequest, "that is the certificate of %s, which leads, and would take itself off the "+
				"cluster; give leadership to another controller first (gcontrol takeover)", s.Name)
		}
		what := "certificate " + r.Serial + " and those renewed from it are"
		if r.Serial == "" {
			what = "all certificates of " + r.Role + " " + r.Name + " are"
		}
		reply.Said = append(reply.Said, what+" revoked")
	}
	_, err := propose(&state.Certs{Op: state.CertRevoke, Revoked: list})
	if err == nil {
		s.Log.Warn("certificates were revoked", "by", by, "what", strings.Join(reply.Said, "; "))
	}
	return err
}

// List gives tokens, certificates and revocations.
func (s *Issuer) List() *proto.CertsReply {
	v := s.View()
	r := &proto.CertsReply{Now: s.Now(), Revoked: s.Revoked().List}
	for _, t := range v.CertTokens() {
		t := *t
		t.Hash, t.Key = nil, nil
		r.Tokens = append(r.Tokens, t)
	}
	for _, cert := range v.Certs() {
		r.Certs = append(r.Certs, *cert)
	}
	return r
}

// Revoked is what daemons are told.
func (s *Issuer) Revoked() *proto.Revoked {
	v := s.View()
	out := &proto.Revoked{Gen: v.RevokedGen()}
	for _, r := range v.Revoked() {
		out.List = append(out.List, *r)
	}
	return out
}

// Sweep forgets expired tokens and certificates.
func (s *Issuer) Sweep(ctx context.Context) error {
	if v := s.View(); len(v.Certs())+len(v.CertTokens()) == 0 {
		return nil
	}
	_, err := s.Propose(ctx, &state.Certs{Op: state.CertSweep})
	return err
}

// Late gives certificates that should have been renewed by now, in sentences: of all daemons that this controller
// knows of. With short lives it means that renewal fails.
func (s *Issuer) Late() []Late {
	v := s.View()
	days := v.Config().Params.Alerts.CertDays
	if days <= 0 || s.Creds == nil {
		return nil
	}
	most, now := time.Duration(days)*24*time.Hour, time.UnixMilli(int64(s.Now()))
	newest := map[string]time.Time{}
	for _, cert := range v.Certs() {
		key := cert.Role + " " + cert.Name
		if until := time.UnixMilli(int64(cert.Until)); until.After(newest[key]) {
			newest[key] = until
		}
	}
	var out []Late
	for _, role := range pki.Roles() {
		for _, h := range s.Creds.Peers(role) {
			who := role + " " + h.Name
			// A daemon that has renewed still has its old connection.
			if !h.Late(now, most) || newest[who].After(h.Until) || h.Until.Before(now.Add(-most)) {
				continue
			}
			if s.stranger(v, role, h.Name) {
				continue
			}
			out = append(out, Late{who, h.Until, fmt.Sprintf("the certificate of %s expires at %s and was not renewed: see "+
				"its log", who, h.Until.UTC().Format(time.DateTime+" MST"))})
		}
	}
	slices.SortFunc(out, func(a, b Late) int { return strings.Compare(a.Who, b.Who) })
	return out
}

// stranger reports whether a daemon is no longer in the configuration.
func (s *Issuer) stranger(v *state.View, role, name string) bool {
	return role == pki.RoleNode && v.Node(name) == nil && v.Config().FutureNode(name) == nil ||
		role == pki.RoleCtld && !s.IsMember(name)
}

// Late is a certificate that should have been renewed by now.
type Late struct {
	Who   string // role and name
	Until time.Time
	Text  string // the sentence about it
}
