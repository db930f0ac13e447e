package cron

import "time"

// horizonYears is how far Next looks: from one 29th of February to the next there may be eight years.
const horizonYears = 9

// Next gives the first moment of the schedule after another one, in that one's time zone; zero if there is none within
// nine years, which no Schedule that Parse gives has.
//
// When clocks are put forward, what is due in the hours that don't exist is due at their end. When they are put back,
// an entry for certain hours is due in the first of the two equal hours only; one for every hour is due in both.
func (s *Schedule) Next(after time.Time) time.Time {
	t := after.Truncate(time.Minute).Add(time.Minute)
	end := after.AddDate(horizonYears, 0, 0)
	for t.Before(end) {
		year, month, day := t.Date()
		switch {
		case s.inGap(t):
			return t
		case s.months>>month&1 == 0:
			t = later(t, time.Date(year, month+1, 1, 0, 0, 0, 0, t.Location()))
		case !s.onDay(t):
			t = later(t, time.Date(year, month, day+1, 0, 0, 0, 0, t.Location()))
		case s.hours>>t.Hour()&1 == 0:
			t = t.Add(time.Duration(60-t.Minute()) * time.Minute)
		case s.minutes>>t.Minute()&1 == 0 || !s.hourly() && repeated(t):
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// later gives the moment to which a search goes on from t: it never goes back, whatever a time zone makes of midnight.
func later(t, to time.Time) time.Time {
	if !to.After(t) {
		return t.Add(time.Duration(60-t.Minute()) * time.Minute)
	}
	return to
}

// onDay reports whether t's day is one of the schedule's: by either field if both say something.
func (s *Schedule) onDay(t time.Time) bool {
	day, weekday := s.days>>t.Day()&1 != 0, s.weekdays>>t.Weekday()&1 != 0
	switch {
	case s.anyDay:
		return weekday
	case s.anyWeekday:
		return day
	}
	return day || weekday
}

// hourly reports whether the schedule is for every hour: it goes by elapsed time then.
func (s *Schedule) hourly() bool { return s.hours == 1<<24-1 }

// matches reports whether the fields say a time of the clock, given in UTC so that each exists.
func (s *Schedule) matches(t time.Time) bool {
	return s.months>>t.Month()&1 != 0 && s.onDay(t) && s.hours>>t.Hour()&1 != 0 && s.minutes>>t.Minute()&1 != 0
}

// inGap reports whether clocks have just been put forward to t, over a minute of the schedule.
func (s *Schedule) inGap(t time.Time) bool {
	before := offset(t.Add(-time.Minute))
	gap := offset(t) - before
	if gap <= 0 || s.hourly() {
		return false
	}
	missing := t.UTC().Add(before) // as the clock would show it without the change
	for n := time.Duration(0); n < gap; n += time.Minute {
		if s.matches(missing.Add(n)) {
			return true
		}
	}
	return false
}

// longestShift is more than clocks are put back at once.
const longestShift = 3 * time.Hour

// repeated reports whether clocks have shown t's time before, since they were put back.
func repeated(t time.Time) bool {
	was, is := offset(t.Add(-longestShift)), offset(t)
	return was > is && offset(t.Add(is-was)) == was
}

func offset(t time.Time) time.Duration {
	_, s := t.Zone()
	return time.Duration(s) * time.Second
}
