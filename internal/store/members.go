package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// members.go has who the controllers are, and changes it. The log says who they are; the configuration file says only
// who they are to a voter that has no log, and where they are. A new controller is a member that doesn't vote until it
// has the state; a removed one hears nothing any more.

// Member is one controller as the log knows it.
type Member struct {
	Peer
	Voter bool // false: it gets the log, and does not count for a majority
}

// ErrRemoved says that the log in Dir was kept by a controller that is not a member any more, or never was.
var ErrRemoved = errors.New("this controller is not one of the cluster's")

// roll knows the members and their addresses.
type roll struct {
	file []Peer
	base map[string]string // the log's addresses at Open; nil: it had no members
	raft atomic.Pointer[raft.Raft]
}

// servers gives the members as the log has them; none before there is a log.
func (l *roll) servers() []raft.Server {
	r := l.raft.Load()
	if r == nil {
		return nil
	}
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil // it never fails
	}
	return f.Configuration().Servers
}

// opened notes the members at Open.
func (l *roll) opened(r *raft.Raft, have raft.Configuration) {
	if len(have.Servers) > 0 {
		l.base = map[string]string{}
	}
	for _, s := range have.Servers {
		l.base[string(s.ID)] = string(s.Address)
	}
	l.raft.Store(r)
}

// place gives where a member is. The file says so, as it may be newer than the log; but not for one that was added
// since the file was read.
func (l *roll) place(s raft.Server) string {
	old, known := l.base[string(s.ID)]
	if l.base == nil || known && old == string(s.Address) {
		for _, p := range l.file {
			if p.ID == string(s.ID) {
				return p.Addr
			}
		}
	}
	return string(s.Address)
}

// all gives the members, in the order of the file, and then as they were added.
func (l *roll) all() []Member {
	servers := l.servers()
	var out []Member
	if len(servers) == 0 {
		for _, p := range l.file {
			out = append(out, Member{p, true})
		}
		return out
	}
	for _, s := range servers {
		out = append(out, Member{Peer{string(s.ID), l.place(s)}, s.Suffrage == raft.Voter})
	}
	rank := func(m Member) int {
		if i := slices.IndexFunc(l.file, func(p Peer) bool { return p.ID == m.ID }); i >= 0 {
			return i
		}
		return len(l.file)
	}
	slices.SortStableFunc(out, func(a, b Member) int { return rank(a) - rank(b) })
	return out
}

// addr gives a controller's address, "" if unknown.
func (l *roll) addr(id string) string {
	for _, m := range l.all() {
		if m.ID == id {
			return m.Addr
		}
	}
	for _, p := range l.file { // it may be one that waits to be added
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}

// alone reports whether no other voter has to agree.
func (l *roll) alone() bool {
	n := 0
	for _, m := range l.all() {
		if m.Voter {
			n++
		}
	}
	return n <= 1
}

// Members gives the controllers as the log knows them, in the order of Options.Peers. One that has no log gives
// Options.Peers. The last change may not be committed yet.
func (s *Store) Members() []Member { return s.roll.all() }

// Ask gives what another controller says of its state: whether it is empty, and how much of a log it has.
func (s *Store) Ask(ctx context.Context, p Peer) (Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.join.ask(ctx, p)
}

// AddMember makes a controller a member without a vote, which gets the state. Errors as for Propose; it is not harmful
// to repeat it.
func (s *Store) AddMember(ctx context.Context, p Peer) error {
	return s.ask(ctx, "adding controller "+p.ID, func() raft.Future {
		return s.raft.AddNonvoter(raft.ServerID(p.ID), raft.ServerAddress(p.Addr), 0, memberTimeout)
	})
}

// Promote gives a member its vote. Call it when the member has joined and has nearly the whole log, or the cluster may
// have to wait for it.
func (s *Store) Promote(ctx context.Context, p Peer) error {
	return s.ask(ctx, "giving controller "+p.ID+" a vote", func() raft.Future {
		return s.raft.AddVoter(raft.ServerID(p.ID), raft.ServerAddress(p.Addr), 0, memberTimeout)
	})
}

// RemoveMember ends a controller's membership. The leader can't remove itself: it hands leadership over before.
func (s *Store) RemoveMember(ctx context.Context, id string) error {
	if id == s.opts.ID {
		return fmt.Errorf("controller %s leads: it can't remove itself", id)
	}
	return s.ask(ctx, "removing controller "+id, func() raft.Future {
		return s.raft.RemoveServer(raft.ServerID(id), 0, memberTimeout)
	})
}

// checkMembers refuses the log of a controller that is no member, and tells when the file names others than the log.
func checkMembers(o Options, have raft.Configuration) error {
	var old, now []string
	self := false
	for _, s := range have.Servers {
		old = append(old, string(s.ID))
		self = self || string(s.ID) == o.ID
	}
	for _, p := range o.Peers {
		now = append(now, p.ID)
	}
	slices.Sort(old)
	slices.Sort(now)
	if !self {
		return fmt.Errorf("%w: the state in %s is of the controllers %s, without %s. If it was removed, its gctld isn't "+
			"needed any more. To add it again, keep that state aside (mv %s %s.old), start gctld, and then run, on another "+
			"controller: gcontrol controllers add %s", ErrRemoved, o.Dir, strings.Join(old, ", "), o.ID, o.Dir, o.Dir, o.ID)
	}
	if !slices.Equal(old, now) {
		o.Logger.Warn("SlurmctldHost in the configuration file names other controllers than the cluster has; the cluster's "+
			"count. Write these into the file", "cluster", strings.Join(old, ", "), "file", strings.Join(now, ", "))
	}
	return nil
}
