package model

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/wire"
)

// Reservation keeps nodes free for a time, for some users or accounts or, for maintenance, for none.
type Reservation struct {
	Name      string
	Start     Time
	End       Time     // end of this occurrence, if it repeats
	Nodes     []string // in order of name
	Partition string   // the partition from which nodes were picked; "": any
	Features  string   // features by which nodes were picked
	Users     []string // users who may use it; if Accounts is set too, a job must fit both
	Accounts  []string
	Flags     ResvFlags
	Begun     bool // it has begun

	Groups   []string   // groups whose members may use it, in addition to Users
	GIDs     []uint32   // the groups' numbers
	Parts    []ResvPart // the part of each node of Nodes; empty: whole nodes
	Licenses []LicenseCount
	First    Time   // if it repeats, the very first Start: it gives the time of day
	Later    []Time // beginnings of the occurrences after this one, by the controllers' calendar
	FloatS   int64  // TIME_FLOAT: its beginning is always that many seconds ahead
	PurgeS   int64  // PURGE_COMP: it is deleted after that time without jobs that ask for it, seconds; 0: it stays
	IdleAt   Time   // PURGE_COMP: since when no job asks for it; 0: a job does, or it has not begun
	Count    int32  // number of nodes that was asked for; 0: nodes were named
	DelayS   int64  // MaxStartDelay: its jobs may wait that long for others that give way (--signal=R:); 0: for none
}

func (x *Reservation) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Text(c, &x.Partition, MaxName)
	wire.Text(c, &x.Features, MaxText)
	wire.Texts(c, &x.Users, MaxList, MaxName)
	wire.Texts(c, &x.Accounts, MaxList, MaxName)
	wire.Int(c, &x.Flags)
	wire.Bool(c, &x.Begun)
	wire.Texts(c, &x.Groups, MaxList, MaxName)
	wire.Ints(c, &x.GIDs, MaxList)
	wire.List(c, &x.Parts, MaxList)
	wire.List(c, &x.Licenses, MaxFew)
	wire.Int(c, &x.First)
	wire.Ints(c, &x.Later, MaxList)
	wire.Int(c, &x.FloatS)
	wire.Int(c, &x.PurgeS)
	wire.Int(c, &x.IdleAt)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.DelayS)
}

// ResvTurn is the beginning or the end of a reservation of which ResvProlog or ResvEpilog has not been told yet.
type ResvTurn struct {
	Seq  uint64
	At   Time
	Over bool // it has ended, or this occurrence of it has; otherwise it has begun
	Resv *Reservation
}

func (x *ResvTurn) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.At)
	wire.Bool(c, &x.Over)
	wire.Ptr(c, &x.Resv)
}

// ResvPart is the part of one node that a reservation takes.
type ResvPart struct {
	CPUs   int32
	MemMiB int64
	Gres   []int32 // units of each of the node's entries, in order
}

func (x *ResvPart) Wire(c *wire.C) {
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.MemMiB)
	wire.Ints(c, &x.Gres, MaxFew)
}

// ResvFlags is a set of a reservation's flags. The numbers are stored: append only.
type ResvFlags uint32

// The flags, with Slurm's names.
const (
	ResvMaint     ResvFlags = 1 << iota // nodes are shown as in maintenance, and may be reserved twice
	ResvFlex                            // its jobs may begin before and end after it
	ResvIgnore                          // IGNORE_JOBS: jobs may run on its nodes when it is made
	ResvDaily                           // again every 24 hours
	ResvWeekly                          // again every 7 days
	ResvSpecNodes                       // SPEC_NODES: its nodes were named
	ResvAllNodes                        // ALL_NODES
	ResvOverlap                         // may share nodes with other reservations
	ResvNoHold                          // NO_HOLD_JOBS_AFTER
	ResvHourly
	ResvWeekday     // Monday to Friday
	ResvWeekend     // Saturday and Sunday
	ResvAnyNodes    // ANY_NODES: it reserves only licenses, and its jobs run on any nodes
	ResvPurge       // PURGE_COMP
	ResvReplace     // REPLACE: nodes that are down or in use are replaced by idle ones
	ResvReplaceDown // REPLACE_DOWN: nodes that are down are replaced
	ResvFloat       // TIME_FLOAT
	ResvStatic      // STATIC_ALLOC: nodes that are down are not replaced
	ResvPartNodes   // PART_NODES: always all nodes of its partition
	ResvMagnetic    // MAGNETIC: it takes jobs that may use it and ask for no reservation
)

