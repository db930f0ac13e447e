package ctld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/state"
)

// certs.go issues certificates: to hosts that join with a token, to daemons that renew theirs. The log says first who
// gets one, and then a controller that has the authority's key signs it. Certificates that were revoked, and names that
// are not in the configuration, are refused here.

const (
	maxJoins       = 64               // connections of hosts without a certificate
	joinIdle       = 10 * time.Second // of theirs
	maxJoinBytes   = 16 << 10         // of one request of theirs
	maxTokenLifeS  = 30 * 24 * 3600
	sweepPace      = time.Hour
	refusedLogPace = time.Minute
)

// join serves ProtoJoin: hosts that have no certificate, about which nothing is known.
func (c *Controller) join(ctx context.Context, r *server.Request) {
	switch r.Kind {
	case proto.KindTime:
		c.end(r, &proto.Issued{Now: c.now()}, nil)
	case proto.KindJoin:
		var rq proto.Join
		if err := proto.Decode(r.Body, &rq); err != nil {
			c.end(r, nil, refuse(proto.CodeBadRequest, "malformed request: %v", err))
			return
		}
		if !c.leads(ctx) {
			c.end(r, nil, c.notLeading())
			return
		}
		issued, err := c.joined(ctx, &rq)
		if err != nil {
			c.log.Warn("a host did not get a certificate", "from", r.Remote(), "role", rq.Role, "name", rq.Name, "token", rq.ID,
				"err", err)
		}
		c.end(r, issued, err)
	default:
		c.end(r, nil, refuse(proto.CodeAccess, "a host without a certificate can only ask for one"))
	}
}

// joined issues the certificate for a token.
func (c *Controller) joined(ctx context.Context, rq *proto.Join) (*proto.Issued, error) {
	key, err := pki.KeyHash(rq.Request)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if err := c.mayHave(rq.Role, rq.Name); err != nil {
		return nil, err
	}
	cert, err := c.newCert(rq.Role, rq.Name, "")
	if err != nil {
		return nil, err
	}
	if err := c.canSign(ctx); err != nil {
		return nil, err // before the token is used
	}
	res, err := c.propose(ctx, &state.Certs{Op: state.CertJoin, IDs: []string{rq.ID}, Hash: certs.Hash(rq.Secret),
		Key: key, Cert: cert})
	if err != nil {
		return nil, err
	}
	switch res.Refusal {
	case state.OK:
	case state.TokenUsed:
		return nil, refuse(proto.CodeAccess, "token %s was used already, by another host or key; make a new one with "+
			"`gbatch cert token %s %s`, and if nobody knows who used it: `gbatch cert revoke %s %s`", rq.ID, rq.Role, rq.Name,
			rq.Role, rq.Name)
	case state.TokenExpired:
		return nil, refuse(proto.CodeAccess, "token %s has expired; make a new one with `gbatch cert token %s %s`", rq.ID,
			rq.Role, rq.Name)
	case state.Full:
		return nil, tooMany(rq.Role, rq.Name)
	default:
		return nil, refuse(proto.CodeAccess, "there is no such token for %s %s: it was mistyped, taken back, used long ago, "+
			"or made for another role or name (gbatch cert list)", rq.Role, rq.Name)
	}
	token := c.machine.View().CertToken(rq.ID)
	if token == nil {
		return nil, errMoved
	}
	for _, have := range c.machine.View().CertsOf(rq.Role, rq.Name) {
		if have.Serial == token.Serial {
			cert = have
		}
	}
	if cert.Serial != token.Serial {
		return nil, refuse(proto.CodeAccess, "the certificate of token %s has expired; make a new token", rq.ID)
	}
	issued, err := c.sign(ctx, cert, rq.Request)
	if err == nil {
		c.log.Info("certificate issued", "role", cert.Role, "name", cert.Name, "serial", cert.Serial, "token", rq.ID)
	}
	return issued, err
}

func tooMany(role, name string) error {
	return refuse(proto.CodeBusy, "%s %s has many valid certificates already; one of them has to expire first, or "+
		"`gbatch cert revoke %s %s` takes all back", role, name, role, name)
}

