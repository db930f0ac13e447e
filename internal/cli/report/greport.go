package report

import (
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/prompt"
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// call is one call of greport.
type call struct {
	*env.Env
	c        *client.Client
	rq       proto.ReportRequest
	cluster  string
	style    format.Style
	csv      bool // --csv: style's lines are comma-separated values
	noHeader bool
	quiet    bool
	json     string
	unit     string // of times: seconds, minutes, ...
	tres     []string
	tresSet  bool
	clusters []string

	start, end time.Time
	fields     string
	top        int
	group      bool
	tree       bool
	grouping   string
	count      bool
	flat       bool
	number     uint64 // of an invoice
	issued     bool
	current    bool
}

// reports are the reports by their kind, with the least letters that name each.
var reports = map[string][]struct {
	name string
	run  func(*call) error
}{
	"cluster": {{"AccountUtilizationByUser", (*call).accountByUser}, {"AccountUtilizationByQOS", (*call).accountByQOS},
		{"UserUtilizationByAccount", (*call).userByAccount}, {"UserUtilizationByWCKey", (*call).userByWCKey},
		{"Utilization", (*call).utilization}, {"WCKeyUtilizationByUser", (*call).wckeyByUser}},
	"job": {{"SizesByAccount", (*call).sizes}, {"SizesByAccountAndWCKey", (*call).sizesAndWCKey},
		{"SizesByWCKey", (*call).sizesByWCKey}, {"Waits", (*call).waits}, {"Completion", (*call).completion}},
	"reservation": {{"Utilization", (*call).reserved}},
	"user":        {{"TopUsage", (*call).topUsage}},
}

// kinds are the kinds of reports, in the order of --help.
var kinds = []string{"cluster", "job", "reservation", "user", "invoice", "usage", "balance"}

// modes are the commands that say how the later ones print, where commands are read from standard input.
var modes = []prompt.Mode{
	{Word: "nonames"}, {Word: "verbose", Off: []string{"-Q", "--quiet"}}, {Word: "quiet", On: "-Q"},
	{Word: "parsable", On: "-p", Off: []string{"-P"}}, {Word: "parsable2", On: "-P", Off: []string{"-p"}},
	{Word: "time", On: "-t", Value: true}, {Word: "tres", On: "--tres", Value: true},
}

// units are the formats of times.
var units = []string{"SecPer", "MinPer", "HourPer", "Seconds", "Minutes", "Hours", "Percent"}

// Greport reports usage.
func Greport(e *env.Env) int {
	r := &call{Env: e, unit: "Minutes", top: 10}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(r.options(), getopt.HelpOptions('h')...),
		EnvPrefix: "SREPORT", OperandValues: operands,
		Syntax: "[<OPTION>] [<COMMAND>]", UsageIsHelp: true, Heading: "Valid <OPTION> values are",
		About: "Report usage.",
		Epilogue: "Valid <COMMAND> values are:\n" +
			"  cluster AccountUtilizationByUser, AccountUtilizationByQOS, UserUtilizationByAccount, " +
			"UserUtilizationByWCKey, WCKeyUtilizationByUser, Utilization\n" +
			"  job SizesByAccount, SizesByAccountAndWCKey, SizesByWCKey, Waits, Completion\n" +
			"  reservation Utilization\n  user TopUsage\n  usage, invoice, balance: of money\n  help, version\n\n" +
			"Words KEY=VALUE follow: Start= and End= (default: yesterday; of money this month), " +
			"Accounts=, Users=, QOS=, Partitions=, Clusters=, Tres=, Format=; Tree; TopCount= and Group of " +
			"TopUsage; Grouping=, PrintJobCount, FlatView, GID=, Jobs=, Nodes= of jobs; Names= of reservations.\n\n" +
			"  greport cluster utilization start=2026-11-01 end=2026-12-01 -t percent\n" +
			"  greport user top start=now-7days topcount=20 -T gres/gpu -t hours"})
	words, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	switch {
	case len(words) == 0:
		return prompt.Run(e, prompt.Config{Do: Greport, Modes: modes})
	case prompt.Is(modes, words):
		return 0
	case strings.EqualFold(words[0], "version"):
		e.Version()
		return 0
	case strings.EqualFold(words[0], "help"):
		fmt.Fprint(e.Stdout, p.Help())
		return 0
	}
	if err := r.run(words); err != nil {
		var f env.Fatal
		if errors.As(err, &f) {
			return e.Fatal(f.Text)
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

func (r *call) options() []getopt.Option {
	return []getopt.Option{
		{Name: "tres", Short: 'T', Arg: getopt.Required, Metavar: "names", Env: "_TRES",
			Help: "resources to report, as in cpu,gres/gpu, or ALL; default cpu", Set: r.setTRES},
		{Short: 't', Arg: getopt.Required, Metavar: "format",
			Help: "of times: SecPer, MinPer, HourPer, Seconds, Minutes, Hours, Percent; default Minutes", Set: r.setUnit},
		{Name: "noheader", Short: 'n', Help: "print no header", Set: getopt.Flag(&r.noHeader)},
		{Name: "parsable", Short: 'p', Help: "fields ended by |",
			Set: func(string) error { r.style, r.csv = format.Style{Parsable: true}, false; return nil }},
		{Name: "parsable2", Short: 'P', Help: "fields with | between",
			Set: func(string) error { r.style, r.csv = format.Style{Parsable: true, NoTrailing: true}, false; return nil }},
		{Name: "csv", Help: "comma-separated values, with the columns' names in the first line", Set: func(string) error {
			r.style, r.csv = format.Style{Parsable: true, NoTrailing: true, Delimiter: ","}, true
			return nil
		}},
		{Name: "all_clusters", Short: 'a', Env: "_CLUSTER", Help: "of all clusters that gdbd has records of",
			Set: func(string) error { r.clusters = []string{"all"}; return nil }},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "of these clusters, or all; default: this one", Set: getopt.List(&r.clusters)},
		r.JSON("", "JSON", &r.json),
		r.YAML("", &r.json),
		{Name: "quiet", Short: 'Q', Help: "print no notes", Set: getopt.Flag(&r.quiet)},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "federation", Hidden: true, Note: "there are no federations; -M names clusters", Set: env.Ignored},
	}
}

