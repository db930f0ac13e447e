package acct

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// gacct lists jobs from the accounting daemon: a line for each allocation, one for its batch step and one for each of
// its steps. Lines are printed as records arrive, in order of job id; those of arrays come last, an array's tasks
// together, as in sacct.

// account is one call of gacct.
type account struct {
	*env.Env
	rq       proto.AcctRequest
	now      time.Time
	jobs     []acctWant
	noJobs   bool // -j was given and names nothing
	anyJob   bool // -j was given
	allUsers bool
	start    string
	end      string
	fields   string
	brief    bool
	long     bool
	style    format.Style
	unit     byte
	json     string
	nodes    countRange
	cpus     countRange
	clusters []string

	leastLimit, mostLimit int64 // seconds; 0: any
	truncate              bool
	features, reasons     []string
	flags                 []string // -F

	noHeader, allocations, noConvert, expand, script, vars, events, array, verbose bool

	assocs  []string // -x; nil: any
	numbers *jobtext.Numbers

	live map[model.JobID][]proto.RunningStep // steps that run now, once a running job has come; see liveSteps
}

// acctWant is one job of -j, or only one step of it.
type acctWant struct {
	ref  model.JobRef
	step string // "", or the part after the point
}

func Gacct(e *env.Env) int {
	a := &account{Env: e, now: time.Now()}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(a.options(), getopt.HelpOptions('h')...),
		EnvPrefix: "SACCT", Values: values,
		Syntax: "[<OPTION>]", Heading: "Valid <OPTION> values are", Colons: true,
		About: "List jobs from accounting, ended ones too: today's, or those that -j, -S, -E and the " +
			"other filters pick.",
		Epilogue: "valid start/end time formats are...\n  HH:MM[:SS] [AM|PM]\n  MMDD[YY], MM/DD[/YY] or MM.DD[.YY]\n" +
			"  MM/DD[/YY]-HH:MM[:SS]\n  YYYY-MM-DD[THH:MM[:SS]]\n  now[{+|-}count[seconds|minutes|hours|days|weeks]]\n" +
			"  today, midnight, noon, fika (3 PM), teatime (4 PM)"})
	operands, err := p.Parse(e.Args, e.Lookup)
	var f env.Fatal
	switch {
	case errors.Is(err, env.ErrHelpFormat):
		lang := jobtext.RecordLanguage()
		_, _ = e.Stdout.Write(lang.AppendNames(nil)) // gcli's flush tells of errors
		return 0
	case errors.As(err, &f):
		return a.Fatal(f.Text)
	case err != nil:
		return e.Usage(p, err)
	case len(operands) > 0:
		e.Errorf("Unknown arguments:")
		for _, o := range operands {
			e.Errorf(" %s", o)
		}
		return 1
	case a.long && a.fields != "":
		return a.Fatal("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")
	case a.events && (a.json != "" || a.fields != "" || a.brief || a.long || a.script || a.vars):
		return a.Fatal("--events has lines of its own: leave out --json, --yaml, -o, -b, -l, -B and --env-vars")
	case a.script && a.vars:
		return a.Fatal("Options --batch-script and --env-vars are mutually exclusive. Please remove one and retry.")
	case a.vars && !a.anyJob:
		return a.Fatal("When requesting environment variables you must also request specific jobs with the '-j' option.")
	case a.script && !a.anyJob:
		return a.Fatal("When requesting job scripts you must also request specific jobs with the '-j' option.")
	}
	if err := a.window(); err != nil {
		e.Errorf("%v", err)
		return 1
	}
	if a.verbose {
		a.sayWindow()
	}
	if err := a.run(); err != nil {
		if errors.As(err, &f) {
			return a.Fatal(f.Text)
		}
		if c := env.Code(err); c == proto.CodeNoAccounting || c == proto.CodeNoController {
			e.Errorf("Problem talking to the database: %s", env.Text(err))
		} else {
			e.Errorf("%s", env.Text(err))
		}
		return 1
	}
	return 0
}

