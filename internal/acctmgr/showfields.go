package acctmgr

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
)

type field = format.Field[Row]

// ofAssoc is a field of a row's association, written as it is set.
func ofAssoc(name, title string, width int, attribute string) field {
	a := find(assocAttrs(), attribute)
	return field{Name: name, Title: title, Width: width, Get: func(r *Row) string {
		if r.assoc == nil {
			return ""
		}
		return a.get(r.assoc)
	}}
}

// limitFields are the fields of every table with associations.
func limitFields() []field {
	return []field{
		ofAssoc("Share", "", 9, "fairshare"), ofAssoc("Fairshare", "Share", 9, "fairshare"),
		ofAssoc("Priority", "", 10, "priority"),
		ofAssoc("GrpJobs", "", 7, "grpjobs"), ofAssoc("GrpJobsAccrue", "", 13, "grpjobsaccrue"),
		ofAssoc("GrpTRES", "", 13, "grptres"),
		ofAssoc("GrpSubmitJobs", "GrpSubmit", 9, "grpsubmit"), ofAssoc("GrpWall", "", 11, "grpwall"),
		ofAssoc("GrpTRESMins", "", 13, "grptresmins"),
		ofAssoc("GrpTRESRunMins", "GrpTRESRunMins", 13, "grptresrunmins"),
		ofAssoc("GuaranteedTRES", "", 14, "guaranteedtres"),
		ofAssoc("GrpCPUs", "", 8, "grpcpus"), ofAssoc("GrpMemory", "GrpMem", 7, "grpmem"),
		ofAssoc("GrpNodes", "", 8, "grpnodes"), ofAssoc("GrpCPUMins", "", 11, "grpcpumins"),
		ofAssoc("GrpCPURunMins", "", 14, "grpcpurunmins"),
		ofAssoc("MaxJobs", "", 7, "maxjobs"), ofAssoc("MaxJobsAccrue", "", 13, "maxjobsaccrue"),
		ofAssoc("MaxTRES", "", 13, "maxtres"),
		ofAssoc("MaxTRESPerJob", "MaxTRES", 13, "maxtres"),
		ofAssoc("MaxTRESPerNode", "", 14, "maxtrespernode"), ofAssoc("MaxSubmitJobs", "MaxSubmit", 9, "maxsubmit"),
		ofAssoc("MaxWall", "", 11, "maxwall"),
		ofAssoc("MaxWallDurationPerJob", "MaxWall", 11, "maxwall"),
		ofAssoc("MaxTRESMins", "", 13, "maxtresmins"), ofAssoc("MaxTRESMinsPerJob", "MaxTRESMins", 13, "maxtresmins"),
		ofAssoc("MaxTRESRunMins", "", 14, "maxtresrunmins"), ofAssoc("MaxCPUs", "", 8, "maxcpus"),
		ofAssoc("MaxNodes", "", 8, "maxnodes"), ofAssoc("MaxCPUMins", "", 11, "maxcpumins"),
		ofAssoc("MinPrioThreshold", "MinPrioThres", 12, "minpriothreshold"),
		ofAssoc("QOS", "", 20, "qos"), ofAssoc("QosLevel", "QOS", 20, "qos"),
		ofAssoc("DefaultQOS", "Def QOS", 9, "defaultqos"), ofAssoc("DefQOS", "Def QOS", 9, "defaultqos"),
		{Name: "QOSRaw", Width: 10, Get: func(r *Row) string {
			if r.assoc == nil {
				return ""
			}
			var out []string
			for _, n := range r.assoc.QOS {
				if q := r.f.QOS[n]; q != nil {
					out = append(out, strconv.FormatUint(uint64(q.ID), 10))
				}
			}
			return strings.Join(out, ",")
		}},
		{Name: "ID", Width: 6, Get: func(r *Row) string {
			if r.assoc == nil {
				return ""
			}
			return strconv.FormatUint(uint64(r.assoc.ID), 10)
		}},
		{Name: "ParentName", Title: "ParentName", Width: 10, Get: func(r *Row) string {
			if r.assoc == nil || r.assoc.User != "" {
				return ""
			}
			return r.f.parent(r.assoc.Account)
		}},
		{Name: "ParentID", Title: "Par ID", Width: 6, Get: func(r *Row) string {
			if r.assoc == nil {
				return ""
			}
			up := r.assoc.Account
			if r.assoc.User == "" {
				up = r.f.parent(up)
			}
			if a := r.f.assoc(up, "", ""); a != nil {
				return strconv.FormatUint(uint64(a.ID), 10)
			}
			return "0"
		}},
	}
}

