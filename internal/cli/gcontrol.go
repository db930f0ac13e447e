package cli

import (
	"fmt"
	"strings"
	"time"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/suggest"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// control is one call of gcontrol: its words and its options.
type control struct {
	*Env
	oneLine bool
	details int
	quiet   bool
	client  *client.Client
}

// verb is one of gcontrol's first words.
type verb struct {
	name string
	help string
	run  func(*control, []string) error
	why  string // for words that aren't there yet: what to use instead
}

func verbs() []verb {
	return []verb{
		{name: "show", help: "show job|node|partition|config|hostnames|hostlist [NAME]", run: (*control).show},
		{name: "hold", help: "hold jobs", run: action(proto.ActHold)},
		{name: "uhold", help: "hold jobs; their owners can release them", run: action(proto.ActUserHold)},
		{name: "release", help: "release held jobs", run: action(proto.ActRelease)},
		{name: "requeue", help: "put jobs back into the queue", run: action(proto.ActRequeue)},
		{name: "requeuehold", help: "put jobs back into the queue, held", run: action(proto.ActRequeueHold)},
		{name: "update", help: "update JobId=N KEY=VALUE... | NodeName=NAMES State=DRAIN|RESUME|DOWN Reason=TEXT", run: (*control).update},
		{name: "reconfigure", help: "read the configuration files anew [--dry-run]", run: (*control).reconfigure},
		{name: "ping", help: "tell whether the controllers answer and which leads", run: (*control).ping},
		{name: "write", help: "write batch_script JOBID [FILE|-]", run: (*control).write},
		{name: "version", help: "print the version", run: func(c *control, _ []string) error { c.version(); return nil }},
		{name: "help", help: "print this", run: func(c *control, _ []string) error { c.verbHelp(); return nil }},
		{name: "top", why: "raise the job with gcontrol update JobId=N Priority=P"},
		{name: "suspend", why: "cancel or requeue the job"},
		{name: "resume", why: "jobs can't be suspended yet"},
		{name: "create", why: "edit gbatch.conf and run gcontrol reconfigure"},
		{name: "delete", why: "edit gbatch.conf and run gcontrol reconfigure, or end a job with gcancel"},
		{name: "reboot", why: "drain the node with gcontrol update NodeName=N State=DRAIN Reason=reboot and reboot it"},
		{name: "takeover", why: "stop the controller that leads: another takes over by itself"},
		{name: "shutdown", why: "stop the daemons with the service manager, or gbatch down"},
		{name: "setdebug", why: "set SlurmctldDebug in gbatch.conf and start the controller again"},
		{name: "setdebugflags", why: "set SlurmctldDebug in gbatch.conf and start the controller again"},
		{name: "notify", why: "write to a file that the job reads"},
		{name: "token", why: "commands on a cluster's hosts need no token"},
		{name: "wait_job", why: "submit with gsubmit --wait"},
		{name: "listpids", why: "look into the job's cgroup on its node"},
	}
}

// gcontrol shows and changes jobs, nodes and the configuration.
func gcontrol(e *Env) int {
	c := &control{Env: e}
	var words []string
	dryRun := false
	options := []getopt.Option{
		{Name: "oneliner", Short: 'o', Env: "SCONTROL_ONELINER", Help: "one line for each record", Set: getopt.Flag(&c.oneLine)},
		{Name: "details", Aliases: []string{"detail"}, Short: 'd', Help: "with GPU and CPU numbers", Set: getopt.Count(&c.details)},
		{Name: "all", Short: 'a', Help: "hidden partitions too (they are shown anyway)", Set: ignored},
		{Name: "hide", Hidden: true, Note: "nothing is hidden from show", Set: ignored},
		{Name: "quiet", Short: 'Q', Help: "no words on success", Set: getopt.Flag(&c.quiet)},
		{Name: "verbose", Short: 'v', Hidden: true, Set: ignored},
		{Name: "dry-run", Help: "with reconfigure: show what would change, and change nothing", Set: getopt.Flag(&dryRun)},
		{Name: "json", Arg: getopt.Optional, Refused: "use gqueue --json for jobs"},
		{Name: "yaml", Arg: getopt.Optional, Refused: "use gqueue --json for jobs"},
		{Name: "future", Short: 'F', Refused: "leave it out"},
		{Name: "local", Refused: "leave it out"},
		{Name: "sibling", Refused: "leave it out"},
		{Name: "federation", Refused: "leave it out"},
		{Name: "uid", Short: 'u', Arg: getopt.Required, Refused: "run the command as that user, with su or sudo"},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Env: "SLURM_CLUSTERS", Refused: "set GBATCH_CONF to the other cluster's configuration"},
	}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(options, getopt.HelpOptions('h')...), Operands: "COMMAND [ARGUMENTS...]",
		About: "Show and change jobs, nodes and the configuration.", Epilogue: verbList()})
	words, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.usage(p, err)
	}
	if len(words) == 0 {
		c.verbHelp()
		return 0
	}
	v, err := findVerb(words[0])
	if err == nil && v.run == nil {
		err = fmt.Errorf("%s is not supported by gbatch yet: %s", v.name, v.why)
	}
	if err == nil {
		if dryRun {
			if v.name != "reconfigure" {
				e.errorf("--dry-run goes with reconfigure")
				return 1
			}
			words = append(words, "--dry-run")
		}
		err = v.run(c, words[1:])
		if c.client != nil {
			c.client.Close()
		}
	}
	if err != nil {
		if t := text(err); t != "" {
			if isPlain(err) {
				fmt.Fprintln(e.Stderr, t)
			} else {
				e.errorf("%s", t)
			}
		}
		return 1
	}
	return 0
}

