package control

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The verbs of gcontrol that change something, and those about the controller itself.

// action gives the function of hold, release, requeue.
func action(act proto.JobAction) func(*control, []string) error {
	return func(c *control, words []string) error {
		var set []model.KV
		if (act == proto.ActRequeue || act == proto.ActRequeueHold) && len(words) > 0 &&
			strings.EqualFold(words[0], "incomplete") {
			set, words = []model.KV{{Key: "Incomplete"}}, words[1:]
		}
		if act == proto.ActRequeueHold && len(words) > 0 {
			if key, value, has := strings.Cut(words[0], "="); has && strings.EqualFold(key, "state") {
				set, words = append(set, model.KV{Key: "State", Value: value}), words[1:]
			}
		}
		refs, err := c.refs(words)
		if err != nil {
			return err
		}
		return c.apply(&proto.UpdateJobRequest{Action: act, Targets: refs, Set: set})
	}
}

// refs reads job ids, also as jobid=N and name=NAME.
func (c *control) refs(words []string) ([]model.JobRef, error) {
	var refs []model.JobRef
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		switch {
		case !has:
			value = w
		case strings.EqualFold(key, "jobid"), strings.EqualFold(key, "job"):
		case strings.EqualFold(key, "name"), strings.EqualFold(key, "jobname"):
			found, err := c.byName(value)
			if err != nil {
				return nil, err
			}
			refs = append(refs, found...)
			continue
		default:
			return nil, fmt.Errorf("'%s': write job ids, or name=NAME", w)
		}
		more, err := env.ParseJobRefs(value)
		if err != nil {
			return nil, badJob(value)
		}
		refs = append(refs, more...)
	}
	if len(refs) == 0 {
		return nil, tooFew("too few arguments for keyword:"+c.verb, fmt.Sprintf("%s %s 12 13_4", c.Program, c.verb))
	}
	return refs, nil
}

// badJob is the complaint about a word that can't be a job's number.
func badJob(word string) error {
	return plain{fmt.Errorf("Invalid job id specified for job %s; write a number, ID_TASK for a task of an array, or "+
		"ID+N for a component of a heterogeneous job", word)}
}

func (c *control) byName(name string) ([]model.JobRef, error) {
	var refs []model.JobRef
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Names: []string{name}}, Default: true}
	err := c.eachJob(rq, nil, func(j *model.Job, _ model.Time) { refs = append(refs, j.Ref()) })
	if err == nil && len(refs) == 0 {
		err = fmt.Errorf("no job has the name %s", name)
	}
	return refs, err
}

// apply sends a change of jobs and prints what went wrong.
func (c *control) apply(rq *proto.UpdateJobRequest) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.TargetsReply
	if err := cl.Call(proto.KindUpdateJob, rq, &reply); err != nil {
		return err
	}
	failed := false
	for refs, rest := rq.Targets, reply.Results; len(rest) > 0; {
		n := 1
		if len(refs) > 0 {
			n = resultsOf(&refs[0], rest)
			refs = refs[1:]
		}
		failed = c.results(rest[:n]) || failed
		rest = rest[n:]
	}
	if failed {
		return plain{fmt.Errorf("")}
	}
	return nil
}

// resultsOf counts the results at the beginning of a list that are of a reference: groups of tasks have one each.
func resultsOf(ref *model.JobRef, list []proto.TargetResult) int {
	n := 1
	for ref.Task == model.NoTask && n < len(list) && list[n].Ref.Job == ref.Job && len(list[n].Ref.Tasks) > 0 &&
		len(list[0].Ref.Tasks) > 0 && (len(ref.Tasks) == 0 || ref.Tasks.Has(list[n].Ref.Tasks.Min())) &&
		list[n].Ref.Tasks.Min() > list[n-1].Ref.Tasks.Min() {
		n++
	}
	return n
}

// results prints what went wrong with one reference: for tasks of an array, if anything did, what became of each.
func (c *control) results(list []proto.TargetResult) (failed bool) {
	failed = slices.ContainsFunc(list, func(r proto.TargetResult) bool { return r.Code != 0 })
	if c.quiet {
		return failed
	}
	var texts []string
	tasks := map[string][]int32{} // by text
	for _, r := range list {
		id := jobtext.RefText(r.Ref)
		switch {
		case failed && r.Ref.Task != model.NoTask:
			fmt.Fprintf(c.Stderr, "%s: %s\n", id, r.Text)
		case failed && len(r.Ref.Tasks) > 0:
			text := r.Text
			if r.Code == 0 {
				text = strings.TrimSuffix("No error: "+text, ": ")
			}
			if tasks[text] == nil {
				texts = append(texts, text)
			}
			r.Ref.Tasks.Each(func(task int32) bool {
				tasks[text] = append(tasks[text], task)
				return true
			})
		case failed:
			fmt.Fprintf(c.Stderr, "%s for job %s\n", r.Text, id)
		case r.Text != "":
			fmt.Fprintf(c.Stderr, "job %s: %s\n", id, r.Text)
		}
	}
	for _, text := range texts {
		slices.Sort(tasks[text])
		fmt.Fprintf(c.Stderr, "%d_%s: %s\n", list[0].Ref.Job, jobtext.TasksText(model.TaskSetOf(tasks[text])), text)
	}
	return failed
}

