package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// parseJobRefs reads a comma list of job ids as people write them: 12, 12_3, 12_[1-3,7], 12_*. Commas inside brackets
// belong to the task list.
func parseJobRefs(text string) ([]proto.JobRef, error) {
	var out []proto.JobRef
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
		r, err := parseJobRef(part)
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

// parseJobRef reads one job id.
func parseJobRef(text string) (proto.JobRef, error) {
	idText, taskText, hasTask := strings.Cut(text, "_")
	id, err := strconv.ParseUint(idText, 10, 32)
	if err != nil || id == 0 {
		return proto.JobRef{}, fmt.Errorf("Invalid job id specified: '%s'; write a number, or ID_TASK for a task of an array", text)
	}
	r := proto.JobRef{Job: model.JobID(id), Task: model.NoTask}
	if !hasTask || taskText == "*" {
		return r, nil
	}
	if task, err := strconv.ParseInt(taskText, 10, 32); err == nil && task >= 0 {
		r.Task = int32(task)
		return r, nil
	}
	if r.Tasks, _, err = model.ParseTaskSet(taskText, math.MaxInt32); err != nil {
		return proto.JobRef{}, fmt.Errorf("Invalid job id specified: '%s': %v", text, err)
	}
	return r, nil
}

// refText gives a reference as people write it.
func refText(r proto.JobRef) string {
	id := strconv.Itoa(int(r.Job))
	switch {
	case r.Task != model.NoTask:
		return id + "_" + strconv.Itoa(int(r.Task))
	case len(r.Tasks) > 0:
		return id + "_[" + r.Tasks.String() + "]"
	}
	return id
}

// jobText gives a job's id as gqueue shows it: 12, 12_3, 12_[4-9%2].
func jobText(j *model.Job) string {
	switch {
	case j.IsArray():
		t := j.Tasks.String()
		if j.Throttle > 0 {
			t += "%" + strconv.Itoa(int(j.Throttle))
		}
		return strconv.Itoa(int(j.ArrayID)) + "_[" + t + "]"
	case j.ArrayID != 0 && j.Task != model.NoTask:
		return strconv.Itoa(int(j.ArrayID)) + "_" + strconv.Itoa(int(j.Task))
	}
	return strconv.Itoa(int(j.ID))
}