func clusterField() field {
	return field{Name: "Cluster", Width: 10, Get: func(r *Row) string {
		if r.assoc == nil {
			return ""
		}
		return r.f.Cluster
	}}
}

func accountField() field {
	return field{Name: "Account", Width: 10, Get: func(r *Row) string {
		name := ""
		if r.assoc != nil {
			name = r.assoc.Account
		} else if r.acct != nil {
			name = r.acct.Name
		}
		if r.tree && r.assoc != nil {
			depth := r.f.depth(name)
			if r.assoc.User != "" {
				depth++
			}
			return strings.Repeat(" ", depth) + name
		}
		return name
	}}
}

func userField() field {
	return field{Name: "User", Width: 10, Get: func(r *Row) string {
		switch {
		case r.assoc != nil:
			return r.assoc.User
		case r.user != nil:
			return r.user.Name
		}
		return ""
	}}
}

func partitionField() field {
	return field{Name: "Partition", Width: 10, Get: func(r *Row) string {
		if r.assoc == nil {
			return ""
		}
		return r.assoc.Partition
	}}
}

func coordField() field {
	return field{Name: "Coordinators", Title: "Coord Accounts", Width: 20, Get: func(r *Row) string {
		switch {
		case r.acct != nil && r.user == nil:
			return strings.Join(r.f.coordinatorsOf(r.acct), ",")
		case r.user != nil:
			var out []string
			for name, a := range r.f.Accounts {
				if slices.Contains(r.f.coordinatorsOf(a), r.user.Name) {
					out = append(out, name)
				}
			}
			slices.Sort(out)
			return strings.Join(out, ",")
		}
		return ""
	}}
}

