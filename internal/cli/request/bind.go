package request

import (
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// How the tasks of a job's steps are laid out and bound: checked here with grun's own parsers, and handed on to grun
// in the job's environment (noded's describeBinding).

// wish gives what the submission says of its steps' tasks, to be written to.
func (s *Submission) wish() *model.BindWish {
	if s.More.Bind == nil {
		s.More.Bind = &model.BindWish{}
	}
	return s.More.Bind
}

// bindWith gives the setter of an option that parse understands and that is kept as it was written.
func (s *Submission) bindWith(parse func(*proto.StepBind) func(string) error,
	at func(*model.BindWish) *string) func(string) error {
	return func(v string) error {
		if err := parse(new(proto.StepBind))(v); err != nil {
			return err
		}
		*at(s.wish()) = v
		return nil
	}
}

func (s *Submission) tresBind(v string) error {
	if err := SetTRESBind(new(proto.StepBind))(v); err != nil {
		return err
	}
	s.wish().GPU = v[len(jobtext.TRESGPU):]
	return nil
}

func (s *Submission) distribution(v string) error {
	if err := SetDistribution(new(proto.StepNeed), new(proto.StepBind), "")(v); err != nil {
		return err
	}
	s.wish().Dist = v
	return nil
}

// hint is about how tasks use cores: some ways ask for other nodes and CPUs too.
func (s *Submission) hint(v string) error {
	h, err := ParseHint(v)
	if err != nil {
		return err
	}
	if h != HintMultithread {
		s.More.ThreadsPerCore = 1
	}
	if h == HintMemory {
		s.More.TasksPerSocket = 1
	}
	s.wish().Hint = string(h)
	return nil
}

// hint is a value of --hint.
type hint string

const (
	HintCompute       hint = "compute_bound"
	HintMemory        hint = "memory_bound"
	HintMultithread   hint = "multithread"
	HintNoMultithread hint = "nomultithread"
)

func ParseHint(v string) (hint, error) {
	switch h := hint(strings.ToLower(v)); h {
	case HintCompute, HintMemory, HintMultithread, HintNoMultithread:
		return h, nil
	}
	return "", &getopt.TextError{
		Text: "Invalid --hint specification: '" + v + "'; write compute_bound, memory_bound, multithread or nomultithread"}
}
