package queue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// gqueue lists pending and running jobs. It reads the list as a stream: it formats a job's line as the job arrives and
// keeps only that (sort.go), so memory depends on the size of the output.

// The formats of squeue.
const (
	queueFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	queueLong   = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	queueStart  = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
	// queueLikely is queueStart under our own name, with the range in which a job is likely to start.
	queueLikely = "JobArrayID:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,StartTime:.19 ,LikelyStart:23 ," +
		"NumNodes:.6 ,SchedNodes:20 ,ReasonList:"
	queueSort = "P,t,-p"
)

// queue is one call of gqueue.
type queue struct {
	*env.Env
	rq       proto.JobsRequest
	none     bool // an empty list was given: no job matches
	template string
	columns  string
	layout   byte // the last one given: 'o', 'O', or 0 for neither
	sort     string
	json     string
	every    int32
	verbose  int
	clusters []string
	over     *int64 // seconds that the jobs have run for at least; nil: any number
	under    *int64 // likewise at most

	explains bool           // instead of a list
	why      []model.JobRef // these jobs; none: all pending jobs of the caller

	listing bool            // steps, not jobs
	steps   []proto.StepRef // these; none: of all jobs that match the filters

	tiers map[string]int64 // with -P: of the partitions

	long, noHeader, perTask, perPartition, start, all, noConvert, expand, noSort bool
}

