package acct

import (
	"errors"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gstat shows the usage of running jobs' steps so far, in sstat's fields. The leader asks the jobs' nodes for it, so
// the numbers are of this moment.

// The default fields are sstat's, those of -i as well.
const (
	statFormat = "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages," +
		"maxpagesnode," +
		"maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax," +
		"reqcpufreqgov," +
		"consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode," +
		"maxdiskwritetask," +
		"avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin," +
		"tresusageinminnode," +
		"tresusageinmintask,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask," +
		"tresusageoutmin," +
		"tresusageoutminnode,tresusageoutmintask,tresusageouttot"
	statPids = "jobid,nodelist,pids"
)

// statWant is one operand of -j.
type statWant struct {
	ref  model.JobRef
	step string // "": the one that sstat would choose
}

// statCall is one call of gstat.
type statCall struct {
	*env.Env
	wants    []statWant
	fields   string
	style    format.Style
	noHeader bool
	all      bool
	pids     bool
	view     jobtext.StatView
	past     past
}

func Gstat(e *env.Env) int {
	s := &statCall{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program,
		Options:   slices.Concat(s.options(), s.pastOptions(), getopt.HelpOptions('h')),
		EnvPrefix: "SSTAT", Syntax: "[<OPTION>] -j <job(.step)>", Heading: "Valid <OPTION> values are", Colons: true,
		Brief: "[options] -j <job(.step)>\n    Use --help for help", Values: func(o string) (getopt.Values, bool) {
			lang := jobtext.StatLanguage()
			return getopt.Fields(lang.Names()...), o == "format"
		},
		About: "Show what the steps of running jobs have used so far: your own jobs', an operator everybody's. Jobs that " +
			"have ended are gacct's."})
	operands, err := p.Parse(e.Args, e.Lookup)
	switch {
	case errors.Is(err, env.ErrHelpFormat):
		lang := jobtext.StatLanguage()
		_, _ = e.Stdout.Write(lang.AppendNames(nil)) // gcli's flush tells of errors
		return 0
	case err != nil:
		return e.Usage(p, err)
	}
	for _, o := range operands {
		if err := s.setJobs(o); err != nil {
			e.Errorf("%v", err)
			return 1
		}
	}
	switch {
	case s.past.on:
		return s.history()
	case s.past.used != "":
		e.Errorf("%s is an option of --history", s.past.used)
		return 1
	case len(s.wants) == 0:
		e.Errorf("You didn't give me any jobs to stat.")
		return 1
	}
	return s.run()
}

func (s *statCall) options() []getopt.Option {
	return []getopt.Option{
		{Name: "jobs", Short: 'j', Arg: getopt.Required, Metavar: "ids",
			Help: "these jobs: 12, 12_3, 12.batch, 12.0; without a step the lowest numbered one that runs, or " +
				"else the batch step", Set: s.setJobs},
		{Name: "allsteps", Short: 'a', Help: "all running steps of the jobs", Set: getopt.Flag(&s.all)},
		{Name: "format", Aliases: []string{"fields"}, Short: 'o', Arg: getopt.Required, Metavar: "fields",
			Help: "what to print, as in 'jobid,maxrss%12,avecpu'; -e lists the fields", Set: func(v string) error {
				s.fields += "," + v
				return nil
			}},
		{Name: "helpformat", Short: 'e', Help: "list the fields that -o takes", Immediate: true,
			Set: func(string) error { return env.ErrHelpFormat }},
		{Name: "pidformat", Short: 'i', Help: "the steps' processes: JobID, Nodelist, Pids", Set: getopt.Flag(&s.pids)},
		{Name: "noheader", Short: 'n', Help: "print no header", Set: getopt.Flag(&s.noHeader)},
		{Name: "noconvert", Help: "memory in bytes", Set: getopt.Flag(&s.view.NoConvert)},
		{Name: "parsable", Short: 'p', Help: "fields ended by |",
			Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, false; return nil }},
		{Name: "parsable2", Short: 'P', Help: "fields with | between",
			Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, true; return nil }},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
	}
}

