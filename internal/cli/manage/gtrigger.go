package manage

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// trigger is one call of gtrigger.
type trigger struct {
	*env.Env
	set, get, clear bool
	events          model.TriggerEvents
	nodes           string
	nodesGiven      bool
	id              uint32
	job             model.JobID
	offset          int64
	program         string
	perm            bool
	user            string
	clusters        []string
	noHeader, quiet bool
	verbose         bool
}

// Gtrigger sets, lists and clears triggers.
func Gtrigger(e *env.Env) int {
	s := &trigger{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(), getopt.HelpOptions(0)...),
		Values: triggerValues, Syntax: "[--set | --get | --clear] [OPTIONS]",
		About: "Set, list or clear triggers: programs that run on the controller, as the user who sets them, when a job " +
			"ends or nears its time limit, when nodes change their state, or when daemons fail. The program gets the job's " +
			"number or the nodes' names."})
	_, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	if err = s.check(); err == nil {
		err = s.do()
	}
	if err != nil {
		e.Errorf("%s", env.Text(err))
		return 1
	}
	return 0
}

// triggerValues gives the values of options that only this command knows.
func triggerValues(option string) (v getopt.Values, known bool) {
	switch option {
	case "flags":
		return getopt.Fields("PERM"), true
	case "node":
		return getopt.Values{Kind: getopt.Nodes, List: true}, true
	case "program":
		return getopt.Values{Kind: getopt.Files}, true
	}
	return v, false
}

const (
	groupWays   = "What to do"
	groupEvents = "Events"
	groupWhich  = "Which triggers, and how"
)

func (s *trigger) options() []getopt.Option {
	event := func(name string, short rune, e model.TriggerEvents, help string) getopt.Option {
		return getopt.Option{Name: name, Short: short, Group: groupEvents, Help: help,
			Set: func(string) error { s.events |= e; return nil }}
	}
	out := []getopt.Option{
		{Name: "set", Group: groupWays, Help: "create a trigger", Set: getopt.Flag(&s.set)},
		{Name: "get", Group: groupWays, Help: "get trigger information: a list; the other options say which",
			Set: getopt.Flag(&s.get)},
		{Name: "clear", Group: groupWays, Help: "delete a trigger, by --id, or those of --jobid or --user",
			Set: getopt.Flag(&s.clear)},
		event("fini", 'f', model.OnFini, "the job ends"),
		event("time", 't', model.OnTime, "the job reaches its time limit, or is --offset before it"),
		event("down", 'd', model.OnDown, "a node goes DOWN"),
		event("up", 'u', model.OnUp, "a node that was DOWN is back in service"),
		event("drained", 'D', model.OnDrained, "a node is DRAINED: it takes no jobs, and has none"),
		event("draining", 0, model.OnDraining, "a node is to be drained, and still has jobs"),
		event("resume", 'R', model.OnResume, "a node that was drained, failing or DOWN is resumed"),
		event("fail", 'F', model.OnFail, "a node is expected to FAIL"),
		event("idle", 'I', model.OnIdle, "a node has been IDLE for --offset seconds"),
		event("reconfig", 'r', model.OnReconfig, "the configuration is read"),
		event("primary_slurmctld_failure", 'a', model.OnPrimaryFails, "the first controller does not answer"),
		event("primary_slurmctld_resumed_operation", 'A', model.OnPrimaryBack,
			"the first controller answers again, or was started anew"),
		event("primary_slurmctld_resumed_control", 'b', model.OnPrimaryLeads, "the first controller leads again"),
		event("primary_slurmctld_acct_buffer_full", 'e', model.OnBufferFull, "MaxDBDMsgs records wait for gdbd"),
		event("backup_slurmctld_failure", 'B', model.OnBackupFails, "another controller does not answer"),
		event("backup_slurmctld_resumed_operation", 'c', model.OnBackupBack, "another controller answers again"),
		event("backup_slurmctld_assumed_control", 'C', model.OnBackupLeads, "another controller takes the lead"),
		event("primary_slurmdbd_failure", 'g', model.OnDbdFails, "gdbd does not answer"),
		event("primary_slurmdbd_resumed_operation", 'G', model.OnDbdBack, "gdbd answers again"),
		event("primary_database_failure", 'h', model.OnDatabaseFails, "gdbd answers, and takes no records"),
		event("primary_database_resumed_operation", 'H', model.OnDatabaseBack, "gdbd takes records again"),
		{Name: "burst_buffer", Refused: "gbatch has no burst buffers: stage data in the job's script"},
		{Name: "front_end", Refused: "gbatch has no front-end nodes: --node --down is about nodes themselves"},
		{Name: "block_err", Refused: "that was about BlueGene's blocks: use --down"},
	}
	return append(out, []getopt.Option{
		{Name: "id", Short: 'i', Arg: getopt.Required, Metavar: "n", Group: groupWhich, Help: "the trigger's number",
			Set: getopt.Number(&s.id, 1, 1<<32-1)},
		{Name: "jobid", Short: 'j', Arg: getopt.Required, Metavar: "n", Group: groupWhich, Help: "about this job",
			Set: func(v string) error {
				n, err := strconv.ParseUint(v, 10, 32)
				if err != nil || n == 0 {
					return &getopt.TextError{Text: "Invalid jobid " + v + jobidHint(v)}
				}
				s.job = model.JobID(n)
				return nil
			}},
		{Name: "node", Short: 'n', Arg: getopt.Optional, Metavar: "host", Group: groupWhich,
			Help: "about these nodes; without names about all", Set: func(v string) error {
				s.nodes, s.nodesGiven = v, true
				return nil
			}},
		{Name: "offset", Short: 'o', Arg: getopt.Required, Metavar: "seconds", Group: groupWhich,
			Help: "run the program so long after the event; negative, with --time: before it",
			Set:  getopt.Number(&s.offset, -32000, 32000)},
		{Name: "program", Short: 'p', Arg: getopt.Required, Metavar: "path", Group: groupWhich,
			Help: "the program to run, and its arguments", Set: getopt.Text(&s.program)},
		{Name: "flags", Arg: getopt.Required, Metavar: "PERM", Group: groupWhich,
			Help: "PERM: the trigger stays when its program has run", Set: s.setFlags},
		{Name: "user", Arg: getopt.Required, Metavar: "user", Group: groupWhich, Help: "triggers of this user",
			Set: getopt.Text(&s.user)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "names",
			Group: groupWhich, Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&s.clusters)},
		{Name: "noheader", Short: 'N', Group: groupWhich, Help: "print no header", Set: getopt.Flag(&s.noHeader)},
		{Name: "quiet", Short: 'Q', Group: groupWhich, Help: "it is no error if there is nothing to clear",
			Set: getopt.Flag(&s.quiet)},
		{Name: "verbose", Short: 'v', Group: groupWhich, Help: "print detailed messages: what was done",
			Set: getopt.Flag(&s.verbose)},
	}...)
}

