package env

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// ParseJobRefs reads a comma list of job ids as users write them: 12, 12_3, 12_[1-3,7], 12_*, 12+1. Commas inside
// brackets belong to the task list.
func ParseJobRefs(text string) ([]model.JobRef, error) {
	var out []model.JobRef
	for text != "" {
		part := text
		depth, end := 0, len(text)
		for i := range len(text) {
			switch text[i] {
			case '[':
				depth++
			case ']':
				depth--
			case ',':
				if depth == 0 {
					end = i
				}
			}
			if end == i {
				break
			}
		}
		part = text[:end]
		text = strings.TrimPrefix(text[end:], ",")
		if part == "" {
			continue
		}
		r, err := ParseJobRef(part)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if len(out) > proto.MaxTargets {
		return nil, fmt.Errorf("more than %d job ids", proto.MaxTargets)
	}
	return out, nil
}

// ParseJobRef reads one job id.
func ParseJobRef(text string) (model.JobRef, error) {
	if idText, part, isPart := strings.Cut(text, "+"); isPart {
		return componentRef(text, idText, part)
	}
	idText, taskText, hasTask := strings.Cut(text, "_")
	id, err := strconv.ParseUint(idText, 10, 32)
	if err != nil || id == 0 {
		return model.JobRef{},
			fmt.Errorf("Invalid job id specified: '%s'; write a number, ID_TASK for a task of an array, or ID+N for a "+
				"component of a heterogeneous job",
				text)
	}
	r := model.JobRef{Job: model.JobID(id), Task: model.NoTask}
	if !hasTask || taskText == "*" {
		return r, nil
	}
	if task, err := strconv.ParseInt(taskText, 10, 32); err == nil && task >= 0 {
		r.Task = int32(task)
		return r, nil
	}
	if r.Tasks, _, err = model.ParseTaskSet(taskText, math.MaxInt32); err != nil {
		return model.JobRef{}, fmt.Errorf("Invalid job id specified: '%s': %v", text, err)
	}
	return r, nil
}

// componentRef reads ID+N.
func componentRef(text, idText, part string) (model.JobRef, error) {
	id, err := strconv.ParseUint(idText, 10, 32)
	n, perr := strconv.ParseUint(part, 10, 16)
	if err != nil || perr != nil || id == 0 || n >= model.MaxHet {
		return model.JobRef{}, fmt.Errorf("Invalid job id specified: '%s'; the components of a heterogeneous job are "+
			"ID+0 to ID+%d", text, model.MaxHet-1)
	}
	return model.JobRef{Job: model.JobID(id), Task: model.NoTask, Het: 1 + int32(n)}, nil
}

// SplitIDs splits a list of job ids at commas outside of brackets.
func SplitIDs(text string) []string {
	var out []string
	depth, start := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ',' && depth == 0:
			if w := strings.TrimSpace(text[start:i]); w != "" {
				out = append(out, w)
			}
			start = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	return out
}

// OwnJob names the job that this process is a part of, as users do: 12, or 12+1 in a task of a component of a
// heterogeneous job that is not the first one. "" is outside of jobs.
func (e *Env) OwnJob() string {
	job, component := cmp.Or(e.Getenv("SLURM_JOB_ID"), e.Getenv("SLURM_JOBID")), e.Getenv(proto.ComponentVar)
	if of, offset, ok := strings.Cut(component, "+"); ok && of == job && offset != "0" { // else it is an outer job's
		return component
	}
	return job
}

// ParseStepRefs reads a list of steps: 12.0, 12_3.batch; 12 alone is all steps of a job.
func ParseStepRefs(list string) ([]proto.StepRef, error) {
	var out []proto.StepRef
	for _, word := range SplitIDs(list) {
		id, name, one := strings.Cut(word, ".")
		refs, err := ParseJobRefs(id)
		if err != nil {
			return nil, err
		}
		step := proto.StepAll
		if one {
			if step, err = parseStepName(name, word); err != nil {
				return nil, err
			}
		}
		for _, r := range refs {
			out = append(out, proto.StepRef{Job: r, Step: step})
		}
	}
	return out, nil
}

func parseStepName(name, word string) (int32, error) {
	switch n, err := strconv.ParseInt(name, 10, 32); {
	case strings.EqualFold(name, "batch"):
		return proto.StepBatch, nil
	case strings.EqualFold(name, "interactive"):
		return proto.StepInteractive, nil
	case err == nil && n >= 0:
		return int32(n), nil
	}
	return 0, fmt.Errorf("Invalid job step specified: '%s'; write JOB.NUMBER, JOB.batch or JOB.interactive", word)
}
