package jobtext

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// This file owns the rarer members of jobs, nodes and partitions, what the REST interface has otherwise than the
// commands, and a job's parts of its nodes.

// without leaves out what Slurm's specification does not have.
func without[T any](fields []slurmjson.Field[T], names ...string) []slurmjson.Field[T] {
	return slices.DeleteFunc(fields, func(f slurmjson.Field[T]) bool { return slices.Contains(names, f.Name) })
}

// JobMembers is a job's object in the REST interface: that of the commands, but Slurm's specification has no
// submit_line before v0.0.44.
func JobMembers() []slurmjson.Field[JobRow] {
	fields := JobJSON()
	for i := range fields {
		if fields[i].Name == "submit_line" {
			fields[i].Since = "v0.0.44"
		}
	}
	return fields
}

// jobMembers are the rarer members of a job.
func jobMembers() []slurmjson.Field[JobRow] {
	const v42, v43, v44 = "v0.0.42", "v0.0.43", "v0.0.44"
	type fields = []slurmjson.Field[JobRow]
	perTRES := func(name string, of func(m model.Needs) int64) slurmjson.Field[JobRow] {
		return slurmjson.Field[JobRow]{Name: name, Str: func(r *JobRow) string {
			if n := of(r.Spec.Extra()); n > 0 {
				return "gres/gpu:" + itoa64(n)
			}
			return ""
		}}
	}
	most := func(name string, of func(m model.Needs) int32) slurmjson.Field[JobRow] {
		return slurmjson.Field[JobRow]{Name: name, Num: func(r *JobRow) (int64, bool, bool) {
			n := int64(of(r.Spec.Extra()))
			return n, n > 0, n == 0 && name != "sockets_per_node"
		}}
	}
	stdout := func(r *JobRow) string { o, _ := r.OutputFiles(); return o }
	return append(jobMembersUntil41(), fields{
		{Name: "burst_buffer", Str: func(r *JobRow) string { return r.Spec.Stated().BurstBuffer }},
		{Name: "burst_buffer_state"}, {Name: "cluster_features"}, {Name: "container_id"},
		freqField("cpu_frequency_governor", func(_, _, governor string) string { return governor }),
		freqField("cpu_frequency_maximum", func(_, high, _ string) string { return high }),
		freqField("cpu_frequency_minimum", func(low, _, _ string) string { return low }),
		perTRES("cpus_per_tres", func(m model.Needs) int64 { return int64(m.CPUsPerGPU) }),
		{Name: "cron", Str: (*JobRow).cronTimes}, {Name: "extra"}, {Name: "federation_origin"},
		{Name: "federation_siblings_active"}, {Name: "federation_siblings_viable"},
		{Name: "gres_detail", List: func(r *JobRow) []string {
			if !r.holds() {
				return nil
			}
			var out []string
			for i := range r.Run.Alloc.Nodes {
				out = append(out, gresIndexText(r.Run.Alloc.Nodes[i].Gres))
			}
			return out
		}},
		{Name: "job_size_str", Type: slurmjson.List},
		{Name: "licenses_allocated", Since: v43, Str: func(r *JobRow) string {
			if !r.holds() {
				return ""
			}
			return licensesText(r.Spec)
		}},
		{Name: "mail_type", List: func(r *JobRow) []string {
			if m := r.Spec.Mail(); m != nil {
				return m.Types.Members()
			}
			return nil
		}},
		{Name: "mail_user", Str: func(r *JobRow) string {
			if m := r.Spec.Mail(); m != nil && m.User != "" {
				return m.User
			}
			return r.Spec.User
		}},
		{Name: "maximum_switch_wait_time", Int: func(r *JobRow) int64 { return max(0, r.Spec.Extra().SwitchWaitS) }},
		{Name: "mcs_label"},
		perTRES("memory_per_tres", func(m model.Needs) int64 { return m.MemPerGPU }),
		{Name: "network", Str: func(r *JobRow) string { return r.Spec.Stated().Network }},
		{Name: "power", Fields: fields{{Name: "flags", Type: slurmjson.List}}},
		{Name: "preemptable_time", Type: slurmjson.Moment},
		{Name: "prefer", Str: func(r *JobRow) string { return r.Spec.Extra().Prefer }},
		{Name: "priority_by_partition", Since: v42, Type: slurmjson.List},
		{Name: "profile", List: func(r *JobRow) []string {
			return strings.Split(strings.ToUpper(cmp.Or(r.Spec.Stated().Profile, "NOT_SET")), ",")
		}},
		{Name: "required_switches", Since: v42, Int: (*JobRow).switches},
		{Name: "resv_name", Str: func(r *JobRow) string { return r.ReservationText() }},
		{Name: "segment_size", Since: v43, Int: func(r *JobRow) int64 { return int64(r.Spec.Extra().Segment) }},
		{Name: "selinux_context"},
		{Name: "sockets_per_board", Type: slurmjson.Integer},
		most("sockets_per_node", func(m model.Needs) int32 { return m.Sockets }),
		{Name: "stderr_expanded", Since: v43, Str: func(r *JobRow) string { _, e := r.OutputFiles(); return e }},
		{Name: "stdin_expanded", Since: v43, Str: func(r *JobRow) string { return stdinOf(r.Spec) }},
		{Name: "stdout_expanded", Since: v43, Str: stdout},
		{Name: "step_id", Since: v44, Fields: fields{
			{Name: "sluid"},
			{Name: "job_id", Count: func(r *JobRow) int64 { return int64(r.ID) }},
			{Name: "step_het_component", Type: slurmjson.Number},
			{Name: "step_id"},
		}},
		{Name: "system_comment", Str: func(r *JobRow) string { return r.SystemText() }},
		{Name: "tasks_per_board", Type: slurmjson.Count},
		most("tasks_per_core", func(m model.Needs) int32 { return m.TasksPerCore }),
		most("tasks_per_socket", func(m model.Needs) int32 { return m.SaidPerSocket() }),
		{Name: "tasks_per_tres", Count: func(r *JobRow) int64 {
			if b := r.Spec.Extra().Bind; b != nil {
				return int64(b.TasksPerGPU)
			}
			return 0
		}},
		{Name: "thread_spec", Type: slurmjson.Integer},
		{Name: "tres_bind", Str: func(r *JobRow) string { return gpuBind(r.Spec) }},
		{Name: "tres_freq", Str: func(r *JobRow) string { return gpuFreq(r.Spec.Stated()) }},
	}...)
}