func Gqueue(e *env.Env) int {
	q := &queue{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(q.options(), getopt.HelpOptions(0)...),
		EnvPrefix: "SQUEUE", Values: q.values,
		About: "List jobs that wait and run; with -t all those too that have ended in the last minutes."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	if q.listing && len(q.steps) == 0 && len(operands) == 1 { // -s 12.0
		if q.steps, err = env.ParseStepRefs(operands[0]); err != nil {
			e.Errorf("%s", err)
			return 1
		}
		operands = nil
	}
	if q.explains && len(operands) > 0 { // --why 12 13_4
		more, err := env.ParseJobRefs(strings.Join(operands, ","))
		if err != nil {
			e.Errorf("%s", err)
			return 1
		}
		q.why, operands = append(q.why, more...), nil
	}
	if len(operands) > 0 {
		e.Errorf("Unrecognized option: %s", operands[0])
		fmt.Fprint(e.Stderr, p.Usage())
		return 1
	}
	e.ListVerbose(p, q.verbose, q.every)
	if q.explains {
		for _, o := range []string{"user", "account", "partition", "qos", "name", "states", "nodelist", "licenses",
			"reservation", "notme", "steps"} {
			if p.Given(o).Source == getopt.FromArgs {
				e.Errorf("--why and --%[1]s exclude each other: --why explains the jobs that it names, such as --why=12,13_4, or "+
					"all of yours that wait; gqueue --%[1]s ... -h -o %%i lists their numbers", o)
				return 1
			}
		}
		q.why = append(q.why, q.rq.Filter.Jobs...)
		return e.Repeat(q.every, q.explain)
	}
	if q.listing {
		if p.Given("format").Source != getopt.FromArgs && p.Given("Format").Source != getopt.FromArgs {
			q.layout = 0 // the variables are for jobs
		}
		return e.Repeat(q.every, q.listSteps)
	}
	q.rq.Default = len(q.rq.Filter.States) == 0
	if q.start && q.rq.Default {
		q.rq.Filter.States, q.rq.Default = []model.JobState{model.Queued}, false
	}
	q.rq.Positions = q.layout == 'O' && strings.Contains(strings.ToLower(q.columns), "position")
	return e.Repeat(q.every, q.once)
}

// names gives the Set function of a list of names. An empty list selects nothing.
func (q *queue) names(dst *[]string) func(string) error {
	return func(v string) error {
		list := env.SplitList(v)
		*dst = list // the last one given counts, as in squeue: an alias may have one too
		q.none = q.none || len(list) == 0
		return nil
	}
}

// span gives the Set function of a length of time.
func span(option string, dst **int64) func(string) error {
	return func(v string) error {
		s, err := walltime.ParseDuration(v)
		if err != nil {
			return &getopt.TextError{Text: "Invalid --" + option + " specification: " + err.Error()}
		}
		*dst = &s
		return nil
	}
}

// values completes what only gqueue knows.
func (q *queue) values(option string) (getopt.Values, bool) {
	switch option {
	case "states":
		return env.StateWords(), true
	case "Format":
		lang := jobtext.JobLanguage()
		return getopt.Fields(lang.Names()...), true
	}
	return getopt.Values{}, false
}

func (q *queue) options() []getopt.Option {
	f := &q.rq.Filter
	const filters, output = "Filters", "Output"
	return []getopt.Option{
		{Name: "jobs", Short: 'j', Arg: getopt.Required, Group: filters, Metavar: "ids",
			Help: "only these jobs: 12, 12_3, 12_[1-4]", Set: q.setJobs},
		{Name: "user", Aliases: []string{"users"}, Short: 'u', Arg: getopt.Required, Group: filters, Metavar: "users",
			Env: "_USERS", Help: "only jobs of these users", Set: q.setUsers},
		{Name: "me", Group: filters, Help: "only your own jobs",
			Set: func(string) error { f.Users = []uint32{uint32(os.Getuid())}; return nil }},
		{Name: "notme", Group: filters, Help: "only jobs of others",
			Set: func(string) error { f.NotUsers = append(f.NotUsers, uint32(os.Getuid())); return nil }},
		{Name: "account", Aliases: []string{"accounts"}, Short: 'A', Arg: getopt.Required, Group: filters, Metavar: "names",
			Env: "_ACCOUNT", Help: "only jobs of these accounts", Set: q.names(&f.Accounts)},
		{Name: "partition", Aliases: []string{"partitions"}, Short: 'p', Arg: getopt.Required, Group: filters,
			Metavar: "names", Env: "_PARTITION", Help: "only jobs of these partitions", Set: q.names(&f.Partitions)},
		{Name: "qos", Short: 'q', Arg: getopt.Required, Group: filters, Metavar: "names", Env: "_QOS",
			Help: "only jobs with these QOS", Set: q.names(&f.QOS)},
		{Name: "name", Aliases: []string{"names"}, Short: 'n', Arg: getopt.Required, Group: filters, Metavar: "names",
			Env: "_NAMES", Help: "only jobs with these names", Set: q.names(&f.Names)},
		{Name: "steps", Short: 's', Arg: getopt.Optional, Group: filters, Metavar: "ids",
			Help: "steps of running jobs in place of jobs; these: 12.0, 12.batch, 12 for all of a job's",
			Set: func(v string) (err error) {
				q.listing = true
				q.steps, err = env.ParseStepRefs(v)
				return err
			}},
		{Name: "states", Short: 't', Arg: getopt.Required, Group: filters, Metavar: "states", Env: "_STATES",
			Help: "only jobs in these states; all for every state, ended jobs too", Set: func(v string) error {
				states, err := env.QueryStates(v, model.Queued)
				f.States = states
				q.none = q.none || err == nil && len(states) == 0
				return err
			}},
		{Name: "nodelist", Aliases: []string{"nodes"}, Short: 'w', Arg: getopt.Required, Group: filters, Metavar: "hosts",
			Help: "only jobs on one of these nodes", Set: q.setNodes},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Group: filters, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&q.clusters)},
		{Name: "all", Short: 'a', Group: filters, Env: "_ALL", Help: "jobs of hidden partitions too",
			Set: getopt.Flag(&q.all)},
		{Name: "hide", Group: filters, Help: "no jobs of hidden partitions (the default)", Set: getopt.Const(&q.all, false)},

		// Of two variables the last one counts, as in squeue.
		{Name: "Format", Short: 'O', Arg: getopt.Required, Group: output, Slot: "format", Metavar: "fields", Env: "_FORMAT2",
			Help: "what to print, as in 'JobID:10,Name,tres-alloc:.40'", Set: func(v string) error {
				q.columns, q.layout = v, 'O'
				return nil
			}},
		{Name: "format", Short: 'o', Arg: getopt.Required, Group: output, Slot: "format", Metavar: "format", Env: "_FORMAT",
			Help: "what to print, as in '%.18i %j %T'", Set: func(v string) error {
				q.template, q.layout = v, 'o'
				return nil
			}},
		{Name: "long", Short: 'l', Group: output, Slot: "format", Help: "with the time limit and the state in full",
			Set: getopt.Flag(&q.long)},
		{Name: "start", Group: output, Slot: "format",
			Help: "pending jobs with the time at which they start, N/A where it is not known", Set: getopt.Flag(&q.start)},
		{Name: "noheader", Short: 'h', Group: output, Help: "print no header", Set: getopt.Flag(&q.noHeader)},
		{Name: "sort", Short: 'S', Arg: getopt.Required, Group: output, Metavar: "keys", Env: "_SORT",
			Help: "sort by these letters of -o, each with - before it for descending; default P,t,-p",
			Set: func(v string) error {
				q.sort, q.noSort = v, v == ""
				return nil
			}},
		{Name: "array", Short: 'r', Group: output, Env: "_ARRAY", Help: "a line for each task of an array",
			Set: getopt.Flag(&q.perTask)},
		{Name: "array-unique", Group: output, Env: "_ARRAY_UNIQUE", Help: "tasks that wait on one line",
			Note: "they are, unless -r is given", Set: env.Ignored},
		{Name: "priority", Short: 'P', Group: output, Env: "_PRIORITY",
			Help: "a line for each partition that a job waits for", Set: getopt.Flag(&q.perPartition)},
		{Name: "noconvert", Group: output, Help: "memory in MiB, not in the largest unit", Set: getopt.Flag(&q.noConvert)},
		{Name: "expand-patterns", Group: output, Help: "output files with %j and the like filled in",
			Set: getopt.Flag(&q.expand)},
		q.JSON(output, "JSON, in Slurm's shape", &q.json),
		q.YAML(output, &q.json),
		{Name: "why", Arg: getopt.Optional, Group: output, Metavar: "ids", Help: "say what holds these jobs (all of yours " +
			"that wait), when they are expected to start, and what would let them start sooner",
			Set: func(v string) (err error) {
				q.explains = true
				q.why, err = env.ParseJobRefs(v)
				return err
			}},
		{Name: "iterate", Short: 'i', Arg: getopt.Required, Group: output, Metavar: "seconds",
			Help: "print again after this many seconds, until interrupted", Set: getopt.Number(&q.every, 1, 1<<20)},
		{Name: "reservation", Short: 'R', Arg: getopt.Required, Group: output, Metavar: "names",
			Help: "jobs that asked for these reservations", Set: q.names(&f.Reservations)},

		{Name: "only-job-state", Hidden: true, Note: "lists with everything are as quick", Set: env.Ignored},
		{Name: "verbose", Short: 'v', Group: output, Help: "print the options first", Set: getopt.Count(&q.verbose)},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "licenses", Short: 'L', Arg: getopt.Required, Group: filters, Metavar: "names", Env: "_LICENSES",
			Help: "only jobs that asked for one of these licenses", Set: q.names(&f.Licenses)},
		{Name: "running-over", Arg: getopt.Required, Group: filters, Metavar: "time",
			Help: "only jobs that have run for longer than this", Set: span("running-over", &q.over)},
		{Name: "running-under", Arg: getopt.Required, Group: filters, Metavar: "time",
			Help: "only jobs that run, and have run for less than this", Set: span("running-under", &q.under)},
		{Name: "federation", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "sibling", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
	}
}

