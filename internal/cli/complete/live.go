package complete

import (
	"errors"
	"os"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// live.go asks the cluster for its partitions, jobs and the like. Somebody waits with a finger on a key: what isn't
// answered soon is left out, and no error is printed into the line.

const patience = 500 * time.Millisecond

// live gives the cluster's words of a kind.
func live(e *env.Env, kind getopt.Kind) []getopt.Word {
	c, err := e.Connect()
	if err != nil {
		return nil
	}
	defer c.Close()
	c.WhenOld(func(time.Duration, string) {}) // what was true a moment ago is good enough, and nothing is said
	c.Within(patience)
	a := &asking{c: c}
	switch kind {
	case getopt.Jobs:
		return a.jobs()
	case getopt.Partitions:
		return a.partitions()
	case getopt.Accounts, getopt.Users, getopt.QOS, getopt.WCKeys:
		return a.accounts(kind)
	case getopt.Reservations:
		return a.reservations()
	}
	return a.config(kind)
}

// asking collects answers. Errors leave it with what it has.
type asking struct {
	c     *client.Client
	words []getopt.Word
}

func (a *asking) add(text, help string) {
	a.words = append(a.words, getopt.Word{Text: text, Help: help})
}

// jobs gives those that have not ended: for root all, for others their own.
func (a *asking) jobs() []getopt.Word {
	rq := &proto.JobsRequest{Default: true}
	if uid := os.Getuid(); uid != 0 {
		rq.Filter.Users = []uint32{uint32(uid)}
	}
	_ = a.c.Stream(proto.KindJobs, rq, func(body []byte) error { // what came is offered
		var chunk proto.JobsChunk
		if err := a.c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			a.add(jobtext.JobID(j), j.Spec.User+" "+j.State.String()+" "+j.Spec.Name)
		}
		if len(a.words) > maxWords {
			return errEnough
		}
		return nil
	})
	return a.words
}

// errEnough ends a list that is long enough.
var errEnough = errors.New("enough")

func (a *asking) partitions() []getopt.Word {
	var reply proto.PartitionsReply
	_ = a.c.Call(proto.KindPartitions, &proto.Empty{}, &reply) // without an answer there are none
	for i, p := range reply.Partitions {
		if !reply.Hides(i) {
			a.add(p.Name, "")
		}
	}
	return a.words
}

func (a *asking) reservations() []getopt.Word {
	var reply proto.ReservationsReply
	_ = a.c.Call(proto.KindReservations, &proto.Empty{}, &reply) // without an answer there are none
	for _, r := range reply.List {
		a.add(r.Name, "")
	}
	return a.words
}

func (a *asking) accounts(kind getopt.Kind) []getopt.Word {
	_ = a.c.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error { // what came is offered
		var chunk proto.AccountsChunk
		if err := a.c.Decode(body, &chunk); err != nil {
			return err
		}
		switch kind {
		case getopt.Accounts:
			for _, x := range chunk.Accounts {
				a.add(x.Name, x.Description)
			}
		case getopt.Users:
			for _, x := range chunk.Users {
				a.add(x.Name, "")
			}
		case getopt.WCKeys:
			for _, x := range chunk.WCKeys {
				a.add(x.Name, "")
			}
		default:
			for _, x := range chunk.QOS {
				a.add(x.Name, x.Description)
			}
		}
		return nil
	})
	return a.words
}

// config gives what the configuration names.
func (a *asking) config(kind getopt.Kind) []getopt.Word {
	var reply proto.ConfigReply
	if a.c.Call(proto.KindConfig, &proto.Empty{}, &reply) != nil || reply.Config == nil {
		return nil
	}
	cfg := reply.Config
	switch kind {
	case getopt.Clusters:
		a.add(cfg.Cluster, "")
		a.add("all", "")
	case getopt.Licenses:
		for _, l := range cfg.Licenses {
			a.add(l.Name, "")
		}
	default:
		for _, n := range cfg.Nodes {
			a.node(kind, n)
		}
	}
	return a.words
}

// node adds a node, its features or the kinds of its generic resources. What comes twice is printed once.
func (a *asking) node(kind getopt.Kind, n *model.NodeDef) {
	switch kind {
	case getopt.Nodes:
		a.add(n.Name, "")
	case getopt.Features:
		for _, f := range n.Features {
			a.add(f, "")
		}
	case getopt.Gres:
		for _, g := range n.Gres {
			a.add(g.Name, "")
			a.add(g.Name+":", "with a type or a number")
			if g.Type != "" {
				a.add(g.Name+":"+g.Type, "")
			}
		}
	}
}
