package queue

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// cancel is one call of gcancel.
type cancel struct {
	*env.Env
	rq       proto.CancelRequest
	steps    proto.CancelRequest // the steps named on the command line
	clusters []string

	quiet, verbose, me, interactive bool

	filter  string // the filters as they were given, in scancel's words
	nothing bool   // a filter was given that no job passes: scancel -n ""
	ask     *asker // nil before the first question
}

// Gcancel ends or signals jobs: the named ones, or those that match the filters.
func Gcancel(e *env.Env) int {
	x := &cancel{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(x.options(), getopt.HelpOptions(0)...),
		EnvPrefix: "SCANCEL", OperandValues: getopt.Operands(getopt.Values{Kind: getopt.Jobs}),
		Values: func(o string) (getopt.Values, bool) {
			return getopt.Fields("PENDING", "RUNNING", "SUSPENDED"), o == "state"
		},
		Operands: "[job_id[_array_id][.step_id]...]",
		About:    "End jobs or steps, or send them a signal. Jobs are named by id, picked by the filters, or both."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	for _, f := range [...][2]string{{"account", "account"}, {"name", "job_name"}, {"nodelist", "nodelist"},
		{"partition", "partition"}, {"qos", "qos"}, {"reservation", "reservation"}, {"state", "state"},
		{"user", "user_name"}, {"wckey", "wckey"}} {
		if text, given := p.Value(f[0]); given {
			x.filter += " " + f[1] + "=" + text
		}
	}
	if err := x.settle(operands); err != nil {
		e.Errorf("%v", err)
		return 1
	}
	c, err := e.Connect()
	if err == nil {
		defer c.Close()
		err = e.CheckClusters(c, x.clusters)
	}
	if err != nil {
		e.Errorf("%s", env.Text(err))
		return 1
	}
	return x.send(c)
}

func (x *cancel) options() []getopt.Option {
	filter := func(dst *[]string) func(string) error {
		return func(v string) error {
			names := env.SplitList(v)
			x.nothing = x.nothing || len(names) == 0
			*dst = append(*dst, names...)
			return nil
		}
	}
	return []getopt.Option{
		{Name: "account", Short: 'A', Arg: getopt.Required, Metavar: "names", Env: "_ACCOUNT", EmptyEnv: true,
			Help: "only jobs of these accounts", Set: filter(&x.rq.Filter.Accounts)},
		{Name: "batch", Short: 'b', Env: "_BATCH", Help: "signal the batch shell only", Set: getopt.Flag(&x.rq.Batch)},
		{Name: "cron", Short: 'c',
			Help: "end jobs of crontabs too, where the cluster wants that to be said (ScronParameters)",
			Set:  getopt.Flag(&x.rq.Cron)},
		{Name: "full", Short: 'f', Env: "_FULL", Help: "signal the batch shell and everything it started",
			Set: getopt.Flag(&x.rq.Full)},
		{Name: "interactive", Short: 'i', Env: "_INTERACTIVE", Help: "ask before each job", Set: getopt.Flag(&x.interactive)},
		{Name: "me", Help: "only your own jobs", Set: getopt.Flag(&x.me)},
		{Name: "name", Aliases: []string{"jobname"}, Short: 'n', Arg: getopt.Required, Metavar: "names", Env: "_NAME",
			EmptyEnv: true, Help: "only jobs with these names", Set: filter(&x.rq.Filter.Names)},
		{Name: "nodelist", Short: 'w', Arg: getopt.Required, Metavar: "nodes", Help: "only jobs that use one of these nodes",
			Set: func(v string) error {
				names, err := hostlist.Expand(v)
				x.nothing = x.nothing || err == nil && len(names) == 0
				x.rq.Filter.Nodes = append(x.rq.Filter.Nodes, names...)
				return err
			}},
		{Name: "partition", Short: 'p', Arg: getopt.Required, Metavar: "names", Env: "_PARTITION", EmptyEnv: true,
			Help: "only jobs of these partitions", Set: filter(&x.rq.Filter.Partitions)},
		{Name: "qos", Short: 'q', Arg: getopt.Required, Metavar: "names", Env: "_QOS", EmptyEnv: true,
			Help: "only jobs with these QOS", Set: filter(&x.rq.Filter.QOS)},
		{Name: "quiet", Short: 'Q', Help: "say nothing about jobs that can't be ended", Set: getopt.Flag(&x.quiet)},
		{Name: "signal", Short: 's', Arg: getopt.Required, Metavar: "signal",
			Help: "send this signal, by name or number, and don't end the job", Set: func(v string) (err error) {
				x.rq.Signal, err = env.ParseSignal(v)
				return err
			}},
		{Name: "state", Short: 't', Arg: getopt.Required, Metavar: "states", Env: "_STATE",
			Help: "only jobs in one of these states: PENDING, RUNNING, SUSPENDED", Set: func(v string) error {
				if v == "" || strings.EqualFold(v, "all") { // no filter at all: not what ends jobs
					return fmt.Errorf("Invalid job state specified: %s; valid states: PENDING, RUNNING and SUSPENDED", v)
				}
				states, err := parseStates(v)
				x.rq.Filter.States = append(x.rq.Filter.States, states...)
				return err
			}},
		{Name: "user", Short: 'u', Arg: getopt.Required, Metavar: "users", Env: "_USER", Help: "only jobs of these users",
			Set: func(v string) error {
				if len(env.SplitList(v)) == 0 {
					return fmt.Errorf("Invalid user name: %s", v)
				}
				uids, err := env.ParseUsers(v)
				x.rq.Filter.Users = append(x.rq.Filter.Users, uids...)
				return err
			}},
		{Name: "verbose", Short: 'v', Env: "_VERBOSE", Help: "say what is sent to which job", Set: getopt.Flag(&x.verbose)},
		{Name: "ctld", Hidden: true, Note: "every request goes through the controller",
			Set: func(string) error { return nil }},
		{Name: "hurry", Short: 'H', Hidden: true, Env: "_HURRY", Note: "there is no burst-buffer stage to skip",
			Set: func(string) error { return nil }},
		{Name: "sibling", Arg: getopt.Required, Refused: "clusters are not federated: leave it out"},
		{Name: "wckey", Arg: getopt.Required, Metavar: "key", Env: "_WCKEY", EmptyEnv: true,
			Help: "only jobs with this wckey", Set: filter(&x.rq.Filter.WCKeys)},
		{Name: "reservation", Short: 'R', Arg: getopt.Required, Metavar: "names", Env: "_RESERVATION",
			Help: "only jobs that asked for one of these reservations", Set: filter(&x.rq.Filter.Reservations)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "names",
			Env: "_CLUSTERS SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&x.clusters)},
	}
}

// asker gives the one who asks; there is one for all questions, because it reads ahead.
func (x *cancel) asker() *asker {
	if x.ask == nil {
		x.ask = &asker{x.Env, bufio.NewScanner(x.Stdin)}
	}
	return x.ask
}

// settle reads the named jobs and steps, and refuses a command that selects none.
func (x *cancel) settle(operands []string) error {
	for _, o := range operands {
		if strings.Contains(o, ".") {
			refs, err := env.ParseStepRefs(o)
			if err != nil {
				return err
			}
			x.steps.Steps = append(x.steps.Steps, refs...)
			continue
		}
		refs, err := env.ParseJobRefs(o)
		if err != nil {
			return err
		}
		x.rq.Targets = append(x.rq.Targets, refs...)
	}
	if x.me {
		x.rq.Filter.Users = append(x.rq.Filter.Users, uint32(os.Getuid()))
	}
	x.steps.Filter, x.steps.Signal = x.rq.Filter, x.rq.Signal
	if x.rq.Signal == int32(unix.SIGKILL) && !x.rq.Batch {
		x.rq.Signal, x.rq.Kill = 0, true // as in Slurm, SIGKILL ends the job
	}
	if x.nothing {
		return nil
	}
	if len(x.steps.Steps)+len(x.rq.Targets) == 0 && !filters(&x.rq.Filter) {
		return errors.New("No job identification provided") //nolint:revive,staticcheck // scancel's words
	}
	return nil
}

// filters says whether a request has any filter.
func filters(f *proto.JobFilter) bool {
	return len(f.Users)+len(f.Names)+len(f.Partitions)+len(f.Accounts)+len(f.States)+len(f.Nodes)+len(f.QOS)+
		len(f.Reservations)+len(f.WCKeys) > 0
}

// send cancels the steps, then the jobs, and gives the exit code.
func (x *cancel) send(c *client.Client) int {
	if x.nothing {
		x.noMatch()
		return 0
	}
	if x.interactive && len(x.steps.Steps) > 0 {
		if err := x.asker().confirmSteps(c, &x.steps); err != nil {
			x.Errorf("%s", env.Text(err))
			return 1
		} else if len(x.steps.Steps) == 0 && len(x.rq.Targets) == 0 {
			return 0
		}
	}
	named := len(x.steps.Steps)
	rc := cancelSteps(x.Env, c, &x.steps, x.quiet, x.verbose)
	if named > 0 && len(x.rq.Targets) == 0 {
		return rc
	}
	if x.interactive {
		switch err := x.asker().confirmCancel(c, &x.rq); {
		case errors.Is(err, errNothing):
			return 0
		case err != nil:
			x.Errorf("%s", env.Text(err))
			return 1
		}
	}
	var reply proto.TargetsReply
	if err := c.Call(x.rq.Kind(), &x.rq, &reply); err != nil {
		x.Errorf("%s", env.Text(err))
		return 1
	}
	if !slices.ContainsFunc(reply.Results, func(r proto.TargetResult) bool { return !r.Left }) {
		x.noMatch()
	}
	return max(rc, cancelResults(x.Env, &x.rq, &reply, x.quiet, x.verbose))
}

// noMatch tells with -v that the filters leave no job.
func (x *cancel) noMatch() {
	if x.verbose {
		text := "No active jobs match ALL job filters"
		if x.filter != "" {
			text += ", including:" + x.filter
		}
		x.Errorf("%s", text)
	}
}

// cancelSteps ends or signals the named steps. Ending a step that has ended already is no error.
func cancelSteps(e *env.Env, c *client.Client, rq *proto.CancelRequest, quiet, verbose bool) int {
	if len(rq.Steps) == 0 {
		return 0
	}
	var reply proto.TargetsReply
	if err := c.Call(rq.Kind(), rq, &reply); err != nil {
		e.Errorf("%s", env.Text(err))
		return 1
	}
	rc := 0
	for i, r := range reply.Results {
		if i >= len(rq.Steps) {
			break
		}
		id := jobtext.RefText(r.Ref) + "." + jobtext.StepName(rq.Steps[i].Step)
		switch {
		case r.Code == 0 && verbose && rq.Signal != 0:
			fmt.Fprintf(e.Stderr, "%s: Signal %d to step %s\n", e.Program, rq.Signal, id)
		case r.Code == 0 && verbose:
			fmt.Fprintf(e.Stderr, "%s: Terminating step %s\n", e.Program, id)
		case r.Code == 0:
		default:
			rc = 1
			if !quiet {
				e.Errorf("Kill job error on job step id %s: %s", id, r.Text)
			}
		}
	}
	return rc
}

// cancelResults prints the errors. If a named job could not be ended, the exit code is 1; jobs that have ended already
// are no error, nor are unknown ones beside others unless there are filters, as in Slurm.
func cancelResults(e *env.Env, rq *proto.CancelRequest, reply *proto.TargetsReply, quiet, verbose bool) int {
	rc := 0
	what := "Terminating"
	switch {
	case rq.Signal != 0 && rq.Batch:
		what = "Signal " + strconv.Itoa(int(rq.Signal)) + " to batch"
	case rq.Signal != 0 && rq.Full:
		what = "Signal " + strconv.Itoa(int(rq.Signal)) + " to full"
	case rq.Signal != 0:
		what = "Signal " + strconv.Itoa(int(rq.Signal)) + " to"
	case rq.Kill && rq.Full:
		what = "Signal 9 to full"
	case rq.Kill:
		what = "Signal 9 to"
	}
	for _, r := range reply.Results {
		if verbose && !r.Left {
			fmt.Fprintf(e.Stderr, "%s: %s job %s\n", e.Program, what, jobtext.RefText(r.Ref))
		}
		switch {
		case r.Code == 0:
			continue
		case r.Code == proto.CodeAlreadyDone && rq.Signal == 0:
			if verbose {
				fmt.Fprintf(e.Stderr, "%s: error: Kill job error on job id %s: %s\n", e.Program, jobtext.RefText(r.Ref), r.Text)
			}
			continue
		}
		if r.Code != proto.CodeInvalidJob || len(rq.Targets) == 1 || rq.Signal != 0 || filters(&rq.Filter) {
			rc = 1
		}
		if !quiet {
			e.Errorf("Kill job error on job id %s: %s", jobtext.RefText(r.Ref), r.Text)
		}
	}
	if len(rq.Targets) == 0 {
		return 0
	}
	return rc
}

// parseStates reads a comma list of job states, long or compact; "all" is every state.
func parseStates(text string) ([]model.JobState, error) {
	var out []model.JobState
	for _, w := range env.SplitList(text) {
		if strings.EqualFold(w, "all") {
			return model.JobStates(), nil
		}
		s, ok := model.ParseFilterState(w)
		if !ok {
			var names []string
			for _, known := range model.JobStates() {
				names = append(names, known.String())
			}
			return nil, fmt.Errorf("Invalid job state specified: %s; valid states: %s", w, strings.Join(names, ","))
		}
		out = append(out, s)
	}
	return out, nil
}

// errNothing is the error of an interactive cancel if the user declines every job.
var errNothing = errors.New("nothing to cancel")

// asker asks about jobs and steps on the terminal.
type asker struct {
	*env.Env
	in *bufio.Scanner
}

// agrees asks whether to cancel a job or step. more is false at the end of the input.
func (a *asker) agrees(what, id string, j *model.Job) (yes, more bool) {
	if j.State.Finished() {
		a.Errorf("Kill job error on job id %s: %s", jobtext.JobID(j), proto.Text(proto.CodeAlreadyDone))
		return false, true
	}
	if j.State == model.Completing {
		fmt.Fprintf(a.Stderr, "%s: Job %s is completing already\n", a.Program, jobtext.JobID(j))
		return false, true
	}
	fmt.Fprintf(a.Stdout, "Cancel %s=%s name=%s partition=%s [y/n]? ", what, id, j.Spec.Name, j.Partition())
	if a.Flush() != nil || !a.in.Scan() {
		return false, false
	}
	word := strings.TrimSpace(a.in.Text())
	return strings.EqualFold(word, "y") || strings.EqualFold(word, "yes"), true
}

// each calls f for each of the jobs until it returns false.
func (a *asker) each(c *client.Client, f proto.JobFilter, do func(*model.Job) bool) error {
	list := proto.JobsRequest{Filter: f, Default: len(f.Jobs) == 0} // a named one that has ended is an error
	return c.Stream(proto.KindJobs, &list, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			if !do(j) {
				return errNothing
			}
		}
		return nil
	})
}

