package ctld

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"gbatch/ctld/events"
	"gbatch/ctld/facade"
	"gbatch/ctld/metrics"
	"gbatch/ctld/page"
	"gbatch/ctld/rest"
	"gbatch/ctld/token"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/state"
	"gbatch/internal/userdb"
)

// http.go is what package rest needs of the controller. A request that comes over HTTP is made as a command makes it,
// as the user whom the token or the socket names, and goes the same way from there on.

// openHTTP listens for HTTP, if that is wanted. A port that is taken does not keep the controller from its work.
func (c *Controller) openHTTP() {
	c.tokens = token.Checker{Key: func() []byte { return c.machine.View().TokenKey() }, Claim: c.opts.HTTP.JWTClaim,
		Audience: c.opts.HTTP.JWTAudience, Issuer: c.opts.HTTP.JWTIssuer,
		Now: func() time.Time { return time.UnixMilli(int64(c.now())) }}
	if c.opts.HTTP.JWKS != "" {
		c.tokens.Public = &token.Public{Path: c.opts.HTTP.JWKS}
	}
	if c.opts.HTTP.Addr == "" && c.opts.HTTP.Socket == "" {
		return
	}
	o := rest.Options{Config: c.opts.HTTP, Cluster: &backend{c: c}, Name: c.opts.Name, Log: c.log,
		Memory: c.readers.memory, Certificate: c.creds.ServerTLS().GetCertificate}
	if c.opts.HTTP.Metrics != "metrics/none" {
		o.Metrics = metrics.Handler(c.measured)
		o.Served = c.waits.Served
	}
	o.Pages = page.New(&page.Options{Cluster: o.Cluster, Path: c.opts.HTTP.Path, Name: c.opts.Name, Log: c.log})
	o.Rooms = c.rooms(o.Cluster)
	web, err := rest.New(&o)
	if err != nil {
		c.log.Error("this controller serves no HTTP", "err", err)
		return
	}
	c.web = web
}

// measured is what a scrape of metrics looks at. The leader's statistics are the leader's only.
func (c *Controller) measured(*http.Request) metrics.Source {
	m := metrics.Source{View: c.machine.View(), Now: c.now(), Leads: c.leading.Load(), Waits: &c.waits,
		Series: c.opts.HTTP.MetricsSeries, JobSeries: c.opts.HTTP.MetricsJobs, Own: c.ofItself()}
	m.FairShares = func() map[string]float64 { return c.fairShares(m.View, m.Now) }
	if m.Leads {
		m.Stats = c.diagOf(m.View)
		m.Readings, m.IdleMS = c.nodes.readings, c.nodes.idleMS
	} else {
		m.AgeMS = c.factsAge().Milliseconds()
	}
	return m
}

// fairShares gives the mean fair-share factor of each account's users.
func (c *Controller) fairShares(v *state.View, now model.Time) map[string]float64 {
	tree := c.prio.order(v, now).Tree()
	of, users := map[string]float64{}, map[string]float64{}
	v.Associations(func(a *model.Association) bool {
		if a.User != "" {
			of[a.Account] += tree.Factor(a.Account, a.User, a.Partition)
			users[a.Account]++
		}
		return true
	})
	for account, n := range users {
		of[account] /= n
	}
	return of
}

// ofItself is what this controller tells of itself.
func (c *Controller) ofItself() *metrics.Own {
	st := c.store.Stats()
	own := &metrics.Own{Role: st.State, Voters: len(st.Voters), Term: st.Term, Last: st.LastIndex, Commit: st.Commit,
		Applied: st.Applied, Snapshot: st.SnapshotIndex, Entries: st.Entries, Commands: st.Commands, Queued: st.Queued,
		SlowestWriteS: c.store.SlowestWrite().Seconds(), RPCs: c.counts.serving.Load(), Nodes: c.nodes.count(),
		JobEvents: metrics.EventCounts(c.jobEvents.Counts()),
		Certificates: map[string]int64{"controller": c.creds.Own().Until.Unix(),
			"authority": c.creds.CA().NotAfter.Unix()}}
	var fs syscall.Statfs_t
	if syscall.Statfs(c.opts.Dir, &fs) == nil {
		own.FreeB, own.SizeB = fs.Bavail*uint64(fs.Bsize), fs.Blocks*uint64(fs.Bsize)
	}
	if c.leading.Load() {
		for _, d := range c.dbds {
			own.Dbds = append(own.Dbds, metrics.Dbd{Copy: d.copy, Up: d.up.Load(), Behind: d.behind(c.machine.View())})
		}
	}
	return own
}

