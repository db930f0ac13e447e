package acct

import (
	"fmt"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/seff"
)

// gseff shows how well a job used its resources: seff's lines, lines about GPUs, and what to ask for next time.

// seffCall is one call of gseff.
type seffCall struct {
	*env.Env
	now time.Time

	byUser           bool   // --user
	user             string // its value; "": yourself
	start, end, json string
}

func (s *seffCall) options() []getopt.Option {
	return []getopt.Option{
		{Name: "user", Short: 'u', Arg: getopt.Optional, Metavar: "name",
			Help: "sum up the ended jobs of this user by name and partition, and say what to ask for; default: yourself",
			Set: func(v string) error {
				s.byUser, s.user = true, v
				return nil
			}},
		{Name: "starttime", Short: 'S', Arg: getopt.Required, Metavar: "time",
			Help: "with --user: jobs that ended from then on; default a month before the end", Set: getopt.Text(&s.start)},
		{Name: "endtime", Short: 'E', Arg: getopt.Required, Metavar: "time",
			Help: "with --user: jobs that ended until then; default now", Set: getopt.Text(&s.end)},
		s.JSON("", "with --user: JSON", &s.json),
		s.YAML("", &s.json),
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Hidden: true,
			Note: "there is one cluster", Set: env.Ignored},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
		{Name: "debug", Short: 'd', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
	}
}

func Gseff(e *env.Env) int {
	s := &seffCall{Env: e, now: time.Now()}
	p := getopt.New(getopt.Config{Program: e.Program, EnvPrefix: "SEFF", Operands: "job...",
		OperandValues: getopt.Operands(getopt.Values{Kind: getopt.Jobs}),
		Options:       append(s.options(), getopt.HelpOptions('h')...),
		About: "Tell how well a job used the CPUs, memory and GPUs that it held, and what to ask for next time. Running " +
			"jobs are measured now. --user does so for all jobs that a user's last month had."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	switch {
	case s.byUser:
		return s.habits(operands)
	case s.start != "" || s.end != "" || s.json != "":
		e.Errorf("-S, -E, --json and --yaml need --user; gacct --json has a job's numbers")
		return 1
	case len(operands) == 0:
		e.Errorf("name a job: %s JOBID; or --user for all of yours", e.Program)
		return 1
	}
	rc := 0
	for i, o := range operands {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		if err := s.tell(o); err != nil {
			e.Errorf("%s", env.Text(err))
			rc = 1
		}
	}
	return rc
}

// habits sums up a user's jobs. The name may follow --user as a word of its own.
func (s *seffCall) habits(operands []string) int {
	h := &habits{seffCall: s, user: s.user}
	switch {
	case len(operands) == 1 && s.user == "":
		h.user = operands[0]
	case len(operands) > 0:
		s.Errorf("--user takes one user and no job: %s", operands[len(operands)-1])
		return 1
	}
	if err := h.tell(); err != nil {
		s.Errorf("%s", env.Text(err))
		return 1
	}
	return 0
}

// tell reports about one job, or the named tasks of an array.
func (s *seffCall) tell(id string) error {
	refs, err := env.ParseJobRefs(id)
	if err != nil || len(refs) == 0 {
		return fmt.Errorf("Bad job specified: %s", id)
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	var records []*model.Record
	err = c.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: refs}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			fmt.Fprintf(s.Stderr, "%s: %s\n", s.Program, chunk.Note)
		}
		records = append(records, chunk.Records...)
		return nil
	})
	c.Close()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("Job not found: %s", id)
	}
	for i, r := range records {
		if i > 0 {
			fmt.Fprintln(s.Stdout)
		}
		if err := s.report(r); err != nil {
			return err
		}
	}
	return nil
}

// report writes seff's lines. A pending job has only a few.
func (s *seffCall) report(r *model.Record) error {
	out := s.Stdout
	fmt.Fprintf(out, "Job ID: %d\n", r.Job)
	if r.ArrayID != 0 && r.Task != model.NoTask {
		fmt.Fprintf(out, "Array Job ID: %d_%d\n", r.ArrayID, r.Task)
	}
	fmt.Fprintf(out, "Cluster: %s\nUser/Group: %s/%s\n", r.Cluster, r.User, r.Group)
	if r.End == 0 {
		fmt.Fprintf(out, "State: %s\n", r.State)
	} else {
		fmt.Fprintf(out, "State: %s (exit code %d)\n", r.State, seff.ExitShown(r))
	}
	if why := r.EndText(); why != "" {
		fmt.Fprintf(out, "Reason: %s\n", why)
	}
	if r.FailedNode != "" {
		fmt.Fprintf(out, "Failed node: %s\n", r.FailedNode)
	}
	if r.Start == 0 {
		seff.WriteCores(out, int64(r.ReqCPUs), int64(r.NumNodes))
		fmt.Fprintf(out, "The job is %s: its efficiency is known when it has started.\n", r.State)
		return nil
	}
	var use *model.Usage
	if r.End == 0 {
		live, missing, err := liveUsage(s.Env, r.Job)
		if err != nil {
			return fmt.Errorf("job %d runs, and what it uses can't be asked: %s", r.Job, env.Text(err))
		}
		for _, m := range missing {
			s.Errorf("%s", m)
		}
		if use = live; use == nil {
			if len(missing) == 0 {
				fmt.Fprintf(out, "The job is just starting, or has just ended: ask again in a moment.\n")
			}
			return nil
		}
	}
	j := seff.Of(r, use, model.Time(s.now.UnixMilli()))
	j.Write(out)
	if r.End == 0 {
		fmt.Fprintf(out, "The job is %s: this is what it has used until now.\n", r.State)
	}
	if tip := j.Advice(); tip != "" {
		fmt.Fprintf(out, "Next time: %s\n", tip)
	}
	return nil
}
