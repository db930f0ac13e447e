package resv

import (
	"time"

	"gbatch/internal/model"
)

// laterOf gives the beginnings of a reservation's occurrences after the present one: the same time of day in a time
// zone, even if days have 23 or 25 hours. HOURLY needs no calendar.
func laterOf(r *model.Reservation, zone *time.Location) (out []model.Time) {
	if r.Flags&(model.ResvDaily|model.ResvWeekly|model.ResvWeekday|model.ResvWeekend) == 0 {
		return nil
	}
	first, from := time.UnixMilli(int64(r.First)).In(zone), time.UnixMilli(int64(r.Start)).In(zone)
	y, m, day := from.Date()
	for n := 1; len(out) < model.MaxOccurrences-1 && n <= 7*model.MaxOccurrences; n++ { // each week has at least one
		t := time.Date(y, m, day+n, first.Hour(), first.Minute(), first.Second(), 0, zone)
		weekend := t.Weekday() == time.Saturday || t.Weekday() == time.Sunday
		switch {
		case r.Flags&model.ResvWeekday != 0 && weekend, r.Flags&model.ResvWeekend != 0 && !weekend:
		case r.Flags&model.ResvWeekly != 0 && t.Weekday() != first.Weekday():
		case t.UnixMilli() <= int64(r.Start):
		default:
			out = append(out, model.Time(t.UnixMilli()))
		}
	}
	return out
}
