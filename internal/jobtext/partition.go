package jobtext

import (
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// PartitionOf is a partition with the CPUs of its nodes, and its cluster.
type PartitionOf struct {
	*model.Partition
	CPUs    int64
	Cluster string
}

// partMinutes gives a limit of a partition in minutes.
func partMinutes(s int64) (int64, bool, bool) {
	return (s + 59) / 60, s > 0 && s < model.Unlimited, s >= model.Unlimited
}

// memory is a limit of memory in its two forms, of which one is set: of each CPU, or of each node, where 0 is none.
func memory(perCPU, perNode func(p *PartitionOf) int64) []slurmjson.Field[PartitionOf] {
	return []slurmjson.Field[PartitionOf]{
		{Name: "partition_memory_per_cpu", In: slurmjson.InNew,
			Num: func(p *PartitionOf) (int64, bool, bool) { return perCPU(p), perCPU(p) > 0, false }},
		{Name: "partition_memory_per_node", In: slurmjson.InNew,
			Num: func(p *PartitionOf) (int64, bool, bool) { return perNode(p), perCPU(p) == 0, false }},
	}
}

// atMost gives a limit; 0 means none.
func atMost(n int32) (int64, bool, bool) { return int64(n), n > 0, n == 0 }

// PartitionJSON is a partition's object.
func PartitionJSON() []slurmjson.Field[PartitionOf] {
	type row = PartitionOf
	type fields = []slurmjson.Field[row]
	text := func(name string, get func(p *row) string) slurmjson.Field[row] {
		return slurmjson.Field[row]{Name: name, Str: get}
	}
	join := func(name string, get func(p *row) []string) slurmjson.Field[row] {
		return text(name, func(p *row) string { return strings.Join(get(p), ",") })
	}
	num := func(name string, get func(p *row) int64) slurmjson.Field[row] {
		return slurmjson.Field[row]{Name: name, Int: get}
	}
	return append(fields{
		text("name", func(p *row) string { return p.Name }),
		text("cluster", func(p *row) string { return p.Cluster }),
		{Name: "nodes", Fields: fields{
			{Name: "allowed_allocation"},
			text("configured", func(p *row) string { return hostlist.Compress(p.Nodes) }),
			num("total", func(p *row) int64 { return int64(len(p.Nodes)) }),
		}},
		{Name: "accounts", Fields: fields{
			join("allowed", func(p *row) []string { return p.AllowAccounts }),
			join("deny", func(p *row) []string { return p.DenyAccounts }),
		}},
		{Name: "groups", Fields: fields{join("allowed", func(p *row) []string { return p.AllowGroups })}},
		{Name: "qos", Fields: fields{
			join("allowed", func(p *row) []string { return p.AllowQOS }),
			join("deny", func(p *row) []string { return p.DenyQOS }),
			text("assigned", func(p *row) string { return p.QOS }),
		}},
		{Name: "tres", Fields: fields{
			text("billing_weights", func(p *row) string { return p.shown("TRESBillingWeights") }),
			text("configured", func(p *row) string { return p.shown("TRES") }),
		}},
		{Name: "cpus", Fields: fields{{Name: "task_binding", Type: slurmjson.Integer},
			num("total", func(p *row) int64 { return p.CPUs })}},
		{Name: "defaults", Fields: append(memory(func(p *row) int64 { return p.DefMemPerCPU },
			func(p *row) int64 { return p.DefMemPerNode }), fields{
			num("memory_per_cpu", func(p *row) int64 { return p.DefMemPerCPU }),
			{Name: "time", Num: func(p *row) (int64, bool, bool) { return partMinutes(p.DefTimeS) }},
			text("job", func(p *row) string { return strings.TrimSuffix(p.shown("JobDefaults"), "(null)") }),
		}...)},
		num("grace_time", func(p *row) int64 { return p.GraceTimeS }),
		{Name: "maximums", Fields: append(memory(func(p *row) int64 { return p.MaxMemPerCPU },
			func(p *row) int64 { return p.MaxMemPerNode }), fields{
			{Name: "cpus_per_node", Num: func(p *row) (int64, bool, bool) { return atMost(p.MaxCPUsPerNode) }},
			{Name: "cpus_per_socket", Num: func(p *row) (int64, bool, bool) { return atMost(p.MaxCPUsPerSocket) }},
			num("memory_per_cpu", func(p *row) int64 { return p.MaxMemPerCPU }),
			{Name: "nodes", Num: func(p *row) (int64, bool, bool) { return atMost(p.MaxNodes) }},
			num("shares", func(p *row) int64 { return int64(max(1, p.ShareMax)) }),
			{Name: "oversubscribe", In: slurmjson.InNew, Fields: fields{
				num("jobs", func(p *row) int64 { return int64(max(1, p.ShareMax)) }),
				{Name: "flags", List: func(p *row) []string {
					if p.ShareForced {
						return []string{"force"}
					}
					return nil
				}},
			}},
			{Name: "time", Num: func(p *row) (int64, bool, bool) { return partMinutes(p.MaxTimeS) }},
			{Name: "over_time_limit", Num: func(p *row) (int64, bool, bool) { return partMinutes(p.OverTimeS) }},
		}...)},
		{Name: "minimums", Fields: fields{num("nodes", func(p *row) int64 { return int64(max(0, p.MinNodes)) })}},
		{Name: "priority", Fields: fields{
			num("job_factor", func(p *row) int64 { return int64(p.PriorityJobFactor) }),
			num("tier", func(p *row) int64 { return int64(p.PriorityTier) }),
		}},
		{Name: "partition", Fields: fields{
			{Name: "state", List: func(p *row) []string { return []string{p.State.String()} }},
			{Name: "default", Bool: func(p *row) bool { return p.Default }},
			{Name: "hidden", Bool: func(p *row) bool { return p.Hidden }},
		}},
	}, partitionMembers()...)
}

// shown gives a value as scontrol shows it, or "".
func (p *PartitionOf) shown(key string) (value string) {
	for _, k := range p.Show {
		if k.Key == key {
			value = k.Value
		}
	}
	return value
}

// partitionBreaks says which keys end a line in scontrol's layout.
func partitionBreaks(key string) bool {
	switch key {
	case "AllowQos", "DenyQos", "QoS", "Hidden", "MaxCPUsPerSocket", "Nodes", "OverSubscribe", "PreemptMode",
		"SelectTypeParameters",
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
