package sched

import (
	"fmt"
	"strings"

	"gbatch/internal/model"
)

// Sight says what the reader of an explanation may see of others (PrivateData). What is hidden is counted, and its
// times are given, since they say when the reader's job starts; it is not named.
type Sight struct {
	Job         func(model.JobID) bool
	Reservation func(name string) bool
}

func (s *Sight) job(id model.JobID) bool { return s == nil || s.Job(id) }

// reservationText names a reservation.
func (x *explainer) reservationText(name string) string {
	if x.sees != nil && !x.sees.Reservation(name) {
		return "a reservation"
	}
	return "reservation " + name
}

// number gives a job's number as users know it.
func (x *explainer) number(id model.JobID) string {
	if j := x.v.Job(id); j != nil && j.ArrayID != 0 && j.Task != model.NoTask {
		return fmt.Sprintf("%d_%d", j.ArrayID, j.Task)
	}
	return fmt.Sprint(id)
}

// job names one job.
func (x *explainer) job(id model.JobID) string {
	if !x.sees.job(id) {
		return "another user's job"
	}
	return "job " + x.number(id)
}

// jobList names jobs, the first ones of all.
func (x *explainer) jobList(ids []model.JobID, all int) string {
	var out []string
	for _, id := range ids {
		if x.sees.job(id) {
			out = append(out, x.number(id))
		}
	}
	hidden := len(ids) - len(out)
	switch {
	case len(out) == 0 && all == 1:
		return "another user's job"
	case len(out) == 0 && hidden > 0:
		return fmt.Sprintf("%d jobs, those of other users among them", all)
	}
	text := strings.Join(out, ", ")
	if all > len(out) {
		text += fmt.Sprintf(" and %d more", all-len(out))
	}
	if all == 1 {
		return "job " + text
	}
	return "jobs " + text
}
