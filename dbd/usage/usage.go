package usage

import (
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Of are the properties of jobs by which their usage is summed.
type Of struct {
	Cluster, Account, User, QOS, Partition, WCKey, Resv string
	CPUs                                                int32
}

// OfRecord gives the properties of a record's job.
func OfRecord(r *model.Record) Of {
	key := r.WCKey
	if r.WCKeyID == 0 { // TrackWCKey was off: it is a word of the user's
		key = ""
	}
	return Of{Cluster: r.Cluster, Account: r.Account, User: r.User, QOS: r.QOS, Partition: r.Partition,
		Resv: r.Reservation, CPUs: r.AllocCPUs, WCKey: key}
}

// Bins is the number of classes of waiting times.
const Bins = 6

// waitBins are the upper bounds of all classes but the last, seconds; equal to proto.WaitBins.
var waitBins = [Bins - 1]int64{60, 600, 3600, 6 * 3600, 86400}

// States bounds the states of jobs.
const States = 32

// Sum is usage in a span of time.
type Sum struct {
	TRES  []model.TRESCount // amount times seconds, in order of name; mem in MiB, energy in joules
	Over  int64             // jobs that held resources when the span began
	Began int64             // jobs that started in it
	WaitS int64             // of those that started: seconds from eligible to start
	Waits [Bins]int64       // of those that started, by how long they waited
	Ended [States]int64     // jobs that ended in it, by state
}

// Zero reports whether nothing is in it.
func (s *Sum) Zero() bool {
	if s.Over != 0 || s.Began != 0 || s.WaitS != 0 || s.Waits != [Bins]int64{} || s.Ended != [States]int64{} {
		return false
	}
	return !slices.ContainsFunc(s.TRES, func(t model.TRESCount) bool { return t.Count != 0 })
}

// Add adds o, times by: 1, or -1 to take it away.
func (s *Sum) Add(o *Sum, by int64) {
	for _, t := range o.TRES {
		s.add(t.TRES, by*t.Count)
	}
	s.Over += by * o.Over
	s.Began += by * o.Began
	s.WaitS += by * o.WaitS
	for i, n := range o.Waits {
		s.Waits[i] += by * n
	}
	for i, n := range o.Ended {
		s.Ended[i] += by * n
	}
}

func (s *Sum) add(name string, n int64) {
	for i := range s.TRES {
		if s.TRES[i].TRES == name {
			s.TRES[i].Count += n
			return
		}
	}
	if n == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(s.TRES, name, func(t model.TRESCount, name string) int {
		return strings.Compare(t.TRES, name)
	})
	s.TRES = slices.Insert(s.TRES, at, model.TRESCount{TRES: name, Count: n})
}

// bin gives the class of a waiting time.
func bin(s int64) int {
	for i, most := range waitBins {
		if s <= most {
			return i
		}
	}
	return Bins - 1
}