// run asks and prints.
func (a *account) run() error {
	if !a.allUsers && len(a.rq.Users) == 0 && !a.anyJob && os.Getuid() != 0 {
		a.rq.Users = []uint32{uint32(os.Getuid())}
	}
	lang := jobtext.RecordLanguage()
	fields := strings.TrimPrefix(a.fields, ",")
	if a.brief {
		fields += "," + acctBrief
	}
	if a.long {
		fields += "," + acctLong
	}
	if fields = strings.TrimPrefix(fields, ","); fields == "" {
		fields = acctFormat
	}
	p, err := lang.Table(fields, a.style)
	if err != nil {
		return env.Fatal{Text: err.Error()}
	}
	a.rq.Steps = !a.allocations && !a.script && !a.vars
	a.rq.Sizes = !a.script && !a.vars
	a.rq.Summaries = a.json != "" || strings.Contains(","+strings.ToLower(fields), ",adm")
	c, err := a.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := a.CheckClusters(c, a.clusters); err != nil {
		return err
	}
	if err := a.knownQOS(c); err != nil {
		return err
	}
	numbers, err := env.Numbers(c, p, len(a.assocs) > 0)
	if err != nil {
		return err
	}
	view := &jobtext.RecordView{Times: a.Times(a.now), BitLen: a.BitLen(), Unit: a.unit, NoConvert: a.noConvert,
		Expand: a.expand, Numbers: numbers}
	a.numbers = numbers
	switch {
	case a.events:
		return a.printEvents(c, view.Times)
	case a.json != "":
		return a.printJSON(c, view)
	case a.script || a.vars:
		return a.printScripts(c)
	}
	return a.printTable(c, view, p)
}

// knownQOS refuses a QOS that there is not, and takes numbers for names. Without a controller all are taken as they
// are.
func (a *account) knownQOS(c *client.Client) error {
	if len(a.rq.QOS) == 0 {
		return nil
	}
	var all []*model.QOS
	err := c.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var chunk proto.AccountsChunk
		err := c.Decode(body, &chunk)
		all = append(all, chunk.QOS...)
		return err
	})
	if err != nil || len(all) == 0 {
		return nil // gdbd answers alone, and knows the names in its records only
	}
	slices.SortFunc(all, func(a, b *model.QOS) int { return cmp.Compare(a.ID, b.ID) })
	var names []string
	for _, q := range all {
		names = append(names, q.Name)
	}
	for i, asked := range a.rq.QOS {
		k := slices.IndexFunc(all, func(q *model.QOS) bool {
			return q.Name == strings.ToLower(asked) || strconv.FormatUint(uint64(q.ID), 10) == asked
		})
		if k < 0 {
			a.Errorf("You gave a bad qos '%s'. Valid QOS's are %s", asked, strings.Join(names, ","))
			return env.Fatal{Text: "problem processing qos list"}
		}
		a.rq.QOS[i] = names[k]
	}
	return nil
}

// each gives the records that fit, with those of the job's steps where they are asked for.
func (a *account) each(c *client.Client, f func(r *model.Record, steps []*model.Record) error) error {
	if a.noJobs {
		return nil
	}
	var job *model.Record // until its last step has come
	var steps []*model.Record
	give := func() error {
		if job == nil {
			return nil
		}
		r := job
		job = nil
		if a.rq.Steps && r.State.HasResources() {
			steps = a.withLive(r, steps)
		}
		if a.array && r.TaskText != "" {
			return a.eachTask(r, f)
		}
		return f(r, steps)
	}
	err := c.Stream(proto.KindAcct, &a.rq, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			fmt.Fprintf(a.Stderr, "%s: %s\n", a.Program, chunk.Note)
		}
		for i, r := range chunk.Records {
			if r.Step != nil {
				if job != nil && job.Job == r.Job && job.Attempt == r.Attempt {
					a.clip(&r.Step.Start, &r.Step.End)
					steps = append(steps, r)
				}
				continue
			}
			if err := give(); err != nil {
				return err
			}
			if r.AdminComment == "" && i < len(chunk.Summaries) {
				r.AdminComment = summaryOf(r, chunk.Summaries[i])
			}
			if !a.nodes.has(int64(r.NumNodes)) || !a.cpus.has(int64(max(r.AllocCPUs, r.ReqCPUs))) || !a.limited(r) ||
				!a.scheduled(r) || !a.likes(r) {
				continue
			}
			a.clip(&r.Start, &r.End)
			job, steps = r, steps[:0]
		}
		return nil
	})
	if err != nil {
		return err
	}
	return give()
}