// confirmCancel asks about each job of the request, and reduces the request to the confirmed ones.
func (a *asker) confirmCancel(c *client.Client, rq *proto.CancelRequest) error {
	filter := rq.Filter
	filter.Jobs = rq.Targets
	var keep []model.JobRef
	err := a.each(c, filter, func(j *model.Job) bool {
		yes, more := a.agrees("job_id", jobtext.JobID(j), j)
		if yes {
			keep = append(keep, j.Ref())
		}
		return more
	})
	if err != nil {
		return err
	}
	if len(keep) == 0 {
		return errNothing
	}
	rq.Targets, rq.Filter = keep, proto.JobFilter{}
	return nil
}

// confirmSteps asks about each step of the request, and keeps the confirmed ones. Those of jobs that don't run stay:
// the controller says what is wrong with them.
func (a *asker) confirmSteps(c *client.Client, rq *proto.CancelRequest) error {
	var keep []proto.StepRef
	for _, s := range rq.Steps {
		ask := true
		err := a.each(c, proto.JobFilter{Jobs: []model.JobRef{s.Job}}, func(j *model.Job) bool {
			if ask && j.Run != nil {
				var yes bool
				yes, ask = a.agrees("step_id", jobtext.JobID(j)+"."+jobtext.StepName(s.Step), j)
				if yes {
					keep = append(keep, s)
				}
				ask = false
			}
			return true
		})
		switch {
		case err != nil:
			return err
		case ask:
			keep = append(keep, s)
		}
	}
	rq.Steps = keep
	return nil
}
