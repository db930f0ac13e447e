package request

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
)

// Submission holds the values of gsubmit's options. Command line, environment and #SBATCH lines fill it through one
// table.
type Submission struct {
	ask.Draft

	wrap     string
	hasWrap  bool
	Export   string
	ForStep  bool   // Export is a step's
	OfStep   bool   // grun gets the job for its step
	exportTo string // --export-file
	Parsable bool
	Wait     bool
	TestOnly bool
	Quiet    bool
	Verbose  int
	Chdir    string
	openMode string
	hosts    []string // as --nodelist has them, with repeats
	layout   bool     // --extra-node-info is given
	Implied  int32    // tasks that the layout of its nodes stands for
	limits   string   // --propagate
	limitsOn bool

	mail                 model.MailWish
	batch                string // features of the node that runs the script
	coreSpec, threadSpec bool
	waitNamed            string // the time of --switches where that names none
	waitSaid             bool   // it names one
	Clusters             []string
	Each                 string   // --each: a file with a line for each job
	userEnv              string   // --get-user-env's value, 1 for none; "": not given
	Remarks              []string // what is said about options that have no effect
	Warnings             []string // what is said about options that were changed
}

// NoMCSLabels is said of --mcs-label.
const NoMCSLabels = "there are no MCS labels; --exclusive=user keeps a job's nodes for its user, and " +
	"PrivateData=jobs in gbatch.conf hides jobs from others"

// The headings of gsubmit's help.
const (
	groupJob   = "Parallel run options"
	groupNeeds = "Constraint options"
	groupShare = "Consumable resources related options"
	groupBind  = "Affinity/Multi-core options"
	groupWhen  = "When it runs"
	groupFiles = "Input, output, environment"
	groupHow   = "What gsubmit does"
)

// Options gives gsubmit's table. moment reads moments (Env.ReadDate).
func (s *Submission) Options(moment func(string) (model.Time, error)) []getopt.Option {
	return slices.Concat(s.jobOptions(), s.sizeOptions(), s.gpuOptions(), s.nodeOptions(), s.useOptions(),
		s.bindOptions(), s.whenOptions(moment), s.fileOptions(), s.containerOptions(), s.commandOptions(),
		s.statedOptions(),
		s.foreignOptions())
}

// jobOptions describe the job.
func (s *Submission) jobOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "job-name", Short: 'J', Arg: R, Metavar: "name", Group: groupJob, Env: "_JOB_NAME",
			Help: "name of the job; the script's by default", Set: getopt.Text(&sp.Name)},
		{Name: "account", Short: 'A', Arg: R, Metavar: "name", Group: groupJob, Env: "_ACCOUNT",
			Help: "account to charge",
			Set:  getopt.Text(&sp.Account)},
		{Name: "partition", Short: 'p', Arg: R, Metavar: "names", Group: groupJob, Env: "_PARTITION",
			Help: "partition; of several, the job uses the first with room",
			Set:  func(v string) error { sp.Partitions = env.SplitList(v); return nil }},
		{Name: "qos", Short: 'q', Arg: R, Metavar: "name", Group: groupJob, Env: "_QOS", Help: "quality of service",
			Set: getopt.Text(&sp.QOS)},
		{Name: "reservation", Arg: R, Metavar: "names", Group: groupJob, Env: "_RESERVATION",
			Help: "run in this reservation; of several, in the first with room (see gcontrol show reservation)",
			Set:  getopt.Text(&sp.Reservation)},
		{Name: "wckey", Arg: R, Metavar: "key", Group: groupJob, Env: "_WCKEY",
			Help: "the workload that its usage counts for, if the cluster keeps usage by wckeys", Set: getopt.Text(&sp.WCKey)},
		{Name: "comment", Arg: R, Metavar: "text", Group: groupJob, Help: "a comment that gqueue and gacct show",
			Set: getopt.Text(&sp.Comment)},
		{Name: "array", Short: 'a', Arg: R, Metavar: "indexes", Group: groupJob, Env: "_ARRAY_INX",
			Help: "submit an array: 0-15, 1,3,5 or 0-99%8 (at most 8 at once)", Set: func(v string) (err error) {
				if v == "" { // --array=$TASKS of a script that has none
					sp.Tasklist, sp.Throttle, sp.ArrayText = nil, 0, ""
					return nil
				}
				if sp.Tasklist, sp.Throttle, err = model.ParseTaskSet(v, 1<<30); err != nil {
					return &getopt.TextError{Submission: true, Text: "Invalid job array specification: " +
						strings.TrimPrefix(err.Error(), model.ErrTaskSet.Error()+": ")}
				}
				sp.ArrayText = v
				return nil
			}},
		{Name: "requeue", Arg: getopt.Optional, Metavar: "expedite", Group: groupJob, Slot: "requeue", Env: "_REQUEUE",
			Help: "requeue the job when its node fails; expedite: it starts again before others, on nodes kept for it",
			Set:  s.requeue},
		{Name: "no-requeue", Group: groupJob, Slot: "requeue", Env: "_NO_REQUEUE", Help: "never requeue the job",
			Set: func(string) error { sp.Requeue, sp.NoRequeue, s.More.Expedite = false, true, false; return nil }},
		{Name: "requeue-on-oom", Group: groupJob, Env: "_REQUEUE_ON_OOM",
			Help: "requeue the job with a fifth more --gpu-mem, up to 3 times, when it fails for lack of GPU memory",
			Set:  func(string) error { s.More.OOMRequeue = true; return nil }},
		{Name: "nice", Arg: getopt.Optional, Metavar: "n", Group: groupJob,
			Help: "lower the priority by n (100); operators may raise it with a negative n", Set: func(v string) error {
				if v == "" {
					v = "100"
				}
				err := getopt.Number(&sp.Nice, -mostNice, mostNice)(v)
				if n := new(getopt.NumberError); errors.As(err, &n) && (n.Why != "" || len(v) > 9) {
					return &getopt.TextError{Text: fmt.Sprintf("Invalid --nice value, out of range (+/- %d)", mostNice)}
				}
				return err
			}},
		{Name: "priority", Arg: R, Metavar: "n", Group: groupJob,
			Help: "set the priority (operators); TOP is ahead of all",
			Set: func(v string) error {
				if strings.EqualFold(v, "TOP") {
					v = topPriority
				}
				n, err := strconv.ParseInt(v, 10, 64)
				switch {
				case err != nil:
					return &getopt.NumberError{Value: v}
				case n < 0:
					return &getopt.TextError{Text: "Priority must be >= 0"}
				case n > 1<<32-2:
					return &getopt.TextError{Text: fmt.Sprintf("Priority must be < %d", uint32(1<<32-2))}
				}
				if n == 0 {
					sp.HoldReq = true
				}
				sp.PrioReq = uint32(n)
				return nil
			}},
	}
}

