package ctld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// acct.go passes gacct's questions on to a gdbd, over one kept connection, and tells each gdbd who may see what.
// Records go there over another (outbox.go).
//
// There can be two: the first (AccountingStorageHost) and its copy (AccountingStorageBackupHost). Both get every record
// from the leader, each from its own position on, so they can't come to have different ones. A record counts as
// acknowledged once one of them has it; the other one gets it from those that are kept, or takes a copy of the whole
// database from the first (dbd/follow.go). Questions go to the copy while the first does not answer.

// dbd is one accounting daemon, as the leader knows it.
type dbd struct {
	addr string
	copy bool
	link link // for gacct's questions

	up   atomic.Bool
	says atomic.Pointer[dbdSays] // nil: nothing yet
	has  atomic.Int64            // it has all records up to this number; hasUnknown
	took atomic.Int64            // its last answer about records, µs
}

const hasUnknown = -1

func dbdsOf(o *Options) (out []*dbd) {
	if o.DbdAddr == "" {
		return nil
	}
	out = append(out, &dbd{addr: o.DbdAddr})
	if o.DbdCopy != "" {
		out = append(out, &dbd{addr: o.DbdCopy, copy: true})
	}
	for _, d := range out {
		d.has.Store(hasUnknown)
	}
	return out
}

// behind gives how many records it lacks, also while it is down; -1: not known.
func (d *dbd) behind(v *state.View) int64 {
	has := d.has.Load()
	if has == hasUnknown {
		return -1
	}
	return max(0, int64(v.NextRecord())-1-has)
}

// dbdSays is what the leader last heard of gdbd.
type dbdSays struct {
	why   error    // it takes no records
	notes []string // of its database
}

// pongDbd adds what is known of the accounting daemons to a ping's answer.
func (c *Controller) pongDbd(r *proto.PingReply) {
	v := c.machine.View()
	for _, d := range c.dbds {
		one := proto.DbdInfo{Addr: d.addr, Copy: d.copy, Up: d.up.Load(), Behind: d.behind(v),
			TookUS: d.took.Load()}
		if s := d.says.Load(); s != nil && c.leading.Load() {
			one.Notes = s.notes
			if s.why != nil && !one.Up {
				one.Why = s.why.Error()
				one.Why = one.Why[:min(len(one.Why), model.MaxText)]
			}
		}
		r.Dbds = append(r.Dbds, one)
	}
	if len(r.Dbds) > 0 {
		first := &r.Dbds[0]
		if n, _, err := c.dead.Look(); n > 0 || err != nil {
			first.Notes = append(slices.Clip(first.Notes), c.refusedNote(n, err))
		}
		r.Dbd, r.DbdUp, r.DbdWhy, r.DbdNotes = first.Addr, first.Up, first.Why, first.Notes
	}
}

// refusedNote says that records were put aside, and what to do.
func (c *Controller) refusedNote(n int, err error) string {
	if err != nil {
		return fmt.Sprintf("%s can't be read: %v", c.dead.Dir, err)
	}
	return fmt.Sprintf("gdbd refused %d accounting records, which are kept on %s in %s: read them, and remove them", n,
		c.opts.Name, c.dead.Dir)
}

// acct answers gacct. It passes the request on unchanged: gdbd may know more fields than this version.
func (c *Controller) acct(ctx context.Context, a *call) (message, error) {
	if err := a.decode(new(proto.AcctRequest)); err != nil {
		return nil, err
	}
	pass := c.sees(c.machine.View(), a.who).records(a.more)
	return &proto.RecordsChunk{}, c.query(ctx, proto.KindQuery, a.body, pass)
}

// usageReport answers greport, and gacctmgr about events and transactions. Users whom PrivateData keeps from others'
// usage, and who are no operators, get their own; the trail of others' changes only operators see.
func (c *Controller) usageReport(ctx context.Context, a *call) (message, error) {
	q := &proto.UsageQuery{UID: a.who.UID}
	if err := a.decode(&q.Report); err != nil {
		return nil, err
	}
	v := c.machine.View()
	sees := c.sees(v, a.who)
	q.User = c.nameOf(a.who)
	switch q.Report.What {
	case proto.ReportTrail:
		q.Only = !c.operator(a.who)
	case proto.ReportResvs:
		if err := sees.denied("reservations"); err != nil {
			return nil, err
		}
		q.Only = sees.hides("usage")
	case proto.ReportUsage:
		q.Only = sees.hides("usage")
	case proto.ReportBills:
		q.Only, q.Report.Clusters = sees.hides("usage"), []string{v.Config().Cluster}
		q.Prices, q.Report.Accounts = &v.Config().Params.Price, v.Below(q.Report.Accounts)
		if !q.Prices.Priced() {
			return nil, refuse(proto.CodeBadRequest,
				"nothing has a price; write lines such as Price=gres/gpu=2.0 into gbatch.conf")
		}
	case proto.ReportEvents:
		if sees.hides("events") {
			return nil, sees.denied("events")
		}
	}
	body, err := proto.Encode(q)
	if err != nil {
		return nil, err
	}
	return &proto.ReportChunk{}, c.query(ctx, proto.KindUsage, body, a.more)
}

// past answers a question about samples. PrivateData hides others' jobs here as elsewhere.
func (c *Controller) past(ctx context.Context, a *call) (message, error) {
	q := &proto.HistoryQuery{UID: a.who.UID}
	if err := a.decode(&q.Ask); err != nil {
		return nil, err
	}
	v := c.machine.View()
	sees := c.sees(v, a.who)
	q.Only = sees.hides("jobs")
	if err := sees.samples(q); err != nil {
		return nil, err
	}
	body, err := proto.Encode(q)
	if err != nil {
		return nil, err
	}
	return &proto.HistoryReply{}, c.query(ctx, proto.KindPast, body, a.r.ReplyMore)
}

