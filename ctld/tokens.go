package ctld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gbatch/ctld/issue"
	"gbatch/ctld/token"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
	"gbatch/internal/userdb"
)

// tokens.go makes users' tokens for HTTP (package token), and keeps the key that they are signed with: it is
// replicated, and each controller has it in a file too, for tools that make tokens by themselves.

// hostTokenS is the longest life of a token that a host has made in a user's name, seconds.
const (
	day        = 24 * 3600
	hostTokenS = 30 * day
)

// tokenKeyPace is from one look at the key to the next.
const tokenKeyPace = time.Second

// toldPace is from one look at the other controllers to the next.
const toldPace = 10 * time.Millisecond

// makeToken answers scontrol token.
func (c *Controller) makeToken(ctx context.Context, who *caller, rq *proto.TokenRequest) (*proto.TokenReply, error) {
	name := c.nameOf(who)
	administrator := c.level(who) >= model.AdminFull
	if h := c.opts.HTTP; h.NoTokens && !administrator {
		return nil, refuse(proto.CodeAccess,
			"administrators make the tokens here (AuthAltParameters: disable_token_creation, or jwks without jwt_key)")
	}
	if rq.User != "" && rq.User != name {
		if !administrator {
			return nil, refuse(proto.CodeAccess, "a token for another user is made by administrators, on a controller")
		}
		name = rq.User
		if _, err := c.people.Named(ctx, name); errors.Is(err, userdb.ErrUnknown) {
			return nil, refuse(proto.CodeUser, "%s is unknown on controller %s: getent passwd finds no such user", name,
				c.opts.Name)
		}
	}
	life := rq.LifeS
	if life == 0 {
		life = proto.DefaultTokenS
	}
	if life < 0 || life > proto.MaxTokenS {
		return nil, refuse(proto.CodeBadRequest, "lifespan=%d is not between 1 and %d seconds", life,
			int64(proto.MaxTokenS))
	}
	if who.via != nil && life > hostTokenS {
		return nil, refuse(proto.CodeBadRequest, "a token that is made on host %s lives %d seconds (%d days) at most; an "+
			"administrator makes longer ones on a controller", who.via.Name, int64(hostTokenS), hostTokenS/day)
	}
	if err := c.firstTokenKey(ctx); err != nil {
		return nil, err
	}
	at := time.UnixMilli(int64(c.now()))
	if revoked := time.UnixMilli(int64(c.machine.View().TokensRevoked(name))); at.Unix() <= revoked.Unix() {
		at = time.Unix(revoked.Unix()+1, 0) // a token's moments are in seconds
	}
	until := at.Add(time.Duration(life) * time.Second)
	claims := &token.Claims{User: name, At: at, Until: until, Most: who.most}
	if via := who.via; via != nil {
		claims.Via = &token.Via{Role: via.Role, Name: via.Name, Serial: via.Serial, Family: via.Family}
	}
	text, err := token.Make(c.machine.View().TokenKey(), claims)
	if err != nil {
		return nil, err
	}
	c.log.Info("token made", "for", name, "by", who.UID, "host", who.Host, "until", until.UTC().Format(time.RFC3339))
	return &proto.TokenReply{Token: text, User: name, Until: model.Time(until.UnixMilli())}, nil
}

// editTokens answers scontrol token revoke, newkey and export.
func (c *Controller) editTokens(ctx context.Context, who *caller,
	rq *proto.EditTokensRequest) (*proto.EditTokensReply, error) {
	if !rq.NewKey && !rq.Export && len(rq.Revoke) == 0 {
		return nil, refuse(proto.CodeBadRequest, "nothing to change: name the users whose tokens are revoked")
	}
	own := !rq.NewKey && !rq.Export
	name := c.nameOf(who)
	own = own && !slices.ContainsFunc(rq.Revoke, func(user string) bool { return user != name })
	if !own && c.level(who) < model.AdminFull {
		return nil, refuse(proto.CodeAccess,
			"users revoke their own tokens; the rest is for administrators, on a controller")
	}
	reply := &proto.EditTokensReply{}
	var x *state.Tokens
	switch {
	case rq.NewKey:
		x = &state.Tokens{Op: state.TokenKey, Key: rq.Key}
		if len(x.Key) == 0 {
			var err error
			if x.Key, err = issue.NewTokenKey(); err != nil {
				return nil, err
			}
		}
		if n := len(x.Key); n < model.LeastTokenKey || n > model.MostTokenKey {
			return nil, refuse(proto.CodeBadRequest, "a key has %d to %d bytes, this one has %d", model.LeastTokenKey,
				model.MostTokenKey, n)
		}
	case len(rq.Revoke) > 0:
		c.afterRevoked(ctx, rq.Revoke)
		x = &state.Tokens{Op: state.TokenRevoke, Users: rq.Revoke}
	}
	if x != nil {
		if rq.Export {
			return nil, refuse(proto.CodeBadRequest, "the key is exported by a request of its own")
		}
		switch res, err := c.change(ctx, reply, nil, x); {
		case err != nil:
			return nil, err
		case res.Refusal == state.Full:
			return nil, refuse(proto.CodeBusy, "tokens of very many users were revoked; `scontrol token newkey` makes a new "+
				"key, and no token of before counts")
		}
		c.saveRecord()
		c.toldAll(ctx)
		c.log.Info("tokens changed", "by", who.UID, "revoked", rq.Revoke, "new key", rq.NewKey)
	}
	if rq.Export {
		if err := c.firstTokenKey(ctx); err != nil {
			return nil, err
		}
		reply.Key = c.machine.View().TokenKey()
	}
	return reply, nil
}