// jobidHint says what to do with a task of an array.
func jobidHint(v string) string {
	if strings.ContainsAny(v, "_+") {
		return ": name a task or component by its own number, which gqueue -o %A shows"
	}
	return ""
}

func (s *trigger) setFlags(v string) error {
	for f := range strings.SplitSeq(v, ",") {
		if !strings.EqualFold(strings.TrimSpace(f), "PERM") {
			return &getopt.TextError{Text: "Invalid flags '" + v + "': the only one is PERM"}
		}
	}
	s.perm = true
	return nil
}

// check holds the options against each other, in Slurm's order and words.
func (s *trigger) check() error {
	ways := 0
	for _, way := range [...]bool{s.set, s.get, s.clear} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1:
		return env.Complaint{Text: "You must use exactly one of the following options: --set, --get or --clear"}
	case s.clear && s.id == 0 && s.job == 0 && s.user == "":
		return env.Complaint{Text: "You must specify a --id, --jobid, or --user to clear"}
	case s.clear && (s.events != 0 || s.nodesGiven):
		return env.Complaint{Text: "--clear goes by --id, --jobid and --user only: --get shows the numbers of the others"}
	case !s.set && (s.program != "" || s.perm || s.offset != 0):
		return env.Complaint{Text: "--program, --flags and --offset are for --set: --get and --clear go by --id"}
	case !s.set:
		return nil
	case s.id != 0:
		return env.Complaint{Text: "--id is for --get and --clear: a new trigger is given its number"}
	case s.events == 0:
		return env.Complaint{Text: "You must specify a trigger (--down, --up, --reconfig, --time, --fini,\n" +
			"--drained, --idle, --primary_slurmctld_failure and others: see --help)"}
	case s.program == "":
		return env.Complaint{Text: "You must specify a --program value"}
	case s.job == 0 && s.events&(model.OnFini|model.OnTime) != 0:
		return env.Complaint{Text: "You must specify a --jobid value"}
	case s.program[0] != '/':
		return env.Complaint{Text: "The --program value must start with \"/\""}
	case s.job != 0 && s.nodesGiven:
		return env.Complaint{Text: "give one of --jobid and --node: with --jobid it is about the nodes of the job"}
	case s.user != "":
		return env.Complaint{Text: "--user is for --get and --clear: a trigger is set as the user who sets it, use sudo -u"}
	}
	return nil
}

