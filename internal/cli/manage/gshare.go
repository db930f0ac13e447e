package manage

import (
	"errors"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// shareRow is one line: an account, or a user in one.
type shareRow struct {
	*proto.ShareRow
	cluster string
	flat    bool // -U: no accounts above it, so no indentation
}

// shareFields are gshare's columns, with sshare's names and widths, in the order in which a shortened name means the
// first that begins so.
func shareFields() *format.Language[shareRow] {
	type row = shareRow
	f6 := func(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }
	return &format.Language[row]{Noun: "share", Fields: []format.Field[row]{
		{Name: "Account", Width: 20, Left: true, Get: func(r *row) string {
			if r.flat {
				return r.Account
			}
			return strings.Repeat(" ", int(max(0, r.Depth))) + r.Account
		}},
		{Name: "Cluster", Width: 10, Get: func(r *row) string { return r.cluster }},
		{Name: "EffectvUsage", Width: 13, Get: func(r *row) string {
			if r.Depth == 0 {
				return f6(1)
			}
			return f6(r.Used)
		}},
		{Name: "FairShare", Width: 10, Get: func(r *row) string {
			if r.User == "" { // Fair Tree ranks users
				return ""
			}
			return f6(r.FairShare)
		}},
		{Name: "GrpTRESMins", Width: 30, Get: func(r *row) string { return tresLimits(r.GrpTRESMins) }},
		{Name: "GrpTRESRaw", Width: 30, Get: func(r *row) string { return tresCounts(r.TRESMins) }},
		{Name: "ID", Width: 6, Get: func(r *row) string { return strconv.FormatUint(uint64(r.ID), 10) }},
		{Name: "LevelFS", Width: 10, Get: func(r *row) string {
			switch {
			case r.Depth == 0:
				return ""
			case math.IsInf(r.LevelFS, 1):
				return "inf"
			}
			return f6(r.LevelFS)
		}},
		{Name: "NormShares", Width: 11, Get: func(r *row) string {
			if r.Depth == 0 {
				return f6(0)
			}
			return f6(r.NormShares)
		}},
		{Name: "NormUsage", Width: 11, Get: func(r *row) string { return f6(r.NormUsage) }},
		{Name: "Partition", Width: 12, Get: func(r *row) string { return r.ShareRow.Partition }},
		{Name: "RawShares", Width: 10, Get: func(r *row) string {
			switch {
			case r.Depth == 0:
				return ""
			case r.UseParent:
				return "parent"
			}
			return strconv.FormatInt(r.RawShares, 10)
		}},
		{Name: "RawUsage", Width: 11, Whole: true, Get: func(r *row) string { return strconv.FormatInt(r.RawUsage, 10) }},
		{Name: "TRESRunMins", Width: 30, Get: func(r *row) string { return tresCounts(r.RunMins) }},
		{Name: "User", Width: 10, Get: func(r *row) string { return r.User }},
	}}
}

// share is one call of gshare.
type share struct {
	*env.Env
	rq       proto.SharesRequest
	style    format.Style
	fields   string
	clusters []string
	noUsers  bool // -u was given and names nobody

	json string // the version of the list

	all, long, usersOnly, noHeader, byPartition bool
}

// Gshare lists accounts and users with their shares and what they have used.
func Gshare(e *env.Env) int {
	s := &share{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(), getopt.HelpOptions('h')...),
		EnvPrefix: "SSHARE",
		About: "List accounts with their shares and usage, and with them your own; -a for everybody's. RawUsage is in " +
			"seconds of billing units (CPUs, or as TRESBillingWeights say), faded by PriorityDecayHalfLife; " +
			"running jobs count."})
	args := e.Args
	if n := len(args); n > 0 && (args[n-1] == "-A" || args[n-1] == "--accounts") {
		args = append(args[:n:n], "") // sshare -A, as people type it: all accounts
	}
	operands, err := p.Parse(args, e.Lookup)
	switch {
	case errors.Is(err, env.ErrHelpFormat):
		_, _ = e.Stdout.Write(shareFields().AppendNames(nil)) // gcli's flush tells of errors
		return 0
	case err != nil:
		return e.Usage(p, err)
	case len(operands) > 0:
		e.Errorf("Unrecognized option: %s; pick lines with --accounts and --users", operands[0])
		return 1
	}
	if err := s.print(); err != nil {
		var f env.Fatal
		if errors.As(err, &f) {
			return e.Fatal(f.Text)
		}
		e.Errorf("%s", env.Text(err))
		return 1
	}
	return 0
}

func (s *share) options() []getopt.Option {
	return []getopt.Option{
		{Name: "all", Short: 'a', Help: "all users, not only yourself", Set: getopt.Flag(&s.all)},
		{Name: "accounts", Short: 'A', Arg: getopt.Required, Metavar: "names", Help: "only these accounts; empty: all",
			Set: getopt.List(&s.rq.Accounts)},
		{Name: "users", Short: 'u', Arg: getopt.Required, Metavar: "names", Help: "only these users",
			Set: func(v string) error {
				for _, name := range env.SplitList(v) {
					s.rq.Names = append(s.rq.Names, name)
					if uid, err := env.UIDOf(name); err == nil { // others may have an association all the same
						s.rq.Users = append(s.rq.Users, uid)
					}
				}
				s.noUsers = len(s.rq.Names) == 0
				return nil
			}},
		{Name: "Users", Short: 'U', Help: "lines of users only", Set: getopt.Flag(&s.usersOnly)},
		{Name: "long", Short: 'l', Help: "more columns", Set: getopt.Flag(&s.long)},
		{Name: "partition", Short: 'm', Help: "with a column for the partition of associations that have one",
			Set: getopt.Flag(&s.byPartition)},
		{Name: "noheader", Short: 'n', Help: "no headings", Set: getopt.Flag(&s.noHeader)},
		{Name: "format", Short: 'o', Arg: getopt.Required, Metavar: "fields",
			Help: "what to print, as in 'account%30,fairshare'; -e lists the fields", Set: func(v string) error {
				s.fields += "," + v
				return nil
			}},
		{Name: "helpformat", Short: 'e', Help: "list the fields that -o takes", Immediate: true,
			Set: func(string) error { return env.ErrHelpFormat }},
		{Name: "parsable", Short: 'p', Help: "fields ended by |",
			Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, false; return nil }},
		{Name: "parsable2", Short: 'P', Help: "fields with | between",
			Set: func(string) error { s.style.Parsable, s.style.NoTrailing = true, true; return nil }},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: getopt.List(&s.clusters)},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: env.Ignored},
		{Name: "json", Arg: getopt.Optional, Metavar: "version", Help: "JSON; " + slurmjson.Default + " without a version",
			Set: func(v string) (err error) {
				s.json, err = slurmjson.ParseVersion(v)
				return err
			}},
		{Name: "yaml", Arg: getopt.Optional, Refused: "use --json"},
	}
}