func (q *queue) setJobs(v string) error {
	for _, id := range env.SplitIDs(v) {
		base, _, _ := strings.Cut(id, ".") // a step: its job
		refs, err := env.ParseJobRefs(base)
		if err != nil || len(refs) == 0 {
			return &getopt.TextError{Text: "Invalid job id: " + id}
		}
		q.rq.Filter.Jobs = append(q.rq.Filter.Jobs, refs...)
	}
	q.none = q.none || len(q.rq.Filter.Jobs) == 0
	if len(q.rq.Filter.Jobs) > proto.MaxTargets {
		return &getopt.TextError{
			Text: fmt.Sprintf("more than %d job ids; ask for all jobs, or with -u, and pick from the list", proto.MaxTargets)}
	}
	return nil
}

// setUsers reports users that don't exist and continues with the others, as squeue does.
func (q *queue) setUsers(v string) error {
	known := 0
	q.rq.Filter.Users = nil
	for _, name := range env.SplitList(v) {
		uid, err := env.UIDOf(name)
		if err != nil {
			q.Errorf("%v", err)
			continue
		}
		q.rq.Filter.Users = append(q.rq.Filter.Users, uid)
		known++
	}
	q.none = q.none || known == 0
	return nil
}

func (q *queue) setNodes(v string) error {
	hosts, err := hostlist.Expand(v)
	if err != nil {
		return err
	}
	for i, h := range hosts {
		if h == "localhost" {
			if hosts[i], err = os.Hostname(); err != nil {
				return err
			}
			hosts[i], _, _ = strings.Cut(hosts[i], ".")
		}
	}
	q.rq.Filter.Nodes = hosts
	q.none = q.none || len(hosts) == 0
	return nil
}

