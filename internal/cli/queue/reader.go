package queue

import (
	"errors"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// jobReader reads a list of jobs from a stream, job by job, into one reused record, so that gqueue does not hold ten
// thousand jobs in memory. It is for one goroutine; the zero value is ready to use, and leaves texts as they are.
type jobReader struct {
	now   model.Time
	job   model.Job
	spec  model.Spec
	run   model.Run
	alloc model.Alloc
	end   model.End
	do    func(now model.Time, j *model.Job) error
	err   error // do's

	care wire.Care // for texts

	rules ask.Rulebook // of all chunks so far
}

var errNoJob = errors.New("the list of jobs holds something else than jobs; is the controller of another version?")

// each calls do for every job of an encoded proto.JobsChunk, in order, with the time of the controller's answer. The
// job is valid until do returns; its strings stay valid.
func (r *jobReader) each(body []byte, do func(now model.Time, j *model.Job) error) error {
	r.do, r.err = do, nil
	if err := wire.ReadAgain(body, r, r.care); r.err == nil {
		return err
	}
	return r.err
}

// Wire reads proto.JobsChunk's fields and keeps the rules.
func (r *jobReader) Wire(c *wire.C) {
	wire.Int(c, &r.now)
	var jobs []struct{}
	wire.Each(c, &jobs, model.MaxMany, func(c *wire.C, _ *struct{}) { r.next(c) })
	var rules []*model.AskRules
	if wire.Ptrs(c, &rules, model.MaxList); !c.Failed() {
		r.rules.Add(rules)
	}
}

func (r *jobReader) next(c *wire.C) {
	r.run.Alloc = &r.alloc
	r.job.Spec, r.job.Run, r.job.End = &r.spec, &r.run, &r.end // a job without them sets these to nil
	if wire.Struct(c, &r.job); c.Failed() {
		return
	}
	// A controller of another version may send these, and no other code checks them.
	if s := r.job.Spec; s == nil || !r.job.Tasks.Valid() || !s.Tasklist.Valid() {
		c.Fail(errNoJob)
	} else if r.err = r.do(r.now, &r.job); r.err != nil {
		c.Fail(r.err)
	}
}
