package manage

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/user"
	"slices"
	"strings"
	"time"

	"gbatch/internal/acctmgr"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/prompt"
	"gbatch/internal/client"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// manage is one call of gacctmgr.
type manage struct {
	*env.Env
	o                          acctmgr.Options
	immediate, noHeader, quiet bool
	readOnly                   bool
	json                       string // the version of the lists; "" for a table
	args                       []string
	input                      *bufio.Reader
}

// modes are the commands that say how the later ones print, where commands are read from standard input.
var modes = []prompt.Mode{
	{Word: "associations", On: "-s"}, {Word: "oneliner"}, {Word: "verbose", Off: []string{"-Q", "--quiet"}},
	{Word: "parsable", On: "-p", Off: []string{"-P"}}, {Word: "parsable2", On: "-P", Off: []string{"-p"}},
	{Word: "quiet", On: "-Q"}, {Word: "readonly", On: "-r"},
}

// promptS is the time for an answer to a question, seconds.
const promptS = 30

// errNothing is the end of a command that found nothing to add, change or delete, and has said so: status 1, as in
// Slurm, by which scripts tell it from a change.
var errNothing = errors.New("nothing is changed")

// fewNames is how many names a warning has.
const fewNames = 8

// Gacctmgr shows and changes accounts, users, associations and QOS.
func Gacctmgr(e *env.Env) int {
	m := &manage{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(m.options(), getopt.HelpOptions('h')...),
		OperandValues: operands,
		Syntax:        "[<OPTION>] [<COMMAND>]", UsageIsHelp: true, Heading: "Valid <OPTION> values are",
		About: "Show and change accounts, users, associations and QOS.",
		Epilogue: "Valid <COMMAND> values are:\n" +
			"  add <ENTITY> <SPECS>, or create\n  modify <ENTITY> where <SPECS> set <SPECS>, or update\n" +
			"  delete <ENTITY> where <SPECS>, or remove\n  list <ENTITY> [<SPECS>], or show\n" +
			"  clear stats: begin counting anew\n" +
			"  dump: write everything to a file in Slurm's format\n  load: read such a file\n" +
			"  version: print the version\n  help, exit, quit\n\n" +
			"<ENTITY> may be account, user, association, qos, coordinator, wckey, cluster, credit, budget or invoice; " +
			"with list also tree, tres, event, transaction, balance, price, pool, problems, runawayjobs, stats and " +
			"configuration; with modify also job.\n\n" +
			"<SPECS> are different for each command entity pair:\n" +
			"  add account physics Fairshare=50 Parent=science\n  add user ann account=physics\n" +
			"  add qos urgent Priority=500 GrpTRES=gres/gpu=70%\n  add cluster NAME: it is there by its configuration\n" +
			"  modify user where name=ann set MaxJobs=10\n  modify cluster set Fairshare=1\n  delete qos urgent\n" +
			"  list associations tree format=account,user,fairshare\n  dump file=accounts.cfg\n" +
			"  load file=accounts.cfg clean"})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	if len(operands) == 0 {
		return prompt.Run(e, prompt.Config{Do: Gacctmgr, Modes: modes})
	}
	if prompt.Is(modes, operands) {
		return 0
	}
	if strings.EqualFold(operands[0], "help") {
		fmt.Fprint(e.Stdout, p.Help())
		return 0
	}
	m.args = operands
	if err := m.run(); errors.Is(err, errNothing) {
		return 1
	} else if err != nil {
		fmt.Fprintln(e.Stderr, sentence(err))
		return 1
	}
	return 0
}

// sentence gives an error's text; an error of the cluster is shown as " Error with request: ...".
func sentence(err error) string {
	t := env.Text(err)
	if env.Code(err) != 0 && !strings.HasPrefix(t, " ") && !strings.HasPrefix(t, "Error with request") {
		t = " Error with request: " + t
	}
	return t
}

func (m *manage) options() []getopt.Option {
	return []getopt.Option{
		{Name: "associations", Short: 's', Help: "with show: the associations of each entity", Set: getopt.Flag(&m.o.Assocs)},
		{Name: "immediate", Short: 'i', Help: "commit changes immediately, without asking", Set: getopt.Flag(&m.immediate)},
		{Name: "noheader", Short: 'n', Help: "print no header", Set: getopt.Flag(&m.noHeader)},
		{Name: "oneliner", Short: 'o', Hidden: true, Note: "every record is one line anyway", Set: env.Ignored},
		{Name: "parsable", Short: 'p', Help: "fields ended by |",
			Set: func(string) error { m.o.Style.Parsable, m.o.Style.NoTrailing = true, false; return nil }},
		{Name: "parsable2", Short: 'P', Help: "fields with | between",
			Set: func(string) error { m.o.Style.Parsable, m.o.Style.NoTrailing = true, true; return nil }},
		{Name: "quiet", Short: 'Q', Help: "print nothing on success", Set: getopt.Flag(&m.quiet)},
		{Name: "readonly", Short: 'r', Help: "refuse to change anything", Set: getopt.Flag(&m.readOnly)},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
		m.JSON("", "with show: JSON", &m.json),
		m.YAML("", &m.json),
	}
}