// jobMembersUntil41 are a job's members that later versions do not have.
func jobMembersUntil41() []slurmjson.Field[JobRow] {
	const v41 = "v0.0.41"
	return []slurmjson.Field[JobRow]{
		{Name: "job_resources", In: slurmjson.InNew, Until: "v0.0.40", Fields: resourceFields40(), If: (*JobRow).holds},
		{Name: "minimum_switches", Until: v41, Int: (*JobRow).switches},
		{Name: "exclusive", Until: v41, Type: slurmjson.List}, {Name: "show_flags", Until: v41, Type: slurmjson.List},
		{Name: "oversubscribe", Until: v41, Bool: func(r *JobRow) bool { return !r.Spec.Exclusive }},
	}
}

// freqField is a part of --cpu-freq.
func freqField(name string, of func(low, high, governor string) string) slurmjson.Field[JobRow] {
	return slurmjson.Field[JobRow]{Name: name, Num: func(r *JobRow) (int64, bool, bool) {
		n := freqNumber(of(cpuFreq(r.Spec.Stated().CPUFreq)))
		return n, n > 0, false
	}}
}

// freqNumber gives a frequency in kHz, or the number that Slurm has for a word; 0: nothing was said.
func freqNumber(word string) int64 {
	words := [...]string{"low", "medium", "high", "highm1"}
	governors := [...]string{"schedutil", "userspace", "powersave", "performance", "ondemand", "conservative"}
	const isWord = 1 << 31
	if i := slices.Index(words[:], strings.ToLower(word)); i >= 0 {
		return isWord + int64(i) + 1
	}
	if i := slices.Index(governors[:], strings.ToLower(word)); i >= 0 {
		return isWord + 1<<(22+i)
	}
	n, _ := strconv.ParseUint(word, 10, 31) // 0: neither
	return int64(n)
}

func (r *JobRow) switches() int64 { return int64(r.Spec.Extra().Switches) }

// resourceFields40 are a job's resources in v0.0.40: as up to v0.0.39, but the nodes are a list.
func resourceFields40() []slurmjson.Field[JobRow] {
	each := func(r *JobRow, add func(*model.NodeAlloc)) {
		for i := range r.Run.Alloc.Nodes {
			add(&r.Run.Alloc.Nodes[i])
		}
	}
	cpus := func(a *model.NodeAlloc) int64 { return int64(a.CPUs.Count()) }
	return []slurmjson.Field[JobRow]{
		{Name: "nodes", Str: (*JobRow).nodeList},
		{Name: "allocated_cores", Type: slurmjson.Integer},
		{Name: "allocated_cpus", Int: (*JobRow).numCPUs},
		{Name: "allocated_hosts", Int: (*JobRow).numHosts},
		slurmjson.ListOf("allocated_nodes", each, []slurmjson.Field[model.NodeAlloc]{
			{Name: "sockets", Fields: []slurmjson.Field[model.NodeAlloc]{}},
			{Name: "nodename", Str: func(a *model.NodeAlloc) string { return a.Node }},
			{Name: "cpus_used", Int: cpus},
			{Name: "memory_used", Type: slurmjson.Integer},
			{Name: "memory_allocated", Int: func(a *model.NodeAlloc) int64 { return a.MemMiB }},
		}),
	}
}

// NodeMembers is a node's object in the REST interface.
func NodeMembers() []slurmjson.Field[NodeOf] {
	return without(NodeJSON(), "state_flags", "idle_cpus", "free_memory")
}