// mostNice is the most that --nice takes, up and down.
const mostNice = 2147483645

// topPriority is the number that --priority=TOP stands for.
const topPriority = "4294967293"

// whenOptions say when the job runs.
func (s *Submission) whenOptions(moment func(string) (model.Time, error)) []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "signal", Arg: R, Metavar: "[RB:]sig[@sec]", Group: groupWhen, Env: "_SIGNAL",
			Help: "send a signal to the steps (B: to the script) sec seconds before the time limit (60)",
			Set: func(v string) (err error) {
				sp.Warning, err = ParseWarning(v)
				return err
			}},
		{Name: "time", Short: 't', Arg: R, Metavar: "limit", Group: groupWhen, Env: "_TIMELIMIT",
			Help: "time limit: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED",
			Set:  Limit("time", func(sec int64) { sp.LimitS = sec })},
		{Name: "time-min", Arg: R, Metavar: "limit", Group: groupWhen,
			Help: "lowest time limit that the job accepts if it can then start sooner", Set: s.timeMin},
		{Name: "deadline", Arg: R, Metavar: "time", Group: groupWhen,
			Help: "end the job (DEADLINE) when it can no longer finish by this time: 18:00, 2026-12-24T18:00, now+2days",
			Set:  date(moment, &sp.Deadline)},
		{Name: "begin", Short: 'b', Arg: R, Metavar: "time", Group: groupWhen,
			Help: "earliest start: 16:00, now+1hour, 2026-12-24T18:00", Set: date(moment, &sp.Begin)},
		{Name: "dependency", Short: 'd', Arg: R, Metavar: "conditions", Group: groupWhen,
			Help: "start after other jobs: afterok:ID, afterany:ID, afternotok:ID, after:ID[+minutes], aftercorr:ID, " +
				"singleton; joined with , (all) or ? (any); expand:ID", Set: func(v string) (err error) {
				if sp.Deps, sp.DepAny, err = model.ParseDeps(v); err != nil {
					return &getopt.TextError{Submission: true, Text: "Job dependency problem: " + err.Error()}
				}
				sp.DepText = v
				return nil
			}},
		{Name: "kill-on-invalid-dep", Arg: R, Metavar: "yes|no", Group: groupWhen,
			Help: "cancel the job when its dependencies can no longer be met", Set: func(v string) error {
				yes, err := env.YesNo(v)
				sp.KillOnDep, s.More.KeepOnDep = yes, !yes
				return err
			}},
		{Name: "hold", Short: 'H', Group: groupWhen, Help: "hold the job; gcontrol release releases it",
			Set: getopt.Flag(&sp.HoldReq)},
		{Name: "no-preempt", Group: groupWhen,
			Help: "never preempt the job; its QOS must have Flags=NoPreempt",
			Set:  getopt.Flag(&s.More.NoPreempt)},
		{Name: "no-kill", Short: 'k', Arg: getopt.Optional, Metavar: "off", Group: groupWhen, Env: "_NO_KILL",
			Help: "go on without nodes that fail, as long as the first one is up",
			Set:  NoKill(&s.More.NoKill)},
		{Name: "wait-all-nodes", Arg: R, Metavar: "0|1", Group: groupWhen, Env: "_WAIT_ALL_NODES",
			Help: "accepted, without effect: a job starts when all its nodes are up", Set: func(v string) error {
				if v != "0" && v != "1" {
					return fmt.Errorf("'%s'; write 0 or 1", v)
				}
				return nil
			}},
	}
}

