package cli

import (
	"fmt"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// gcontrol show reservations and licenses, --json.

// reservationsJSON writes all reservations, or the named one.
func (c *control) reservationsJSON(cl *client.Client, reply *proto.ReservationsReply, name string) error {
	cluster, err := clusterName(cl)
	if err != nil {
		return err
	}
	j := c.jsonFrame("reservations", c.json)
	for i, v := range reply.List {
		if name == "" || v.Name == name {
			writeReservationJSON(j, v, &reply.Sizes[i])
		}
	}
	return c.jsonFinish(j, c.json, cluster, reply.Now)
}

func writeReservationJSON(j *jsonText, v *model.Reservation, size *proto.ResvSize) {
	var lics []string
	for _, l := range v.Licenses {
		lics = append(lics, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	j.open("", '{')
	j.str("accounts", strings.Join(v.Accounts, ","))
	j.str("burst_buffer", "")
	j.num("core_count", size.Cores)
	j.open("core_specializations", '[')
	for i := range v.Parts[:min(len(v.Parts), len(v.Nodes))] { // which CPUs is settled when jobs come
		j.open("", '{')
		j.str("node", v.Nodes[i])
		j.num("cpus", int64(v.Parts[i].CPUs))
		j.str("memory", walltime.FormatMem(v.Parts[i].MemMiB))
		if i < len(size.PartGres) {
			j.str("gres", size.PartGres[i])
		}
		j.close('}')
	}
	j.close(']')
	j.time("end_time", v.End)
	j.str("features", v.Features)
	j.list("flags", v.Flags.Names())
	j.str("groups", strings.Join(v.Groups, ","))
	j.str("licenses", strings.Join(lics, ","))
	j.num("max_start_delay", 0)
	j.str("name", v.Name)
	j.num("node_count", int64(len(v.Nodes)))
	j.str("node_list", hostlist.CompressSorted(v.Nodes))
	j.str("partition", v.Partition)
	j.open("purge_completed", '{')
	j.maybe("time", v.PurgeS, v.PurgeS > 0, false)
	j.close('}')
	j.time("start_time", v.Start)
	j.open("watts", '{')
	j.unset("watts")
	j.close('}')
	j.str("tres", resvTRES(v, size))
	j.str("users", strings.Join(v.Users, ","))
	j.close('}')
}

// licensesJSON writes all licenses, or the named one.
func (c *control) licensesJSON(reply *proto.ConfigReply, name string) error {
	j := c.jsonFrame("licenses", c.json)
	for _, l := range reply.Config.Licenses {
		if name != "" && l.Name != name {
			continue
		}
		used := licenseUsed(reply, l.Name)
		j.open("", '{')
		j.str("LicenseName", l.Name)
		j.num("Total", l.Count)
		j.num("Used", used)
		j.num("Free", max(0, l.Count-used))
		j.bool("Remote", false)
		j.num("Reserved", 0)
		j.num("LastConsumed", 0)
		j.num("LastDeficit", 0)
		j.num("LastUpdate", 0)
		j.close('}')
	}
	return c.jsonFinish(j, c.json, reply.Config.Cluster, reply.Now)
}

// licenseUsed gives how many of a license jobs hold.
func licenseUsed(reply *proto.ConfigReply, name string) int64 {
	for _, u := range reply.LicensesInUse {
		if u.Name == name {
			return u.Count
		}
	}
	return 0
}