// of says what the trigger is about.
func (s *trigger) of() (model.TriggerOf, error) {
	if s.job != 0 {
		return s.fits(model.TriggerJob)
	}
	for _, of := range []model.TriggerOf{model.TriggerCtld, model.TriggerDbd, model.TriggerDatabase} {
		if s.events&of.Events() != 0 {
			if s.nodes != "" {
				return 0, env.Complaint{Text: fmt.Sprintf("--node has no meaning for %s", s.events&of.Events())}
			}
			return s.fits(of)
		}
	}
	return s.fits(model.TriggerNode)
}

func (s *trigger) fits(of model.TriggerOf) (model.TriggerOf, error) {
	if others := s.events &^ of.Events(); others != 0 {
		return 0, env.Complaint{Text: fmt.Sprintf("%s is no event of a trigger about a %s: set a trigger of its own for it",
			others, of)}
	}
	return of, nil
}

func (s *trigger) do() error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.CheckClusters(c, s.clusters); err != nil {
		return err
	}
	uid := uint32(0)
	if s.user != "" {
		if uid, err = env.UIDOf(s.user); err != nil {
			return env.Complaint{Text: "Invalid user " + s.user}
		}
	}
	switch {
	case s.set:
		of, err := s.of()
		if err != nil {
			return err
		}
		path := strings.Fields(s.program)[0]
		if _, err := os.Stat(path); err != nil {
			return env.Complaint{Text: "Invalid --program value, file not found"}
		}
		if err := c.Call(proto.KindSetTrigger, &proto.SetTriggerRequest{Of: of, Job: s.job, Nodes: s.nodes,
			Events: s.events, OffsetS: s.offset, Perm: s.perm, Program: s.program},
			&proto.Empty{}); err != nil {
			return err
		}
		s.say("trigger set")
	case s.clear:
		var r proto.ClearTriggersReply
		if err := c.Call(proto.KindClearTriggers, &proto.ClearTriggersRequest{ID: s.id, Job: s.job, OfUser: s.user != "",
			UID: uid}, &r); err != nil {
			return err
		}
		if len(r.IDs) == 0 && !s.quiet {
			return env.Complaint{Text: "no such trigger: gtrigger --get lists those that are set"}
		}
		switch {
		case s.job != 0:
			s.say(fmt.Sprintf("triggers for job %d cleared", s.job))
		case s.id != 0:
			s.say(fmt.Sprintf("trigger %d cleared", s.id))
		default:
			s.say(fmt.Sprintf("triggers for user %d cleared", uid))
		}
	default:
		return s.list(c, uid)
	}
	return nil
}

// say tells what was done.
func (s *trigger) say(text string) {
	if s.verbose {
		fmt.Fprintf(s.Stderr, "%s: %s\n", s.Program, text)
	}
}

// list prints the triggers that the options name.
func (s *trigger) list(c *client.Client, uid uint32) error {
	const line = "%7v %-9s %7s %-35s %6v %-8s %-5s %s\n"
	head, read := s.noHeader, 0
	var off []string
	err := c.Stream(proto.KindTriggers, &proto.Empty{}, func(body []byte) error {
		var chunk proto.TriggersChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		read += len(chunk.Triggers)
		for i := range chunk.Triggers {
			t := &chunk.Triggers[i]
			if !s.shows(t, uid) {
				continue
			}
			if !head {
				head = true
				fmt.Fprintf(s.Stdout, line, "TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM")
			}
			var flags []string
			if t.Perm {
				flags = append(flags, "PERM")
			}
			if t.Off != "" {
				flags = append(flags, "OFF")
				off = append(off, fmt.Sprintf("trigger %d does nothing any more: %s; look at it, then clear it or set it again",
					t.ID, t.Off))
			}
			if _, err := fmt.Fprintf(s.Stdout, line, t.ID, t.Of, t.Res, t.Events, t.OffsetS, t.User,
				strings.Join(flags, ","), t.Program); err != nil {
				return err
			}
		}
		return nil
	})
	for _, text := range off {
		fmt.Fprintf(s.Stderr, "%s: %s\n", s.Program, text)
	}
	if err == nil {
		s.say(fmt.Sprintf("Read %d trigger records", read))
	}
	return err
}

// shows reports whether the options name a trigger.
func (s *trigger) shows(t *proto.TriggerInfo, uid uint32) bool {
	return (s.events == 0 || t.Events&s.events != 0) && (s.id == 0 || t.ID == s.id) && (s.job == 0 || t.Job == s.job) &&
		(s.user == "" || t.UID == uid) && (!s.nodesGiven || t.Of == model.TriggerNode && s.about(t.Res))
}

// about reports whether a trigger about nodes is about one of those that are named.
func (s *trigger) about(nodes string) bool {
	if s.nodes == "" || nodes == "*" {
		return true
	}
	names, err := hostlist.Expand(s.nodes)
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		has, err := hostlist.Contains(nodes, name)
		return has && err == nil
	})
}