// coordinatorsOf gives who coordinates an account: its own coordinators, and those of the accounts above it.
func (f *Facts) coordinatorsOf(a *model.Account) []string {
	out := slices.Clone(a.Coordinators)
	for n := 0; n < len(f.Accounts) && a != nil; n++ {
		if a = f.Accounts[a.Parent]; a == nil {
			break
		}
		for _, name := range a.Coordinators {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func accountFields() *format.Language[Row] {
	of := func(get func(*model.Account) string) func(*Row) string {
		return func(r *Row) string {
			if r.acct == nil {
				return ""
			}
			return get(r.acct)
		}
	}
	fields := []field{accountField(),
		{Name: "Description", Title: "Descr", Width: 20, Get: of(func(a *model.Account) string { return a.Description })},
		{Name: "Organization", Title: "Org", Width: 20, Get: of(func(a *model.Account) string { return a.Organization })},
		clusterField(), coordField(), userField(), partitionField(),
		{Name: "Name", Title: "Account", Width: 10, Get: of(func(a *model.Account) string { return a.Name })}}
	return &format.Language[Row]{Noun: "account", Fields: append(fields, limitFields()...)}
}

func userFields() *format.Language[Row] {
	fields := []field{userField(), accountField(),
		{Name: "DefaultAccount", Title: "Def Acct", Width: 10, Get: func(r *Row) string {
			if r.user == nil {
				return ""
			}
			return r.user.DefaultAccount
		}},
		{Name: "AdminLevel", Title: "Admin", Width: 9, Get: func(r *Row) string {
			if r.user == nil {
				return ""
			}
			return r.user.Admin.String()
		}},
		clusterField(), coordField(), partitionField(), {Name: "Name", Title: "User", Width: 10, Get: userField().Get},
		{Name: "DefaultWCKey", Title: "Def WCKey", Width: 10, Get: func(r *Row) string {
			if r.user == nil {
				return ""
			}
			return r.user.DefaultWCKey
		}},
		{Name: "WCKeys", Width: 20, Get: func(r *Row) string {
			if r.user == nil {
				return ""
			}
			return strings.Join(r.f.wckeyNames(r.user.Name), ",")
		}}}
	return &format.Language[Row]{Noun: "user", Fields: append(fields, limitFields()...)}
}

func assocFields() *format.Language[Row] {
	fields := []field{accountField(), clusterField(), userField(), partitionField()}
	return &format.Language[Row]{Noun: "association", Fields: append(fields, limitFields()...)}
}

func clusterFields() *format.Language[Row] {
	addr := func(r *Row, i int) string {
		k := max(0, strings.LastIndexByte(r.f.Addr, ':')) // without package net, which a command would start slower with
		host := strings.Trim(r.f.Addr[:k], "[]")
		return [2]string{host, strings.TrimPrefix(r.f.Addr[k:], ":")}[i]
	}
	fields := []field{clusterField(),
		{Name: "ControlHost", Width: 15, Get: func(r *Row) string { return addr(r, 0) }},
		{Name: "ControlPort", Width: 12, Get: func(r *Row) string { return addr(r, 1) }},
		{Name: "RPC", Width: 5, Get: func(*Row) string { return "" }},
		{Name: "TRES", Width: 20, Get: func(r *Row) string { return r.f.capacity() }},
		{Name: "NodeCount", Title: "Node Count", Width: 10, Get: func(r *Row) string {
			return strconv.FormatInt(model.CountTRES(r.f.Has, "node"), 10)
		}},
		{Name: "NodeNames", Width: 20, Get: func(r *Row) string { return r.f.Nodes }},
		{Name: "Classification", Title: "Class", Width: 9, Get: func(*Row) string { return "" }},
		{Name: "Flags", Width: 20, Get: func(*Row) string { return "" }}}
	return &format.Language[Row]{Noun: "cluster", Fields: append(fields, limitFields()...)}
}

func problemFields() *format.Language[Row] {
	return &format.Language[Row]{Noun: "problem", Fields: []field{
		{Name: "Cluster", Width: 10, Get: func(r *Row) string { return r.f.Cluster }}, accountField(), userField(),
		{Name: "Problem", Width: 40, Get: func(r *Row) string { return r.wrong }}}}
}

// capacity gives what the cluster has of each resource that it counts, in the order of the text.
func (f *Facts) capacity() string {
	var out []string
	for _, name := range f.TRES {
		n := model.CountTRES(f.Has, name)
		if name == "billing" { // weights belong to partitions: the cluster's units are its CPUs
			n = model.CountTRES(f.Has, "cpu")
		}
		out = append(out, model.TRESCount{TRES: name, Count: n}.Text())
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func tresFields() *format.Language[Row] {
	part := func(i int) func(*Row) string {
		return func(r *Row) string {
			typ, name, _ := strings.Cut(r.f.TRES[r.tres-1], "/")
			return [2]string{typ, name}[i]
		}
	}
	return &format.Language[Row]{Noun: "tres", Fields: []field{
		{Name: "Type", Width: 8, Get: part(0)}, {Name: "Name", Width: 15, Get: part(1)},
		{Name: "ID", Width: 6, Get: func(r *Row) string { return strconv.FormatInt(r.f.TRESID(r.f.TRES[r.tres-1]), 10) }}}}
}

func qosFields() *format.Language[Row] {
	of := func(name, title string, width int, attribute string) field {
		a := find(qosAttrs(), attribute)
		return field{Name: name, Title: title, Width: width, Get: func(r *Row) string { return a.get(r.qos) }}
	}
	return &format.Language[Row]{Noun: "qos", Fields: []field{
		{Name: "Name", Width: 10, Get: func(r *Row) string { return r.qos.Name }},
		of("Priority", "", 10, "priority"), of("GraceTime", "", 10, "gracetime"), of("Preempt", "", 10, "preempt"),
		of("PreemptExemptTime", "", 19, "preemptexempttime"), of("PreemptMode", "", 11, "preemptmode"),
		of("Flags", "", 20, "flags"),
		of("UsageThreshold", "UsageThres", 10, "usagethreshold"), of("UsageFactor", "", 11, "usagefactor"),
		of("LimitFactor", "", 11, "limitfactor"),
		of("GrpTRES", "", 13, "grptres"), of("GrpTRESMins", "", 13, "grptresmins"),
		of("GrpTRESRunMins", "GrpTRESRunMins", 13, "grptresrunmins"),
		of("GrpJobs", "", 7, "grpjobs"), of("GrpJobsAccrue", "", 13, "grpjobsaccrue"),
		of("GrpSubmitJobs", "GrpSubmit", 9, "grpsubmit"), of("GrpWall", "", 11, "grpwall"),
		of("GuaranteedTRES", "", 14, "guaranteedtres"), of("GrpCPUs", "", 8, "grpcpus"), of("GrpNodes", "", 8, "grpnodes"),
		of("GrpMemory", "GrpMem", 7, "grpmemory"), of("GrpMem", "", 7, "grpmemory"), of("GrpCPUMins", "", 11, "grpcpumins"),
		of("GrpCPURunMins", "", 13, "grpcpurunmins"),
		of("MaxCPUs", "", 8, "maxcpus"), of("MaxNodes", "", 8, "maxnodes"), of("MaxCPUMins", "", 11, "maxcpumins"),
		of("MinCPUs", "", 8, "mincpus"),
		of("MaxCPUsPerUser", "MaxCPUsPU", 9, "maxcpuspu"), of("MaxCPUsPU", "", 9, "maxcpuspu"),
		of("MaxNodesPerUser", "MaxNodesPU", 10, "maxnodespu"),
		of("MaxNodesPU", "", 10, "maxnodespu"), of("MaxCPURunMinsPerUser", "MaxCPURunMinsPU", 15, "maxcpurunminspu"),
		of("MaxCPURunMinsPU", "", 15, "maxcpurunminspu"),
		of("MaxTRES", "", 13, "maxtres"), of("MaxTRESPerJob", "MaxTRES", 13, "maxtres"),
		of("MaxTRESPerNode", "", 14, "maxtrespernode"), of("MaxTRESMins", "", 13, "maxtresmins"),
		of("MaxWall", "", 11, "maxwall"),
		of("MaxTRESPerUser", "MaxTRESPU", 13, "maxtrespu"), of("MaxTRESPU", "", 13, "maxtrespu"),
		of("MaxJobsPerUser", "MaxJobsPU", 9, "maxjobspu"), of("MaxJobsPU", "", 9, "maxjobspu"),
		of("MaxSubmitJobsPerUser", "MaxSubmitPU", 11, "maxsubmitpu"), of("MaxSubmitPU", "", 11, "maxsubmitpu"),
		of("MaxSubmitJobsPU", "MaxSubmitPU", 11, "maxsubmitpu"),
		of("MaxTRESPerAccount", "MaxTRESPA", 13, "maxtrespa"), of("MaxTRESPA", "", 13, "maxtrespa"),
		of("MaxTRESRunMinsPA", "", 16, "maxtresrunminspa"), of("MaxTRESRunMinsPU", "", 16, "maxtresrunminspu"),
		of("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA", 16, "maxtresrunminspa"),
		of("MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU", 16, "maxtresrunminspu"),
		of("MaxJobsPerAccount", "MaxJobsPA", 9, "maxjobspa"), of("MaxJobsPA", "", 9, "maxjobspa"),
		of("MaxSubmitJobsPerAccount", "MaxSubmitPA", 11, "maxsubmitpa"), of("MaxSubmitPA", "", 11, "maxsubmitpa"),
		of("MaxSubmitJobsPA", "MaxSubmitPA", 11, "maxsubmitpa"),
		of("MaxJobsAccruePerUser", "MaxJobsAccruePU", 15, "maxjobsaccruepu"),
		of("MaxJobsAccruePU", "", 15, "maxjobsaccruepu"),
		of("MaxJobsAccruePerAccount", "MaxJobsAccruePA", 15, "maxjobsaccruepa"),
		of("MaxJobsAccruePA", "", 15, "maxjobsaccruepa"),
		of("MinTRES", "", 13, "mintres"), of("MinTRESPerJob", "MinTRES", 13, "mintres"),
		of("MinPrioThreshold", "MinPrioThres", 12, "minpriothreshold"),
		of("Description", "Descr", 20, "description"),
		{Name: "ID", Width: 6, Get: func(r *Row) string { return strconv.FormatUint(uint64(r.qos.ID), 10) }},
	}}
}
