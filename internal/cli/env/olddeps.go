package env

import (
	"fmt"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// olddeps.go submits jobs that depend on jobs which only accounting remembers.

// Submit sends a submission. Where it is refused for a dependency on a job that the controllers have forgotten, the
// job's record says whether the dependency is met; then the submission is sent without it. Jobs that accounting doesn't
// know either are not waited for; while it can't be asked, the submission stays refused.
func Submit(c *client.Client, rq *proto.SubmitRequest, reply *proto.SubmitReply) error {
	err := c.Call(proto.KindSubmit, rq, reply)
	if err == nil || Code(err) != uint16(proto.CodeDependency) {
		return err
	}
	left, changed, never, asked := withoutOld(c, rq.Spec)
	if asked != nil {
		return err
	}
	if never != "" {
		return fmt.Errorf("Job dependency problem: --dependency=%s can never be met: %s", rq.Spec.DepText, never)
	}
	again := *rq
	again.PassUnknown = true
	if changed {
		sp := *rq.Spec
		sp.Deps, sp.DepText = left, model.DepText(left, sp.DepAny)
		again.Spec = &sp
	}
	return c.Call(proto.KindSubmit, &again, reply)
}

// withoutOld leaves out the dependencies on ended jobs that only accounting knows, where they are met. never says why
// one of them can't be, err why that is not known.
func withoutOld(c *client.Client, sp *model.Spec) (left []model.Dep, changed bool, never string, err error) {
	for _, d := range sp.Deps {
		met, why, old, err := oldDep(c, &d)
		switch {
		case err != nil:
			return nil, false, "", err
		case !old:
			left = append(left, d)
		case met && sp.DepAny:
			return nil, true, "", nil
		case met || sp.DepAny:
			changed = true
			never = why
		default:
			return nil, false, why, nil
		}
	}
	if sp.DepAny && len(left) > 0 {
		never = "" // another one may still be met
	}
	return left, changed, never, nil
}

// oldDep judges a dependency by the records of its job; old is false for a job that the controllers know, or that
// accounting doesn't know either.
func oldDep(c *client.Client, d *model.Dep) (met bool, why string, old bool, err error) {
	if d.Job == 0 {
		return false, "", false, nil
	}
	ref := model.JobRef{Job: d.Job, Task: d.Task}
	known := false
	err = c.Stream(proto.KindJobs, &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}},
		func(body []byte) error {
			var chunk proto.JobsChunk
			err := c.Decode(body, &chunk)
			known = known || len(chunk.Jobs) > 0
			return err
		})
	if known || err != nil && Code(err) != uint16(proto.CodeInvalidJob) {
		return false, "", false, nil
	}
	good, bad := 0, ""
	err = c.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: []model.JobRef{ref}}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			switch {
			case r.Step != nil:
			case r.State == model.Completed:
				good++
			default:
				bad = fmt.Sprintf("job %d ended %s", r.Job, r.State)
			}
		}
		return nil
	})
	if err != nil || good == 0 && bad == "" {
		return false, "", false, err
	}
	switch d.Kind {
	case model.DepAfterOK, model.DepAfterCorr:
		return bad == "", bad, true, nil
	case model.DepExpand:
		return false, fmt.Sprintf("job %d has ended", d.Job), true, nil
	case model.DepAfterNotOK:
		return bad != "", fmt.Sprintf("job %d ended COMPLETED", d.Job), true, nil
	}
	return true, "", true, nil
}
