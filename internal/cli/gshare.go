package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gbatch/internal/cli/format"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/proto"
)

// shareFields are gshare's columns, with Slurm's names and widths.
func shareFields() *format.Language[proto.ShareRow] {
	type row = proto.ShareRow
	f6 := func(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }
	none := func(*row) string { return "" }
	return &format.Language[row]{Noun: "share", Fields: []format.Field[row]{
		{Name: "Account", Width: 20, Left: true, Get: func(r *row) string { return strings.Repeat(" ", int(r.Depth)) + r.Account }},
		{Name: "User", Width: 10, Get: func(r *row) string { return r.User }},
		{Name: "RawShares", Width: 10, Get: func(r *row) string {
			if r.Depth == 0 {
				return ""
			}
			return strconv.FormatInt(r.RawShares, 10)
		}},
		{Name: "NormShares", Width: 11, Get: func(r *row) string { return f6(r.NormShares) }},
		{Name: "RawUsage", Width: 11, Get: func(r *row) string { return strconv.FormatInt(r.RawUsage, 10) }},
		{Name: "NormUsage", Width: 11, Get: func(r *row) string { return f6(r.NormUsage) }},
		{Name: "EffectvUsage", Width: 13, Get: func(r *row) string { return f6(r.NormUsage) }},
		{Name: "FairShare", Width: 10, Get: func(r *row) string {
			if r.Depth == 0 {
				return ""
			}
			return f6(r.FairShare)
		}},
		{Name: "LevelFS", Width: 10, Get: func(r *row) string {
			switch {
			case r.Depth == 0:
				return ""
			case r.NormUsage == 0:
				return "inf"
			}
			return f6(r.NormShares / r.NormUsage)
		}},
		{Name: "GrpTRESMins", Width: 30, Get: none},
		{Name: "TRESRunMins", Width: 30, Get: none},
		{Name: "Cluster", Width: 10, Get: none},
		{Name: "Partition", Width: 12, Get: none},
		{Name: "ID", Width: 6, Get: func(r *row) string { return strconv.Itoa(int(r.UID)) }},
	}}
}

// gshare lists accounts and users with their shares and what they have used.
func gshare(e *Env) int {
	var rq proto.SharesRequest
	var style format.Style
	var all, long, usersOnly, noHeader, helpFormat, me bool
	fields := "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	given := ""
	options := []getopt.Option{
		{Name: "all", Short: 'a', Help: "all users, not only your own row", Set: getopt.Flag(&all)},
		{Name: "accounts", Short: 'A', Arg: getopt.Required, Metavar: "names", Help: "only these accounts; empty: all", Set: func(v string) error { rq.Accounts = append(rq.Accounts, splitList(v)...); return nil }},
		{Name: "users", Short: 'u', Arg: getopt.Required, Metavar: "names", Help: "only these users", Set: func(v string) error {
			uids, err := parseUsers(v)
			rq.Users = append(rq.Users, uids...)
			all = true
			return err
		}},
		{Name: "Users", Short: 'U', Help: "rows of users only", Set: getopt.Flag(&usersOnly)},
		{Name: "long", Short: 'l', Help: "more columns", Set: getopt.Flag(&long)},
		{Name: "partition", Short: 'm', Help: "by partition too (shares are the same in all)", Set: ignored},
		{Name: "noheader", Short: 'n', Help: "no heading", Set: getopt.Flag(&noHeader)},
		{Name: "format", Aliases: []string{"Format"}, Short: 'o', Arg: getopt.Required, Metavar: "fields", Help: "columns, with %width", Set: getopt.Text(&given)},
		{Name: "helpformat", Short: 'e', Help: "list the columns", Set: getopt.Flag(&helpFormat)},
		{Name: "parsable", Short: 'p', Help: "separate with | and end with one", Set: func(string) error { style.Parsable = true; return nil }},
		{Name: "parsable2", Short: 'P', Help: "separate with |", Set: func(string) error { style.Parsable, style.NoTrailing = true, true; return nil }},
		{Name: "me", Hidden: true, Set: getopt.Flag(&me)},
		{Name: "verbose", Short: 'v', Hidden: true, Set: ignored},
		{Name: "json", Arg: getopt.Optional, Refused: "use --parsable2"},
		{Name: "yaml", Arg: getopt.Optional, Refused: "use --parsable2"},
		{Name: "clusters", Short: 'M', Arg: getopt.Required, Env: "SLURM_CLUSTERS", Refused: "set GBATCH_CONF to the other cluster's configuration"},
	}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(options, getopt.HelpOptions('h')...),
		About: "List accounts and users with their shares and usage. RawUsage is CPU-seconds of jobs that have ended."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.usage(p, err)
	}
	if len(operands) > 0 {
		e.errorf("unexpected argument '%s'; pick rows with --accounts and --users", operands[0])
		return 1
	}
	language := shareFields()
	if helpFormat {
		_, _ = e.Stdout.Write(language.AppendNames(nil)) // Main reports a failed flush
		return 0
	}
	if long {
		fields = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
	}
	if given != "" {
		fields = given
	}
	table, err := language.Table(fields, style)
	if err != nil {
		var unknown *format.UnknownError
		if errors.As(err, &unknown) {
			fmt.Fprintf(e.Stderr, "%s: fatal: %v\n", e.Program, unknown)
		} else {
			e.errorf("%v", err)
		}
		return 1
	}
	if usersOnly && !all && len(rq.Users) == 0 {
		rq.Users = []uint32{uint32(os.Getuid())}
	}
	if !all && !usersOnly && len(rq.Users) == 0 {
		rq.Users = []uint32{uint32(os.Getuid())}
	}
	c, err := e.connect()
	if err != nil {
		e.errorf("%s", text(err))
		return 1
	}
	defer c.Close()
	var reply proto.SharesReply
	if err := c.Call(proto.KindShares, &rq, &reply); err != nil {
		e.errorf("%s", text(err))
		return 1
	}
	var rows []proto.ShareRow
	for _, r := range reply.Rows {
		if usersOnly && r.User == "" || len(rq.Accounts) > 0 && r.Depth == 0 {
			continue
		}
		rows = append(rows, r)
	}
	if err := table.Write(e.Stdout, rows, !noHeader); err != nil {
		e.errorf("%v", err)
		return 1
	}
	return 0
}
