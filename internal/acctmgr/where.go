package acctmgr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// where.go finds the accounts, users, associations and QOS that the conditions of a change name.

// splitParts takes the partitions out of conditions.
func splitParts(where []word) (rest []word, parts []string) {
	for _, w := range where {
		if is(w.key, 4, "partitions") {
			parts = append(parts, partNames(w.value)...)
		} else {
			rest = append(rest, w)
		}
	}
	return rest, parts
}

// pickAccounts gives the accounts that conditions name, in order.
func (f *Facts) pickAccounts(where []word) ([]string, error) {
	var list []string
	named := false
	var tests []func(*model.Account) bool
	for _, w := range where {
		switch {
		case w.key == "" || is(w.key, 1, "names", "accounts"):
			list, named = append(list, names(w.value)...), true
		case is(w.key, 1, "clusters"):
			if err := f.checkCluster(w.value); err != nil {
				return nil, err
			}
		case is(w.key, 3, "parents"):
			parents := names(w.value)
			tests = append(tests, func(a *model.Account) bool { return slices.Contains(parents, a.Parent) })
		case is(w.key, 3, "description"):
			tests = append(tests, func(a *model.Account) bool { return strings.EqualFold(a.Description, w.value) })
		case is(w.key, 1, "organization"):
			tests = append(tests, func(a *model.Account) bool { return strings.EqualFold(a.Organization, w.value) })
		default:
			return nil, unknownCondition(w)
		}
	}
	var out []string
	for name, a := range f.Accounts {
		if named && !slices.Contains(list, name) ||
			slices.ContainsFunc(tests, func(t func(*model.Account) bool) bool { return !t(a) }) {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// pick has the conditions on users and associations.
type pick struct {
	users, accounts, parts []string
	byUser, byAssoc        bool
	admin                  *model.AdminLevel
	preset                 []string
	keys, presetKeys       []string // wckeys that users have, and their default ones
}

func (f *Facts) readPick(where []word) (*pick, error) {
	s := &pick{}
	for _, w := range where {
		switch {
		case w.key == "" || is(w.key, 1, "names", "users"):
			s.users, s.byUser = append(s.users, names(w.value)...), true
		case is(w.key, 2, "accounts", "acct"):
			s.accounts, s.byAssoc = append(s.accounts, names(w.value)...), true
		case is(w.key, 4, "partitions"):
			s.parts, s.byAssoc = append(s.parts, strings.Split(w.value, ",")...), true
		case is(w.key, 2, "adminlevel"):
			l, err := adminLevel(w.value)
			if err != nil {
				return nil, err
			}
			s.admin = &l
		case is(w.key, 8, "defaultaccount"):
			s.preset = names(w.value)
		case is(w.key, 8, "defaultwckey"):
			s.presetKeys = names(w.value)
		case is(w.key, 1, "wckeys"):
			s.keys = append(s.keys, names(w.value)...)
		case is(w.key, 1, "clusters"):
			if err := f.checkCluster(w.value); err != nil {
				return nil, err
			}
		default:
			return nil, unknownCondition(w)
		}
	}
	return s, nil
}

// has reports whether a user has one of the wckeys that are asked for.
func (s *pick) has(f *Facts, u *model.User) bool {
	return s.keys == nil || f.hasWCKey(u.Name, s.keys...)
}

func (s *pick) user(u *model.User) bool {
	return (!s.byUser || slices.Contains(s.users, u.Name)) && (s.admin == nil || *s.admin == u.Admin) &&
		(s.preset == nil || slices.Contains(s.preset, u.DefaultAccount)) &&
		(s.presetKeys == nil || slices.Contains(s.presetKeys, u.DefaultWCKey))
}

func (s *pick) assoc(a *model.Association) bool {
	return (!s.byUser || slices.Contains(s.users, a.User)) &&
		(s.accounts == nil || slices.Contains(s.accounts, a.Account)) &&
		(s.parts == nil || slices.Contains(s.parts, a.Partition))
}

// pickQOS gives the QOS that conditions name, in order.
func (f *Facts) pickQOS(where []word) ([]*model.QOS, error) {
	var list []string
	named := false
	for _, w := range where {
		switch {
		case w.key == "" || is(w.key, 1, "names", "qoslevel"):
			list, named = append(list, names(w.value)...), true
		case is(w.key, 2, "ids"):
			named = true
			for _, q := range f.QOS {
				if slices.Contains(names(w.value), fmt.Sprint(q.ID)) {
					list = append(list, q.Name)
				}
			}
		default:
			return nil, unknownCondition(w)
		}
	}
	var out []*model.QOS
	for name, q := range f.QOS {
		if !named || slices.Contains(list, name) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, qosOrder)
	return out, nil
}

// qosOrder is the order in which QOS were made; QOS without a number from the controller yet are in order of name.
func qosOrder(a, b *model.QOS) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name))
}