// rooms are the paths of other packages.
func (c *Controller) rooms(cluster rest.Cluster) []rest.Room {
	c.feed = events.NewFeed(c.machine)
	small := &facade.Facade{Cluster: cluster}
	list := []rest.Room{
		{Path: facade.Prefix, Serve: small.Serve},
		{Path: facade.Prefix + "/events", Stream: true, Serve: c.serveEvents},
	}
	for _, path := range facade.Open() {
		list = append(list, rest.Room{Path: path, Open: true, Serve: small.Serve})
	}
	return list
}

// serveEvents answers a request for the stream of events. What its user may see is looked up again and again.
func (c *Controller) serveEvents(w http.ResponseWriter, r *http.Request, v *rest.Visitor) {
	l := &events.Listener{UID: v.Who.UID, Most: events.MaxStreamsOf}
	if c.operator((&backend{c: c}).caller(v.Who)) {
		l.Most = events.MaxStreams
	}
	l.See = func(ctx context.Context) (func(*events.Event) bool, error) {
		who, err := v.Again(ctx)
		if err != nil {
			return nil, err
		}
		s := c.sees(c.machine.View(), (&backend{c: c}).caller(who))
		s.me = c.nameOf(s.who)
		return s.event, nil
	}
	c.feed.Serve(w, r, l)
}

// backend is the cluster as package rest sees it.
type backend struct {
	c       *Controller
	changed atomic.Int64 // when a change last went through here, Unix ns
}

const (
	// ownFacts is how old a follower's facts may be to be an answer; the leader is heard several times a second.
	ownFacts = 2 * time.Second
	// afterChange is for how long after a change the leader is asked, so that who has made it sees it.
	afterChange = 3 * time.Second
	// againPace and againFor are about requests that no leader has taken.
	againPace = 100 * time.Millisecond
	againFor  = 10 * time.Second
)

// Facts says what this controller knows, without asking anybody.
func (b *backend) Facts() rest.Facts {
	v := b.c.machine.View()
	f := rest.Facts{View: v, Now: b.c.now(), Leads: b.c.leading.Load(), Age: b.c.factsAge(),
		Leaderless: b.c.leaderless() > staleAfter}
	if f.Leads {
		f.Age = 0
	}
	f.Stamp = b.c.stamp()
	return f
}

// Sees says which class of callers sees the same as this one: "" sees everything.
func (b *backend) Sees(who *proto.Caller) string {
	return b.c.sees(b.c.machine.View(), b.caller(who)).class()
}

// Account names the account of a user's jobs that name none.
func (b *backend) Account(user string) string { return defaultAccount(b.c.machine.View(), user) }

// User finds who a name is, by this host's user database.
func (b *backend) User(ctx context.Context, name string) (*proto.Caller, error) {
	u, err := b.c.people.Named(ctx, name)
	return b.person(ctx, name, u, err)
}

// Person finds who a name is, or a number that is no name.
func (b *backend) Person(ctx context.Context, text string) (*proto.Caller, error) {
	u, err := b.c.people.Named(ctx, text)
	if id, bad := strconv.ParseUint(text, 10, 32); errors.Is(err, userdb.ErrUnknown) && bad == nil {
		u, err = b.c.people.User(ctx, uint32(id))
	}
	return b.person(ctx, text, u, err)
}