// ResvRepeats are the flags of repeating reservations.
const ResvRepeats = ResvHourly | ResvDaily | ResvWeekly | ResvWeekday | ResvWeekend

var resvFlagNames = []string{"MAINT", "FLEX", "IGNORE_JOBS", "DAILY", "WEEKLY", "SPEC_NODES", "ALL_NODES", "OVERLAP",
	"NO_HOLD_JOBS_AFTER",
	"HOURLY", "WEEKDAY", "WEEKEND", "ANY_NODES", "PURGE_COMP", "REPLACE", "REPLACE_DOWN", "TIME_FLOAT", "STATIC_ALLOC",
	"PART_NODES", "MAGNETIC"}

// resvMembers are data_parser's words for flags, where they are others.
var resvMembers = map[string]string{"STATIC_ALLOC": "STATIC", "NO_HOLD_JOBS_AFTER": "NO_HOLD_JOBS_AFTER_END"}

// ResvNewMembers are the flags that data_parser has words for from v0.0.44 on only.
const ResvNewMembers = ResvReplaceDown

// Members lists the flags in data_parser's words.
func (f ResvFlags) Members() []string {
	out := f.Names()
	for i, name := range out {
		out[i] = cmp.Or(resvMembers[name], name)
	}
	return out
}

// Names lists the flags in Slurm's words.
func (f ResvFlags) Names() []string {
	var out []string
	for i, name := range resvFlagNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// ParseResvFlag reads one flag's name in capitals.
func ParseResvFlag(name string) (ResvFlags, bool) {
	i := slices.Index(resvFlagNames, name)
	if i < 0 {
		return 0, false
	}
	return 1 << i, true
}

// PeriodS gives the seconds after which it repeats if Later is empty; 0: never.
func (r *Reservation) PeriodS() int64 {
	switch {
	case r.Flags&ResvHourly != 0:
		return 3600
	case r.Flags&(ResvDaily|ResvWeekday|ResvWeekend) != 0:
		return 86400
	case r.Flags&ResvWeekly != 0:
		return 7 * 86400
	}
	return 0
}

// Roams reports whether its jobs may use other nodes than its own.
func (r *Reservation) Roams() bool { return r.Flags&(ResvFlex|ResvAnyNodes) != 0 }

// Part gives the part that it takes of its node at index i; nil: the whole node.
func (r *Reservation) Part(i int) *ResvPart {
	if i >= len(r.Parts) {
		return nil
	}
	return &r.Parts[i]
}

// Admits reports whether a job's user and account may use it. Names that begin with - are excluded.
func (r *Reservation) Admits(sp *Spec) bool {
	if len(r.Users)+len(r.Groups)+len(r.Accounts) == 0 {
		return false
	}
	if len(r.Users)+len(r.Groups) > 0 && !allows(r.Users, sp.User) && !r.hasGroup(sp) {
		return false
	}
	if len(r.Accounts) > 0 && r.Accounts[0][0] == '-' {
		return !HasAccount(r.Accounts, "-"+sp.Account)
	}
	return len(r.Accounts) == 0 || HasAccount(r.Accounts, sp.Account)
}

// Attracts reports whether it takes a job that asks for no reservation. Heterogeneous jobs have to ask, as in Slurm.
func (r *Reservation) Attracts(sp *Spec, het bool) bool {
	return r.Flags&ResvMagnetic != 0 && sp.Reservation == "" && !het && r.Admits(sp)
}

// Takes reports whether a job may start in it: one that asked for it, or that it attracts.
func (r *Reservation) Takes(sp *Spec, het bool) bool {
	return r.Admits(sp) && slices.Contains(sp.ReservationNames(), r.Name) || r.Attracts(sp, het)
}

func allows(list []string, name string) bool {
	if len(list) > 0 && list[0][0] == '-' {
		return !slices.Contains(list, "-"+name)
	}
	return slices.Contains(list, name)
}

func (r *Reservation) hasGroup(sp *Spec) bool {
	return slices.Contains(r.GIDs, sp.GID) ||
		slices.ContainsFunc(sp.Groups, func(g uint32) bool { return slices.Contains(r.GIDs, g) })
}

// Meets reports whether two reservations need the same node at the same time, as far ahead as Occurrences looks. The
// state decides whether parts of a node fit beside each other.
func (r *Reservation) Meets(o *Reservation) bool {
	return slices.ContainsFunc(r.Nodes, func(n string) bool { return slices.Contains(o.Nodes, n) }) && r.MeetsInTime(o)
}

// MeetsInTime reports whether occurrences of two reservations overlap in time.
func (r *Reservation) MeetsInTime(o *Reservation) bool {
	for _, a := range r.Occurrences() {
		for _, b := range o.Occurrences() {
			if a[0] < b[1] && b[0] < a[1] {
				return true
			}
		}
	}
	return false
}

// MeetsEver is MeetsInTime however far ahead. It is for who makes reservations: the state looks as far as it did when
// its log was written.
func (r *Reservation) MeetsEver(o *Reservation) bool {
	if r.MeetsInTime(o) {
		return true
	}
	a, pa := r.cycle()
	b, pb := o.cycle()
	if pa == 0 {
		a, pa, b, pb = b, pb, a, pa
	}
	if pa == 0 || r.FloatS > 0 || o.FloatS > 0 {
		return false
	}
	for _, x := range a {
		for _, y := range b {
			ahead, period := int64(y[0]-x[0]), pa
			switch {
			case pb > 0: // every period is a multiple of the shorter ones
				period = min(pa, pb)
				ahead = (ahead%period + period) % period
			case ahead < 0:
				continue
			default:
				ahead %= period
			}
			if ahead < int64(x[1]-x[0]) || period-ahead < int64(y[1]-y[0]) {
				return true
			}
		}
	}
	return false
}

// cycle gives the last planned occurrences, and the milliseconds after which these come back; 0: they don't.
func (r *Reservation) cycle() (last [][2]Time, period int64) {
	all := r.Occurrences()
	period = r.PeriodS() * 1000
	switch {
	case period == 0:
		return all, 0
	case r.Flags&(ResvWeekday|ResvWeekend) != 0: // those of a week
		period *= 7
		end := all[len(all)-1][0]
		return slices.DeleteFunc(all, func(o [2]Time) bool { return int64(end-o[0]) >= period }), period
	}
	return all[len(all)-1:], period
}

// MaxOccurrences is how many occurrences of a repeating reservation are planned.
const MaxOccurrences = 14

// Occurrences gives the beginnings and ends of its occurrences, the present or next one first.
func (r *Reservation) Occurrences() [][2]Time {
	out := [][2]Time{{r.Start, r.End}}
	long := r.End - r.Start
	for _, t := range r.Later[:min(len(r.Later), MaxOccurrences-1)] {
		out = append(out, [2]Time{t, t + long})
	}
	period := r.PeriodS()
	for last := out[len(out)-1]; period > 0 && len(out) < MaxOccurrences; {
		last = [2]Time{last[0].Add(period), last[1].Add(period)}
		out = append(out, last)
	}
	for i := range len(out) - 1 { // a daily one overlaps the next on a day of 23 hours
		out[i][1] = min(out[i][1], out[i+1][0])
	}
	return out
}

// At gives the reservation at a moment: with TIME_FLOAT its times lie ahead of that moment.
func (r *Reservation) At(now Time) *Reservation {
	if r.FloatS <= 0 {
		return r
	}
	n := *r
	n.Start = now.Add(r.FloatS)
	n.End = n.Start + r.End - r.Start
	return &n
}

// Active reports whether it is one of now. A floating one never is.
func (r *Reservation) Active(now Time) bool {
	r = r.At(now)
	return r.Start <= now && now < r.End
}

// ReservationNames gives the reservations that a job asked for, in its order.
func (s *Spec) ReservationNames() []string {
	if s.Reservation == "" {
		return nil
	}
	return strings.Split(s.Reservation, ",")
}

// ReservationText gives the reservations that a job asked for or, if it asked for none, the one that it runs in
// because that has attracted it (MAGNETIC); "": neither.
func (j *Job) ReservationText() string {
	if j.Spec.Reservation == "" && j.Run != nil {
		return j.Run.Resv
	}
	return j.Spec.Reservation
}
