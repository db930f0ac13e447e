package dbd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/trust"
)

// This file owns users' questions that daemons of nodes and login hosts pass on to gdbd, so that gacct works without
// any controller. They have connections of their own (pki.ProtoAcct), which can't take the controllers' places.
//
// Who may see what is the controllers' knowledge (PrivateData, operators, coordinators): the leader tells it when it
// changes, and it is kept in the database. As on a controller, reading needs no trust in the daemon that passes a
// question on, and nobody whom such a daemon names sees more than an ordinary user. A gdbd that was never told refuses;
// the question then goes to the leader.

const (
	// maxUserConns bounds the connections of nodes and login hosts; a daemon has one, and only once its users ask.
	maxUserConns = 4096
	// maxPeerConns bounds those of one of them.
	maxPeerConns = 16
	// userIdle is how long such a connection may be idle.
	userIdle = 10 * time.Minute
	// userRequest is the size of their largest request, bytes.
	userRequest = 2 << 20
	// userPatience is how long a question waits for its user's other questions to be answered.
	userPatience = 5 * time.Second
)

// keySight is in the meta bucket: proto.Sight.
var keySight = []byte("sight")

var errNotTold = rpc.Errorf(proto.CodeNotHere, "the controllers have not told this accounting daemon who may see what")

// handleUser answers one question that a daemon passes on.
func (d *Daemon) handleUser(ctx context.Context, r *server.Request) {
	if err := d.answerUser(ctx, r); err != nil {
		d.fail(r, err)
	}
}

func (d *Daemon) answerUser(ctx context.Context, r *server.Request) error {
	role, name, _ := r.Peer.Daemon()
	if r.Kind == proto.KindPing {
		return r.Reply(nil)
	}
	var f proto.Forward
	if r.Kind != proto.KindForward || !trust.Asks(trust.OfRole(role), r.Kind) {
		return badRequest("a daemon can only pass questions on here (kind %d)", r.Kind)
	}
	if err := proto.Decode(r.Body, &f); err != nil {
		return badRequest("a question that can't be read: %v", err)
	}
	if f.Kind != proto.KindAcct {
		return badRequest("the accounting daemon answers questions about records only (kind %d)", f.Kind)
	}
	s := d.db.sight.Load()
	if s == nil {
		return errNotTold
	}
	leave, err := d.budget.Enter(ctx, share.Claim{Payer: payerOf(f.Caller.UID, role, name), Bytes: len(f.Body),
		Again: true, Patience: userPatience})
	if err != nil {
		return err
	}
	defer leave()
	see, err := eyeOf(s, trust.OfRole(role), &f.Caller)
	if err != nil {
		return err
	}
	return d.query(ctx, r, f.Body, see)
}

// payerOf names who pays for a question: on a login host, its user, so that its other users do not wait. A node has to
// pay by itself: gdbd does not know whether it may speak for whom it names.
func payerOf(uid uint32, role, name string) string {
	if trust.OfRole(role) != trust.LoginHost || uid == 0 {
		return role + " " + name
	}
	return server.Payer(uid)
}

// query answers a question about records. see is nil for who may see all.
func (d *Daemon) query(ctx context.Context, r *server.Request, question []byte, see *eye) error {
	var q proto.AcctRequest
	if err := proto.Decode(question, &q); err != nil {
		return badRequest("a question that can't be read: %v", err)
	}
	if err := d.lost(ctx); err != nil {
		if d.follow != nil { // the other one may know
			return rpc.Errorf(proto.CodeNotHere, "%s", err.Error())
		}
		return err
	}
	if err := d.follow.ready(ctx); err != nil {
		return err
	}
	d.fresh.Wait(ctx)
	var body []byte
	err := d.db.queryAs(ctx, &q, see, func(records [][]byte, summaries []string) error {
		body = appendChunk(body[:0], records)
		if len(summaries) > 0 {
			body = appendSummaries(body, summaries)
		}
		return r.ReplyMore(body)
	})
	if err != nil {
		return err
	}
	if note := d.follow.note(); note != "" {
		if body, err = proto.Encode(&proto.RecordsChunk{Note: note}); err != nil {
			return err
		}
		return r.Reply(body)
	}
	return r.Reply(appendChunk(body[:0], nil))
}

// eye is whose jobs one user may see: their own.
type eye struct {
	uid uint32
}

// eyeOf gives what a user may see for whom a daemon asks; nil: all. Hosts are believed about ordinary users only: who
// sees more, on a login host that LoginRights allows it, is asked of the leader.
func eyeOf(s *proto.Sight, by trust.Caller, who *proto.Caller) (*eye, error) {
	switch {
	case trust.Vouch(&trust.Claim{By: by, Kind: proto.KindAcct, Effect: proto.Reads, UID: who.UID}) != trust.Believed:
		return nil, rpc.Errorf(proto.CodeAccess, "%s", proto.Text(proto.CodeAccess))
	case !s.HidesJobs:
		return nil, nil
	case by == trust.Node:
		return nil, rpc.Errorf(proto.CodeNotHere, "the controllers know whether the user has a job on this node")
	case trust.MostRights(by, s.LoginRights) > model.RightsUser:
		return nil, rpc.Errorf(proto.CodeNotHere, "the controllers know what operators of this host may see")
	}
	return &eye{uid: who.UID}, nil
}

// setSight keeps who may see what.
func (d *Daemon) setSight(ctx context.Context, r *server.Request) error {
	s := &proto.Sight{}
	if err := proto.Decode(r.Body, s); err != nil {
		return badRequest("a message that can't be read: %v", err)
	}
	body := bytes.Clone(r.Body)
	same := errors.New("it is the same")
	err := d.db.view(func(tx *bolt.Tx) error {
		if bytes.Equal(tx.Bucket(keyMeta).Get(keySight), body) {
			return same
		}
		return nil
	})
	if err == nil {
		err = d.db.alter(ctx, func(tx *bolt.Tx) error { return tx.Bucket(keyMeta).Put(keySight, body) })
	}
	if err != nil && !errors.Is(err, same) {
		return err
	}
	d.db.sight.Store(s)
	d.takeRevoked(s)
	return r.Reply(nil)
}

// takeRevoked refuses the certificates that were revoked, and ends their connections.
func (d *Daemon) takeRevoked(s *proto.Sight) {
	if s == nil || s.Revoked == nil { // of an older leader
		return
	}
	if closed := d.creds.Refuse(certs.Refusing(s.Revoked.List)); closed > 0 {
		d.opts.Logger.Warn("connections with revoked certificates were closed", "count", closed)
	}
}

// loadSight reads who may see what.
func (d *db) loadSight() error {
	return d.view(func(tx *bolt.Tx) error {
		body := tx.Bucket(keyMeta).Get(keySight)
		if body == nil {
			return nil
		}
		s := &proto.Sight{}
		if err := proto.Decode(bytes.Clone(body), s); err != nil {
			return fmt.Errorf("reading who may see what: %w", err)
		}
		d.sight.Store(s)
		return nil
	})
}
