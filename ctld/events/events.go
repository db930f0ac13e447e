// Package events tells what happens: jobs' changes of state, nodes, units, reservations (package
// trail has the names). It makes the trail's entries about what users change (deeds.go), writes a
// line into the controller's log for each event (events.go), and serves them as a stream over HTTP
// (feed.go, stream.go). It reads what the state remembers (View.Happened), apart from the leader's
// other work; nobody who listens can hold anything up.
package events

import (
	"context"
	"log/slog"

	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// Log writes what has happened since a number, and gives the number for the next call.
func Log(ctx context.Context, log *slog.Logger, v *state.View, since uint64) uint64 {
	list, next, missed := v.Happened(since)
	if missed > 0 {
		log.Warn("events were too many to be logged", "count", missed)
	}
	for i := range list {
		h := &list[i]
		if h.Audit != nil {
			a := h.Audit
			log.LogAttrs(ctx, slog.LevelInfo, a.Event, slog.String("what", a.What), slog.String("name", a.Name),
				slog.String("by", a.By), slog.String("text", a.Text))
		} else if name := nameOf(h); name != "" {
			job(ctx, log, name, h.Job)
		}
	}
	return next
}

// nameOf names a change of a job's state; "": it is none that is logged.
func nameOf(h *state.Happening) string {
	was := model.Pending
	if h.Was != nil {
		was = h.Was.State
	}
	switch is := h.Job.State; {
	case is.Finished():
		return trail.TaskFinished
	case h.Was == nil && is == model.Pending:
		return trail.TaskSubmitted
	case is == model.Pending && was != model.Pending:
		return trail.TaskRequeued
	case h.Preempted():
		return trail.TaskPreempted
	case h.Resized():
		return trail.TaskResized
	case is == model.Suspended && was != model.Suspended:
		return trail.TaskSuspended
	case was == model.Suspended && is == model.Running:
		return trail.TaskResumed
	case was == model.Pending && is.HasResources():
		return trail.TaskScheduled
	}
	return ""
}

func job(ctx context.Context, log *slog.Logger, name string, j *model.Job) {
	at := []slog.Attr{slog.Uint64("job", uint64(j.ID)), slog.Uint64("attempt", uint64(j.Attempt)),
		slog.String("user", j.Spec.User), slog.String("account", j.Spec.Account), slog.String("state", j.State.String())}
	if j.ArrayID != 0 {
		at = append(at, slog.Uint64("array", uint64(j.ArrayID)), slog.Int("task", int(j.Task)))
	}
	if j.Run != nil && j.Run.Alloc != nil {
		at = append(at, slog.Any("nodes", j.Run.Alloc.NodeNames()))
	}
	if j.End != nil {
		at = append(at, slog.Int("code", int(j.End.Exit.Code)), slog.Uint64("by_uid", uint64(j.End.UID)),
			slog.String("why", j.Why))
	}
	log.LogAttrs(ctx, slog.LevelInfo, name, at...)
}