func (s *share) columns() string {
	columns := "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	if s.long {
		columns = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins," +
			"TRESRunMins"
	}
	if s.byPartition {
		columns = strings.Replace(columns, "User,", "User,Partition,", 1)
	}
	if s.fields != "" {
		columns = strings.TrimPrefix(s.fields, ",")
	}
	return columns
}

func (s *share) print() error {
	table, err := shareFields().Table(s.columns(), s.style)
	if err != nil {
		return env.Fatal{Text: err.Error()}
	}
	if !s.all && len(s.rq.Names) == 0 && !s.noUsers {
		s.rq.Users = []uint32{uint32(os.Getuid())}
		if me, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
			s.rq.Names = []string{me.Username}
		}
	}
	if len(s.rq.Users) == 0 && len(s.rq.Names) > 0 {
		s.rq.Users = []uint32{math.MaxUint32} // nobody's: only names pick
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.CheckClusters(c, s.clusters); err != nil {
		return err
	}
	cluster := ""
	for f := range table.Fields {
		if f.Name == "Cluster" && cluster == "" {
			if cluster, err = env.ClusterName(c); err != nil {
				return err
			}
		}
	}
	var reply proto.SharesReply
	if err := c.Call(proto.KindShares, &s.rq, &reply); err != nil {
		return err
	}
	var rows []shareRow
	for i := range reply.Rows {
		r := &reply.Rows[i]
		if s.usersOnly && r.User == "" || s.noUsers && r.User != "" {
			continue
		}
		rows = append(rows, shareRow{r, cluster, s.usersOnly})
	}
	if s.json != "" {
		if cluster, err = env.ClusterName(c); err != nil {
			return err
		}
		return s.writeJSON(rows, cluster)
	}
	return table.Write(s.Stdout, rows, !s.noHeader)
}

// writeJSON writes the list in the shape of Slurm's data_parser.
func (s *share) writeJSON(rows []shareRow, cluster string) error {
	j := slurmjson.New(s.Stdout, s.json)
	j.Open("", '{')
	j.Open("shares", '{')
	j.Open("shares", '[')
	for i := range rows {
		r := &rows[i]
		j.Open("", '{')
		j.Num("id", int64(r.ID))
		j.Str("cluster", cluster)
		name, kind := r.Account, "ASSOCIATION"
		if r.User != "" {
			name, kind = r.User, "USER"
		}
		j.Str("name", name)
		j.Str("parent", r.Parent)
		j.Str("partition", r.ShareRow.Partition)
		j.Real("shares_normalized", r.NormShares)
		j.Maybe("shares", r.RawShares, !r.UseParent, false)
		j.Open("tres", '{')
		for _, list := range []struct {
			name string
			have []model.TRESCount
		}{{"run_seconds", r.RunMins}, {"usage", r.TRESMins}} {
			j.Open(list.name, '[')
			for _, t := range list.have {
				j.Open("", '{')
				j.Str("name", t.TRES)
				j.Count("value", t.Count*60)
				j.Close('}')
			}
			j.Close(']')
		}
		j.Open("group_minutes", '[')
		for _, l := range r.GrpTRESMins {
			j.Open("", '{')
			j.Str("name", l.TRES)
			j.Count("value", l.Count)
			j.Close('}')
		}
		j.Close(']')
		j.Close('}')
		j.Real("effective_usage", r.Used)
		j.Real("usage_normalized", r.NormUsage)
		j.Num("usage", r.RawUsage)
		j.Open("fairshare", '{')
		j.Real("factor", r.FairShare)
		j.Real("level", r.LevelFS)
		j.Close('}')
		j.Words("type", kind)
		j.Close('}')
		j.Flush(false)
	}
	j.Close(']')
	j.Num("total_shares", int64(len(rows)))
	j.Close('}')
	return s.JSONTail(j, cluster, 0)
}

// tresCounts writes amounts as cpu=1,mem=2,...
func tresCounts(list []model.TRESCount) string {
	var out []string
	for _, t := range list {
		out = append(out, t.TRES+"="+strconv.FormatInt(t.Count, 10))
	}
	return strings.Join(out, ",")
}

// tresLimits writes limits as gacctmgr takes them.
func tresLimits(list []model.TRESLimit) string {
	var out []string
	for _, t := range list {
		n := strconv.FormatInt(t.Count, 10)
		if t.Percent {
			n = strconv.FormatFloat(float64(t.Count)/100, 'f', -1, 64) + "%"
		}
		out = append(out, t.TRES+"="+n)
	}
	return strings.Join(out, ",")
}
