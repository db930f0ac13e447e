package ctld

import (
	"fmt"

	"gbatch/internal/model"
)

// overSubmit tells which limit on unfinished jobs refuses a submission, and how to see it.
func overSubmit(sp *model.Spec, r model.Reason) string {
	switch r {
	case model.ReasonQOSMaxSubmitJobPerUserLimit:
		return fmt.Sprintf("%s: user %s has as many unfinished jobs in QOS %s (or the partition's QOS) as it allows; wait until some have ended", r, sp.User, sp.QOS)
	case model.ReasonMaxSubmitJobsPerAccount, model.ReasonQOSGrpSubmitJobsLimit:
		return fmt.Sprintf("%s: QOS %s (or the partition's QOS) has as many unfinished jobs of account %s as it allows; wait until some have ended", r, sp.QOS, sp.Account)
	}
	return fmt.Sprintf("%s: account %s, or user %s in it, has as many unfinished jobs as it may; see gacctmgr show association and wait until some have ended", r, sp.Account, sp.User)
}
