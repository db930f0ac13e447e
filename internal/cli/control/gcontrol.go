package control

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/prompt"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
	"gbatch/internal/suggest"
)

// control is one call of gcontrol: its words and its options.
type control struct {
	*env.Env
	oneLine bool
	details int
	quiet   bool
	verbose bool
	future  bool
	json    string
	pools   importing

	clusters []string
	verb     string // the command's word in full
	client   *client.Client
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
		{name: "show", help: "show job|step|node|partition|config|hostnames|hostlist [NAME]", run: (*control).show},
		{name: "hold", help: "hold jobs", run: action(proto.ActHold)},
		{name: "uhold", help: "hold jobs; their owners can release them", run: action(proto.ActUserHold)},
		{name: "release", help: "release held jobs", run: action(proto.ActRelease)},
		{name: "requeue", help: "[incomplete] put jobs back into the queue", run: action(proto.ActRequeue)},
		{name: "requeuehold", help: "[state=SpecialExit] put jobs back into the queue, held; as SPECIAL_EXIT",
			run: action(proto.ActRequeueHold)},
		{name: "suspend", help: "stop running jobs; their CPUs go to others meanwhile, memory and GPUs do not (operators)",
			run: action(proto.ActSuspend)},
		{name: "resume", help: "let suspended jobs go on, as soon as their CPUs are free (operators)",
			run: action(proto.ActResume)},
		{name: "top", help: "put waiting jobs ahead of the same user's others", run: action(proto.ActTop)},
		{name: "update", help: "update JobId=N KEY=VALUE... | StepId=N.M TimeLimit=T | " +
			"NodeName=NAMES State=DRAIN|RESUME|DOWN Reason=TEXT ... | PartitionName=NAME State=DOWN|UP ... | " +
			"ReservationName=NAME ... | SuspendExcNodes=NODES: change it",
			run: (*control).update},
		{name: "resize", help: "resize [JOBID] [NumNodes=N|NodeList=NODES]: a running job gives nodes up; without a number " +
			"an elastic job gives those that it was asked for", run: (*control).resize},
		{name: "reconfigure", help: "read the configuration files anew [--dry-run]", run: (*control).reconfigure},
		{name: "why", help: "why [JOBID...]: what holds jobs (all of yours that wait), when they are expected to start, " +
			"and what would let them start sooner", run: (*control).why},
		{name: "doctor", help: "doctor [node=NODES]: look the cluster over, and say what is wrong and what to do about it " +
			"(operators)", run: (*control).doctor},
		{name: "mig", help: "mig apply node=NODES [gres=gpu:0-3] layout=training|inference|balanced|off|PROFILES: divide " +
			"drained GPUs into MIG instances (operators)", run: (*control).mig},
		{name: "ping", help: "tell whether the controllers answer and which leads", run: (*control).ping},
		{name: "takeover", help: "takeover [INDEX]: make another controller the leader, that of an index (0 is the first) " +
			"or name (operators)", run: (*control).takeover},
		{name: "write", help: "write batch_script JOBID [FILE|-] | config [FILE]", run: (*control).write},
		{name: "snapshot", help: "snapshot save FILE: save the controllers' state; snapshot inspect FILE: check a file " +
			"(operators)", run: (*control).snapshot},
		{name: "dump", help: "dump state FILE, for gbatch sim --from-state; --json: the state for people (operators)",
			run: (*control).dump},
		{name: "version", help: "print the version", run: func(c *control, _ []string) error { c.Version(); return nil }},
		{name: "help", help: "print this", run: func(c *control, _ []string) error { c.verbHelp(); return nil }},
		{name: "create", help: "create reservation ReservationName=NAME StartTime=T Duration=D Nodes=NODES|NodeCnt=N " +
			"Users=|Accounts= Flags= | PartitionName=NAME Nodes=NODES ... | NodeName=NAMES CPUs=N ... (operators)",
			run: (*control).create},
		{name: "delete", help: "delete ReservationName=NAME | PartitionName=NAME | NodeName=NAMES (operators)",
			run: (*control).remove},
		{name: "wait_job", help: "return when a job's nodes are ready, or it has ended (then with exit code 1)",
			run: (*control).waitJob},
		{name: "completing", help: "list jobs that are ending, and on which nodes", run: (*control).completing},
		{name: "controllers", help: "controllers: list the controllers, how far each is and what is wrong with it; " +
			editForms + ": change them while the cluster runs (operators)", run: (*control).controllers},
		{name: "reboot", help: "reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES|ALL: reboot nodes with " +
			"RebootProgram when they have no job (operators)", run: (*control).reboot},
		{name: "power", help: "power up|down [asap|force] NODES|ALL: power nodes up, or down when they have no job " +
			"(operators)", run: (*control).power},
		{name: "tag", help: "tag node=NODES gpu=0-3 model+=NAME | model-=NAME: say which models GPUs have loaded, for " +
			"--prefer=model:NAME (operators)", run: (*control).tag},
		{name: "cancel_reboot", help: "cancel_reboot NODES: take back reboots that have not begun (operators)",
			run: (*control).cancelReboot},
		{name: "shutdown", why: "stop the daemons with the service manager, or gbatch down"},
		{name: "abort", why: "stop the daemons with the service manager, or gbatch down"},
		{name: "setdebug", help: "setdebug LEVEL: change the level of the leading controller's log until it reads " +
			"SlurmctldDebug again (operators)", run: (*control).setDebug},
		{name: "setdebugflags", help: "setdebugflags [+|-]NAME: taken where Slurm has such a flag; the log has one level " +
			"for everything, setdebug LEVEL changes it", run: (*control).setDebugFlags},
		{name: "schedloglevel", help: "schedloglevel 0|1: there is no log of the scheduler's own; setdebug LEVEL changes " +
			"the controller's, and gdiag has statistics", run: (*control).schedLogLevel},
		{name: "errnumstr", help: "errnumstr NUMBER: the sentence of an error number", run: (*control).errNumStr},
		{name: "fsdampeningfactor", help: "fsdampeningfactor NUMBER: taken, without effect, as Fair Tree needs no dampening",
			run: (*control).dampening},
		{name: "getaddrs", help: "getaddrs NODES: print the addresses of nodes", run: (*control).addresses},
		{name: "notify", help: "notify JOBID MESSAGE: write a line into the output of a running job, or of the grun that " +
			"it runs for",
			run: (*control).notify},
		{name: "token", help: "token [username=NAME] [lifespan=SECONDS|infinite]: print a token (SLURM_JWT=...) for HTTP; " +
			"token revoke NAME...; token newkey [FILE] and export (administrators)", run: (*control).token},
		{name: "import", help: "import -f FILE [--dry-run] [--json] [--nodes POOL=NODES] [-O DIRECTORY]: make partitions, " +
			"accounts, QOS, reservations and scripts of YAML of Kubernetes' schedulers (operators)", run: (*control).bring},
		{name: "listpids", help: "listpids [JOBID[.STEP]] [NODENAME]: list the processes of jobs, on this host's node or a " +
			"named one", run: (*control).listPIDs},
		{name: "pidinfo", help: "pidinfo PID: the job of a process on this host, and when it ends", run: (*control).pidInfo},
	}
}

