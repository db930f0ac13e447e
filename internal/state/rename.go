package state

import (
	"slices"

	"gbatch/internal/model"
)

// rename.go gives a user another name. Everything that is kept by a user's name goes along: the record, associations
// with their numbers, usage, wckeys, the accounts that the user coordinates, and reservations. Jobs that have ended
// keep the name that they had; gdbd shows their records by the new one (model.Audit.Renamed).

// renameUser refuses while jobs of either name have not ended: their resources are counted by it.
func (s *State) renameUser(at model.Time, from, to string, busy *active) Refusal {
	old, ok := s.users.Get(from)
	switch {
	case !ok:
		return NoSuchUser
	case from == model.RootAccount || to == "":
		return InUse
	case has(s.users, to):
		return NameTaken
	case busy.users[from] || busy.users[to]:
		return JobsActive
	}
	u := *old
	u.Name = to
	s.users.Delete(from)
	s.users.Set(to, &u)
	for _, key := range s.assocs.Keys() {
		if a, _ := s.assocs.Get(key); a.User == from {
			n := *a
			n.User = to
			s.assocs.Delete(key)
			s.assocs.Set(keyOf(&n), &n)
		}
	}
	for _, w := range s.wckeysOf(from) {
		n := *w
		n.User = to
		s.wckeys.Delete(wckeyKey(from, w.Name))
		s.wckeys.Set(wckeyKey(to, w.Name), &n)
	}
	for _, name := range s.accounts.Keys() {
		if a, _ := s.accounts.Get(name); slices.Contains(a.Coordinators, from) {
			n := *a
			n.Coordinators = renamed(a.Coordinators, from, to)
			s.accounts.Set(name, &n)
		}
	}
	s.renameUsage(at, from, to)
	return OK
}

// renameUsage gives a user's usage to another name; what is there under that name already, of jobs of somebody without
// a record, is added.
func (s *State) renameUsage(at model.Time, from, to string) {
	for _, key := range s.usage.Keys() {
		u, _ := s.usage.Get(key)
		if u.User != from {
			continue
		}
		n := s.fadeOf(u).bring(u, max(at, u.Stamp))
		n.User = to
		s.usage.Delete(key)
		key = usageKey(n.Account, to, n.Partition)
		if there, ok := s.usage.Get(key); ok {
			n.add(s.fadeOf(there).bring(there, n.Stamp))
			n.CPUMS, n.GPUMS = addSat(n.CPUMS, there.CPUMS), addSat(n.GPUMS, there.GPUMS)
			n.Stray = n.Stray && there.Stray
		}
		s.usage.Set(key, n)
	}
}

// renameReserved does the same for reservations, when a whole command has been found good.
func (s *State) renameReserved(edits []model.AcctEdit) {
	for i := range edits {
		e := &edits[i]
		if e.Op != model.RenameUser {
			continue
		}
		for _, name := range s.resvs.Keys() {
			r, _ := s.resvs.Get(name)
			users := renamed(renamed(r.Users, e.User.Name, e.NewName), "-"+e.User.Name, "-"+e.NewName)
			if !slices.Equal(users, r.Users) {
				n := *r
				n.Users = users
				s.putResv(&n)
			}
		}
	}
}

// renamed gives a list with a name in place of another one, once.
func renamed(list []string, from, to string) []string {
	if !slices.Contains(list, from) {
		return list
	}
	var out []string
	for _, name := range list {
		if name == from {
			name = to
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