// plain is an error whose words are whole: no "gcontrol: error:" before them, as tools expect.
type plain struct{ error }

func isPlain(err error) bool { _, ok := err.(plain); return ok }

func findVerb(word string) (verb, error) {
	low := strings.ToLower(word)
	var found []verb
	var names []string
	for _, v := range verbs() {
		if v.name == low {
			return v, nil
		}
		if strings.HasPrefix(v.name, low) {
			found = append(found, v)
		}
		names = append(names, v.name)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		hint := ""
		if near := suggest.Nearest(low, names); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return verb{}, fmt.Errorf("invalid keyword: %s%s", word, hint)
	}
	for _, v := range found {
		if v.run != nil {
			return v, nil // scontrol show, scontrol re...: the one that works first in the list
		}
	}
	return found[0], nil
}

func verbList() string {
	var names []string
	for _, v := range verbs() {
		if v.run != nil {
			names = append(names, v.name)
		}
	}
	return "Commands: " + strings.Join(names, ", ") + ". `gcontrol help` says what they do. Words may be shortened, and case does not matter."
}

func (c *control) verbHelp() {
	fmt.Fprintf(c.Stdout, "Usage: %s [OPTIONS...] COMMAND [ARGUMENTS...]\n\nCommands:\n", c.Program)
	for _, v := range verbs() {
		if v.run != nil {
			fmt.Fprintf(c.Stdout, "  %-12s %s\n", v.name, v.help)
		}
	}
	fmt.Fprintf(c.Stdout, "\n%s --help lists the options.\n", c.Program)
}

// ask connects at the first question.
func (c *control) ask() (*client.Client, error) {
	if c.client == nil {
		cl, err := c.connect()
		if err != nil {
			return nil, err
		}
		c.client = cl
	}
	return c.client, nil
}