// modes are the commands that say how the later ones print, where commands are read from standard input.
var modes = []prompt.Mode{
	{Word: "all"}, {Word: "hide"}, {Word: "verbose", On: "-v", Off: []string{"-Q", "--quiet"}},
	{Word: "details", On: "-d"}, {Word: "oneliner", On: "-o"}, {Word: "quiet", On: "-Q"},
	{Word: "cluster", On: "--clusters", Value: true}, {Word: "clusters", On: "--clusters", Value: true},
}

var errNoJSON = errors.New("--json goes with why, ping, controllers, dump, import, and show job, step, node, " +
	"partition, reservations and licenses")

// Gcontrol shows and changes jobs, nodes and the configuration.
func Gcontrol(e *env.Env) int {
	c := &control{Env: e}
	var words []string
	dryRun := false
	options := []getopt.Option{
		{Name: "oneliner", Short: 'o', Env: "SCONTROL_ONELINER", Help: "one line for each record",
			Set: getopt.Flag(&c.oneLine)},
		{Name: "details", Aliases: []string{"detail"}, Short: 'd', Help: "with GPU and CPU numbers",
			Set: getopt.Count(&c.details)},
		{Name: "all", Short: 'a', Env: "SCONTROL_ALL",
			Help: "hidden partitions too (they are shown anyway)", Set: env.Ignored},
		{Name: "hide", Hidden: true, Note: "nothing is hidden from show", Set: env.Ignored},
		{Name: "quiet", Short: 'Q', Help: "print no notices and no errors; the exit code tells", Set: getopt.Flag(&c.quiet)},
		{Name: "verbose", Short: 'v', Help: "with show: how many records there are, and of when",
			Set: getopt.Flag(&c.verbose)},
		{Name: "dry-run", Help: "with reconfigure and import: show what would change, and change nothing",
			Set: getopt.Flag(&dryRun)},
		{Name: "file", Short: 'f', Arg: getopt.Required, Metavar: "file",
			Help: "with import: the YAML file; - is standard input", Set: getopt.Text(&c.pools.file)},
		{Name: "nodes", Arg: getopt.Required, Metavar: "pool=nodes", Help: "with import: the nodes of a pool's partition",
			Set: func(v string) error { c.pools.nodes = append(c.pools.nodes, v); return nil }},
		{Name: "output", Short: 'O', Arg: getopt.Required, Metavar: "dir",
			Help: "with import: where jobs' scripts go", Set: getopt.Text(&c.pools.output)},
		c.JSON("", "with why, ping, controllers, dump, import, and show of jobs, nodes, partitions, reservations and "+
			"licenses: JSON", &c.json),
		c.YAML("", &c.json),
		{Name: "future", Short: 'F', Env: "SCONTROL_FUTURE",
			Help: "with show node: also nodes of State=FUTURE, which are none yet", Set: getopt.Flag(&c.future)},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "sibling", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "federation", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "uid", Short: 'u', Arg: getopt.Required, Refused: "run the command as that user, with su or sudo"},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "name",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&c.clusters)},
	}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(options, getopt.HelpOptions('h')...),
		Operands: "COMMAND [ARGUMENTS...]", OperandValues: operands,
		About: "Show and change jobs, nodes and the configuration.", Epilogue: verbList()})
	args := e.Args
	if i := slices.IndexFunc(args, func(w string) bool { return strings.EqualFold(w, "setdebugflags") }); i >= 0 {
		args = slices.Insert(slices.Clone(args), i, "--") // -Backfill is none of the options
	}
	words, err := p.Parse(args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	if len(words) == 0 {
		return prompt.Run(e, prompt.Config{Do: Gcontrol, Modes: modes})
	}
	if w := strings.ToLower(words[0]); len(words) == 1 && (w == "exit" || w == "quit") {
		return 0 // nothing is left to do for a command that reads no further ones
	}
	if prompt.Is(modes, words) {
		return 0
	}
	v, err := findVerb(words[0])
	if err == nil && v.run == nil {
		err = fmt.Errorf("%s is not supported by gbatch yet: %s", v.name, v.why)
	}
	if err == nil && c.json != "" && v.name != "why" && v.name != "show" && v.name != "ping" && v.name != "controllers" &&
		v.name != "dump" && v.name != "import" {
		err = errNoJSON
	}
	if err == nil {
		if dryRun {
			if v.name != "reconfigure" && v.name != "import" {
				e.Errorf("--dry-run goes with reconfigure and import")
				return 1
			}
			words = append(words, "--dry-run")
		}
		c.verb = v.name
		err = v.run(c, words[1:])
		if c.client != nil {
			c.client.Close()
		}
	}
	if err != nil {
		if t := env.Text(err); t != "" && (!c.quiet || c.verb == "") { // -Q: the exit code tells
			if isPlain(err) {
				fmt.Fprintln(e.Stderr, t)
			} else {
				e.Errorf("%s", t)
			}
		}
		return 1
	}
	return 0
}