// eachTask gives each task of an array that waits, for --array, as a record of its own. Of those that -j names by their
// numbers, no others are given.
func (a *account) eachTask(r *model.Record, f func(r *model.Record, steps []*model.Record) error) error {
	list, _, _ := strings.Cut(r.TaskText, "%")
	tasks, _, err := model.ParseTaskSet(list, math.MaxInt32)
	if err != nil {
		return f(r, nil) // as it is kept
	}
	isNamed := func(task int32) bool {
		return len(a.jobs) == 0 || slices.ContainsFunc(a.jobs, func(w acctWant) bool {
			return names(&w.ref, r) && (w.ref.Task == model.NoTask || w.ref.Task == task)
		})
	}
	tasks.Each(func(task int32) bool {
		if isNamed(task) {
			one := *r
			one.Task, one.TaskText = task, ""
			err = f(&one, nil)
		}
		return err == nil
	})
	return err
}

// likes reports whether a job has one of -C's features, one of -R's reasons and one of -x's associations.
func (a *account) likes(r *model.Record) bool {
	asked := strings.FieldsFunc(r.Constraints, func(c rune) bool { return strings.ContainsRune("&|,[]()*: ", c) })
	row := jobtext.RecordRow{Record: r}
	isAsked := func(f string) bool { return slices.Contains(asked, f) }
	isReason := func(w string) bool { return strings.EqualFold(w, row.WaitedFor()) }
	if len(a.assocs) > 0 && !slices.Contains(a.assocs, a.numbers.OfAssoc(r.Account, r.User, r.Partition)) {
		return false
	}
	return (len(a.features) == 0 || slices.ContainsFunc(a.features, isAsked)) &&
		(len(a.reasons) == 0 || slices.ContainsFunc(a.reasons, isReason))
}

// summaryOf gives the AdminComment of a job for which administrators have written none: its JS1 summary, or the
// cluster's observation of a failure.
func summaryOf(r *model.Record, kept string) string {
	if why := r.SystemText(); kept == "" && why != "" {
		return why
	}
	if kept == "" && r.End != 0 && r.Exit.Use != nil && r.ShortForSummary() {
		return "JS1:Short"
	}
	return kept
}

// parts says which rows of a record to print. steps decides about its steps by number; nil means all.
func (a *account) parts(r *model.Record) (job, batch bool, steps map[string]bool) {
	job, batch = true, !a.allocations && jobtext.HasBatch(r)
	if !slices.ContainsFunc(a.jobs, func(w acctWant) bool { return w.step != "" }) {
		return job, batch, nil
	}
	job, steps = false, map[string]bool{}
	for _, w := range a.jobs {
		if !names(&w.ref, r) {
			continue
		}
		if w.ref.Task != model.NoTask && w.ref.Task != r.Task {
			continue
		}
		job = job || w.step == ""
		steps[w.step] = true
	}
	batch = batch && (job || steps["batch"])
	if job {
		steps = nil
	}
	return job, batch, steps
}

// names reports whether a reference names a record's job, its array or its heterogeneous job.
func names(ref *model.JobRef, r *model.Record) bool {
	switch {
	case r.Het != nil && ref.Het > 0:
		return ref.Job == r.Het.ID && ref.Het-1 == r.Het.Offset
	case r.Het != nil && ref.Job == r.Het.ID:
		return true
	}
	return ref.Job == r.Job || ref.Job == r.ArrayID && r.ArrayID != 0
}

