package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gstat shows what the steps of running jobs have used so far: sstat's fields. The leader asks the jobs' nodes then and
// there, so what is printed is of this moment.

// statRow is one step.
type statRow struct {
	*proto.StepStat
	view *statView
}

// statView is what the rows of one table share.
type statView struct {
	noConvert bool
}

func (r *statRow) id() string {
	id := strconv.FormatUint(uint64(r.Job), 10)
	if r.ArrayID != 0 && r.Task != model.NoTask {
		id = strconv.FormatUint(uint64(r.ArrayID), 10) + "_" + strconv.FormatInt(int64(r.Task), 10)
	}
	return id + "." + stepName(r.Step)
}

// stepName gives a step's part of an id.
func stepName(step int32) string {
	switch step {
	case proto.StepBatch:
		return "batch"
	case -4:
		return "extern"
	case -6:
		return "interactive"
	}
	return strconv.FormatInt(int64(step), 10)
}

func (r *statRow) used() *useText { return &useText{Usage: r.Use, noConvert: r.view.noConvert} }

func (r *statRow) pids() string {
	var all []string
	for _, n := range r.Pids {
		for _, pid := range n.Pids {
			all = append(all, strconv.FormatInt(int64(pid), 10))
		}
	}
	return strings.Join(all, ",")
}

// The default fields are sstat's, those of -i as well.
const (
	statFormat = "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode," +
		"maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov," +
		"consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask," +
		"avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode," +
		"tresusageinmintask,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin," +
		"tresusageoutminnode,tresusageoutmintask,tresusageouttot"
	statPids = "jobid,nodelist,pids"
)

func statLanguage() format.Language[statRow] {
	u := useFields((*statRow).used)
	plain := func(name string, width int, get func(r *statRow) string) {
		u[name] = format.Field[statRow]{Name: name, Width: width, Get: get}
	}
	plain("JobID", 12, (*statRow).id)
	jobID := u["JobID"]
	jobID.Left = true
	u["JobID"] = jobID
	plain("Nodelist", 20, func(r *statRow) string { return r.Nodes })
	plain("Pids", 20, (*statRow).pids)
	for name, width := range map[string]int{"AveCPUFreq": 10, "ReqCPUFreq": 10, "ReqCPUFreqMin": 13, "ReqCPUFreqMax": 13, "ReqCPUFreqGov": 13} {
		plain(name, width, func(*statRow) string { return "0" })
	}
	names := strings.Split("AveCPU,AveCPUFreq,AveDiskRead,AveDiskWrite,AvePages,AveRSS,AveVMSize,ConsumedEnergy,ConsumedEnergyRaw,"+
		"GPUMemMax,GPUUtilAve,GPUUtilMax,JobID,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,"+
		"MaxPages,MaxPagesNode,MaxPagesTask,MaxRSS,MaxRSSNode,MaxRSSTask,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,MinCPU,MinCPUNode,"+
		"MinCPUTask,Nodelist,NTasks,Pids,ReqCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,TRESUsageInAve,TRESUsageInMax,"+
		"TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,"+
		"TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot", ",")
	lang := format.Language[statRow]{Noun: "field"}
	for _, name := range names {
		lang.Fields = append(lang.Fields, u[name])
	}
	return lang
}

// statWant is one operand of -j.
type statWant struct {
	ref  proto.JobRef
	step string // "": the one that sstat would choose
}

// statCall is one call of gstat.
type statCall struct {
	*Env
	wants    []statWant
	fields   string
	style    format.Style
	noHeader bool
	all      bool
	pids     bool
	view     statView
}

func gstat(e *Env) int {
	s := &statCall{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(), getopt.HelpOptions('h')...), EnvPrefix: "SSTAT",
		About: "Show what the steps of running jobs have used so far: your own jobs', an operator everybody's. Jobs that have ended are gacct's."})
	operands, err := p.Parse(e.Args, e.Lookup)
	switch {
	case errors.Is(err, errHelpFormat):
		lang := statLanguage()
		_, _ = e.Stdout.Write(lang.AppendNames(nil)) // gcli's flush tells of errors
		return 0
	case err != nil:
		return e.usage(p, err)
	}
	for _, o := range operands {
		if err := s.setJobs(o); err != nil {
			e.errorf("%v", err)
			return 1
		}
	}
	if len(s.wants) == 0 {
		e.errorf("You didn't give me any jobs to stat.")
		return 1
	}
	return s.run()
}

