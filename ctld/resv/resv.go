package resv

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// Facts are the inputs for making reservations, besides the settings.
type Facts struct {
	View  *state.View
	Now   model.Time
	Zone  *time.Location // time zone of repeating reservations
	Group func(name string) (gid uint32, err error)
	User  func(name string) error // nil: the user exists, or nobody knows
}

// Refusal says why settings make no valid reservation: a code, and what exactly is wrong.
type Refusal struct {
	Code   proto.Code
	Detail string
}

// Error gives the sentence: Slurm's words for the code, then the detail.
func (r *Refusal) Error() string { return proto.Sentence(r.Code, r.Detail) }

func refuse(code proto.Code, format string, a ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, a...)}
}

// Limits of a reservation.
const (
	// yearS is how long a reservation without an end is, seconds; as in Slurm.
	yearS = 365 * 86400
	// maxNodes bounds the requested number of nodes.
	maxNodes = 65536
)

// Create makes a new reservation from settings. Without a name it gets a free one. An error is a *Refusal.
func Create(f Facts, name string, set []model.KV) (*model.Reservation, error) {
	d := &draft{Facts: f, r: &model.Reservation{Name: name}, fresh: true}
	if err := d.build(set); err != nil {
		return nil, err
	}
	if name == "" {
		d.r.Name = freeName(f.View, d.r)
	}
	return d.r, nil
}

// Update gives a copy of a reservation with changed settings. An error is a *Refusal.
func Update(f Facts, old *model.Reservation, set []model.KV) (*model.Reservation, error) {
	r := *old
	d := &draft{Facts: f, r: &r, durationS: int64(r.End-r.Start) / 1000}
	if err := d.build(set); err != nil {
		return nil, err
	}
	return &r, nil
}

// freeName makes a name as Slurm does: the first user or account and a number.
func freeName(v *state.View, r *model.Reservation) string {
	base := strings.TrimPrefix(slices.Concat(r.Users, r.Groups, r.Accounts, []string{"resv"})[0], "-")
	for i := 1; ; i++ {
		if name := fmt.Sprintf("%s_%d", base, i); v.Reservation(name) == nil {
			return name
		}
	}
}