// fileOptions set input, output and environment.
func (s *Submission) fileOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "output", Short: 'o', Arg: R, Metavar: "file", Group: groupFiles, Env: "_OUTPUT",
			Help: "standard output; patterns: %j (job), %A_%a (array), %x (name), %u (user), %N (node)",
			Set:  getopt.Text(&sp.StdOut)},
		{Name: "error", Short: 'e', Arg: R, Metavar: "file", Group: groupFiles, Env: "_ERROR",
			Help: "standard error; by default the same file as the output", Set: getopt.Text(&sp.StdErr)},
		{Name: "input", Short: 'i', Arg: R, Metavar: "file", Group: groupFiles, Env: "_INPUT",
			Help: "standard input; /dev/null by default", Set: getopt.Text(&sp.StdIn)},
		{Name: "open-mode", Arg: R, Metavar: "append|truncate", Group: groupFiles, Env: "_OPEN_MODE",
			Help: "append to an existing output file, or truncate it", Set: func(v string) error {
				switch {
				case v != "" && strings.HasPrefix("append", v):
					s.openMode = "a"
				case v != "" && strings.HasPrefix("truncate", v):
					s.openMode = "t"
				default:
					return fmt.Errorf("'%s'; write append or truncate", v)
				}
				return nil
			}},
		{Name: "chdir", Aliases: []string{"workdir"}, Short: 'D', Arg: R, Metavar: "dir", Group: groupFiles,
			Env:  "_CHDIR",
			Help: "working directory of the job", Set: getopt.Text(&s.Chdir)},
		{Name: "export", Arg: R, Metavar: "ALL|NONE|NAMES", Group: groupFiles, Env: "_EXPORT",
			Help: "variables for the job: ALL (default), NONE, or names and NAME=value; add ALL for all others",
			Set:  getopt.Text(&s.Export)},
		{Name: "export-file", Arg: R, Metavar: "file", Group: groupFiles, Env: "_EXPORT_FILE",
			Help: "read variables for the job from a file of NAME=value, each ended by a NUL",
			Set:  getopt.Text(&s.exportTo)},
		{Name: "propagate", Arg: getopt.Optional, Metavar: "limits", Group: groupFiles,
			Help: "resource limits that the job inherits: ALL, NONE or names (CORE, NOFILE, ...)",
			Set: func(v string) error {
				s.limits, s.limitsOn = v, true
				_, err := ResourceLimits(v)
				return err
			}},
		{Name: "get-user-env", Arg: getopt.Optional, Metavar: "seconds[L|S]", Group: groupFiles, Env: "_GET_USER_ENV",
			Help: "add the variables of your login shell on the node, which may take so many seconds (8); S: a plain shell",
			Set:  s.userEnvironment},
	}
}

