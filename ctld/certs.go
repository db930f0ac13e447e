package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/issue"
	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/state"
)

// certs.go has the requests about certificates, which package issue gives and takes back. Certificates that were
// revoked, and names that are not in the configuration, are refused here.

const (
	maxJoins       = 64               // connections of hosts without a certificate
	maxJoinsOfHost = 16               // of them, of one
	joinLife       = time.Minute      // of theirs
	joinIdle       = 10 * time.Second // of theirs
	maxJoinBytes   = 16 << 10         // of one request of theirs
	sweepPace      = time.Hour
	refusedLogPace = time.Minute
	joinPause      = time.Second // before a host is told that it gets no certificate
	maxJoinText    = 64          // of what such a host says of itself, in the log
)

// issuing is what package issue needs of a controller.
type issuing struct{ c *Controller }

func (c *Controller) newIssuer() *issue.Issuer {
	return &issue.Issuer{Name: c.opts.Name, Dir: c.opts.PKI, Creds: c.creds, Log: c.log, Cluster: issuing{c}}
}

func (i issuing) View() *state.View         { return i.c.machine.View() }
func (i issuing) Now() model.Time           { return i.c.now() }
func (i issuing) Moved() error              { return errMoved }
func (i issuing) IsMember(ctld string) bool { return i.c.isMember(ctld) }
func (i issuing) Voters() []string          { return i.c.votersForNodes() }

func (i issuing) Propose(ctx context.Context, b state.Body) (state.Result, error) {
	return i.c.propose(ctx, b)
}

func (i issuing) Configured(ctld string) bool {
	cfg, _ := i.c.loadConfig()
	if cfg == nil {
		return true
	}
	_, ok := cfg.Controller(ctld)
	return ok
}

func (i issuing) Others() (out []issue.Other) {
	for _, p := range i.c.members() {
		if p.Name != i.c.opts.Name {
			out = append(out, issue.Other{Name: p.Name, Addr: p.Addr})
		}
	}
	return out
}

func (i issuing) Ask(ctx context.Context, addr string, rq *proto.Sign) (*proto.Issued, error) {
	body, err := proto.Encode(rq)
	if err != nil {
		return nil, err
	}
	m, err := i.c.dialTLS(ctx, addr, pki.RoleCtld)
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
		issued, err := c.issuer.Join(ctx, &rq)
		if err != nil {
			said := func(s string) string { return plain.Line(cut(s, maxJoinText)) }
			if host := cmp.Or(hostOf(r.Remote()), r.Remote()); c.refusals.note("join "+host, time.Now()) {
				c.log.Warn("a host did not get a certificate", "from", host, "role", said(rq.Role), "name", said(rq.Name),
					"token", said(rq.ID), "err", err)
			}
			pause(ctx, joinPause) // who guesses waits
		}
		c.end(r, issued, err)
	default:
		c.end(r, nil, refuse(proto.CodeAccess, "a host without a certificate can only ask for one"))
	}
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
	issued, err := c.issuer.Renew(ctx, shownBy(r.Peer.Cert(), role, name), rq.Request)
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
		return c.issuer.Renew(ctx, certs.CertOf(&own), request)
	}
	_, addr := c.store.Leader()
	if addr == "" {
		return nil, errors.New("no controller leads just now")
	}
	return certs.AskAt(c.creds, func() []string { return []string{addr} })(ctx, request)
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
	issued, err := c.issuer.Sign(cert, rq.Request)
	c.end(r, issued, err)
}

// editCerts makes tokens, takes them back, and revokes certificates.
func (c *Controller) editCerts(ctx context.Context, who *caller,
	rq *proto.EditCertsRequest) (*proto.EditCertsReply, error) {
	if c.level(who) < model.AdminFull {
		return nil, refuse(proto.CodeAccess, "certificates are given and taken by administrators, on a controller")
	}
	reply := &proto.EditCertsReply{Addr: c.Addr()}
	if err := c.issuer.Edit(ctx, c.nameOf(who), rq, reply); err != nil {
		return nil, err
	}
	if len(rq.Revoke) > 0 {
		c.saveRecord()
		reply.Said = append(reply.Said, c.cameBy(ctx, rq.Revoke[0].At)...)
	}
	return reply, nil
}