// show dispatches show ENTITY [NAME], in scontrol's spellings: show job 5, show job=5, show jobs.
func (c *control) show(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("show what? job, node, partition, config, hostnames or hostlist")
	}
	entity, name, _ := strings.Cut(words[0], "=")
	if name == "" && len(words) > 1 {
		name = strings.Join(words[1:], ",")
	}
	low := strings.ToLower(entity)
	is := func(names ...string) bool {
		for _, n := range names {
			if strings.HasPrefix(n, low) && len(low) >= 1 {
				return true
			}
		}
		return false
	}
	switch {
	case low == "":
	case is("hostnames") && len(low) > 5: // hostn...
		return c.hostnames(name)
	case strings.HasPrefix("hostlistsorted", low) && len(low) > 8:
		return c.hostlist(name, true)
	case is("hostlist") && len(low) > 5:
		return c.hostlist(name, false)
	case low == "hostnamestr", low == "hostname":
		return c.hostnames(name)
	case is("jobs"):
		return c.showJobs(name)
	case is("nodes"):
		return c.showNodes(name)
	case is("partitions"):
		return c.showPartitions(name)
	case is("config", "configuration"):
		return c.showConfig()
	case is("version"):
		c.version()
		return nil
	}
	known := []string{"job", "node", "partition", "config", "hostnames", "hostlist"}
	for _, e := range []string{"reservations", "steps", "licenses", "assoc_mgr", "topology", "federation", "burstbuffer", "daemons", "slurmd", "aliases", "frontend"} {
		if strings.HasPrefix(e, low) && len(low) > 1 {
			return fmt.Errorf("show %s is not supported by gbatch yet; it shows %s", entity, strings.Join(known, ", "))
		}
	}
	hint := ""
	if near := suggest.Nearest(low, known); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return fmt.Errorf("invalid entity: %s for keyword: show%s", entity, hint)
}

// nodeExpr gives the host list that a command works on: its argument, or the job's own.
func (c *control) nodeExpr(arg string) (string, error) {
	if arg != "" {
		return arg, nil
	}
	for _, name := range []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if v, ok := c.Lookup(name); ok && v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("SLURM_JOB_NODELIST environment variable not set: name the hosts, as in show hostnames n[1-4]")
}

func (c *control) hostnames(arg string) error {
	expr, err := c.nodeExpr(arg)
	if err != nil {
		return err
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return err
	}
	for _, n := range names {
		fmt.Fprintln(c.Stdout, n)
	}
	return nil
}

func (c *control) hostlist(arg string, sorted bool) error {
	expr, err := c.nodeExpr(arg)
	if err != nil {
		return err
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return err
	}
	if sorted {
		fmt.Fprintln(c.Stdout, hostlist.CompressSorted(names))
		return nil
	}
	fmt.Fprintln(c.Stdout, hostlist.CompressInOrder(names))
	return nil
}

// action gives the function of hold, release, requeue.
func action(act proto.JobAction) func(*control, []string) error {
	return func(c *control, words []string) error {
		refs, err := c.refs(words)
		if err != nil {
			return err
		}
		return c.apply(&proto.UpdateJobRequest{Action: act, Targets: refs})
	}
}

// refs reads job ids, also as jobid=N and name=NAME.
func (c *control) refs(words []string) ([]proto.JobRef, error) {
	var refs []proto.JobRef
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
		more, err := parseJobRefs(value)
		if err != nil {
			return nil, err
		}
		refs = append(refs, more...)
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("too few arguments: name the jobs, as in %s hold 12 13_4", c.Program)
	}
	return refs, nil
}

func (c *control) byName(name string) ([]proto.JobRef, error) {
	cl, err := c.ask()
	if err != nil {
		return nil, err
	}
	var refs []proto.JobRef
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Names: []string{name}}, Default: true}
	err = cl.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			refs = append(refs, refOf(j))
		}
		return nil
	})
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
	for _, r := range reply.Results {
		if r.Code == 0 {
			continue
		}
		failed = true
		if r.Code == proto.CodeInvalidJob {
			fmt.Fprintf(c.Stderr, "%s for job %s\n", r.Text, refText(r.Ref))
			continue
		}
		fmt.Fprintf(c.Stderr, "%s for job %s\n", r.Text, refText(r.Ref))
	}
	if failed {
		return plain{fmt.Errorf("")}
	}
	return nil
}

