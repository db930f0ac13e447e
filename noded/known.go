package noded

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/userdb"
)

// known.go holds a job's user against this node's own user database. The controllers have looked up who it is; this
// node gives nobody a group that it would not give them at a login, and tells if its database differs.

// givenTimeout bounds a wait for the database where its answer is kept already, as a rule.
const givenTimeout = 10 * time.Second

// slurmUser is SlurmUser on this host. It is looked up until the user database has answered: at a host's start it may
// not be there yet.
type slurmUser struct {
	name   string // "": root
	lookup func(name string) (*user.User, error)

	mu     sync.Mutex
	known  bool
	uid    uint32
	err    error         // of the last lookup
	asking chan struct{} // closed when the lookup under way has ended; nil: there is none
}

func newSlurmUser(c *conf.Config) *slurmUser {
	if c == nil || c.SlurmUser == "root" {
		return &slurmUser{}
	}
	s := &slurmUser{name: c.SlurmUser, lookup: user.Lookup}
	ctx, cancel := context.WithTimeout(context.Background(), givenTimeout)
	defer cancel()
	_, _ = s.id(ctx) // it is asked again if it was not answered
	return s
}

// ifKnown gives SlurmUser's id without a wait; 0: it is root (as nil is), or nobody here has that name, so that no job
// has that id by mistake, or the database has not answered yet.
func (s *slurmUser) ifKnown() uint32 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uid
}

// id is ifKnown that waits for the database's answer.
func (s *slurmUser) id(ctx context.Context) (uint32, error) {
	if s == nil || s.name == "" {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		if s.asking == nil {
			s.asking = make(chan struct{})
			go s.ask(s.asking)
		}
		asking := s.asking
		s.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if s.known {
		return s.uid, nil
	}
	err := s.err
	if err == nil {
		err = ctx.Err()
	}
	return 0, fmt.Errorf("this host's user database does not say who SlurmUser=%s is: %w", s.name, err)
}

// ask asks the database once, however long it takes. There is one such goroutine at most.
func (s *slurmUser) ask(over chan struct{}) {
	digits := s.name
	u, err := s.lookup(digits)
	var none user.UnknownUserError
	switch {
	case err == nil:
		digits = u.Uid
	case errors.As(err, &none):
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known, s.err = err == nil, err; s.known {
		if uid, err := strconv.ParseUint(digits, 10, 32); err == nil {
			s.uid = uint32(uid)
		}
	}
	s.asking = nil
	close(over)
}

// asKnownHere gives a launch whose user has only groups that this node's database gives. The error says how the
// database and the controllers' differ, or that SlurmUser has no jobs here, and the launch is then as it was. It may
// take seconds, and runs on a worker.
func (n *Noded) asKnownHere(ctx context.Context, l *proto.Launch) (*proto.Launch, error) {
	s := l.Spec
	if !n.root || s.UID == 0 {
		return l, nil
	}
	within, cancel := context.WithTimeout(ctx, givenTimeout)
	defer cancel()
	system, err := n.system.id(within)
	if err == nil && s.UID == system {
		err = s.CheckUser(system)
	}
	if err != nil {
		return l, fmt.Errorf("node %s runs no such job: %w", n.opts.Name, err)
	}
	digits := strconv.FormatUint(uint64(s.UID), 10)
	u, err := n.people.User(ctx, s.UID)
	unnamed := s.User == "" || s.User == digits // on the controllers
	switch {
	case errors.Is(err, userdb.ErrUnknown) && unnamed:
		u.Groups = []uint32{s.GID}
	case errors.Is(err, userdb.ErrUnknown):
		return l, fmt.Errorf("user %s is unknown on node %s: getent passwd %s finds nothing there; nodes and controllers "+
			"need the same users", s.User, n.opts.Name, digits)
	case err != nil:
		return l, fmt.Errorf("the user database of node %s does not say who user %s (%s) is: %w", n.opts.Name, s.User,
			digits, err)
	case !unnamed && u.Name != s.User:
		return l, fmt.Errorf("user id %s is %s on node %s and %s on the controllers; nodes and controllers need the same "+
			"users", digits, u.Name, n.opts.Name, s.User)
	case !u.Has(s.GID):
		return l, fmt.Errorf("the user database of node %s does not give user %s group id %d; nodes and controllers need "+
			"the same groups", n.opts.Name, s.User, s.GID)
	}
	spec, launch := *s, *l
	spec.Groups = both(s.Groups, &u)
	launch.Spec = &spec
	return &launch, nil
}

// given leaves those groups of a user that this node's database gives. Where it does not answer there are none.
func (n *Noded) given(uid uint32, groups []uint32) []uint32 {
	if !n.root || len(groups) == 0 || uid == 0 {
		return groups
	}
	ctx, cancel := context.WithTimeout(context.Background(), givenTimeout)
	defer cancel()
	u, err := n.people.User(ctx, uid)
	if err != nil {
		return nil
	}
	return both(groups, &u)
}

func both(groups []uint32, u *userdb.User) []uint32 {
	return slices.DeleteFunc(slices.Clone(groups), func(g uint32) bool { return g == 0 || !u.Has(g) })
}

// mayCome refuses users for whom another host can't speak about steps: no host for nobody, no login host for root and
// SlurmUser. Of nodes only those of the job may come, which is looked at when the job is known.
func (s *stepServer) mayCome(role string, uid uint32) error {
	if uid == model.NoID {
		return fmt.Errorf("%d is no user id", uid)
	}
	if role == pki.RoleNode {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), givenTimeout)
	defer cancel()
	switch system, err := s.system.id(ctx); {
	case err != nil:
		return err
	case uid == 0 || uid == system:
		return fmt.Errorf("%s: steps of root's jobs are started on the jobs' own nodes", proto.Text(proto.CodeAccess))
	}
	return nil
}
