package ctld

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// PrivateData: what those who are no operators see of others. Everybody sees what is their own, and coordinators what
// is of their accounts and those below. What is hidden is left out of lists; who asks for one hidden job by number
// gets what an unknown number gives.

// sight is what one caller sees.
type sight struct {
	c     *Controller
	v     *state.View
	uid   uint32
	me    string
	hid   []string        // of PrivateData, what this caller must not see of others
	below map[string]bool // accounts that the caller coordinates, or not, as far as asked
	near  map[string]bool // accounts that the caller has an association with, and those above; nil: not asked yet
}

// sees gives what a caller sees.
func (c *Controller) sees(v *state.View, who *proto.Caller) *sight {
	s := &sight{c: c, v: v, uid: who.UID}
	if hid := v.Config().Params.PrivateData; len(hid) > 0 && !c.operator(who) {
		s.hid, s.me, s.below = hid, c.nameOf(who), map[string]bool{}
	}
	return s
}

// hides reports whether PrivateData keeps something from the caller.
func (s *sight) hides(what string) bool { return slices.Contains(s.hid, what) }

// over reports whether the caller coordinates an account.
func (s *sight) over(account string) bool {
	yes, known := s.below[account]
	if !known {
		yes = s.c.coordinates(s.v, s.me, account)
		s.below[account] = yes
	}
	return yes
}

// job reports whether the caller may see a job.
func (s *sight) job(sp *model.Spec) bool {
	return !s.hides("jobs") || sp.UID == s.uid || s.over(sp.Account)
}

// only leaves the jobs that the caller may see.
func (s *sight) only(list []*model.Job) []*model.Job {
	if !s.hides("jobs") {
		return list
	}
	return slices.DeleteFunc(list, func(j *model.Job) bool { return !s.job(j.Spec) })
}

// usage reports whether the caller may see what a user uses; user "" is an account as a whole.
func (s *sight) usage(account, user string) bool {
	return user == "" || user == s.me || !s.hides("usage") && !s.hides("users") || s.over(account)
}

// assoc reports whether the caller may see an association.
func (s *sight) assoc(a *model.Association) bool {
	if a.User != "" {
		return a.User == s.me || !s.hides("users") || s.over(a.Account)
	}
	return s.account(a.Account)
}

// account reports whether the caller may see an account: one that they coordinate, belong to, or inherit limits from.
func (s *sight) account(name string) bool {
	if !s.hides("accounts") || s.over(name) {
		return true
	}
	if s.near == nil {
		s.near = map[string]bool{model.RootAccount: true}
		s.v.Associations(func(a *model.Association) bool {
			if a.User == s.me {
				for up := a.Account; up != "" && !s.near[up]; {
					s.near[up] = true
					if acct := s.v.Account(up); acct != nil {
						up = acct.Parent
					}
				}
			}
			return true
		})
	}
	return s.near[name]
}

// reservation reports whether the caller may see a reservation: one that they may use under some account.
func (s *sight) reservation(r *model.Reservation, gids []uint32) bool {
	if !s.hides("reservations") {
		return true
	}
	sp := &model.Spec{UID: s.uid, User: s.me, Groups: gids}
	if r.Admits(sp) {
		return true
	}
	found := false
	s.v.Associations(func(a *model.Association) bool {
		if a.User == s.me {
			sp.Account = a.Account
			found = r.Admits(sp)
		}
		return !found
	})
	return found
}

// records passes on the accounting records that the caller may see, of a part of gdbd's answer.
func (s *sight) records(pass func([]byte) error) func([]byte) error {
	if !s.hides("jobs") {
		return pass
	}
	return func(body []byte) error {
		var chunk, kept proto.RecordsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for i, r := range chunk.Records {
			if r.UID != s.uid && !s.over(r.Account) {
				continue
			}
			kept.Records = append(kept.Records, r)
			if i < len(chunk.Summaries) {
				kept.Summaries = append(kept.Summaries, chunk.Summaries[i])
			}
		}
		out, err := proto.Encode(&kept)
		if err != nil {
			return err
		}
		return pass(out)
	}
}

// config gives the configuration without the nodes and partitions that the caller must not see.
func (s *sight) config(cfg *model.Config) *model.Config {
	if !s.hides("nodes") && !s.hides("partitions") {
		return cfg
	}
	out := *cfg
	if s.hides("nodes") {
		out.Nodes = nil
	}
	if s.hides("partitions") {
		out.Partitions = nil
	}
	return &out
}

// denied refuses a list as a whole.
func (s *sight) denied(what string) error {
	if s.hides(what) {
		return refuse(proto.CodeAccess, "PrivateData hides %s from users here", what)
	}
	return nil
}