func (m *manage) run() error {
	verb, rest := strings.ToLower(m.args[0]), m.args[1:]
	begins := func(names ...string) bool {
		for _, n := range names {
			if len(verb) >= 2 && strings.HasPrefix(n, verb) {
				return true
			}
		}
		return false
	}
	switch verb {
	case "dump", "load":
		return m.flatFile(verb, rest)
	case "clear":
		return m.clear(rest)
	case "archive", "shutdown", "reconfigure":
		instead := map[string]string{"archive": "gdbd keeps its own files",
			"shutdown":    "stop gdbd with the service manager",
			"reconfigure": "use gcontrol reconfigure"}[verb]
		return fmt.Errorf(" %s is not supported by gbatch: %s", verb, instead)
	case "version":
		m.Version()
		return nil
	}
	if !begins("add", "create", "modify", "update", "delete", "remove", "list", "show") {
		return fmt.Errorf("invalid keyword: %s; the verbs are add, modify, delete, show, clear, dump and load", m.args[0])
	}
	if len(rest) == 0 {
		return fmt.Errorf(" %s needs an entity: account, user, association, qos or coordinator", verb)
	}
	c, err := m.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	entity := strings.ToLower(rest[0])
	if begins("modify", "update") && entity == "job" {
		return m.modifyJob(c, rest[1:])
	}
	if table := historyOf(entity); table != "" && begins("list", "show") {
		cluster, err := env.ClusterName(c)
		if err != nil {
			return err
		}
		return m.showPast(c, cluster, table, rest[1:])
	}
	if len(entity) > 3 && strings.HasPrefix("configuration", entity) && begins("list", "show") {
		return m.showConfig(c)
	}
	if len(entity) > 1 && strings.HasPrefix("stats", entity) && begins("list", "show") {
		return m.showStats(c)
	}
	if isPool(entity) && begins("list", "show") {
		return m.showPools(c, rest[1:])
	}
	if name := moneyOf(entity); name != "" {
		switch {
		case begins("list", "show"):
			return m.showMoney(c, name, rest[1:])
		case m.readOnly:
			return errors.New("Can't run this command in readonly mode.")
		case begins("add", "create"):
			return m.changeMoney(c, "add", name, rest[1:])
		case begins("delete", "remove"):
			return m.changeMoney(c, "delete", name, rest[1:])
		}
		return m.changeMoney(c, "modify", name, rest[1:])
	}
	facts, err := acctmgr.Ask(c.Stream, c.Decode)
	if err != nil {
		return err
	}
	if begins("list", "show") {
		if m.json != "" {
			return m.showJSON(facts, entity, rest[1:])
		}
		if len(entity) > 2 && strings.HasPrefix("runawayjobs", entity) { // gctld and gdbd agree about jobs by themselves
			fmt.Fprintf(m.Stdout, "Runaway Jobs: No runaway jobs found on cluster %s\n", facts.Cluster)
			return nil
		}
		printer, rows, err := acctmgr.Show(facts, entity, rest[1:], m.o)
		if err != nil {
			return err
		}
		return printer.Write(m.Stdout, rows, !m.noHeader)
	}
	if m.readOnly {
		return errors.New("Can't run this command in readonly mode.")
	}
	return m.carryOut(c, facts, func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		switch {
		case begins("add", "create"):
			return acctmgr.Add(f, entity, rest[1:])
		case begins("modify", "update"):
			return acctmgr.Modify(f, entity, rest[1:])
		}
		return acctmgr.Remove(f, entity, rest[1:])
	})
}

// replans is how often a plan is made anew because others have changed accounts meanwhile.
const replans = 64

