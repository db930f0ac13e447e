package ctld

import (
	"context"
	"errors"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// acct.go passes gacct's questions on to gdbd, over one kept connection. Records go to gdbd over another (outbox.go).

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