func (a *account) printTable(c *client.Client, view *jobtext.RecordView, p *format.Printer[jobtext.RecordRow]) error {
	var b []byte
	if !a.noHeader {
		b = p.AppendHeader(b)
	}
	// Jobs stand in the order of submission. Of those of one second the arrays come last, and the tasks of an array stand
	// together. So from the first array on lines are held and sorted; too many are sorted in parts.
	type line struct {
		second int64
		array  model.JobID // 0: no task of an array
		job    model.JobID
		task   int64
		text   []byte
	}
	var held []line
	heldBytes := 0
	writeHeld := func() error {
		slices.SortStableFunc(held, func(x, y line) int {
			return cmp.Or(cmp.Compare(x.second, y.second), cmp.Compare(x.array, y.array), cmp.Compare(x.task, y.task),
				cmp.Compare(x.job, y.job))
		})
		for _, l := range held {
			b = append(b, l.text...)
		}
		held, heldBytes = nil, 0
		_, err := a.Stdout.Write(b)
		b = b[:0]
		return err
	}
	lines := func(b []byte, r *model.Record, steps []*model.Record) []byte {
		job, batch, only := a.parts(r)
		jobtext.SortSteps(steps)
		if job {
			b = p.AppendRow(b, &jobtext.RecordRow{Record: r, RecordView: view, Batch: false, OfStep: nil})
		}
		if batch {
			b = p.AppendRow(b, jobtext.RowOfBatch(r, view))
		}
		for _, s := range steps {
			if row := jobtext.RowOfStep(r, s, view); only == nil || only[row.StepName()] {
				b = p.AppendRow(b, row)
			}
		}
		return b
	}
	err := a.each(c, func(r *model.Record, steps []*model.Record) error {
		if r.ArrayID != 0 || len(held) > 0 {
			l := line{second: int64(r.Submit) / 1000, array: r.ArrayID, job: r.Job, text: lines(nil, r, steps)}
			if r.ArrayID != 0 {
				l.task = jobtext.TaskOrder(r.Task)
			}
			held = append(held, l)
			if heldBytes += len(l.text); heldBytes < maxHeld {
				return nil
			}
			return writeHeld()
		}
		if b = lines(b, r, steps); len(b) < slurmjson.FlushAt {
			return nil
		}
		_, err := a.Stdout.Write(b)
		b = b[:0]
		return err
	})
	if err != nil {
		return err // do not print a table that looks complete
	}
	return writeHeld()
}

// maxHeld bounds the bytes of lines that are held to be sorted.
const maxHeld = 32 << 20

// printScripts prints the batch scripts of the jobs of -j.
func (a *account) printScripts(c *client.Client) error {
	return a.each(c, func(r *model.Record, _ []*model.Record) error {
		what := "Batch Script"
		if a.vars {
			what = "Environment used"
		}
		fmt.Fprintf(a.Stdout, "%s for %d\n%s\n", what, r.Job, strings.Repeat("-", 80))
		var reply proto.ScriptReply
		one, err := a.Connect() // the first connection is in the middle of its answer
		if err != nil {
			return err
		}
		defer one.Close()
		switch err := one.Call(proto.KindScript, &proto.ScriptRequest{Job: r.Job, Env: a.vars}, &reply); {
		case env.Code(err) == proto.CodeInvalidJob:
			reply.Script = []byte("NONE")
		case err != nil:
			return err
		}
		if a.vars {
			reply.Script = bytes.ReplaceAll(bytes.TrimRight(reply.Script, "\x00"), []byte{0}, []byte{'\n'})
		}
		return a.Content(append(reply.Script, "\n\n"...))
	})
}

// The default fields, and those of -b and -l.
const (
	acctFormat = "jobid,jobname,partition,account,alloccpus,state,exitcode"
	acctBrief  = "jobid,state,exitcode"
	acctLong   = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode," +
		"maxrsstask," +
		"averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed," +
		"state," +
		"exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode," +
		"maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres," +
		"tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode," +
		"tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave," +
		"tresusageouttot"
)
