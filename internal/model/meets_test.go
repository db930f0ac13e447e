package model

import "testing"

// TestMeetsEver: repeating reservations meet others also beyond the occurrences that are planned.
func TestMeetsEver(t *testing.T) {
	const minute, hour, day, week = 60 * 1000, 3600 * 1000, 24 * 3600 * 1000, 7 * 24 * 3600 * 1000
	at := func(start, long Time, flags ResvFlags) *Reservation {
		return &Reservation{Start: start, End: start + long, Flags: flags}
	}
	// A calendar's occurrences, from a Monday at midnight on.
	weekdays := at(0, hour, ResvWeekday)
	for d := Time(1); len(weekdays.Later) < MaxOccurrences-1; d++ {
		if d%7 < 5 {
			weekdays.Later = append(weekdays.Later, d*day)
		}
	}
	for name, c := range map[string]struct {
		a, b *Reservation
		want bool
	}{
		"hourly, a year later":    {at(0, 15*minute, ResvHourly), at(52*week+10*minute, 5*minute, 0), true},
		"between two hours":       {at(0, 15*minute, ResvHourly), at(52*week+20*minute, 30*minute, 0), false},
		"into the next hour":      {at(0, 15*minute, ResvHourly), at(52*week+20*minute, 41*minute, 0), true},
		"before it begins":        {at(3*week, 15*minute, ResvHourly), at(week, 15*minute, 0), false},
		"daily, in five weeks":    {at(3*week, 15*minute, ResvDaily), at(5*week, 15*minute, 0), true},
		"daily, another time":     {at(3*week, 15*minute, ResvDaily), at(5*week+hour, 15*minute, 0), false},
		"weekly, in a year":       {at(0, hour, ResvWeekly), at(52*week, minute, 0), true},
		"weekly, another day":     {at(0, hour, ResvWeekly), at(52*week+day, minute, 0), false},
		"hourly and weekly":       {at(0, 15*minute, ResvHourly), at(30*week+5*minute, minute, ResvWeekly), true},
		"hourly and daily, apart": {at(0, 15*minute, ResvHourly), at(30*week+15*minute, 45*minute, ResvDaily), false},
		"a weekday":               {weekdays, at(40*week+day, minute, 0), true},
		"a weekend":               {weekdays, at(40*week+5*day, day, 0), false},
		"once and once":           {at(0, hour, 0), at(hour, hour, 0), false},
	} {
		if got := c.a.MeetsEver(c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := c.b.MeetsEver(c.a); got != c.want {
			t.Errorf("%s, the other way round: %v", name, got)
		}
	}
}