// carryOut makes a plan, shows it, asks, and makes its edits. If others have changed accounts meanwhile, it makes the
// plan from what there is then, and asks again only if the plan is another one.
func (m *manage) carryOut(c *client.Client, facts *acctmgr.Facts,
	think func(*acctmgr.Facts) (*acctmgr.Plan, error)) error {
	var last *acctmgr.Plan
	for n := 1; ; n++ {
		plan, err := think(facts)
		if err != nil {
			return err
		}
		if last == nil || len(plan.Edits) == 0 || !slices.Equal(plan.Text, last.Text) ||
			!slices.Equal(plan.Notes, last.Notes) || !slices.Equal(plan.NewUsers, last.NewUsers) {
			if !m.agreed(plan) {
				if plan.Empty() {
					return errNothing
				}
				return nil
			}
		}
		var done proto.Empty
		var e *rpc.Error
		err = c.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: facts.Gen, Edits: plan.Edits}, &done)
		switch {
		case err == nil:
			return m.withoutEffect(c, plan)
		case !errors.As(err, &e) || e.Code != proto.CodeOutdated || n == replans:
			return err
		}
		last = plan
		time.Sleep(rand.N(50 * time.Millisecond)) // others who have lost the race come at other moments
		if facts, err = acctmgr.Ask(c.Stream, c.Decode); err != nil {
			return err
		}
	}
}

// agreed shows a plan and reports whether it is to be carried out.
func (m *manage) agreed(plan *acctmgr.Plan) bool {
	say := func(lines ...string) {
		for _, l := range lines {
			if !m.quiet {
				fmt.Fprintln(m.Stdout, l)
			}
		}
	}
	say(plan.Notes...)
	if len(plan.Edits) == 0 {
		if plan.Empty() { // no success: said to the quiet too
			fmt.Fprintln(m.Stdout, plan.Nothing)
		}
		say(plan.Text...) // as it was: it is named, as in Slurm
		return false
	}
	if !m.immediate {
		for _, name := range plan.NewUsers {
			if _, err := user.Lookup(name); err != nil {
				say(fmt.Sprintf(" There is no uid for user '%s'", name))
				if !m.ask("Are you sure you want to continue?") {
					say(" Changes Discarded")
					return false
				}
			}
		}
	}
	say(plan.Text...)
	if !m.immediate && !m.ask("Would you like to commit changes?") {
		say(" Changes Discarded")
		return false
	}
	return true
}

// withoutEffect warns about guarantees for which no job is preempted, and limits that hold no job.
func (m *manage) withoutEffect(c *client.Client, plan *acctmgr.Plan) error {
	var names []string
	for i := range plan.Edits {
		if q := plan.Edits[i].QOS; q != nil && len(q.GuaranteedTRES) > 0 {
			names = append(names, "QOS "+q.Name)
		}
		if a := plan.Edits[i].Assoc; a != nil && len(a.GuaranteedTRES) > 0 && !slices.Contains(names, "account "+a.Account) {
			names = append(names, "account "+a.Account)
		}
	}
	limited := plan.Limited()
	if m.quiet || len(names)+len(limited) == 0 {
		return nil
	}
	var reply proto.ConfigReply
	if err := c.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return err
	}
	if len(limited) > 0 && !reply.Config.Params.HoldLimits {
		fmt.Fprintf(m.Stderr, "%s: warning: limits of %s hold no job: AccountingStorageEnforce in gbatch.conf does not have "+
			"limits or safe\n", m.Program, strings.Join(limited[:min(len(limited), fewNames)], ", "))
	}
	for _, kv := range reply.Config.Show {
		if len(names) > 0 && kv.Key == "PreemptType" && kv.Value != "preempt/qos" {
			fmt.Fprintf(m.Stderr, "%s: warning: GuaranteedTRES of %s has no effect under PreemptType=%s: nothing is taken "+
				"back for it; write PreemptType=preempt/qos in gbatch.conf\n",
				m.Program, strings.Join(names, ","), kv.Value)
		}
	}
	return nil
}

// ask asks a question and waits for y; another answer, or none in time, means no.
func (m *manage) ask(question string) bool {
	fmt.Fprintf(m.Stdout, "%s (You have %d seconds to decide)\n(N/y): ", question, promptS)
	if f, ok := m.Stdout.(interface{ Flush() error }); ok {
		_ = f.Flush() // the last flush reports it
	}
	if m.input == nil {
		m.input = bufio.NewReader(m.Stdin)
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := m.input.ReadString('\n') // no answer is no
		answer <- line
	}()
	timer := time.NewTimer(promptS * time.Second)
	defer timer.Stop()
	select {
	case line := <-answer:
		if !prompt.Typed(m.Stdin) { // at a terminal the line that was typed ends the question's
			fmt.Fprintln(m.Stdout)
		}
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-timer.C:
		fmt.Fprintln(m.Stdout, "timeout")
		return false
	}
}

// showJSON is show ... --json.
func (m *manage) showJSON(f *acctmgr.Facts, entity string, words []string) error {
	p, err := acctmgr.Pick(f, entity, words, m.o)
	if err != nil {
		return err
	}
	w := m.JSONFrame(p.Entity, m.json)
	acctmgr.WriteJSON(w, f, p)
	return m.JSONFinish(w, f.Cluster, 0)
}
