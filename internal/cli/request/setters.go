package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// setters.go reads the values of options that request resources, for the tables of gsubmit and grun.

// said makes a refusal of package ask an error that is shown unchanged.
func said(err error) error {
	var refused *ask.Error
	if errors.As(err, &refused) {
		return &getopt.TextError{Text: refused.Error()}
	}
	return err
}

func count(v string, most int64) (int32, error) {
	n, err := ask.ParseCount(v, most)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, ask.ErrNoCount):
		return 0, &getopt.NumberError{Value: v}
	}
	return 0, &getopt.NumberError{Value: v, Why: err.Error()}
}

// Count gives the setter of a number of at least 1.
func Count(dst *int32) func(string) error {
	return func(v string) error {
		n, err := count(v, ask.MaxTasks)
		if err == nil {
			*dst = n
		}
		return err
	}
}

// Mem gives the setter of an amount of memory, MiB.
func Mem(dst *int64) func(string) error {
	return func(v string) (err error) { *dst, err = walltime.ParseMemMiB(v); return err }
}

// Nodes gives the setter of --nodes.
func Nodes(least, most *int32) func(string) error {
	return func(v string) (err error) {
		if *least, *most, err = ask.ParseNodes(v); err != nil {
			text := badNodes(v)
			return &getopt.TextError{Text: text + "; write N or LEAST-MOST",
				Submission: strings.HasPrefix(text, "Node count")} // Slurm's commands take it, and its controller doesn't
		}
		return nil
	}
}

// badNodes says in Slurm's words what is wrong with a number of nodes.
func badNodes(v string) string {
	from, to, ranged := strings.Cut(v, "-")
	low, errLow := walltime.ParseCount(from)
	high, errHigh := walltime.ParseCount(to)
	switch {
	case errLow == nil && low == 0:
		return "Node count specification invalid: '" + v + "'"
	case errLow != nil && (from != "" || !ranged):
		return `"` + from + `" is not a valid node count`
	case ranged && errHigh != nil:
		return `"` + to + `" is not a valid node count`
	case ranged && high < low:
		return fmt.Sprintf("Maximum node count %d is less than minimum node count %d", high, low)
	}
	return "Node count specification invalid: '" + v + "'"
}

// Hosts gives the setter of a list of nodes. A value with a slash names a file of nodes.
func Hosts(dst *[]string) func(string) error {
	return func(v string) (err error) {
		if strings.Contains(v, "/") {
			*dst, err = NodeFile(v)
		} else {
			*dst, err = hostlist.Expand(v)
		}
		return err
	}
}

// NodeSet is Hosts for nodes of which each counts once.
func NodeSet(dst *[]string) func(string) error { return nodeSet(dst, Hosts) }

// FileSet gives the setter of nodes that are named in a file. Each counts once.
func FileSet(dst *[]string) func(string) error { return nodeSet(dst, fileHosts) }

func fileHosts(dst *[]string) func(string) error {
	return func(v string) (err error) {
		*dst, err = NodeFile(v)
		return err
	}
}

func nodeSet(dst *[]string, from func(*[]string) func(string) error) func(string) error {
	return func(v string) error {
		var all []string
		err := from(&all)(v)
		*dst = once(all)
		return err
	}
}

// nodelist is nodeSet for the job's nodes, of which the list with repeats may say where its tasks run.
func (s *Submission) nodelist(from func(*[]string) func(string) error) func(string) error {
	return func(v string) error {
		err := from(&s.hosts)(v)
		s.Spec.ReqNodes = once(s.hosts)
		return err
	}
}

// once gives each name of a list once.
func once(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// Gres gives the setter of generic resources of one name, or of any if name is ""; it adds them to dst, in place of
// what it has added before. none, if it is not nil, says whether it was told to ask for none.
func Gres(dst *[]model.GresReq, none *bool, name string, per model.GresPer) func(string) error {
	var last []model.GresReq
	wasNone := false
	return func(v string) error {
		if name == "" && strings.EqualFold(v, "help") {
			return env.ErrGresHelp
		}
		list, err := ask.ParseGres(name, v, per)
		for _, g := range last {
			if i := slices.Index(*dst, g); i >= 0 {
				*dst = slices.Delete(*dst, i, i+1)
			}
		}
		last, *dst = list, append(*dst, list...)
		if isNone := err == nil && len(list) == 0; none != nil && isNone != wasNone {
			*none, wasNone = isNone, isNone
		}
		return said(err)
	}
}

// PerTask gives the setter of --tres-per-task.
func PerTask(dst *ask.PerTask) func(string) error {
	return func(v string) (err error) {
		*dst, err = ask.ParsePerTask(v)
		return said(err)
	}
}

// Limit gives the setter of a time limit in seconds, or model.Unlimited.
func Limit(option string, set func(sec int64)) func(string) error {
	return func(v string) error {
		sec, unlimited, err := walltime.ParseLimit(v)
		if err != nil {
			return &getopt.TextError{Text: "Invalid --" + option + " specification: " + err.Error()}
		}
		if unlimited {
			sec = model.Unlimited
		}
		set(sec)
		return nil
	}
}

// date gives the setter of a moment.
func date(read func(string) (model.Time, error), dst *model.Time) func(string) error {
	return func(v string) (err error) {
		t, err := read(v)
		if err == nil {
			*dst = t
		}
		return err
	}
}

// timeMin reads --time-min.
func (s *Submission) timeMin(v string) error {
	sec := int64(0)
	if err := Limit("time-min", func(n int64) { sec = n })(v); err != nil {
		return err
	}
	if sec >= model.Unlimited || sec <= 0 {
		return &getopt.TextError{Text: "Invalid --time-min specification: '" + v +
			"'; write the least time that the job needs, such as 30:00"}
	}
	s.More.TimeMinS = sec
	return nil
}

// X11Env is --x11 of galloc for the steps of its allocation.
const X11Env = "GBATCH_X11"

// ParseX11 reads --x11: on which nodes tasks have the display that the variable DISPLAY names.
func ParseX11(v string, getenv func(string) string) (nodes uint8, err error) {
	nodes, known := map[string]uint8{"": proto.X11All, "all": proto.X11All, "first": proto.X11First,
		"last": proto.X11Last}[strings.ToLower(v)]
	switch {
	case !known:
		return 0, &getopt.TextError{Text: "Invalid --x11 specification: '" + v + "': write all, first or last"}
	case getenv("DISPLAY") == "":
		return 0, &getopt.TextError{Text: "No DISPLAY variable set: there is no display to forward (--x11)"}
	}
	return nodes, nil
}
