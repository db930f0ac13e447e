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
	"gbatch/internal/slurmjson"
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
		j.Flush(false)
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
			j.Flush(false)
		}
	}
	return c.jsonFinish(j, cluster, reply.Now)
}

func writePartitionJSON(j *slurmjson.Writer, p *model.Partition, cpus int64, cluster string) {
	shown := map[string]string{}
	for _, k := range p.Show {
		shown[k.Key] = k.Value
	}
	object := func(name string, fill func()) {
		j.Open(name, '{')
		fill()
		j.Close('}')
	}
	minutes := func(name string, seconds int64) {
		j.Maybe(name, (seconds+59)/60, seconds > 0 && seconds < model.Unlimited, seconds >= model.Unlimited)
	}
	j.Open("", '{')
	j.Str("name", p.Name)
	j.Str("cluster", cluster)
	object("nodes", func() {
		j.Str("allowed_allocation", "")
		j.Str("configured", hostlist.Compress(p.Nodes))
		j.Num("total", int64(len(p.Nodes)))
	})
	object("accounts", func() {
		j.Str("allowed", strings.Join(p.AllowAccounts, ","))
		j.Str("deny", strings.Join(p.DenyAccounts, ","))
	})
	object("groups", func() { j.Str("allowed", strings.Join(p.AllowGroups, ",")) })
	object("qos", func() {
		j.Str("allowed", strings.Join(p.AllowQOS, ","))
		j.Str("deny", strings.Join(p.DenyQOS, ","))
		j.Str("assigned", p.QOS)
	})
	object("tres", func() {
		j.Str("billing_weights", shown["TRESBillingWeights"])
		j.Str("configured", shown["TRES"])
	})
	object("cpus", func() { j.Num("total", cpus) })
	object("defaults", func() {
		j.Num("memory_per_cpu", p.DefMemPerCPU)
		minutes("time", p.DefTimeS)
		j.Str("job", shown["JobDefaults"])
	})
	j.Num("grace_time", p.GraceTimeS)
	object("maximums", func() {
		j.Maybe("cpus_per_node", int64(p.MaxCPUsPerNode), p.MaxCPUsPerNode > 0, p.MaxCPUsPerNode == 0)
		j.Num("memory_per_cpu", p.MaxMemPerCPU)
		j.Maybe("nodes", int64(p.MaxNodes), p.MaxNodes > 0, p.MaxNodes == 0)
		j.Num("shares", int64(max(1, p.ShareMax)))
		minutes("time", p.MaxTimeS)
	})
	object("minimums", func() { j.Num("nodes", int64(max(1, p.MinNodes))) })
	object("priority", func() {
		j.Num("job_factor", int64(p.PriorityJobFactor))
		j.Num("tier", int64(p.PriorityTier))
	})
	object("partition", func() {
		j.List("state", []string{p.State.String()})
		j.Bool("default", p.Default)
		j.Bool("hidden", p.Hidden)
	})
	j.Close('}')
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
		j.Open("", '{')
		j.Str("hostname", ctl.Name)
		j.Str("pinged", state)
		j.Bool("responding", ctl.Up)
		j.Str("mode", mode)
		j.Bool("primary", ctl.Leader)
		j.Close('}')
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

func writeReservationJSON(j *slurmjson.Writer, v *model.Reservation, size *proto.ResvSize) {
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

// licensesJSON writes all licenses, or the named one.
func (c *control) licensesJSON(reply *proto.ConfigReply, name string) error {
	j := c.jsonFrame("licenses", c.json)
	for _, l := range reply.Config.Licenses {
		if name != "" && l.Name != name {
			continue
		}
		used := licenseUsed(reply, l.Name)
		j.Open("", '{')
		j.Str("LicenseName", l.Name)
		j.Num("Total", l.Count)
		j.Num("Used", used)
		j.Num("Free", max(0, l.Count-used))
		j.Bool("Remote", false)
		j.Num("Reserved", 0)
		j.Num("LastConsumed", 0)
		j.Num("LastDeficit", 0)
		j.Num("LastUpdate", 0)
		j.Close('}')
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
