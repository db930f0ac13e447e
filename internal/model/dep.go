package model

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrDependency is what every error of ParseDeps wraps.
var ErrDependency = errors.New("invalid dependency")

// ParseDeps reads a --dependency value: kind:job[_task][+minutes][:job...], several joined with "," (all) or "?" (any
// one), or singleton. anyOf tells the two apart.
func ParseDeps(text string) (deps []Dep, anyOf bool, err error) {
	bad := func(format string, a ...any) ([]Dep, bool, error) {
		return nil, false, fmt.Errorf("%w '%s': %s", ErrDependency, text, fmt.Sprintf(format, a...))
	}
	anyOf = strings.Contains(text, "?")
	if anyOf && strings.Contains(text, ",") {
		return bad("use either , (all) or ? (any one) between conditions, not both")
	}
	sep := ","
	if anyOf {
		sep = "?"
	}
	if text == "" || text == "none" || text == "(null)" {
		return nil, false, nil
	}
	for _, part := range strings.Split(text, sep) {
		words := strings.Split(part, ":")
		kind, ok := ParseDepKind(strings.ToLower(words[0]))
		if !ok {
			// a bare number has the kind before it, or afterany if there is none, as in Slurm
			if _, _, _, jerr := parseDepJob(words[0]); jerr != nil {
				return bad("'%s' is not a kind; write after, afterany, afterok, afternotok, aftercorr, expand (each with :JOBID) "+
					"or singleton", words[0])
			}
			kind = DepAfterAny
			if len(deps) > 0 && deps[len(deps)-1].Kind != DepSingleton {
				kind = deps[len(deps)-1].Kind
			}
			words = append([]string{""}, words...)
		}
		if kind == DepSingleton {
			if len(words) > 1 {
				return bad("singleton stands alone, without a job")
			}
			deps = append(deps, Dep{Kind: kind, Task: NoTask})
			continue
		}
		if len(words) < 2 {
			return bad("%s needs a job, as in %s:123", kind, kind)
		}
		for _, w := range words[1:] {
			job, task, delay, jerr := parseDepJob(w)
			if jerr != nil {
				return bad("%v", jerr)
			}
			if delay > 0 && kind != DepAfter {
				return bad("only after:JOBID takes +MINUTES")
			}
			deps = append(deps, Dep{Kind: kind, Job: job, Task: task, DelayS: delay})
		}
	}
	return deps, anyOf, nil
}

// DepText writes dependencies as ParseDeps reads them.
func DepText(deps []Dep, anyOf bool) string {
	var words []string
	for _, d := range deps {
		w := d.Kind.String()
		if d.Job != 0 {
			w += fmt.Sprintf(":%d", d.Job)
			if d.Task != NoTask {
				w += fmt.Sprintf("_%d", d.Task)
			}
		}
		if d.DelayS > 0 {
			w += fmt.Sprintf("+%d", d.DelayS/60)
		}
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	if anyOf {
		return strings.Join(words, "?")
	}
	return strings.Join(words, ",")
}

func parseDepJob(w string) (id JobID, task int32, delayS int64, err error) {
	job, delay, hasDelay := strings.Cut(strings.TrimPrefix(w, "+"), "+") // a number may have its sign, as in Slurm
	idText, taskText, hasTask := strings.Cut(job, "_")
	n, err := strconv.ParseUint(idText, 10, 32)
	if err != nil || n == 0 {
		return 0, 0, 0, fmt.Errorf("'%s' is not a job id", w)
	}
	task = NoTask
	if hasTask && taskText != "*" {
		t, err := strconv.ParseInt(taskText, 10, 32)
		if err != nil || t < 0 {
			return 0, 0, 0, fmt.Errorf("'%s' is not a task of an array", w)
		}
		task = int32(t)
	}
	if hasDelay {
		m, err := strconv.ParseInt(delay, 10, 32)
		if err != nil || m < 0 {
			return 0, 0, 0, fmt.Errorf("'+%s' is not a number of minutes", delay)
		}
		delayS = m * 60
	}
	return JobID(n), task, delayS, nil
}

// Delays gives a pending job's dependencies after:JOB+MINUTES whose job has started, but whose minutes are not over.
// The facts keep of these only the job's begin time.
func (j *Job) Delays(now Time) []Dep {
	if j.State != Pending || j.Begin <= max(now, j.Spec.Begin) || !strings.Contains(j.Spec.DepText, "+") {
		return nil
	}
	all, _, _ := ParseDeps(j.Spec.DepText) // it was checked when it was accepted
	return slices.DeleteFunc(all, func(d Dep) bool {
		return d.DelayS == 0 || slices.ContainsFunc(j.Deps, func(open Dep) bool {
			return open.Kind == d.Kind && open.Job == d.Job && open.Task == d.Task
		})
	})
}

// ReasonAt gives the reason to show for a job. One that was held while it ran shows that, and one that was cancelled
// before it could wait for resources keeps what held it.
func (j *Job) ReasonAt(now Time) Reason {
	if reason := j.Waiting(now); reason != ReasonNone {
		return reason
	}
	cancelled := j.State == Cancelled && j.Run == nil && j.End != nil
	switch {
	case j.Hold == HeldByUser:
		return ReasonJobHeldUser
	case j.Hold == HeldByAdmin:
		return ReasonJobHeldAdmin
	case cancelled && j.Eligible == 0 && len(j.Spec.Deps) > 0:
		return ReasonDependency
	case cancelled && j.Begin > j.End.At:
		return ReasonBeginTime
	}
	return ReasonNone
}

// Waiting gives the reason that a job has. The minutes of after:JOB+MINUTES are a part of its dependency.
func (j *Job) Waiting(now Time) Reason {
	if j.Reason == ReasonBeginTime && len(j.Delays(now)) > 0 {
		return ReasonDependency
	}
	return j.Reason
}