// newCert is a certificate that is about to be issued. One of a daemon whose certificates were revoked just now begins
// a second later.
func (c *Controller) newCert(role, name, family string) (*model.Cert, error) {
	serial, err := pki.NewSerial()
	if err != nil {
		return nil, err
	}
	if family == "" {
		family = serial
	}
	v := c.machine.View()
	const second = model.Time(1000) // certificates count in seconds
	at := c.now() / second * second
	if revoked := v.RevokedAt(role, name); at <= revoked {
		at = revoked/second*second + second
	}
	return &model.Cert{Serial: serial, Family: family, Role: role, Name: name, At: at,
		Until: at + model.Time(v.Config().Params.Certs.CertLifeS())*second}, nil
}

// mayHave refuses a name that the configuration does not have.
func (c *Controller) mayHave(role, name string) error {
	v := c.machine.View()
	switch role {
	case pki.RoleNode:
		if v.Config().Cluster != "" && v.Node(name) == nil {
			return refuse(proto.CodeInvalidNode, "'%s' is no node of the configuration: add its NodeName line on the "+
				"controllers and run gcontrol reconfigure; if it has gone for good: gbatch cert revoke node %s", name, name)
		}
	case pki.RoleLogin:
		if list := v.Config().Params.Certs.Logins; len(list) > 0 && !slices.Contains(list, name) {
			return refuse(proto.CodeAccess, "'%s' is not among LoginHosts=%s: add it there and run gcontrol reconfigure",
				name, hostlist.Compress(list))
		}
	case pki.RoleCtld:
		if cfg, _ := c.loadConfig(); cfg != nil && !c.isMember(name) {
			if _, ok := cfg.Controller(name); !ok {
				return refuse(proto.CodeAccess, "'%s' is no controller: gbatch.conf on %s has no SlurmctldHost=%s", name,
					c.opts.Name, name)
			}
		}
	case pki.RoleDBD:
	default:
		return refuse(proto.CodeBadRequest, "there is no role '%s'; the roles are %s", name, strings.Join(pki.Roles(), ", "))
	}
	return nil
}

// renew issues a certificate in place of the one that a daemon has shown.
func (c *Controller) renew(ctx context.Context, old *model.Cert, request []byte) (*proto.Issued, error) {
	if _, err := pki.KeyHash(request); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if err := c.mayHave(old.Role, old.Name); err != nil {
		return nil, err
	}
	switch now := c.now(); {
	case now >= old.Until:
		return nil, refuse(proto.CodeAccess, "the certificate of this connection has expired; the host gets a new one with "+
			"a token (gbatch cert token %s %s)", old.Role, old.Name)
	case old.Until-now > (old.Until-old.At)/2:
		return nil, refuse(proto.CodeBusy, "more than half of the certificate's life is left; it is renewed later")
	}
	cert, err := c.newCert(old.Role, old.Name, old.Family)
	if err != nil {
		return nil, err
	}
	if err := c.canSign(ctx); err != nil {
		return nil, err
	}
	res, err := c.propose(ctx, &state.Certs{Op: state.CertRenew, Old: old, Cert: cert})
	switch {
	case err != nil:
		return nil, err
	case res.Refusal == state.CertIsRevoked:
		return nil, refuse(proto.CodeAccess, "the certificate of this connection was revoked")
	case res.Refusal != state.OK:
		return nil, tooMany(old.Role, old.Name)
	}
	return c.sign(ctx, cert, request)
}

// renewFor answers a daemon that renews.
func (c *Controller) renewFor(ctx context.Context, r *server.Request, role, name string) {
	var rq proto.Renew
	if err := proto.Decode(r.Body, &rq); err != nil {
		c.end(r, nil, refuse(proto.CodeBadRequest, "malformed request: %v", err))
		return
	}
	if !c.leads(ctx) {
		c.end(r, nil, c.notLeading())
		return
	}
	issued, err := c.renew(ctx, shownBy(r.Peer.Cert(), role, name), rq.Request)
	c.end(r, issued, err)
}

func shownBy(cert rpc.Cert, role, name string) *model.Cert {
	return certs.CertOf(&pki.Holder{Serial: cert.Serial, Family: cert.Family, Role: role, Name: name, At: cert.At,
		Until: cert.Until})
}