// update changes a job or nodes: the first key says which.
func (c *control) update(words []string) error {
	if len(words) > 0 && !strings.Contains(words[0], "=") { // update job 5 TimeLimit=..., update node n1 State=...
		switch low := strings.ToLower(words[0]); {
		case strings.HasPrefix("jobid", low) && len(words) > 1:
			words = append([]string{"JobId=" + strings.TrimPrefix(words[1], "JobId=")}, words[2:]...)
		case strings.HasPrefix("nodename", low) && len(words) > 1:
			words = append([]string{"NodeName=" + strings.TrimPrefix(words[1], "NodeName=")}, words[2:]...)
		case strings.HasPrefix("partitionname", low), strings.HasPrefix("reservationname", low):
			words[0] = low + "="
		}
	}
	var set []model.KV
	target, entity := "", ""
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("'%s' is not KEY=VALUE; quote values that hold blanks, as in Reason=\"bad fan\"", w)
		}
		switch low := strings.ToLower(key); {
		case low == "jobid" || low == "job":
			target, entity = value, "job"
		case low == "nodename" || low == "node" || low == "nodenames":
			target, entity = value, "node"
		case strings.HasPrefix(low, "partition") && target == "" && entity == "", strings.HasPrefix(low, "reservation") && target == "":
			return fmt.Errorf("%s can't be changed from here yet: edit gbatch.conf and run %s reconfigure", key, c.Program)
		default:
			if low == "starttime" || low == "begintime" || low == "eligibletime" {
				t, err := walltime.ParseDate(value, time.Now())
				if err != nil {
					return err
				}
				value = fmt.Sprintf("@%d", t.UnixMilli())
			}
			set = append(set, model.KV{Key: key, Value: value})
		}
	}
	switch entity {
	case "job":
		refs, err := parseJobRefs(target)
		if err != nil {
			return err
		}
		return c.apply(&proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: refs, Set: set})
	case "node":
		names, err := c.nodeNames(target)
		if err != nil {
			return err
		}
		cl, err := c.ask()
		if err != nil {
			return err
		}
		if err := cl.Call(proto.KindUpdateNode, &proto.UpdateNodeRequest{Names: names, Set: set}, &proto.Empty{}); err != nil {
			return plain{fmt.Errorf("slurm_update error: %s", text(err))}
		}
		return nil
	}
	return fmt.Errorf("No valid entity in update command; begin with JobId=N or NodeName=NAMES")
}

// nodeNames expands a host list; ALL is every node.
func (c *control) nodeNames(expr string) ([]string, error) {
	if !strings.EqualFold(expr, "ALL") {
		return hostlist.Expand(expr)
	}
	var names []string
	infos, _, err := c.nodes(nil)
	for _, i := range infos {
		names = append(names, i.Node.Def.Name)
	}
	return names, err
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
		return plain{fmt.Errorf("slurm_reconfigure error: %s", text(err))}
	}
	bad := 0
	for _, p := range r.Problems {
		if p.Severity == "error" {
			bad++
			line := fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
			if p.Hint != "" {
				line += "; " + p.Hint
			}
			fmt.Fprintln(c.Stderr, line)
		}
	}
	if bad > 0 {
		return fmt.Errorf("nothing was changed: %d errors in the configuration", bad)
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
		for _, a := range r.Affected {
			fmt.Fprintln(c.Stdout, a)
		}
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
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
	for i, ctl := range r.Controllers {
		role, state := "backup", "DOWN"
		if ctl.Leader {
			role = "primary"
		}
		if ctl.Up {
			state = "UP"
		}
		_ = i
		fmt.Fprintf(c.Stdout, "Slurmctld(%s) at %s is %s\n", role, ctl.Name, state)
	}
	return nil
}

func (c *control) write(words []string) error {
	if len(words) < 2 || !strings.HasPrefix("batch_script", strings.ToLower(words[0])) {
		return fmt.Errorf("write what? write batch_script JOBID [FILE|-]")
	}
	ref, err := parseJobRef(words[1])
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.ScriptReply
	if err := cl.Call(proto.KindScript, &proto.ScriptRequest{Job: ref.Job}, &r); err != nil {
		return err
	}
	file := fmt.Sprintf("slurm-%d.sh", ref.Job)
	if len(words) > 2 {
		file = words[2]
	}
	if file == "-" {
		_, err := c.Stdout.Write(r.Script)
		return err
	}
	if err := writeScript(file, r.Script); err != nil {
		return err
	}
	fmt.Fprintf(c.Stdout, "batch script for job %d written to %s\n", ref.Job, file)
	return nil
}
