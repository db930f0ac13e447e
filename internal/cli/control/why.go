package control

import "gbatch/internal/cli/env"

// gqueue --why and gcontrol why print the same: what the scheduler says of a job that waits.

// why explains jobs.
func (c *control) why(words []string) error {
	refs, err := c.refs(words)
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	return env.PrintWhy(c.Env, cl, refs, c.json)
}
