package clustertext

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// This file owns shares and usage of accounts and users, as sshare shows them.

// ShareRow is one line: an account, or a user in one.
type ShareRow struct {
	*proto.ShareRow
	Cluster string
	Flat    bool     // -U: no accounts above it, so no indentation
	Outer   int32    // how many levels of accounts above it are not in the list
	TRES    []string // what GrpTRESRaw and TRESRunMins list, of which there may be none
}

// ShareLanguage has gshare's columns, with sshare's names and widths, in the order in which a shortened name means the
// first that begins so.
func ShareLanguage() *format.Language[ShareRow] {
	type row = ShareRow
	f6 := func(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }
	return &format.Language[row]{Noun: "share", Fields: []format.Field[row]{
		{Name: "Account", Width: 20, Left: true, Get: func(r *row) string {
			if r.Flat {
				return r.Account
			}
			return strings.Repeat(" ", int(max(0, r.Depth-r.Outer))) + r.Account
		}},
		{Name: "Cluster", Width: 10, Get: func(r *row) string { return r.Cluster }},
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
		{Name: "GrpTRESMins", Width: 30, Get: func(r *row) string { return limitsText(r.GrpTRESMins) }},
		{Name: "GrpTRESRaw", Width: 30, Get: func(r *row) string { return countsText(r.TRES, r.TRESMins) }},
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
		{Name: "NormUsage", Width: 11, Get: func(r *row) string {
			if r.Depth == 0 {
				return ""
			}
			return f6(r.NormUsage)
		}},
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
		{Name: "TRESRunMins", Width: 30, Get: func(r *row) string { return countsText(r.TRES, r.RunMins) }},
		{Name: "User", Width: 10, Get: func(r *row) string { return r.User }},
	}}
}

// ShareJSON is the object of a share.
func ShareJSON() []slurmjson.Field[ShareRow] {
	type row = ShareRow
	type fields = []slurmjson.Field[row]
	real := func(name string, get func(r *row) float64) slurmjson.Field[row] {
		return slurmjson.Field[row]{Name: name, Real: func(r *row) (float64, bool) { return get(r), true }}
	}
	type amount = slurmjson.Field[model.TRESCount]
	counts := func(name string, value amount, get func(r *row) []model.TRESCount) slurmjson.Field[row] {
		return slurmjson.Slice(name, get,
			[]amount{{Name: "name", Str: func(t *model.TRESCount) string { return t.TRES }}, value})
	}
	seconds := func(t *model.TRESCount) int64 { return t.Count * 60 }
	return fields{
		{Name: "id", Int: func(r *row) int64 { return int64(r.ID) }},
		{Name: "cluster", Str: func(r *row) string { return r.Cluster }},
		{Name: "name", Str: func(r *row) string { return cmp.Or(r.User, r.Account) }},
		{Name: "parent", Str: func(r *row) string { return r.Parent }},
		{Name: "partition", Str: func(r *row) string { return r.ShareRow.Partition }},
		real("shares_normalized", func(r *row) float64 { return r.NormShares }),
		{Name: "shares", Num: func(r *row) (int64, bool, bool) { return r.RawShares, !r.UseParent, false }},
		{Name: "tres", Fields: fields{
			counts("run_seconds", amount{Name: "value", Count: seconds}, func(r *row) []model.TRESCount { return r.RunMins }),
			counts("usage", amount{Name: "value", Int: seconds}, func(r *row) []model.TRESCount { return r.TRESMins }),
			slurmjson.Slice("group_minutes", func(r *row) []model.TRESLimit { return r.GrpTRESMins },
				[]slurmjson.Field[model.TRESLimit]{
					{Name: "name", Str: func(l *model.TRESLimit) string { return l.TRES }},
					{Name: "value", Count: func(l *model.TRESLimit) int64 { return l.Count }},
				}),
		}},
		real("effective_usage", func(r *row) float64 { return r.Used }),
		real("usage_normalized", func(r *row) float64 { return r.NormUsage }),
		{Name: "usage", Int: func(r *row) int64 { return r.RawUsage }},
		{Name: "fairshare", Fields: fields{
			real("factor", func(r *row) float64 { return r.FairShare }),
			real("level", func(r *row) float64 { return r.LevelFS }),
		}},
		{Name: "type", Words: func(r *row) []string {
			if r.User != "" {
				return []string{"USER"}
			}
			return []string{"ASSOCIATION"}
		}},
	}
}

// ListTRES makes the rows list the resources of all of them, after those that Slurm counts everywhere.
func ListTRES(rows []ShareRow) {
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	known := len(names)
	for i := range rows {
		for _, t := range slices.Concat(rows[i].TRESMins, rows[i].RunMins) {
			if !slices.Contains(names, t.TRES) {
				names = append(names, t.TRES)
			}
		}
	}
	slices.Sort(names[known:])
	for i := range rows {
		rows[i].TRES = names
	}
}

// countsText writes amounts as cpu=1,mem=2,...
func countsText(names []string, list []model.TRESCount) string {
	var out []string
	for _, name := range names {
		n := int64(0)
		for _, t := range list {
			if t.TRES == name {
				n = t.Count
			}
		}
		out = append(out, name+"="+strconv.FormatInt(n, 10))
	}
	return strings.Join(out, ",")
}

// limitsText writes limits as gacctmgr takes them.
func limitsText(list []model.TRESLimit) string {
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