// cameBy says what of what users have set by way of hosts is stopped by revocations since a moment, and what is not.
func (c *Controller) cameBy(ctx context.Context, since model.Time) (said []string) {
	by := c.machine.View().CameBy(since)
	tell := func(n int, one, many string, list func(i int) string) {
		if n == 0 {
			return
		}
		var names []string
		for i := range min(n, maxCameBy) {
			names = append(names, list(i))
		}
		if n > maxCameBy {
			names = append(names, fmt.Sprintf("and %d more", n-maxCameBy))
		}
		if n > 1 {
			one = fmt.Sprintf(many, n)
		}
		said = append(said, one+": "+strings.Join(names, ", "))
	}
	job := func(list []model.JobID) func(int) string { return func(i int) string { return fmt.Sprint(list[i]) } }
	tell(len(by.Crontabs), "1 crontab that came by way of it does nothing until its user installs it again (gcrontab -l "+
		"says so)", "%d crontabs that came by way of it do nothing until their users install them again (gcrontab -l says "+
		"so)", func(i int) string { return c.people.Name(ctx, by.Crontabs[i]) })
	tell(len(by.Triggers), "1 trigger that came by way of it does nothing until its user sets it again (gtrigger --get "+
		"says so)", "%d triggers that came by way of it do nothing until their users set them again (gtrigger --get says "+
		"so)", func(i int) string { return fmt.Sprint(by.Triggers[i]) })
	tell(len(by.Held), "1 waiting job that came by way of it is held until its user looks at it and releases it",
		"%d waiting jobs that came by way of it are held until their users look at them and release them", job(by.Held))
	tell(len(by.Running), "1 job that came by way of it goes on: cancel it if it is not its user's own",
		"%d jobs that came by way of it go on: cancel those that are not their users' own", job(by.Running))
	return said
}

// maxCameBy is how many of a kind the answer to a revocation names.
const maxCameBy = 20

// listCerts gives tokens, certificates and revocations.
func (c *Controller) listCerts(_ context.Context, who *caller, _ *proto.Empty) (*proto.CertsReply, error) {
	if !c.operator(who) {
		return nil, refuse(proto.CodeAccess, "certificates are listed for operators")
	}
	return c.issuer.List(), nil
}

// loadRecord reads the file of what was revoked: it counts from the controller's start on, whatever the state knows.
func (c *Controller) loadRecord() {
	r, err := issue.ReadRecord(c.recordPath())
	switch {
	case err == nil:
	case issue.NoRecord(err):
		r = &issue.Record{}
	default:
		kept, failed := issue.PutAside(c.recordPath(), time.Now())
		c.log.Error("the list of revocations can't be read: what this state does not know of them is forgotten; mend the "+
			"file that is kept, put it back and start gctld again", "err", err, "kept", kept,
			"failed", failed)
		r = &issue.Record{}
	}
	c.record.Store(r)
}

func (c *Controller) recordPath() string { return filepath.Join(c.opts.PKI, issue.RecordFile) }

// saveRecord brings the file of what was revoked up to date.
func (c *Controller) saveRecord() {
	c.recording.Lock()
	defer c.recording.Unlock()
	v := c.machine.View()
	if v.Config().Cluster == "" {
		return
	}
	r := *cmp.Or(c.record.Load(), &issue.Record{})
	r.Certs, r.Tokens, r.Old = slices.Clone(r.Certs), slices.Clone(r.Tokens), slices.Clone(r.Old)
	if r.Cluster != "" && r.Cluster != v.Config().Cluster {
		r = issue.Record{} // of another cluster that this host had
	}
	if !r.Add(issue.RecordOf(v)) {
		return
	}
	if err := r.Save(c.recordPath()); err != nil {
		if c.refusals.note("record", time.Now()) {
			c.log.Error("the list of revocations was not written: a restored state would not know the last ones", "err", err)
		}
		return
	}
	c.record.Store(&r)
}

// recordPace is from one look at what was revoked to the next.
const recordPace = time.Second

// keepRecord keeps that file, on every controller.
func (c *Controller) keepRecord(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, recordPace) {
		c.saveRecord()
	}
}

// bringRevoked brings what this controller's file has into the state, if that has forgotten it: the leader's part.
func (c *Controller) bringRevoked(ctx context.Context) {
	for ctx.Err() == nil {
		v := c.machine.View()
		lacks := c.record.Load().Missing(v)
		if v.Config().Cluster != "" && len(lacks) == 0 {
			return
		}
		for _, body := range lacks {
			if res, err := c.propose(ctx, body); err != nil || res.Refusal != state.OK {
				c.log.Warn("what was revoked is not in the state again yet", "err", err, "refusal", res.Refusal)
				break
			}
			c.log.Warn("the state had forgotten revocations: this controller's list had them", "file", c.recordPath())
		}
		pause(ctx, recordPace)
	}
}

