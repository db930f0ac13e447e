package ctld

import (
	"fmt"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
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
	case state.TooLong:
		return refuse(proto.CodeBadRequest, "the job's description has more than %d bytes; write long arguments into a "+
			"file and pass its name", proto.MaxSpecBytes)
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
