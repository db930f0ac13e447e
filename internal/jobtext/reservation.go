package jobtext

import (
	"fmt"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// ReservationOf is a reservation with its size.
type ReservationOf struct {
	*model.Reservation
	Size *proto.ResvSize
}

func (v *ReservationOf) licenses() []string {
	var out []string
	for _, l := range v.Licenses {
		out = append(out, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	return out
}

// resvPart is the part of one node that a reservation takes. Its particular CPUs are chosen when jobs start.
type resvPart struct {
	node    string
	cpus    int32
	memMiB  int64
	gres    string
	hasGres bool
}

// parts gives the reservation's parts node by node, if it does not take whole nodes.
func (v *ReservationOf) parts(add func(*resvPart)) {
	for i := range v.Parts[:min(len(v.Parts), len(v.Nodes))] {
		p := resvPart{node: v.Nodes[i], cpus: v.Parts[i].CPUs, memMiB: v.Parts[i].MemMiB}
		if p.hasGres = i < len(v.Size.PartGres); p.hasGres {
			p.gres = v.Size.PartGres[i]
		}
		add(&p)
	}
}

// Versions whose list of flags has REPLACE_DOWN, and the last one whose list does not: strict clients refuse it there.
const newFlags, oldFlags = "v0.0.44", "v0.0.43"

// ReservationJSON is a reservation's object.
func ReservationJSON() []slurmjson.Field[ReservationOf] {
	type row = ReservationOf
	type fields = []slurmjson.Field[row]
	join := func(name string, get func(v *row) []string) slurmjson.Field[row] {
		return slurmjson.Field[row]{Name: name, Str: func(v *row) string { return strings.Join(get(v), ",") }}
	}
	return fields{
		join("accounts", func(v *row) []string { return v.Accounts }),
		{Name: "burst_buffer"},
		{Name: "core_count", Int: func(v *row) int64 { return v.Size.Cores }},
		slurmjson.ListOf("core_specializations", (*row).parts, []slurmjson.Field[resvPart]{
			{Name: "node", Str: func(p *resvPart) string { return p.node }},
			{Name: "cpus", Int: func(p *resvPart) int64 { return int64(p.cpus) }},
			{Name: "memory", Str: func(p *resvPart) string { return walltime.FormatMem(p.memMiB) }},
			{Name: "gres", If: func(p *resvPart) bool { return p.hasGres }, Str: func(p *resvPart) string { return p.gres }},
		}),
		{Name: "end_time", Time: func(v *row) model.Time { return v.End }},
		{Name: "features", Str: func(v *row) string { return v.Features }},
		{Name: "flags", Since: newFlags, List: func(v *row) []string { return v.Flags.Members() }},
		{Name: "flags", Until: oldFlags, List: func(v *row) []string {
			return (v.Flags &^ model.ResvNewMembers).Members()
		}},
		{Name: "gbatch", Until: oldFlags, If: func(v *row) bool { return v.Flags&model.ResvNewMembers != 0 },
			Fields: fields{{Name: "flags", List: func(v *row) []string {
				return (v.Flags & model.ResvNewMembers).Members()
			}}}},
		join("groups", func(v *row) []string { return v.Groups }),
		join("licenses", (*row).licenses),
		{Name: "max_start_delay", Int: func(v *row) int64 { return v.DelayS }},
		{Name: "name", Str: func(v *row) string { return v.Name }},
		{Name: "node_count", Int: func(v *row) int64 { return int64(len(v.Nodes)) }},
		{Name: "node_list", Str: func(v *row) string { return hostlist.CompressSorted(v.Nodes) }},
		{Name: "partition", Str: func(v *row) string { return v.Partition }},
		{Name: "purge_completed", Fields: fields{
			{Name: "time", Num: func(v *row) (int64, bool, bool) { return v.PurgeS, v.PurgeS > 0, false }},
		}},
		{Name: "start_time", Time: func(v *row) model.Time { return v.Start }},
		{Name: "watts", In: slurmjson.InOld, Fields: fields{{Name: "watts", Type: slurmjson.Number}}},
		{Name: "watts", In: slurmjson.InNew, Type: slurmjson.Number},
		{Name: "tres", Str: func(v *row) string { return resvTRES(v.Reservation, v.Size) }},
		join("users", func(v *row) []string { return v.Users }),
	}
}

// ShowReservation gives a reservation as scontrol show reservation does, at a time of the controller.
func ShowReservation(v *model.Reservation, size *proto.ResvSize, now model.Time, at *Times) *KeyValues {
	state := "INACTIVE"
	if v.Start <= now && now < v.End {
		state = "ACTIVE"
	}
	list := func(names []string) string { return orNull(strings.Join(names, ",")) }
	flags := v.Flags.Names()
	for i, f := range flags {
		if f == "PURGE_COMP" {
			flags[i] += "=" + walltime.Elapsed(v.PurgeS)
		}
	}
	lics := (&ReservationOf{v, size}).licenses()
	r := &KeyValues{}
	r.line(KV("ReservationName", v.Name), KV("StartTime", at.Stamp(v.Start, "N/A")), KV("EndTime", at.Stamp(v.End, "N/A")),
		KV("Duration", walltime.ElapsedLimit(int64(v.End-v.Start)/1000, false)))
	r.line(KV("Nodes", orNull(hostlist.CompressSorted(v.Nodes))), KV("NodeCnt", len(v.Nodes)), KV("CoreCnt", size.Cores),
		KV("Features", orNull(v.Features)),
		KV("PartitionName", orNull(v.Partition)), KV("Flags", strings.Join(flags, ",")))
	for i, name := range v.Nodes[:min(len(v.Parts), len(v.Nodes))] {
		p := &v.Parts[i]
		line := []string{"  " + KV("NodeName", name), KV("CPUs", p.CPUs), KV("Mem", walltime.FormatMem(p.MemMiB))}
		if i < len(size.PartGres) && size.PartGres[i] != "" {
			line = append(line, KV("GRES", size.PartGres[i]))
		}
		r.line(line...)
	}
	r.line("TRES=" + resvTRES(v, size))
	r.line(KV("Users", list(v.Users)), KV("Groups", list(v.Groups)), KV("Accounts", list(v.Accounts)),
		KV("Licenses", list(lics)), KV("State", state), "BurstBuffer=(null)", "Watts=n/a")
	delay := "(null)"
	if v.DelayS > 0 {
		delay = walltime.Elapsed(v.DelayS)
	}
	r.line(KV("MaxStartDelay", delay))
	return r
}
