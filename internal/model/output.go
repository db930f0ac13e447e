package model

import (
	"path"

	"gbatch/internal/outpath"
)

// OutputFiles gives the job's output and error files, with the known parts of their patterns filled in.
func (j *Job) OutputFiles() (out, errFile string) {
	sp := j.Spec
	v := outpath.Values{JobID: uint32(j.ID), JobName: sp.Name, User: sp.User}
	pattern := "slurm-%j.out"
	if j.ArrayID != 0 {
		v.ArrayJob, pattern = uint32(j.ArrayID), "slurm-%A_%a.out"
		v.Task = outpath.NoTask
		if j.Task != NoTask {
			v.Task = uint32(j.Task)
		}
	}
	if j.Run != nil {
		v.Node = j.Run.Alloc.Nodes[0].Node
	}
	full := func(p string) string {
		if p = outpath.Expand(p, v); !path.IsAbs(p) {
			p = path.Join(sp.WorkDir, p)
		}
		return p
	}
	if sp.StdOut != "" {
		pattern = sp.StdOut
	}
	out = full(pattern)
	if errFile = out; sp.StdErr != "" {
		errFile = full(sp.StdErr)
	}
	return out, errFile
}