// commandOptions control gsubmit itself.
func (s *Submission) commandOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "wrap", Arg: R, Metavar: "command", Group: groupHow, Help: "submit a command without a script",
			ArgsOnly: true,
			Set:      func(v string) error { s.wrap, s.hasWrap = v, true; return nil }},
		{Name: "each", Arg: R, Metavar: "file|-", Group: groupHow,
			Help: "a job for each line of the file (-: standard input): its words are the script's arguments, with " +
				"--wrap $1, $2, ...", ArgsOnly: true,
			Set: getopt.Text(&s.Each)},
		{Name: "parsable", Group: groupHow, Help: "print only the job's id", Set: getopt.Flag(&s.Parsable)},
		{Name: "wait", Short: 'W', Group: groupHow, Env: "_WAIT",
			Help: "return when the job has ended, with its exit code",
			Set:  getopt.Flag(&s.Wait)},
		{Name: "test-only", Group: groupHow, Help: "submit nothing; print whether, where and when the job could run",
			Set: getopt.Flag(&s.TestOnly)},
		{Name: "quiet", Short: 'Q', Group: groupHow, Help: "print no notes", Set: getopt.Flag(&s.Quiet)},
		{Name: "verbose", Short: 'v', Group: groupHow, Env: "_DEBUG", Help: "print the options as understood",
			Set: getopt.Count(&s.Verbose)},
		{Name: "mail-type", Arg: R, Metavar: "types", Group: groupHow, Env: "_MAIL_TYPE",
			Help: "send mail at BEGIN, END, FAIL, REQUEUE, ALL, TIME_LIMIT, TIME_LIMIT_50 (80, 90), INVALID_DEPEND, " +
				"STAGE_OUT, NONE; one mail for an array, with ARRAY_TASKS one for each task", Set: func(v string) error {
				types, err := model.ParseMailTypes(v)
				if err != nil {
					return &getopt.TextError{Text: "Invalid --mail-type specification: " + err.Error()}
				}
				if s.mail.Types |= types; types == 0 {
					s.mail.Types = 0 // NONE
				}
				return nil
			}},
		{Name: "mail-user", Arg: R, Metavar: "addresses", Group: groupHow, Env: "_MAIL_USER",
			Help: "mail addresses, separated by commas (default: you)", Set: func(v string) error {
				v = strings.Join(env.SplitList(v), ",")
				if err := model.CheckMailUser(v); v != "" && err != nil {
					return &getopt.TextError{Text: "Invalid --mail-user specification: " + err.Error()}
				}
				s.mail.User = v
				return nil
			}},
		{Name: "uid", Arg: R, Env: "", Metavar: "user", Group: groupHow,
			Help: "only you; for another user use su or sudo",
			Set:  env.Own("--uid", "submit as that user, with su or sudo", unix.Getuid, env.UIDOf)},
		{Name: "gid", Arg: R, Metavar: "group", Group: groupHow, Help: "only your group; for another group, use " +
			"newgrp or sg",
			Set: env.Own("--gid", "submit with that group, with newgrp or sg", unix.Getgid, env.GIDOf)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: R, Metavar: "name", Group: groupHow,
			Env: "_CLUSTERS SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&s.Clusters)},
	}
}

// foreignOptions are Slurm's options that gbatch refuses, or that have no effect.
func (s *Submission) foreignOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "ignore-pbs", Group: groupFiles, Env: "_IGNORE_PBS", Help: "don't read the script's #PBS and #BSUB lines",
			Set: getopt.Flag(new(bool))},
		{Name: "power", Arg: R, Env: "_POWER", Note: "power is not managed by jobs", Set: env.Ignored},
		{Name: "batch", Arg: R, Metavar: "features", Group: groupNeeds, Env: "_BATCH",
			Help: "features, out of those of --constraint, " +
				"of the node that runs the script", Set: getopt.Text(&s.batch)},
		{Name: "resv-ports", Arg: getopt.Optional, Refused: "grun --resv-ports in the script"},
		{Name: "bbf", Arg: R, Note: "there is no burst buffer", Set: env.Ignored},
		{Name: "mcs-label", Arg: R, Note: NoMCSLabels, Set: env.Ignored},
		{Name: "core-spec", Short: 'S', Arg: R, Env: "_CORE_SPEC", Note: "cores are not set aside by jobs",
			Set: getopt.Flag(&s.coreSpec)},
		{Name: "thread-spec", Arg: R, Env: "_THREAD_SPEC", Note: "threads are not set aside by jobs",
			Set: getopt.Flag(&s.threadSpec)},
		{Name: "cluster-constraint", Arg: R, Note: "there is one cluster", Set: env.Ignored},
		{Name: "stepmgr", Note: "steps need no manager of their own", Set: env.Ignored},
		{Name: "licences", Hidden: true, Arg: R, Refused: "use --licenses"},
	}
}

// NotForAllocations are options of gsubmit that make no sense without a script.
var NotForAllocations = []string{"array", "requeue", "no-requeue", "requeue-on-oom", "output", "error", "input",
	"open-mode", "export", "export-file", "wrap", "each", "parsable", "wait", "test-only", "ignore-pbs", "propagate",
	"get-user-env", "batch"}