// tooFew is the complaint about a command without its words: first scontrol's, then what can be written.
func tooFew(what, forms string) error { return plain{errors.New(what + "; write " + forms)} }

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
		return verb{}, plain{fmt.Errorf("invalid keyword: %s%s", word, hint)}
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
		switch {
		case v.name == "show":
			names = append(names, "show <ENTITY> [<ID>]")
		case v.run != nil:
			names = append(names, v.name)
		}
	}
	return "Valid <COMMAND> values are: " + strings.Join(names, ", ") +
		". `gcontrol help` says what they do. Words may be shortened, and case does not matter."
}

func (c *control) verbHelp() {
	fmt.Fprintf(c.Stdout, "Usage: %s [OPTIONS...] COMMAND [ARGUMENTS...]\n\nValid <COMMAND> values are:\n", c.Program)
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
		cl, err := c.Connect()
		if err != nil {
			return nil, err
		}
		if err := c.CheckClusters(cl, c.clusters); err != nil {
			cl.Close()
			return nil, err
		}
		c.client = cl
	}
	return c.client, nil
}

// show dispatches show ENTITY [NAME], in scontrol's spellings: show job 5, show job=5, show jobs.
func (c *control) show(words []string) error {
	if len(words) == 0 {
		return tooFew("too few arguments for keyword:show",
			"job, step, node, partition, config, licenses, topology, reservation, hostnames or hostlist")
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
	case is("jobs", "jobids") && c.json != "":
		return c.jobsJSON(name)
	case is("jobs", "jobids"):
		return c.showJobs(name)
	case is("steps", "stepids") && len(low) > 1:
		return c.showSteps(name)
	case is("nodes", "nodenames"):
		return c.showNodes(name)
	case is("reservations", "reservationnames") && len(low) > 2:
		return c.showReservations(name)
	case is("partitions", "partitionnames"):
		return c.showPartitions(name)
	case is("config", "configuration") && c.json == "":
		return c.showConfig()
	case is("licenses") && len(low) > 1, low == "lics":
		return c.showLicenses(name)
	case is("topology") && len(low) > 1:
		asked := words[1:]
		if _, name, pair := strings.Cut(words[0], "="); pair && name != "" {
			asked = append([]string{name}, asked...)
		}
		return c.showTopology(asked)
	case c.json != "":
		return errNoJSON
	case is("assoc_mgr") && len(low) > 1, low == "associations":
		return c.showAssocs(words[1:])
	case is("version"):
		c.Version()
		return nil
	}
	for _, e := range []string{"burstbuffer", "bbstat", "dwstat", "federation", "frontends"} {
		if strings.HasPrefix(e, low) && len(low) > 1 {
			return nil // there is none of these, and Slurm says as little
		}
	}
	switch {
	case strings.HasPrefix("aliases", low) && len(low) > 1:
		return c.aliases(name)
	case strings.HasPrefix("daemons", low) && len(low) > 1:
		fmt.Fprintln(c.Stdout, "slurmctld slurmd")
		return nil
	case strings.HasPrefix("slurmd", low) && len(low) > 1:
		return c.showDaemon(name)
	}
	known := []string{"job", "step", "node", "partition", "config", "licenses", "topology", "reservation", "hostnames",
		"hostlist"}
	hint := ""
	if near := suggest.Nearest(low, known); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return plain{fmt.Errorf("invalid entity:%s for keyword:show%s", entity, hint)}
}

