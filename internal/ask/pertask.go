package ask

import (
	"strings"

	"gbatch/internal/model"
)

// PerTask is what --tres-per-task says: CPUs and generic resources for each task.
type PerTask struct {
	CPUs int32 // 0: not said
	Gres []model.GresReq
}

// ParsePerTask reads cpu=4,gres/gpu:a100=1; a colon in front of the number is Slurm's older way to write it.
func ParsePerTask(v string) (PerTask, error) {
	var t PerTask
	bad := func(word, why string) (PerTask, error) {
		return PerTask{}, refuse(Request, "Invalid --tres-per-task specification: '%s'%s", word, why)
	}
	for _, word := range splitList(v, ",") {
		kind, _, named := strings.Cut(word, "/")
		switch {
		case named && kind == "gres":
			reqs, err := ParseGres("", word, model.PerTask)
			if err != nil {
				return PerTask{}, err
			}
			t.Gres = append(t.Gres, reqs...)
			continue
		case named && kind == "license":
			return bad(word, ": licenses are the whole job's; use --licenses")
		case named:
			return bad(word, "; write cpu=N or gres/NAME[:TYPE]=N, such as cpu=4,gres/gpu=1")
		}
		name, number, _ := strings.Cut(strings.Replace(word, ":", "=", 1), "=")
		switch name {
		case "cpu":
			n, err := ParseUnits(number)
			if err != nil || n < 1 {
				return bad(word, "; write cpu=N, such as cpu=4")
			}
			t.CPUs = n
		case "mem":
			return bad(word, ": memory is counted by node, CPU or GPU; use --mem, --mem-per-cpu or --mem-per-gpu")
		default:
			return bad(word, "; write cpu=N or gres/NAME[:TYPE]=N, such as cpu=4,gres/gpu=1")
		}
	}
	return t, nil
}

// AddTo adds the resources to what else was asked for. What was said already, by given, has to be the same.
func (t *PerTask) AddTo(list []model.GresReq) ([]model.GresReq, error) {
	for _, g := range t.Gres {
		for _, have := range list {
			if have.Per == model.PerTask && have.Name == g.Name && have != g {
				return nil, refuse(Request, "--gpus-per-task and --tres-per-task=gres/%s say different things: give one of them",
					g.Name)
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
func (t *PerTask) Names(resource string) bool {
	for _, g := range t.Gres {
		if g.Name == resource {
			return true
		}
	}
	return false
}
