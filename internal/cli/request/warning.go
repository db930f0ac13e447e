package request

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
)

// --signal, as sbatch(1) has it: [{R|B}:]sig[@seconds].

const warningBeforeS = 60 // without @seconds

// ParseWarning reads --signal's value.
func ParseWarning(v string) (*model.Warning, error) {
	w := &model.Warning{BeforeS: warningBeforeS}
	rest := v
	if flags, sig, ok := strings.Cut(v, ":"); ok {
		for _, f := range flags {
			switch f {
			case 'B', 'b':
				w.Batch = true
			case 'R', 'r':
				w.Yields = true
			default:
				return nil, fmt.Errorf("%q is none of its flags: B: is for the batch script, R: lets the job run in "+
					"reservations with MaxStartDelay", flags)
			}
		}
		rest = sig
	}
	sig, at, timed := strings.Cut(rest, "@")
	if timed {
		n, err := strconv.ParseUint(at, 10, 32)
		if err != nil || n > model.MaxWarningS {
			return nil, fmt.Errorf("%q is not a number of seconds from 0 to %d", at, model.MaxWarningS)
		}
		w.BeforeS = int64(n)
	}
	var err error
	if w.Signal, err = env.ParseSignal(sig); err != nil {
		return nil, err
	}
	return w, nil
}

// elasticSignal reads --elastic-signal's value, which is --signal's without a time.
func (s *Submission) elasticSignal(v string) error {
	if s.Elastic.HasSignal = true; strings.EqualFold(v, "NONE") {
		s.Elastic.Signal, s.Elastic.Batch = 0, false
		return nil
	}
	if strings.Contains(v, "@") {
		return fmt.Errorf("%q: it comes when the nodes change, and has no time", v)
	}
	w, err := ParseWarning(v)
	if err == nil {
		s.Elastic.Signal, s.Elastic.Batch = w.Signal, w.Batch
	}
	return err
}

func (s *Submission) elasticGrace(v string) error {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number of seconds", v)
	}
	s.Elastic.GraceS, s.Elastic.HasGrace = int64(n), true
	return nil
}

// requeue reads --requeue[=expedite]. The environment may say 1, yes or true.
func (s *Submission) requeue(v string) error {
	hurry := strings.EqualFold(v, "expedite")
	switch strings.ToLower(v) {
	case "", "expedite", "1", "yes", "true":
	default:
		return &getopt.TextError{Text: "Invalid --requeue specification: '" + v + "'; write --requeue, or --requeue=expedite"}
	}
	s.Spec.Requeue, s.Spec.NoRequeue, s.More.Expedite = true, false, hurry
	return nil
}
