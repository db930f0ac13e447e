package request

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// What few jobs ask for: options that write into submission.more, and what they mean together.

// need gives the setter of an option without a number.
func (s *Submission) need(set func(*model.Needs)) func(string) error {
	return func(string) error { set(&s.More); return nil }
}

// needCount gives the setter of an option with a number from 1 on.
func (s *Submission) needCount(at func(*model.Needs) *int32) func(string) error {
	return func(v string) error {
		n, err := walltime.ParseCount(v)
		switch {
		case err != nil:
			return &getopt.NumberError{Value: v}
		case n < 1 || n > 1<<20:
			return &getopt.NumberError{Value: v, Why: "it must be from 1 to 1048576"}
		}
		*at(&s.More) = int32(n)
		return nil
	}
}

func (s *Submission) noMemPerGPU() error { s.More.MemPerGPU = 0; return nil }

func (s *Submission) prefer(v string) error {
	f, err := model.ParseFeatures(v)
	switch {
	case err != nil:
		return &getopt.TextError{Text: "Invalid feature specification: " + err.Error()}
	case f != nil && len(f.Same)+len(f.Counts) > 0:
		return &getopt.TextError{
			Text: "Invalid feature specification: '" + v +
				"': brackets and counts are for --constraint; join what you would rather have with & and |"}
	}
	s.More.Prefer = v
	return nil
}

func (s *Submission) exclusive(v string) error {
	switch v {
	case "", "exclusive":
		s.Spec.Exclusive, s.More.Share = true, false
	case "user":
		s.More.ExclusiveUser = true
	case "mcs":
		return &getopt.TextError{Text: "Invalid --exclusive specification: 'mcs': there are no MCS labels; use " +
			"--exclusive=user, or --exclusive alone for whole nodes"}
	default:
		return &getopt.TextError{
			Text: "Invalid --exclusive specification: '" + v + "'; write --exclusive or --exclusive=user"}
	}
	return nil
}

// sampling reads --acctg-freq: seconds, or kind=seconds joined with commas. Only tasks are sampled by themselves;
// GPUs' energy comes with them, and there is nothing to ask of a network or a file system.
func (s *Submission) sampling(v string) error {
	const most = 1 << 20 // seconds; a job that is sampled less often is not sampled
	for item := range strings.SplitSeq(v, ",") {
		kind, number, named := strings.Cut(item, "=")
		if !named {
			kind, number = "task", item
		}
		n, err := walltime.ParseCount(number)
		switch kind = strings.ToLower(kind); {
		case kind != "task" && kind != "energy" && kind != "network" && kind != "filesystem",
			err != nil || n > most:
			return &getopt.TextError{
				Text: "Invalid --acctg-freq specification: '" + v +
					"'; write seconds, such as 10 or task=10, or task=0 to measure at the end only"}
		case kind == "task" && n == 0:
			s.More.SampleS = -1
		case kind == "task":
			s.More.SampleS = int32(n)
		}
	}
	return nil
}

// switches reads n[@time].
func (s *Submission) switches(v string) error {
	count, wait, timed := strings.Cut(v, "@")
	if err := s.needCount(func(m *model.Needs) *int32 { return &m.Switches })(count); err != nil {
		return err
	}
	s.More.SwitchWaitS = model.NotSet
	if !timed {
		return nil
	}
	sec, unlimited, err := walltime.ParseLimit(wait)
	switch {
	case err != nil:
		return &getopt.TextError{Text: "Invalid --switches specification: " + err.Error()}
	case unlimited:
		s.More.SwitchWaitS = model.Unlimited
	case sec == 0: // not to wait at all
		s.More.Switches = 0
	default:
		s.More.SwitchWaitS = sec
	}
	return nil
}

// nodeInfo reads sockets[:cores[:threads]].
func (s *Submission) nodeInfo(v string) error {
	parts := strings.Split(v, ":")
	at := []func(*model.Needs) *int32{
		func(m *model.Needs) *int32 { return &m.Sockets },
		func(m *model.Needs) *int32 { return &m.CoresPerSocket },
		func(m *model.Needs) *int32 { return &m.ThreadsPerCore },
	}
	if len(parts) > len(at) {
		return &getopt.TextError{Text: "Invalid --extra-node-info specification: '" + v +
			"'; write SOCKETS[:CORES[:THREADS]], such as 2:8 or *:8:2"}
	}
	for i, p := range parts {
		if p == "*" {
			continue
		}
		if s.needCount(at[i])(p) != nil {
			return &getopt.TextError{
				Text: "Invalid --extra-node-info specification: '" + v + "'; write SOCKETS[:CORES[:THREADS]], such as 2:8 or *:8:2"}
		}
	}
	return nil
}

