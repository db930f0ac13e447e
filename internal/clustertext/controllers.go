package clustertext

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// This file owns controllers and licenses, as scontrol ping and show licenses have them.

// PingJSON is a controller's object.
func PingJSON() []slurmjson.Field[proto.ControllerInfo] {
	type row = proto.ControllerInfo
	word := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	return []slurmjson.Field[row]{
		{Name: "hostname", Str: func(c *row) string { return c.Name }},
		{Name: "pinged", Str: func(c *row) string { return word(c.Up, "UP", "DOWN") }},
		{Name: "responding", Bool: func(c *row) bool { return c.Up }},
		{Name: "latency", In: slurmjson.InNew, Int: func(c *row) int64 { return c.TookUS }},
		{Name: "mode", Str: func(c *row) string { return word(c.Leader, "primary", "backup") }},
		{Name: "primary", Bool: func(c *row) bool { return c.Leader }},
	}
}

// ControllersJSON is an object of gcontrol controllers.
func ControllersJSON() []slurmjson.Field[proto.ControllerState] {
	type row = proto.ControllerState
	return []slurmjson.Field[row]{
		{Name: "name", Str: func(c *row) string { return c.Name }},
		{Name: "address", Str: func(c *row) string { return c.Addr }},
		{Name: "role", Str: func(c *row) string { return c.Role }},
		{Name: "term", Int: func(c *row) int64 { return int64(c.Term) }},
		{Name: "applied_index", Int: func(c *row) int64 { return int64(c.Index) }},
		{Name: "entries_behind", Int: func(c *row) int64 { return c.Behind }},
		{Name: "heard_ms_ago", Int: func(c *row) int64 { return c.HeardMS }},
		{Name: "version", Str: func(c *row) string { return c.Version }},
		{Name: "health", Str: func(c *row) string { return c.Health }},
		{Name: "ok", Bool: func(c *row) bool { return c.Health == "ok" }},
	}
}

// LicenseOf is a license, and how many of it jobs and active reservations hold.
type LicenseOf struct {
	*model.LicenseCount
	Used, Reserved int64
}

// Free gives how many are left: none where the configuration has fewer than jobs hold.
func (l *LicenseOf) Free() int64 { return max(0, l.Count-l.Used) }

// LicensesOf gives the licenses of a configuration by name, or the named one.
func LicensesOf(reply *proto.ConfigReply, name string) (out []LicenseOf) {
	for i := range reply.Config.Licenses {
		l := LicenseOf{LicenseCount: &reply.Config.Licenses[i]}
		if name != "" && l.Name != name {
			continue
		}
		for _, u := range reply.LicensesInUse {
			if u.Name == l.Name {
				l.Used = u.Count
			}
		}
		for _, u := range reply.LicensesReserved {
			if u.Name == l.Name {
				l.Reserved = u.Count
			}
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b LicenseOf) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// LicenseJSON is a license's object.
func LicenseJSON() []slurmjson.Field[LicenseOf] {
	return []slurmjson.Field[LicenseOf]{
		{Name: "LicenseName", Str: func(l *LicenseOf) string { return l.Name }},
		{Name: "Total", Int: func(l *LicenseOf) int64 { return l.Count }},
		{Name: "Used", Int: func(l *LicenseOf) int64 { return l.Used }},
		{Name: "Free", Int: (*LicenseOf).Free},
		{Name: "Remote", Type: slurmjson.Boolean},
		{Name: "Reserved", Int: func(l *LicenseOf) int64 { return l.Reserved }},
		{Name: "LastConsumed", Type: slurmjson.Integer},
		{Name: "LastDeficit", Type: slurmjson.Integer},
		{Name: "LastUpdate", Type: slurmjson.Integer},
		{Name: "Nodes", Since: "v0.0.44"}, // of licenses that hierarchical resources are
	}
}