// renewOwn gets this controller's next certificate.
func (c *Controller) renewOwn(ctx context.Context, request []byte) (*proto.Issued, error) {
	own := c.creds.Own()
	if c.leads(ctx) {
		return c.renew(ctx, certs.CertOf(&own), request)
	}
	_, addr := c.store.Leader()
	if addr == "" {
		return nil, errors.New("no controller leads just now")
	}
	return certs.AskAt(c.creds, func() []string { return []string{addr} })(ctx, request)
}

// canSign says why no controller can sign; nil: one can.
func (c *Controller) canSign(ctx context.Context) error {
	_, err := c.sign(ctx, nil, nil)
	return err
}

// sign has a certificate signed, here or by another controller that has the authority's key. Without a certificate it
// only finds out whether that works.
func (c *Controller) sign(ctx context.Context, cert *model.Cert, request []byte) (*proto.Issued, error) {
	if pki.HasAuthority(c.opts.PKI) {
		return c.signHere(cert, request)
	}
	rq := &proto.Sign{Request: request}
	if cert != nil {
		rq.Cert = *cert
	}
	body, err := proto.Encode(rq)
	if err != nil {
		return nil, err
	}
	var silent []string
	for _, p := range c.members() {
		if p.Name == c.opts.Name {
			continue
		}
		issued, err := c.signAt(ctx, p.Addr, body)
		if err == nil {
			return issued, nil
		}
		var said *rpc.Error
		if !errors.As(err, &said) {
			silent = append(silent, p.Name)
		}
	}
	text := ""
	if len(silent) > 0 {
		text = " (" + strings.Join(silent, ", ") + " did not answer)"
	}
	return nil, refuse(proto.CodeBusy, "no controller that answers has the authority's key, so no certificate can be "+
		"signed%s: ca.key belongs into PKIDir of a controller; without it there, gbatch cert issue makes certificates where "+
		"it is", text)
}

// signAt asks another controller.
func (c *Controller) signAt(ctx context.Context, addr string, body []byte) (*proto.Issued, error) {
	m, err := c.dialTLS(ctx, addr, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close() }() // the answer is all that counts
	f, err := m.Call(ctx, proto.KindSign, body)
	if err != nil {
		return nil, err
	}
	issued := new(proto.Issued)
	return issued, proto.Decode(f.Body, issued)
}

// signHere signs with the key on this host.
func (c *Controller) signHere(cert *model.Cert, request []byte) (*proto.Issued, error) {
	a, err := pki.LoadAuthority(c.opts.PKI)
	if err != nil {
		return nil, refuse(proto.CodeBusy, "controller %s can't sign certificates: %v", c.opts.Name, err)
	}
	issued := &proto.Issued{CA: a.CA(), Now: c.now(), Ctlds: c.votersForNodes()}
	if cert == nil {
		return issued, nil
	}
	if issued.Cert, err = a.Sign(request, certs.HolderOf(cert)); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	return issued, nil
}

// signFor answers another controller.
func (c *Controller) signFor(r *server.Request) {
	var rq proto.Sign
	if err := proto.Decode(r.Body, &rq); err != nil || !pki.HasAuthority(c.opts.PKI) {
		c.end(r, nil, refuse(proto.CodeBadRequest, "controller %s has no key of the authority", c.opts.Name))
		return
	}
	cert := &rq.Cert
	if cert.Serial == "" {
		cert = nil
	}
	issued, err := c.signHere(cert, rq.Request)
	c.end(r, issued, err)
}