// nodeMembers are the rarer members of a node.
func nodeMembers() []slurmjson.Field[NodeOf] {
	type fields = []slurmjson.Field[NodeOf]
	const v43 = "v0.0.43"
	return fields{
		{Name: "burstbuffer_network_address"}, {Name: "cert_flags", Since: v43, Type: slurmjson.List},
		{Name: "cpu_binding", Type: slurmjson.Integer},
		{Name: "energy", Fields: fields{{Name: "average_watts", Type: slurmjson.Integer},
			{Name: "base_consumed_energy", Type: slurmjson.Integer}, {Name: "consumed_energy", Type: slurmjson.Integer},
			{Name: "current_watts", Type: slurmjson.Count},
			{Name: "previous_consumed_energy", Type: slurmjson.Integer}, {Name: "last_collected", Type: slurmjson.Integer}}},
		{Name: "external_sensors", Fields: fields{}}, {Name: "power", Fields: fields{}},
		{Name: "gpu_spec"},
		{Name: "gres_drained", Str: func(n *NodeOf) string { return cmp.Or(gresDrainText(n.Node), "N/A") }},
		{Name: "instance_id"}, {Name: "instance_type"}, {Name: "mcs_label"},
		{Name: "next_state_after_reboot", List: func(*NodeOf) []string { return []string{"INVALID"} }},
		{Name: "owner"}, {Name: "port", Type: slurmjson.Integer},
		{Name: "res_cores_per_gpu", Type: slurmjson.Integer},
		{Name: "resume_after", Time: func(n *NodeOf) model.Time { return n.Node.ResumeAt }},
		{Name: "specialized_cores", Int: func(n *NodeOf) int64 { return int64(keptCores(n.Node.Def)) }},
		{Name: "specialized_cpus", Str: func(n *NodeOf) string { return n.Node.Def.Kept.String() }},
		{Name: "specialized_memory", Int: func(n *NodeOf) int64 { return n.Node.Def.KeptMemMiB }},
		{Name: "tls_cert_last_renewal", Since: v43, Type: slurmjson.Moment},
		{Name: "topology", Since: v43, Str: func(n *NodeOf) string { return n.Node.Def.Topology }},
		{Name: "tres", Str: func(n *NodeOf) string { return cfgTRES(n.Node) }},
		{Name: "tres_used", Str: func(n *NodeOf) string { return allocTRES(n.Node) }},
	}
}

// partitionMembers are the rarer members of a partition.
func partitionMembers() []slurmjson.Field[PartitionOf] {
	type fields = []slurmjson.Field[PartitionOf]
	span := func(name string, of func(p *model.PartPower) int64) slurmjson.Field[PartitionOf] {
		return slurmjson.Field[PartitionOf]{Name: name, Num: func(p *PartitionOf) (int64, bool, bool) {
			if p.Power == nil || of(p.Power) == model.NotSet { // as the cluster has it
				return 0, false, false
			}
			return max(0, of(p.Power)), of(p.Power) >= 0, of(p.Power) < 0
		}}
	}
	return fields{
		{Name: "alternate", Str: func(p *PartitionOf) string { return p.Alternate }},
		{Name: "node_sets", Str: func(p *PartitionOf) string { return hostlist.Compress(p.Nodes) }},
		{Name: "timeouts", Fields: fields{
			span("resume", func(p *model.PartPower) int64 { return p.ResumeTimeoutS }),
			span("suspend", func(p *model.PartPower) int64 { return p.SuspendTimeoutS })}},
		{Name: "select_type", Type: slurmjson.List},
		span("suspend_time", func(p *model.PartPower) int64 { return p.SuspendS }),
		{Name: "topology", Since: "v0.0.43", Str: func(p *PartitionOf) string { return p.Topology }},
	}
}

// LayoutOf is what a job has of one node.
type LayoutOf struct {
	*model.NodeAlloc
	Def *model.NodeDef
}

// LayoutJSON is the object of it.
func LayoutJSON() []slurmjson.Field[LayoutOf] {
	return []slurmjson.Field[LayoutOf]{
		{Name: "node", Str: func(l *LayoutOf) string { return l.Node }},
		{Name: "sockets_per_node", Int: func(l *LayoutOf) int64 { return int64(l.Def.Sockets) }},
		{Name: "cores_per_socket", Int: func(l *LayoutOf) int64 { return int64(l.Def.CoresPerSocket) }},
		{Name: "mem_alloc", Int: func(l *LayoutOf) int64 { return l.MemMiB }},
		{Name: "core_bitmap", Str: func(l *LayoutOf) string { return l.CPUs.String() }},
		{Name: "channel", Type: slurmjson.Number},
		slurmjson.Slice("gres", func(l *LayoutOf) []model.GresAlloc { return l.Gres }, []slurmjson.Field[model.GresAlloc]{
			{Name: "name", Str: func(g *model.GresAlloc) string { return g.Name }},
			{Name: "type", Str: func(g *model.GresAlloc) string { return g.Type }},
			{Name: "count", Int: func(g *model.GresAlloc) int64 { return int64(g.Index.Count()) }},
			{Name: "index", Str: func(g *model.GresAlloc) string { return g.Index.String() }},
		}),
	}
}

func itoa64(n int64) string { return strconv.FormatInt(n, 10) }
