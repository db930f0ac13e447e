package ctld

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// PrivateData: what users other than operators see of each other. Users see their own jobs and data, and coordinators
// also those of their accounts and the accounts below. Hidden entries are left out of lists; a request for one hidden
// job by number gets the same answer as for an unknown number.

// sight decides what one caller may see.
type sight struct {
	c     *Controller
	v     *state.View
	who   *caller
	uid   uint32
	me    string
	hid   []string        // entries of PrivateData that apply to this caller
	below map[string]bool // whether the caller coordinates an account, for accounts looked up so far
	near  map[string]bool // accounts with an association of the caller, and those above; nil: not looked up yet
}

// sees gives the sight of a caller.
func (c *Controller) sees(v *state.View, who *caller) *sight {
	s := &sight{c: c, v: v, who: who, uid: who.UID}
	if hid := v.Config().Params.PrivateData; len(hid) > 0 && !c.operator(who) {
		s.hid, s.me, s.below = hid, c.nameOf(who), map[string]bool{}
	}
	return s
}

// class names the callers who see the same as this one: "" for those who see everything. One user may call with all
// rights, and by a token or through a host with less, or in other groups.
func (s *sight) class() string {
	if len(s.hid) == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Append(nil, s.me, " ", s.who.most, " ", s.who.GID, " ", s.who.Groups))
	return strconv.FormatUint(uint64(s.uid), 10) + " " + string(sum[:])
}

// hides reports whether PrivateData hides something from the caller.
func (s *sight) hides(what string) bool { return slices.Contains(s.hid, what) }

// over reports whether the caller coordinates an account.
func (s *sight) over(account string) bool {
	yes, known := s.below[account]
	if !known {
		yes = s.c.coordinates(s.v, s.who, account)
		s.below[account] = yes
	}
	return yes
}

// job reports whether the caller may see a job.
func (s *sight) job(sp *model.Spec) bool {
	return !s.hides("jobs") || sp.UID == s.uid || s.over(sp.Account)
}

// barred gives the code for a job that the caller may not change: one that is hidden from them is unknown.
func (s *sight) barred(j *model.Job) proto.Code {
	if s.job(j.Spec) {
		return proto.CodeAccess
	}
	return proto.CodeInvalidJob
}

// jobText names a job as users do, or says that the caller may not see which it is.
func (s *sight) jobText(j *model.Job) string {
	if s.job(j.Spec) {
		return jobText(j)
	}
	return proto.HiddenJob
}

// node gives a node without the numbers of jobs that the caller may not see; how many there are stays.
func (s *sight) node(n *model.Node) *model.Node {
	if !s.hides("jobs") {
		return n
	}
	out := *n
	shown := func(id model.JobID) model.JobID {
		if j := s.v.Job(id); id == 0 || j != nil && s.job(j.Spec) {
			return id
		}
		return model.HiddenJob
	}
	out.Exclusive, out.Tags = shown(n.Exclusive), nil
	for _, list := range []*[]model.JobID{&out.Jobs, &out.Asleep, &out.Strikes} {
		*list = slices.Clone(*list)
		for i, id := range *list {
			(*list)[i] = shown(id)
		}
	}
	return &out
}

// only gives the jobs of a list that the caller may see.
func (s *sight) only(list []*model.Job) []*model.Job {
	if !s.hides("jobs") {
		return list
	}
	return slices.DeleteFunc(list, func(j *model.Job) bool { return !s.job(j.Spec) })
}

// event reports whether the caller may see an event: what they may see of jobs, nodes and reservations. What users
// change is for operators, and for those who did it or whose job it is.
func (s *sight) event(ev *events.Event) bool {
	mine := ev.OwnerOK && (ev.Owner == s.uid || ev.Account != "" && s.coordinator(ev.Account))
	switch {
	case ev.Deed && ev.UID != s.uid && !mine && !s.c.operator(s.who):
		return false
	case ev.What == trail.Trigger:
		return ev.Deed || mine || s.c.operator(s.who)
	case len(s.hid) == 0:
		return true
	case ev.What == trail.Job:
		return !s.hides("jobs") || mine
	case ev.What == trail.Node, ev.What == trail.GPU, ev.What == trail.Cluster:
		return !s.hides("nodes") && !s.hides("events")
	case ev.What == trail.Reservation && s.hides("reservations"):
		r := s.v.Reservation(ev.Name)
		return r != nil && s.reservation(r)
	case ev.What == trail.Partition:
		return !s.hides("partitions")
	}
	return true
}

