// Package sitegroup follows what the site's programs before and after a job (Prolog, Epilog) leave
// running on a node. They run outside of the job's control group, with all devices and without its
// limits; but what such a program leaves running as the job's user belongs to the job: it gets into
// the job's group when the program has ended, a second after it has become the user's if that is
// later, or is killed if the job is over (but not what becomes the user's more than a minute later).
// What it leaves as anybody else (a daemon of the site's) is left alone.
//
// Each program's processes are tracked by a group without limits, in a part of the hierarchies beside
// that of the jobs' groups. It goes when its last process has ended; the groups of daemons that go on
// are looked at again, a few at each end of a job.
package sitegroup

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"sync"
	"time"

	"gbatch/noded/cgroup"
)

// tidied is how many groups of daemons are looked at when a program's group is dismissed.
const tidied = 16

const (
	followPace = time.Second // how often what programs have left is looked at
	followLast = time.Minute // how long when their jobs are over
)

// Store has the groups of one node. Its methods may be called by several goroutines at once.
type Store struct {
	prefix string
	want   cgroup.Want

	mu   sync.Mutex
	root *cgroup.Root // nil until the first program
	left []string     // groups whose programs have ended, with processes that go on

	followed map[string]*followed // groups by their names, while something is in them
	kick     chan struct{}        // something is followed
}

// followed is what the programs of one prolog or epilog have left running.
type followed struct {
	uid    uint32
	job    *cgroup.Group // where the user's processes belong; nil: the job is over, and they are killed
	until  time.Time     // that it is looked at; zero: until the job is over
	failed bool          // that a process stayed has been said
}

// New gives the groups below a prefix; nothing is made yet.
func New(prefix string, want cgroup.Want) *Store {
	want.TrackOnly = true
	return &Store{prefix: prefix, want: want, followed: map[string]*followed{}, kick: make(chan struct{}, 1)}
}

// open prepares the prefix and takes over what an earlier gnoded has left. mu is held.
func (s *Store) open() error {
	if s.root != nil {
		return nil
	}
	root, err := cgroup.OpenPart(s.prefix, s.want)
	if err != nil {
		return err
	}
	if root.Can().Track {
		if s.left, err = root.List(); err != nil {
			return err
		}
	}
	s.root = root
	return nil
}

// Join makes a program's group, or gives the one that is there, and its directories for gshim. Both are empty on a
// host without control groups.
func (s *Store) Join(name string) (v1 []string, v2 string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil || !s.root.Can().Track {
		return nil, "", err
	}
	s.forget(name)
	delete(s.followed, name) // what a running program does as the user is its own
	g, err := s.root.Create(name, cgroup.Limits{})
	if errors.Is(err, fs.ErrExist) {
		g, err = s.root.Load(name)
	}
	if err != nil {
		return nil, "", err
	}
	v1, v2 = g.JoinDirs()
	return v1, v2, nil
}

// find gives a program's group; nil: there is none.
func (s *Store) find(name string) (*cgroup.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(name)
}

// load is find with mu held.
func (s *Store) load(name string) (*cgroup.Group, error) {
	if err := s.open(); err != nil || !s.root.Can().Track {
		return nil, err
	}
	g, err := s.root.Load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return g, err
}

// Follow moves what a prolog's program has left running as a user into the group of the job, now and, with Run, when
// another of its processes becomes that user's, until Dismiss or until none is left. Of root's jobs nothing is moved:
// their processes can't be told from the site's.
func (s *Store) Follow(name string, uid uint32, job *cgroup.Group) error {
	if uid == 0 || job == nil {
		return nil
	}
	return s.follow(context.Background(), name, &followed{uid: uid, job: job})
}

// follow deals with a group's processes now, and goes on with it if others are left.
func (s *Store) follow(ctx context.Context, name string, f *followed) error {
	some, err := s.deal(ctx, name, f)
	if !some {
		return err
	}
	f.failed = err != nil
	s.mu.Lock()
	if have := s.followed[name]; have == nil || have.job != nil || f.job == nil { // else the job has ended meanwhile
		s.followed[name] = f
	}
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return err
}

// deal moves or kills the user's processes of a group, and reports whether others are left in it.
func (s *Store) deal(ctx context.Context, name string, f *followed) (some bool, err error) {
	g, err := s.find(name)
	if g == nil || err != nil {
		return err != nil, err
	}
	if f.job != nil {
		err = f.job.Adopt(g, f.uid)
	} else {
		err = g.KillOf(ctx, f.uid)
	}
	if err != nil {
		return true, err
	}
	pids, err := g.Procs()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(pids) > 0, err
}

// Run looks after the followed groups until ctx ends. What stays is told to warn, once for each group.
func (s *Store) Run(ctx context.Context, warn func(name string, err error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(followPace):
			}
			again = s.look(ctx, warn)
		}
	}
}

// look deals with what has become the users' since the last time. It reports whether anything is still followed.
func (s *Store) look(ctx context.Context, warn func(name string, err error)) bool {
	s.mu.Lock()
	now := maps.Clone(s.followed)
	s.mu.Unlock()
	for name, f := range now {
		brief, cancel := context.WithTimeout(ctx, followPace) // others wait
		some, err := s.deal(brief, name, f)
		cancel()
		if err != nil && !f.failed {
			f.failed = true
			warn(name, err)
		}
		if !some || !f.until.IsZero() && time.Now().After(f.until) {
			s.mu.Lock()
			if s.followed[name] == f {
				delete(s.followed, name)
			}
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.followed) > 0
}

// Dismiss kills what still runs as the user, also what becomes that soon after, and removes the group when nothing
// is left in it.
func (s *Store) Dismiss(ctx context.Context, name string, uid uint32) error {
	g, err := s.find(name)
	if g != nil && uid != 0 { // without mu, which Join wants: it may take seconds
		err = s.follow(ctx, name, &followed{uid: uid, until: time.Now().Add(followLast)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g != nil {
		s.forget(name)
		s.left = append(s.left, name)
	}
	s.tidy()
	return err
}

// forget takes a group from those that are looked at. mu is held.
func (s *Store) forget(name string) {
	for i, have := range s.left {
		if have == name {
			s.left = append(s.left[:i], s.left[i+1:]...)
			return
		}
	}
}

// tidy removes groups in which nothing runs any more: the newest, and some of the others in turn. mu is held.
func (s *Store) tidy() {
	n := min(tidied, len(s.left))
	look := append([]string(nil), s.left[len(s.left)-n:]...)
	keep := make([]string, 0, n)
	for _, name := range look {
		if g, err := s.load(name); err != nil || g != nil && !g.RemoveIfEmpty() {
			keep = append(keep, name)
		}
	}
	s.left = append(keep, s.left[:len(s.left)-n]...) // those that stay are looked at last the next time
}

// Close removes the prefix if nothing of a program is left.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil
	}
	s.tidy()
	return s.root.Close()
}
