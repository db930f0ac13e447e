package cli

import (
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// How the tasks of a job's steps are laid out and bound: checked here with grun's own parsers, and handed on to grun in the
// job's environment (noded's describeBinding).

// wish gives what the submission says of its steps' tasks, to be written to.
func (s *submission) wish() *model.BindWish {
	if s.more.Bind == nil {
		s.more.Bind = &model.BindWish{}
	}
	return s.more.Bind
}

// bindWith gives the setter of an option that parse understands and that is kept as it was written.
func (s *submission) bindWith(parse func(*proto.StepBind) func(string) error, at func(*model.BindWish) *string) func(string) error {
	return func(v string) error {
		if err := parse(new(proto.StepBind))(v); err != nil {
			return err
		}
		*at(s.wish()) = v
		return nil
	}
}

func (s *submission) tresBind(v string) error {
	if err := setTRESBind(new(proto.StepBind))(v); err != nil {
		return err
	}
	s.wish().GPU = v[len(jobtext.TresGPU):]
	return nil
}

func (s *submission) distribution(v string) error {
	if err := setDistribution(new(proto.StepNeed), new(proto.StepBind), "")(v); err != nil {
		return err
	}
	s.wish().Dist = v
	return nil
}

// hint is about how tasks use cores: some ways ask for other nodes and CPUs too.
func (s *submission) hint(v string) error {
	h, err := parseHint(v)
	if err != nil {
		return err
	}
	if h != hintMultithread {
		s.more.ThreadsPerCore = 1
	}
	if h == hintMemory {
		s.more.TasksPerSocket = 1
	}
	s.wish().Hint = string(h)
	return nil
}

// hint is a value of --hint.
type hint string

const (
	hintCompute       hint = "compute_bound"
	hintMemory        hint = "memory_bound"
	hintMultithread   hint = "multithread"
	hintNoMultithread hint = "nomultithread"
)

func parseHint(v string) (hint, error) {
	switch h := hint(strings.ToLower(v)); h {
	case hintCompute, hintMemory, hintMultithread, hintNoMultithread:
		return h, nil
	}
	return "", &getopt.TextError{Text: "Invalid --hint specification: '" + v + "'; write compute_bound, memory_bound, multithread or nomultithread"}
}