// coordinator is over, also where PrivateData hides nothing.
func (s *sight) coordinator(account string) bool {
	if s.below == nil {
		s.below = map[string]bool{}
	}
	return s.over(account)
}

// ofPlans is the sight for an explanation; nil where nothing of it is hidden.
func (s *sight) ofPlans() *sched.Sight {
	if !s.hides("jobs") && !s.hides("reservations") && !s.hides("nodes") && !s.hides("partitions") {
		return nil
	}
	hidden := func(what string) func(string) bool {
		if !s.hides(what) {
			return nil
		}
		return func(string) bool { return false }
	}
	return &sched.Sight{Node: hidden("nodes"), Partition: hidden("partitions"),
		Job: func(id model.JobID) bool {
			j := s.v.Job(id)
			return !s.hides("jobs") || j != nil && s.job(j.Spec)
		},
		Reservation: func(name string) bool {
			r := s.v.Reservation(name)
			return r != nil && s.reservation(r)
		}}
}

// usage reports whether the caller may see a user's usage; user "" is an account as a whole,
// which whoever may see the account may see.
func (s *sight) usage(account, user string) bool {
	if user == "" {
		return s.account(account)
	}
	return user == s.me || !s.hides("usage") && !s.hides("users") || s.over(account)
}

// assoc reports whether the caller may see an association.
func (s *sight) assoc(a *model.Association) bool {
	if a.User != "" {
		return a.User == s.me || !s.hides("users") || s.over(a.Account)
	}
	return s.account(a.Account)
}

// account reports whether the caller may see an account: they coordinate it, have an association in it, or it is above
// such an account.
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

// reservation reports whether the caller may see a reservation: they may use it under some account.
func (s *sight) reservation(r *model.Reservation) bool {
	if !s.hides("reservations") {
		return true
	}
	sp := &model.Spec{UID: s.uid, User: s.me, Groups: append([]uint32{s.who.GID}, s.who.Groups...)}
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

// samples refuses a question about samples of what the caller may not see. Coordinators see running jobs of their
// accounts.
func (s *sight) samples(q *proto.HistoryQuery) error {
	switch q.Ask.Of {
	case proto.HistoryJob:
		if len(q.Ask.Names) == 0 {
			return refuse(proto.CodeBadRequest, "name the jobs whose history you want")
		}
		if !q.Only {
			return nil
		}
		for _, name := range q.Ask.Names { // of all or none: gdbd knows users, and no accounts
			id, err := strconv.ParseUint(name, 10, 32)
			if j := s.v.Job(model.JobID(id)); err != nil || j == nil || !s.job(j.Spec) {
				return nil
			}
		}
		q.Only = false
	case proto.HistoryGPU:
		if j := s.v.Job(q.Ask.Job); q.Only && q.Ask.Job != 0 && j != nil && s.job(j.Spec) {
			q.Only = false
			return nil
		}
		if q.Ask.Job == 0 || !q.Only {
			return s.denied("nodes")
		}
	case proto.HistoryNode:
		return s.denied("nodes")
	case proto.HistoryPartition:
		return s.denied("partitions")
	case proto.HistoryAccount:
		if !s.hides("accounts") && !s.hides("usage") {
			return nil
		}
		if len(q.Ask.Names) == 0 {
			return refuse(proto.CodeAccess, "PrivateData hides others' accounts from users here; name yours")
		}
		for _, name := range q.Ask.Names {
			if !s.account(name) || s.hides("usage") && !s.over(name) {
				return refuse(proto.CodeAccess, "PrivateData hides the history of accounts other than yours from users here")
			}
		}
	}
	return nil
}

// records filters gdbd's answer: it passes on the accounting records that the caller may see.
func (s *sight) records(pass func([]byte) error) func([]byte) error {
	if !s.hides("jobs") {
		return pass
	}
	return func(body []byte) error {
		var chunk, kept proto.RecordsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		kept.Note = chunk.Note
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

// config gives the configuration without the nodes, partitions and accounts that the caller must not see.
func (s *sight) config(cfg *model.Config) *model.Config {
	if !s.hides("nodes") && !s.hides("partitions") && !s.hides("accounts") {
		return cfg
	}
	out := *cfg
	if s.hides("nodes") { // what names nodes too: those that may come, sets of them, networks
		out.Nodes, out.Future, out.Sets, out.Switches, out.Blocks, out.Topologies = nil, nil, nil, nil, nil, nil
	}
	if s.hides("partitions") {
		out.Partitions = nil
	}
	if s.hides("accounts") {
		out.Accounts = slices.DeleteFunc(slices.Clone(cfg.Accounts), func(name string) bool { return !s.account(name) })
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