// printer compiles the format. It reports unknown fields and leaves them out, as squeue does.
func (q *queue) printer(lang *format.Language[jobtext.JobRow]) (*format.Printer[jobtext.JobRow], error) {
	template := queueFormat
	switch {
	case q.layout == 'o':
		template = q.template
	case q.start:
		if template = queueStart; !q.SlurmName() {
			return lang.Columns(queueLikely)
		}
	case q.long:
		template = queueLong
	}
	compile := func() (*format.Printer[jobtext.JobRow], error) { return lang.Template(template) }
	if q.layout == 'O' {
		compile = func() (*format.Printer[jobtext.JobRow], error) { return lang.Columns(q.columns) }
	}
	p, err := compile()
	return p, q.UnknownFields(err)
}

// once prints one table.
func (q *queue) once() int {
	lang := jobtext.JobLanguage()
	p, err := q.printer(&lang)
	if err != nil {
		q.Errorf("%v", err)
		return 1
	}
	keys, rc := q.sortKeys(&lang)
	if rc != 0 {
		return rc
	}
	now := time.Now()
	view := &jobtext.JobView{Times: q.Times(now), At: model.Time(now.UnixMilli()), BitLen: q.BitLen(),
		NoConvert: q.noConvert, Expand: q.expand}
	if q.json != "" {
		err = q.printJSON(view)
	} else {
		table := newQueueTable(p, &lang, keys)
		if q.perPartition {
			q.tiers = map[string]int64{}
			table.tiers = q.tiers
		}
		if err = q.each(view, p, table.add); err == nil {
			err = q.printTable(table, now)
		}
	}
	return q.ended(err)
}

// explain answers --why.
func (q *queue) explain() int {
	c, err := q.Connect()
	if err != nil {
		return q.ended(err)
	}
	defer c.Close()
	return q.ended(env.PrintWhy(q.Env, c, q.why, q.json))
}

// ended reports an error in squeue's words.
func (q *queue) ended(err error) int {
	var said env.Complaint
	switch {
	case err == nil:
		return 0
	case errors.As(err, &said):
		q.Errorf("%s", said.Text)
	default:
		fmt.Fprintf(q.Stderr, "slurm_load_jobs error: %s\n", env.Text(err))
	}
	return 1
}

func (q *queue) sortKeys(lang *format.Language[jobtext.JobRow]) ([]format.SortKey, int) {
	if q.start {
		return sortKeys(q, lang, "S")
	}
	return sortKeys(q, lang, queueSort)
}

// sortKeys gives the keys of --sort, usual if none is given.
func sortKeys[T any](q *queue, lang *format.Language[T], usual string) ([]format.SortKey, int) {
	spec := q.sort
	if spec == "" && !q.noSort {
		spec = usual
	}
	var letters []byte
	for i := range lang.Fields {
		if l := lang.Fields[i].Letter; l != 0 {
			letters = append(letters, l)
		}
	}
	keys, err := format.ParseSort(spec, string(letters))
	if err != nil {
		q.Errorf("%v", err)
		return nil, 1
	}
	return keys, 0
}

func (q *queue) printTable(t *queueTable, now time.Time) error {
	var head []byte
	if (q.every > 0 || q.long) && !q.noHeader {
		head = now.AppendFormat(head, "Mon Jan _2 15:04:05 2006\n")
	}
	if len(q.clusters) > 0 && !q.noHeader {
		name, err := q.Cluster()
		if err != nil {
			return err
		}
		head = append(append(append(head, "CLUSTER: "...), name...), '\n')
	}
	if !q.noHeader {
		head = t.printer.AppendHeader(head)
	}
	if _, err := q.Stdout.Write(head); err != nil {
		return env.Complaint{Text: err.Error()}
	}
	if err := t.write(q.Stdout); err != nil {
		return env.Complaint{Text: err.Error()}
	}
	if q.every > 0 {
		_, _ = io.WriteString(q.Stdout, "\n") // the next flush reports errors
	}
	return nil
}
