package jobtext

import (
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

func PartitionJSON(j *slurmjson.Writer, p *model.Partition, cpus int64, cluster string) {
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

// partitionBreaks says which keys end a line in scontrol's layout.
func partitionBreaks(key string) bool {
	switch key {
	case "AllowQos", "DenyQos", "QoS", "Hidden", "MaxCPUsPerSocket", "Nodes", "OverSubscribe", "PreemptMode", "SelectTypeParameters",
		"JobDefaults", "MaxMemPerCPU", "MaxMemPerNode", "TRES":
		return true
	}
	return false
}

// ShowPartition gives a partition as scontrol show partition does.
func ShowPartition(p *model.Partition) *KeyValues {
	r := &KeyValues{}
	r.line(KV("PartitionName", p.Name))
	var words []string
	for _, k := range p.Show {
		v := k.Value
		if v == "" {
			v = "(null)"
		}
		words = append(words, k.Key+"="+v)
		if partitionBreaks(k.Key) {
			r.line(words...)
			words = nil
		}
	}
	if len(words) > 0 {
		r.line(words...)
	}
	return r
}