// query asks the accounting daemon, or its copy if that one does not answer or lacks records, and passes the answer on
// frame by frame.
func (c *Controller) query(ctx context.Context, kind uint16, body []byte, pass func([]byte) error) error {
	if len(c.dbds) == 0 {
		return refuse(proto.CodeNoAccounting,
			"this cluster has no accounting daemon; name one with AccountingStorageHost= in gbatch.conf")
	}
	order := slices.Clone(c.dbds)
	if len(order) > 1 && !order[0].up.Load() && order[1].up.Load() { // nobody waits for one that is known to be away
		slices.Reverse(order)
	}
	var first error
	for _, d := range order {
		passed, err := c.queryOf(ctx, d, kind, body, pass)
		var answered *rpc.Error
		if err == nil || passed || !errors.As(err, &answered) || ctx.Err() != nil ||
			answered.Code != proto.CodeNoAccounting && answered.Code != proto.CodeNotHere {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return rpc.Errorf(proto.CodeNoAccounting, "%s", first.Error())
}

// queryOf asks one gdbd. A connection that broke before the first frame, as it does when gdbd has been restarted, is
// opened again once. passed says that something of an answer was passed on.
func (c *Controller) queryOf(ctx context.Context, d *dbd, kind uint16, body []byte,
	pass func([]byte) error) (passed bool, err error) {
	silent := func(why error) error {
		return refuse(proto.CodeNoAccounting,
			"the accounting daemon at %s does not answer (%v); jobs go on, and their records arrive once it is back",
			d.addr, why)
	}
	for again := false; ; again = true {
		m, err := d.link.to(ctx, d.addr, func() (*rpc.Mux, error) { return c.dialDbd(context.Background(), d) })
		if err != nil {
			return false, silent(err)
		}
		err = m.Stream(ctx, kind, body, func(f *rpc.Frame) error {
			passed = true
			return pass(f.Body)
		})
		var answered *rpc.Error
		switch {
		case err == nil, ctx.Err() != nil, m.Err() == nil: // also if pass has failed
			return passed, err
		case errors.As(err, &answered):
			return passed, err
		case passed, again:
			return passed, silent(err)
		}
	}
}

func (c *Controller) dialDbd(ctx context.Context, d *dbd) (*rpc.Mux, error) {
	return c.dialTLS(ctx, d.addr, pki.RoleDBD)
}

// gdbd answers users by itself too: without a detour, and when no controller leads. The leader tells it who may see
// whose records, as private.go decides.

const (
	sightPace  = time.Second     // between two looks at facts that change all the time
	sightRetry = 2 * time.Second // after a failure
)

// tellSight tells each gdbd, when it changes and when it was just reached, until ctx ends.
func (c *Controller) tellSight(ctx context.Context) {
	var each sync.WaitGroup
	for _, d := range c.dbds {
		each.Go(func() { c.tellSightTo(ctx, d) })
	}
	each.Wait()
}

func (c *Controller) tellSightTo(ctx context.Context, d *dbd) {
	var told []byte
	var by *rpc.Mux
	var cfg *model.Config
	gen, revoked := uint64(0), uint64(0)
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		v := c.machine.View()
		if by == nil || by.Err() != nil || cfg != v.Config() || gen != v.AcctGen() ||
			revoked != v.RevokedGen() {
			body, err := proto.Encode(c.sightOf(v))
			if err == nil && (by == nil || by.Err() != nil || !bytes.Equal(body, told)) {
				by, err = c.tell(ctx, d, body)
			}
			if err != nil {
				c.log.Debug("gdbd was not told who may see what", "err", err)
				pause(ctx, sightRetry)
				continue
			}
			told, cfg, gen, revoked = body, v.Config(), v.AcctGen(), v.RevokedGen()
		}
		select {
		case <-changed:
			pause(ctx, sightPace)
		case <-by.Done():
		case <-ctx.Done():
		}
	}
}

// tell sends one message to gdbd. One that is older and does not know it is not asked again on this connection.
func (c *Controller) tell(ctx context.Context, d *dbd, body []byte) (*rpc.Mux, error) {
	m, err := d.link.to(ctx, d.addr, func() (*rpc.Mux, error) { return c.dialDbd(context.Background(), d) })
	if err != nil {
		return nil, err
	}
	if _, err := m.Call(ctx, proto.KindSight, body); err != nil && (m.Err() != nil || ctx.Err() != nil) {
		return nil, err
	}
	return m, nil
}

// sightOf gives who may see whose records.
func (c *Controller) sightOf(v *state.View) *proto.Sight {
	s := &proto.Sight{Revoked: c.issuer.Revoked()}
	anybody := &sight{c: c, v: v, who: &caller{}, hid: v.Config().Params.PrivateData}
	if !anybody.hides("jobs") {
		return s
	}
	s.HidesJobs, s.Full, s.LoginRights = true, []uint32{c.opts.UID}, v.Config().Params.LoginRights
	v.Users(func(u *model.User) bool {
		if u.Admin >= model.AdminOperator {
			s.Operators = append(s.Operators, u.Name)
		}
		return len(s.Operators) < model.MaxList
	})
	v.Accounts(func(a *model.Account) bool {
		for up := a; up != nil; up = v.Account(up.Parent) {
			for _, user := range up.Coordinators {
				if len(s.Coordinators) < model.MaxList { // beyond it they see less
					s.Coordinators = append(s.Coordinators, proto.Coordinator{User: user, Account: model.AccountName(a.Name)})
				}
			}
		}
		return len(s.Coordinators) < model.MaxList
	})
	return s
}
