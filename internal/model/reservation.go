package model

import "slices"

// Reservation keeps nodes free for some users or accounts, or for nobody, for a span of time.
//
//gbatch:codec
type Reservation struct {
	Name      string
	Start     Time
	End       Time     // of this occurrence, where it repeats
	Nodes     []string // in order of name
	Partition string   // that the nodes were picked from; "": any
	Features  string   // that they were picked by
	Users     []string // who may use it; with Accounts a job must fit both
	Accounts  []string
	Flags     ResvFlags
	Begun     bool // Start is over
}

// ResvFlags is a set of a reservation's flags. The numbers are stored: append only.
type ResvFlags uint32

// The flags, with Slurm's names.
const (
	ResvMaint     ResvFlags = 1 << iota // nodes are shown as in maintenance, and may be reserved twice
	ResvFlex                            // its jobs may begin before and end after it
	ResvIgnore                          // IGNORE_JOBS: made although jobs run on its nodes
	ResvDaily                           // again every 24 hours
	ResvWeekly                          // again every 7 days
	ResvSpecNodes                       // SPEC_NODES: its nodes were named
	ResvAllNodes                        // ALL_NODES
	ResvOverlap                         // may share nodes with other reservations
	ResvNoHold                          // NO_HOLD_JOBS_AFTER
)

var resvFlagNames = []string{"MAINT", "FLEX", "IGNORE_JOBS", "DAILY", "WEEKLY", "SPEC_NODES", "ALL_NODES", "OVERLAP", "NO_HOLD_JOBS_AFTER"}

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

// PeriodS gives after how many seconds it comes again; 0: never.
func (r *Reservation) PeriodS() int64 {
	switch {
	case r.Flags&ResvDaily != 0:
		return 86400
	case r.Flags&ResvWeekly != 0:
		return 7 * 86400
	}
	return 0
}

// Admits reports whether a user's job in an account may use it.
func (r *Reservation) Admits(user, account string) bool {
	if len(r.Users) > 0 && !slices.Contains(r.Users, user) || len(r.Accounts) > 0 && !slices.Contains(r.Accounts, account) {
		return false
	}
	return len(r.Users)+len(r.Accounts) > 0
}

// Meets reports whether two reservations want the same node at the same time, for as far ahead as Horizon looks.
func (r *Reservation) Meets(o *Reservation) bool {
	if !slices.ContainsFunc(r.Nodes, func(n string) bool { return slices.Contains(o.Nodes, n) }) {
		return false
	}
	for _, a := range r.Occurrences() {
		for _, b := range o.Occurrences() {
			if a[0] < b[1] && b[0] < a[1] {
				return true
			}
		}
	}
	return false
}

// MaxOccurrences is how many times ahead one that repeats is planned for.
const MaxOccurrences = 14

// Occurrences gives beginning and end of the times at which it holds, the present or next one first.
func (r *Reservation) Occurrences() [][2]Time {
	period := r.PeriodS()
	out := [][2]Time{{r.Start, r.End}}
	for i := int64(1); period > 0 && i < MaxOccurrences; i++ {
		out = append(out, [2]Time{r.Start.Add(i * period), r.End.Add(i * period)})
	}
	return out
}