// revoked gives what takes a certificate back, by the state or by this controller's list, or nil.
func (c *Controller) revoked(v *state.View, cert *model.Cert) *model.CertRevoked {
	if r := v.CertRevoked(cert); r != nil {
		return r
	}
	return c.record.Load().Revoked(cert)
}

// keepRevoked refuses revoked certificates from now on and ends their connections, until ctx ends.
func (c *Controller) keepRevoked(ctx context.Context) {
	c.creds.OnOutOfDate(c.turned.noteOutOfDate)
	for {
		n := c.creds.Refuse(func(h *pki.Holder) error {
			cert := certs.CertOf(h)
			if r := c.revoked(c.machine.View(), cert); r != nil {
				c.turned.noteRevoked(h, r)
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

// turnedAway remembers nodes that this controller has refused, for a while: those whose certificate is revoked or out
// of date take no jobs until they come with another, and gcontrol doctor says what it was.
type turnedAway struct {
	mu sync.Mutex
	of map[string]refusedNode
}

type refusedNode struct {
	at       time.Time
	why, fix string
	cert     bool // for its certificate: it can't register with it
}

const (
	turnedKept = 2 * time.Minute // a node tries again several times within it
	maxTurned  = 1 << 13
)

func (t *turnedAway) note(node string, r refusedNode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]refusedNode{}
	}
	if len(t.of) >= maxTurned {
		maps.DeleteFunc(t.of, func(_ string, old refusedNode) bool { return r.at.Sub(old.at) > turnedKept })
	}
	if _, known := t.of[node]; known || len(t.of) < maxTurned {
		t.of[node] = r
	}
}

func (t *turnedAway) noteCert(h *pki.Holder, why string) {
	if h.Role == pki.RoleNode {
		t.note(h.Name, refusedNode{at: time.Now(), cert: true, why: state.Brief("its certificate " + why),
			fix: "gbatch cert token node " + h.Name + " on a controller, then gnoded --join TOKEN there"})
	}
}

func (t *turnedAway) noteRevoked(h *pki.Holder, r *model.CertRevoked) {
	why := "was revoked by " + r.By
	if r.Why != "" {
		why += ": " + r.Why
	}
	t.noteCert(h, why)
}

// noteOutOfDate has a text without the present time: it is a change of the node's facts each time it differs.
func (t *turnedAway) noteOutOfDate(h *pki.Holder) {
	t.noteCert(h, fmt.Sprintf("is out of date: it counts from %s to %s", h.At.UTC().Format(time.DateTime),
		h.Until.UTC().Format(time.DateTime+" MST")))
}

// last gives why a node was refused a moment ago.
func (t *turnedAway) last(node string, now time.Time) (r refusedNode, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok = t.of[node]
	return r, ok && now.Sub(r.at) <= turnedKept
}

// forget says that a node has registered.
func (t *turnedAway) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, node)
}

// nodes gives those that were refused for their certificates a moment ago.
func (t *turnedAway) nodes(now time.Time) (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.of {
		if r.cert && now.Sub(r.at) <= turnedKept {
			out = append(out, name)
		}
	}
	return out
}

// bar has a node take no jobs whose certificate is refused, on the leader. It is over when the node registers.
func (c *Controller) bar(ctx context.Context, node string) {
	r, ok := c.turned.last(node, time.Now())
	n := c.machine.View().Node(node)
	if !ok || !r.cert || n == nil || n.Link != model.LinkUp || n.Problem == r.why || c.nodes.connected(node) ||
		!c.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), barLimit) // the connection has ended
	defer cancel()
	if _, err := c.propose(ctx, &state.NodeHealth{Node: node, Problem: r.why}); err != nil {
		c.log.Warn("a node whose certificate is refused may get jobs until the next try", "node", node, "err", err)
		return
	}
	c.log.Warn("a node takes no more jobs", "node", node, "why", r.why)
}

const barLimit = 10 * time.Second // for one change

// sweepCerts forgets expired tokens and certificates, on the leader until ctx ends.
func (c *Controller) sweepCerts(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.issuer.Sweep(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("expired certificates were not forgotten", "err", err)
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
		err = c.issuer.MayHave(role, name)
	}
	if err != nil {
		host := cmp.Or(hostOf(from), from)
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
	if len(o.at) >= maxOncePer {
		maps.DeleteFunc(o.at, func(_ string, at time.Time) bool { return now.Sub(at) >= refusedLogPace })
	}
	if at, ok := o.at[key]; ok && now.Sub(at) < refusedLogPace || len(o.at) >= maxOncePer && !ok {
		return false
	}
	o.at[key] = now
	return true
}