// editCerts makes tokens, takes them back, and revokes certificates.
func (c *Controller) editCerts(ctx context.Context, who *caller,
	rq *proto.EditCertsRequest) (*proto.EditCertsReply, error) {
	if c.level(who) < model.AdminFull {
		return nil, refuse(proto.CodeAccess, "certificates are given and taken by administrators, on a controller")
	}
	reply := &proto.EditCertsReply{Addr: c.Addr()}
	ca := c.creds.CA()
	reply.Fingerprint = certs.Hash(ca.Raw)
	now := c.now()
	by := c.nameOf(who)
	propose := func(b *state.Certs) (state.Result, error) {
		res, err := c.propose(ctx, b)
		if err == nil && res.Refusal == state.Full {
			err = refuse(proto.CodeBusy, "there are too many of them; gbatch cert list shows all")
		}
		return res, err
	}
	if len(rq.Offer) > 0 {
		if rq.LifeS <= 0 || rq.LifeS > maxTokenLifeS {
			return nil, refuse(proto.CodeTimeValue, "a token lives from 1 second to %d days", maxTokenLifeS/24/3600)
		}
		for i := range rq.Offer {
			t := &rq.Offer[i]
			if err := c.mayHave(t.Role, t.Name); err != nil {
				return nil, err
			}
			t.At, t.Until, t.By, t.UsedAt, t.Key, t.Serial = now, now+model.Time(rq.LifeS)*1000, by, 0, nil, ""
		}
		if err := c.canSign(ctx); err != nil {
			return nil, err
		}
		if _, err := propose(&state.Certs{Op: state.CertOffer, Tokens: rq.Offer}); err != nil {
			return nil, err
		}
		c.log.Info("tokens for certificates were made", "by", by, "count", len(rq.Offer), "role", rq.Offer[0].Role, "first",
			rq.Offer[0].Name)
	}
	if len(rq.Drop) > 0 {
		res, err := propose(&state.Certs{Op: state.CertDrop, IDs: rq.Drop})
		if err != nil {
			return nil, err
		}
		for i, r := range res.Each {
			if r != state.OK {
				reply.Said = append(reply.Said, "there is no token "+rq.Drop[i])
			} else {
				reply.Said = append(reply.Said, "token "+rq.Drop[i]+" is taken back")
			}
		}
	}
	if len(rq.Revoke) > 0 {
		return reply, c.revoke(propose, rq.Revoke, by, reply)
	}
	return reply, nil
}

// revoke takes certificates back, but for the ones that this controller itself needs.
func (c *Controller) revoke(propose func(*state.Certs) (state.Result, error), list []model.CertRevoked, by string,
	reply *proto.EditCertsReply) error {
	own := c.creds.Own()
	for i := range list {
		r := &list[i]
		r.At, r.By = c.now(), by
		if r.Covers(certs.CertOf(&own)) || r.Serial == own.Family {
			return refuse(proto.CodeBadRequest, "that is the certificate of %s, which leads, and would take itself off the "+
				"cluster; give leadership to another controller first (gcontrol takeover)", c.opts.Name)
		}
		what := "certificate " + r.Serial + " and those renewed from it are"
		if r.Serial == "" {
			what = "all certificates of " + r.Role + " " + r.Name + " are"
		}
		reply.Said = append(reply.Said, what+" revoked")
	}
	_, err := propose(&state.Certs{Op: state.CertRevoke, Revoked: list})
	if err == nil {
		c.log.Warn("certificates were revoked", "by", by, "what", strings.Join(reply.Said, "; "))
	}
	return err
}

// listCerts gives tokens, certificates and revocations.
func (c *Controller) listCerts(_ context.Context, who *caller, _ *proto.Empty) (*proto.CertsReply, error) {
	if !c.operator(who) {
		return nil, refuse(proto.CodeAccess, "certificates are listed for operators")
	}
	v := c.machine.View()
	r := &proto.CertsReply{Now: c.now(), Revoked: c.revokedList().List}
	for _, t := range v.CertTokens() {
		t := *t
		t.Hash, t.Key = nil, nil
		r.Tokens = append(r.Tokens, t)
	}
	for _, cert := range v.Certs() {
		r.Certs = append(r.Certs, *cert)
	}
	return r, nil
}

// revokedList is what daemons are told.
func (c *Controller) revokedList() *proto.Revoked {
	v := c.machine.View()
	out := &proto.Revoked{Gen: v.RevokedGen()}
	for _, r := range v.Revoked() {
		out.List = append(out.List, *r)
	}
	return out
}

// keepRevoked refuses revoked certificates from now on and ends their connections, until ctx ends.
func (c *Controller) keepRevoked(ctx context.Context) {
	for {
		n := c.creds.Refuse(func(h *pki.Holder) error {
			if r := c.machine.View().CertRevoked(certs.CertOf(h)); r != nil {
				return certs.RevokedError(r)
			}
			return nil
		})
		if n > 0 {
			c.log.Warn("connections with revoked certificates were closed", "count", n)
		}
		select {
		case <-c.machine.revoked:
			c.nodes.retell()
		case <-ctx.Done():
			return
		}
	}
}

