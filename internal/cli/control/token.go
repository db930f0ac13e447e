package control

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/proto"
)

// token is scontrol token [username=NAME] [lifespan=SECONDS|infinite], and the verbs about tokens that exist.
func (c *control) token(words []string) error {
	if len(words) > 0 {
		switch strings.ToLower(words[0]) {
		case "revoke":
			return c.revokeTokens(words[1:])
		case "newkey":
			return c.newTokenKey(words[1:])
		case "export":
			if len(words) > 1 {
				return errors.New("token export takes nothing more; it writes the key to standard output")
			}
			return c.exportTokenKey()
		}
	}
	rq := &proto.TokenRequest{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch strings.ToLower(key) {
		case "username", "user":
			rq.User = value
		case "lifespan":
			if strings.EqualFold(value, "infinite") || strings.EqualFold(value, "unlimited") {
				rq.LifeS = proto.MaxTokenS
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return fmt.Errorf("'%s' is no number of seconds above 0, nor infinite", w)
			}
			rq.LifeS = n
		default:
			return fmt.Errorf("'%s': token takes username=NAME and lifespan=SECONDS; token revoke, newkey and export are "+
				"about tokens that exist", w)
		}
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.TokenReply
	if err := cl.Call(proto.KindToken, rq, &r); err != nil {
		return plain{fmt.Errorf("scontrol: error: Failed to create token: %s", env.Text(err))}
	}
	fmt.Fprintf(c.Stdout, "SLURM_JWT=%s\n", r.Token)
	return nil
}

func (c *control) editTokens(rq *proto.EditTokensRequest) (*proto.EditTokensReply, error) {
	cl, err := c.ask()
	if err != nil {
		return nil, err
	}
	var r proto.EditTokensReply
	if err := cl.Call(proto.KindEditTokens, rq, &r); err != nil {
		return nil, plain{err}
	}
	return &r, nil
}

func (c *control) revokeTokens(words []string) error {
	rq := &proto.EditTokensRequest{}
	for _, w := range words {
		if key, value, has := strings.Cut(w, "="); has {
			if !strings.EqualFold(key, "username") && !strings.EqualFold(key, "user") {
				return fmt.Errorf("'%s': write token revoke NAME, or username=NAME", w)
			}
			w = value
		}
		rq.Revoke = append(rq.Revoke, env.SplitList(w)...)
	}
	if len(rq.Revoke) == 0 {
		return errors.New("whose tokens? Write token revoke NAME: all tokens of that user until now count no more")
	}
	_, err := c.editTokens(rq)
	return err
}

func (c *control) newTokenKey(words []string) error {
	rq := &proto.EditTokensRequest{NewKey: true}
	switch {
	case len(words) > 1:
		return errors.New("token newkey takes one file with a key, or nothing: then the cluster makes one")
	case len(words) == 1:
		key, err := os.ReadFile(words[0])
		if err != nil {
			return err
		}
		rq.Key = key
	}
	_, err := c.editTokens(rq)
	return err
}

func (c *control) exportTokenKey() error {
	r, err := c.editTokens(&proto.EditTokensRequest{Export: true})
	if err != nil {
		return err
	}
	_, err = c.Stdout.Write(r.Key)
	return err
}
