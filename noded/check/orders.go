package check

import (
	"log/slog"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// orders.go leaves out what no node can do of a leader's message. The rest of the message is carried out: a session
// that ended would bring the same order again. Launches are not looked at here: gnoded refuses each with the reason.

// Orders leaves out orders with numbers that mean nothing, and says so in the log.
func Orders(o *proto.Orders, log *slog.Logger) {
	o.Stop = stops(o.Stop, log)
	o.Freeze = slices.DeleteFunc(o.Freeze, func(f *proto.Freeze) bool {
		bad := f.GraceMS < 0
		if bad {
			log.Error("an order to suspend a job is ignored", "job", f.Job, "grace_ms", f.GraceMS)
		}
		return bad
	})
	o.Resize = slices.DeleteFunc(o.Resize, func(r *proto.Resize) bool {
		bad := r.Alloc == nil || len(r.Alloc.Nodes) == 0
		if bad {
			log.Error("an order to resize a job is ignored: it has no nodes", "job", r.Job)
		}
		return bad
	})
}

func stops(list []*proto.Stop, log *slog.Logger) []*proto.Stop {
	return slices.DeleteFunc(list, func(t *proto.Stop) bool {
		bad := t.Signal < 0 || t.Signal > MaxSignal || t.KillWaitS < 0
		if bad {
			log.Error("an order to stop a job is ignored", "job", t.Job, "signal", t.Signal, "kill_wait", t.KillWaitS)
		}
		return bad
	})
}

// Ask leaves out signals and limits that there are none of, and says so in the log. The answer says that the step was
// not there.
func Ask(ask *proto.NodeAsk, log *slog.Logger) {
	ask.Signals = stops(ask.Signals, log)
	for i := range ask.Tell {
		if t := &ask.Tell[i]; t.Signal < 0 || t.Signal > MaxSignal || t.LimitS < 0 ||
			t.LimitS > model.Unlimited {
			log.Error("an order to a step is ignored", "job", t.Job, "step", t.Step, "signal", t.Signal, "limit",
				t.LimitS)
			*t = proto.StepTell{Step: t.Step}
		}
	}
}
