// Package sitegroup follows what the site's programs before and after a job (Prolog, Epilog) leave
// running on a node. They run outside of the job's control group, with all devices and without its
// limits; but what such a program leaves running as the job's user belongs to the job: it gets into
// the job's group when the program has ended, or is killed if the job is over. What it leaves as
// anybody else (a daemon of the site's) is left alone.
//
// Each program's processes are tracked by a group without limits, in a part of the hierarchies beside
// that of the jobs' groups. It goes when its last process has ended; the groups of daemons that go on
// are looked at again, a few at each end of a job.
package sitegroup

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"gbatch/noded/cgroup"
)

// tidied is how many groups of daemons are looked at when a program's group is dismissed.
const tidied = 16

// Store has the groups of one node. Its methods may be called by several goroutines at once.
type Store struct {
	prefix string
	want   cgroup.Want

	mu   sync.Mutex
	root *cgroup.Root // nil until the first program
	left []string     // groups whose programs have ended, with processes that go on
}

// New gives the groups below a prefix; nothing is made yet.
func New(prefix string, want cgroup.Want) *Store {
	want.TrackOnly = true
	return &Store{prefix: prefix, want: want}
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

// Adopt moves what a program has left running as a user into the group of the job. Of root's jobs nothing is moved:
// their processes can't be told from the site's.
func (s *Store) Adopt(name string, uid uint32, job *cgroup.Group) error {
	if uid == 0 || job == nil {
		return nil
	}
	g, err := s.find(name)
	if g == nil || err != nil {
		return err
	}
	return job.Adopt(g, uid)
}

// Dismiss kills what still runs as the user, and removes the group when nothing is left in it.
func (s *Store) Dismiss(ctx context.Context, name string, uid uint32) error {
	g, err := s.find(name)
	if err != nil {
		return err
	}
	if g != nil && uid != 0 { // without mu, which Join wants: it may take seconds
		err = g.KillOf(ctx, uid)
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