// settle makes of all options together what the controller is asked for.
func (s *Submission) settle() error {
	sp, m := &s.Spec, &s.More
	if err := s.tresTasks(); err != nil {
		return err
	}
	if err := s.sameGres(); err != nil {
		return err
	}
	if err := s.gpuTasks(); err != nil {
		return err
	}
	if s.noKill && max(sp.MinNodes, sp.MaxNodes) > 1 {
		return fmt.Errorf("--no-kill is not supported by gbatch for jobs of several nodes: such a job ends, or is put back " +
			"into the queue (--requeue), when a node fails; use --no-kill=off")
	}
	if err := s.settleShares(); err != nil {
		return err
	}
	if err := s.settleSockets(); err != nil {
		return err
	}
	if err := s.settleIndex(); err != nil {
		return err
	}
	gpus, shares := false, false
	for _, g := range sp.Gres {
		gpus = gpus || g.Name == "gpu" && g.Count > 0
		shares = shares || (model.IsShare(g.Name) || g.Name == "mig") && g.Count > 0
	}
	switch {
	case m.GPUMemMiB > 0 && !gpus && !shares:
		return fmt.Errorf("--gpu-mem needs GPUs: give --gpus, --gres=gpu:N or --gres=shard:N too")
	case m.CPUsPerGPU > 0 && !gpus:
		return fmt.Errorf("--cpus-per-gpu needs GPUs: give --gpus, --gpus-per-node, --gpus-per-task or --gres=gpu:N too")
	case m.MemPerGPU > 0 && !gpus:
		return fmt.Errorf("--mem-per-gpu needs GPUs: give --gpus, --gpus-per-node, --gpus-per-task or --gres=gpu:N too")
	case m.CPUsPerGPU > 0 && sp.CPUsPerTask > 0:
		return fmt.Errorf("--cpus-per-gpu and --cpus-per-task exclude each other")
	case m.Contiguous && m.Spread:
		return fmt.Errorf("--contiguous and --spread-job exclude each other")
	case m.Spread && m.FewNodes:
		return fmt.Errorf("--spread-job and --use-min-nodes exclude each other")
	case m.ExclusiveUser && sp.Exclusive:
		m.ExclusiveUser = false // nobody at all is on its nodes
	}
	if s.mail.Types != 0 {
		m.Mail = &s.mail
	}
	if !reflect.DeepEqual(*m, model.Needs{}) {
		sp.More = m
	}
	return nil
}

// tresTasks takes what --tres-per-task says.
func (s *Submission) tresTasks() (err error) {
	sp := &s.Spec
	if n := s.perTask.Cpus; n > 0 && sp.CPUsPerTask > 0 && sp.CPUsPerTask != n {
		return fmt.Errorf("--cpus-per-task=%d and --tres-per-task=cpu=%d say different things: give one of them",
			sp.CPUsPerTask, n)
	} else if n > 0 {
		sp.CPUsPerTask = n
	}
	sp.Gres, err = s.perTask.AddTo(sp.Gres)
	return err
}

// licenses reads name[:count] joined with , (all of them) or | (one of them).
func (s *Submission) licenses(v string) error {
	bad := func(why string) error {
		return &getopt.TextError{Text: "Invalid license specification: '" + v + "': " + why}
	}
	s.More.Licenses, s.More.AnyLicense = nil, strings.Contains(v, "|")
	if s.More.AnyLicense && strings.ContainsAny(v, ",;") {
		return bad("join them either with , (all of them) or with | (one of them)")
	}
	for _, item := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ';' || r == '|' }) {
		name, count, counted := strings.Cut(strings.TrimSpace(item), ":")
		if !counted {
			name, count, counted = strings.Cut(name, "*")
		}
		l := model.LicenseCount{Name: name, Count: 1}
		if counted {
			n, err := walltime.ParseCount(count)
			if err != nil || n < 1 || n > model.MaxFeatureCount {
				return bad("write NAME or NAME:COUNT, such as matlab:2")
			}
			l.Count = n
		}
		switch {
		case name == "":
			return bad("write NAME or NAME:COUNT, such as matlab:2")
		case len(s.More.Licenses) == model.MaxLicenses:
			return bad(fmt.Sprintf("more than %d licenses", model.MaxLicenses))
		case slices.ContainsFunc(s.More.Licenses, func(o model.LicenseCount) bool { return o.Name == name }):
			return bad(name + " stands twice")
		}
		s.More.Licenses = append(s.More.Licenses, l)
	}
	return nil
}