func (s *statCall) options() []getopt.Option {
	return []getopt.Option{
		{Name: "jobs", Short: 'j', Arg: getopt.Required, Metavar: "ids", Help: "these jobs: 12, 12_3, 12.batch, 12.0; without a step the lowest numbered one that runs, or else the batch step", Set: s.setJobs},
		{Name: "allsteps", Short: 'a', Help: "all running steps of the jobs", Set: getopt.Flag(&s.all)},
		{Name: "format", Aliases: []string{"fields"}, Short: 'o', Arg: getopt.Required, Metavar: "fields", Help: "what to print, as in 'jobid,maxrss%12,avecpu'; -e lists the fields", Set: func(v string) error {
			s.fields += "," + v
			return nil
		}},
		{Name: "helpformat", Short: 'e', Help: "list the fields that -o takes", Immediate: true, Set: func(string) error { return errHelpFormat }},
		{Name: "pidformat", Short: 'i', Help: "the steps' processes: JobID, Nodelist, Pids", Set: getopt.Flag(&s.pids)},
		{Name: "noheader", Short: 'n', Help: "no headings", Set: getopt.Flag(&s.noHeader)},
		{Name: "noconvert", Help: "memory in bytes", Set: getopt.Flag(&s.view.noConvert)},
		{Name: "parsable", Short: 'p', Help: "fields ended by |", Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, false; return nil }},
		{Name: "parsable2", Short: 'P', Help: "fields with | between", Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, true; return nil }},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: ignored},
	}
}

func (s *statCall) setJobs(v string) error {
	for _, id := range splitIDs(v) {
		base, step, _ := strings.Cut(id, ".")
		refs, err := parseJobRefs(base)
		if err != nil || len(refs) == 0 {
			return &getopt.TextError{Text: "Bad job/step specified: " + id}
		}
		for _, r := range refs {
			s.wants = append(s.wants, statWant{r, step})
		}
	}
	return nil
}

// run asks and prints. A job that doesn't run, and a node that doesn't answer, is said; what is known is printed all the same.
func (s *statCall) run() int {
	lang := statLanguage()
	fields := strings.TrimPrefix(s.fields, ",")
	switch {
	case s.pids:
		fields = statPids
	case fields == "":
		fields = statFormat
	}
	p, err := lang.Table(fields, s.style)
	if err != nil {
		s.errorf("%v", err)
		return 1
	}
	c, err := s.connect()
	if err != nil {
		s.errorf("%s", text(err))
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
		if err := c.Call(proto.KindStat, &proto.StatRequest{Jobs: []proto.JobRef{w.ref}}, &reply); err != nil {
			s.errorf("%s: %s", refText(w.ref), text(err))
			rc = 1
			continue
		}
		steps := s.pick(w, reply.Steps)
		for i := range steps {
			b = p.AppendRow(b, &statRow{&steps[i], &s.view})
		}
		for _, m := range reply.Missing {
			s.errorf("%s", m)
			rc = 1
		}
		if len(steps) == 0 && len(reply.Missing) == 0 {
			s.errorf("couldn't get steps for job %s: no such step runs; gacct -j %s shows what has ended", wantText(w), refText(w.ref))
			rc = 1
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
				if pass == 0 && stepName(st.Step) == w.step {
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
		return refText(w.ref)
	}
	return refText(w.ref) + "." + w.step
}

// liveUsage asks what the steps of a running job have used; nil where nothing runs or nobody answers.
func (e *Env) liveUsage(job model.JobID) (u *model.Usage, missing []string, err error) {
	c, err := e.connect()
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	var reply proto.StatReply
	if err := c.Call(proto.KindStat, &proto.StatRequest{Jobs: []proto.JobRef{{Job: job, Task: model.NoTask}}}, &reply); err != nil {
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
