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

func ReservationJSON(j *slurmjson.Writer, v *model.Reservation, size *proto.ResvSize) {
	var lics []string
	for _, l := range v.Licenses {
		lics = append(lics, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	j.Open("", '{')
	j.Str("accounts", strings.Join(v.Accounts, ","))
	j.Str("burst_buffer", "")
	j.Num("core_count", size.Cores)
	j.Open("core_specializations", '[')
	for i := range v.Parts[:min(len(v.Parts), len(v.Nodes))] { // which CPUs is settled when jobs come
		j.Open("", '{')
		j.Str("node", v.Nodes[i])
		j.Num("cpus", int64(v.Parts[i].CPUs))
		j.Str("memory", walltime.FormatMem(v.Parts[i].MemMiB))
		if i < len(size.PartGres) {
			j.Str("gres", size.PartGres[i])
		}
		j.Close('}')
	}
	j.Close(']')
	j.Time("end_time", v.End)
	j.Str("features", v.Features)
	j.List("flags", v.Flags.Names())
	j.Str("groups", strings.Join(v.Groups, ","))
	j.Str("licenses", strings.Join(lics, ","))
	j.Num("max_start_delay", 0)
	j.Str("name", v.Name)
	j.Num("node_count", int64(len(v.Nodes)))
	j.Str("node_list", hostlist.CompressSorted(v.Nodes))
	j.Str("partition", v.Partition)
	j.Open("purge_completed", '{')
	j.Maybe("time", v.PurgeS, v.PurgeS > 0, false)
	j.Close('}')
	j.Time("start_time", v.Start)
	j.Open("watts", '{')
	j.Unset("watts")
	j.Close('}')
	j.Str("tres", resvTRES(v, size))
	j.Str("users", strings.Join(v.Users, ","))
	j.Close('}')
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
	var lics []string
	for _, l := range v.Licenses {
		lics = append(lics, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	r := &KeyValues{}
	r.line(KV("ReservationName", v.Name), KV("StartTime", at.Stamp(v.Start, "N/A")), KV("EndTime", at.Stamp(v.End, "N/A")),
		KV("Duration", walltime.ElapsedLimit(int64(v.End-v.Start)/1000, false)))
	r.line(KV("Nodes", hostlist.CompressSorted(v.Nodes)), KV("NodeCnt", len(v.Nodes)), KV("CoreCnt", size.Cores), KV("Features", orNull(v.Features)),
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
	r.line(KV("Users", list(v.Users)), KV("Groups", list(v.Groups)), KV("Accounts", list(v.Accounts)), KV("Licenses", list(lics)), KV("State", state), "BurstBuffer=(null)", "Watts=n/a")
	r.line("MaxStartDelay=(null)")
	return r
}
