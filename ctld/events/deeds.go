package events

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// deeds.go makes the entries of the trail about what users change. They travel with the change, as further parts of
// its log entry.

// By is who changes something.
type By struct {
	UID  uint32
	User string
}

// entry makes an entry of this user.
func (b By) entry(event, what, name, text string) *model.Audit {
	return &model.Audit{Event: event, What: what, Name: cut(name), UID: b.UID, By: b.User, ByUser: true, Text: cut(text)}
}

// maxWords bounds a text of an entry, bytes: scripts and environments can be settings.
const maxWords = 4 << 10

func cut(s string) string {
	if len(s) > maxWords {
		return strings.ToValidUTF8(s[:maxWords], "") + "..."
	}
	return s
}

// One makes the entry of a change of one thing.
func (b By) One(event, what, name, text string) []*model.Audit {
	return []*model.Audit{b.entry(event, what, name, text)}
}

// Jobs makes an entry for each target. of gives a target's job, or nil if there is none that the change can reach.
func (b By) Jobs(event, text string, targets []model.JobRef, of func(t model.JobRef) *model.Job) []*model.Audit {
	var out []*model.Audit
	for i := range targets {
		j := of(targets[i])
		if j == nil {
			continue
		}
		a := b.entry(event, trail.Job, jobName(&targets[i]), text)
		a.Job, a.Owner = targets[i].Job, j.Spec.UID
		out = append(out, a)
	}
	return out
}

// Noted makes the entry that changes the record of a job that has ended, which users name as t says.
func (b By) Noted(r *model.Record, t *model.JobRef, text string, set []model.KV) *model.Audit {
	a := b.entry(trail.TaskChanged, trail.Job, jobName(t), text)
	a.Job, a.Owner = r.Job, r.UID
	a.Noted = &model.Noted{Attempt: r.Attempt, Size: r.Size, Submit: r.Submit, Set: set}
	return a
}

// jobName writes a target as users do: 12, 12_3, 12_[3-5], 12+1.
func jobName(t *model.JobRef) string {
	name := strconv.FormatUint(uint64(t.Job), 10)
	switch {
	case t.Het > 0:
		return name + "+" + strconv.Itoa(int(t.Het)-1)
	case t.Task != model.NoTask:
		return name + "_" + strconv.Itoa(int(t.Task))
	case len(t.Tasks) > 0:
		return name + "_[" + t.Tasks.String() + "]"
	}
	return name
}

// maxNodes is up to how many nodes of one change have entries of their own; more share one, with a host list.
const maxNodes = 64

// Nodes makes the entries of a change of nodes; list is their names as a host list.
func (b By) Nodes(names []string, list, text string) []*model.Audit {
	if len(names) > maxNodes {
		return b.One(trail.NodeChanged, trail.Node, list, text)
	}
	var out []*model.Audit
	for _, n := range names {
		out = append(out, b.entry(trail.NodeChanged, trail.Node, n, text))
	}
	return out
}

// Accounts makes an entry for each edit. The text is Slurm's name of the action, "; " and what is set.
func (b By) Accounts(v *state.View, edits []model.AcctEdit) []*model.Audit {
	var out []*model.Audit
	put := func(known bool, kind, name, text string) {
		verb := "Add "
		if known {
			verb = "Modify "
		}
		out = append(out, b.entry(trail.AccountChanged, trail.Account, name, verb+kind+"; "+text))
	}
	drop := func(kind, name string) {
		out = append(out, b.entry(trail.AccountChanged, trail.Account, name, "Remove "+kind+"; "))
	}
	for i := range edits {
		switch e := &edits[i]; {
		case e.Op == model.PutAccount && e.Account != nil:
			a := e.Account
			put(v.Account(a.Name) != nil, "Accounts", a.Name, fmt.Sprintf("parent=%s description=%q organization=%q%s", a.Parent,
				a.Description, a.Organization, listText(" coordinators=", a.Coordinators)))
		case e.Op == model.DropAccount && e.Account != nil:
			drop("Accounts", e.Account.Name)
		case e.Op == model.PutUser && e.User != nil:
			u := e.User
			put(v.User(u.Name) != nil, "Users", u.Name,
				fmt.Sprintf("defaultaccount=%s adminlevel=%s%s", u.DefaultAccount, u.Admin, ofDefault(u.DefaultWCKey)))
		case e.Op == model.DropUser && e.User != nil:
			drop("Users", e.User.Name)
		case e.Op == model.RenameUser && e.User != nil:
			put(true, "Users", e.User.Name, "name="+e.NewName)
			out[len(out)-1].Renamed = e.NewName
		case e.Op == model.PutAssoc && e.Assoc != nil:
			a := e.Assoc
			put(v.Association(a.Account, a.User, a.Partition) != nil, "Associations", assocName(a),
				fmt.Sprintf("fairshare=%d%s", a.Shares, listText(" qos=", a.QOS)))
		case e.Op == model.DropAssoc && e.Assoc != nil:
			drop("Associations", assocName(e.Assoc))
		case e.Op == model.PutQOS && e.QOS != nil:
			put(v.QOS(e.QOS.Name) != nil, "QOS", e.QOS.Name, fmt.Sprintf("priority=%d", e.QOS.Priority))
		case e.Op == model.DropQOS && e.QOS != nil:
			drop("QOS", e.QOS.Name)
		case e.Op == model.PutWCKey && e.WCKey != nil:
			put(false, "WCKeys", e.WCKey.User, "wckey="+e.WCKey.Name)
		case e.Op == model.DropWCKey && e.WCKey != nil:
			drop("WCKeys", e.WCKey.User+" wckey="+e.WCKey.Name)
		case e.Assoc != nil:
			put(true, "Associations", assocName(e.Assoc), "rawusage=0")
		}
	}
	return out
}

// ofDefault says which wckey is a user's default.
func ofDefault(wckey string) string {
	if wckey == "" {
		return ""
	}
	return " defaultwckey=" + wckey
}

func listText(head string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	return head + strings.Join(list, ",")
}

// assocName names an association: account=physics user=ann partition=gpu.
func assocName(a *model.Association) string {
	name := "account=" + a.Account
	if a.User != "" {
		name += " user=" + a.User
	}
	if a.Partition != "" {
		name += " partition=" + a.Partition
	}
	return name
}

// deedsKey is the context key of entries that go with a request's change.
type deedsKey struct{}

// With gives a context in which a change has these entries with it.
func With(ctx context.Context, list []*model.Audit) context.Context {
	return context.WithValue(ctx, deedsKey{}, list)
}

// perCommand bounds the entries of one command.
const perCommand = 10_000

// Commands gives the commands that bring the entries of a change along.
func Commands(ctx context.Context) (out []state.Body) {
	list, _ := ctx.Value(deedsKey{}).([]*model.Audit)
	for part := range slices.Chunk(list, perCommand) {
		out = append(out, &state.Audits{List: part})
	}
	return out
}
