package control

import (
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/getopt"
)

// complete.go completes gcontrol's words: verbs, what they work on, and KEY=VALUE.

// entities are what show shows, with what may follow.
var entities = []struct {
	name   string
	values getopt.Kind
}{
	{"job", getopt.Jobs}, {"step", getopt.Jobs}, {"node", getopt.Nodes}, {"partition", getopt.Partitions},
	{"reservation", getopt.Reservations}, {"config", getopt.Fixed}, {"licenses", getopt.Licenses},
	{"assoc_mgr", getopt.Fixed},
	{"slurmd", getopt.Nodes},
	{"topology", getopt.Fixed}, {"hostnames", getopt.Nodes}, {"hostlist", getopt.Nodes}, {"version", getopt.Fixed},
}

// ofKeys says what the value of a KEY= is, by small letters.
var ofKeys = map[string]getopt.Values{
	"jobid":           {Kind: getopt.Jobs, List: true},
	"nodename":        {Kind: getopt.Nodes, List: true},
	"node":            {Kind: getopt.Nodes, List: true},
	"nodes":           {Kind: getopt.Nodes, List: true},
	"reqnodelist":     {Kind: getopt.Nodes, List: true},
	"excnodelist":     {Kind: getopt.Nodes, List: true},
	"reservationname": {Kind: getopt.Reservations},
	"reservation":     {Kind: getopt.Reservations},
	"partition":       {Kind: getopt.Partitions, List: true},
	"partitionname":   {Kind: getopt.Partitions},
	"account":         {Kind: getopt.Accounts},
	"accounts":        {Kind: getopt.Accounts, List: true},
	"users":           {Kind: getopt.Users, List: true},
	"mailuser":        {Kind: getopt.Users, List: true},
	"qos":             {Kind: getopt.QOS},
	"wckey":           {Kind: getopt.WCKeys},
	"features":        {Kind: getopt.Features},
	"prefer":          {Kind: getopt.Features},
	"licenses":        {Kind: getopt.Licenses, List: true},
	"gres":            {Kind: getopt.Gres, List: true},
	"state": {Words: getopt.Fields("DRAIN", "RESUME", "DOWN", "IDLE", "UNDRAIN", "FAIL", "FUTURE",
		"UP", "INACTIVE").Words},
	"suspendexcnodes": {Kind: getopt.Nodes, List: true},
	"suspendexcparts": {Kind: getopt.Partitions, List: true},
}

var (
	nodeKeys = []string{"State", "Reason", "Gres", "AvailableFeatures", "ActiveFeatures", "Weight", "Comment", "Extra",
		"Topology", "CpuBind", "ResumeAfter"}
	partKeys = []string{"Nodes", "State", "Default", "MaxTime", "DefaultTime", "MaxNodes", "MinNodes", "PriorityTier",
		"PriorityJobFactor", "AllowAccounts", "AllowGroups", "AllowQos", "DenyAccounts", "DenyQos", "Hidden", "QOS",
		"OverSubscribe", "TRESBillingWeights", "DefMemPerCPU", "DefMemPerNode", "MaxMemPerCPU", "MaxMemPerNode",
		"ReservePercent", "QueuePolicy", "Topology"}
	resvKeys = []string{"StartTime", "EndTime", "Duration", "Nodes", "NodeCnt", "CoreCnt", "TRES", "Users", "Accounts",
		"Groups", "PartitionName", "Licenses", "Features", "Flags"}
)

func keys(names ...string) getopt.Values {
	var v getopt.Values
	for _, n := range names {
		v.Words = append(v.Words, getopt.Word{Text: n + "="})
	}
	return v
}

// operands gives what may stand after some words of a gcontrol command.
func operands(before []string, typed string) getopt.Values {
	if len(before) == 0 {
		var v getopt.Values
		for _, verb := range verbs() {
			if verb.run != nil {
				v.Words = append(v.Words, getopt.Word{Text: verb.name, Help: verb.help})
			}
		}
		return v
	}
	if key, _, has := strings.Cut(typed, "="); has {
		v := ofKeys[strings.ToLower(key)]
		v.Head = len(key) + 1
		return v
	}
	verb, err := findVerb(before[0])
	if err != nil {
		return getopt.Values{}
	}
	rest := before[1:]
	switch verb.name {
	case "listpids":
		if len(rest) == 1 {
			return getopt.Values{Kind: getopt.Nodes}
		}
		return getopt.Values{Kind: getopt.Jobs}
	case "hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume", "resize", "top", "why", "wait_job":
		return getopt.Values{Kind: getopt.Jobs}
	case "show":
		return shownBy(rest)
	case "update":
		return updatedBy(rest)
	case "create":
		if len(rest) == 0 {
			return getopt.Fields("reservation", "partition", "node")
		}
		switch low := strings.ToLower(rest[0]); {
		case strings.HasPrefix(low, "part"):
			return keys(append([]string{"PartitionName"}, partKeys...)...)
		case strings.HasPrefix(low, "node"):
			return keys("NodeName", "CPUs", "RealMemory", "Gres", "Feature", "Weight", "State")
		}
		return keys(append([]string{"ReservationName"}, resvKeys...)...)
	case "delete":
		return keys("ReservationName", "PartitionName", "NodeName")
	case "reboot", "cancel_reboot":
		return getopt.Values{Kind: getopt.Nodes}
	case "power":
		switch {
		case len(rest) == 0:
			return getopt.Values{Words: getopt.Fields("up", "down").Words}
		case len(rest) == 1 && strings.EqualFold(rest[0], "down"):
			return getopt.Values{Kind: getopt.Nodes, Words: getopt.Fields("asap", "force").Words}
		}
		return getopt.Values{Kind: getopt.Nodes}
	case "tag":
		return keys("node", "gpu", "model+", "model-")
	case "doctor", "mig":
		return keys("node")
	case "controllers":
		return getopt.Fields("list", "add", "remove", "replace")
	case "snapshot":
		return firstOf(rest, "save", "inspect")
	case "dump":
		return firstOf(rest, "state")
	case "write":
		if len(rest) == 1 && strings.HasPrefix("batch_script", strings.ToLower(rest[0])) {
			return getopt.Values{Kind: getopt.Jobs}
		}
		return firstOf(rest, "batch_script")
	}
	return getopt.Values{}
}

// firstOf gives words for the first operand, and files for those after it.
func firstOf(rest []string, words ...string) getopt.Values {
	if len(rest) == 0 {
		return getopt.Values{Words: getopt.Fields(words...).Words}
	}
	return getopt.Values{Kind: getopt.Files}
}

func shownBy(rest []string) getopt.Values {
	var v getopt.Values
	for _, e := range entities {
		switch {
		case len(rest) == 0:
			v.Words = append(v.Words, getopt.Word{Text: e.name})
		case strings.HasPrefix(e.name, strings.ToLower(rest[0])):
			return getopt.Values{Kind: e.values}
		}
	}
	return v
}

func updatedBy(rest []string) getopt.Values {
	if len(rest) == 0 {
		return keys("JobId", "NodeName", "PartitionName", "ReservationName", "SuspendExcNodes", "SuspendExcParts",
			"SuspendExcStates")
	}
	switch low := strings.ToLower(rest[0]); {
	case strings.HasPrefix(low, "job"):
		return keys(ask.JobKeys...)
	case strings.HasPrefix(low, "node"):
		return keys(nodeKeys...)
	case strings.HasPrefix(low, "part"):
		return keys(partKeys...)
	}
	return keys(resvKeys...)
}