// InGroup gives a caller with another group than his own. Root may have any group.
func (b *backend) InGroup(ctx context.Context, who *proto.Caller, group string) (*proto.Caller, error) {
	gid, err := b.c.people.GroupNamed(ctx, group)
	if id, bad := strconv.ParseUint(group, 10, 32); errors.Is(err, userdb.ErrUnknown) && bad == nil {
		gid, err = uint32(id), nil
	}
	switch {
	case errors.Is(err, userdb.ErrUnknown):
		return nil, refuse(proto.CodeUser, "group_id: %s is unknown on controller %s: getent group finds no such group",
			group, b.c.opts.Name)
	case err != nil:
		return nil, refuse(proto.CodeBusy, "the group database of controller %s does not say what %s is: %v",
			b.c.opts.Name, group, err)
	case gid != who.GID && who.UID != 0 && !slices.Contains(who.Groups, gid):
		return nil, refuse(proto.CodeAccess, "group_id: user %s is not in group %s", who.User, group)
	}
	other := *who
	other.GID, other.Group = gid, b.c.people.Group(ctx, gid)
	return &other, nil
}

// person makes a caller of what the user database says of a name or number.
func (b *backend) person(ctx context.Context, name string, u userdb.User, err error) (*proto.Caller, error) {
	if errors.Is(err, userdb.ErrUnknown) {
		return nil, refuse(proto.CodeUser, "%s is unknown on controller %s: getent passwd finds no such user", name,
			b.c.opts.Name)
	}
	if err != nil {
		return nil, refuse(proto.CodeBusy, "the user database of controller %s does not say who %s is: %v", b.c.opts.Name,
			name, err)
	}
	return &proto.Caller{UID: u.UID, GID: u.GID, Groups: notRoots(u.UID, u.Groups), User: u.Name,
		Group: b.c.people.Group(ctx, u.GID), Host: b.c.host}, nil
}

// Local makes the caller of a process on this host, whom the kernel has named.
func (b *backend) Local(ctx context.Context, u *rpc.User) *proto.Caller {
	who := b.c.kernelSays(ctx, u).Caller
	return &who
}

// Token says for whom a token speaks: User, Less and Via of a caller.
func (b *backend) Token(text string) (proto.Caller, error) {
	claims, err := b.c.checkToken(text)
	if err != nil {
		return proto.Caller{}, err
	}
	return proto.Caller{User: claims.User, Less: uint8(model.RightsAdministrator - claims.Most), Via: viaOf(claims)}, nil
}

// Trusted reports whether a caller may name another user: an authenticating proxy does.
func (b *backend) Trusted(who *proto.Caller) bool {
	return who.Less == 0 && (who.UID == 0 || who.UID == b.c.opts.UID)
}

// Admit counts a request against its user's share.
func (b *backend) Admit(ctx context.Context, uid uint32, bytes int) (leave func(), err error) {
	return b.c.budget.Enter(ctx, share.Claim{Payer: server.Payer(uid), Bytes: bytes, Patience: forwardedPatience})
}

func (b *backend) caller(who *proto.Caller) *caller {
	return &caller{Caller: *who, most: model.RightsAdministrator - min(model.RightsAdministrator, model.Rights(who.Less)),
		from: model.FromController, via: who.Via}
}

// MayAsk refuses a kind of request that a user has no right to, by what this controller knows.
func (b *backend) MayAsk(who *proto.Caller, kind uint16) error {
	return b.c.mayAsk(b.caller(who), kind)
}

// MayChange reports whether a user may change a job.
func (b *backend) MayChange(who *proto.Caller, sp *model.Spec) bool {
	return b.c.mine(b.caller(who), &model.Job{Spec: sp})
}

