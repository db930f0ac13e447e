package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// gcontrol --json, but for why.

// jobsJSON writes all jobs that the controller knows, or those that are named, as gqueue --json does.
func (c *control) jobsJSON(ids string) error {
	q := &queue{Env: c.Env, json: c.json, all: true}
	q.rq.Filter.States = model.JobStates()
	if ids != "" {
		refs, err := parseJobRefs(ids)
		if err != nil {
			return plain{fmt.Errorf("slurm_load_jobs error: %w", err)}
		}
		q.rq.Filter.Jobs = refs
	}
	if q.once() != 0 {
		return plain{errors.New("")} // it has said why
	}
	return nil
}

// nodesJSON writes nodes.
func (c *control) nodesJSON(infos []*proto.NodeInfo, now model.Time) error {
	cluster, err := clusterName(c.client)
	if err != nil {
		return err
	}
	j := c.jsonFrame("nodes", c.json)
	for _, i := range infos {
		writeNodeJSON(j, i, cluster)
		j.flush(false)
	}
	return c.jsonFinish(j, cluster, now)
}

// partitionsJSON writes partitions.
func (c *control) partitionsJSON(parts []*model.Partition, reply *proto.PartitionsReply) error {
	cluster, err := clusterName(c.client)
	if err != nil {
		return err
	}
	j := c.jsonFrame("partitions", c.json)
	for i, p := range reply.Partitions {
		if slices.Contains(parts, p) {
			writePartitionJSON(j, p, reply.TotalCPUs[i], cluster)
			j.flush(false)
		}
	}
	return c.jsonFinish(j, cluster, reply.Now)
}

func writePartitionJSON(j *jsonText, p *model.Partition, cpus int64, cluster string) {
	shown := map[string]string{}
	for _, k := range p.Show {
		shown[k.Key] = k.Value
	}
	object := func(name string, fill func()) {
		j.open(name, '{')
		fill()
		j.close('}')
	}
	minutes := func(name string, seconds int64) {
		j.maybe(name, (seconds+59)/60, seconds > 0 && seconds < model.Unlimited, seconds >= model.Unlimited)
	}
	j.open("", '{')
	j.str("name", p.Name)
	j.str("cluster", cluster)
	object("nodes", func() {
		j.str("allowed_allocation", "")
		j.str("configured", hostlist.Compress(p.Nodes))
		j.num("total", int64(len(p.Nodes)))
	})
	object("accounts", func() {
		j.str("allowed", strings.Join(p.AllowAccounts, ","))
		j.str("deny", strings.Join(p.DenyAccounts, ","))
	})
	object("groups", func() { j.str("allowed", strings.Join(p.AllowGroups, ",")) })
	object("qos", func() {
		j.str("allowed", strings.Join(p.AllowQOS, ","))
		j.str("deny", strings.Join(p.DenyQOS, ","))
		j.str("assigned", p.QOS)
	})
	object("tres", func() {
		j.str("billing_weights", shown["TRESBillingWeights"])
		j.str("configured", shown["TRES"])
	})
	object("cpus", func() { j.num("total", cpus) })
	object("defaults", func() {
		j.num("memory_per_cpu", p.DefMemPerCPU)
		minutes("time", p.DefTimeS)
		j.str("job", shown["JobDefaults"])
	})
	j.num("grace_time", p.GraceTimeS)
	object("maximums", func() {
		j.maybe("cpus_per_node", int64(p.MaxCPUsPerNode), p.MaxCPUsPerNode > 0, p.MaxCPUsPerNode == 0)
		j.num("memory_per_cpu", p.MaxMemPerCPU)
		j.maybe("nodes", int64(p.MaxNodes), p.MaxNodes > 0, p.MaxNodes == 0)
		j.num("shares", int64(max(1, p.ShareMax)))
		minutes("time", p.MaxTimeS)
	})
	object("minimums", func() { j.num("nodes", int64(max(1, p.MinNodes))) })
	object("priority", func() {
		j.num("job_factor", int64(p.PriorityJobFactor))
		j.num("tier", int64(p.PriorityTier))
	})
	object("partition", func() {
		j.list("state", []string{p.State.String()})
		j.bool("default", p.Default)
		j.bool("hidden", p.Hidden)
	})
	j.close('}')
}

// pingJSON writes which controllers answer and which leads.
func (c *control) pingJSON(r *proto.PingReply) error {
	j := c.jsonFrame("pings", c.json)
	for _, ctl := range r.Controllers {
		mode, state := "backup", "DOWN"
		if ctl.Leader {
			mode = "primary"
		}
		if ctl.Up {
			state = "UP"
		}
		j.open("", '{')
		j.str("hostname", ctl.Name)
		j.str("pinged", state)
		j.bool("responding", ctl.Up)
		j.str("mode", mode)
		j.bool("primary", ctl.Leader)
		j.close('}')
	}
	return c.jsonFinish(j, r.Cluster, r.Now)
}

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
	return c.jsonFinish(j, cluster, reply.Now)
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
	return c.jsonFinish(j, reply.Config.Cluster, reply.Now)
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
