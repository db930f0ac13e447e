package model

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/wire"
)

// TriggerOf says what a trigger watches. The numbers are stored: append only.
type TriggerOf uint8

// The values.
const (
	TriggerJob TriggerOf = iota + 1
	TriggerNode
	TriggerCtld
	TriggerDbd
	TriggerDatabase
)

// String gives Slurm's word, or "unknown".
func (o TriggerOf) String() string {
	names := [...]string{"unknown", "job", "node", "slurmctld", "slurmdbd", "database"}
	if int(o) < len(names) {
		return names[o]
	}
	return names[0]
}

// TriggerEvents are the events for which a trigger's program runs. The bits are stored: append only.
type TriggerEvents uint32

// The events. Which a trigger can have depends on what it watches: TriggerOf.Events.
const (
	OnUp TriggerEvents = 1 << iota
	OnDown
	OnDrained
	OnDraining
	OnResume
	OnFail
	OnIdle
	OnTime // the job's time limit
	OnFini
	OnReconfig
	OnPrimaryFails
	OnPrimaryBack
	OnPrimaryLeads
	OnBufferFull
	OnBackupFails
	OnBackupBack
	OnBackupLeads
	OnDbdFails
	OnDbdBack
	OnDatabaseFails
	OnDatabaseBack
)

// triggerWords are Slurm's words for the events, in order of their bits.
var triggerWords = [...]string{"up", "down", "drained", "draining", "resume", "fail", "idle", "time", "fini",
	"reconfig", "primary_slurmctld_failure", "primary_slurmctld_resumed_operation", "primary_slurmctld_resumed_control",
	"primary_slurmctld_acct_buffer_full", "backup_slurmctld_failure", "backup_slurmctld_resumed_operation",
	"backup_slurmctld_assumed_control", "primary_slurmdbd_failure", "primary_slurmdbd_resumed_operation",
	"primary_database_failure", "primary_database_resumed_operation"}

// String gives the events in Slurm's words: down,drained.
func (e TriggerEvents) String() string {
	var out []string
	for ; e != 0; e &= e - 1 {
		if n := bits.TrailingZeros32(uint32(e)); n < len(triggerWords) {
			out = append(out, triggerWords[n])
		}
	}
	return strings.Join(out, ",")
}

const nodeEvents = OnUp | OnDown | OnDrained | OnDraining | OnResume | OnFail

// Events gives the events that what is watched can have.
func (o TriggerOf) Events() TriggerEvents {
	switch o {
	case TriggerJob:
		return OnTime | OnFini | nodeEvents
	case TriggerNode:
		return nodeEvents | OnIdle | OnReconfig
	case TriggerCtld:
		return OnPrimaryFails | OnPrimaryBack | OnPrimaryLeads | OnBufferFull | OnBackupFails | OnBackupBack | OnBackupLeads
	case TriggerDbd:
		return OnDbdFails | OnDbdBack
	case TriggerDatabase:
		return OnDatabaseFails | OnDatabaseBack
	}
	return 0
}

// Trigger is a program that runs on the controller that leads, as the user who set it, when something has happened.
type Trigger struct {
	ID      uint32
	UID     uint32
	GID     uint32
	At      Time // when it was set
	Of      TriggerOf
	Job     JobID  // with TriggerJob
	Nodes   string // with TriggerNode: a host list; "": all nodes
	Events  TriggerEvents
	OffsetS int64  // of OnTime, if negative: before the limit; of OnIdle: how long; else the program runs so much later
	Perm    bool   // it stays when its program has run
	Program string // a path, and words that are arguments

	Hits   []TriggerHit // what has happened and no program was told of, by name
	Due    Time         // with Hits: when the program is to run
	Ran    Time         // when its program ended last
	Looked Time         // with OnIdle: nodes that had been idle for long enough by then were told of
	Spent  Time         // not 0: its program has run, and until then another one like it takes over what happens
	Heir   uint32       // another one like it, which was set while it had Hits

	Via *Cert  // of the host that spoke for who set it; nil: a controller's kernel said who that was
	Off string // why it does nothing any more; "": it does
}

func (x *Trigger) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Of)
	wire.Int(c, &x.Job)
	wire.Text(c, &x.Nodes, MaxText)
	wire.Int(c, &x.Events)
	wire.Int(c, &x.OffsetS)
	wire.Bool(c, &x.Perm)
	wire.Data(c, &x.Program, MaxName)
	wire.List(c, &x.Hits, MaxList)
	wire.Int(c, &x.Due)
	wire.Int(c, &x.Ran)
	wire.Int(c, &x.Looked)
	wire.Int(c, &x.Spent)
	wire.Int(c, &x.Heir)
	wire.Ptr(c, &x.Via)
	wire.Text(c, &x.Off, MaxText)
}

// Alike reports whether two triggers of a user are for the same events of the same thing.
func (x *Trigger) Alike(y *Trigger) bool {
	return x.UID == y.UID && x.Of == y.Of && x.Job == y.Job && x.Nodes == y.Nodes && x.Events == y.Events &&
		x.OffsetS == y.OffsetS
}

// AboutDaemons reports whether a leader has to look at the daemons for it.
func (x *Trigger) AboutDaemons() bool {
	return x.Of == TriggerDbd || x.Of == TriggerDatabase || x.Of == TriggerCtld
}