// Ask makes a user's request, and passes each part of the answer to each; a part is the caller's until each returns.
// age says how old the facts of the answer are; 0: they are the present ones. A change is made once.
func (b *backend) Ask(ctx context.Context, who *proto.Caller, kind uint16, rq proto.Message,
	each func(part []byte) error) (age time.Duration, err error) {
	body, err := proto.Encode(rq)
	if err != nil {
		return 0, err
	}
	full, row := b.caller(who), proto.RequestOf(kind)
	if row.Effect == proto.Changes {
		defer func() { b.changed.Store(time.Now().UnixNano()) }()
	} else if own := b.readsOwn(kind, &row); own {
		age, err := b.c.askOwn(ctx, full, kind, body, each)
		var said *rpc.Error
		if !errors.As(err, &said) || said.Code != proto.CodeInvalidJob { // a job that is not known yet may be known there
			return age, err
		}
	}
	first := kind
	if row.ByID() {
		var id [proto.OnceIDBytes]byte
		_, _ = rand.Read(id[:]) // it never fails
		once := &proto.Once{ID: string(id[:]), Kind: kind, Body: body, AtMS: time.Now().UnixMilli()}
		if body, err = proto.Encode(once); err != nil {
			return 0, err
		}
		kind, row.Repeats = proto.KindOnce, true
	}
	for until := time.Now().Add(againFor); ; {
		parts, err := b.c.askAs(ctx, full, kind, body, each)
		var said *rpc.Error
		switch {
		case err == nil || parts > 0 || !errors.As(err, &said) || !row.Repeats || ctx.Err() != nil:
			return 0, err
		case said.Code != proto.CodeNotLeader && said.Code != proto.CodeNoController &&
			said.Code != proto.CodeUnknown && said.Code != rpc.CodeBusy:
			return 0, err
		case row.Effect == proto.Reads && row.WaitS == 0 && b.c.leaderless() > staleAfter:
			if _, known := handlers[first]; known && !handlers[first].asks {
				return b.c.askOwn(ctx, full, first, body, each)
			}
			return 0, err
		case time.Now().After(until):
			return 0, err
		}
		pause(ctx, againPace)
	}
}

// readsOwn reports whether a follower answers a question from its own facts.
func (b *backend) readsOwn(kind uint16, row *proto.Request) bool {
	c := b.c
	return !c.leading.Load() && row.Effect == proto.Reads && row.WaitS == 0 && !handlers[kind].asks &&
		!answeredAnywhere(kind) && time.Since(time.Unix(0, b.changed.Load())) > afterChange &&
		c.machine.View().Config().Cluster != "" && c.factsAge() < ownFacts
}

// askAs makes a user's request as if it had come over this controller's socket. parts counts what each was given.
func (c *Controller) askAs(ctx context.Context, who *caller, kind uint16, body []byte,
	each func(part []byte) error) (parts int, err error) {
	var failed error
	r := server.Direct(ctx, kind, body, rpc.LocalPeer(rpc.User{UID: who.UID, GID: who.GID, Groups: who.Groups}), c.log,
		func(flags uint16, body []byte) error {
			if failed != nil {
				return failed
			}
			if flags&rpc.FlagError == 0 {
				parts++
				failed = each(body)
				return failed
			}
			said, err := rpc.DecodeError(body)
			if failed = err; err == nil {
				failed = said
			}
			return nil
		})
	c.answer(ctx, r, who)
	if failed == nil && parts == 0 {
		failed = rpc.Errorf(proto.CodeInternal, "the request got no answer")
	}
	return parts, failed
}

// askOwn answers a question from this controller's facts.
func (c *Controller) askOwn(ctx context.Context, who *caller, kind uint16, body []byte,
	each func(part []byte) error) (age time.Duration, err error) {
	if err := c.mayAsk(who, kind); err != nil {
		return 0, err
	}
	h := handlers[kind]
	a := &call{who: who, kind: kind, body: body,
		r: server.Direct(ctx, kind, body, rpc.LocalPeer(rpc.User{UID: who.UID}), c.log, nil)}
	payer, price := c.payer(a, kind)
	if err := c.readers.limits.Pay(ctx, payer, price, c.queryRate()); err != nil {
		return 0, err
	}
	a.more = each
	if !h.waits {
		if err := c.readers.gate.Enter(ctx, payer); err != nil {
			return 0, err
		}
		a.more = c.gated(ctx, payer, each)
	}
	age = max(c.factsAge(), time.Millisecond)
	last, err := c.make(ctx, a, &h)
	if !h.waits {
		c.readers.gate.Leave()
	}
	a.bytes += len(last)
	c.readers.limits.Settle(payer, c.took(a)-price)
	if err != nil {
		return 0, err
	}
	return age, each(last)
}
