package ctld

import (
	"bytes"
	"context"
	"errors"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// acct.go passes gacct's questions on to gdbd, over one kept connection, and tells gdbd who may see what. Records go to
// gdbd over another (outbox.go).

// dbdSays is what the leader last heard of gdbd.
type dbdSays struct {
	why   error    // it takes no records
	notes []string // of its database
}

// pongDbd adds what is known of gdbd to a ping's answer.
func (c *Controller) pongDbd(r *proto.PingReply) {
	r.Dbd, r.DbdUp = c.opts.DbdAddr, c.dbdUp.Load()
	if s := c.dbdSays.Load(); s != nil && c.leading.Load() {
		r.DbdNotes = s.notes
		if s.why != nil && !r.DbdUp {
			r.DbdWhy = s.why.Error()
			r.DbdWhy = r.DbdWhy[:min(len(r.DbdWhy), model.MaxText)]
		}
	}
}

// acct answers gacct. It passes the request on unchanged: gdbd may know more fields than this version.
func (c *Controller) acct(ctx context.Context, a *call) (message, error) {
	if err := a.decode(new(proto.AcctRequest)); err != nil {
		return nil, err
	}
	return &proto.RecordsChunk{}, c.query(ctx, a.body, c.sees(c.machine.View(), a.who).records(a.r.ReplyMore))
}

// query asks gdbd and passes its answer on frame by frame. A connection that broke before the first one, as it does
// when gdbd has been restarted, is opened again once.
func (c *Controller) query(ctx context.Context, body []byte, pass func([]byte) error) error {
	if c.opts.DbdAddr == "" {
		return refuse(proto.CodeNoAccounting,
			"this cluster has no accounting daemon; name one with AccountingStorageHost= in gbatch.conf")
	}
	silent := func(why error) error {
		return refuse(proto.CodeNoAccounting,
			"the accounting daemon at %s does not answer (%v); jobs go on, and their records arrive once it is back",
			c.opts.DbdAddr, why)
	}
	for again := false; ; again = true {
		m, err := c.dbd.to(ctx, c.opts.DbdAddr, func() (*rpc.Mux, error) { return c.dialDbd(context.Background()) })
		if err != nil {
			return silent(err)
		}
		passed := false
		err = m.Stream(ctx, proto.KindQuery, body, func(f *rpc.Frame) error {
			passed = true
			return pass(f.Body)
		})
		var answered *rpc.Error
		switch {
		case err == nil, ctx.Err() != nil, m.Err() == nil: // also if pass has failed
			return err
		case errors.As(err, &answered):
			return err
		case passed, again:
			return silent(err)
		}
	}
}

func (c *Controller) dialDbd(ctx context.Context) (*rpc.Mux, error) {
	return c.dialTLS(ctx, c.opts.DbdAddr, pki.RoleDBD)
}

// gdbd answers users by itself too: without a detour, and when no controller leads. The leader tells it who may see
// whose records, as private.go decides.

const (
	sightPace  = time.Second      // between two looks at facts that change all the time
	sightRetry = 10 * time.Second // after a failure
)

// tellSight tells gdbd, when it changes and to each gdbd that was just reached, until ctx ends.
func (c *Controller) tellSight(ctx context.Context) {
	if c.opts.DbdAddr == "" {
		return
	}
	var told []byte
	var by *rpc.Mux
	var cfg *model.Config
	gen := uint64(0)
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		v := c.machine.View()
		if by == nil || by.Err() != nil || cfg != v.Config() || gen != v.AcctGen() {
			body, err := proto.Encode(c.sightOf(v))
			if err == nil && (by == nil || by.Err() != nil || !bytes.Equal(body, told)) {
				by, err = c.tell(ctx, body)
			}
			if err != nil {
				c.log.Debug("gdbd was not told who may see what", "err", err)
				pause(ctx, sightRetry)
				continue
			}
			told, cfg, gen = body, v.Config(), v.AcctGen()
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
func (c *Controller) tell(ctx context.Context, body []byte) (*rpc.Mux, error) {
	m, err := c.dbd.to(ctx, c.opts.DbdAddr, func() (*rpc.Mux, error) { return c.dialDbd(context.Background()) })
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
	s := &proto.Sight{}
	anybody := &sight{c: c, v: v, hid: v.Config().Params.PrivateData}
	if !anybody.hides("jobs") {
		return s
	}
	s.HidesJobs, s.Full = true, []uint32{c.opts.UID}
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
