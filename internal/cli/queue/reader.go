package queue

import (
	"errors"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// jobReader reads a list of jobs as it streams in, job by job, into one record that is used again and again: gqueue
// over ten thousand jobs must not hold ten thousand jobs. It is for one goroutine; the zero value is ready.
type jobReader struct {
	now   model.Time
	job   model.Job
	spec  model.Spec
	run   model.Run
	alloc model.Alloc
	end   model.End
	do    func(now model.Time, j *model.Job) error
	err   error // do's

	rules ask.Rulebook // of all chunks so far
}

var errNoJob = errors.New("the list of jobs holds something else than jobs; is the controller of another version?")

// each calls do for every job of an encoded proto.JobsChunk, in order, with the moment at which the controller
// answered. The job is good until do returns; its texts stay.
func (r *jobReader) each(body []byte, do func(now model.Time, j *model.Job) error) error {
	r.do, r.err = do, nil
	if err := wire.ReadAgain(body, r); r.err == nil {
		return err
	}
	return r.err
}

// Wire has proto.JobsChunk's fields, of which it keeps the rules.
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
	r.job.Spec, r.job.Run, r.job.End = &r.spec, &r.run, &r.end // nil after a job that has none
	if wire.Struct(c, &r.job); c.Failed() {
		return
	}
	// Nobody else checks what a controller of another make may send.
	if s := r.job.Spec; s == nil || !r.job.Tasks.Valid() || !s.Tasklist.Valid() {
		c.Fail(errNoJob)
	} else if r.err = r.do(r.now, &r.job); r.err != nil {
		c.Fail(r.err)
	}
}