func (s *statCall) setJobs(v string) error {
	for _, id := range env.SplitIDs(v) {
		base, step, _ := strings.Cut(id, ".")
		refs, err := env.ParseJobRefs(base)
		if err != nil || len(refs) == 0 {
			return &getopt.TextError{Text: "Bad job/step specified: " + id}
		}
		for _, r := range refs {
			s.wants = append(s.wants, statWant{r, step})
		}
	}
	return nil
}

// run asks and prints. It reports jobs that don't run and nodes that don't answer, and prints the rest.
func (s *statCall) run() int {
	lang := jobtext.StatLanguage()
	fields := strings.TrimPrefix(s.fields, ",")
	switch {
	case s.pids:
		fields = statPids
	case fields == "":
		fields = statFormat
	}
	p, err := lang.Table(fields, s.style)
	if err != nil {
		s.Errorf("%v", err)
		return 1
	}
	c, err := s.Connect()
	if err != nil {
		s.Errorf("%s", env.Text(err))
		return 1
	}
	defer c.Close()
	rc := 0
	var b []byte
	if !s.noHeader {
		b = p.AppendHeader(b)
	}
	for _, w := range s.wants {
		var reply proto.StatReply
		if err := c.Call(proto.KindStat, &proto.StatRequest{Jobs: []model.JobRef{w.ref}}, &reply); err != nil {
			s.Errorf("%s: %s", jobtext.RefText(w.ref), env.Text(err))
			rc = 1
			continue
		}
		steps := s.pick(w, reply.Steps)
		for i := range steps {
			b = p.AppendRow(b, &jobtext.StatRow{StepStat: &steps[i], View: &s.view})
		}
		for _, m := range reply.Missing {
			s.Errorf("%s", m)
			rc = 1
		}
		if len(steps) == 0 && len(reply.Missing) == 0 {
			what := "No steps running for job " + wantText(w)
			if w.step != "" {
				what = "StepId=" + wantText(w) + " not found running"
			}
			s.Errorf("%s; gacct -j %s shows what has ended", what, jobtext.RefText(w.ref))
			if !s.SlurmName() { // sstat: no failure
				rc = 1
			}
		}
	}
	if _, err := s.Stdout.Write(b); err != nil {
		return 1
	}
	return rc
}

// pick gives the steps that were asked for.
func (s *statCall) pick(w statWant, steps []proto.StepStat) []proto.StepStat {
	if s.all && w.step == "" {
		return steps
	}
	var out []proto.StepStat
	chosen := map[model.JobID]bool{}
	for pass := range 2 { // numbered steps first
		for _, st := range steps {
			switch {
			case w.step != "":
				if pass == 0 && jobtext.StepName(st.Step) == w.step {
					out = append(out, st)
				}
			case !chosen[st.Job] && (st.Step >= 0) == (pass == 0):
				chosen[st.Job] = true
				out = append(out, st)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b proto.StepStat) int { return int(int64(a.Job) - int64(b.Job)) })
	return out
}

func wantText(w statWant) string {
	if w.step == "" {
		return jobtext.RefText(w.ref)
	}
	return jobtext.RefText(w.ref) + "." + w.step
}

// liveUsage asks for the usage of a running job's steps; nil if none runs or no node answers.
func liveUsage(e *env.Env, job model.JobID) (u *model.Usage, missing []string, err error) {
	c, err := e.Connect()
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	var reply proto.StatReply
	if err := c.Call(proto.KindStat, &proto.StatRequest{Jobs: []model.JobRef{{Job: job, Task: model.NoTask}}},
		&reply); err != nil {
		return nil, nil, err
	}
	for i := range reply.Steps {
		if u == nil {
			u = &model.Usage{}
		}
		u.Add(reply.Steps[i].Use)
	}
	return u, reply.Missing, nil
}