// sweepCerts forgets expired tokens and certificates, on the leader until ctx ends.
func (c *Controller) sweepCerts(ctx context.Context) {
	for ctx.Err() == nil {
		if v := c.machine.View(); len(v.Certs())+len(v.CertTokens()) > 0 {
			if _, err := c.propose(ctx, &state.Certs{Op: state.CertSweep}); err != nil && ctx.Err() == nil {
				c.log.Debug("expired certificates were not forgotten", "err", err)
			}
		}
		pause(ctx, sweepPace)
	}
}

// strange says why a daemon with a valid certificate is none of this cluster's; nil: it is. It is logged once a minute
// for each.
func (c *Controller) strange(role, name, from string) error {
	if c.machine.View().Config().Cluster == "" {
		return nil // nothing is known yet
	}
	var err error
	switch role {
	case pki.RoleCtld:
		if !c.isMember(name) && !slices.ContainsFunc(c.opts.Peers, func(p Peer) bool { return p.Name == name }) {
			err = refuse(proto.CodeAccess, "'%s' is no controller of this cluster: gcontrol controllers add makes it one", name)
		}
	default:
		err = c.mayHave(role, name)
	}
	if err != nil {
		host, _, splitErr := net.SplitHostPort(from)
		if splitErr != nil {
			host = from
		}
		if c.refusals.note(role+" "+name, time.Now()) {
			c.log.Warn("a daemon that is not in the configuration was refused", "role", role, "name", name, "from", host, "err",
				err)
		}
	}
	return err
}

// oncePer remembers what was logged, for a minute.
type oncePer struct {
	at map[string]time.Time
	mu chan struct{} // a lock
}

const maxOncePer = 4096

func newOncePer() *oncePer { return &oncePer{at: map[string]time.Time{}, mu: make(chan struct{}, 1)} }

func (o *oncePer) note(key string, now time.Time) bool {
	o.mu <- struct{}{}
	defer func() { <-o.mu }()
	if at, ok := o.at[key]; ok && now.Sub(at) < refusedLogPace || len(o.at) >= maxOncePer && !ok {
		return false
	}
	o.at[key] = now
	return true
}

// lateCerts are certificates that should have been renewed by now, in sentences: of all daemons that this controller
// knows of. With short lives it means that renewal fails.
func (c *Controller) lateCerts(v *state.View) []lateCert {
	days := v.Config().Params.Alerts.CertDays
	if days <= 0 || c.creds == nil {
		return nil
	}
	most, now := time.Duration(days)*24*time.Hour, time.UnixMilli(int64(c.now()))
	newest := map[string]time.Time{}
	for _, cert := range v.Certs() {
		key := cert.Role + " " + cert.Name
		if until := time.UnixMilli(int64(cert.Until)); until.After(newest[key]) {
			newest[key] = until
		}
	}
	var out []lateCert
	for _, role := range pki.Roles() {
		for _, h := range c.creds.Peers(role) {
			who := role + " " + h.Name
			// A daemon that has renewed still has its old connection.
			if !h.Late(now, most) || newest[who].After(h.Until) || h.Until.Before(now.Add(-most)) {
				continue
			}
			if c.strangerNow(v, role, h.Name) {
				continue
			}
			out = append(out, lateCert{who, h.Until, fmt.Sprintf("the certificate of %s expires at %s and was not renewed: see "+
				"its log", who, h.Until.UTC().Format(time.DateTime+" MST"))})
		}
	}
	slices.SortFunc(out, func(a, b lateCert) int { return bytes.Compare([]byte(a.who), []byte(b.who)) })
	return out
}

// strangerNow reports whether a daemon is no longer in the configuration.
func (c *Controller) strangerNow(v *state.View, role, name string) bool {
	return role == pki.RoleNode && v.Node(name) == nil || role == pki.RoleCtld && !c.isMember(name)
}

type lateCert struct {
	who   string
	until time.Time
	text  string
}
