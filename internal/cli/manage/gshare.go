package manage

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/clustertext"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// share is one call of gshare.
type share struct {
	*env.Env
	rq       proto.SharesRequest
	style    format.Style
	fields   string
	clusters []string
	noUsers  bool // -u was given with an empty list

	json string // the version of the list

	all, long, usersOnly, noHeader, byPartition, verbose bool
}

// Gshare lists accounts and users with their shares and usage.
func Gshare(e *env.Env) int {
	s := &share{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(), getopt.HelpOptions(0)...),
		EnvPrefix: "SSHARE", Values: func(o string) (getopt.Values, bool) {
			lang := clustertext.ShareLanguage()
			return getopt.Fields(lang.Names()...), o == "format"
		},
		About: "List accounts with their shares and usage, and below each your own share; -a: of all users. RawUsage is in " +
			"seconds of billing units (CPUs, or as TRESBillingWeights say), decayed by PriorityDecayHalfLife; " +
			"running jobs count."})
	args := e.Args
	if n := len(args); n > 0 && (args[n-1] == "-A" || args[n-1] == "--accounts") {
		args = append(args[:n:n], "") // sshare -A, as people type it: all accounts
	}
	operands, err := p.Parse(args, e.Lookup)
	switch {
	case errors.Is(err, env.ErrHelpFormat):
		_, _ = e.Stdout.Write(clustertext.ShareLanguage().AppendNames(nil)) // gcli's flush reports errors
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
					if uid, err := env.UIDOf(name); err == nil { // unknown users may still have an association
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
		{Name: "noheader", Short: 'n', Help: "print no header", Set: getopt.Flag(&s.noHeader)},
		{Short: 'h', Help: "print no header", Set: getopt.Flag(&s.noHeader)},
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
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&s.clusters)},
		{Name: "verbose", Short: 'v', Help: "say whose lines are asked for", Set: getopt.Flag(&s.verbose)},
		s.JSON("", "JSON, in Slurm's shape", &s.json),
		s.YAML("", &s.json),
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
	table, err := clustertext.ShareLanguage().Table(s.columns(), s.style)
	if err != nil {
		return env.Fatal{Text: err.Error()}
	}
	if !s.all && len(s.rq.Names) == 0 && !s.noUsers {
		s.rq.Users = []uint32{uint32(os.Getuid())}
		if me, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
			s.rq.Names = []string{me.Username}
		}
	}
	if s.verbose {
		s.sayWhose()
	}
	if len(s.rq.Users) == 0 && len(s.rq.Names) > 0 {
		s.rq.Users = []uint32{math.MaxUint32} // no user's id, so that only names select
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.CheckClusters(c, s.clusters); err != nil {
		return err
	}
	asked := s.json != ""
	for f := range table.Fields {
		asked = asked || f.Name == "Cluster"
	}
	asked = asked || len(s.clusters) > 0
	cluster := ""
	if asked {
		if cluster, err = env.ClusterName(c); err != nil {
			return err
		}
	}
	var reply proto.SharesReply
	if err := c.Call(proto.KindShares, &s.rq, &reply); err != nil {
		return err
	}
	outer := int32(0)
	if len(s.rq.Accounts) > 0 {
		reply.Rows, outer = onlyNamed(reply.Rows, s.rq.Accounts)
	}
	var rows []clustertext.ShareRow
	for i := range reply.Rows {
		r := &reply.Rows[i]
		if s.usersOnly && r.User == "" || s.noUsers && r.User != "" {
			continue
		}
		rows = append(rows, clustertext.ShareRow{ShareRow: r, Cluster: cluster, Flat: s.usersOnly, Outer: outer})
	}
	if s.json != "" {
		return s.writeJSON(rows, cluster)
	}
	clustertext.ListTRES(rows)
	if len(s.clusters) > 0 {
		fmt.Fprintf(s.Stdout, "CLUSTER: %s\n", cluster)
	}
	return table.Write(s.Stdout, rows, !s.noHeader)
}

// sayWhose prints whose lines are asked for, as Slurm does.
func (s *share) sayWhose() {
	users := s.rq.Names
	if s.all {
		users = nil
	}
	for _, x := range []struct {
		what  string
		names []string
	}{{"Users", users}, {"Accounts", s.rq.Accounts}} {
		fmt.Fprintf(s.Stderr, "%s requested:\n", x.what)
		if len(x.names) == 0 {
			x.names = []string{"all"}
		}
		for _, name := range x.names {
			fmt.Fprintf(s.Stderr, "\t: %s\n", plain.Line(name))
		}
	}
}

// onlyNamed leaves out the root unless it is named: then the tree begins with the accounts that are, outer levels down.
func onlyNamed(rows []proto.ShareRow, accounts []string) (named []proto.ShareRow, outer int32) {
	rows = slices.DeleteFunc(rows, func(r proto.ShareRow) bool { return !model.HasAccount(accounts, r.Account) })
	if len(rows) == 0 {
		return rows, 0
	}
	outer = math.MaxInt32
	for i := range rows {
		outer = min(outer, rows[i].Depth)
	}
	return rows, outer
}

// writeJSON writes the list in the shape of Slurm's data_parser.
func (s *share) writeJSON(rows []clustertext.ShareRow, cluster string) error {
	j := slurmjson.New(s.ListOut(), s.json)
	j.Open("", '{')
	j.Open("shares", '{')
	j.Open("shares", '[')
	fields := clustertext.ShareJSON()
	for i := range rows {
		slurmjson.Write(j, "", fields, &rows[i])
		j.Flush(false)
	}
	j.Close(']')
	j.Num("total_shares", int64(len(rows)))
	j.Close('}')
	return s.JSONTail(j, cluster, 0)
}
