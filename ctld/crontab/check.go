package crontab

import (
	"fmt"
	"time"

	"gbatch/internal/cron"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
)

// CheckText checks the text of a crontab.
func CheckText(text []byte) error {
	if len(text) > cron.MaxText {
		return fmt.Errorf("a crontab has at most %d bytes, this one has %d", cron.MaxText, len(text))
	}
	for i, line := range cron.Lines(string(text)) {
		if plain.Lines(line) != line {
			return fmt.Errorf("line %d of the crontab contains a character that would act on screens that show it", i+1)
		}
	}
	return nil
}

// CheckJob checks one job of a crontab with so many lines: what can't come back is refused.
func CheckJob(rq *proto.SubmitRequest, lines int) error {
	if rq.Spec == nil || rq.Spec.Cron == nil || rq.TestOnly {
		return fmt.Errorf("the crontab is malformed: an entry has no description, or no times")
	}
	sp, c := rq.Spec, rq.Spec.Cron
	switch {
	case c.First < 1 || c.Last < c.First || int(c.Last) > lines:
		return fmt.Errorf("the crontab is malformed: lines %d-%d of %d", c.First, c.Last, lines)
	case len(c.Times) > cron.MaxTimes:
		return fmt.Errorf("the times are longer than %d characters", cron.MaxTimes)
	case len(rq.Rest) > 0:
		return fmt.Errorf("a heterogeneous job can't come back; call gsubmit in the entry's command")
	case len(sp.Tasklist) > 0:
		return fmt.Errorf("an array can't come back (--array); call gsubmit in the entry's command")
	case sp.Deadline != 0:
		return fmt.Errorf("a job that comes back has no --deadline; give a --time")
	case sp.Extra().Interactive:
		return fmt.Errorf("an allocation can't come back")
	}
	_, err := cron.ParseTimes(c.Times)
	return err
}

// Next gives the first time of an entry after a moment; 0: there is none.
func Next(c *model.Cron, after model.Time) model.Time {
	s, err := cron.ParseTimes(c.Times)
	if err != nil {
		return 0
	}
	t := s.Next(time.UnixMilli(int64(after)).In(time.Local))
	if t.IsZero() {
		return 0
	}
	return model.Time(t.UnixMilli())
}
