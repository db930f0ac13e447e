package resv

import (
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// change.go is what adds to a value that there is, or takes away from it: KEY+= and KEY-=.

// lasts reads Duration=, Duration+= and Duration-=.
func (d *draft) lasts(kv model.KV, how byte) error {
	s, err := durationOf(kv.Key, kv.Value)
	if err != nil {
		return err
	}
	switch how {
	case '+':
		s = d.durationS + s
	case '-':
		s = d.durationS - s // times refuses what leaves nothing
	}
	d.durationS, d.timed = s, true
	return nil
}

// users changes the users, of whom new ones have to exist.
func (d *draft) users(value string, how byte) (err error) {
	old := d.r.Users
	if d.r.Users, err = changed(old, value, how); err != nil {
		return err
	}
	for _, name := range newNames(old, value) {
		if d.User == nil {
			break
		}
		if err := d.User(name); err != nil {
			return err
		}
	}
	return nil
}

// newNames gives the names of a list that the old one does not have, whether they are added or taken away. Those that
// it has may have ceased to exist since.
func newNames(old []string, value string) (out []string) {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimPrefix(strings.TrimSpace(name), "-")
		if name != "" && !slices.Contains(old, name) && !slices.Contains(old, "-"+name) {
			out = append(out, name)
		}
	}
	return out
}

// accounts changes the accounts; new ones have to exist where those of jobs have to.
func (d *draft) accounts(value string, how byte) (err error) {
	old := make([]string, len(d.r.Accounts))
	for i, name := range d.r.Accounts {
		old[i] = model.AccountName(name)
	}
	if d.r.Accounts, err = changed(old, model.AccountName(value), how); err != nil {
		return err
	}
	if !d.View.Config().Params.NeedAccount {
		return nil
	}
	for _, name := range newNames(old, model.AccountName(value)) {
		if !d.View.KnownAccount(name) {
			return refuse(proto.CodeInvalidAccount, "%s; gacctmgr show account lists them", name)
		}
	}
	return nil
}

// nodesAnd gives the reservation's nodes with others, or without them.
func (d *draft) nodesAnd(value string, how byte) (string, error) {
	names, err := hostlist.Expand(value)
	if err != nil {
		return "", refuse(proto.CodeInvalidNode, "Nodes=%s: %v", value, err)
	}
	r := d.r
	if d.fresh || len(r.Parts) > 0 {
		return "", refuse(proto.CodeBadRequest, "Nodes+= and Nodes-= are for reservations of whole nodes that exist; name "+
			"all of them in Nodes=")
	}
	out := slices.DeleteFunc(slices.Clone(r.Nodes), func(n string) bool { return slices.Contains(names, n) })
	if how == '+' {
		out = append(out, names...)
	}
	if len(out) == 0 {
		return "", refuse(proto.CodeNodeCount, "Nodes-=%s leaves none", value)
	}
	return hostlist.CompressSorted(out), nil
}