func (c *control) reconfigure(words []string) error {
	rq := &proto.ReconfigureRequest{}
	for _, w := range words {
		if w != "--dry-run" {
			return fmt.Errorf("reconfigure takes no '%s'; --dry-run shows what would change", w)
		}
		rq.DryRun = true
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.ReconfigureReply
	if err := cl.Call(proto.KindReconfigure, rq, &r); err != nil {
		return plain{fmt.Errorf("slurm_reconfigure error: %s", env.Text(err))}
	}
	bad := 0
	for _, p := range r.Problems {
		line := fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
		if p.Line == 0 { // the file as a whole, or what it changes
			line = fmt.Sprintf("%s: %s", p.File, p.Text)
		}
		if p.Hint != "" {
			line += "; " + p.Hint
		}
		switch {
		case p.Severity == "error":
			bad++
		case p.Line != 0 || p.Severity != "warning": // gbatch check has these
			continue
		}
		fmt.Fprintln(c.Stderr, line)
	}
	if bad > 0 {
		errs := "1 error"
		if bad != 1 {
			errs = fmt.Sprintf("%d errors", bad)
		}
		return fmt.Errorf("nothing was changed: %s in the configuration", errs)
	}
	if rq.DryRun {
		if len(r.Changes) == 0 {
			fmt.Fprintln(c.Stdout, "nothing would change")
		}
		for _, ch := range r.Changes {
			fmt.Fprintf(c.Stdout, "%s: %s -> %s", ch.Key, orNone(ch.Old), orNone(ch.New))
			if ch.Effect != "" {
				fmt.Fprintf(c.Stdout, "  (%s)", ch.Effect)
			}
			fmt.Fprintln(c.Stdout)
		}
		for _, a := range slices.Concat(r.Affected, r.Notes, r.Undone, r.Restart) {
			fmt.Fprintln(c.Stdout, a)
		}
		return nil
	}
	for _, s := range slices.Concat(r.Notes, r.Undone, r.Restart) {
		fmt.Fprintf(c.Stderr, "gcontrol: note: %s\n", s)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// notify writes a line into the output of a running job.
func (c *control) notify(words []string) error {
	if len(words) < 2 {
		return tooFew("too few arguments for keyword:notify", "notify 12 \"the file system is slow today\"")
	}
	refs, err := env.ParseJobRefs(words[0])
	if err != nil {
		return plain{fmt.Errorf("job notify failure: %w", err)}
	}
	return c.apply(&proto.UpdateJobRequest{Action: proto.ActNotify, Targets: refs,
		Set: []model.KV{{Key: "Message", Value: strings.Join(words[1:], " ")}}})
}

// setDebug changes the level of the leader's log.
func (c *control) setDebug(words []string) error {
	if len(words) != 1 {
		return tooFew("too few arguments for keyword:setdebug", "info, verbose, debug ... or a number from 0 to 9; "+
			"a node's log has SlurmdDebug and SIGHUP")
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	if err := cl.Call(proto.KindSetDebug, &proto.SetDebugRequest{Level: words[0]}, &proto.Empty{}); err != nil {
		return plain{fmt.Errorf("slurm_set_debug_level error: %s", env.Text(err))}
	}
	return nil
}

func (c *control) ping([]string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.PingReply
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &r); err != nil {
		return plain{err}
	}
	if c.json != "" {
		return errors.Join(c.pingJSON(&r), c.leaderless(&r))
	}
	var missing []string
	for _, ctl := range r.Controllers {
		role, state := "backup", "DOWN"
		if ctl.Leader {
			role = "primary"
		}
		if ctl.Up {
			state = "UP"
		}
		fmt.Fprintf(c.Stdout, "Slurmctld(%s) at %s is %s\n", role, ctl.Name, state)
		switch {
		case ctl.Up:
		case ctl.SeenMS > 0:
			missing = append(missing, fmt.Sprintf("%s (last heard %s ago)", ctl.Name,
				(time.Duration(ctl.SeenMS)*time.Millisecond).Round(time.Second)))
		default:
			missing = append(missing, ctl.Name+" (not heard yet)")
		}
	}
	if r.Leader == "" {
		fmt.Fprintf(c.Stderr, "%s: no controller leads: of %d, these do not answer: %s\n", c.Program, len(r.Controllers),
			orNone(strings.Join(missing, ", ")))
	}
	for _, note := range r.CertNotes {
		fmt.Fprintln(c.Stdout, "Certificates: "+note)
	}
	if len(r.Dbds) < 2 {
		if r.DbdWhy != "" {
			fmt.Fprintf(c.Stdout, "Slurmdbd at %s takes no records, %d wait: %s\n", r.Dbd, r.Outbox, r.DbdWhy)
		}
		for _, note := range r.DbdNotes {
			fmt.Fprintf(c.Stdout, "Slurmdbd at %s: %s\n", r.Dbd, note)
		}
		return c.leaderless(&r)
	}
	for i := range r.Dbds {
		c.pingDbd(&r, &r.Dbds[i])
	}
	return c.leaderless(&r)
}

// leaderless fails a ping that has said that no controller leads.
func (c *control) leaderless(r *proto.PingReply) error {
	if r.Leader == "" {
		return plain{errors.New("")}
	}
	return nil
}

// pingDbd says how one of two accounting daemons is.
func (c *control) pingDbd(r *proto.PingReply, d *proto.DbdInfo) {
	role := "primary"
	if d.Copy {
		role = "backup"
	}
	how := "is UP"
	switch {
	case r.Leader == "": // only a leader speaks with it
		fmt.Fprintf(c.Stdout, "Slurmdbd(%s) at %s is not known to be up or down: no controller leads\n", role, d.Addr)
		return
	case !d.Up && d.Why != "":
		how = "is DOWN: " + d.Why
	case !d.Up:
		how = "is DOWN"
	case d.Behind > 0:
		how = fmt.Sprintf("is UP, %d records behind", d.Behind)
	}
	if !d.Up && d.Behind > 0 {
		how = fmt.Sprintf("%s (%d records behind)", how, d.Behind)
	}
	fmt.Fprintf(c.Stdout, "Slurmdbd(%s) at %s %s\n", role, d.Addr, how)
	for _, note := range d.Notes {
		fmt.Fprintf(c.Stdout, "Slurmdbd(%s) at %s: %s\n", role, d.Addr, note)
	}
}

// takeover makes another controller the leader.
func (c *control) takeover(words []string) error {
	if len(words) > 1 {
		return fmt.Errorf("takeover takes one controller: takeover [INDEX]")
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var now proto.PingReply
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &now); err != nil {
		return plain{err}
	}
	rq := proto.TakeoverRequest{From: now.Leader}
	if len(words) == 1 {
		if n, err := strconv.ParseUint(words[0], 10, 16); err == nil {
			rq.Index = int64(n) + 1
		} else {
			rq.Name = words[0]
		}
	}
	var r proto.TakeoverReply
	if err := cl.Call(proto.KindTakeover, &rq, &r); err != nil {
		return plain{err}
	}
	if r.Leader != "" {
		fmt.Fprintf(c.Stdout, "Slurmctld(primary) is %s\n", r.Leader)
	}
	return nil
}

func (c *control) write(words []string) error {
	const forms = "write batch_script JOBID [FILE|-], or write config [FILE]"
	if len(words) == 0 {
		return tooFew("too few arguments for keyword:write", forms)
	}
	switch low := strings.ToLower(words[0]); {
	case low != "" && strings.HasPrefix("config", low):
		return c.writeConfig(words[1:])
	case low == "" || !strings.HasPrefix("batch_script", low):
		return plain{fmt.Errorf("invalid write argument:%s; %s", words[0], forms)}
	case len(words) < 2:
		return tooFew("too few arguments for keyword:write", forms)
	}
	ref, err := env.ParseJobRef(words[1])
	if err != nil {
		return plain{fmt.Errorf("job script retrieval failed: %w", err)}
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.ScriptReply
	if err := cl.Call(proto.KindScript, &proto.ScriptRequest{Job: ref.Job}, &r); err != nil {
		return plain{fmt.Errorf("job script retrieval failed: %s", env.Text(err))}
	}
	file := fmt.Sprintf("slurm-%d.sh", ref.Job)
	if len(words) > 2 {
		file = words[2]
	}
	if file == "-" {
		return c.Content(r.Script)
	}
	if err := writeScript(file, r.Script); err != nil {
		return err
	}
	fmt.Fprintf(c.Stdout, "batch script for job %d written to %s\n", ref.Job, file)
	return nil
}