// TriggerHit is one thing that has happened.
type TriggerHit struct {
	Name   string // a node's or a daemon's; "": the job's, or the cluster's
	Events TriggerEvents
	Gen    uint64 // of the facts since when it has happened
}

func (x *TriggerHit) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Events)
	wire.Int(c, &x.Gen)
}

// Daemons is how the daemons are, as a leader last found them: triggers are about what has changed since.
type Daemons struct {
	Controllers  []string // all, as the configuration has them; the first is the primary
	PrimarySince Time     // when the primary's process began, if it leads; else 0
	Leader       string   // who leads
	Lost         []string // controllers that don't answer, in order
	Full         bool     // as many records wait for gdbd as may
	DbdLost      bool     // gdbd does not answer
	DatabaseLost bool     // it answers, and takes no records
}

func (x *Daemons) Wire(c *wire.C) {
	wire.Texts(c, &x.Controllers, MaxFew, MaxName)
	wire.Int(c, &x.PrimarySince)
	wire.Text(c, &x.Leader, MaxName)
	wire.Texts(c, &x.Lost, MaxFew, MaxName)
	wire.Bool(c, &x.Full)
	wire.Bool(c, &x.DbdLost)
	wire.Bool(c, &x.DatabaseLost)
}

// Same reports whether two leaders have found the same; o may be nil.
func (x *Daemons) Same(o *Daemons) bool {
	return o != nil && slices.Equal(x.Controllers, o.Controllers) && x.PrimarySince == o.PrimarySince &&
		x.Leader == o.Leader && slices.Equal(x.Lost, o.Lost) && x.Full == o.Full && x.DbdLost == o.DbdLost &&
		x.DatabaseLost == o.DatabaseLost
}

// Since gives what has become of the daemons since a leader found them otherwise.
func (x *Daemons) Since(old *Daemons) (out []TriggerHit) {
	on := func(yes bool, e TriggerEvents, name string) {
		if yes {
			out = append(out, TriggerHit{Name: name, Events: e})
		}
	}
	for i, name := range x.Controllers {
		fails, back, leads := OnBackupFails, OnBackupBack, OnBackupLeads
		anew := false
		if i == 0 {
			fails, back, leads = OnPrimaryFails, OnPrimaryBack, OnPrimaryLeads
			anew = old.PrimarySince != 0 && x.PrimarySince != 0 && old.PrimarySince != x.PrimarySince
		}
		was, is := slices.Contains(old.Lost, name), slices.Contains(x.Lost, name)
		on(is && !was, fails, name)
		on(was && !is || anew, back, name)
		on(x.Leader == name && old.Leader != name && old.Leader != "", leads, name)
	}
	on(x.Full && !old.Full, OnBufferFull, "")
	on(x.DbdLost && !old.DbdLost, OnDbdFails, "")
	on(!x.DbdLost && old.DbdLost, OnDbdBack, "")
	on(x.DatabaseLost && !old.DatabaseLost, OnDatabaseFails, "")
	on(!x.DatabaseLost && old.DatabaseLost, OnDatabaseBack, "")
	slices.SortStableFunc(out, func(a, b TriggerHit) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// fewNames is how many names are looked up in a host list one by one: more are looked up in a set.
const fewNames = 8

// Among gives what has become of a trigger's nodes.
func (x *Trigger) Among(list []TriggerHit) []TriggerHit {
	if x.Nodes == "" {
		return list
	}
	if len(list) <= fewNames {
		return HitsOf(list, func(name string) bool {
			has, err := hostlist.Contains(x.Nodes, name)
			return has && err == nil
		})
	}
	names, err := hostlist.Expand(x.Nodes)
	if err != nil {
		return nil
	}
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return HitsOf(list, func(name string) bool { return set[name] })
}

// HitsOf gives those of a list whose names a function has.
func HitsOf(list []TriggerHit, has func(name string) bool) (out []TriggerHit) {
	for i := range list {
		if has(list[i].Name) {
			out = append(out, list[i])
		}
	}
	return out
}

// MergeHits adds hits to others, both in order of name.
func MergeHits(old, add []TriggerHit) []TriggerHit {
	out := make([]TriggerHit, 0, len(old)+len(add))
	for _, h := range add {
		for len(old) > 0 && old[0].Name < h.Name {
			out, old = append(out, old[0]), old[1:]
		}
		switch {
		case len(out) > 0 && out[len(out)-1].Name == h.Name:
			out[len(out)-1].Events |= h.Events
		case len(old) > 0 && old[0].Name == h.Name:
			h.Events |= old[0].Events
			out, old = append(out, h), old[1:]
		default:
			out = append(out, h)
		}
	}
	out = append(out, old...)
	if len(out) <= MaxTriggerHits {
		return out
	}
	rest := TriggerHit{} // what is too much to be told by name
	for _, h := range out[MaxTriggerHits-1:] {
		rest.Events, rest.Gen = rest.Events|h.Events, max(rest.Gen, h.Gen)
	}
	if out = out[:MaxTriggerHits-1]; out[0].Name != "" {
		out = slices.Insert(out, 0, TriggerHit{})
	}
	out[0].Events, out[0].Gen = out[0].Events|rest.Events, max(out[0].Gen, rest.Gen)
	return out
}

// MaxTriggerHits bounds what is told by name of what has happened.
const MaxTriggerHits = 4096
