package ctld

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/store"
	"gbatch/internal/wire"
)

// refusals.go has the texts of refusals: the beginning of every handler's refusal, and the texts for the state's
// refusals.

// refuse makes an error: Slurm's words for the code, followed by what exactly is wrong and what to do.
func refuse(code proto.Code, format string, a ...any) *rpc.Error {
	return rpc.Errorf(code, "%s", proto.Sentence(code, fmt.Sprintf(format, a...)))
}

// refusedBy says why the state refused a submission; nil if it accepted it.
func refusedBy(v *state.View, sp *model.Spec, res state.Result) error {
	switch res.Refusal {
	case state.OK:
		return nil
	case state.TooManyJobs:
		return refuse(proto.CodePolicy, "the cluster holds MaxJobCount=%d jobs already; wait until some have ended",
			v.Config().Params.MaxJobs)
	case state.OverLimit:
		return refuse(proto.CodePolicy, "%s", overSubmit(sp, res.Reason))
	case state.BadDependency:
		return refuse(proto.CodeDependency,
			"a job named in --dependency=%s is unknown (or there are more than %d); see gqueue for the jobs that are known",
			sp.DepText, state.MaxDeps)
	}
	if res.Refusal == state.BadUser {
		return refuse(proto.CodeAccess, "the cluster takes no jobs of user id %d, group id %d from here: %v", sp.UID, sp.GID,
			sp.CheckUser(v.Config().Params.SlurmUID))
	}
	return refuse(proto.CodeInternal, "the job was refused (%d)", res.Refusal)
}

// overSubmit says which limit on unfinished jobs refuses a submission, and how to see it.
func overSubmit(sp *model.Spec, r model.Reason) string {
	switch r {
	case model.ReasonQOSMaxSubmitJobPerUserLimit:
		return fmt.Sprintf("%s: user %s has as many unfinished jobs in QOS %s (or the partition's QOS) as it allows; wait "+
			"until some have ended", r, sp.User, sp.QOS)
	case model.ReasonMaxSubmitJobsPerAccount, model.ReasonQOSGrpSubmitJobsLimit:
		return fmt.Sprintf("%s: QOS %s (or the partition's QOS) has as many unfinished jobs of account %s as it allows; "+
			"wait until some have ended", r, sp.QOS, sp.Account)
	}
	return fmt.Sprintf("%s: account %s, or user %s in it, has as many unfinished jobs as it may; see gacctmgr show "+
		"association and wait until some have ended", r, sp.Account, sp.User)
}

// written names a text as the user wrote it: the option, the word before =, or the field.
func written(bad *wire.NotPlain) string {
	if bad.Key != "" {
		return bad.Key
	}
	field := bad.Field[strings.LastIndexByte(bad.Field, '.')+1:]
	if i := strings.IndexByte(field, '['); i > 0 {
		field = field[:i]
	}
	if option := optionOf[field]; option != "" && strings.HasPrefix(bad.Field, "Spec.") {
		return option
	}
	return field
}

// optionOf names the options of the fields of model.Spec and model.Needs that are texts.
var optionOf = map[string]string{"Name": "--job-name", "Account": "--account", "QOS": "--qos",
	"Partitions": "--partition", "Comment": "--comment", "Command": "the script's path", "WorkDir": "--chdir",
	"StdIn": "--input", "StdOut": "--output", "StdErr": "--error", "Features": "--constraint",
	"ReqNodes": "--nodelist", "ExcNodes": "--exclude", "DepText": "--dependency", "ArrayText": "--array",
	"Reservation": "--reservation", "Prefer": "--prefer", "GPU": "--gpu-bind", "CPU": "--cpu-bind",
	"Mem": "--mem-bind", "Dist": "--distribution", "Hint": "--hint"}

// The answer keeps the promise of CodeNotLeader and CodeNoController: nothing of the request was done, so it may be
// made again on another controller. If the store does not know what became of a command, or a part of the request is
// already in the log, the code is CodeUnknown: only a request with an id may be made again, and its command does so.

// lostError is the error for a command about which the store can't tell whether it is in the log.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }

var (
	errMoved = rpc.Errorf(proto.CodeNotLeader, "leadership has just moved; try again")
	errSlow  = rpc.Errorf(proto.CodeBusy, "Socket timed out on send/recv operation")
)

// proposalError turns an error of the store into the error for the command's request.
func proposalError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrClosed),
		errors.Is(err, store.ErrQueueFull) && errors.Is(err, context.Canceled): // this controller ends
		return errMoved
	case errors.Is(err, store.ErrQueueFull):
		return errSlow
	case errors.Is(err, store.ErrTooLarge):
		return refuse(proto.CodeBadRequest, "the request is too large for one log entry; name fewer jobs, nodes or "+
			"users at once")
	case errors.Is(err, store.ErrLeadershipLost):
		return &lostError{"leadership moved while the change was on its way"}
	case errors.Is(err, context.DeadlineExceeded):
		return &lostError{errSlow.Text}
	}
	return &lostError{err.Error()}
}

// madeKey is the context key for whether a command of the request is in the log.
type madeKey struct{}

// withMade gives a context in which propose records its success.
func withMade(ctx context.Context) (context.Context, *atomic.Bool) {
	made := new(atomic.Bool)
	return context.WithValue(ctx, madeKey{}, made), made
}

func noteMade(ctx context.Context) {
	if made, ok := ctx.Value(madeKey{}).(*atomic.Bool); ok {
		made.Store(true)
	}
}

// answerFor gives the error for the answer to a request whose handler failed with err. made says whether a part of the
// request is done.
func answerFor(kind uint16, made bool, err error) error {
	row := proto.RequestOf(kind)
	var lost *lostError
	var e *rpc.Error
	switch {
	case errors.As(err, &lost):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(lost.why))
	case made && errors.As(err, &e) && (e.Code == proto.CodeNotLeader || e.Code == proto.CodeNoController):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(e.Text+"; a part of the change was made"))
	}
	return err
}

// mayBeMade reports whether a request that was passed on and failed with err may have been carried out.
func mayBeMade(err error) bool {
	var e *rpc.Error
	var unsent *rpc.Unsent
	return err != nil && !errors.As(err, &e) && !errors.As(err, &unsent)
}

// relayError gives the answer to a request that was passed on to another controller and failed with err. lost says that
// an earlier try of it may have been carried out.
func relayError(row *proto.Request, lost bool, err error) error {
	unreachable := func(why any) error {
		return rpc.Errorf(proto.CodeNoController, "Unable to contact slurm controller (connect failure): %v", why)
	}
	var e *rpc.Error
	answered := errors.As(err, &e)
	switch {
	case err == nil || answered && proto.Settled(e.Code):
		return err
	case (lost || mayBeMade(err)) && row.Effect == proto.Changes:
		return rpc.Errorf(proto.CodeUnknown, "%s",
			row.Unknown("the connection to the controller that leads broke before it answered"))
	case answered && e.Code == proto.CodeNotLeader:
		return unreachable("leadership is moving; try again")
	case answered:
		return err
	}
	return unreachable(err)
}
