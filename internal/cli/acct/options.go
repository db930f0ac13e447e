package acct

import (
	"cmp"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// countRange is -i's and -I's least and most; zero takes everything.
type countRange struct{ least, most int64 }

func (c countRange) has(n int64) bool { return c.most == 0 || n >= c.least && n <= c.most }

// values completes what only gacct knows.
func values(option string) (getopt.Values, bool) {
	switch option {
	case "state":
		return env.StateWords(), true
	case "format":
		lang := jobtext.RecordLanguage()
		return getopt.Fields(lang.Names()...), true
	}
	return getopt.Values{}, false
}

func (a *account) options() []getopt.Option {
	rq := &a.rq
	const filters, output = "Filters", "Output"
	return append(append(a.askedOptions(filters), a.contentOptions(output)...), []getopt.Option{
		{Name: "jobs", Short: 'j', Arg: getopt.Required, Group: filters, Metavar: "ids",
			Help: "only these jobs, of any time: 12, 12_3, 12.batch, 12.0", Set: a.setJobs},
		{Name: "user", Aliases: []string{"uid"}, Short: 'u', Arg: getopt.Required, Group: filters, Metavar: "users",
			Help: "only jobs of these users; default: yourself, for root all users", Set: func(v string) error {
				for _, name := range env.SplitList(v) {
					uid, err := env.UIDOf(name)
					if err != nil {
						return &getopt.TextError{Text: "Invalid user id: " + name}
					}
					rq.Users = append(rq.Users, uid)
				}
				return nil
			}},
		{Name: "allusers", Short: 'a', Group: filters, Help: "jobs of all users", Set: getopt.Flag(&a.allUsers)},
		{Name: "starttime", Short: 'S', Arg: getopt.Required, Group: filters, Metavar: "time",
			Help: "jobs of the time from then on: 2026-11-20T10:00, now-1day; default midnight, with -j any time, with -s of " +
				"a state that passes now", Set: getopt.Text(&a.start)},
		{Name: "endtime", Short: 'E', Arg: getopt.Required, Group: filters, Metavar: "time",
			Help: "jobs of the time until then; default now", Set: getopt.Text(&a.end)},
		{Name: "state", Short: 's', Arg: getopt.Required, Group: filters, Metavar: "states",
			Help: "only jobs that were in one of these states in that time", Set: a.setStates},
		{Name: "accounts", Short: 'A', Arg: getopt.Required, Group: filters, Metavar: "names",
			Help: "only jobs of these accounts", Set: getopt.List(&rq.Accounts)},
		{Name: "partition", Short: 'r', Arg: getopt.Required, Group: filters, Metavar: "names",
			Help: "only jobs of these partitions", Set: getopt.List(&rq.Partitions)},
		{Name: "nodelist", Short: 'N', Arg: getopt.Required, Group: filters, Metavar: "hosts",
			Help: "only jobs that ran on one of these nodes", Set: func(v string) error {
				hosts, err := hostlist.Expand(v)
				rq.Nodes = append(rq.Nodes, hosts...)
				return err
			}},
		{Name: "gid", Aliases: []string{"group"}, Short: 'g', Arg: getopt.Required, Group: filters, Metavar: "groups",
			Help: "only jobs of these groups", Set: a.setGroups},
		{Name: "name", Arg: getopt.Required, Group: filters, Metavar: "names", Help: "only jobs with these names",
			Set: getopt.List(&rq.Names)},
		{Name: "qos", Short: 'q', Arg: getopt.Required, Group: filters, Metavar: "names", Help: "only jobs with these QOS",
			Set: getopt.List(&rq.QOS)},
		{Name: "nnodes", Short: 'i', Arg: getopt.Required, Group: filters, Metavar: "min[-max]",
			Help: "only jobs with this number of nodes", Set: a.nodes.set},
		{Name: "ncpus", Short: 'I', Arg: getopt.Required, Group: filters, Metavar: "min[-max]",
			Help: "only jobs with this number of CPUs", Set: a.cpus.set},
		{Name: "duplicates", Short: 'D', Group: filters, Help: "every run of a requeued job, not only the last",
			Set: getopt.Flag(&rq.Duplicates)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Group: filters, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: getopt.List(&a.clusters)},

		{Name: "format", Aliases: []string{"fields"}, Short: 'o', Arg: getopt.Required, Group: output, Slot: "format",
			Metavar: "fields", Env: "_FORMAT",
			Help: "what to print, as in 'jobid,state%20,elapsed'; -e lists the fields",
			Set:  func(v string) error { a.fields += "," + v; return nil }},
		{Name: "brief", Short: 'b', Group: output, Slot: "format", Help: "job, state and exit code",
			Set: getopt.Flag(&a.brief)},
		{Name: "long", Short: 'l', Group: output, Slot: "format", Help: "everything that was measured",
			Set: getopt.Flag(&a.long)},
		{Name: "allocations", Short: 'X', Group: output, Help: "a line for each job, none for its steps",
			Set: getopt.Flag(&a.allocations)},
		{Name: "noheader", Short: 'n', Group: output, Help: "print no header", Set: getopt.Flag(&a.noHeader)},
		{Name: "parsable", Short: 'p', Group: output, Help: "fields ended by |",
			Set: func(string) error { a.style.Parsable, a.style.NoTrailing = true, false; return nil }},
		{Name: "parsable2", Short: 'P', Group: output, Help: "fields with | between",
			Set: func(string) error { a.style.Parsable, a.style.NoTrailing = true, true; return nil }},
		{Name: "delimiter", Arg: getopt.Required, Group: output, Metavar: "text", Help: "with -p and -P this in place of |",
			Set: func(v string) error {
				if v == "" {
					return &getopt.TextError{Text: "--delimiter needs at least one character"}
				}
				a.style.Delimiter = v
				return nil
			}},
		{Name: "units", Arg: getopt.Required, Group: output, Metavar: "KMGTP", Help: "memory in this unit",
			Set: func(v string) error {
				if len(v) != 1 || !strings.Contains("KMGTP", strings.ToUpper(v)) {
					return env.Fatal{Text: "Invalid unit type '" + v + "'. Possible options are 'KMGTP'"}
				}
				a.unit = strings.ToUpper(v)[0]
				return nil
			}},
		{Name: "noconvert", Group: output, Help: "memory in MiB, measured memory in bytes", Set: getopt.Flag(&a.noConvert)},
		{Name: "expand-patterns", Group: output, Help: "StdOut, StdErr and StdIn with %j and the like filled in",
			Set: getopt.Flag(&a.expand)},
		{Name: "helpformat", Short: 'e', Group: output, Help: "list the fields that -o takes", Immediate: true,
			Set: func(string) error { return env.ErrHelpFormat }},
		a.eventsOption(output), a.JSON(output, "JSON, in Slurm's shape", &a.json),
		a.YAML(output, &a.json), a.arrayOption(output), a.wckeysOption(filters),

		{Name: "allclusters", Short: 'L', Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "federation", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "use-local-uid", Hidden: true, Note: "records have the number of the host that submitted", Set: env.Ignored},
		{Name: "verbose", Short: 'v', Group: output, Help: "say which states and times", Set: getopt.Flag(&a.verbose)},
		{Name: "whole-hetjob", Arg: getopt.Optional, Hidden: true, Note: "-j ID shows all components", Set: wholeHet},
		{Name: "completion", Short: 'c', Refused: "leave it out: every record is in accounting"},
		{Name: "file", Short: 'f', Arg: getopt.Required, Refused: "leave it out: records come from the accounting daemon"},
		a.flagsOption(filters),
		{Name: "timelimit-min", Short: 'k', Arg: getopt.Required, Group: filters, Metavar: "limit",
			Help: "only jobs with this time limit, or with -K at least this", Set: accountLimit(&a.leastLimit)},
		{Name: "timelimit-max", Short: 'K', Arg: getopt.Required, Group: filters, Metavar: "limit",
			Help: "with -k: at most this time limit", Set: accountLimit(&a.mostLimit)},
		{Name: "truncate", Short: 'T', Group: filters,
			Help: "show jobs from -S to -E only: what began before began then, what ended after ended then",
			Set:  getopt.Flag(&a.truncate)},
	}...)
}

func (a *account) flagsOption(group string) getopt.Option {
	return getopt.Option{Name: "flags", Short: 'F', Arg: getopt.Required, Group: group,
		Metavar: "SchedMain|SchedSubmit|SchedBackfill",
		Help: "only jobs that the scheduler started in one of these ways (field Flags): SchedMain, SchedSubmit, " +
			"SchedBackfill; here all that have begun are SchedMain",
		Set: a.setFlags}
}

func (a *account) wckeysOption(group string) getopt.Option {
	return getopt.Option{Name: "wckeys", Short: 'W', Arg: getopt.Required, Group: group, Metavar: "keys",
		Help: "only jobs with these wckeys", Set: getopt.List(&a.rq.WCKeys)}
}

func (a *account) arrayOption(group string) getopt.Option {
	return getopt.Option{Name: "array", Group: group, Set: getopt.Flag(&a.array),
		Help: "a line for each task of an array that waits, not one for all"}
}

// askedOptions pick jobs by what they asked for and waited for.
func (a *account) askedOptions(filters string) []getopt.Option {
	return []getopt.Option{
		{Name: "associations", Short: 'x', Arg: getopt.Required, Group: filters, Metavar: "list",
			Help: "only jobs of these associations: their numbers (AssocID here, ID of gacctmgr list associations)",
			Set:  a.setAssocs},
		{Name: "constraints", Short: 'C', Arg: getopt.Required, Group: filters, Metavar: "features",
			Help: "only jobs that asked for one of these features", Set: getopt.List(&a.features)},
		{Name: "reason", Short: 'R', Arg: getopt.Required, Group: filters, Metavar: "reasons",
			Help: "only jobs that waited for one of these reasons", Set: getopt.List(&a.reasons)},
	}
}

// contentOptions print what was submitted.
func (a *account) contentOptions(output string) []getopt.Option {
	return []getopt.Option{
		{Name: "batch-script", Short: 'B', Group: output,
			Help: "with -j: the jobs' scripts, while the controller still has them", Set: getopt.Flag(&a.script)},
		{Name: "env-vars", Group: output, Help: "with -j: the environments of the jobs' submissions, while the controller " +
			"still has them", Set: getopt.Flag(&a.vars)},
	}
}

func wholeHet(v string) error {
	if low := strings.ToLower(v); low != "" && low != "yes" && low != "no" {
		return &getopt.TextError{Text: "Invalid --whole-hetjob value \"" + v + "\". Valid values: [yes|no]."}
	}
	return nil
}

func (c *countRange) set(v string) error {
	least, most, isRange := strings.Cut(v, "-")
	var err error
	if c.least, err = walltime.ParseCount(least); err != nil {
		return err
	}
	c.most = c.least
	if isRange {
		c.most, err = walltime.ParseCount(most)
	}
	if err == nil && (c.most < c.least || c.most == 0) {
		return fmt.Errorf("'%s' is no range; write a number, or least-most", v)
	}
	return err
}

func (a *account) setJobs(v string) error {
	a.anyJob = true
	for _, id := range env.SplitIDs(v) {
		base, step, _ := strings.Cut(id, ".")
		refs, err := env.ParseJobRefs(base)
		if err != nil || len(refs) == 0 {
			return env.Fatal{Text: "Bad job/step specified: " + id}
		}
		for _, r := range refs {
			a.jobs = append(a.jobs, acctWant{r, step})
			a.rq.Jobs = append(a.rq.Jobs, r)
		}
	}
	if len(a.rq.Jobs) > proto.MaxTargets {
		return env.Fatal{Text: fmt.Sprintf("more than %d jobs asked for; pick them with -S, -u or --name", proto.MaxTargets)}
	}
	a.noJobs = len(a.rq.Jobs) == 0
	return nil
}

func (a *account) setStates(v string) error {
	for _, w := range env.SplitList(v) {
		states, err := env.QueryStates(w, model.Pending)
		if err != nil {
			return env.Fatal{Text: "unrecognized job state value '" + w + "'"}
		}
		a.rq.States = append(a.rq.States, states...)
	}
	if len(a.rq.States) == 0 {
		a.noJobs = true // states that no job here is ever in
	}
	return nil
}

func (a *account) setGroups(v string) error {
	for _, name := range env.SplitList(v) {
		digits := name
		if g, err := user.LookupGroup(name); err == nil {
			digits = g.Gid
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return &getopt.TextError{Text: "Invalid group id: " + name}
		}
		a.rq.Groups = append(a.rq.Groups, uint32(n))
	}
	return nil
}

// window sets the span of time: see sacct's DEFAULT TIME WINDOW. In two places it is kinder: states that a job ends in
// (FAILED, ...) without -S mean today's and not those of this very moment, and -s with -S goes up to now.
func (a *account) window() (err error) {
	rq := &a.rq
	midnight := time.Date(a.now.Year(), a.now.Month(), a.now.Day(), 0, 0, 0, 0, a.now.Location())
	passing := slices.ContainsFunc(rq.States, func(s model.JobState) bool { return !s.Finished() }) &&
		len(rq.States) < len(model.JobStates())
	switch {
	case a.start != "":
		if rq.Start, err = dateOf(a.start, a.now); err != nil {
			return fmt.Errorf("Invalid time specification: %w", err)
		}
	case a.anyJob:
	case passing:
		rq.Start = model.Time(a.now.UnixMilli())
	default:
		rq.Start = model.Time(midnight.UnixMilli())
	}
	if a.end != "" {
		if rq.End, err = dateOf(a.end, a.now); err != nil {
			return fmt.Errorf("Invalid time specification: %w", err)
		}
	} else if passing && a.start == "" && !a.anyJob {
		rq.End = rq.Start
	}
	if rq.End == 0 && int64(rq.Start) > a.now.UnixMilli() {
		return a.backwards(rq.Start, model.Time(a.now.UnixMilli()))
	}
	if rq.End != 0 && rq.End < rq.Start {
		if a.start == "" && !passing {
			rq.Start = 0
			return nil // -E alone before midnight: everything until then
		}
		return a.backwards(rq.Start, rq.End)
	}
	return nil
}

// sayWindow tells what the options ask for, as Slurm does.
func (a *account) sayWindow() {
	states, m := "Eligible", jobtext.Times{Now: a.now}
	for i, s := range a.rq.States {
		if i == 0 {
			states = s.String()
		} else {
			states += "," + s.String()
		}
	}
	start, end := "Epoch 0", string(m.Append(nil, cmp.Or(a.rq.End, model.Time(a.now.UnixMilli())), ""))
	if a.rq.Start != 0 {
		start = string(m.Append(nil, a.rq.Start, ""))
	}
	if start == end {
		fmt.Fprintf(a.Stderr, "%s: Jobs %s at the time instant %s\n", a.Program, states, start)
		return
	}
	fmt.Fprintf(a.Stderr, "%s: Jobs %s in the time window from %s to %s\n", a.Program, states, start, end)
}

// backwards refuses a window that ends before it begins.
func (a *account) backwards(start, end model.Time) error {
	m := jobtext.Times{Now: a.now}
	return fmt.Errorf("Start time (%s) requested is after end time (%s).", m.Append(nil, start, ""),
		m.Append(nil, end, ""))
}

// accountLimit reads a time limit as -t of gsubmit has it.
func accountLimit(dst *int64) func(string) error {
	return func(v string) error {
		sec, unlimited, err := walltime.ParseLimit(v)
		if err != nil {
			return err
		}
		if *dst = sec; unlimited {
			*dst = model.Unlimited
		}
		return nil
	}
}

// setAssocs reads -x.
func (a *account) setAssocs(v string) error {
	list := env.SplitList(v)
	for _, w := range list {
		if n, err := strconv.ParseUint(w, 10, 32); err != nil || n == 0 {
			return &getopt.TextError{Text: "Invalid --associations specification: '" + w + "': gacctmgr list associations " +
				"format=id,account,user has the numbers"}
		}
	}
	a.assocs = append(a.assocs, list...)
	return nil
}

// schedFlags are the flags that -F takes.
var schedFlags = []string{"SchedSubmit", "SchedMain", "SchedBackfill"}

// setFlags reads -F.
func (a *account) setFlags(v string) error {
	for _, w := range env.SplitList(v) {
		i := slices.IndexFunc(schedFlags, func(f string) bool { return strings.EqualFold(f, w) })
		if i < 0 {
			return &getopt.TextError{Text: "Invalid job flag: '" + w + "'; the flags are " + strings.Join(schedFlags, ", ")}
		}
		a.flags = append(a.flags, schedFlags[i])
	}
	return nil
}

// scheduled reports whether a job was started in one of the requested ways (-F).
func (a *account) scheduled(r *model.Record) bool {
	if len(a.flags) == 0 {
		return true
	}
	has := strings.Split((&jobtext.RecordRow{Record: r}).Flags(), ",")
	return slices.ContainsFunc(a.flags, func(f string) bool { return slices.Contains(has, f) })
}

// clip cuts the times of a job or a step to the requested window (-T).
func (a *account) clip(start, end *model.Time) {
	if !a.truncate || *start == 0 {
		return
	}
	*start = max(*start, a.rq.Start)
	if a.rq.End != 0 && (*end == 0 || *end > a.rq.End) {
		*end = max(a.rq.End, *start)
	}
}

// limited reports whether a job's time limit is in the requested range (-k, -K).
func (a *account) limited(r *model.Record) bool {
	switch {
	case a.leastLimit == 0:
		return true
	case a.mostLimit == 0:
		return r.LimitS == a.leastLimit
	}
	return r.LimitS >= a.leastLimit && r.LimitS <= a.mostLimit
}

// dateOf reads -S and -E in the local zone.
func dateOf(v string, now time.Time) (model.Time, error) {
	t, err := walltime.ParsePastDate(v, now)
	if err != nil {
		return 0, err
	}
	return model.Time(t.UnixMilli()), nil
}
