package control

import (
	"gbatch/internal/cli/env"
	"gbatch/internal/model"
)

// gqueue --why and gcontrol why print the same: the scheduler's explanation of a pending job.

// why explains jobs.
func (c *control) why(words []string) error {
	var refs []model.JobRef // none: all of the caller's that wait
	if len(words) > 0 {
		found, err := c.refs(words)
		if err != nil {
			return err
		}
		refs = found
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	return env.PrintWhy(c.Env, cl, refs, c.json)
}