// tresKinds are the kinds of resources that can be reported; those that end with a slash have a name behind it.
var tresKinds = []string{"cpu", "mem", "energy", "node", "billing", "pages", "vmem", "all", "fs/", "gres/", "license/",
	"bb/", "ic/"}

// setTRES leaves out names of no resource, as sreport does, and says so; all of them can't be left out.
func (r *call) setTRES(v string) error {
	r.tres, r.tresSet = nil, true
	var unknown []string
	for _, name := range env.SplitList(strings.ToLower(v)) {
		if slices.ContainsFunc(tresKinds, func(k string) bool {
			return k == name || strings.HasSuffix(k, "/") && strings.HasPrefix(name, k) && len(name) > len(k)
		}) {
			r.tres = append(r.tres, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	const forms = "write cpu, mem, node, energy, billing, gres/gpu, license/NAME or ALL"
	switch {
	case len(r.tres) == 0:
		return &getopt.TextError{Text: "No valid TRES given: '" + v + "'; " + forms}
	case len(unknown) > 0:
		r.Errorf("no resource is called %s; %s", strings.Join(unknown, ", "), forms)
	}
	return nil
}

func (r *call) setUnit(v string) error {
	for _, u := range units {
		if v != "" && len(v) <= len(u) && strings.EqualFold(u[:len(v)], v) && !(len(v) < 4 && strings.HasSuffix(u, "Per")) {
			r.unit = u
			return nil
		}
	}
	for _, u := range units { // sec is Seconds, secp SecPer
		if v != "" && len(v) <= len(u) && strings.EqualFold(u[:len(v)], v) {
			r.unit = u
			return nil
		}
	}
	return fmt.Errorf("unknown time format %s; it is one of %s", v, strings.Join(units, ", "))
}

// operands completes KIND REPORT KEY=.
func operands(before []string, _ string) getopt.Values {
	switch len(before) {
	case 0:
		v := getopt.Fields(kinds...)
		v.List = false
		return v
	case 1:
		kind, err := pick(before[0], kinds)
		if err != nil {
			return getopt.Values{}
		}
		if ofMoney(kind) {
			break
		}
		v := getopt.Fields(names(kind)...)
		v.List = false
		return v
	}
	v := getopt.Values{}
	for _, k := range keys {
		v.Words = append(v.Words, getopt.Word{Text: k})
	}
	return v
}

func names(kind string) (out []string) {
	for _, r := range reports[kind] {
		out = append(out, r.name)
	}
	return out
}

// pick finds the word that begins with v; exact words win.
func pick(v string, words []string) (string, error) {
	var found []string
	for _, w := range words {
		if strings.EqualFold(v, w) {
			return w, nil
		}
		if len(v) <= len(w) && v != "" && strings.EqualFold(w[:len(v)], v) {
			found = append(found, w)
		}
	}
	// sreport reads no more than the first letters of the one report of users: topusers, topuse and top-users are it.
	if len(found) == 0 && len(words) == 1 && len(v) > 3 && strings.EqualFold(v[:3], words[0][:3]) {
		return words[0], nil
	}
	if len(found) == 0 {
		return "", fmt.Errorf("Not valid report %s; there are %s", v, strings.Join(words, ", "))
	}
	return found[0], nil // as in sreport, the first
}

func (r *call) run(words []string) error {
	if len(words) > 0 {
		if kind, err := pick(words[0], kinds); err == nil && ofMoney(kind) {
			return r.money(kind, words[1:])
		}
	}
	if len(words) == 1 {
		return fmt.Errorf("too few arguments for keyword:%s; name a report, as in %s cluster utilization; --help lists them",
			words[0], r.Program)
	}
	if len(words) == 0 {
		return fmt.Errorf("name a report, as in %s cluster utilization; --help lists them", r.Program)
	}
	kind, err := pick(words[0], kinds)
	if err != nil {
		return err
	}
	name, err := pick(words[1], names(kind))
	if err != nil {
		return err
	}
	if err := r.keys(words[2:]); err != nil {
		return err
	}
	r.window(time.Now())
	if r.c, err = r.Connect(); err != nil {
		return err
	}
	defer r.c.Close()
	if r.cluster, err = env.ClusterName(r.c); err != nil {
		return err
	}
	switch {
	case len(r.clusters) == 0:
		r.rq.Clusters = []string{r.cluster}
	case r.clusters[0] != "all":
		r.rq.Clusters = r.clusters
	}
	for _, x := range reports[kind] {
		if x.name == name {
			return x.run(r)
		}
	}
	return nil
}

// keys are what may follow a report's name.
var keys = []string{"Start=", "End=", "Accounts=", "Users=", "QOS=", "Partitions=", "Clusters=", "All_Clusters",
	"Tres=", "Format=", "Tree", "TopCount=", "Group", "Grouping=", "PrintJobCount", "FlatView", "GID=",
	"Jobs=", "Nodes=", "Names=", "Number=", "Issued", "Current", "WCKeys="}

func (r *call) keys(words []string) error {
	for _, w := range words {
		if strings.EqualFold(w, "where") || strings.EqualFold(w, "set") {
			continue
		}
		key, v, has := strings.Cut(w, "=")
		name := ""
		for _, k := range keys {
			full := strings.TrimSuffix(k, "=")
			if strings.HasSuffix(k, "=") == has && key != "" && len(key) <= len(full) &&
				(strings.EqualFold(key, full) || name == "" && strings.EqualFold(full[:len(key)], key)) {
				name = full
			}
		}
		if name == "" && !has && len(key) >= 3 && strings.HasPrefix("acctasparent", strings.ToLower(key)) {
			return errors.New("AcctAsParent is not supported: leave it out; name the accounts to report with Accounts=")
		}
		if err := r.key(name, w, v); err != nil {
			return err
		}
	}
	return nil
}

func (r *call) key(name, word, v string) (err error) {
	switch name {
	case "Start":
		r.start, err = walltime.ParsePastDate(v, time.Now())
	case "End":
		r.end, err = walltime.ParsePastDate(v, time.Now())
	case "Accounts":
		r.rq.Accounts = append(r.rq.Accounts, env.SplitList(v)...)
	case "Users":
		r.rq.Users = append(r.rq.Users, env.SplitList(v)...)
	case "WCKeys":
		r.rq.WCKeys = append(r.rq.WCKeys, env.SplitList(v)...)
	case "QOS":
		r.rq.QOS = append(r.rq.QOS, env.SplitList(v)...)
	case "Partitions":
		r.rq.Partitions = append(r.rq.Partitions, env.SplitList(v)...)
	case "Clusters":
		r.clusters = append(r.clusters, env.SplitList(v)...)
	case "All_Clusters":
		r.clusters = []string{"all"}
	case "Tres":
		return r.setTRES(v)
	case "Format":
		r.fields += "," + v
	case "Tree":
		r.tree = true
	case "TopCount":
		r.top, err = strconv.Atoi(v)
		if err != nil || r.top < 1 {
			return fmt.Errorf("TopCount=%s is no number of users", v)
		}
	case "Group":
		r.group = true
	case "Grouping":
		r.grouping = v
	case "PrintJobCount":
		r.count = true
	case "FlatView":
		r.flat = true
	case "GID":
		for _, g := range env.SplitList(v) {
			id, err := strconv.ParseUint(g, 10, 32)
			if err != nil {
				group, lookErr := user.LookupGroup(g)
				if lookErr != nil {
					return fmt.Errorf("GID=%s: there is no such group", g)
				}
				if id, err = strconv.ParseUint(group.Gid, 10, 32); err != nil {
					return err
				}
			}
			r.rq.GIDs = append(r.rq.GIDs, uint32(id))
		}
	case "Jobs":
		for _, j := range env.SplitList(v) {
			id, err := strconv.ParseUint(j, 10, 32)
			if err != nil {
				return fmt.Errorf("Jobs=%s is no list of job numbers", v)
			}
			r.rq.Jobs = append(r.rq.Jobs, model.JobRef{Job: model.JobID(id), Task: model.NoTask})
		}
	case "Nodes":
		hosts, err := hostlist.Expand(v)
		r.rq.Nodes = append(r.rq.Nodes, hosts...)
		return err
	case "Number":
		r.number, err = strconv.ParseUint(strings.TrimPrefix(strings.ToUpper(v), "INV-"), 10, 64)
		if err != nil || r.number == 0 {
			return fmt.Errorf("Number=%s is no number of an invoice", v)
		}
	case "Issued":
		r.issued = true
	case "Current":
		r.current = true
	case "Names":
		r.rq.Resvs = append(r.rq.Resvs, env.SplitList(v)...)
	default:
		return fmt.Errorf("Unknown condition: %s; --help lists the keys", word)
	}
	return err
}

// window sets the report's time as sreport does: without Start from yesterday's midnight on, without End until the last
// midnight, at most until now, in whole hours and at least one.
func (r *call) window(now time.Time) {
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	if r.start.IsZero() {
		r.start = today.AddDate(0, 0, -1)
	}
	if r.end.IsZero() {
		r.end = today
	}
	if r.end.After(now) {
		r.end = now
	}
	r.start, r.end = nearestHour(r.start), nearestHour(r.end)
	if !r.start.Before(r.end) {
		r.end = r.start.Add(time.Hour)
	}
	r.rq.Start, r.rq.End = model.Time(r.start.UnixMilli()), model.Time(r.end.UnixMilli())
}

// nearestHour rounds to a whole hour: from 30 seconds on to the next minute, then from 30 minutes on to the next hour.
func nearestHour(t time.Time) time.Time {
	minute := t.Minute()
	if t.Second() >= 30 {
		minute++
	}
	hour := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, t.Location())
	if minute >= 30 {
		hour = hour.Add(time.Hour)
	}
	return hour
}

// ask asks gdbd through the controller.
func (r *call) ask(rq proto.ReportRequest) (*proto.ReportChunk, error) {
	all := &proto.ReportChunk{}
	err := r.c.Stream(proto.KindReport, &rq, func(body []byte) error {
		var c proto.ReportChunk
		if err := r.c.Decode(body, &c); err != nil {
			return err
		}
		if c.Note != "" && !r.quiet {
			fmt.Fprintf(r.Stderr, "%s: %s\n", r.Program, c.Note)
		}
		all.Rows, all.Uses = append(all.Rows, c.Rows...), append(all.Uses, c.Uses...)
		all.Resvs, all.Bills = append(all.Resvs, c.Resvs...), append(all.Bills, c.Bills...)
		all.Running += c.Running
		return nil
	})
	return all, err
}