// afterRevoked waits until the second is over in which tokens of these users were last revoked: those that were made
// since are of the next one (makeToken), and would outlive a revocation in the same second.
func (c *Controller) afterRevoked(ctx context.Context, users []string) {
	last := model.Time(0)
	for _, name := range users {
		last = max(last, c.machine.View().TokensRevoked(name))
	}
	const second = 1000
	next := (last/second + 1) * second
	for last > 0 && c.now() < next && ctx.Err() == nil {
		pause(ctx, time.Duration(next-c.now()+1)*time.Millisecond)
	}
}

// toldAll waits until the other controllers have the facts that this one has, so that none of them takes a token that
// was revoked. One that does not answer for as long has facts that are too old to answer from.
func (c *Controller) toldAll(ctx context.Context) {
	have := c.store.Progress().Applied
	for until := time.Now().Add(ownFacts); ctx.Err() == nil && time.Now().Before(until); pause(ctx, toldPace) {
		c.comparePeers(ctx)
		behind := false
		for _, p := range c.members() {
			n, ok := c.news(ctx, p.Name)
			behind = behind || !ok || n.Index < have
		}
		if !behind {
			return
		}
	}
}

func (c *Controller) tokenPath() string {
	if p := c.opts.HTTP.JWTKey; p != "" {
		return p
	}
	return filepath.Join(c.opts.PKI, issue.TokenFile)
}

// firstTokenKey makes sure that there is a key: the one of this controller's file, or a new one. It runs on the leader.
func (c *Controller) firstTokenKey(ctx context.Context) error {
	have := c.machine.View().TokenKey()
	if have != nil && c.opts.HTTP.JWTKey == "" {
		return nil
	}
	key, err := c.readKey(ctx)
	if n := len(key); err == nil && (n < model.LeastTokenKey || n > model.MostTokenKey) {
		err = errors.New("it has less than 16 bytes, or too many")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Error("the key for tokens can't be read", "file", c.tokenPath(), "err", err)
		if have == nil {
			return refuse(proto.CodeConfig, "the key for tokens in %s can't be read: %v", c.tokenPath(), err)
		}
		return nil
	}
	x := &state.Tokens{Op: state.TokenFirst, Key: key}
	switch {
	case err != nil && have != nil, have != nil && bytes.Equal(have, key):
		return nil
	case err != nil:
		if x.Key, err = issue.NewTokenKey(); err != nil {
			return err
		}
	case have != nil:
		x.Op = state.TokenKey // the file that the site names counts
		c.log.Warn("tokens of before count no more: jwt_key names another key", "file", c.tokenPath())
	}
	_, err = c.propose(ctx, x)
	return err
}

// keyPatience is for the key's file, which may be on a file system that hangs.
const keyPatience = 5 * time.Second

// readKey reads the key's file. While a read of it hangs, others wait for that one.
func (c *Controller) readKey(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keyPatience,
		fmt.Errorf("%s was not read within %s: its file system hangs", c.tokenPath(), keyPatience))
	defer cancel()
	select {
	case c.readers.keys <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		key []byte
		err error
	}
	read := make(chan result, 1)
	go func() { // ends with the read
		defer func() { <-c.readers.keys }()
		key, err := os.ReadFile(c.tokenPath())
		read <- result{key, err}
	}()
	select {
	case r := <-read:
		return r.key, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leadTokenKey is the leader's part: there is a key before anybody asks.
func (c *Controller) leadTokenKey(ctx context.Context) {
	for err := c.firstTokenKey(ctx); err != nil && ctx.Err() == nil; err = c.firstTokenKey(ctx) {
		c.log.Warn("there is no key for tokens yet", "err", err)
		pause(ctx, 10*tokenKeyPace)
	}
}

// keepTokenFile gives this controller's file the key that is replicated. A file that the site names is left alone once
// it is there.
func (c *Controller) keepTokenFile(ctx context.Context) {
	var written []byte
	for ; ctx.Err() == nil; pause(ctx, tokenKeyPace) {
		key := c.machine.View().TokenKey()
		if key == nil || bytes.Equal(key, written) {
			continue
		}
		written = key
		have, err := c.readKey(ctx)
		if err == nil && (bytes.Equal(have, key) || c.opts.HTTP.JWTKey != "") {
			continue
		}
		if err := pki.WriteFile(c.tokenPath(), key, 0o600); err != nil {
			c.log.Warn("the key for tokens was not written to its file", "file", c.tokenPath(), "err", err)
		}
	}
}

// checkToken says for whom a token speaks.
func (c *Controller) checkToken(text string) (*token.Claims, error) {
	claims, err := c.tokens.Check(text)
	if err != nil {
		return nil, err
	}
	at := model.Time(0) // a token that does not say when it was made was made before any revocation
	if !claims.At.IsZero() {
		at = model.Time(claims.At.UnixMilli())
	}
	const second = 1000 // see makeToken
	v := c.machine.View()
	revoked := v.TokensRevoked(claims.User)
	if r := c.record.Load(); r.IsKey(v.TokenKey()) {
		revoked = max(revoked, r.TokensRevoked(claims.User))
	}
	if revoked != 0 && at/second <= revoked/second {
		return nil, errors.New("the user's tokens were revoked")
	}
	if via := viaOf(claims); via != nil && c.revoked(v, via) != nil {
		return nil, errors.New("the certificate of the host that it was made through was revoked")
	}
	return claims, nil
}

// viaOf gives the certificate of the host that a token was made through, or nil. Its moment is the token's: the
// certificate was issued before.
func viaOf(claims *token.Claims) *model.Cert {
	via := claims.Via
	if via == nil {
		return nil
	}
	at := model.Time(0)
	if !claims.At.IsZero() {
		at = model.Time(claims.At.UnixMilli())
	}
	return &model.Cert{Role: via.Role, Name: via.Name, Serial: via.Serial, Family: via.Family, At: at}
}
