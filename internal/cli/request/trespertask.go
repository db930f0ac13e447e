package request

import (
	"errors"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
)

// TresPerTask is what --tres-per-task says: CPUs and generic resources for each task.
type TresPerTask struct {
	Cpus int32 // 0: not said
	gres []model.GresReq
}

// Set reads cpu=4,gres/gpu:a100=1; a colon in front of the number is Slurm's older way to write it.
func (t *TresPerTask) Set(v string) error {
	*t = TresPerTask{}
	bad := func(word, why string) error {
		return &getopt.TextError{Text: "Invalid --tres-per-task specification: '" + word + "'" + why}
	}
	for _, word := range env.SplitList(v) {
		kind, rest, named := strings.Cut(word, "/")
		switch {
		case named && kind == "gres":
			reqs, err := ParseGres("", strings.Replace(rest, "=", ":", 1), model.PerTask)
			if err != nil {
				return err
			}
			t.gres = append(t.gres, reqs...)
			continue
		case named && kind == "license":
			return bad(word, ": licenses are the whole job's; use --licenses")
		case named:
			return bad(word, "; write cpu=N or gres/NAME[:TYPE]=N, such as cpu=4,gres/gpu=1")
		}
		name, number, _ := strings.Cut(strings.Replace(word, ":", "=", 1), "=")
		switch name {
		case "cpu":
			n, err := parseUnits(number)
			if err != nil || n < 1 {
				return bad(word, "; write cpu=N, such as cpu=4")
			}
			t.Cpus = n
		case "mem":
			return bad(word, ": memory is counted by node, CPU or GPU; use --mem, --mem-per-cpu or --mem-per-gpu")
		default:
			return bad(word, "; write cpu=N or gres/NAME[:TYPE]=N, such as cpu=4,gres/gpu=1")
		}
	}
	return nil
}

// AddTo adds the resources to what else was asked for. What was said already, by given, has to be the same.
func (t *TresPerTask) AddTo(list []model.GresReq) ([]model.GresReq, error) {
	for _, g := range t.gres {
		for _, have := range list {
			if have.Per == model.PerTask && have.Name == g.Name && have != g {
				return nil, errors.New("--gpus-per-task and --tres-per-task=gres/" + g.Name +
					" say different things: give one of them")
			}
		}
		if !containsGres(list, g) {
			list = append(list, g)
		}
	}
	return list, nil
}

func containsGres(list []model.GresReq, g model.GresReq) bool {
	for _, have := range list {
		if have == g {
			return true
		}
	}
	return false
}

// Names reports whether it says anything of a resource.
func (t *TresPerTask) Names(resource string) bool {
	for _, g := range t.gres {
		if g.Name == resource {
			return true
		}
	}
	return false
}