// hosts gives the hosts that a command works on: its argument's, or the job's own.
func (c *control) hosts(arg string) ([]string, error) {
	if arg != "" {
		return hostlist.Expand(arg)
	}
	for _, name := range []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if v, ok := c.Lookup(name); ok && v != "" {
			return hostlist.Expand(v)
		}
	}
	return nil, fmt.Errorf("host list is empty, and SLURM_JOB_NODELIST is not set: name the hosts, as in show hostnames " +
		"n[1-4]")
}

// hostFile reads the names that stand in a file, with blanks or commas between.
func hostFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("Can not open %s: %w", path, errors.Unwrap(err))
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxHostFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxHostFile {
		return nil, fmt.Errorf("%s has more than %d bytes: name the nodes as in n[1-4]", path, maxHostFile)
	}
	return hostlist.Expand(strings.Join(strings.Fields(string(data)), ","))
}

// maxHostFile is the longest file of names, in bytes.
const maxHostFile = 1 << 20

func (c *control) hostnames(arg string) error {
	names, err := c.hosts(arg)
	if err != nil {
		return err
	}
	for _, n := range names {
		fmt.Fprintln(c.Stdout, n)
	}
	return nil
}

func (c *control) hostlist(arg string, sorted bool) error {
	names, err := c.hosts(arg)
	if strings.HasPrefix(arg, "/") { // a file that has names in its lines
		names, err = hostFile(arg)
	}
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
